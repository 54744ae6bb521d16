//! Attack with messages that find or control routers and switches, from a pod.

use std::net::{Ipv4Addr, Ipv6Addr};

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use testbed::frame::{
    Ipv4, Ipv6, Marker, ethernet, extension, icmp6, marker, nd_option, neighbour_advertisement,
};
use testbed::host::WORLD;
use testbed::{Network, Node, Port, Setup, Tap, wait};

const IP: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const NOBODY: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x66]);
const EXPERIMENT: u16 = 0x88b5;

/// Asserts that a sent frame is dropped for `reason` and reaches no port.
#[track_caller]
fn refused(
    node: &Node,
    (from, tap): (&Port, &Tap),
    seen_by: &[&Tap],
    (what, reason): (&str, DropReason),
    frame: impl Fn(&Marker) -> Vec<u8>,
) {
    let word = marker();
    let before = node.drops().of(&from.network, reason);
    tap.send(&frame(&word));
    let mut seen = 0;
    let mut look = || {
        seen += seen_by.iter().map(|tap| tap.count(&word)).sum::<usize>();
        seen
    };
    wait::until_true(&format!("{what}: a drop for {reason}"), || {
        look() > 0 || node.drops().of(&from.network, reason) > before
    });
    assert_eq!(look(), 0, "{what} was delivered");
}

/// A router would book the attacker's address at the victim's MAC address.
///
/// ATT-14a.
#[test]
fn a_pod_solicits_routers_by_its_own_mac_address_only() {
    let node = testbed::node!();
    let (alice, mallory) = (node.pod("alice"), node.pod("mallory"));
    let (a, m) = (alice.attach("blue", "net1"), mallory.attach("blue", "net1"));
    let (tap, seen) = (m.tap(), a.tap());
    let own = m.mac.link_local();
    let solicit = |source: Ipv6Addr, link: MacAddr, word: &Marker| {
        let body = [vec![0; 4], nd_option(1, &link.0), nd_option(14, word)].concat();
        let message = icmp6(source, ALL_ROUTERS, (133, 0), &body);
        let packet = Ipv6::new(source, ALL_ROUTERS, 58).packet(&message);
        ethernet(MacAddr([0x33, 0x33, 0, 0, 0, 2]), m.mac, IPV6, &packet)
    };
    for (what, source) in [
        ("a solicitation for another's MAC", own),
        ("one without an address", Ipv6Addr::UNSPECIFIED),
    ] {
        let said = (what, DropReason::SpoofedNd);
        refused(&node, (&m, &tap), &[&seen], said, |word| {
            solicit(source, a.mac, word)
        });
    }
    let word = marker();
    tap.send(&solicit(own, m.mac, &word));
    seen.wait_marker("an honest solicitation", &word);
    proof::of!("ATT-14a");
}

/// Control messages of routers do not pass.
///
/// Queries make a pod the one that decides about groups; inverse discovery and node information tell
/// who has which address.
///
/// ATT-14a.
#[test]
fn control_messages_of_routers_do_not_pass() {
    let node = testbed::node!();
    let (alice, mallory) = (node.pod("alice"), node.pod("mallory"));
    let (a, m) = (alice.attach("blue", "net1"), mallory.attach("blue", "net1"));
    let (tap, seen) = (m.tap(), a.tap());
    let own = m.mac.link_local();
    let reason = DropReason::ControlMessage;
    for kind in [130_u8, 138, 139, 140, 141, 142, 151, 152, 153] {
        for to in [a.mac, MacAddr([0x33, 0x33, 0, 0, 0, 1])] {
            let said = format!("ICMPv6 {kind} to {to}");
            refused(&node, (&m, &tap), &[&seen], (&said, reason), |word| {
                let body = [&[0; 20][..], word].concat();
                let message = icmp6(own, ALL_NODES, (kind, 0), &body);
                ethernet(
                    to,
                    m.mac,
                    IPV6,
                    &Ipv6::new(own, ALL_NODES, 58).packet(&message),
                )
            });
        }
    }
    let hidden = ("a query behind options", reason);
    refused(&node, (&m, &tap), &[&seen], hidden, |word| {
        let body = [&[0; 20][..], word].concat();
        let message = icmp6(own, ALL_NODES, (130, 0), &body);
        let alert = extension(58, &[5, 2, 0, 0, 1, 0]);
        let packet = Ipv6::new(own, ALL_NODES, 0).packet(&[alert, message].concat());
        ethernet(MacAddr([0x33, 0x33, 0, 0, 0, 1]), m.mac, IPV6, &packet)
    });
    for kind in [0x11_u8, 0x30, 0x31, 0x32] {
        let said = format!("IGMP {kind:#x}");
        refused(&node, (&m, &tap), &[&seen], (&said, reason), |word| {
            let body = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], word].concat();
            let packet = Ipv4::new(m.v4(), Ipv4Addr::new(224, 0, 0, 1), 2).packet(&body);
            ethernet(MacAddr([1, 0, 0x5e, 0, 0, 1]), m.mac, IP, &packet)
        });
    }
    let said = ("a pause frame", DropReason::EtherType);
    refused(&node, (&m, &tap), &[&seen], said, |word| {
        ethernet(a.mac, m.mac, 0x8808, word)
    });
    proof::of!("ATT-14a");
}

/// An advertisement without known addresses names the port's own MAC address.
///
/// ATT-14a.
#[test]
fn an_advertisement_without_addresses_names_the_ports_own_mac_address() {
    let node = Node::start(Setup::empty().network(&Network::new("grey", "L2")));
    let (alice, mallory) = (node.pod("alice"), node.pod("mallory"));
    let (a, m) = (alice.attach("grey", "net1"), mallory.attach("grey", "net1"));
    let (tap, seen) = (m.tap(), a.tap());
    let any = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
    let advertise = |link, word: &Marker| {
        let packet = neighbour_advertisement(any, ALL_NODES, any, link, &nd_option(14, word));
        ethernet(a.mac, m.mac, IPV6, &packet)
    };
    let said = ("an advertisement at another's MAC", DropReason::SpoofedNd);
    refused(&node, (&m, &tap), &[&seen], said, |word| {
        advertise(NOBODY, word)
    });
    let word = marker();
    tap.send(&advertise(m.mac, &word));
    seen.wait_marker("an honest advertisement", &word);
    proof::of!("ATT-14a");
}

/// Link protocols do not leave by an uplink.
///
/// Switches beyond it take these from any sender: on a network with an uplink only listed ones pass, to
/// the uplink, to pods of the node, and from the uplink to pods.
///
/// ATT-14b.
#[test]
fn link_protocols_do_not_leave_by_an_uplink() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let subnets = ["10.10.0.0/24"];
    let plain = Network::l2("blue", &subnets).id(2001).vlan(100);
    let wider = Network::l2("red", &subnets).id(2002).vlan(101);
    let wider = wider.ether_types(&["0x88b5"]);
    let node = Node::start(Setup::empty().network(&plain).network(&wider));
    let names = ["a", "b", "c", "d"].map(|name| node.pod(name));
    let [a, b] = [0, 1].map(|index: usize| names[index].attach("blue", "net1"));
    let world = Tap::on(node.host().outside(), WORLD);
    let tap = a.tap();
    let beside = b.tap();
    let watched = [&beside, &world];
    for kind in [
        0x8808_u16, 0x88f7, 0x88cc, 0x8863, 0x8864, 0x8847, 0x8848, 0x88e7, 0x893f, 0x8926, 0x888e,
        EXPERIMENT,
    ] {
        for to in [
            NOBODY,
            b.mac,
            MacAddr::BROADCAST,
            MacAddr([1, 0x1b, 0x19, 0, 0, 0]),
        ] {
            let said = format!("EtherType {kind:#x} to {to}");
            refused(
                &node,
                (&a, &tap),
                &watched,
                (&said, DropReason::EtherType),
                |word| ethernet(to, a.mac, kind, word),
            );
        }
    }
    let [c, d] = [2, 3].map(|index: usize| names[index].attach("red", "net1"));
    let seen = [beside, c.tap(), d.tap()];
    let watched = [&seen[0], &seen[1], &seen[2], &world];
    // The list of another network says what that one carries, and no more.
    let tap = c.tap();
    for to in [NOBODY, MacAddr::BROADCAST] {
        let word = marker();
        tap.send(&ethernet(to, c.mac, EXPERIMENT, &word));
        world.wait_marker("what the network lists", &word);
    }
    let said = ("PTP where another type is listed", DropReason::EtherType);
    refused(&node, (&c, &tap), &watched, said, |word| {
        ethernet(NOBODY, c.mac, 0x88f7, word)
    });
    // From the uplink to a pod likewise.
    let arriving = |vlan: u16, to: &Port, kind: u16, word: &Marker| {
        let frame = ethernet(to.mac, NOBODY, kind, word);
        world.send(&testbed::frame::tagged(&frame, 0x8100, vlan));
    };
    let before = node.drops().of("blue", DropReason::EtherType);
    let word = marker();
    arriving(100, &b, 0x88f7, &word);
    let mut delivered = 0;
    wait::until_true("a drop of what the uplink brought", || {
        delivered += seen[0].count(&word);
        delivered > 0 || node.drops().of("blue", DropReason::EtherType) > before
    });
    assert_eq!(delivered, 0, "PTP from the uplink was delivered");
    let word = marker();
    arriving(101, &d, EXPERIMENT, &word);
    seen[2].wait_marker("what the network lists, from the uplink", &word);
    proof::of!("ATT-14b");
}
