//! Test the errors that pods get for packets that cannot be forwarded.

use agent_common::drop::DropReason;
use netdev::LinkChange;
use testbed::host::connection;
use testbed::{Fabric, traffic};

use super::scene::{L2, L3, Nodes, Pair, Underlay};

/// Pods learn the smaller MTU of a router between nodes (RFC 1191, RFC 8201).
///
/// They learn it as from any router, and their packets arrive.
#[test]
fn pods_learn_what_a_router_between_nodes_carries() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for underlay in [Underlay::V4, Underlay::V6] {
        let nodes = Nodes::start(2, underlay);
        for network in [L2[0], L3[0]] {
            let pair = Pair::attach(&nodes, network);
            let (a, b) = (&pair.a, &pair.b);
            for node in 1..=2 {
                set_mtu(&nodes, node, 1400);
            }
            for (_, there) in traffic::pairs(a, b) {
                let moved = traffic::tcp_round_trip(a, b, there, 4 << 20);
                assert!(moved.is_ok(), "{network}, {underlay:?}, {there}: {moved:?}");
            }
            let dropped = nodes.nodes[0].drops();
            let told = dropped.of(network, DropReason::PathMtu);
            assert!(told > 0, "{network}, {underlay:?}: nobody was told");
            for node in 1..=2 {
                set_mtu(&nodes, node, 1500);
            }
            pair.detach();
        }
    }
}

/// The fabric's end of the link of a node.
fn set_mtu(nodes: &Nodes, node: u8, mtu: u32) {
    let mut there = connection(nodes.fabric.netns());
    let link = there.by_name(&Fabric::link(node)).expect("links");
    let change = LinkChange {
        mtu: Some(mtu),
        ..LinkChange::default()
    };
    let link = link.expect("the fabric's end");
    there.reconfigure(link.ifindex, &change).expect("an MTU");
}
