//! VPCs, peers and networks that change under their pods.

use agent_common::drop::DropReason;
use testbed::manifest::{Network, vpc};
use testbed::{Node, Setup, traffic};

use super::scene::{CIDRS, FIRST, SECOND, app, dropped, dropped_at, networks, setup, wait_reaches};

fn peers(of_one: &[&str], of_two: &[&str]) -> [String; 2] {
    [
        vpc("one", &["10.65.0.0/16", "fd65::/16"], of_one),
        vpc("two", &["10.66.0.0/16", "fd66::/16"], of_two),
    ]
}

/// Both have to name the other, and a third one's peer is not reached.
#[test]
fn peers_come_and_go_under_their_pods_and_are_no_way_to_their_peers() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let [one, two] = peers(&["two"], &["three"]);
    let beyond = vpc("three", &["10.67.0.0/16", "fd67::/16"], &["two"]);
    let network = |name: &str, subnets: &[&str], vpc: &str| Network::l3(name, subnets).vpc(vpc);
    let node = Node::start(
        Setup::empty()
            .file("one.yaml", &one)
            .file("two.yaml", &two)
            .file("three.yaml", &beyond)
            // Routes of pods are those of the time they were attached at.
            .network(
                &network("first", &["10.65.1.0/24", "fd65:1::/64"], "one")
                    .route("10.64.0.0/14", None)
                    .route("fd60::/12", None),
            )
            .network(
                &network("second", &["10.66.1.0/24", "fd66:1::/64"], "two")
                    .route("10.64.0.0/14", None)
                    .route("fd60::/12", None),
            )
            .network(
                &network("third", &["10.67.1.0/24", "fd67:1::/64"], "three")
                    .route("10.64.0.0/14", None)
                    .route("fd60::/12", None),
            ),
    );
    let (_a, a) = app(&node, "a", "first");
    let (_b, b) = app(&node, "b", "second");
    let (_c, c) = app(&node, "c", "third");
    traffic::assert_reaches(&b, &c);
    dropped(&node, &a, &b, DropReason::NoEndpoint);
    dropped(&node, &b, &a, DropReason::NoEndpoint);
    let [_, two] = peers(&["two"], &["one", "three"]);
    node.write_manifest("two.yaml", &two);
    wait_reaches(&a, &b);
    traffic::assert_reaches(&b, &c);
    dropped(&node, &a, &c, DropReason::NoEndpoint);
    dropped(&node, &c, &a, DropReason::NoEndpoint);
    let [one, _] = peers(&[], &[]);
    node.write_manifest("one.yaml", &one);
    dropped(&node, &a, &b, DropReason::NoEndpoint);
    dropped(&node, &b, &a, DropReason::NoEndpoint);
    traffic::assert_reaches(&b, &c);
}

#[test]
fn a_vpc_that_goes_leaves_its_networks_apart() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup(&["one"]));
    let (_a, a) = app(&node, "a", "one-1");
    let (_b, b) = app(&node, "b", "one-2");
    traffic::assert_reaches(&a, &b);
    node.remove_manifest("vpc-one.yaml");
    dropped(&node, &a, &b, DropReason::NoEndpoint);
    dropped(&node, &b, &a, DropReason::NoEndpoint);
    let error = node.pod("x").add("one-1", "net1").error();
    error.names(&["Vpc one", "does not exist"]);
}

/// A pod that stays keeps what its VPC had from leaving, and from coming in.
#[test]
fn addresses_of_a_vpc_that_is_gone_do_not_leave_by_egress() {
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
    node.remove_manifest("vpc.yaml");
    dropped(&node, &a, &b, DropReason::NoEndpoint);
    for ip in ["10.66.0.9", "10.70.0.1", "fd64:99::1"] {
        let ip = ip.parse().expect("an address");
        dropped_at(&node, &a, ip, DropReason::NoEndpoint);
    }
    // Nor when the network is no object any more.
    node.remove_manifest("first.yaml");
    testbed::wait::until_true("the network to be gone", || {
        let rows = node.get("networks");
        rows.iter().all(|row| row["name"] != "first")
    });
    dropped_at(
        &node,
        &a,
        "10.66.0.9".parse().expect("an address"),
        DropReason::NoEndpoint,
    );
}

/// A number that a pod of another network has is led to by nobody.
#[test]
fn a_network_that_takes_the_number_of_one_with_pods_leads_nobody_to_these() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let of = |name: &str| {
        Network::l3(name, &["10.66.0.0/24", "fd64:66::/64"])
            .id(777)
            .route("10.65.0.0/16", None)
            .route("fd64:65::/32", None)
    };
    let [first, _] = networks("one");
    let setup = Setup::empty()
        .file("vpc.yaml", &vpc("one", &CIDRS, &[]))
        .network(&first)
        .file("two.yaml", &of("stranger").yaml());
    let node = Node::start(setup);
    let (_a, a) = app(&node, "a", "one-1");
    let (_c, stranger) = app(&node, "c", "stranger");
    for text in [
        // Both are there, and one is left when its pod stays.
        format!(
            "{}---\n{}",
            of("stranger").yaml(),
            of("one-2").vpc("one").yaml()
        ),
        of("one-2").vpc("one").yaml(),
    ] {
        node.write_manifest("two.yaml", &text);
        testbed::wait::until_true("the network of the VPC", || {
            let rows = node.get("networks");
            rows.iter().any(|row| row["name"] == "one-2")
        });
        dropped(&node, &a, &stranger, DropReason::NoEndpoint);
        dropped(&node, &stranger, &a, DropReason::NoEndpoint);
    }
}

/// Nothing that is routed is lost without an agent, and while one starts.
#[test]
fn routes_between_networks_outlive_the_agent() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup(&["one"]));
    let (_a, a) = app(&node, "a", "one-1");
    let (_b, b) = app(&node, "b", "one-2");
    traffic::assert_reaches(&a, &b);
    node.kill_9();
    traffic::assert_reaches(&a, &b);
    node.start_agent();
    for _ in 0..20 {
        traffic::assert_reaches(&a, &b);
    }
    node.assert_audit_finds_nothing("one-1");
    node.assert_audit_finds_nothing("one-2");
}

/// A number that was another network's leads nobody to the one that has it now.
#[test]
fn a_network_that_has_the_number_of_one_of_a_vpc_is_not_reached_from_there() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let of = |name: &str, id| {
        Network::l3(name, &["10.66.0.0/24", "fd64:66::/64"])
            .id(id)
            .route("10.65.0.0/16", None)
            .route("fd64:65::/32", None)
    };
    let [first, _] = networks("one");
    let setup = Setup::empty()
        .file("vpc.yaml", &vpc("one", &CIDRS, &[]))
        .network(&first)
        .file("two.yaml", &of("one-2", 777).vpc("one").yaml());
    let node = Node::start(setup);
    let (_a, a) = app(&node, "a", "one-1");
    let (pod, b) = app(&node, "b", "one-2");
    wait_reaches(&a, &b);
    pod.detach("one-2", "net1");
    node.write_manifest("two.yaml", &of("stranger", 777).yaml());
    testbed::wait::until_true("the other network", || {
        let rows = node.get("networks");
        rows.iter().any(|row| row["name"] == "stranger")
    });
    let (_c, stranger) = app(&node, "c", "stranger");
    assert_eq!(stranger.ips, b.ips, "the very addresses");
    dropped(&node, &a, &stranger, DropReason::NoEndpoint);
    dropped(&node, &stranger, &a, DropReason::NoEndpoint);
}
