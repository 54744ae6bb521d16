//! Networks whose pods tag their frames themselves.

use std::net::IpAddr;

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use serde_json::json;
use testbed::frame::{Marker, ethernet, marker, tagged, udp4};
use testbed::host::{UPLINK, connection};
use testbed::netlink::make_vlan;
use testbed::{Network, Port, Tap, limit, wait};

use super::scene::assert_meet;
use super::segment::{Judge, Segment, as_port, assert_carries, assert_untouched, give, l2};

const IP: u16 = 0x0800;
const TAG: u16 = 0x8100;
/// A frame with this word in it.
type Lie<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;
type Copied = fn(&[u8]) -> Vec<u8>;
/// Bits a second, and bits.
const RATE: u64 = 50_000_000;
const BURST: u64 = 1_000_000;
const FAST: u64 = 1_000_000_000;
/// Padding that makes the packet of a marker as long as the MTU.
const FULL: usize = 1500 - 28 - size_of::<Marker>();
const NOBODY: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x66]);

fn networks(_: u8) -> Vec<Network> {
    vec![
        Network::l2("trunk", &[]).id(2001).trunk("100,200-210"),
        l2("white", 10, 1).id(2002).vlan(150),
    ]
}

/// Nodes that podnet here knows nothing of have single VLANs of it.
fn others(number: u8) -> Vec<Network> {
    vec![
        l2("hundred", 10, number).id(71).vlan(100),
        l2("last", 10, number).id(72).vlan(210),
        l2("beyond", 10, number).id(73).vlan(211),
    ]
}

fn frame(to: MacAddr, from: MacAddr, word: &[u8]) -> Vec<u8> {
    let (a, b) = ([10, 10, 0, 7].into(), [10, 10, 0, 8].into());
    ethernet(to, from, IP, &udp4(a, b, (9, 9), word))
}

#[test]
fn a_trunk_has_exactly_its_vlans_with_their_tags() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(2, networks);
    let there = all.start_stranger(3, others);
    let pods = [all.nodes[0].pod("a"), all.nodes[1].pod("b")];
    let [a, b] = [0, 1].map(|index| pods[index].attach("trunk", "net1"));
    let far = ["hundred", "last", "beyond"].map(|network| {
        let pod = there.pod(network);
        let port = pod.attach(network, "net1");
        (pod, port)
    });
    let (at_a, at_b) = (a.tap(), b.tap());
    let taps: Vec<Tap> = far.iter().map(|(_, port)| port.tap()).collect();
    // Out: who has the VLAN gets it, and the other pod of the trunk.
    for (id, place) in [(100, 0), (210, 1)] {
        for to in [far[place].1.mac, MacAddr::BROADCAST] {
            let word = marker();
            at_a.send(&tagged(&frame(to, a.mac, &word), TAG, id));
            taps[place].wait_marker("a frame of its VLAN", &word);
            for (other, tap) in taps.iter().enumerate() {
                assert!(
                    other == place || tap.count(&word) == 0,
                    "VLAN {id} at {other}"
                );
            }
            if to.is_group() {
                at_b.wait_marker("a frame for all of the trunk", &word);
            }
        }
        let word = marker();
        at_a.send(&tagged(&frame(b.mac, a.mac, &word), TAG, id));
        at_b.wait_marker("a frame from pod to pod", &word);
    }
    // In: as well, and nothing else.
    for (index, (_, from)) in far.iter().enumerate() {
        let word = marker();
        let packet = udp4(from.v4(), [10, 10, 0, 8].into(), (9, 9), &word);
        taps[index].send(&ethernet(a.mac, from.mac, IP, &packet));
        if index < 2 {
            at_a.wait_marker("a frame from the VLAN", &word);
        } else {
            let last = marker();
            let packet = udp4(far[0].1.v4(), [10, 10, 0, 8].into(), (9, 9), &last);
            taps[0].send(&ethernet(a.mac, far[0].1.mac, IP, &packet));
            at_a.wait("a later frame", |frame| {
                assert!(
                    !testbed::tap::contains(frame, &word),
                    "a VLAN beyond the trunk"
                );
                testbed::tap::contains(frame, &last)
            });
        }
    }
    // What a pod has no right to.
    let wire = all.tap(1);
    let unseen: Vec<&Tap> = taps.iter().chain([&wire, &at_b]).collect();
    for tap in &unseen {
        tap.drain();
    }
    for to in [far[0].1.mac, b.mac, MacAddr::BROADCAST, NOBODY] {
        let of = |word: &[u8]| frame(to, a.mac, word);
        let wrong: [(Lie<'_>, DropReason); 6] = [
            (&|word| of(word), DropReason::VlanId),
            (&|word| tagged(&of(word), TAG, 0), DropReason::VlanId),
            (&|word| tagged(&of(word), TAG, 211), DropReason::VlanId),
            (&|word| tagged(&of(word), TAG, 150), DropReason::VlanId),
            (&|word| tagged(&of(word), 0x88a8, 100), DropReason::VlanId),
            (
                &|word| tagged(&tagged(&of(word), TAG, 150), TAG, 100),
                DropReason::VlanTag,
            ),
        ];
        for (lie, reason) in wrong {
            let word = marker();
            let judge = Judge::new(&all.nodes[0], "trunk", reason);
            at_a.send(&lie(&word));
            judge.assert_dropped(&unseen, &word);
        }
        let word = marker();
        let judge = Judge::new(&all.nodes[0], "trunk", DropReason::SpoofedMac);
        at_a.send(&tagged(&frame(to, NOBODY, &word), TAG, 100));
        judge.assert_dropped(&unseen, &word);
    }
    for pod in &pods {
        pod.detach("trunk", "net1");
    }
    for node in &all.nodes {
        assert_untouched(node);
        node.assert_empty();
    }
}

/// Through the queues of both directions, frames as long as the MTU too.
#[test]
fn a_trunk_with_rates_has_its_vlans_and_no_others() {
    if testbed::skip::without_root(testbed::test_name!())
        || testbed::skip::without_shaping(testbed::test_name!())
    {
        return;
    }
    let all = Segment::start(2, networks);
    let there = all.start_stranger(3, others);
    let rates = json!({
        "ingressRate": RATE, "ingressBurst": BURST, "egressRate": RATE, "egressBurst": BURST,
    });
    let pods = [all.nodes[0].pod("a"), all.nodes[1].pod("b")];
    let a = pods[0].attach_conf(&limit::conf(&all.nodes[0], "trunk", &rates), "net1");
    let b = pods[1].attach("trunk", "net1");
    let names = limit::Interfaces::of(&all.nodes[0], &a);
    let rate = |name: &str| limit::limit(&all.nodes[0], name).shape.rate * 8;
    assert_eq!([rate(&names.host), rate(&names.near)], [RATE; 2]);
    let (at_a, at_b) = (a.tap(), b.tap());
    for (id, network) in [(100, "hundred"), (210, "last")] {
        let pod = there.pod(network);
        let far = pod.attach(network, "net1");
        let at_far = far.tap();
        for padding in [vec![], vec![0; FULL]] {
            let word = || [marker().as_slice(), &padding].concat();
            for (mac, to) in [(far.mac, &at_far), (b.mac, &at_b)] {
                for mac in [mac, MacAddr::BROADCAST] {
                    let word = word();
                    at_a.send(&tagged(&frame(mac, a.mac, &word), TAG, id));
                    to.wait_marker("a frame of the limited pod", &word);
                }
            }
            for mac in [a.mac, MacAddr::BROADCAST] {
                let word = word();
                let packet = udp4(far.v4(), [10, 10, 0, 8].into(), (9, 9), &word);
                at_far.send(&ethernet(mac, far.mac, IP, &packet));
                at_a.wait_marker("a frame for the limited pod", &word);
            }
        }
    }
    let wire = all.tap(1);
    for (lie, reason) in [
        ((|frame| frame.to_vec()) as Copied, DropReason::VlanId),
        (|word| tagged(word, TAG, 211), DropReason::VlanId),
        (
            |word| tagged(&tagged(word, TAG, 100), TAG, 100),
            DropReason::VlanTag,
        ),
    ] {
        let word = marker();
        let judge = Judge::new(&all.nodes[0], "trunk", reason);
        at_a.send(&lie(&frame(b.mac, a.mac, &word)));
        judge.assert_dropped(&[&wire, &at_b], &word);
    }
    for pod in &pods {
        pod.detach("trunk", "net1");
    }
    for node in &all.nodes {
        node.assert_empty();
    }
}

/// Pods with interfaces of the kernel's own on the trunk, and a host beyond it.
#[test]
fn pods_have_interfaces_of_their_own_on_a_trunk() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(2, networks);
    let pods = [all.nodes[0].pod("a"), all.nodes[1].pod("b")];
    let ports = if limit::discipline().is_some() {
        // Tags go through its queues.
        let rates = json!({"ingressRate": FAST, "egressRate": FAST});
        let conf = limit::conf(&all.nodes[0], "trunk", &rates);
        [
            pods[0].attach_conf(&conf, "net1"),
            pods[1].attach("trunk", "net1"),
        ]
    } else {
        [0, 1].map(|index| pods[index].attach("trunk", "net1"))
    };
    let (host, uplink) = all.stranger(9);
    let places = [
        (&ports[0].netns, ports[0].link().expect("a link").ifindex),
        (&ports[1].netns, ports[1].link().expect("a link").ifindex),
        (&host, uplink),
    ];
    let mut there: Vec<[Port; 2]> = Vec::new();
    for (number, (netns, parent)) in (1..).zip(places) {
        let mut made = Vec::new();
        for (id, third) in [(100, 1), (200, 2)] {
            let name = format!("vlan{id}");
            if !make_vlan(netns, parent, &name, id) {
                testbed::skip::skip(testbed::test_name!(), "needs 8021q");
                return;
            }
            let ips: [(IpAddr, u8); 1] = [([10, 50, third, number].into(), 24)];
            let link = connection(netns).by_name(&name).expect("links");
            give(netns, link.expect("the interface").ifindex, &ips);
            made.push(as_port(netns, &name, &ips));
        }
        there.extend(<[Port; 2]>::try_from(made));
    }
    for vlan in [0, 1] {
        let [a, b, host] = [0, 1, 2].map(|place: usize| &there[place][vlan]);
        assert_meet(a, b);
        assert_meet(a, host);
        assert_carries(a, b);
        assert_carries(b, host);
    }
    for pod in &pods {
        pod.detach("trunk", "net1");
    }
    let mut link = connection(&host);
    let uplink = link.by_name(UPLINK).expect("links").expect("the uplink");
    link.delete(uplink.ifindex).expect("removed");
    wait::until_true("nodes without attachments", || {
        all.nodes.iter().all(|node| {
            let mut there = connection(node.netns());
            let link = there.by_name(UPLINK).expect("links").expect("the uplink");
            !link.promiscuous
        })
    });
}
