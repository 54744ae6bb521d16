//! Errors that routers tell of come back to the pod.

use agent_common::addr::GATEWAY_MAC;
use netdev::Route;
use testbed::Watch;
use testbed::frame::{Ipv4, Ipv6, ethernet, marker};
use testbed::host::UPLINK;
use testbed::tap::contains;

use super::scene::{BEYOND, NODE, assert_gets_out, attached, call, ip, settle_world, setup};

/// A packet with too few hops is reported by the hop that dropped it.
///
/// That is the gateway, and the node behind it: traceroute needs both.
#[test]
fn a_packet_with_too_few_hops_is_told_of_by_who_has_dropped_it() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (_pod, port) = attached(&node, "a", "amber");
    let tap = port.tap();
    for ttl in [1, 2] {
        let mark = marker();
        let packet = Ipv4 {
            ttl,
            ..Ipv4::new(port.v4(), BEYOND[0].parse().expect("an address"), 17)
        };
        let length = u8::try_from(8 + mark.len()).expect("short");
        let udp = [&[0x13, 0x88, 0x82, 0x9b, 0, length, 0, 0][..], &mark].concat();
        let frame = ethernet(GATEWAY_MAC, port.mac, 0x0800, &packet.packet(&udp));
        tap.send(&frame);
        // ICMP time exceeded (RFC 792), with what was sent in it, as it was sent.
        let answer = tap.wait(&format!("time exceeded of TTL {ttl}"), |frame| {
            frame.get(12..14) == Some(&[8, 0]) && frame.get(34) == Some(&11)
        });
        let inner = answer.get(42..).expect("the packet that was dropped");
        assert_eq!(inner.get(12..16), Some(&port.v4().octets()[..]));
        if ttl == 1 {
            assert_eq!(answer.get(26..30), Some(&[10, 40, 0, 1][..]), "the gateway");
        }
    }
    for hops in [1, 2] {
        let mark = marker();
        let packet = Ipv6 {
            hops,
            ..Ipv6::new(port.v6(), BEYOND[1].parse().expect("an address"), 17)
        };
        let length = u8::try_from(8 + mark.len()).expect("short");
        let udp = [&[0x13, 0x88, 0x82, 0x9b, 0, length, 0, 0][..], &mark].concat();
        let frame = ethernet(GATEWAY_MAC, port.mac, 0x86dd, &packet.packet(&udp));
        tap.send(&frame);
        // ICMPv6 time exceeded (RFC 4443 section 3.3).
        tap.wait(&format!("time exceeded of hop limit {hops}"), |frame| {
            frame.get(12..14) == Some(&[0x86, 0xdd])
                && frame.get(54) == Some(&3)
                && contains(frame, &mark)
        });
    }
}

#[test]
fn a_smaller_path_on_the_way_is_learned_and_large_transfers_go_on() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (_pod, port) = attached(&node, "a", "amber");
    let mut here = testbed::host::connection(node.netns());
    let uplink = here.by_name(UPLINK).expect("a look").expect("the uplink");
    // By a route, not at the link: what comes from the world may be as large as before.
    for (beyond, length) in BEYOND.into_iter().zip([32, 128]) {
        let narrow = Route {
            mtu: Some(1300),
            ..Route::new(ip(beyond), length, None, uplink.ifindex)
        };
        here.add_route(&narrow).expect("a route");
    }
    // The world takes 1500 bytes, and says so: only errors tell of the 1300.
    assert_gets_out(&node, &port);
}

/// A pod whose network is larger than the path.
#[test]
fn a_network_with_larger_packets_than_the_uplink_gets_out() {
    let jumbo = super::scene::amber().mtu(9000);
    let node = testbed::node!(testbed::Setup::empty().network(&jumbo));
    settle_world(&node);
    let (_pod, port) = attached(&node, "a", "amber");
    for (beyond, own) in BEYOND.map(ip).into_iter().zip(NODE.map(ip)) {
        assert_eq!(call(&port.netns, node.host().outside(), beyond, 8080), own);
    }
}

/// A packet that connection tracking cannot parse does not leave.
///
/// It has no address of the node to leave with.
#[test]
fn a_packet_that_cannot_be_translated_does_not_leave() {
    let node = testbed::node!(setup());
    settle_world(&node);
    let (_pod, port) = attached(&node, "a", "amber");
    let watch = Watch::over(&node, &[]);
    let to = BEYOND[0].parse().expect("an address");
    for ttl in [2, 64] {
        let mark = marker();
        // UDP that says to be longer than it is.
        let udp = [&[0x13, 0x88, 0x82, 0x9b, 0, 200, 0, 0][..], &mark].concat();
        let packet = Ipv4 {
            ttl,
            ..Ipv4::new(port.v4(), to, 17)
        };
        let frame = ethernet(GATEWAY_MAC, port.mac, 0x0800, &packet.packet(&udp));
        port.tap().send(&frame);
        // A later conversation on the same way.
        assert_gets_out(&node, &port);
        watch.assert_unseen("the packet", &mark);
    }
}
