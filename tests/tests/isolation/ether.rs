//! Below IP: tags, link-control groups, lengths.

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use testbed::frame::{ethernet, marker, tagged, udp4};

use super::scene::{IP, Scene};

/// 802.1Q, 802.1ad and older private tags are dropped.
///
/// They are tried with and without a VLAN number, one and two deep.
#[test]
fn a_vlan_tag_is_dropped() {
    let node = testbed::node!();
    for (network, beside) in [("blue", "red"), ("green", "lime")] {
        let scene = Scene::set(&node, network, beside);
        for tag in [0x8100, 0x88a8, 0x9100, 0x9200, 0x9300] {
            for vlan in [0, 1, 1001, 0xe000 | 1002] {
                let mark = marker();
                let frame = tagged(&scene.honest_to_alice(&mark), tag, vlan);
                scene.dropped("one tag", DropReason::VlanTag, &mark, &frame);
            }
            let mark = marker();
            let inner = tagged(&scene.honest_to_alice(&mark), 0x8100, 5);
            let frame = tagged(&inner, tag, 1001);
            scene.dropped("two tags", DropReason::VlanTag, &mark, &frame);
        }
        scene.close();
    }
}

/// A tag that hides a spoofed address is still a tag.
#[test]
fn a_tagged_broadcast_reaches_nobody() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    for tag in [0x8100, 0x88a8] {
        let mark = marker();
        let all = "255.255.255.255".parse().expect("an address");
        let packet = udp4(scene.mallory.v4(), all, (5000, 9), &mark);
        let frame = scene.to(MacAddr::BROADCAST, IP, &packet);
        scene.dropped("a tag", DropReason::VlanTag, &mark, &tagged(&frame, tag, 1));
    }
    scene.close();
}

/// STP, pause frames, LACP and LLDP are dropped (IEEE 802.1D, table 7-10).
///
/// No bridge forwards them.
#[test]
fn link_control_groups_are_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    for last in [0x00, 0x01, 0x02, 0x03, 0x0e, 0x0f] {
        let to = MacAddr([0x01, 0x80, 0xc2, 0, 0, last]);
        for ether_type in [0x88cc, 0x8809, 0x8808, IP] {
            let mark = marker();
            let frame = scene.to(to, ether_type, &mark);
            scene.dropped("link control", DropReason::LinkControl, &mark, &frame);
        }
    }
    scene.close();
}

/// Frames with a length in place of an EtherType (802.3, LLC) are dropped.
#[test]
fn llc_frames_are_dropped() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    for length in [12, 46, 1500, 0x05ff] {
        let mark = marker();
        let frame = scene.to_alice(length, &mark);
        scene.dropped("LLC", DropReason::EtherType, &mark, &frame);
    }
    scene.close();
}

/// An L3 network carries IP and nothing else.
#[test]
fn other_ether_types_are_dropped_on_l3() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "green", "lime");
    let gateway = agent_common::addr::GATEWAY_MAC;
    for ether_type in [0x88b5, 0x8847, 0x8863, 0x22f0, 0x05dc] {
        for to in [gateway, scene.alice.mac, MacAddr::BROADCAST] {
            let mark = marker();
            let frame = ethernet(to, scene.mallory.mac, ether_type, &mark);
            scene.dropped("no IP", DropReason::EtherType, &mark, &frame);
        }
    }
    scene.close();
}

/// The pod can raise its own MTU; what it then sends is too big for the network.
#[test]
fn huge_frames_are_dropped() {
    let node = testbed::node!();
    for (network, beside) in [("blue", "red"), ("green", "lime")] {
        let scene = Scene::set(&node, network, beside);
        let ifindex = scene
            .mallory
            .link()
            .expect("the interface is there")
            .ifindex;
        let mut netlink = testbed::host::connection(&scene.mallory.netns);
        let change = netdev::LinkChange {
            mtu: Some(60_000),
            ..netdev::LinkChange::default()
        };
        netlink
            .reconfigure(ifindex, &change)
            .expect("its own MTU is the pod's");
        let fits = marker();
        let payload = [fits.as_slice(), &[0; 1460]].concat();
        let alice = scene.alice.tap();
        scene.tap.send(&scene.honest_to_alice(&payload));
        alice.wait_marker("a packet of exactly the MTU", &fits);
        let by_one = marker();
        let payload = [by_one.as_slice(), &[0; 1461]].concat();
        let frame = scene.honest_to_alice(&payload);
        scene.dropped("one byte more", DropReason::TooBig, &by_one, &frame);
        for more in [4000, 50_000] {
            let mark = marker();
            let payload = [mark.as_slice(), &vec![0; more]].concat();
            // The link drops it before the datapath sees it, and on newer kernels says so.
            let taken = scene.tap.try_send(&scene.honest_to_alice(&payload));
            let dropped = matches!(taken, Ok(()) | Err(rustix::io::Errno::NOBUFS));
            assert!(dropped, "the pod's own MTU allows it: {taken:?}");
            scene.ignored("a huge frame", &mark, &scene.honest_to_alice(b"next"));
        }
        scene.close();
    }
}
