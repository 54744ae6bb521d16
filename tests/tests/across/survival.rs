//! Tunnels outlive agents.

use testbed::host::connection;
use testbed::stream::Stream;
use testbed::{Port, traffic, wait};

use super::scene::{L2, L3, Nodes, Pair, Underlay, assert_meet, assert_restarts_lose_nothing};

/// The device of tunnels.
const DEVICE: &str = "podnet-vxlan";

#[test]
fn restarts_under_traffic_between_nodes_lose_nothing() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    for network in [L2[0], L3[0]] {
        let pair = Pair::attach(&nodes, network);
        let (a, b) = (&pair.a, &pair.b);
        assert_restarts_lose_nothing(&nodes.nodes, a, b);
        pair.detach();
    }
}

/// Entries about other nodes stay over a start until these have been heard again.
#[test]
fn what_is_known_of_other_nodes_outlives_a_start() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    let pair = Pair::attach(&nodes, L2[0]);
    let (a, b) = (&pair.a, &pair.b);
    let (here, there) = traffic::pairs(a, b)[0];
    let stream = Stream::start(a, here, b, there);
    nodes.nodes[0].restart();
    stream.progress();
    stream.assert_nothing_lost();
    assert_meet(a, b);
}

/// An agent that has just started writes a new pod's entries and no others.
#[test]
fn pods_that_come_and_go_right_after_a_start_cost_pods_between_nodes_nothing() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    for network in [L2[0], L3[0]] {
        let pair = Pair::attach(&nodes, network);
        let (a, b) = (&pair.a, &pair.b);
        let (here, there) = traffic::pairs(a, b)[0];
        let stream = Stream::start(a, here, b, there);
        for restarted in &nodes.nodes {
            restarted.restart();
            let names = ["c", "d", "e"].map(|name| format!("{network}-{name}"));
            let pods = names.each_ref().map(|name| restarted.pod(name));
            let ports: Vec<Port> = pods.iter().map(|pod| pod.attach(network, "net1")).collect();
            stream.progress();
            traffic::assert_reaches(&ports[0], &ports[1]);
            for pod in &pods {
                pod.detach(network, "net1");
            }
            stream.progress();
        }
        stream.assert_nothing_lost();
        assert_meet(a, b);
        pair.detach();
    }
}

/// A start sees that somebody has removed the device.
#[test]
fn a_device_that_somebody_removed_is_made_again() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    let pair = Pair::attach(&nodes, L2[0]);
    let (a, b) = (&pair.a, &pair.b);
    let mut there = connection(nodes.nodes[0].netns());
    let gone = there.by_name(DEVICE).expect("links").expect("the device");
    there.delete(gone.ifindex).expect("removed");
    nodes.nodes[0].restart();
    wait::until_true("the device", || {
        there.by_name(DEVICE).expect("links").is_some()
    });
    assert_meet(a, b);
    pair.detach();
}
