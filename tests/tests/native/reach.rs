//! Node to pod, pod to node, pod to pod.

use agent_common::addr::GATEWAY_MAC;
use testbed::frame::{ethernet, marker, udp4};
use testbed::{Node, traffic, wait};

use super::scene::{self, NODE, PROTOCOL, attached, call, close, ip, setup};

/// Kubelet's probes, and a pod that asks its node.
#[test]
fn node_and_pod_reach_each_other_in_both_families() {
    let node = testbed::node!(setup());
    let (pod, port) = attached(&node, "a", "white");
    for (address, _) in &port.ips {
        let seen = call(node.netns(), &port.netns, *address, 8080);
        assert!(NODE.map(ip).contains(&seen), "the pod saw {seen}");
    }
    for ((address, _), own) in port.ips.iter().zip(NODE.map(ip)) {
        let seen = call(&port.netns, node.netns(), own, 8081);
        assert_eq!(seen, *address, "the node sees the pod itself");
    }
    close(&node, &[&pod], "white");
}

#[test]
fn pods_reach_each_other_by_the_nodes_stack_as_themselves() {
    let node = testbed::node!(setup());
    let ((pa, a), (pb, b)) = (attached(&node, "a", "white"), attached(&node, "b", "white"));
    traffic::assert_reaches(&a, &b);
    for (here, there) in traffic::pairs(&a, &b) {
        assert_eq!(call(&a.netns, &b.netns, there, 8080), here);
    }
    // The node's own router has taken a hop off, and signs with its own MAC address.
    let mark = marker();
    let tap = b.tap();
    let packet = udp4(a.v4(), b.v4(), (5000, 9), &mark);
    a.tap().send(&ethernet(GATEWAY_MAC, a.mac, 0x0800, &packet));
    let seen = tap.wait_marker("the packet", &mark);
    let host = node
        .links()
        .into_iter()
        .find(|link| link.ifindex == b.host_ifindex());
    let host = host.expect("the host end").mac.expect("a MAC address");
    assert_eq!(seen.get(6..12), Some(host.as_slice()));
    assert_eq!(seen.get(22), Some(&63), "TTL");
    close(&node, &[&pa, &pb], "white");
}

/// Each connection of a young pod counts: a lost SYN costs a second.
#[test]
fn the_first_packets_to_a_pod_arrive() {
    let node = testbed::node!(setup());
    let (old, peer) = attached(&node, "old", "white");
    for round in 0..10 {
        let (pod, port) = attached(&node, &format!("p{round}"), "white");
        let trip = traffic::udp_round_trip(&peer, peer.v4().into(), &port, port.v4().into());
        assert!(trip.is_ok(), "round {round}: {trip:?}");
        pod.detach("white", "eth0");
    }
    close(&node, &[&old], "white");
}

/// CNI-CHK-05: Routes that somebody removed are there again.
#[test]
fn a_port_is_one_route_and_one_neighbour_for_each_address_and_check_puts_them_back() {
    let node = testbed::node!(setup());
    let (pod, port) = attached(&node, "a", "white");
    let mut here = testbed::host::connection(node.netns());
    let routes = here.routes_by(PROTOCOL).expect("a list");
    let found: Vec<_> = routes
        .iter()
        .map(|route| (route.dst, route.gateway, route.ifindex))
        .collect();
    let expected: Vec<_> = port
        .ips
        .iter()
        .map(|(ip, _)| (*ip, None, port.host_ifindex()))
        .collect();
    assert_eq!(found, expected);
    let conf = scene::conf(&node, "white");
    let check = |conf: &serde_json::Value| {
        let mut conf = conf.clone();
        conf["prevResult"] = port.result.clone();
        pod.call("CHECK", "eth0").conf(&conf).run()
    };
    check(&conf).silent();
    node.kill_9();
    here.remove_route(&routes[0]).expect("removed");
    node.launch_agent();
    // The start mends it.
    node.wait_ready();
    check(&conf).silent();
    assert_eq!(here.routes_by(PROTOCOL).expect("a list").len(), 2);
    here.remove_route(&routes[1]).expect("removed");
    // CHECK puts it back before it answers.
    check(&conf).silent();
    assert_eq!(here.routes_by(PROTOCOL).expect("a list").len(), 2);
    close(&node, &[&pod], "white");
    proof::of!("CNI-CHK-05");
}

/// An address that the node has for itself, or routes elsewhere, is no pod's.
#[test]
fn an_address_with_a_route_of_the_nodes_own_is_refused_with_a_word_and_nothing_is_left() {
    let node = testbed::node!(setup());
    let uplink = scene::uplink(&node);
    let mut here = testbed::host::connection(node.netns());
    let taken = netdev::Route::new(ip("10.30.0.2"), 32, None, uplink);
    here.add_route(&taken).expect("a route");
    let pod = node.pod("a");
    let failed = pod.add("white", "eth0").fails_with(110).text();
    assert!(failed.contains("10.30.0.2"), "{failed}");
    assert!(failed.contains("route of its own"), "{failed}");
    assert!(pod.links().is_empty());
    assert!(here.remove_route(&taken).expect("removed"), "it stayed");
    node.assert_empty();
    pod.attach("white", "eth0");
    close(&node, &[&pod], "white");
}

/// The node has one table of routes.
#[test]
fn a_second_network_of_the_node_is_refused_and_names_the_first() {
    let node = testbed::node!(setup());
    let second = testbed::Network::l3("yellow", &["10.31.0.0/24"]).by_node();
    node.write_manifest("yellow.yaml", &second.yaml());
    let pod = node.pod("a");
    let failed = wait::until("the second network to be known", || {
        let failed = pod.add("yellow", "eth0").error();
        (!failed.msg.contains("does not exist")).then_some(failed)
    });
    assert_eq!(failed.code, 7);
    assert!(failed.msg.contains("white"), "{}", failed.msg);
    assert_first_is_served(&node);
}

fn assert_first_is_served(node: &Node) {
    let (pod, _) = attached(node, "b", "white");
    close(node, &[&pod], "white");
}
