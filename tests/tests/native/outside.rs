//! The world beyond the node, which knows no pod.

use std::net::SocketAddr;

use netdev::{Netfilter, Netns, Route};
use testbed::host::connection;
use testbed::wait;

use super::scene::{BEYOND, NODE, attached, call, close, ip, settle_world, setup, tcp, white};

fn netfilter(netns: &Netns) -> Netfilter {
    let opened = netns.run_in(Netfilter::open);
    opened.expect("entered").expect("a socket of netfilter")
}

#[test]
fn the_world_sees_the_node_where_a_pod_speaks_and_answers_reach_the_pod() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (pod, port) = attached(&node, "a", "white");
    for (beyond, own) in BEYOND.map(ip).into_iter().zip(NODE.map(ip)) {
        let seen = call(&port.netns, node.host().outside(), beyond, 8080);
        assert_eq!(seen, own, "the world sees the node");
    }
    close(&node, &[&pod], "white");
}

/// Routers that know the way to pods need no masquerading.
#[test]
fn without_masquerade_the_world_sees_the_pod() {
    let node = testbed::node!(setup().network(&white().masquerade(false)));
    settle_world(&node);
    let (pod, port) = attached(&node, "a", "white");
    let (mut world, link) = node.host().world();
    for ((prefix, length), own) in [("10.30.0.0", 24), ("fd30:30::", 64)]
        .into_iter()
        .zip(NODE.map(ip))
    {
        let back = Route::new(ip(prefix), length, Some(own), link);
        world.add_route(&back).expect("a route to the pods");
    }
    for ((address, _), beyond) in port.ips.iter().zip(BEYOND.map(ip)) {
        let seen = call(&port.netns, node.host().outside(), beyond, 8080);
        assert_eq!(seen, *address, "the world sees the pod");
    }
    assert!(!netfilter(node.netns()).is_there().expect("a look"));
    close(&node, &[&pod], "white");
}

/// A host outside keeps its address at the pod: no packet in is masqueraded.
#[test]
fn a_pod_sees_who_comes_from_outside() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (pod, port) = attached(&node, "a", "white");
    let (mut world, link) = node.host().world();
    let there = Route::new(ip("10.30.0.0"), 24, Some(ip(NODE[0])), link);
    world.add_route(&there).expect("a route to the pods");
    let at = SocketAddr::new(port.v4().into(), 8080);
    let seen = tcp(node.host().outside(), at, &port.netns, at).expect("TCP");
    assert_eq!(seen, ip(BEYOND[0]));
    close(&node, &[&pod], "white");
}

#[test]
fn a_table_that_somebody_removed_or_changed_is_written_again() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (pod, port) = attached(&node, "a", "white");
    let mut table = netfilter(node.netns());
    assert!(table.remove().expect("removed"));
    // A change of the networks makes the agent look; so does time.
    node.write_manifest(
        "red.yaml",
        &testbed::Network::l2("red", &["10.1.0.0/24"]).yaml(),
    );
    wait::until_true("the table to be written again", || {
        table.is_there().expect("a look")
    });
    let seen = call(&port.netns, node.host().outside(), ip(BEYOND[0]), 8080);
    assert_eq!(seen, ip(NODE[0]));
    close(&node, &[&pod], "white");
}

#[test]
fn masquerading_ends_with_the_network_and_not_before_its_last_pod() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (pod, port) = attached(&node, "a", "white");
    let mut table = netfilter(node.netns());
    node.remove_manifest("white.yaml");
    wait::until_true("the agent to know", || node.get("networks").len() == 1);
    let seen = call(&port.netns, node.host().outside(), ip(BEYOND[0]), 8080);
    assert_eq!(seen, ip(NODE[0]), "the pod that is there is served");
    pod.detach("white", "eth0");
    node.write_manifest(
        "red.yaml",
        &testbed::Network::l2("red", &["10.1.0.0/24"]).yaml(),
    );
    wait::until_true("the table to go", || !table.is_there().expect("a look"));
    node.assert_empty();
}

#[test]
fn cleanup_takes_the_table_and_the_routes_away_and_says_so() {
    let node = testbed::node!(setup());
    let (pod, _) = attached(&node, "a", "white");
    let mut table = netfilter(node.netns());
    assert!(table.is_there().expect("a look"));
    node.terminate();
    let said = |output: std::process::Output| String::from_utf8(output.stdout).expect("text");
    let dry = said(node.cleanup(&["--dry-run"]));
    assert!(
        dry.contains("would remove nf_tables table inet podnet"),
        "{dry}"
    );
    assert!(table.is_there().expect("a look"), "nothing was removed");
    let done = said(node.cleanup(&[]));
    assert!(
        done.contains("removed nf_tables table inet podnet"),
        "{done}"
    );
    assert!(!table.is_there().expect("a look"));
    let routes = connection(node.netns()).routes_by(super::scene::PROTOCOL);
    assert_eq!(routes.expect("a list"), []);
    drop(pod);
}
