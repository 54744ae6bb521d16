//! Test spoofing by a client's memory: the network gets a pod's own packets only.

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use testbed::{MemifApp, frame, wait};

use crate::{conf, setup};

#[test]
fn what_a_memif_client_forges_reaches_neither_memif_nor_kernel_ports() {
    let node = testbed::node!(setup());
    let pods = ["evil", "fast", "plain"].map(|name| node.pod(name));
    let evil = pods[0].attach_conf(&conf(&node, "blue"), "net1");
    let fast = pods[1].attach_conf(&conf(&node, "blue"), "net1");
    let plain = pods[2].attach("blue", "net1");
    let _apps = [MemifApp::start(&evil), MemifApp::start(&fast)];
    testbed::traffic::assert_reaches(&evil, &fast);
    let sees = [fast.tap(), plain.tap()];
    // Raw frames of the pod go as they are to its TAP device, and from there into the ring.
    let raw = evil.tap();
    let marker = frame::marker();
    let datagram = |from| frame::udp4(from, fast.v4(), (7, 4242), &marker);
    for victim in [&fast, &plain] {
        let forged = [
            frame::ethernet(victim.mac, plain.mac, 0x0800, &datagram(evil.v4())),
            frame::ethernet(victim.mac, evil.mac, 0x0800, &datagram(plain.v4())),
            frame::tagged(
                &frame::ethernet(victim.mac, evil.mac, 0x0800, &datagram(evil.v4())),
                0x8100,
                7,
            ),
        ];
        for forged in &forged {
            raw.send(forged);
        }
    }
    raw.send(&frame::ethernet(
        MacAddr::BROADCAST,
        plain.mac,
        0x88b5,
        &marker,
    ));
    let reasons = [
        (DropReason::SpoofedMac, 3),
        (DropReason::SpoofedIp, 2),
        (DropReason::VlanTag, 2),
    ];
    wait::until_true("the forged frames to be counted", || {
        let drops = node.drops();
        reasons
            .iter()
            .all(|(reason, count)| drops.of("blue", *reason) >= *count)
    });
    for tap in &sees {
        assert_eq!(tap.count(&marker), 0, "a forged frame arrived");
    }
    // And what it may send does arrive.
    raw.send(&frame::ethernet(
        fast.mac,
        evil.mac,
        0x0800,
        &datagram(evil.v4()),
    ));
    sees[0].wait_marker("an honest frame", &marker);
}
