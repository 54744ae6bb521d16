//! `explain` on the network that the node routes for.

use agent_common::drop::DropReason;
use testbed::frame::{ethernet, marker, udp4};
use testbed::{traffic, wait};

use super::scene::{BEYOND, attached, call, close, ip, settle_world, setup};

#[test]
fn what_the_node_routes_is_told_with_the_nodes_own_route() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let ((pa, a), (pb, b)) = (attached(&node, "a", "white"), attached(&node, "b", "white"));
    for beyond in BEYOND.map(ip) {
        let told = node.explain("a", &beyond.to_string(), &["--proto", "tcp:8080"]);
        told.assert_is("node", "");
        let route = format!("route of the node to {beyond} | out of link");
        told.assert_tells(&["routing: Node", &route]);
        call(&a.netns, node.host().outside(), beyond, 8080);
    }
    for (_, to) in traffic::pairs(&a, &b) {
        node.explain("a", &to.to_string(), &[])
            .assert_is("node", "");
    }
    traffic::assert_reaches(&a, &b);
    // The node's loopback address is nobody's on the network.
    let told = node.explain("a", "127.0.0.1", &["--proto", "udp:9"]);
    told.assert_is("dropped", "no_endpoint");
    let before = node.drops().of("white", DropReason::NoEndpoint);
    let packet = udp4(a.v4(), [127, 0, 0, 1].into(), (5000, 9), &marker());
    let gateway = agent_common::addr::GATEWAY_MAC;
    a.tap().send(&ethernet(gateway, a.mac, 0x0800, &packet));
    wait::until_true("the drop", || {
        node.drops().of("white", DropReason::NoEndpoint) > before
    });
    close(&node, &[&pa, &pb], "white");
}
