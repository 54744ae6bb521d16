//! ARP (RFC 826) and address conflict detection (RFC 5227).

use std::net::Ipv4Addr;

use super::build::{Arp, cut, ethernet, padded, with_byte};
use super::{List, Pod};
use crate::addr::{GATEWAY_MAC, MacAddr};
use crate::drop::DropReason;
use crate::packet::ETH_P_ARP;
use crate::policy::Decision;
use crate::world::{BLUE_A, BLUE_B, BLUE_C, GREEN_A, GREEN_B, GREEN_C, RED_A, RED_D};

const NOBODY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
/// The virtual gateway of the L3 network.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 1);

pub(super) fn add(list: &mut List) {
    questions(list);
    own_address(list);
    lies(list);
    malformed(list);
    routed(list);
}

fn broadcast(arp: Arp, from: &Pod) -> Vec<u8> {
    arp.frame(MacAddr::BROADCAST, from.mac)
}

/// `from` asks for `target` in the name of `name`, and hears that `mac` has it.
pub(super) fn asked(from: &Pod, name: Ipv4Addr, target: Ipv4Addr, mac: MacAddr) -> [Vec<u8>; 2] {
    let question = broadcast(Arp::request((from.mac, name), target), from);
    [
        question,
        Arp::reply((mac, target), (from.mac, name)).frame(from.mac, mac),
    ]
}

fn questions(list: &mut List) {
    let (a, b, c) = (&BLUE_A, &BLUE_B, &BLUE_C);
    let frames = asked(a, a.ip4, b.ip4, b.mac);
    let answer = Decision::ArpReply(b.mac);
    list.answers("who has a neighbour's address", a, frames.clone(), answer);
    let padded_frames = frames.map(padded);
    list.answers("a padded ARP question", a, padded_frames, answer);
    let unicast = Arp::request((a.mac, a.ip4), b.ip4).frame(b.mac, a.mac);
    let [_, reply] = asked(a, a.ip4, b.ip4, b.mac);
    list.answers(
        "an ARP question to the neighbour itself",
        a,
        [unicast, reply],
        answer,
    );
    let frames = asked(a, a.ip4, c.further_v4(), c.mac);
    list.answers(
        "who has a second address",
        a,
        frames,
        Decision::ArpReply(c.mac),
    );
    let frames = asked(c, c.further_v4(), a.ip4, a.mac);
    list.answers(
        "a question from a second address",
        c,
        frames,
        Decision::ArpReply(a.mac),
    );
    let frames = asked(a, NOBODY, b.ip4, b.mac);
    list.answers("a probe for a taken address", a, frames, answer);
    let frames = asked(&RED_A, RED_A.ip4, RED_D.ip4, RED_D.mac);
    list.answers(
        "who has an address, other network",
        &RED_A,
        frames,
        Decision::ArpReply(RED_D.mac),
    );

    let drop = DropReason::NoEndpoint;
    let ask = |target| broadcast(Arp::request((a.mac, a.ip4), target), a);
    list.drops(
        "who has a free address",
        a,
        ask(Ipv4Addr::new(10, 10, 0, 99)),
        drop,
    );
    list.drops(
        "who has an address of another network",
        a,
        ask(RED_D.ip4),
        drop,
    );
    list.drops("who has 0.0.0.0", a, ask(NOBODY), drop);
    let probe = Arp::request((a.mac, NOBODY), Ipv4Addr::new(10, 10, 0, 99));
    list.drops("a probe for a free address", a, broadcast(probe, a), drop);
}

fn own_address(list: &mut List) {
    let (a, b, c) = (&BLUE_A, &BLUE_B, &BLUE_C);
    let announcement = Arp::request((a.mac, a.ip4), a.ip4);
    list.floods("an announcement", a, broadcast(announcement, a));
    let gratuitous = Arp::reply((a.mac, a.ip4), (MacAddr::BROADCAST, a.ip4));
    list.floods("a gratuitous answer", a, broadcast(gratuitous, a));
    let second = Arp::request((c.mac, c.further_v4()), c.further_v4());
    list.floods(
        "an announcement of a second address",
        c,
        broadcast(second, c),
    );
    let probe = Arp::request((a.mac, NOBODY), a.ip4);
    list.ignores("a probe for one's own address", a, broadcast(probe, a));
    let reply = Arp::reply((a.mac, a.ip4), (b.mac, b.ip4)).frame(b.mac, a.mac);
    list.switches("an answer to a neighbour", a, reply, b);
    let stray = Arp::reply((a.mac, a.ip4), (RED_D.mac, RED_D.ip4)).frame(RED_D.mac, a.mac);
    list.drops(
        "an answer to another network",
        a,
        stray,
        DropReason::NoEndpoint,
    );
}

fn lies(list: &mut List) {
    let (a, b, c) = (&BLUE_A, &BLUE_B, &BLUE_C);
    let drop = DropReason::SpoofedArp;
    let request = |sender| broadcast(Arp::request(sender, b.ip4), a);
    list.drops(
        "an ARP question from a neighbour's address",
        a,
        request((a.mac, c.ip4)),
        drop,
    );
    list.drops(
        "an ARP question from a neighbour's MAC",
        a,
        request((c.mac, a.ip4)),
        drop,
    );
    let second = request((a.mac, c.further_v4()));
    list.drops(
        "an ARP question from another's second address",
        a,
        second,
        drop,
    );
    let both = request((c.mac, c.ip4));
    list.drops("an ARP question in a neighbour's name", a, both, drop);
    let poison = Arp::reply((a.mac, c.ip4), (b.mac, b.ip4)).frame(b.mac, a.mac);
    list.drops("an ARP answer with a neighbour's address", a, poison, drop);
    let poison = broadcast(Arp::reply((a.mac, c.ip4), (MacAddr::BROADCAST, c.ip4)), a);
    list.drops(
        "a gratuitous answer with a neighbour's address",
        a,
        poison,
        drop,
    );
    let announcement = broadcast(Arp::request((a.mac, c.ip4), c.ip4), a);
    list.drops(
        "an announcement of a neighbour's address",
        a,
        announcement,
        drop,
    );
    let nameless = broadcast(Arp::reply((a.mac, NOBODY), (b.mac, b.ip4)), a);
    list.drops("an ARP answer from 0.0.0.0", a, nameless, drop);
    let probe = broadcast(Arp::request((c.mac, NOBODY), b.ip4), a);
    list.drops("a probe with a neighbour's MAC", a, probe, drop);
    let gateway = broadcast(
        Arp::reply((GREEN_A.mac, GATEWAY), (GREEN_B.mac, GREEN_B.ip4)),
        &GREEN_A,
    );
    list.drops(
        "an ARP answer in the gateway's name",
        &GREEN_A,
        gateway,
        drop,
    );
}

fn malformed(list: &mut List) {
    let (a, b) = (&BLUE_A, &BLUE_B);
    let whole = broadcast(Arp::request((a.mac, a.ip4), b.ip4), a);
    for (name, offset, value) in [
        ("ARP for another hardware type", 15, 6),
        ("ARP for a hardware type of two bytes", 14, 1),
        ("ARP for another protocol", 16, 0x86),
        ("ARP with long hardware addresses", 18, 8),
        ("ARP with long protocol addresses", 19, 16),
        ("ARP operation 0", 21, 0),
        ("ARP operation 3", 21, 3),
        ("ARP operation 257", 20, 1),
    ] {
        list.drops(
            name,
            a,
            with_byte(whole.clone(), offset, value),
            DropReason::Malformed,
        );
    }
    list.drops(
        "ARP one byte short",
        a,
        cut(whole.clone(), 41),
        DropReason::Truncated,
    );
    list.drops(
        "ARP without addresses",
        a,
        cut(whole, 22),
        DropReason::Truncated,
    );
    let empty = ethernet(MacAddr::BROADCAST, a.mac, ETH_P_ARP, &[0; 28]);
    list.drops("ARP of zeros", a, empty, DropReason::Malformed);
}

fn routed(list: &mut List) {
    let (a, b, c) = (&GREEN_A, &GREEN_B, &GREEN_C);
    let gateway = Decision::ArpReply(GATEWAY_MAC);
    let frames = asked(a, a.ip4, GATEWAY, GATEWAY_MAC);
    list.answers("who has the gateway's address", a, frames, gateway);
    let frames = asked(a, a.ip4, b.ip4, GATEWAY_MAC);
    list.answers("who has a neighbour's address, L3", a, frames, gateway);
    let frames = asked(a, a.ip4, c.further_v4(), GATEWAY_MAC);
    list.answers("who has a second address, L3", a, frames, gateway);
    let frames = asked(a, NOBODY, b.ip4, b.mac);
    list.answers(
        "a probe for a taken address, L3",
        a,
        frames,
        Decision::ArpReply(b.mac),
    );
    let frames = asked(a, NOBODY, GATEWAY, GATEWAY_MAC);
    list.answers("a probe for the gateway's address", a, frames, gateway);
    let probe = Arp::request((a.mac, NOBODY), a.ip4);
    list.ignores("a probe for one's own address, L3", a, broadcast(probe, a));
    let announcement = Arp::request((a.mac, a.ip4), a.ip4);
    list.ignores("an announcement, L3", a, broadcast(announcement, a));
    let reply = Arp::reply((a.mac, a.ip4), (b.mac, b.ip4)).frame(b.mac, a.mac);
    list.ignores("an ARP answer, L3", a, reply);
    let free = Arp::request((a.mac, a.ip4), Ipv4Addr::new(10, 20, 0, 99));
    list.drops(
        "who has a free address, L3",
        a,
        broadcast(free, a),
        DropReason::NoEndpoint,
    );
    let lie = Arp::request((a.mac, b.ip4), GATEWAY);
    let name = "an ARP question from a neighbour's address, L3";
    list.drops(name, a, broadcast(lie, a), DropReason::SpoofedArp);
}
