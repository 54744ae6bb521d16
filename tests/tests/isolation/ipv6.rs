//! IPv6: extension headers are where guards are walked around (RFC 7112, RFC 8200).

use std::net::Ipv6Addr;

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use testbed::frame::{Ipv6, extension, fragment_header, icmp6, marker, udp6};

use super::scene::{IPV6, Scene};

/// Hop-by-hop, routing, fragment, authentication, destination options, mobility.
const HOPOPTS: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DSTOPTS: u8 = 60;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

fn router_advertisement_body(marker: &[u8]) -> Vec<u8> {
    let mut body = vec![64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0];
    body.extend(testbed::frame::nd_option(253, marker));
    body
}

/// Frames that end inside the fixed header, or claim more than there is.
#[test]
fn truncated_and_malformed_headers_are_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let mark = marker();
    let short = [&[0x60, 0, 0, 0, 0, 8, 17, 64], mark.as_slice()].concat();
    let frame = scene.to_alice(IPV6, &short);
    scene.dropped("20 bytes of IPv6", DropReason::Truncated, &mark, &frame);
    let mark = marker();
    let mut packet = udp6(scene.mallory.v6(), scene.alice.v6(), (1, 9), &mark);
    packet[0] = 0x40;
    let frame = scene.to_alice(IPV6, &packet);
    scene.dropped("version 4", DropReason::Malformed, &mark, &frame);
    let mark = marker();
    let mut packet = udp6(scene.mallory.v6(), scene.alice.v6(), (1, 9), &mark);
    packet[4] = 0x05;
    let frame = scene.to_alice(IPV6, &packet);
    scene.dropped("a longer payload", DropReason::Malformed, &mark, &frame);
    scene.close();
}

/// Chains that are too deep to follow are not forwarded unread.
#[test]
fn deep_extension_chains_are_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    for depth in [9, 12, 40] {
        let mark = marker();
        let mut payload = Vec::new();
        for n in 0..depth {
            let next = if n == depth - 1 { UDP } else { DSTOPTS };
            payload.extend(extension(next, &[1, 4, 0, 0, 0, 0]));
        }
        payload.extend([&[0x13, 0x88, 0, 9, 0, 20, 0, 0], mark.as_slice()].concat());
        let header = Ipv6::new(scene.mallory.v6(), scene.alice.v6(), DSTOPTS);
        let frame = scene.to_alice(IPV6, &header.packet(&payload));
        scene.dropped("a deep chain", DropReason::Ipv6Headers, &mark, &frame);
    }
    scene.close();
}

/// A header chain beyond the frame or the first fragment is dropped (RFC 7112).
#[test]
fn incomplete_chains_are_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let (from, to) = (scene.mallory.v6(), scene.alice.v6());
    let mark = marker();
    let mut options = vec![DSTOPTS, 200, 1, 12];
    options.extend(mark);
    let packet = Ipv6::new(from, to, DSTOPTS).packet(&options);
    let frame = scene.to_alice(IPV6, &packet);
    scene.dropped(
        "an option header beyond the end",
        DropReason::Ipv6Headers,
        &mark,
        &frame,
    );
    let mark = marker();
    let mut first = fragment_header(DSTOPTS, 0, true);
    first.extend([DSTOPTS, 40, 1, 12]);
    first.extend(mark);
    let packet = Ipv6::new(from, to, FRAGMENT).packet(&first);
    let frame = scene.to_alice(IPV6, &packet);
    scene.dropped(
        "a first fragment without its headers",
        DropReason::Ipv6Headers,
        &mark,
        &frame,
    );
    // The last extension header is where the frame ends too early; what follows is TCP, which the
    // datapath has no reason to look at.
    for (what, next, chain) in [
        ("unfragmented", DSTOPTS, vec![]),
        (
            "in a first fragment",
            FRAGMENT,
            fragment_header(DSTOPTS, 0, true),
        ),
    ] {
        let mark = marker();
        let payload = [chain.as_slice(), &[6, 40, 1, 12], mark.as_slice()].concat();
        let packet = Ipv6::new(from, to, next).packet(&payload);
        let frame = scene.to_alice(IPV6, &packet);
        scene.dropped(what, DropReason::Ipv6Headers, &mark, &frame);
    }
    scene.close();
}

/// Spoofed sources behind extension headers and in fragments.
#[test]
fn a_spoofed_source_behind_extension_headers_is_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let udp = |mark: &[u8]| [&[0x13, 0x88, 0, 9, 0, 20, 0, 0], mark].concat();
    let padding = [1, 4, 0, 0, 0, 0];
    for (what, next, chain) in [
        ("hop-by-hop", HOPOPTS, extension(UDP, &padding)),
        ("destination options", DSTOPTS, extension(UDP, &padding)),
        ("routing", ROUTING, extension(UDP, &[4, 0, 0, 0, 0, 0])),
        (
            "the first fragment",
            FRAGMENT,
            fragment_header(UDP, 0, true),
        ),
        (
            "a later fragment",
            FRAGMENT,
            fragment_header(UDP, 100, true),
        ),
        (
            "an atomic fragment",
            FRAGMENT,
            fragment_header(UDP, 0, false),
        ),
    ] {
        let mark = marker();
        let payload = [chain, udp(&mark)].concat();
        let header = Ipv6::new(scene.bob.v6(), scene.alice.v6(), next);
        let frame = scene.to_alice(IPV6, &header.packet(&payload));
        scene.dropped(what, DropReason::SpoofedIp, &mark, &frame);
    }
    scene.close();
}

/// Router advertisements and redirects are dropped: no pod is a router.
///
/// They come plain, behind headers, and in fragments (RFC 6105, RFC 7113, RFC 6980).
#[test]
fn router_advertisements_and_redirects_are_dropped() {
    let node = testbed::node!();
    for (network, beside) in [("blue", "red"), ("green", "lime")] {
        let scene = Scene::set(&node, network, beside);
        let me = scene.mallory.mac.link_local();
        let all: Ipv6Addr = "ff02::1".parse().expect("an address");
        let all_mac = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
        for (to, to_mac) in [(all, all_mac), (scene.alice.v6(), scene.alice.mac)] {
            let reason = DropReason::RouterAdvertisement;
            let mark = marker();
            let option = testbed::frame::nd_option(253, &mark);
            let packet = testbed::frame::router_advertisement(me, to, &option);
            scene.dropped("an RA", reason, &mark, &scene.to(to_mac, IPV6, &packet));
            let mark = marker();
            let option = testbed::frame::nd_option(253, &mark);
            let target = scene.mallory.v6();
            let packet = testbed::frame::redirect(me, to, target, scene.bob.v6(), &option);
            scene.dropped(
                "a redirect",
                reason,
                &mark,
                &scene.to(to_mac, IPV6, &packet),
            );
            let mark = marker();
            let message = icmp6(me, to, (134, 0), &router_advertisement_body(&mark));
            for (next, chain) in [
                (HOPOPTS, extension(ICMPV6, &[5, 2, 0, 0, 1, 0])),
                (DSTOPTS, extension(ICMPV6, &[1, 4, 0, 0, 0, 0])),
                (FRAGMENT, fragment_header(ICMPV6, 0, false)),
                (FRAGMENT, fragment_header(ICMPV6, 0, true)),
            ] {
                let payload = [chain, message.clone()].concat();
                let packet = Ipv6::new(me, to, next).packet(&payload);
                let frame = scene.to(to_mac, IPV6, &packet);
                scene.dropped("an RA behind a header", reason, &mark, &frame);
            }
        }
        scene.close();
    }
}

/// DHCPv6, as client and as server (RFC 8415).
#[test]
fn dhcpv6_is_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let me = scene.mallory.mac.link_local();
    let servers: Ipv6Addr = "ff02::1:2".parse().expect("an address");
    let servers_mac = MacAddr([0x33, 0x33, 0, 1, 0, 2]);
    for ports in [(546, 547), (547, 546)] {
        for (to, mac) in [(servers, servers_mac), (scene.alice.v6(), scene.alice.mac)] {
            let mark = marker();
            let packet = udp6(me, to, ports, &mark);
            scene.dropped(
                "DHCPv6",
                DropReason::Dhcp,
                &mark,
                &scene.to(mac, IPV6, &packet),
            );
        }
    }
    let mark = marker();
    let udp = [&[0x02, 0x23, 0x02, 0x22, 0, 20, 0, 0], mark.as_slice()].concat();
    let payload = [extension(UDP, &[1, 4, 0, 0, 0, 0]), udp].concat();
    let packet = Ipv6::new(me, scene.alice.v6(), DSTOPTS).packet(&payload);
    let frame = scene.to_alice(IPV6, &packet);
    scene.dropped("DHCPv6 behind options", DropReason::Dhcp, &mark, &frame);
    scene.close();
}
