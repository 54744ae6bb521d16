//! Clients and endpoints on one node.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::thread;

use agent_common::drop::DropReason;
use testbed::{Node, Port};

use super::scene::{
    Echo, NETWORKS, addresses, app, ask, client, connect, own, refused, service, setup, slices,
    talk, wait_served,
};

/// Writes a Service of a network, with these pods as its endpoints.
fn serve(node: &Node, network: &str, more: &str, endpoints: &[&Port]) {
    let endpoints: Vec<_> = endpoints.iter().map(|port| (*port, "")).collect();
    let text = [
        service("web", network, addresses(10), more),
        slices("web", network, node.name(), &endpoints),
    ]
    .concat();
    node.write_manifest("services.yaml", &text);
    // Two families, and two ports.
    wait_served(node, network, 4 * endpoints.len());
}

/// D-SVC-01, D-SVC-04, D-SVC-18: all endpoints of both families and protocols.
///
/// They see the client's own address.
#[test]
fn a_service_leads_to_all_of_its_endpoints() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in NETWORKS {
        let node = Node::start(setup());
        let (_one, one) = app(&node, "one", network);
        let (_two, two) = app(&node, "two", network);
        let (_web, web) = app(&node, "web", network);
        serve(&node, network, "", &[&one, &two]);
        for ip in addresses(10) {
            let echo = Echo::at(&[&one, &two], ip);
            let mut asked = BTreeSet::new();
            for _ in 0..30 {
                let socket = client(&web, ip);
                let first = ask(&socket, &echo, b"question").v4();
                asked.insert(first);
                // A socket keeps its endpoint.
                assert_eq!(ask(&socket, &echo, b"once more").v4(), first);
            }
            assert_eq!(asked.len(), 2, "{network} {ip}");
            let mut reached = BTreeSet::new();
            for _ in 0..30 {
                let (mut here, mut there, number) =
                    connect(&web, ip, &[&one, &two]).expect("a connection");
                talk(&mut here, &mut there);
                reached.insert(number);
            }
            assert_eq!(reached.len(), 2, "{network} {ip}");
        }
        node.assert_audit_finds_nothing(network);
    }
    proof::of!("KEP-P3-4", "PAIN-SVC-1");
}

/// D-SVC-22: no endpoint, no such port: refused, and at once.
#[test]
fn a_service_without_endpoints_refuses_connections() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in NETWORKS {
        let node = Node::start(setup());
        let (_web, web) = app(&node, "web", network);
        serve(&node, network, "", &[]);
        for ip in addresses(10) {
            testbed::wait::until_true("the Service to be in force", || {
                node.get("services").len() == 4
            });
            refused(&web, ip, 80);
            refused(&web, ip, 81);
        }
        assert!(node.drops().of(network, DropReason::NoBackend) > 0);
        assert!(node.drops().of(network, DropReason::NoService) > 0);
    }
}

/// D-SVC-05: a pod reaches itself through its Service.
#[test]
fn a_pod_reaches_itself_through_its_service() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in NETWORKS {
        let node = Node::start(setup());
        let (_one, one) = app(&node, "one", network);
        serve(&node, network, "", &[&one]);
        for ip in addresses(10) {
            let to = std::net::SocketAddr::from((ip, 80));
            let at = std::net::SocketAddr::from((own(&one, ip), 8080));
            let listener = one.netns.run_in(|| std::net::TcpListener::bind(at));
            let listener = listener.expect("a namespace").expect("a listener");
            let here = one.netns.run_in(|| std::net::TcpStream::connect(to));
            let mut here = here.expect("a namespace").expect("a connection");
            let (mut there, peer) = listener.accept().expect("a connection");
            // Another address than its own: else its stack would answer by itself.
            assert_eq!(peer.ip(), ip);
            talk(&mut here, &mut there);
        }
    }
}

/// D-SVC-17: large requests and replies, in segments and in fragments.
#[test]
fn large_messages_pass_through_a_service_whole() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    const BYTES: usize = 4 << 20;
    for network in NETWORKS {
        let node = Node::start(setup());
        let (_one, one) = app(&node, "one", network);
        let (_web, web) = app(&node, "web", network);
        serve(&node, network, "", &[&one]);
        let pattern: Vec<u8> = (0..BYTES).map(|at| (at % 251).to_le_bytes()[0]).collect();
        for ip in addresses(10) {
            let (mut here, mut there, _) = connect(&web, ip, &[&one]).expect("a connection");
            for _ in 0..2 {
                let read = thread::scope(|scope| {
                    let reader = scope.spawn(|| {
                        let mut read = vec![0; BYTES];
                        there.read_exact(&mut read).map(|()| read)
                    });
                    here.write_all(&pattern).expect("a connection");
                    reader.join().expect("a thread").expect("all of it")
                });
                assert!(read == pattern, "{network} {ip}");
                std::mem::swap(&mut here, &mut there);
            }
            let echo = Echo::at(&[&one], ip);
            let datagram = pattern.get(..9000).expect("a part");
            ask(&client(&web, ip), &echo, datagram);
        }
    }
}

/// D-SVC-09: a client keeps its endpoint.
#[test]
fn a_client_of_a_service_with_affinity_keeps_its_endpoint() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in NETWORKS {
        let node = Node::start(setup());
        let (_one, one) = app(&node, "one", network);
        let (_two, two) = app(&node, "two", network);
        let (_web, web) = app(&node, "web", network);
        serve(&node, network, "sessionAffinity: ClientIP, ", &[&one, &two]);
        for ip in addresses(10) {
            let mut reached = BTreeSet::new();
            for _ in 0..20 {
                let (_, _, number) = connect(&web, ip, &[&one, &two]).expect("a connection");
                reached.insert(number);
            }
            assert_eq!(reached.len(), 1, "{network} {ip}");
        }
    }
}

/// D-LB-8: one address on two networks leads to endpoints of the client's.
#[test]
fn services_of_two_networks_with_one_address_do_not_meet() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup());
    let pods = NETWORKS.map(|network| {
        (
            app(&node, &format!("one-{network}"), network),
            app(&node, &format!("web-{network}"), network),
        )
    });
    let mut text = String::new();
    for (network, ((_, one), _)) in NETWORKS.iter().zip(&pods) {
        text += &service(&format!("web-{network}"), network, addresses(10), "");
        text += &slices(
            &format!("web-{network}"),
            network,
            node.name(),
            &[(one, "")],
        );
    }
    node.write_manifest("services.yaml", &text);
    for (network, ((_, one), (_, web))) in NETWORKS.iter().zip(&pods) {
        wait_served(&node, network, 4);
        for ip in addresses(10) {
            let (mut here, mut there, _) = connect(web, ip, &[one]).expect("a connection");
            talk(&mut here, &mut there);
        }
    }
}
