//! Clients and endpoints on two nodes, between which tunnels lead.

use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::thread;

use agent_common::drop::DropReason;
use netdev::LinkChange;
use testbed::host::connection;
use testbed::{Fabric, Network, Node, Setup, wait};

use super::scene::{
    Echo, NETWORKS, PREFIXES, addresses, app, ask, client, connect, service, slices, talk,
    wait_served,
};

fn network(name: &str, number: u8) -> Network {
    let subnets = ["10.62.0.0/24", "fd62::/64"];
    let (id, network) = match name {
        "routed" => (4001, Network::l3(name, &subnets)),
        _ => (4002, Network::l2(name, &subnets)),
    };
    // Each node gives out its own half.
    let other = ["10.62.0.128/25", "10.62.0.0/25"][usize::from(number) - 1];
    let six = ["fd62::8000:0:0:0/65", "fd62::/65"][usize::from(number) - 1];
    network
        .exclude(&[other, six])
        .id(id)
        .vxlan()
        .services(&PREFIXES)
}

/// Two nodes with all networks, and the directory by which they know of each other.
fn two_nodes(
    fabric: Fabric,
    vtep: impl Fn(u8) -> IpAddr,
) -> (tempfile::TempDir, [Node; 2], Fabric) {
    let shared = tempfile::Builder::new()
        .prefix("podnet-test-shared-")
        .tempdir()
        .expect("a directory for the nodes");
    let path = shared.path().to_str().expect("a path in UTF-8");
    let nodes = [1, 2].map(|number| {
        let setup = Setup::empty().named(&format!("node-{number}")).args(&[
            "--vtep",
            &vtep(number).to_string(),
            "--endpoints",
            path,
        ]);
        let setup = NETWORKS
            .iter()
            .fold(setup, |setup, name| setup.network(&network(name, number)));
        Node::start_on(setup, fabric.host(number))
    });
    (shared, nodes, fabric)
}

/// An answer comes as any packet of another node does.
#[test]
fn a_service_leads_to_endpoints_on_other_nodes() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let (_shared, nodes, _fabric) =
        two_nodes(Fabric::segment(), |number| Fabric::on_segment(number)[0]);
    let [first, second] = &nodes;
    for network in NETWORKS {
        let (_one, one) = app(first, &format!("one-{network}"), network);
        let (_two, two) = app(second, &format!("two-{network}"), network);
        let (_web, web) = app(first, &format!("web-{network}"), network);
        let text = [
            service("web", network, addresses(10), ""),
            slices("web", network, first.name(), &[(&one, "")]),
            slices("web", network, second.name(), &[(&two, "")]),
            service(
                "near",
                network,
                addresses(11),
                "internalTrafficPolicy: Local, ",
            ),
            slices("near", network, first.name(), &[(&one, "")]),
            slices("near", network, second.name(), &[(&two, "")]),
        ]
        .concat();
        for node in &nodes {
            node.write_manifest("services.yaml", &text);
        }
        // Of `near` each node has its own endpoint only.
        wait_served(first, network, 12);
        for ip in addresses(10) {
            let echo = Echo::at(&[&one, &two], ip);
            let mut seen = [0; 2];
            for _ in 0..40 {
                let socket = client(&web, ip);
                let asked = ask(&socket, &echo, b"question").v4();
                seen[usize::from(asked == two.v4())] += 1;
            }
            assert!(
                seen.iter().all(|count| *count > 0),
                "{network} {ip}: {seen:?}"
            );
            let mut reached = [0; 2];
            for _ in 0..40 {
                let (mut here, mut there, number) =
                    connect(&web, ip, &[&one, &two]).expect("a connection");
                talk(&mut here, &mut there);
                reached[number] += 1;
            }
            assert!(
                reached.iter().all(|count| *count > 0),
                "{network} {ip}: {reached:?}"
            );
        }
        // D-SVC-10: only endpoints of the client's node.
        for ip in addresses(11) {
            for _ in 0..10 {
                let (.., number) = connect(&web, ip, &[&one, &two]).expect("a connection");
                assert_eq!(number, 0, "{network} {ip}");
            }
        }
    }
}

/// RFC 1191, RFC 8201: the node's own errors are about what a client has sent.
#[test]
fn clients_learn_what_a_router_on_the_way_to_an_endpoint_carries() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let (_shared, nodes, fabric) = two_nodes(Fabric::create(), Fabric::v4);
    let [first, second] = &nodes;
    for number in 1..=2 {
        let mut there = connection(fabric.netns());
        let link = there.by_name(&Fabric::link(number)).expect("links");
        let change = LinkChange {
            mtu: Some(1400),
            ..LinkChange::default()
        };
        let link = link.expect("the fabric's end");
        there.reconfigure(link.ifindex, &change).expect("an MTU");
    }
    for network in NETWORKS {
        let (_two, two) = app(second, &format!("two-{network}"), network);
        let (_web, web) = app(first, &format!("web-{network}"), network);
        let text = [
            service("web", network, addresses(10), ""),
            slices("web", network, second.name(), &[(&two, "")]),
        ]
        .concat();
        first.write_manifest("services.yaml", &text);
        wait_served(first, network, 4);
        for ip in addresses(10) {
            let (mut here, mut there, _) =
                wait::until("a connection", || connect(&web, ip, &[&two]).ok());
            here.set_write_timeout(Some(wait::PATIENCE))
                .expect("a timeout");
            let sent: Vec<u8> = (0..=u8::MAX).cycle().take(4 << 20).collect();
            thread::scope(|scope| {
                let writing = scope.spawn(|| here.write_all(&sent));
                let mut received = vec![0; sent.len()];
                there.read_exact(&mut received).expect("all of it");
                assert_eq!(sent, received, "{network} {ip}");
                writing
                    .join()
                    .expect("no panic")
                    .expect("all of it is sent");
            });
        }
        let told = first.drops().of(network, DropReason::PathMtu);
        assert!(told > 0, "{network}: nobody was told");
    }
}
