//! Test ARP, by which an attacker could claim addresses (RFC 826, RFC 5227).

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use testbed::frame::{Arp, marker};

use super::scene::{NOBODY, Scene};

/// Replies and requests that speak for somebody else.
#[test]
fn a_spoofed_arp_sender_is_dropped() {
    let node = testbed::node!();
    for (network, beside) in [("blue", "red"), ("green", "lime")] {
        let scene = Scene::set(&node, network, beside);
        let (me, bob, alice) = (&scene.mallory, &scene.bob, &scene.alice);
        let lie = |operation, sender, target| Arp {
            operation,
            sender,
            target,
        };
        let nobody = (MacAddr([0; 6]), alice.v4());
        let table = [
            (
                "Bob's address at my MAC",
                lie(2, (me.mac, bob.v4()), (alice.mac, alice.v4())),
            ),
            (
                "Bob at his MAC",
                lie(2, (bob.mac, bob.v4()), (alice.mac, alice.v4())),
            ),
            (
                "my address at nobody's MAC",
                lie(2, (NOBODY, me.v4()), (alice.mac, alice.v4())),
            ),
            ("a request as Bob", lie(1, (me.mac, bob.v4()), nobody)),
            (
                "a request from another MAC",
                lie(1, (NOBODY, me.v4()), nobody),
            ),
            (
                "an announcement of Bob's",
                lie(1, (me.mac, bob.v4()), (MacAddr([0; 6]), bob.v4())),
            ),
            (
                "an answer to nobody's question",
                lie(2, (me.mac, bob.v4()), (MacAddr::BROADCAST, bob.v4())),
            ),
        ];
        for (what, arp) in table {
            for to in [alice.mac, MacAddr::BROADCAST] {
                let mark = marker();
                let frame = arp.frame(to, me.mac, &mark);
                scene.dropped(what, DropReason::SpoofedArp, &mark, &frame);
            }
        }
        scene.close();
    }
}

/// Operations and formats without a use.
#[test]
fn malformed_arp_is_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let me = (scene.mallory.mac, scene.mallory.v4());
    for operation in [0, 3, 4, 8, 9, 0x101] {
        let mark = marker();
        let arp = Arp {
            operation,
            sender: me,
            target: (scene.alice.mac, scene.alice.v4()),
        };
        let frame = arp.frame(scene.alice.mac, scene.mallory.mac, &mark);
        scene.dropped("a strange operation", DropReason::Malformed, &mark, &frame);
    }
    for (offset, byte) in [(14, 0xff), (15, 6), (16, 0x86), (18, 8), (19, 16)] {
        let mark = marker();
        let mut frame =
            Arp::request(me, scene.alice.v4()).frame(MacAddr::BROADCAST, scene.mallory.mac, &mark);
        frame[offset] = byte;
        scene.dropped("a strange format", DropReason::Malformed, &mark, &frame);
    }
    scene.close();
}

/// An ARP packet that ends early.
#[test]
fn truncated_arp_is_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let me = (scene.mallory.mac, scene.mallory.v4());
    let mark = marker();
    let mut frame = Arp::request(me, scene.alice.v4()).frame(scene.alice.mac, me.0, &[]);
    frame.truncate(14 + 12);
    frame[14..26].copy_from_slice(&mark);
    scene.dropped("a truncated ARP", DropReason::Truncated, &mark, &frame);
    scene.close();
}

/// Questions about free addresses are not flooded.
#[test]
fn arp_for_an_unknown_address_is_not_flooded() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let me = (scene.mallory.mac, scene.mallory.v4());
    for target in ["10.10.0.222", "192.0.2.1", "127.0.0.1"] {
        let mark = marker();
        let target = target.parse().expect("an address");
        let frame = Arp::request(me, target).frame(MacAddr::BROADCAST, me.0, &mark);
        scene.dropped("an unknown target", DropReason::NoEndpoint, &mark, &frame);
    }
    scene.close();
}

/// The datapath answers a probe for a neighbour's address, to its sender only.
///
/// Conflicts are noticed without a question to a pod (RFC 5227).
#[test]
fn an_arp_probe_for_a_neighbours_address_is_answered() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let tap = scene.mallory.tap();
    let none = "0.0.0.0".parse().expect("an address");
    let probe = Arp::request((scene.mallory.mac, none), scene.alice.v4());
    let mark = marker();
    let frame = probe.frame(MacAddr::BROADCAST, scene.mallory.mac, &mark);
    scene.ignored("a probe", &mark, &frame);
    let reply = tap.wait("the answer", |frame| {
        testbed::frame::is_arp_reply_for(frame, scene.alice.v4())
    });
    assert_eq!(reply.get(22..28), Some(scene.alice.mac.0.as_slice()));
    scene.close();
}
