//! Pods that forge what other networks of their VPC, or other VPCs, have.

use agent_common::addr::{GATEWAY_MAC, MacAddr};
use agent_common::drop::DropReason;
use testbed::frame::{ethernet, marker, udp4, udp6};
use testbed::{Node, Watch, traffic, wait};

use super::scene::{app, setup, setup_of, switched};

const IP: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// No pod speaks for one of another network, of its own VPC or another.
#[test]
fn addresses_of_other_networks_cannot_be_forged() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup(&["one", "two"]));
    let (_a, alice) = app(&node, "alice", "one-1");
    let (_b, bob) = app(&node, "bob", "one-2");
    let (_m, mallory) = app(&node, "mallory", "one-1");
    let (_o, other) = app(&node, "other", "two-1");
    let (_p, far) = app(&node, "far", "two-2");
    traffic::assert_reaches(&mallory, &bob);
    let watch = Watch::over(&node, &[&alice, &bob, &other, &far]);
    let tap = mallory.tap();
    let attack = |what: &str, frame: Vec<u8>, mark: &[u8], reason: DropReason| {
        let before = node.drops().of("one-1", reason);
        wait::until_true(what, || {
            tap.send(&frame);
            node.drops().of("one-1", reason) > before
        });
        watch.assert_unseen(what, mark);
    };
    for (what, source) in [
        ("a member of another network", &bob),
        ("a neighbour", &alice),
    ] {
        for (target, to) in [("bob", &bob), ("alice", &alice)] {
            let what = format!("{what} to {target}");
            let mark = marker();
            let packet = udp4(source.v4(), to.v4(), (5000, 9), &mark);
            let frame = ethernet(GATEWAY_MAC, mallory.mac, IP, &packet);
            attack(&what, frame, &mark, DropReason::SpoofedIp);
            let mark = marker();
            let packet = udp6(source.v6(), to.v6(), (5000, 9), &mark);
            let frame = ethernet(GATEWAY_MAC, mallory.mac, IPV6, &packet);
            attack(&what, frame, &mark, DropReason::SpoofedIp);
        }
    }
    // Straight to the MAC address of a pod of another network, past the gateway.
    for to in [&bob, &other, &far] {
        let mark = marker();
        let packet = udp4(mallory.v4(), to.v4(), (5000, 9), &mark);
        let frame = ethernet(to.mac, mallory.mac, IP, &packet);
        attack("past the gateway", frame, &mark, DropReason::NoEndpoint);
    }
    traffic::assert_reaches(&mallory, &bob);
    traffic::assert_reaches(&other, &far);
}

/// Frames that each attacker sends, unless `PODNET_FRAMES` says another number.
const FRAMES: u32 = 10_000;

/// Many frames of all kinds reach no pod of another VPC.
#[test]
fn frames_of_all_kinds_reach_no_pod_of_another_vpc() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup_of(&["one", "two", "three"], switched));
    let (_m, mallory) = app(&node, "mallory", "one-1");
    let (_e, eve) = app(&node, "eve", "one-2");
    let others: Vec<_> = ["two-1", "two-2", "three-1", "three-2"]
        .map(|network| app(&node, network, network))
        .into_iter()
        .collect();
    let ports: Vec<_> = others.iter().map(|(_, port)| port).collect();
    let watch = Watch::over(&node, &ports);
    let mark = marker();
    let hosts: Vec<std::net::Ipv4Addr> = [&mallory, &eve]
        .into_iter()
        .chain(ports.iter().copied())
        .map(testbed::Port::v4)
        .collect();
    let count = std::env::var("PODNET_FRAMES").map_or(FRAMES, |it| it.parse().expect("a number"));
    for (attacker, accomplice) in [(&mallory, &eve), (&eve, &mallory)] {
        let tap = attacker.tap();
        // Addresses of all networks there are, in the order of a counter, so that a failure comes again.
        let mut state = 0x9e37_79b9_u32;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state
        };
        let mut sent = 0;
        while sent < count {
            let random = next();
            let pick = |shift: u32| hosts[(random >> shift) as usize % hosts.len()];
            let to = match random % 4 {
                0 => GATEWAY_MAC,
                1 => ports[(random >> 8) as usize % ports.len()].mac,
                2 => accomplice.mac,
                _ => MacAddr::BROADCAST,
            };
            let source = if random % 5 == 0 {
                attacker.v4()
            } else {
                pick(4)
            };
            let packet = udp4(source, pick(12), (random.to_be_bytes()[0].into(), 9), &mark);
            // One that finds the queue of the link full is not sent.
            sent += u32::from(
                tap.try_send(&ethernet(to, attacker.mac, IP, &packet))
                    .is_ok(),
            );
        }
        println!("{sent} frames sent from {}", attacker.network);
        watch.assert_unseen("frames of another VPC", &mark);
    }
    for (from, to) in [(&mallory, &eve), (ports[0], ports[1]), (ports[2], ports[3])] {
        traffic::assert_reaches(from, to);
    }
}
