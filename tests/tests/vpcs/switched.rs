//! Networks of mode L2 in a VPC, whose gateway podnet plays.

use std::net::IpAddr;

use agent_common::addr::GATEWAY_MAC;
use agent_common::drop::DropReason;
use testbed::frame::{Arp, Ipv4, ethernet, icmp_echo, is_arp_reply_for, marker, udp4};
use testbed::{Node, Watch, traffic, wait};

use super::scene::{app, dropped, dropped_at, setup_of, switched, wait_reaches};

#[test]
fn a_segment_of_a_vpc_reaches_its_other_networks_by_the_gateway() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup_of(&["one"], switched));
    let (_a, a) = app(&node, "a", "one-1");
    let (_n, neighbour) = app(&node, "neighbour", "one-1");
    let (_b, b) = app(&node, "b", "one-2");
    traffic::assert_reaches(&a, &neighbour);
    traffic::assert_reaches(&a, &b);
    traffic::assert_reaches(&b, &neighbour);
    let free: IpAddr = "10.66.0.9".parse().expect("an address");
    dropped_at(&node, &a, free, DropReason::NoEndpoint);
    node.assert_audit_finds_nothing("one-1");
    // The gateway is there to be seen.
    let tap = a.tap();
    let gateway: std::net::Ipv4Addr = "10.65.0.1".parse().expect("an address");
    let all = agent_common::addr::MacAddr::BROADCAST;
    let question = Arp::request((a.mac, a.v4()), gateway).frame(all, a.mac, &[]);
    tap.send(&question);
    tap.wait("the gateway's answer", |frame| {
        is_arp_reply_for(frame, gateway)
    });
    let echo = Ipv4::new(a.v4(), gateway, 1).packet(&icmp_echo(&marker()));
    let ping = ethernet(GATEWAY_MAC, a.mac, 0x0800, &echo);
    tap.send(&ping);
    tap.wait("the gateway's answer", |frame| {
        frame.get(34) == Some(&0) && frame.get(26..30) == Some(&gateway.octets()[..])
    });
    // Without the VPC nothing is routed.
    node.remove_manifest("vpc-one.yaml");
    dropped(&node, &a, &b, DropReason::NoEndpoint);
    traffic::assert_reaches(&a, &neighbour);
    proof::of!("DES-08");
}

/// A segment has frames for all and unknown stations; none of them leaves it.
#[test]
fn nothing_but_routed_packets_leaves_a_segment_of_a_vpc() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup_of(&["one"], switched));
    let (_a, mallory) = app(&node, "mallory", "one-1");
    let (_n, alice) = app(&node, "alice", "one-1");
    let (_b, bob) = app(&node, "bob", "one-2");
    wait_reaches(&mallory, &bob);
    let watch = Watch::over(&node, &[&bob]);
    let tap = mallory.tap();
    let reasons = [
        DropReason::NoEndpoint,
        DropReason::SpoofedIp,
        DropReason::SpoofedMac,
    ];
    let drops = || -> u64 {
        let all = node.drops();
        reasons.iter().map(|reason| all.of("one-1", *reason)).sum()
    };
    for (what, to, from, source) in [
        ("to the pod itself", bob.mac, mallory.mac, mallory.v4()),
        (
            "with a neighbour's address",
            GATEWAY_MAC,
            mallory.mac,
            alice.v4(),
        ),
        (
            "with the gateway's MAC address",
            bob.mac,
            GATEWAY_MAC,
            mallory.v4(),
        ),
        ("as the pod itself", GATEWAY_MAC, mallory.mac, bob.v4()),
    ] {
        let mark = marker();
        let packet = udp4(source, bob.v4(), (5000, 9), &mark);
        let frame = ethernet(to, from, 0x0800, &packet);
        let before = drops();
        wait::until_true(what, || {
            tap.send(&frame);
            drops() > before
        });
        watch.assert_unseen(what, &mark);
    }
    let mark = marker();
    let all = agent_common::addr::MacAddr::BROADCAST;
    let packet = udp4(mallory.v4(), bob.v4(), (5000, 9), &mark);
    tap.send(&ethernet(all, mallory.mac, 0x0800, &packet));
    traffic::assert_reaches(&mallory, &alice);
    watch.assert_unseen("a frame for all", &mark);
}
