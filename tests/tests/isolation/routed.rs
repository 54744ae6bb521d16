//! L3 networks: by destination, behind a virtual gateway, without broadcast.

use std::net::Ipv6Addr;

use agent_common::addr::{GATEWAY_MAC, GATEWAY_V4, GATEWAY_V6, MacAddr};
use agent_common::drop::DropReason;
use testbed::frame::{
    Arp, Ipv4, checksum, echo6, ethernet, icmp_echo, is_arp_reply_for, marker, udp4, udp6,
};
use testbed::{Node, traffic};

use super::scene::{IP, IPV6, NOBODY, Scene};

fn scene(node: &Node) -> Scene<'_> {
    Scene::set(node, "green", "lime")
}

/// A hop less, the gateway's MAC address as source, and nothing else changed.
#[test]
fn a_routed_packet_has_a_hop_less() {
    let node = testbed::node!();
    let scene = scene(&node);
    let alice = scene.alice.tap();
    let mark = marker();
    scene.tap.send(&scene.honest_to_alice(&mark));
    let seen = alice.wait_marker("the packet", &mark);
    assert_eq!(seen.get(0..6), Some(scene.alice.mac.0.as_slice()));
    assert_eq!(seen.get(6..12), Some(GATEWAY_MAC.0.as_slice()));
    assert_eq!(seen.get(22), Some(&63), "TTL");
    let sum = checksum(&[seen.get(14..34).unwrap_or_default()]);
    assert_eq!(sum, [0, 0], "the header checksum holds");
    let mark = marker();
    let packet = udp6(scene.mallory.v6(), scene.alice.v6(), (5000, 9), &mark);
    scene.tap.send(&scene.to(GATEWAY_MAC, IPV6, &packet));
    let seen = alice.wait_marker("the packet", &mark);
    assert_eq!(seen.get(21), Some(&254), "hop limit");
    scene.close();
}

/// A packet without hops is dropped, and its sender told.
///
/// So traceroute sees the gateway (RFC 792, RFC 4443 section 3.3).
#[test]
fn a_packet_without_hops_is_dropped_and_its_sender_told() {
    let node = testbed::node!();
    let scene = scene(&node);
    for ttl in [0, 1] {
        let mark = marker();
        let mut header = Ipv4::new(scene.mallory.v4(), scene.alice.v4(), 254);
        header.ttl = ttl;
        let frame = scene.to(GATEWAY_MAC, IP, &header.packet(&mark));
        let tap = scene.mallory.tap();
        scene.dropped("IPv4", DropReason::Ttl, &mark, &frame);
        let told = tap.wait("time exceeded", |f| f.get(34..36) == Some(&[11, 0]));
        let told = told.get(14..).expect("a packet");
        assert_eq!(checksum(&[&told[..20]]), [0, 0]);
        assert_eq!(told[12..16], GATEWAY_V4.octets());
        assert_eq!(checksum(&[&told[20..]]), [0, 0]);
        // Its own header, which the gateway has not touched, and the start of what was in it.
        assert_eq!(told[28..56], frame[14..42]);
        let mark = marker();
        let mut packet = udp6(scene.mallory.v6(), scene.alice.v6(), (5000, 9), &mark);
        packet[7] = ttl;
        let frame = scene.to(GATEWAY_MAC, IPV6, &packet);
        scene.dropped("IPv6", DropReason::Ttl, &mark, &frame);
        let told = tap.wait("time exceeded", |f| f.get(54..56) == Some(&[3, 0]));
        let told = told.get(14..).expect("a packet");
        assert_eq!(told[8..24], GATEWAY_V6.octets());
        let pseudo = [&told[8..40], &[0, 0, 0, 56, 0, 0, 0, 58]].concat();
        assert_eq!(checksum(&[&pseudo, &told[40..]]), [0, 0]);
        assert_eq!(told[48..96], frame[14..62]);
    }
    scene.close();
}

/// The gateway answers ARP, solicitations and ping in both families.
///
/// So a person can see that the network is there.
#[test]
fn the_gateway_can_be_pinged() {
    let node = testbed::node!();
    let scene = scene(&node);
    let tap = scene.mallory.tap();
    let gateway4 = "10.20.0.1".parse().expect("an address");
    let gateway6: Ipv6Addr = "fd10:20::1".parse().expect("an address");
    let arp = Arp::request((scene.mallory.mac, scene.mallory.v4()), gateway4);
    tap.send(&arp.frame(MacAddr::BROADCAST, scene.mallory.mac, &[]));
    let reply = tap.wait("an ARP reply", |f| is_arp_reply_for(f, gateway4));
    assert_eq!(reply.get(22..28), Some(GATEWAY_MAC.0.as_slice()));
    let mark = marker();
    let packet = Ipv4::new(scene.mallory.v4(), gateway4, 1).packet(&icmp_echo(&mark));
    tap.send(&scene.to(GATEWAY_MAC, IP, &packet));
    let reply = tap.wait("an echo reply", |frame| {
        frame.get(34) == Some(&0) && testbed::tap::contains(frame, &mark)
    });
    assert_eq!(reply.get(26..30), Some(gateway4.octets().as_slice()));
    for part in [14..34, 34..reply.len()] {
        let bytes = reply.get(part).unwrap_or_default();
        assert_eq!(checksum(&[bytes]), [0, 0]);
    }
    let mark = marker();
    let packet = echo6(scene.mallory.v6(), gateway6, &mark);
    tap.send(&scene.to(GATEWAY_MAC, IPV6, &packet));
    let reply = tap.wait("an echo reply", |frame| {
        frame.get(54) == Some(&129) && testbed::tap::contains(frame, &mark)
    });
    assert_eq!(reply.get(22..38), Some(gateway6.octets().as_slice()));
    scene.close();
}

/// It answers nothing else: it is not the node.
#[test]
fn the_gateway_is_no_host() {
    let node = testbed::node!();
    let scene = scene(&node);
    let gateway = "10.20.0.1".parse().expect("an address");
    let from = scene.mallory.v4();
    let mark = marker();
    let packet = udp4(from, gateway, (5000, 9464), &mark);
    let frame = scene.to(GATEWAY_MAC, IP, &packet);
    scene.dropped("UDP", DropReason::Gateway, &mark, &frame);
    for protocol in [6, 2, 41, 47, 89] {
        let mark = marker();
        let packet = Ipv4::new(from, gateway, protocol).packet(&mark);
        let frame = scene.to(GATEWAY_MAC, IP, &packet);
        scene.dropped("another protocol", DropReason::Gateway, &mark, &frame);
    }
    // A timestamp request, and an echo request in fragments.
    let mark = marker();
    let mut message = icmp_echo(&mark);
    message[0] = 13;
    let frame = scene.to(
        GATEWAY_MAC,
        IP,
        &Ipv4::new(from, gateway, 1).packet(&message),
    );
    scene.dropped("another message", DropReason::Gateway, &mark, &frame);
    let mark = marker();
    let mut header = Ipv4::new(from, gateway, 1);
    header.fragment = testbed::frame::IPV4_MF;
    let frame = scene.to(GATEWAY_MAC, IP, &header.packet(&icmp_echo(&mark)));
    scene.dropped("a fragment", DropReason::Gateway, &mark, &frame);
    scene.close();
}

/// No broadcast and no multicast, whatever is inside.
#[test]
fn there_is_no_broadcast() {
    let node = testbed::node!();
    let scene = scene(&node);
    let from = scene.mallory.v4();
    for (to, ip) in [
        (MacAddr::BROADCAST, "255.255.255.255"),
        (MacAddr::BROADCAST, "10.20.0.255"),
        (MacAddr([0x01, 0, 0x5e, 0, 0, 0xfb]), "224.0.0.251"),
    ] {
        let mark = marker();
        let packet = udp4(from, ip.parse().expect("an address"), (5000, 9), &mark);
        let frame = scene.to(to, IP, &packet);
        scene.dropped("a group", DropReason::Multicast, &mark, &frame);
    }
    let mark = marker();
    let packet = udp4(from, scene.alice.v4(), (5000, 9), &mark);
    let frame = scene.to(MacAddr::BROADCAST, IP, &packet);
    scene.dropped(
        "a unicast address in a broadcast",
        DropReason::Multicast,
        &mark,
        &frame,
    );
    let mark = marker();
    let group: Ipv6Addr = "ff02::fb".parse().expect("an address");
    let packet = udp6(scene.mallory.v6(), group, (5000, 9), &mark);
    let frame = scene.to(MacAddr([0x33, 0x33, 0, 0, 0, 0xfb]), IPV6, &packet);
    scene.dropped("an IPv6 group", DropReason::Multicast, &mark, &frame);
    scene.close();
}

/// Only the gateway's MAC address is a way: neighbours' are unknown here.
#[test]
fn frames_to_a_neighbours_mac_are_dropped() {
    let node = testbed::node!();
    let scene = scene(&node);
    for to in [scene.alice.mac, scene.other.mac, NOBODY] {
        let mark = marker();
        let packet = udp4(scene.mallory.v4(), scene.alice.v4(), (5000, 9), &mark);
        let frame = scene.to(to, IP, &packet);
        scene.dropped("not by the gateway", DropReason::NoEndpoint, &mark, &frame);
    }
    scene.close();
}

/// No destination outside the network can be reached.
///
/// They are the node, the world, free addresses, groups behind the gateway's MAC address.
#[test]
fn there_is_no_way_out() {
    let node = testbed::node!();
    let scene = scene(&node);
    for to in [
        "192.0.2.1",
        "192.0.2.2",
        "8.8.8.8",
        "127.0.0.1",
        "10.20.0.222",
        "10.10.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "0.0.0.0",
    ] {
        let mark = marker();
        let to = to.parse().expect("an address");
        let packet = udp4(scene.mallory.v4(), to, (5000, 9), &mark);
        let frame = scene.to(GATEWAY_MAC, IP, &packet);
        scene.dropped("outside", DropReason::NoEndpoint, &mark, &frame);
    }
    for to in ["2001:db8::1", "::1", "fd10:20::dead", "ff02::1", "::"] {
        let mark = marker();
        let to = to.parse().expect("an address");
        let packet = udp6(scene.mallory.v6(), to, (5000, 9), &mark);
        let frame = scene.to(GATEWAY_MAC, IPV6, &packet);
        scene.dropped("outside", DropReason::NoEndpoint, &mark, &frame);
    }
    scene.close();
}

/// Link-local addresses do not leave their link.
#[test]
fn link_local_addresses_are_not_routed() {
    let node = testbed::node!();
    let scene = scene(&node);
    let mark = marker();
    let from = scene.mallory.mac.link_local();
    let packet = udp6(from, scene.alice.v6(), (5000, 9), &mark);
    let frame = scene.to(GATEWAY_MAC, IPV6, &packet);
    scene.dropped("a link-local source", DropReason::LinkLocal, &mark, &frame);
    scene.close();
}

/// A packet to oneself goes nowhere.
#[test]
fn a_packet_to_its_own_sender_is_dropped() {
    let node = testbed::node!();
    let scene = scene(&node);
    let mark = marker();
    let packet = udp4(scene.mallory.v4(), scene.mallory.v4(), (5000, 9), &mark);
    let frame = ethernet(GATEWAY_MAC, scene.mallory.mac, IP, &packet);
    scene.dropped("a hairpin", DropReason::Hairpin, &mark, &frame);
    scene.close();
}

/// A default route through the gateway leads a routed pod to its network only.
#[test]
fn a_default_route_leads_to_the_network_only() {
    let node = testbed::node!();
    let (a, b) = (node.pod("a"), node.pod("b"));
    let mut conf = node.conf("green");
    conf["isDefaultGateway"] = true.into();
    let (pa, pb) = (a.attach_conf(&conf, "net1"), b.attach_conf(&conf, "net1"));
    assert!(pa.routes().iter().any(|route| route.prefix_len == 0));
    traffic::assert_reaches(&pa, &pb);
    let world = testbed::Watch::over(&node, &[&pb]);
    let before = node.drops().of("green", DropReason::NoEndpoint);
    let mark = marker();
    let to = ([192, 0, 2, 2], 9).into();
    traffic::shout(&pa, pa.v4().into(), to, &mark).expect("there is a route");
    testbed::wait::until_true("the packet to be dropped", || {
        node.drops().of("green", DropReason::NoEndpoint) > before
    });
    world.assert_unseen("a packet to the world", &mark);
    a.detach("green", "net1");
    b.detach("green", "net1");
    node.assert_empty();
}
