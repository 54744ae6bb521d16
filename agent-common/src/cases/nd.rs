//! List packets of neighbour discovery (RFC 4861).
//!
//! Duplicate address detection (RFC 4862) and messages that may not be fragmented (RFC 6980) are among them.

use std::net::Ipv6Addr;

use super::build::{
    ALL_NODES, ALL_ROUTERS, Extension, Ipv6, advertisement, cut, group_mac_v6, link_address, nonce,
    solicitation, solicited_node,
};
use super::{List, Pod};
use crate::addr::{GATEWAY_MAC, GATEWAY_V6, MacAddr};
use crate::drop::DropReason;
use crate::packet::{IPPROTO_DSTOPTS, IPPROTO_ICMPV6};
use crate::policy::Decision;
use crate::world::{BLUE_A, BLUE_B, BLUE_C, GREEN_A, GREEN_B, GREEN_C, RED_D};

const NOBODY: Ipv6Addr = Ipv6Addr::UNSPECIFIED;

pub(super) fn add(list: &mut List) {
    questions(list);
    duplicates(list);
    false_questions(list);
    options(list);
    answers(list);
    disguises(list);
    routers(list);
    routed(list);
}

/// A solicitation of `from` with `source` for `target`, to the target's group.
fn solicit(from: &Pod, source: Ipv6Addr, target: Ipv6Addr, options: &[u8]) -> Vec<u8> {
    let ip = Ipv6::neighbour(source, solicited_node(target));
    ip.icmp(
        group_mac_v6(ip.destination),
        from.mac,
        135,
        0,
        &solicitation(target, options),
    )
}

/// That `mac` has `target`, told to whoever asked.
fn told(to: &Pod, asker: Ipv6Addr, target: Ipv6Addr, mac: MacAddr) -> Vec<u8> {
    let router = if mac == GATEWAY_MAC { 0x80 } else { 0 };
    let (destination, to_mac, solicited) = if asker == NOBODY {
        (ALL_NODES, group_mac_v6(ALL_NODES), 0)
    } else {
        (asker, to.mac, 0x40)
    };
    let body = advertisement(router | solicited | 0x20, target, &link_address(2, mac));
    Ipv6::neighbour(target, destination).icmp(to_mac, mac, 136, 0, &body)
}

/// Builds the question of `from` for `target`, and the answer that `mac` has it.
///
/// The question has the address option of `from`, or a nonce when it has no source address.
pub(super) fn asked(from: &Pod, source: Ipv6Addr, target: Ipv6Addr, mac: MacAddr) -> [Vec<u8>; 2] {
    let options = if source == NOBODY {
        nonce()
    } else {
        link_address(1, from.mac)
    };
    [
        solicit(from, source, target, &options),
        told(from, source, target, mac),
    ]
}

fn questions(list: &mut List) {
    let (a, b, c) = (&BLUE_A, &BLUE_B, &BLUE_C);
    let answer = Decision::NdReply(b.mac);
    let frames = asked(a, a.ip6, b.ip6, b.mac);
    list.answers("solicit a neighbour", a, frames, answer);
    let frames = asked(a, a.link_local(), b.ip6, b.mac);
    list.answers("solicit from a link-local address", a, frames, answer);
    let frames = asked(a, a.ip6, b.link_local(), b.mac);
    list.answers("solicit a link-local address", a, frames, answer);
    let frames = asked(a, a.ip6, c.further_v6(), c.mac);
    list.answers(
        "solicit a second address",
        a,
        frames,
        Decision::NdReply(c.mac),
    );
    let frames = asked(c, c.further_v6(), a.ip6, a.mac);
    list.answers(
        "solicit from a second address",
        c,
        frames,
        Decision::NdReply(a.mac),
    );
    let ip = Ipv6::neighbour(a.ip6, b.ip6);
    let unicast = ip.icmp(b.mac, a.mac, 135, 0, &solicitation(b.ip6, &[]));
    let frames = [unicast, told(a, a.ip6, b.ip6, b.mac)];
    list.answers(
        "solicit the neighbour itself, without options",
        a,
        frames,
        answer,
    );
    let long = [link_address(1, a.mac), nonce(), nonce(), nonce()].concat();
    let frames = [
        solicit(a, a.ip6, b.ip6, &long),
        told(a, a.ip6, b.ip6, b.mac),
    ];
    list.answers("solicit with four options", a, frames, answer);

    let free = Ipv6Addr::new(0xfd10, 0x10, 0, 0, 0, 0, 0, 0x99);
    for (name, target) in [
        ("solicit a free address", free),
        ("solicit an address of another network", RED_D.ip6),
        (
            "solicit a link-local address of another network",
            RED_D.link_local(),
        ),
        ("solicit the L3 gateway on an L2 network", GATEWAY_V6),
        ("solicit the unspecified address", NOBODY),
    ] {
        let frame = solicit(a, a.ip6, target, &link_address(1, a.mac));
        list.drops(name, a, frame, DropReason::NoEndpoint);
    }
}

fn duplicates(list: &mut List) {
    let (a, b, c) = (&BLUE_A, &BLUE_B, &BLUE_C);
    list.ignores(
        "look for duplicates of one's own",
        a,
        solicit(a, NOBODY, a.ip6, &nonce()),
    );
    let frame = solicit(a, NOBODY, a.link_local(), &nonce());
    list.ignores("look for duplicates of one's link-local address", a, frame);
    let frame = solicit(c, NOBODY, c.further_v6(), &[]);
    list.ignores("look for duplicates of one's second address", c, frame);
    let frames = asked(a, NOBODY, b.ip6, b.mac);
    list.answers(
        "look for duplicates of a neighbour's",
        a,
        frames,
        Decision::NdReply(b.mac),
    );
    let frame = solicit(a, NOBODY, RED_D.ip6, &nonce());
    let name = "look for duplicates of another network's";
    list.drops(name, a, frame, DropReason::NoEndpoint);
}

fn false_questions(list: &mut List) {
    let (a, b, c) = (&BLUE_A, &BLUE_B, &BLUE_C);
    let lie = link_address(1, c.mac);
    let spoofed = DropReason::SpoofedNd;
    let frame = solicit(a, a.ip6, b.ip6, &lie);
    list.drops("solicit with a neighbour's MAC", a, frame, spoofed);
    let frame = solicit(a, a.ip6, b.ip6, &[nonce(), lie.clone()].concat());
    list.drops(
        "solicit with a neighbour's MAC behind a nonce",
        a,
        frame,
        spoofed,
    );
    let both = [link_address(1, a.mac), lie.clone()].concat();
    let frame = solicit(a, a.ip6, b.ip6, &both);
    list.drops(
        "solicit with a neighbour's MAC behind one's own",
        a,
        frame,
        spoofed,
    );
    let frame = solicit(a, NOBODY, b.ip6, &lie);
    list.drops(
        "look for duplicates with a neighbour's MAC",
        a,
        frame,
        spoofed,
    );
    let frame = solicit(a, c.ip6, b.ip6, &link_address(1, a.mac));
    list.drops(
        "solicit from a neighbour's address",
        a,
        frame,
        DropReason::SpoofedIp,
    );
    let frame = solicit(a, c.link_local(), b.ip6, &link_address(1, a.mac));
    let name = "solicit from a neighbour's link-local address";
    list.drops(name, a, frame, DropReason::SpoofedIp);
    let malformed = DropReason::Malformed;
    let mapped = b.ip4.to_ipv6_mapped();
    let frame = solicit(a, a.ip6, mapped, &link_address(1, a.mac));
    list.drops("solicit an IPv4 address", a, frame, malformed);
    let frame = solicit(a, a.ip6, ALL_NODES, &link_address(1, a.mac));
    list.drops("solicit a group", a, frame, malformed);
    let ip = Ipv6 {
        hops: 254,
        ..Ipv6::neighbour(a.ip6, b.ip6)
    };
    let frame = ip.icmp(b.mac, a.mac, 135, 0, &solicitation(b.ip6, &[]));
    list.drops("a solicitation that was forwarded", a, frame, malformed);
    let ip = Ipv6::neighbour(a.ip6, b.ip6);
    let frame = ip.icmp(b.mac, a.mac, 135, 1, &solicitation(b.ip6, &[]));
    list.drops("a solicitation with code 1", a, frame, malformed);
}

fn options(list: &mut List) {
    let (a, b) = (&BLUE_A, &BLUE_B);
    let with = |options: &[u8]| solicit(a, a.ip6, b.ip6, options);
    let malformed = DropReason::Malformed;
    list.drops(
        "an option of length 0",
        a,
        with(&[1, 0, 0, 0, 0, 0, 0, 0]),
        malformed,
    );
    list.drops("half an option", a, with(&[1, 1, 2, 0]), malformed);
    list.drops("five options", a, with(&nonce().repeat(5)), malformed);
    let long = [&[1, 2][..], &a.mac.0, &[0; 8]].concat();
    list.drops(
        "an address option of 16 bytes",
        a,
        with(&long),
        DropReason::SpoofedNd,
    );
    let hidden = [&[14, 2, 0, 0, 0, 0, 0, 0][..], &link_address(1, BLUE_C.mac)].concat();
    let frames = [with(&hidden), told(a, a.ip6, b.ip6, b.mac)];
    let name = "a neighbour's MAC inside a longer option";
    list.answers(name, a, frames, Decision::NdReply(b.mac));
    let short = Ipv6::neighbour(a.ip6, b.ip6);
    let frame = short.icmp(b.mac, a.mac, 135, 0, &[0; 19]);
    list.drops(
        "a solicitation without its target",
        a,
        frame,
        DropReason::Truncated,
    );
    let frame = short.icmp(b.mac, a.mac, 136, 0, &[0; 4]);
    list.drops(
        "an advertisement without its target",
        a,
        frame,
        DropReason::Truncated,
    );
    let whole = short.icmp(b.mac, a.mac, 136, 0, &advertisement(0x20, a.ip6, &[]));
    let shorter = cut(
        Ipv6 {
            length: Some(0),
            ..short
        }
        .frame(b.mac, a.mac, IPPROTO_ICMPV6, &[136, 0]),
        56,
    );
    list.drops(
        "an advertisement of two bytes",
        a,
        shorter,
        DropReason::Truncated,
    );
    list.switches("an advertisement without options", a, whole, b);
}

fn answers(list: &mut List) {
    let (a, b, c) = (&BLUE_A, &BLUE_B, &BLUE_C);
    let tell = |source, target, options: &[u8]| {
        let ip = Ipv6::neighbour(source, ALL_NODES);
        let to = group_mac_v6(ALL_NODES);
        ip.icmp(to, a.mac, 136, 0, &advertisement(0x20, target, options))
    };
    let own = link_address(2, a.mac);
    list.floods("advertise one's own address", a, tell(a.ip6, a.ip6, &own));
    let frame = tell(a.link_local(), a.link_local(), &own);
    list.floods("advertise one's link-local address", a, frame);
    let ip = Ipv6::neighbour(a.ip6, b.ip6);
    let frame = ip.icmp(b.mac, a.mac, 136, 0, &advertisement(0x60, a.ip6, &own));
    list.switches("advertise to a neighbour", a, frame, b);
    let spoofed = DropReason::SpoofedNd;
    list.drops(
        "advertise a neighbour's address",
        a,
        tell(a.ip6, c.ip6, &own),
        spoofed,
    );
    let frame = tell(a.ip6, c.further_v6(), &own);
    list.drops("advertise a neighbour's second address", a, frame, spoofed);
    let frame = tell(a.ip6, c.link_local(), &own);
    list.drops(
        "advertise a neighbour's link-local address",
        a,
        frame,
        spoofed,
    );
    let frame = tell(a.ip6, a.ip6, &link_address(2, c.mac));
    list.drops("advertise with a neighbour's MAC", a, frame, spoofed);
    let frame = tell(a.ip6, RED_D.ip6, &own);
    list.drops("advertise a free address", a, frame, spoofed);
    list.drops(
        "advertise the unspecified address",
        a,
        tell(a.ip6, NOBODY, &own),
        spoofed,
    );
    let frame = tell(c.ip6, a.ip6, &own);
    list.drops(
        "advertise from a neighbour's address",
        a,
        frame,
        DropReason::SpoofedIp,
    );
    let frame = tell(NOBODY, a.ip6, &own);
    list.drops("advertise from no address", a, frame, DropReason::SpoofedIp);
    let frame = Ipv6::neighbour(c.ip6, ALL_NODES);
    let mapped = c.further_v4().to_ipv6_mapped();
    let body = advertisement(0x20, mapped, &link_address(2, c.mac));
    let frame = frame.icmp(group_mac_v6(ALL_NODES), c.mac, 136, 0, &body);
    list.drops("advertise one's own IPv4 address", c, frame, spoofed);
}

fn disguises(list: &mut List) {
    let (a, b, c) = (&BLUE_A, &BLUE_B, &BLUE_C);
    let ip = Ipv6::neighbour(a.ip6, b.ip6);
    let poison = advertisement(0x20, c.ip6, &link_address(2, a.mac));
    let hidden = |extensions| {
        ip.clone()
            .with(extensions)
            .icmp(b.mac, a.mac, 136, 0, &poison)
    };
    let headers = DropReason::Ipv6Headers;
    list.drops(
        "an advertisement behind options",
        a,
        hidden(Extension::chain(1)),
        headers,
    );
    list.drops(
        "an advertisement behind eight headers",
        a,
        hidden(Extension::chain(8)),
        headers,
    );
    let sealed = hidden(vec![Extension::authentication()]);
    list.drops("an advertisement behind authentication", a, sealed, headers);
    let fragmented = DropReason::FragmentedNd;
    let all = hidden(vec![Extension::fragment(0, false)]);
    list.drops(
        "an advertisement in a fragment that is all",
        a,
        all,
        fragmented,
    );
    let first = hidden(vec![Extension::fragment(0, true)]);
    list.drops("an advertisement in a first fragment", a, first, fragmented);
    let both = vec![
        Extension::fragment(0, true),
        Extension::options(IPPROTO_DSTOPTS, 0),
    ];
    list.drops(
        "an advertisement in a fragment and behind options",
        a,
        hidden(both),
        fragmented,
    );
    let question = solicitation(b.ip6, &link_address(1, a.mac));
    let frame = ip.clone().with(vec![Extension::fragment(0, false)]);
    let frame = frame.icmp(b.mac, a.mac, 135, 0, &question);
    list.drops("a solicitation in a fragment", a, frame, fragmented);
    // Without its first fragment it is never put together.
    let later = hidden(vec![Extension::fragment(1, false)]);
    list.switches("an advertisement in a later fragment", a, later, b);
}

fn routers(list: &mut List) {
    let (a, b) = (&BLUE_A, &BLUE_B);
    let drop = DropReason::RouterAdvertisement;
    let ip = Ipv6::neighbour(a.link_local(), ALL_NODES);
    let body = [64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0];
    let group = group_mac_v6(ALL_NODES);
    list.drops(
        "a router advertisement",
        a,
        ip.icmp(group, a.mac, 134, 0, &body),
        drop,
    );
    let behind = ip.clone().with(Extension::chain(1));
    let frame = behind.icmp(group, a.mac, 134, 0, &body);
    list.drops("a router advertisement behind options", a, frame, drop);
    let first = ip.clone().with(vec![Extension::fragment(0, true)]);
    let frame = first.icmp(group, a.mac, 134, 0, &body);
    list.drops("a router advertisement in fragments", a, frame, drop);
    let spoofed = Ipv6 {
        source: b.link_local(),
        ..ip
    };
    let frame = spoofed.icmp(group, a.mac, 134, 0, &body);
    list.drops(
        "a router advertisement in a neighbour's name",
        a,
        frame,
        drop,
    );
    let redirect = [&[0; 4][..], &a.ip6.octets(), &b.ip6.octets()].concat();
    let frame = Ipv6::neighbour(a.link_local(), b.ip6).icmp(b.mac, a.mac, 137, 0, &redirect);
    list.drops("a redirect", a, frame, drop);

    let ip = Ipv6::neighbour(a.link_local(), ALL_ROUTERS);
    let group = group_mac_v6(ALL_ROUTERS);
    let body = [&[0; 4][..], &link_address(1, a.mac)].concat();
    list.floods(
        "a router solicitation",
        a,
        ip.icmp(group, a.mac, 133, 0, &body),
    );
    let nameless = Ipv6 {
        source: NOBODY,
        ..ip.clone()
    };
    let frame = nameless.icmp(group, a.mac, 133, 0, &[0; 4]);
    list.floods("a router solicitation without an address", a, frame);
    let forwarded = Ipv6 { hops: 64, ..ip }.icmp(group, a.mac, 133, 0, &body);
    list.drops(
        "a router solicitation that was forwarded",
        a,
        forwarded,
        DropReason::Malformed,
    );
}

fn routed(list: &mut List) {
    let (a, b, c) = (&GREEN_A, &GREEN_B, &GREEN_C);
    let gateway = Decision::NdReply(GATEWAY_MAC);
    for (name, target) in [
        (
            "solicit the gateway",
            Ipv6Addr::new(0xfd20, 0x20, 0, 0, 0, 0, 0, 1),
        ),
        ("solicit the gateway's link-local address", GATEWAY_V6),
        ("solicit a neighbour, L3", b.ip6),
        ("solicit a neighbour's second address, L3", c.further_v6()),
    ] {
        list.answers(name, a, asked(a, a.ip6, target, GATEWAY_MAC), gateway);
    }
    let frames = asked(a, NOBODY, b.ip6, b.mac);
    list.answers(
        "look for duplicates of a neighbour's, L3",
        a,
        frames,
        Decision::NdReply(b.mac),
    );
    let frames = asked(a, NOBODY, GATEWAY_V6, GATEWAY_MAC);
    list.answers("look for duplicates of the gateway's", a, frames, gateway);
    list.ignores(
        "look for duplicates of one's own, L3",
        a,
        solicit(a, NOBODY, a.ip6, &nonce()),
    );
    let free = Ipv6Addr::new(0xfd20, 0x20, 0, 0, 0, 0, 0, 0x99);
    let frame = solicit(a, a.ip6, free, &link_address(1, a.mac));
    list.drops(
        "solicit a free address, L3",
        a,
        frame,
        DropReason::NoEndpoint,
    );
    let tell = |target| {
        let body = advertisement(0x20, target, &link_address(2, a.mac));
        Ipv6::neighbour(a.ip6, ALL_NODES).icmp(group_mac_v6(ALL_NODES), a.mac, 136, 0, &body)
    };
    list.ignores("advertise one's own address, L3", a, tell(a.ip6));
    list.drops(
        "advertise the gateway's address",
        a,
        tell(GATEWAY_V6),
        DropReason::SpoofedNd,
    );
    list.drops(
        "advertise a neighbour's address, L3",
        a,
        tell(b.ip6),
        DropReason::SpoofedNd,
    );
    let ip = Ipv6::neighbour(NOBODY, ALL_ROUTERS);
    let frame = ip.icmp(group_mac_v6(ALL_ROUTERS), a.mac, 133, 0, &[0; 4]);
    list.ignores("a router solicitation, L3", a, frame);
    let ip = Ipv6::new(NOBODY, ALL_ROUTERS).with(vec![Extension::router_alert()]);
    let frame = ip.icmp(group_mac_v6(ALL_ROUTERS), a.mac, 143, 0, &[0; 20]);
    list.ignores("an MLDv2 report, L3", a, frame);
    let frame = Ipv6::neighbour(a.link_local(), ALL_NODES);
    let frame = frame.icmp(group_mac_v6(ALL_NODES), a.mac, 134, 0, &[0; 12]);
    list.drops(
        "a router advertisement, L3",
        a,
        frame,
        DropReason::RouterAdvertisement,
    );
}
