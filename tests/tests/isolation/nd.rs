//! Neighbour discovery is IPv6's ARP (RFC 4861), with options to lie in.

use std::net::Ipv6Addr;

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use testbed::frame::{
    Ipv6, extension, fragment_header, icmp6, marker, nd_option, neighbour_advertisement,
    neighbour_solicitation,
};

use super::scene::{IPV6, NOBODY, Scene};

const ALL: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_MAC: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 1]);

/// An advertisement of another's address, or of another MAC, is dropped.
#[test]
fn a_spoofed_advertisement_is_dropped() {
    let node = testbed::node!();
    for (network, beside) in [("blue", "red"), ("green", "lime")] {
        let scene = Scene::set(&node, network, beside);
        let (me, bob) = (&scene.mallory, &scene.bob);
        for (what, target, link) in [
            ("Bob's address at my MAC", bob.v6(), me.mac),
            ("Bob's address at his MAC", bob.v6(), bob.mac),
            ("Bob's link-local", bob.mac.link_local(), me.mac),
            (
                "the gateway",
                Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
                me.mac,
            ),
            ("my address at nobody's MAC", me.v6(), NOBODY),
        ] {
            for (to, to_mac) in [(ALL, ALL_MAC), (scene.alice.v6(), scene.alice.mac)] {
                let mark = marker();
                let option = nd_option(253, &mark);
                let packet = neighbour_advertisement(me.v6(), to, target, link, &option);
                let frame = scene.to(to_mac, IPV6, &packet);
                scene.dropped(what, DropReason::SpoofedNd, &mark, &frame);
            }
        }
        scene.close();
    }
}

/// A solicitation teaches its receiver the sender's MAC address by an option.
#[test]
fn a_spoofed_solicitation_is_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let (me, alice) = (&scene.mallory, &scene.alice);
    for (to, to_mac) in [(ALL, ALL_MAC), (alice.v6(), alice.mac)] {
        let mark = marker();
        let option = nd_option(253, &mark);
        let packet = neighbour_solicitation(me.v6(), to, alice.v6(), NOBODY, &option);
        let frame = scene.to(to_mac, IPV6, &packet);
        scene.dropped("nobody's MAC", DropReason::SpoofedNd, &mark, &frame);
        // The honest option first, the lie after it.
        let mark = marker();
        let options = [nd_option(253, &mark), nd_option(1, &NOBODY.0)].concat();
        let packet = neighbour_solicitation(me.v6(), to, alice.v6(), me.mac, &options);
        let frame = scene.to(to_mac, IPV6, &packet);
        scene.dropped("a second option", DropReason::SpoofedNd, &mark, &frame);
        let mark = marker();
        let option = nd_option(253, &mark);
        let bob = scene.bob.v6();
        let packet = neighbour_solicitation(bob, to, alice.v6(), me.mac, &option);
        let frame = scene.to(to_mac, IPV6, &packet);
        scene.dropped("Bob's address", DropReason::SpoofedIp, &mark, &frame);
    }
    scene.close();
}

/// Options of length zero, and more options than anybody sends.
#[test]
fn malformed_options_are_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let (me, alice) = (&scene.mallory, &scene.alice);
    for (what, options) in [
        ("length zero", vec![253, 0, 0, 0, 0, 0, 0, 0]),
        ("many options", nd_option(253, &[0; 6]).repeat(20)),
    ] {
        let mark = marker();
        let options = [nd_option(253, &mark), options].concat();
        let packet = neighbour_solicitation(me.v6(), ALL, alice.v6(), me.mac, &options);
        let frame = scene.to(ALL_MAC, IPV6, &packet);
        scene.dropped(what, DropReason::Malformed, &mark, &frame);
    }
    scene.close();
}

/// RFC 4861 section 7.1: a hop limit below 255 came from elsewhere.
#[test]
fn discovery_with_another_hop_limit_is_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let me = scene.mallory.v6();
    for kind in [135, 136] {
        let mark = marker();
        let mut body = vec![0; 4];
        body.extend(me.octets());
        body.extend(nd_option(253, &mark));
        let mut header = Ipv6::new(me, ALL, 58);
        header.hops = 254;
        let packet = header.packet(&icmp6(me, ALL, (kind, 0), &body));
        let frame = scene.to(ALL_MAC, IPV6, &packet);
        scene.dropped("hop limit 254", DropReason::Malformed, &mark, &frame);
    }
    scene.close();
}

/// RFC 6980: neighbour discovery in fragments or behind headers is dropped.
#[test]
fn discovery_in_fragments_or_behind_headers_is_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let me = scene.mallory.v6();
    for kind in [135, 136] {
        let mark = marker();
        let mut body = vec![0; 4];
        body.extend(scene.bob.v6().octets());
        body.extend(nd_option(253, &mark));
        let message = icmp6(me, ALL, (kind, 0), &body);
        for (next, chain, reason) in [
            (44, fragment_header(58, 0, true), DropReason::FragmentedNd),
            (44, fragment_header(58, 0, false), DropReason::FragmentedNd),
            (
                60,
                extension(58, &[1, 4, 0, 0, 0, 0]),
                DropReason::Ipv6Headers,
            ),
        ] {
            let payload = [chain, message.clone()].concat();
            let packet = Ipv6::new(me, ALL, next).packet(&payload);
            let frame = scene.to(ALL_MAC, IPV6, &packet);
            scene.dropped("hidden discovery", reason, &mark, &frame);
        }
    }
    scene.close();
}

/// Questions about free addresses are not flooded.
#[test]
fn a_solicitation_for_an_unknown_address_is_not_flooded() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let me = &scene.mallory;
    for target in ["fd10:10::dead", "2001:db8::1", "fe80::dead"] {
        let mark = marker();
        let option = nd_option(253, &mark);
        let target = target.parse().expect("an address");
        let packet = neighbour_solicitation(me.v6(), ALL, target, me.mac, &option);
        let frame = scene.to(ALL_MAC, IPV6, &packet);
        scene.dropped("an unknown target", DropReason::NoEndpoint, &mark, &frame);
    }
    scene.close();
}

/// The datapath answers a solicitation for a neighbour, with the neighbour's MAC.
///
/// The neighbour is not asked.
#[test]
fn a_solicitation_for_a_neighbour_is_answered() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let (me, alice) = (&scene.mallory, &scene.alice);
    let tap = me.tap();
    for target in [alice.v6(), alice.mac.link_local()] {
        let mark = marker();
        let option = nd_option(253, &mark);
        let packet = neighbour_solicitation(me.v6(), ALL, target, me.mac, &option);
        scene.ignored("a question", &mark, &scene.to(ALL_MAC, IPV6, &packet));
        let answer = tap.wait("an advertisement", |frame| {
            frame.get(12..14) == Some(&[0x86, 0xdd])
                && frame.get(54) == Some(&136)
                && frame.get(62..78) == Some(&target.octets())
        });
        assert_eq!(answer.get(80..86), Some(alice.mac.0.as_slice()));
        assert_eq!(answer.get(0..6), Some(me.mac.0.as_slice()));
    }
    scene.close();
}
