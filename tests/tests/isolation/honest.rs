//! Test traffic that must work: otherwise isolation is easy.

use std::cell::Cell;

use agent_common::addr::MacAddr;
use testbed::frame::{Arp, ethernet, is_arp_reply_for, marker, udp4, udp6};
use testbed::tap::contains;
use testbed::{Port, Tap, Watch, traffic};

use super::scene::{IP, IPV6, NOBODY, Scene};

/// UDP and TCP, both families, both modes.
#[test]
fn pods_of_one_network_reach_each_other() {
    let node = testbed::node!();
    for (network, beside) in [("blue", "red"), ("green", "lime")] {
        let scene = Scene::set(&node, network, beside);
        traffic::assert_reaches(&scene.bob, &scene.mallory);
        scene.close();
    }
}

/// A large transfer passes as offloaded segments: GSO packets are not "too big".
#[test]
fn tcp_moves_megabytes() {
    let node = testbed::node!();
    for (network, beside) in [("blue", "red"), ("green", "lime")] {
        let scene = Scene::set(&node, network, beside);
        for (_, to) in traffic::pairs(&scene.bob, &scene.alice) {
            let done = traffic::tcp_round_trip(&scene.bob, &scene.alice, to, 8 << 20);
            assert!(done.is_ok(), "{network} {to}: {done:?}");
        }
        scene.close();
    }
}

/// KEP-PN-05: two networks with the same addresses carry their own traffic at once.
#[test]
fn overlapping_networks_work_side_by_side() {
    let node = testbed::node!();
    let pods: Vec<_> = ["a", "b", "c", "d"].map(|name| node.pod(name)).into();
    for (one, two) in [("blue", "red"), ("green", "lime")] {
        let ports: Vec<_> = pods
            .iter()
            .zip([one, one, two, two])
            .map(|(pod, network)| pod.attach(network, "net1"))
            .collect();
        assert_eq!(ports[0].ips, ports[2].ips);
        assert_eq!(ports[1].ips, ports[3].ips);
        let taps: Vec<Tap> = ports.iter().map(Port::tap).collect();
        traffic::assert_reaches(&ports[0], &ports[1]);
        traffic::assert_reaches(&ports[2], &ports[3]);
        let mark = marker();
        let to = (ports[1].v4(), 9).into();
        traffic::shout(&ports[0], ports[0].v4().into(), to, &mark).expect("a datagram");
        taps[1].wait_marker("the datagram", &mark);
        assert_eq!(taps[3].count(&mark), 0, "the other network's twin saw it");
        for (pod, network) in pods.iter().zip([one, one, two, two]) {
            pod.detach(network, "net1");
        }
    }
    node.assert_empty();
    proof::of!("KEP-PN-05");
}

/// Broadcast and multicast reach every member of the network once, and no other.
#[test]
fn broadcast_and_multicast_reach_exactly_the_members() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let outside = Watch::over(&node, &[&scene.other]);
    let (alice, bob) = (scene.alice.tap(), scene.bob.tap());
    let groups = [
        (MacAddr::BROADCAST, "255.255.255.255"),
        (MacAddr::BROADCAST, "10.10.0.255"),
        (MacAddr([0x01, 0, 0x5e, 0, 0, 0xfb]), "224.0.0.251"),
    ];
    for (to, ip) in groups {
        let mark = marker();
        let ip = ip.parse().expect("an address");
        let packet = udp4(scene.mallory.v4(), ip, (5000, 9), &mark);
        reaches_both(&scene, &alice, &bob, &scene.to(to, IP, &packet), &mark);
        outside.assert_unseen("a broadcast", &mark);
    }
    let mark = marker();
    let group = "ff02::fb".parse().expect("an address");
    let packet = udp6(scene.mallory.v6(), group, (5000, 9), &mark);
    let frame = scene.to(MacAddr([0x33, 0x33, 0, 0, 0, 0xfb]), IPV6, &packet);
    reaches_both(&scene, &alice, &bob, &frame, &mark);
    outside.assert_unseen("a multicast", &mark);
    scene.close();
}

fn reaches_both(scene: &Scene<'_>, alice: &Tap, bob: &Tap, frame: &[u8], mark: &[u8]) {
    scene.tap.send(frame);
    // An honest frame to each after it: what is there by then is all there will be.
    let fence = marker();
    for (port, tap) in [(&scene.alice, alice), (&scene.bob, bob)] {
        let packet = udp4(scene.mallory.v4(), port.v4(), (5000, 9), &fence);
        scene
            .tap
            .send(&ethernet(port.mac, scene.mallory.mac, IP, &packet));
        assert_eq!(
            copies_before(tap, mark, &fence),
            1,
            "copies to {}",
            port.container
        );
    }
}

/// How often `mark` arrived before `fence` did.
fn copies_before(tap: &Tap, mark: &[u8], fence: &[u8]) -> usize {
    let copies = Cell::new(0);
    tap.wait("the frame after it", |frame| {
        copies.set(copies.get() + usize::from(contains(frame, mark)));
        contains(frame, fence)
    });
    copies.get()
}

/// The sender does not get its own broadcast back.
#[test]
fn a_broadcast_does_not_return_to_its_sender() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let (own, bob) = (scene.mallory.tap(), scene.bob.tap());
    let mark = marker();
    let all = "255.255.255.255".parse().expect("an address");
    let packet = udp4(scene.mallory.v4(), all, (5000, 9), &mark);
    scene.tap.send(&scene.to(MacAddr::BROADCAST, IP, &packet));
    bob.wait_marker("the broadcast", &mark);
    let answer = marker();
    let packet = udp4(scene.bob.v4(), scene.mallory.v4(), (5000, 9), &answer);
    bob.send(&ethernet(scene.mallory.mac, scene.bob.mac, IP, &packet));
    assert_eq!(copies_before(&own, &mark, &answer), 0, "it came back");
    scene.close();
}

/// The datapath answers ARP for a neighbour, without a question to the neighbour.
#[test]
fn arp_for_a_neighbour_is_answered() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let alice = scene.alice.tap();
    let tap = scene.mallory.tap();
    let mark = marker();
    let arp = Arp::request((scene.mallory.mac, scene.mallory.v4()), scene.alice.v4());
    tap.send(&arp.frame(MacAddr::BROADCAST, scene.mallory.mac, &mark));
    let reply = tap.wait("an ARP reply", |f| is_arp_reply_for(f, scene.alice.v4()));
    assert_eq!(reply.get(22..28), Some(scene.alice.mac.0.as_slice()));
    assert_eq!(reply.get(0..6), Some(scene.mallory.mac.0.as_slice()));
    assert_eq!(alice.count(&mark), 0, "Alice was asked all the same");
    scene.close();
}

/// Packets to the MAC address of an earlier pod reach the holder of the address.
///
/// No other pod has them. Addresses are not announced: a frame to all costs a copy for each port.
#[test]
fn an_address_is_reached_at_the_mac_address_of_a_pod_that_is_gone() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let (alice, bob) = (scene.alice.tap(), scene.bob.tap());
    let outside = Watch::over(&node, &[&scene.other]);
    let (me, to) = (&scene.mallory, &scene.alice);
    for (ether_type, packet) in [
        (IP, udp4(me.v4(), to.v4(), (5000, 9), &marker())),
        (IPV6, udp6(me.v6(), to.v6(), (5000, 9), &marker())),
    ] {
        scene.tap.send(&scene.to(NOBODY, ether_type, &packet));
        let frame = alice.wait("the packet", |frame| contains(frame, &packet));
        assert_eq!(frame.get(0..6), Some(to.mac.0.as_slice()));
        assert_eq!(frame.get(6..12), Some(me.mac.0.as_slice()));
        assert_eq!(bob.count(&packet), 0, "another pod had it");
        outside.assert_unseen("the packet", &packet);
    }
    scene.close();
}

/// A new pod sends nothing to the ports of its network, which may be thousands.
#[test]
fn a_new_pod_is_not_announced_to_its_neighbours() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let alice = scene.alice.tap();
    let pod = node.pod("new");
    let new = pod.attach("blue", "net1");
    // An honest frame after it: what is there by then is all there will be.
    let mark = marker();
    let packet = udp4(scene.bob.v4(), scene.alice.v4(), (5000, 9), &mark);
    let frame = ethernet(scene.alice.mac, scene.bob.mac, IP, &packet);
    scene.bob.tap().send(&frame);
    let announced = Cell::new(false);
    alice.wait("the frame after it", |frame| {
        let is_arp = frame.get(12..14) == Some(&[0x08, 0x06]);
        announced.set(announced.get() || is_arp && frame.get(6..12) == Some(new.mac.0.as_slice()));
        contains(frame, &mark)
    });
    assert!(!announced.get(), "Alice got an ARP frame of the new pod");
    pod.detach("blue", "net1");
    scene.close();
}

/// Any EtherType is carried on an L2 network: it is Ethernet.
#[test]
fn an_l2_network_carries_any_ether_type() {
    let node = testbed::node!();
    let scene = Scene::set(&node, "blue", "red");
    let alice = scene.alice.tap();
    for ether_type in [0x88b5, 0x8847, 0x22f0] {
        let mark = marker();
        scene.tap.send(&scene.to_alice(ether_type, &mark));
        alice.wait_marker("the frame", &mark);
    }
    scene.close();
}

/// Fragments of honest packets pass, in both families.
#[test]
fn honest_fragments_pass() {
    let node = testbed::node!();
    for (network, beside) in [("blue", "red"), ("green", "lime")] {
        let scene = Scene::set(&node, network, beside);
        for (from, to) in traffic::pairs(&scene.bob, &scene.alice) {
            let sender = traffic::udp(&scene.bob, from);
            let receiver = traffic::udp(&scene.alice, to);
            let payload = vec![0x5a; 4000];
            let target = receiver.local_addr().expect("an address");
            sender.send_to(&payload, target).expect("a datagram");
            let mut buffer = vec![0; 8000];
            let length = receiver.recv(&mut buffer).expect("a whole datagram");
            assert_eq!(length, payload.len(), "{network} {from}");
        }
        scene.close();
    }
}
