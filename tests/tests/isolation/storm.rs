//! Replication is the one thing a pod can make the node do many times over.

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use testbed::Node;
use testbed::frame::{marker, udp4};

use super::scene::{IP, Scene};

/// Sends a frame until the bucket is empty; returns how many were sent.
///
/// Many go between two looks, however fast this machine is, because the bucket fills while the node is
/// asked.
fn storm(node: &Node, scene: &Scene<'_>, frame: &[u8]) -> u64 {
    let mut sent = 0;
    while node.drops().of("blue", DropReason::Storm) == 0 {
        for _ in 0..5000 {
            scene.tap.send(frame);
        }
        sent += 5000;
        assert!(sent < 1_000_000, "a million broadcasts passed");
    }
    sent
}

/// Storm control drops and counts broadcasts above its limit; unicast passes.
#[test]
fn a_broadcast_storm_is_cut_off() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let all = "255.255.255.255".parse().expect("an address");
    let mark = marker();
    let packet = udp4(scene.mallory.v4(), all, (5000, 9), &mark);
    let frame = scene.to(MacAddr::BROADCAST, IP, &packet);
    let sent = storm(&node, &scene, &frame);
    let dropped = node.drops().of("blue", DropReason::Storm);
    assert!(dropped <= sent, "{dropped} of {sent}");
    scene.close();
}

/// Bob may broadcast while Mallory's bucket is empty.
#[test]
fn a_storm_of_one_port_does_not_silence_another() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let all = "255.255.255.255".parse().expect("an address");
    let packet = udp4(scene.mallory.v4(), all, (5000, 9), b"storm");
    let frame = scene.to(MacAddr::BROADCAST, IP, &packet);
    storm(&node, &scene, &frame);
    let (bob, alice) = (scene.bob.tap(), scene.alice.tap());
    let mark = marker();
    let packet = udp4(scene.bob.v4(), all, (5000, 9), &mark);
    bob.send(&testbed::frame::ethernet(
        MacAddr::BROADCAST,
        scene.bob.mac,
        IP,
        &packet,
    ));
    alice.wait_marker("Bob's broadcast", &mark);
    scene.close();
}
