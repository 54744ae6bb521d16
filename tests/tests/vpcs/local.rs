//! Networks of VPCs on one node.

use std::net::IpAddr;

use agent_common::drop::DropReason;
use testbed::manifest::{Network, vpc};
use testbed::{Node, Setup, traffic, wait};

use super::scene::{CIDRS, FIRST, SECOND, app, dropped, dropped_at, setup, wait_reaches};

#[test]
fn pods_of_a_vpc_reach_those_of_its_other_networks_with_their_own_addresses() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup(&["one"]));
    let (_a, a) = app(&node, "a", "one-1");
    // Before there is a port of the other network, its addresses lead nowhere.
    let free: [IpAddr; 2] = ["10.66.0.9", "fd64:66::9"].map(|ip| ip.parse().expect("an address"));
    for ip in free {
        dropped_at(&node, &a, ip, DropReason::NoEndpoint);
    }
    let (_b, b) = app(&node, "b", "one-2");
    // The first packet finds its way: the port is live behind its routes.
    traffic::assert_reaches(&a, &b);
    traffic::assert_reaches(&b, &a);
    let (_c, c) = app(&node, "c", "one-2");
    traffic::assert_reaches(&c, &b);
    traffic::assert_reaches(&a, &c);
    for ip in free {
        dropped_at(&node, &a, ip, DropReason::NoEndpoint);
    }
    let routes: Vec<String> = a.routes().iter().map(|it| format!("{it:?}")).collect();
    assert!(
        routes.iter().any(|it| it.contains("10.64.0.0")),
        "the pod has a route to the VPC: {routes:?}"
    );
    node.assert_audit_finds_nothing("one-1");
    proof::of!("DES-01");
}

/// Nothing passes between VPCs that have the same addresses.
#[test]
fn vpcs_with_equal_subnets_are_apart() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let vpcs = ["one", "two", "three"];
    let node = Node::start(setup(&vpcs));
    let mut pods = Vec::new();
    for name in vpcs {
        for number in [1, 2] {
            pods.push(app(
                &node,
                &format!("{name}-{number}"),
                &format!("{name}-{number}"),
            ));
        }
    }
    let ports: Vec<_> = pods.iter().map(|(_, port)| port).collect();
    for vpc in ports.chunks(2) {
        let [first, second] = vpc else {
            unreachable!("two of each");
        };
        // The same addresses everywhere, and each pod reaches its own VPC's.
        assert_eq!(first.ips, ports[0].ips);
        assert_eq!(second.ips, ports[1].ips);
        traffic::assert_reaches(first, second);
        traffic::assert_reaches(second, first);
    }
    // With one end gone its addresses are nobody's, though two other pods have them.
    let (pod, gone) = pods.remove(1);
    pod.detach(&gone.network, "net1");
    for ip in [IpAddr::from(gone.v4()), gone.v6().into()] {
        dropped_at(&node, &pods[0].1, ip, DropReason::NoEndpoint);
    }
}

#[test]
fn a_network_of_no_vpc_neither_reaches_one_nor_is_reached() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let alone = Network::l3("alone", &["10.67.0.0/24", "fd64:67::/64"])
        .route("10.64.0.0/12", None)
        .route("fd64::/16", None);
    let node = Node::start(setup(&["one"]).network(&alone));
    let (_a, a) = app(&node, "a", "one-1");
    let (_b, b) = app(&node, "b", "one-2");
    let (_alone, alone) = app(&node, "alone", "alone");
    dropped(&node, &alone, &a, DropReason::NoEndpoint);
    dropped(&node, &a, &alone, DropReason::NoEndpoint);
    dropped(&node, &b, &alone, DropReason::NoEndpoint);
    traffic::assert_reaches(&a, &b);
}

/// Packets to the VPC's addresses never leave by a way out, whoever has them there.
#[test]
fn addresses_of_the_vpc_do_not_leave_by_egress() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let first = Network::l3("first", &FIRST).vpc("one").egress();
    let second = Network::l3("second", &SECOND).vpc("one");
    let node = Node::start(
        Setup::empty()
            .file("vpc.yaml", &vpc("one", &CIDRS, &[]))
            .network(&first)
            .network(&second),
    );
    let (_a, a) = app(&node, "a", "first");
    let (_b, b) = app(&node, "b", "second");
    traffic::assert_reaches(&a, &b);
    for ip in [
        "10.66.0.9",
        "10.65.0.9",
        "10.70.0.1",
        "fd64:66::9",
        "fd64:99::1",
    ] {
        dropped_at(
            &node,
            &a,
            ip.parse().expect("an address"),
            DropReason::NoEndpoint,
        );
    }
}

/// RFC 1191, RFC 8201: a router tells the sender what the next link carries.
#[test]
fn a_packet_that_is_too_large_for_the_other_network_is_told_of() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let first = Network::l3("first", &FIRST).vpc("one").mtu(9000);
    let second = Network::l3("second", &SECOND).vpc("one").mtu(1400);
    let node = Node::start(
        Setup::empty()
            .file("vpc.yaml", &vpc("one", &CIDRS, &[]))
            .network(&first)
            .network(&second),
    );
    let (_a, a) = app(&node, "a", "first");
    let (_b, b) = app(&node, "b", "second");
    for (size, verdict, reason) in [("1400", "delivered", ""), ("1401", "dropped", "path_mtu")] {
        let told = node.explain("a", "b", &["--proto", "udp:9", "--size", size]);
        told.assert_is(verdict, reason);
    }
    for (from, to) in traffic::pairs(&a, &b) {
        let reached = traffic::tcp_round_trip(&a, &b, to, 1_000_000);
        assert!(reached.is_ok(), "{from} -> {to}: {reached:?}");
        let (here, there) = (traffic::udp(&a, from), traffic::udp(&b, to));
        let there_at = there.local_addr().expect("an address");
        wait::until_true("the kernel to have learnt the size", || {
            // The first one is refused on the way, later ones are cut by the sender.
            let _ = here.send_to(&[7; 3000], there_at);
            there
                .set_read_timeout(Some(std::time::Duration::from_millis(20)))
                .expect("a timeout");
            there
                .recv(&mut [0; 4096])
                .is_ok_and(|length| length == 3000)
        });
    }
    assert!(node.drops().of("first", DropReason::PathMtu) > 0);
}

#[test]
fn vpcs_and_what_is_wrong_with_them_are_shown() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let outside = Network::l3("outside", &["192.168.7.0/24"]).vpc("one");
    let node = Node::start(
        setup(&["one"])
            .file("peer.yaml", &vpc("two", &["10.80.0.0/16"], &["one"]))
            .network(&outside),
    );
    let rows = node.get("vpcs");
    let row = |name: &str| {
        let row = rows.iter().find(|row| row["name"] == name);
        row.expect("a row").clone()
    };
    let one = row("one");
    assert_eq!(one["networks"].as_array().map(Vec::len), Some(2), "{one}");
    assert_eq!(one["ready"], true);
    let two = row("two");
    assert_eq!(two["reason"], "PeerPending");
    let pod = node.pod("x");
    let error = pod.add("outside", "net1").error();
    error.names(&["192.168.7.0/24", "10.64.0.0/12"]);
    let (_a, a) = app(&node, "a", "one-1");
    let (_b, b) = app(&node, "b", "one-2");
    wait_reaches(&a, &b);
    let told = node.explain("a", "b", &["--proto", "udp:9"]);
    told.assert_is("delivered", "");
    let text = told.steps();
    assert!(text.contains("ROUTES[one-1"), "{text}");
    assert!(
        text.contains("the virtual gateway of one-1 routes to one-2"),
        "{text}"
    );
}
