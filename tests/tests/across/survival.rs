//! Tunnels outlive agents.

use tests::host::connection;
use tests::stream::Stream;
use tests::{traffic, wait};

use super::scene::{L2, L3, Nodes, Underlay, assert_meet, introduce};

/// The device of tunnels.
const DEVICE: &str = "podnet-vxlan";

#[test]
fn restarts_under_traffic_between_nodes_lose_nothing() {
    if tests::skip::without_root(tests::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    for network in [L2[0], L3[0]] {
        let pods = [nodes.nodes[0].pod("a"), nodes.nodes[1].pod("b")];
        let a = pods[0].attach(network, "net1");
        let b = pods[1].attach(network, "net1");
        introduce(&a, &b);
        for (here, there) in traffic::pairs(&a, &b) {
            let stream = Stream::start(&a, here, &b, there);
            for node in &nodes.nodes {
                node.kill_9();
                stream.progress();
                node.start_agent();
                stream.progress();
                node.terminate();
                stream.progress();
                node.start_agent();
                stream.progress();
            }
            stream.assert_nothing_lost();
        }
        for pod in &pods {
            pod.detach(network, "net1");
        }
    }
}

/// An agent that starts while the others cannot be heard keeps what it knew of them.
#[test]
fn what_is_known_of_other_nodes_outlives_a_start_that_cannot_hear_them() {
    if tests::skip::without_root(tests::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    let pods = [nodes.nodes[0].pod("a"), nodes.nodes[1].pod("b")];
    let a = pods[0].attach(L2[0], "net1");
    let b = pods[1].attach(L2[0], "net1");
    introduce(&a, &b);
    let (here, there) = traffic::pairs(&a, &b)[0];
    let stream = Stream::start(&a, here, &b, there);
    nodes.nodes[0].restart();
    stream.progress();
    stream.assert_nothing_lost();
    assert_meet(&a, &b);
}

/// The audit finds out that somebody has removed the device.
#[test]
fn a_device_that_somebody_removed_is_made_again() {
    if tests::skip::without_root(tests::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    let pods = [nodes.nodes[0].pod("a"), nodes.nodes[1].pod("b")];
    let a = pods[0].attach(L2[0], "net1");
    let b = pods[1].attach(L2[0], "net1");
    introduce(&a, &b);
    let mut there = connection(nodes.nodes[0].netns());
    let gone = there.by_name(DEVICE).expect("links").expect("the device");
    there.delete(gone.ifindex).expect("removed");
    nodes.nodes[0].restart();
    wait::until_true("the device", || {
        there.by_name(DEVICE).expect("links").is_some()
    });
    assert_meet(&a, &b);
    for pod in &pods {
        pod.detach(L2[0], "net1");
    }
}
