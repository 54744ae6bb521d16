//! Somebody else's addresses, as source and as destination.

use agent_common::drop::DropReason;
use testbed::frame::{ethernet, marker, udp4, udp6};

use super::scene::{IP, IPV6, NOBODY, Scene};

/// Frames with a spoofed source MAC address are dropped.
///
/// It is a neighbour's, one that no port has, a group's, the gateway's.
#[test]
fn a_spoofed_source_mac_is_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let table = [
        ("a neighbour's MAC", scene.bob.mac),
        ("the victim's MAC", scene.alice.mac),
        ("nobody's MAC", NOBODY),
        ("the gateway's MAC", agent_common::addr::GATEWAY_MAC),
        (
            "a group MAC",
            agent_common::addr::MacAddr([0x01, 0, 0x5e, 0, 0, 1]),
        ),
        ("the zero MAC", agent_common::addr::MacAddr([0; 6])),
    ];
    for (what, from) in table {
        let mark = marker();
        let packet = scene.udp4_from(scene.mallory.v4(), &mark);
        let frame = ethernet(scene.alice.mac, from, IP, &packet);
        scene.dropped(what, DropReason::SpoofedMac, &mark, &frame);
    }
    scene.close();
}

/// Source addresses that are not the attacker's, in both families and both modes.
#[test]
fn a_spoofed_source_ip_is_dropped() {
    let node = testbed::node!();
    for (network, beside) in [("blue", "red"), ("green", "lime")] {
        let scene = Scene::set(&node, network, beside);
        let gateway = agent_common::addr::GATEWAY_MAC;
        let to = if network == "blue" {
            scene.alice.mac
        } else {
            gateway
        };
        let v4 = [
            ("a neighbour's", scene.bob.v4().to_string()),
            ("the victim's", scene.alice.v4().to_string()),
            ("a free one of the subnet", "10.10.0.222".to_owned()),
            ("the world's", "192.0.2.2".to_owned()),
            ("the node's", "192.0.2.1".to_owned()),
            ("loopback", "127.0.0.1".to_owned()),
            ("none", "0.0.0.0".to_owned()),
            ("broadcast", "255.255.255.255".to_owned()),
        ];
        for (what, from) in v4 {
            let mark = marker();
            let packet = scene.udp4_from(from.parse().expect("an address"), &mark);
            scene.dropped(
                what,
                DropReason::SpoofedIp,
                &mark,
                &scene.to(to, IP, &packet),
            );
        }
        let v6 = [
            ("a neighbour's", scene.bob.v6().to_string()),
            (
                "the victim's link-local",
                scene.alice.mac.link_local().to_string(),
            ),
            ("the world's", "2001:db8::2".to_owned()),
            ("loopback", "::1".to_owned()),
            ("none", "::".to_owned()),
        ];
        for (what, from) in v6 {
            let mark = marker();
            let from = from.parse().expect("an address");
            let packet = udp6(from, scene.alice.v6(), (5000, 9), &mark);
            scene.dropped(
                what,
                DropReason::SpoofedIp,
                &mark,
                &scene.to(to, IPV6, &packet),
            );
        }
        // On a wire nobody has such an address (RFC 4291 section 2.5.5.2).
        for mapped in [scene.mallory.v4(), scene.bob.v4()] {
            let mark = marker();
            let from = mapped.to_ipv6_mapped();
            let packet = udp6(from, scene.alice.v6(), (5000, 9), &mark);
            let frame = scene.to(to, IPV6, &packet);
            scene.dropped("v4-mapped", DropReason::Malformed, &mark, &frame);
        }
        scene.close();
    }
}

/// Foreign MAC addresses are all equally unknown.
///
/// They are of another network, of the node's own interfaces and of no port: no oracle tells whether they
/// exist elsewhere. The packet is for a free address; one for a member's goes to that member alone.
#[test]
fn a_foreign_destination_mac_is_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let mut table = vec![
        ("the other network's pod".to_owned(), scene.other.mac),
        ("nobody".to_owned(), NOBODY),
        (
            "the gateway of L3 networks".to_owned(),
            agent_common::addr::GATEWAY_MAC,
        ),
    ];
    for link in node.links() {
        let mac = link.mac.map(agent_common::addr::MacAddr);
        if let Some(mac) = mac.filter(|mac| mac.is_unicast()) {
            table.push((format!("the node's {}", link.name), mac));
        }
    }
    let free = "10.10.0.99".parse().expect("an address");
    let (alice, bob) = (scene.alice.tap(), scene.bob.tap());
    for (what, to) in table {
        let mark = marker();
        let packet = udp4(scene.mallory.v4(), free, (5000, 9), &mark);
        let frame = scene.to(to, IP, &packet);
        scene.dropped(&what, DropReason::NoEndpoint, &mark, &frame);
        let mark = marker();
        let packet = scene.udp4_from(scene.mallory.v4(), &mark);
        scene.tap.send(&scene.to(to, IP, &packet));
        let frame = alice.wait_marker("a packet for Alice", &mark);
        assert_eq!(frame.get(..6), Some(scene.alice.mac.0.as_slice()), "{what}");
        assert_eq!(bob.count(&mark), 0, "{what}");
    }
    scene.close();
}

/// A frame to oneself goes nowhere.
#[test]
fn a_frame_to_its_own_sender_is_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let mark = marker();
    let packet = scene.udp4_from(scene.mallory.v4(), &mark);
    let frame = scene.to(scene.mallory.mac, IP, &packet);
    scene.dropped("a hairpin", DropReason::Hairpin, &mark, &frame);
    scene.close();
}

/// Packets to the node and the world stay on the network.
///
/// They go to addresses of the node, of its uplink and of the world, behind a neighbour's MAC address:
/// the neighbour gets them, since it is an Ethernet, and the node never does.
#[test]
fn packets_to_the_node_and_the_world_stay_on_the_network() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let outside = testbed::Watch::over(&node, &[&scene.other, &scene.bob]);
    let alice = scene.alice.tap();
    for to in ["192.0.2.1", "192.0.2.2", "127.0.0.1", "8.8.8.8"] {
        let mark = marker();
        let to = to.parse().expect("an address");
        let packet = udp4(scene.mallory.v4(), to, (5000, 9), &mark);
        scene.tap.send(&scene.to_alice(IP, &packet));
        alice.wait_marker("the frame to Alice's MAC", &mark);
        outside.assert_unseen("a packet to the node", &mark);
    }
    scene.close();
}
