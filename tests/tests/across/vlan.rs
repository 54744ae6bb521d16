//! Networks that are a VLAN of the world outside.

use std::net::{IpAddr, SocketAddr};

use agent_common::addr::{GATEWAY_MAC, MacAddr};
use agent_common::drop::DropReason;
use testbed::frame::{Arp, ethernet, marker, neighbour_advertisement, tagged, udp4};
use testbed::host::{UPLINK, connection};
use testbed::netlink::make_vlan;
use testbed::tap::contains;
use testbed::{Network, Port, Tap, traffic, wait};

use super::scene::{assert_meet, assert_restarts_lose_nothing, introduce};
use super::segment::{Judge, Segment, as_port, assert_carries, assert_untouched, give, l2, l3};

const IP: u16 = 0x0800;
const TAG: u16 = 0x8100;
/// A frame with this word in it.
type Lie<'a> = Box<dyn Fn(&[u8]) -> Vec<u8> + 'a>;
/// VLAN of the network `blue`; `red` has the next one, and the same subnets.
const BLUE: u16 = 100;
const RED: u16 = 101;
const NOBODY: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x66]);

fn networks(number: u8) -> Vec<Network> {
    vec![
        l2("blue", 10, number).id(2001).vlan(BLUE),
        l2("red", 10, number).id(2002).vlan(RED),
        l3("green", 20, number).id(2003).vlan(200),
    ]
}

/// The same on a node of somebody else, who numbers networks otherwise.
fn others(number: u8) -> Vec<Network> {
    vec![l2("theirs", 10, number).id(77).vlan(BLUE)]
}

fn spread<'a>(all: &'a Segment, network: &str) -> Vec<(testbed::Pod<'a>, Port)> {
    let attach = |node: &'a testbed::Node| {
        let pod = node.pod(&format!("{network}-{}", node.name()));
        let port = pod.attach(network, "net1");
        (pod, port)
    };
    all.nodes.iter().map(attach).collect()
}

fn detach(pods: &[(testbed::Pod<'_>, Port)]) {
    for (pod, port) in pods {
        pod.detach(&port.network, "net1");
    }
}

#[test]
fn three_nodes_on_a_vlan_are_one_network_kep_p1_13() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(3, networks);
    for network in ["blue", "green"] {
        let pods = spread(&all, network);
        for (index, (_, a)) in pods.iter().enumerate() {
            assert_eq!(a.link().expect("a link").mtu, 1500);
            for (_, b) in &pods[index + 1..] {
                assert_meet(a, b);
            }
        }
        detach(&pods);
        for node in &all.nodes {
            assert_untouched(node);
        }
    }
    for node in &all.nodes {
        node.assert_empty();
    }
    proof::of!("KEP-P1-13");
}

#[test]
fn large_transfers_pass_a_vlan_whole() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(2, networks);
    for network in ["blue", "green"] {
        let pods = spread(&all, network);
        introduce(&pods[0].1, &pods[1].1);
        assert_carries(&pods[0].1, &pods[1].1);
        detach(&pods);
    }
}

/// Nodes that podnet knows nothing of have pods on the same VLAN.
#[test]
fn whom_podnet_does_not_know_is_reached_on_the_vlan() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(1, networks);
    let there = all.start_stranger(2, others);
    let (here, far) = (all.nodes[0].pod("a"), there.pod("b"));
    let (a, b) = (here.attach("blue", "net1"), far.attach("theirs", "net1"));
    assert_meet(&a, &b);
    assert_carries(&a, &b);
    let red = all.nodes[0].pod("red");
    let red = red.attach("red", "net1");
    let unseen = red.tap();
    let word = marker();
    let to = SocketAddr::new([10, 10, 0, 255].into(), 9);
    let seen = a.tap();
    traffic::shout(&b, b.v4().into(), to, &word).expect("sent");
    seen.wait_marker("what is for all of the VLAN", &word);
    assert_eq!(unseen.count(&word), 0, "another VLAN");
}

/// A host's interface and a node's interface of the same VLAN work as before.
#[test]
fn hosts_and_nodes_with_interfaces_of_the_vlan_go_on_as_ever() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(1, networks);
    let node = &all.nodes[0];
    let (host, uplink) = all.stranger(9);
    if !make_vlan(&host, uplink, "vlan", BLUE) {
        testbed::skip::skip(testbed::test_name!(), "needs 8021q");
        return;
    }
    let index = |netns, name: &str| {
        let link = connection(netns).by_name(name).expect("links");
        link.expect("the interface").ifindex
    };
    let ips: [(IpAddr, u8); 2] = [
        ([10, 10, 0, 9].into(), 24),
        ("fd10:10::9".parse().expect("an address"), 64),
    ];
    give(&host, index(&host, "vlan"), &ips);
    let host = as_port(&host, "vlan", &ips);
    let own = node.netns();
    let ips: [(IpAddr, u8); 2] = [
        ([10, 10, 0, 8].into(), 24),
        ("fd10:10::8".parse().expect("an address"), 64),
    ];
    assert!(make_vlan(own, index(own, UPLINK), "vlan", BLUE));
    give(own, index(own, "vlan"), &ips);
    let own = as_port(own, "vlan", &ips);
    traffic::assert_reaches(&host, &own);
    let pod = node.pod("a");
    let a = pod.attach("blue", "net1");
    assert_meet(&a, &host);
    assert_carries(&a, &host);
    // The node's own interface has lost nothing, broadcasts included.
    traffic::assert_reaches(&host, &own);
    traffic::assert_reaches(&own, &host);
    let (at_pod, at_node) = (a.tap(), own.tap());
    let word = marker();
    let to = SocketAddr::new([10, 10, 0, 255].into(), 9);
    traffic::shout(&host, host.v4().into(), to, &word).expect("sent");
    at_pod.wait_marker("a copy for the pod", &word);
    at_node.wait_marker("the node's own", &word);
    pod.detach("blue", "net1");
    traffic::assert_reaches(&host, &own);
    let vlan = index(&own.netns, "vlan");
    connection(&own.netns).delete(vlan).expect("removed");
}

/// Broadcast reaches each member of a VLAN once on all nodes, and the node's stack.
#[test]
fn what_is_for_all_is_on_the_vlan_once() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(2, networks);
    let pods = spread(&all, "blue");
    let beside = all.nodes[1].pod("beside");
    let neighbour = beside.attach("blue", "net1");
    let (a, b) = (&pods[0].1, &pods[1].1);
    introduce(a, b);
    introduce(a, &neighbour);
    let stack = Tap::stack(all.nodes[1].netns(), IP);
    let taps = [b.tap(), neighbour.tap(), stack, all.tap(1)];
    let own = a.tap();
    let to = SocketAddr::new([10, 10, 0, 255].into(), 9);
    let word = testbed::tap::assert_each_gets_one(&taps, |payload| {
        traffic::shout(a, a.v4().into(), to, payload).expect("sent");
    });
    assert_eq!(own.count(&word), 0, "its own came back");
    beside.detach("blue", "net1");
    detach(&pods);
}

/// Frames of a host outside, who puts into them what he likes.
#[test]
fn a_wire_that_lies_reaches_no_pod() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(1, networks);
    let node = &all.nodes[0];
    let pods = [node.pod("a"), node.pod("b")];
    let [a, b] = [0, 1].map(|index| pods[index].attach("blue", "net1"));
    let wire = all.tap(1);
    let taps = [a.tap(), b.tap()];
    let unseen: Vec<&Tap> = taps.iter().collect();
    let stranger = [10, 10, 0, 9].into();
    // An honest one arrives, without its tag.
    let word = marker();
    let honest = |word: &[u8]| ethernet(b.mac, NOBODY, IP, &udp4(stranger, b.v4(), (9, 9), word));
    wire.send(&tagged(&honest(&word), TAG, BLUE));
    let seen = taps[1].wait_marker("an honest frame", &word);
    assert_eq!(seen[..14], honest(&word)[..14]);
    let all_of_it = MacAddr::BROADCAST;
    let lies: Vec<(&str, DropReason, Lie<'_>)> = vec![
        (
            "from a pod of this node",
            DropReason::SpoofedMac,
            Box::new(|word| ethernet(b.mac, a.mac, IP, &udp4(stranger, b.v4(), (9, 9), word))),
        ),
        (
            "from a pod of this node, for all",
            DropReason::SpoofedMac,
            Box::new(|word| ethernet(all_of_it, a.mac, IP, &udp4(stranger, b.v4(), (9, 9), word))),
        ),
        (
            "from the virtual gateway",
            DropReason::SpoofedMac,
            Box::new(|word| {
                ethernet(
                    b.mac,
                    GATEWAY_MAC,
                    IP,
                    &udp4(stranger, b.v4(), (9, 9), word),
                )
            }),
        ),
        (
            "from a pod's address",
            DropReason::SpoofedIp,
            Box::new(|word| ethernet(b.mac, NOBODY, IP, &udp4(a.v4(), b.v4(), (9, 9), word))),
        ),
        (
            "an ARP answer for a pod",
            DropReason::SpoofedArp,
            Box::new(|word| {
                let lie = Arp {
                    operation: 2,
                    sender: (NOBODY, a.v4()),
                    target: (b.mac, b.v4()),
                };
                lie.frame(b.mac, NOBODY, word)
            }),
        ),
        (
            "an ARP announcement of a pod's address",
            DropReason::SpoofedArp,
            Box::new(|word| Arp::request((NOBODY, a.v4()), a.v4()).frame(all_of_it, NOBODY, word)),
        ),
        (
            "a tag in the tag",
            DropReason::VlanTag,
            Box::new(|word| tagged(&honest(word), TAG, RED)),
        ),
    ];
    for (what, reason, lie) in lies {
        eprintln!("{what}");
        let word = marker();
        let judge = Judge::new(node, "blue", reason);
        wire.send(&tagged(&lie(&word), TAG, BLUE));
        judge.assert_dropped(&unseen, &word);
    }
    let judge = Judge::new(node, "blue", DropReason::SpoofedNd);
    let host = "fd10:10::9".parse().expect("an address");
    let word = marker();
    let lie = neighbour_advertisement(host, b.v6(), a.v6(), NOBODY, &word);
    wire.send(&tagged(&ethernet(b.mac, NOBODY, 0x86dd, &lie), TAG, BLUE));
    judge.assert_dropped(&unseen, &word);
    for pod in &pods {
        pod.detach("blue", "net1");
    }
}

/// Frames of other VLANs and without a tag reach no pod, and stay the node's.
#[test]
fn other_vlans_are_seen_by_no_pod_and_stay_the_nodes() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(1, networks);
    let node = &all.nodes[0];
    let pods = [node.pod("a"), node.pod("r")];
    let a = pods[0].attach("blue", "net1");
    let r = pods[1].attach("red", "net1");
    let (at_a, at_r) = (a.tap(), r.tap());
    let stack = Tap::stack(node.netns(), IP);
    let wire = all.tap(1);
    let stranger = [10, 10, 0, 9].into();
    let of = |to, word: &[u8]| ethernet(to, NOBODY, IP, &udp4(stranger, a.v4(), (9, 9), word));
    for to in [a.mac, MacAddr::BROADCAST] {
        let (other, plain, service, last) = (marker(), marker(), marker(), marker());
        wire.send(&tagged(&of(to, &other), TAG, 102));
        wire.send(&of(to, &plain));
        // A provider's tag of that number is another tag.
        wire.send(&tagged(&of(to, &service), 0x88a8, BLUE));
        wire.send(&tagged(&of(to, &last), TAG, BLUE));
        at_a.wait("the frame of its VLAN", |frame| {
            for word in [&other, &plain, &service] {
                assert!(!contains(frame, word), "{frame:?}");
            }
            contains(frame, &last)
        });
        for word in [&other, &plain, &service, &last] {
            assert_eq!(at_r.count(word), 0);
        }
        stack.wait_marker("what has no tag at the node", &plain);
    }
    for (pod, network) in pods.iter().zip(["blue", "red"]) {
        pod.detach(network, "net1");
    }
}

/// VLAN hopping: what a pod tags itself does not leave it.
#[test]
fn a_pod_reaches_no_vlan_by_tags_of_its_own() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(2, networks);
    let pods = spread(&all, "blue");
    let (a, b) = (&pods[0].1, &pods[1].1);
    introduce(a, b);
    let red = all.nodes[1].pod("red");
    let red = red.attach("red", "net1");
    let taps = [b.tap(), red.tap(), all.tap(1)];
    let unseen: Vec<&Tap> = taps.iter().collect();
    let own = a.tap();
    for to in [b.mac, red.mac, MacAddr::BROADCAST, NOBODY] {
        for kind in [TAG, 0x88a8, 0x9100] {
            for id in [RED, BLUE, 0] {
                let word = marker();
                let frame = ethernet(to, a.mac, IP, &udp4(a.v4(), b.v4(), (9, 9), &word));
                let twice = tagged(&tagged(&frame, TAG, RED), kind, id);
                for frame in [tagged(&frame, kind, id), twice] {
                    let judge = Judge::new(&all.nodes[0], "blue", DropReason::VlanTag);
                    own.send(&frame);
                    judge.assert_dropped(&unseen, &word);
                }
            }
        }
    }
}

/// Packets of a routed network are on the wire with the pods' own MAC addresses.
///
/// Only the pods have these.
#[test]
fn a_routed_network_has_the_pods_own_mac_addresses_on_the_wire() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(2, networks);
    let pods = spread(&all, "green");
    let (a, b) = (&pods[0].1, &pods[1].1);
    introduce(a, b);
    let (wire, seen) = (all.tap(1), b.tap());
    let word = marker();
    traffic::shout(a, a.v4().into(), SocketAddr::new(b.v4().into(), 9), &word).expect("sent");
    let frame = wire.wait_marker("the packet on the wire", &word);
    assert_eq!(frame[..12], [b.mac.0, a.mac.0].concat());
    assert_eq!(frame[22], 63, "a hop less");
    let frame = seen.wait_marker("the packet in the pod", &word);
    assert_eq!(frame[..12], [b.mac.0, GATEWAY_MAC.0].concat());
    assert_eq!(frame[22], 63, "one hop only");
    let there = &all.nodes[1];
    let wire = all.tap(2);
    let lies = [
        (NOBODY, a.v4(), DropReason::SpoofedMac),
        (a.mac, [10, 20, 0, 250].into(), DropReason::SpoofedIp),
        (a.mac, b.v4(), DropReason::SpoofedIp),
    ];
    for (from, source, reason) in lies {
        let word = marker();
        let judge = Judge::new(there, "green", reason);
        let packet = udp4(source, b.v4(), (9, 9), &word);
        wire.send(&tagged(&ethernet(b.mac, from, IP, &packet), TAG, 200));
        judge.assert_dropped(&[&seen], &word);
    }
    detach(&pods);
}

#[test]
fn restarts_under_traffic_on_a_vlan_lose_nothing() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(2, networks);
    for network in ["blue", "green"] {
        let pods = spread(&all, network);
        let (a, b) = (&pods[0].1, &pods[1].1);
        introduce(a, b);
        assert_restarts_lose_nothing(&all.nodes, a, b);
        detach(&pods);
    }
}

/// An interface that goes away and comes back is another one to the kernel.
#[test]
fn an_uplink_that_comes_back_is_found_again() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(2, networks);
    for network in ["blue", "green"] {
        let pods = spread(&all, network);
        let (a, b) = (&pods[0].1, &pods[1].1);
        introduce(a, b);
        let netns = all.nodes[0].netns();
        let mut there = connection(netns);
        let old = there.by_name(UPLINK).expect("links").expect("the uplink");
        there.delete(old.ifindex).expect("removed");
        wait::until_true("packets to be dropped for want of an uplink", || {
            let before = all.nodes[0].drops().of(network, DropReason::NoUplink);
            let to = SocketAddr::new(b.v4().into(), 9);
            let _ = traffic::shout(a, a.v4().into(), to, b"lost");
            all.nodes[0].drops().of(network, DropReason::NoUplink) > before
        });
        let new = all.fabric.connect(netns, 1);
        assert_ne!(old.ifindex, new);
        assert_meet(a, b);
        let link = there.by_name(UPLINK).expect("links").expect("the uplink");
        assert!(link.promiscuous, "or it would sort by its own MAC address");
        detach(&pods);
    }
    assert_untouched(&all.nodes[0]);
}
