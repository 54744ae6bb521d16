//! IPv4 headers that lie, end early, or carry what a network of ours does not.

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use testbed::frame::{IPV4_DF, IPV4_MF, Ipv4, marker, udp4};
use testbed::{Watch, tap};

use super::scene::{IP, Scene};

/// Frames that end inside a header.
#[test]
fn truncated_headers_are_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let mark = marker();
    let frame = scene.to_alice(IP, &mark);
    scene.dropped("12 bytes of IPv4", DropReason::Truncated, &mark, &frame);
    // The header is whole, the ports are not; the total length agrees.
    let mark = marker();
    let mut header = Ipv4::new(scene.mallory.v4(), scene.alice.v4(), 17);
    header.options = [mark.as_slice(), &[0; 4]].concat();
    let frame = scene.to_alice(IP, &header.packet(&[0, 68]));
    scene.dropped("2 bytes of UDP", DropReason::Truncated, &mark, &frame);
    scene.close();
}

/// Versions, header lengths and total lengths that contradict the frame.
#[test]
fn malformed_headers_are_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    for (what, offset, bytes) in [
        ("version 5", 0, vec![0x55]),
        ("version 6", 0, vec![0x65]),
        ("a header of 16 bytes", 0, vec![0x44]),
        ("a header of 0 bytes", 0, vec![0x40]),
        ("a total length below the header's", 2, vec![0, 12]),
        ("a total length of zero", 2, vec![0, 0]),
        ("a total length above the frame's", 2, vec![0x05, 0]),
    ] {
        let mark = marker();
        let mut packet = scene.udp4_from(scene.mallory.v4(), &mark);
        packet[offset..offset + bytes.len()].copy_from_slice(&bytes);
        let frame = scene.to_alice(IP, &packet);
        scene.dropped(what, DropReason::Malformed, &mark, &frame);
    }
    scene.close();
}

/// Fragments are judged by their addresses like everything else.
#[test]
fn spoofed_fragments_are_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    for (what, fragment) in [
        ("the first", IPV4_MF),
        ("a middle one", IPV4_MF | 100),
        ("the last", 100),
        ("an overlapping one", 1),
        ("the largest offset", 0x1fff),
        ("with DF", IPV4_DF | IPV4_MF),
    ] {
        let mark = marker();
        let mut header = Ipv4::new(scene.bob.v4(), scene.alice.v4(), 17);
        header.fragment = fragment;
        let payload = [&[0x13, 0x88, 0, 9, 0, 20, 0, 0], mark.as_slice()].concat();
        let frame = scene.to_alice(IP, &header.packet(&payload));
        scene.dropped(what, DropReason::SpoofedIp, &mark, &frame);
    }
    scene.close();
}

/// IP options change no owner of a packet, and make the node do nothing.
#[test]
fn ip_options_do_not_help() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let node_address = [192, 0, 2, 1];
    let route = |kind: u8| [&[kind, 7, 4], node_address.as_slice(), &[0]].concat();
    let options = [
        ("loose source route", route(131)),
        ("strict source route", route(137)),
        ("record route", vec![7, 7, 4, 0, 0, 0, 0, 0]),
        ("router alert", vec![148, 4, 0, 0]),
        ("an option longer than the header", vec![131, 255, 4, 0]),
        ("an option of length zero", vec![131, 0, 0, 0]),
    ];
    let alice = scene.alice.tap();
    let outside = Watch::over(&node, &[&scene.bob, &scene.other]);
    for (what, options) in options {
        let mark = marker();
        let mut header = Ipv4::new(scene.bob.v4(), scene.alice.v4(), 17);
        header.options = options;
        let payload = [&[0x13, 0x88, 0, 9, 0, 20, 0, 0], mark.as_slice()].concat();
        let frame = scene.to_alice(IP, &header.packet(&payload));
        scene.dropped(what, DropReason::SpoofedIp, &mark, &frame);
        // From its own address it reaches the neighbour it is for, and nobody else.
        let mark = marker();
        header.from = scene.mallory.v4();
        let payload = [&[0x13, 0x88, 0, 9, 0, 20, 0, 0], mark.as_slice()].concat();
        scene
            .tap
            .send(&scene.to_alice(IP, &header.packet(&payload)));
        alice.wait_marker(what, &mark);
        outside.assert_unseen(what, &mark);
    }
    scene.close();
}

/// DHCP is not served, and no pod may act as its client or server (RFC 2131).
///
/// It is dropped both as broadcast and to one neighbour.
#[test]
fn dhcp_is_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let (none, all) = ("0.0.0.0", "255.255.255.255");
    let me = scene.mallory.v4().to_string();
    for (what, from, ports) in [
        ("a client", none, (68, 67)),
        ("a server", me.as_str(), (67, 68)),
        ("a client with an address", me.as_str(), (68, 67)),
        ("a server without one", none, (67, 68)),
    ] {
        for to in [MacAddr::BROADCAST, scene.alice.mac] {
            let mark = marker();
            let from = from.parse().expect("an address");
            let packet = udp4(from, all.parse().expect("an address"), ports, &mark);
            scene.dropped(what, DropReason::Dhcp, &mark, &scene.to(to, IP, &packet));
        }
    }
    // With options in between, the ports are elsewhere and still found.
    let mark = marker();
    let mut header = Ipv4::new(scene.mallory.v4(), scene.alice.v4(), 17);
    header.options = vec![1; 20];
    let payload = [&[0, 67, 0, 68, 0, 20, 0, 0], mark.as_slice()].concat();
    let frame = scene.to_alice(IP, &header.packet(&payload));
    scene.dropped("a server behind options", DropReason::Dhcp, &mark, &frame);
    scene.close();
}

/// Multicast protocols of routers reach the network's members only.
///
/// The node's own stack, which forwards, is not one of them.
#[test]
fn routing_protocols_do_not_reach_the_node() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let outside = Watch::over(&node, &[&scene.other]);
    let alice = scene.alice.tap();
    for (group, protocol) in [("224.0.0.5", 89), ("224.0.0.18", 112), ("224.0.0.22", 2)] {
        let mark = marker();
        let to: std::net::Ipv4Addr = group.parse().expect("an address");
        let [_, b, c, d] = to.octets();
        let mac = MacAddr([0x01, 0, 0x5e, b & 0x7f, c, d]);
        let packet = Ipv4::new(scene.mallory.v4(), to, protocol).packet(&mark);
        scene.tap.send(&scene.to(mac, IP, &packet));
        let seen = alice.wait_marker(group, &mark);
        assert!(tap::contains(&seen, &mark));
        outside.assert_unseen(group, &mark);
    }
    scene.close();
}
