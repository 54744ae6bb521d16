//! Test isolated networks next to the routed one, and spoofing by its pods.

use std::net::{Ipv4Addr, SocketAddr};

use agent_common::addr::GATEWAY_MAC;
use agent_common::drop::DropReason;
use testbed::frame::{Ipv4, Marker, ethernet, icmp_echo, marker, udp4, udp6};
use testbed::{Node, Port, Watch, wait};

use super::scene::{BEYOND, NODE, attached, call, close, ip, settle_world, setup};

/// Sends a frame that must be dropped for `reason`, and that no tap sees.
#[track_caller]
fn dropped(
    node: &Node,
    from: &Port,
    watch: &Watch,
    reason: DropReason,
    mark: &Marker,
    frame: &[u8],
) {
    let before = node.drops().of(&from.network, reason);
    from.tap().send(frame);
    wait::until_true("the drop to be counted", || {
        node.drops().of(&from.network, reason) > before
    });
    watch.assert_unseen("the frame", mark);
}

fn to_gateway(from: &Port, ether_type: u16, packet: &[u8]) -> Vec<u8> {
    ethernet(GATEWAY_MAC, from.mac, ether_type, packet)
}

/// The subnets of both are the same, and the node has routes into them.
#[test]
fn a_pod_of_an_isolated_network_reaches_neither_pods_of_the_node_nor_the_node_nor_the_world() {
    let node = testbed::node!(setup());
    settle_world(&node);
    // In this order the addresses of both networks meet: one address for both first pods.
    let ((pa, a), (pb, b)) = (attached(&node, "a", "white"), attached(&node, "b", "white"));
    let (island, alone) = attached(&node, "c", "island");
    assert_eq!(a.ips, alone.ips, "the same addresses on both networks");
    let watch = Watch::over(&node, &[&a, &b]);
    for target in [
        b.v4(),
        NODE[0].parse().expect("an address"),
        BEYOND[0].parse().expect("an address"),
        Ipv4Addr::LOCALHOST,
    ] {
        let mark = marker();
        let packet = udp4(alone.v4(), target, (5000, 9), &mark);
        let frame = to_gateway(&alone, 0x0800, &packet);
        dropped(&node, &alone, &watch, DropReason::NoEndpoint, &mark, &frame);
    }
    let mark = marker();
    let packet = udp6(alone.v6(), b.v6(), (5000, 9), &mark);
    let frame = to_gateway(&alone, 0x86dd, &packet);
    dropped(&node, &alone, &watch, DropReason::NoEndpoint, &mark, &frame);
    // And nobody comes in: the node's routes lead to the pod of its own network.
    let at = SocketAddr::new(a.v4().into(), 8080);
    let seen = super::scene::tcp(node.netns(), at, &a.netns, at);
    assert!(seen.is_ok(), "{seen:?}");
    island.detach("island", "eth0");
    close(&node, &[&pa, &pb], "white");
}

#[test]
fn the_link_of_an_isolated_network_has_no_route_and_no_ipv6_of_the_nodes_own() {
    let node = testbed::node!(setup());
    let (island, port) = attached(&node, "a", "island");
    let routes = testbed::host::connection(node.netns()).routes(port.host_ifindex());
    assert_eq!(routes.expect("a list"), []);
    let host = node
        .links()
        .into_iter()
        .find(|it| it.ifindex == port.host_ifindex());
    let host = host.expect("the host end").name;
    let off = node
        .netns()
        .read_sysctls(&host, &[(netdev::Family::V6, "disable_ipv6")]);
    assert_eq!(off.expect("a setting"), ["1"]);
    island.detach("island", "eth0");
    node.assert_empty();
}

/// Pods that the node routes for are as suspect as others.
#[test]
fn a_pod_that_the_node_routes_for_cannot_speak_as_another_or_to_the_nodes_loopback() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let ((pa, mallory), (pb, bob)) = (attached(&node, "a", "white"), attached(&node, "b", "white"));
    call(&mallory.netns, &bob.netns, bob.v4().into(), 8080);
    let watch = Watch::over(&node, &[&bob]);
    for (reason, source, target) in [
        (
            DropReason::SpoofedIp,
            Ipv4Addr::new(10, 30, 0, 77),
            bob.v4(),
        ),
        (DropReason::SpoofedIp, Ipv4Addr::new(192, 0, 2, 9), bob.v4()),
        (DropReason::SpoofedIp, Ipv4Addr::LOCALHOST, bob.v4()),
        (DropReason::NoEndpoint, mallory.v4(), Ipv4Addr::LOCALHOST),
        (DropReason::NoEndpoint, mallory.v4(), Ipv4Addr::UNSPECIFIED),
        (DropReason::Multicast, mallory.v4(), Ipv4Addr::BROADCAST),
        (
            DropReason::Multicast,
            mallory.v4(),
            Ipv4Addr::new(224, 0, 0, 1),
        ),
        (
            DropReason::Gateway,
            mallory.v4(),
            Ipv4Addr::new(10, 30, 0, 1),
        ),
    ] {
        let mark = marker();
        let packet = udp4(source, target, (5000, 9), &mark);
        let frame = to_gateway(&mallory, 0x0800, &packet);
        dropped(&node, &mallory, &watch, reason, &mark, &frame);
    }
    let mark = marker();
    let packet = udp6(ip6("fd30:30::77"), bob.v6(), (5000, 9), &mark);
    let frame = to_gateway(&mallory, 0x86dd, &packet);
    dropped(
        &node,
        &mallory,
        &watch,
        DropReason::SpoofedIp,
        &mark,
        &frame,
    );
    let mark = marker();
    let packet = udp6(mallory.v6(), ip6("::1"), (5000, 9), &mark);
    let frame = to_gateway(&mallory, 0x86dd, &packet);
    dropped(
        &node,
        &mallory,
        &watch,
        DropReason::NoEndpoint,
        &mark,
        &frame,
    );
    close(&node, &[&pa, &pb], "white");
}

fn ip6(text: &str) -> std::net::Ipv6Addr {
    text.parse().expect("an address")
}

/// The node tells that a packet's hops have run out: traceroute lives on it.
#[test]
fn the_node_answers_when_the_hops_of_a_pods_packet_have_run_out() {
    let node = testbed::node!(setup());
    let (pod, port) = attached(&node, "a", "white");
    let tap = port.tap();
    let mark = marker();
    let mut header = Ipv4::new(port.v4(), BEYOND[0].parse().expect("an address"), 1);
    header.ttl = 1;
    tap.send(&to_gateway(
        &port,
        0x0800,
        &header.packet(&icmp_echo(&mark)),
    ));
    let exceeded = tap.wait("time exceeded", |frame| {
        frame.get(12..14) == Some(&[8, 0])
            && frame.get(23) == Some(&1)
            && frame.get(34) == Some(&11)
    });
    let from = exceeded.get(26..30).map(<[u8]>::to_vec);
    assert_eq!(from.map(|from| from.len()), Some(4));
    assert_eq!(ip("192.0.2.1").to_string(), NODE[0]);
    close(&node, &[&pod], "white");
}
