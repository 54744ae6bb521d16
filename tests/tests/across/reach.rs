//! Test that each pod of a network reaches all others, on any node, and no host.

use std::net::SocketAddr;

use testbed::frame::{Arp, marker};
use testbed::{Port, traffic};

use super::scene::{L2, L3, Nodes, Underlay, assert_meet, introduce, wait_uplinks};

/// One pod on each node, all on `network`.
fn spread<'a>(nodes: &'a Nodes, network: &str) -> Vec<(testbed::Pod<'a>, Port)> {
    let mut pods = Vec::new();
    for node in &nodes.nodes {
        let pod = node.pod(&format!("{network}-{}", node.name()));
        let port = pod.attach(network, "net1");
        pods.push((pod, port));
    }
    wait_uplinks(&nodes.nodes);
    pods
}

fn mesh(underlay: Underlay) {
    let nodes = Nodes::start(3, underlay);
    for network in [L2[0], L3[0]] {
        let pods = spread(&nodes, network);
        for (index, (_, a)) in pods.iter().enumerate() {
            for (_, b) in &pods[index + 1..] {
                assert_meet(a, b);
            }
        }
        for (pod, _) in &pods {
            pod.detach(network, "net1");
        }
    }
    for node in &nodes.nodes {
        node.assert_empty();
    }
}

#[test]
fn three_nodes_are_one_network_kep_p1_13() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    mesh(Underlay::V4);
    proof::of!("KEP-P1-13");
}

#[test]
fn three_nodes_are_one_network_over_ipv6() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    mesh(Underlay::V6);
}

/// TCP moves megabytes through a tunnel, in segments as large as the MTU allows.
#[test]
fn large_transfers_pass_tunnels_whole() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for underlay in [Underlay::V4, Underlay::V6] {
        let nodes = Nodes::start(2, underlay);
        for network in [L2[0], L3[0]] {
            let pods = spread(&nodes, network);
            let (a, b) = (&pods[0].1, &pods[1].1);
            introduce(a, b);
            assert_eq!(a.link().expect("a link").mtu, 1430);
            for (_, there) in traffic::pairs(a, b) {
                let moved = traffic::tcp_round_trip(a, b, there, 20 << 20);
                assert!(moved.is_ok(), "{network}, {underlay:?}, {there}: {moved:?}");
            }
            for (pod, _) in &pods {
                pod.detach(network, "net1");
            }
        }
    }
}

/// The same subnets on another network are other pods, on every node.
#[test]
fn networks_with_the_same_addresses_do_not_meet_on_other_nodes() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    for [ours, theirs] in [L2, L3] {
        let [here, there] = [&nodes.nodes[0], &nodes.nodes[1]];
        let pods = [here.pod("a"), there.pod("b"), there.pod("c")];
        let a = pods[0].attach(ours, "net1");
        let b = pods[1].attach(ours, "net1");
        let c = pods[2].attach(theirs, "net1");
        wait_uplinks(&nodes.nodes);
        assert_eq!(b.ips, c.ips, "the same addresses on both networks");
        assert_meet(&a, &b);
        let (seen, unseen) = (b.tap(), c.tap());
        for (from, to) in traffic::pairs(&a, &b) {
            let word = marker();
            traffic::shout(&a, from, SocketAddr::new(to, 9), &word).expect("sent");
            seen.wait_marker("the datagram", &word);
            assert_eq!(unseen.count(&word), 0, "{to} on {theirs}");
        }
        for (pod, network) in pods.iter().zip([ours, ours, theirs]) {
            pod.detach(network, "net1");
        }
    }
}

/// Broadcast and multicast reach the members on all nodes once, but not the sender.
#[test]
fn what_is_for_all_reaches_members_on_every_node_once() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(3, Underlay::V4);
    let pods = spread(&nodes, L2[0]);
    let beside = nodes.nodes[0].pod("beside");
    let neighbour = beside.attach(L2[0], "net1");
    let sender = &pods[0].1;
    for (_, port) in &pods[1..] {
        introduce(sender, port);
    }
    let own = sender.tap();
    let taps: Vec<_> = pods[1..]
        .iter()
        .map(|(_, port)| port.tap())
        .chain([neighbour.tap()])
        .collect();
    for group in [[255, 255, 255, 255], [10, 10, 0, 255]] {
        let to = SocketAddr::new(group.into(), 9);
        let word = testbed::tap::assert_each_gets_one(&taps, |payload| {
            traffic::shout(sender, sender.v4().into(), to, payload).expect("sent");
        });
        assert_eq!(own.count(&word), 0, "its own came back");
    }
    for (pod, _) in &pods {
        pod.detach(L2[0], "net1");
    }
    beside.detach(L2[0], "net1");
}

/// Questions about pods elsewhere are answered where they are asked.
#[test]
fn arp_for_a_pod_elsewhere_is_answered_on_the_spot() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    let pods = spread(&nodes, L2[0]);
    let (a, b) = (&pods[0].1, &pods[1].1);
    introduce(a, b);
    let (asking, other) = (a.tap(), b.tap());
    let word = marker();
    let question = Arp::request((a.mac, a.v4()), b.v4());
    let broadcast = agent_common::addr::MacAddr::BROADCAST;
    asking.send(&question.frame(broadcast, a.mac, &word));
    let answer = asking.wait("an answer", |frame| {
        testbed::frame::is_arp_reply_for(frame, b.v4())
    });
    assert_eq!(answer[6..12], b.mac.0, "the pod's own address");
    assert_eq!(other.count(&word), 0, "the question stays here");
    for (pod, _) in &pods {
        pod.detach(L2[0], "net1");
    }
}
