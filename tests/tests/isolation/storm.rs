//! Replication is the one thing a pod can make the node do many times over.

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use tests::frame::{marker, udp4};

use super::scene::{IP, Scene};

/// More broadcasts than storm control allows are dropped and counted; unicast is not concerned.
#[test]
fn a_broadcast_storm_is_cut_off() {
    let node = tests::node!();
    let scene = Scene::set(&node, "blue", "red");
    let all = "255.255.255.255".parse().expect("an address");
    let mark = marker();
    let packet = udp4(scene.mallory.v4(), all, (5000, 9), &mark);
    let frame = scene.to(MacAddr::BROADCAST, IP, &packet);
    // However fast this machine is: until the bucket is empty, and then some.
    let mut sent = 0;
    while node.drops().of("blue", DropReason::Storm) == 0 {
        for _ in 0..500 {
            scene.tap.send(&frame);
        }
        sent += 500;
        assert!(sent < 1_000_000, "a million broadcasts passed");
    }
    let dropped = node.drops().of("blue", DropReason::Storm);
    assert!(dropped <= sent, "{dropped} of {sent}");
    scene.close();
}

/// Bob may broadcast while Mallory's bucket is empty.
#[test]
fn a_storm_of_one_port_does_not_silence_another() {
    let node = tests::node!();
    let scene = Scene::set(&node, "blue", "red");
    let all = "255.255.255.255".parse().expect("an address");
    let storm = udp4(scene.mallory.v4(), all, (5000, 9), b"storm");
    let frame = scene.to(MacAddr::BROADCAST, IP, &storm);
    while node.drops().of("blue", DropReason::Storm) == 0 {
        for _ in 0..500 {
            scene.tap.send(&frame);
        }
    }
    let (bob, alice) = (scene.bob.tap(), scene.alice.tap());
    let mark = marker();
    let packet = udp4(scene.bob.v4(), all, (5000, 9), &mark);
    bob.send(&tests::frame::ethernet(
        MacAddr::BROADCAST,
        scene.bob.mac,
        IP,
        &packet,
    ));
    alice.wait_marker("Bob's broadcast", &mark);
    scene.close();
}
