//! ICMP errors about packets to Services.

use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use testbed::wait;
use testbed::{Network, Node, Port, Setup};

use super::scene::{
    NETWORKS, PREFIXES, TARGET, addresses, app, client, of_cluster, own, service, setup, slices,
    socket, wait_served,
};

const BY_NODE: &str = "white";

/// Asserts that a datagram is answered by this error.
///
/// A stack says so only so often.
#[track_caller]
fn fails(socket: &UdpSocket, expected: ErrorKind) {
    let pause = Duration::from_millis(200);
    socket.set_read_timeout(Some(pause)).expect("a timeout");
    wait::until_true("the error", || {
        let sent = socket.send(b"question");
        let error = match sent {
            Ok(_) => socket.recv(&mut [0; 16]).expect_err("no answer"),
            Err(error) => error,
        };
        let is_silent = error.kind() == ErrorKind::WouldBlock;
        assert!(is_silent || error.kind() == expected, "{error}");
        !is_silent
    });
}

#[track_caller]
fn refused(socket: &UdpSocket) {
    fails(socket, ErrorKind::ConnectionRefused);
}

/// A client of a Service, and the socket of the endpoint that has answered it.
fn talk(from: &Port, ip: IpAddr, endpoint: &Port) -> (UdpSocket, UdpSocket) {
    let there = socket(endpoint, (own(endpoint, ip), TARGET).into());
    let here = client(from, ip);
    let mut buffer = [0; 16];
    here.send(b"question").expect("a datagram");
    let (_, peer) = there.recv_from(&mut buffer).expect("the question");
    there.send_to(b"answered", peer).expect("a datagram");
    here.recv(&mut buffer).expect("the answer");
    there.connect(peer).expect("a peer");
    (here, there)
}

#[test]
fn sockets_at_both_ends_of_a_service_hear_that_the_other_one_is_gone() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let by_node = Network::l3(BY_NODE, &["10.62.0.0/24", "fd62::/64"]).by_node();
    for network in [NETWORKS[0], NETWORKS[1], BY_NODE] {
        let setup = match network {
            BY_NODE => Setup::empty().network(&by_node.clone().services(&PREFIXES)),
            _ => setup(),
        };
        let node = Node::start(setup);
        let [(_w, web), (_d, db)] = ["web", "db"].map(|name| app(&node, name, network));
        let text = [
            service("db", network, addresses(10), ""),
            slices("db", network, node.name(), &[(&db, "")]),
        ]
        .concat();
        let text = match network {
            BY_NODE => of_cluster(&text, BY_NODE),
            _ => text,
        };
        node.write_manifest("db.yaml", &text);
        wait_served(&node, network, 4);
        for ip in addresses(10) {
            let (here, there) = talk(&web, ip, &db);
            drop(there);
            refused(&here);
            let (here, there) = talk(&web, ip, &db);
            drop(here);
            refused(&there);
            assert_eq!(there.peer_addr().expect("a peer").ip(), own(&web, ip));
            // Nothing has ever listened.
            drop(there);
            refused(&client(&web, ip));
        }
    }
}

/// Traceroute: the gateway says so about a packet that it has translated already.
#[test]
fn a_client_hears_that_a_packet_to_a_service_had_no_hop_left() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let network = NETWORKS[0];
    let node = Node::start(setup());
    let [(_w, web), (_d, db)] = ["web", "db"].map(|name| app(&node, name, network));
    let text = [
        service("db", network, addresses(10), ""),
        slices("db", network, node.name(), &[(&db, "")]),
    ]
    .concat();
    node.write_manifest("db.yaml", &text);
    wait_served(&node, network, 4);
    for ip in addresses(10) {
        let (here, _there) = talk(&web, ip, &db);
        if ip.is_ipv4() {
            setsockopt(&here, sockopt::Ipv4RecvErr, &true).expect("an option");
            setsockopt(&here, sockopt::Ipv4Ttl, &1).expect("an option");
        } else {
            setsockopt(&here, sockopt::Ipv6RecvErr, &true).expect("an option");
            setsockopt(&here, sockopt::Ipv6Ttl, &1).expect("an option");
        }
        fails(&here, ErrorKind::HostUnreachable);
    }
}
