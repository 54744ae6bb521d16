//! List IPv6 packets on an L2 network.
//!
//! By source address, extension headers and fragments; and DHCPv6, which is refused.

use std::net::Ipv6Addr;

use super::build::{
    ALL_MLD_ROUTERS, ALL_NODES, ALL_ROUTERS, Extension, IPPROTO_TCP, Ipv6, cut, echo_body,
    group_mac_v6, tcp_syn, with_byte,
};
use super::{List, Pod};
use crate::drop::DropReason;
use crate::packet::{
    IPPROTO_DSTOPTS, IPPROTO_HOPOPTS, IPPROTO_ICMPV6, IPPROTO_MOBILITY, IPPROTO_ROUTING,
    IPPROTO_UDP,
};
use crate::world::{BLUE_A, BLUE_B, BLUE_C, GREY_A, RED_A, RED_D};

/// Encapsulating security payload, RFC 4303: nobody sees into it.
const IPPROTO_ESP: u8 = 50;
/// No next header, RFC 8200 section 4.7.
const IPPROTO_NONE: u8 = 59;
/// All relays and servers, RFC 8415 section 7.1.
const DHCP_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);

pub(super) fn add(list: &mut List) {
    delivery(list);
    sources(list);
    headers(list);
    extensions(list);
    fragments(list);
    dhcp(list);
    membership(list);
}

fn a_to_b() -> Ipv6 {
    Ipv6::new(BLUE_A.ip6, BLUE_B.ip6)
}

fn to_b(ip: &Ipv6) -> Vec<u8> {
    ip.udp(BLUE_B.mac, BLUE_A.mac, (4000, 5000))
}

fn to_group(ip: &Ipv6, from: &Pod) -> Vec<u8> {
    ip.udp(group_mac_v6(ip.destination), from.mac, (4000, 5000))
}

fn delivery(list: &mut List) {
    let (a, b, c) = (&BLUE_A, &BLUE_B, &BLUE_C);
    list.switches("UDP over IPv6", a, to_b(&a_to_b()), b);
    let frame = a_to_b().frame(b.mac, a.mac, IPPROTO_TCP, &tcp_syn());
    list.switches("TCP over IPv6", a, frame, b);
    let frame = a_to_b().icmp(b.mac, a.mac, 128, 0, &echo_body());
    list.switches("ping of a neighbour over IPv6", a, frame, b);
    let link_local = Ipv6::new(a.link_local(), b.link_local());
    list.switches("UDP between link-local addresses", a, to_b(&link_local), b);
    let frame = Ipv6::new(c.further_v6(), a.ip6).udp(a.mac, c.mac, (4000, 5000));
    list.switches("UDP from a second IPv6 address", c, frame, a);
    list.floods(
        "UDP to all nodes",
        a,
        to_group(&Ipv6::new(a.ip6, ALL_NODES), a),
    );
    let frame = Ipv6::new(a.ip6, RED_D.ip6).udp(RED_D.mac, a.mac, (4000, 5000));
    list.drops(
        "UDP over IPv6 to another network",
        a,
        frame,
        DropReason::NoEndpoint,
    );
    let frame = Ipv6::new(RED_A.ip6, RED_D.ip6).udp(RED_D.mac, RED_A.mac, (4000, 5000));
    list.switches(
        "an IPv6 address that another network has too",
        &RED_A,
        frame,
        &RED_D,
    );
    let frame = a_to_b().udp(RED_D.mac, a.mac, (4000, 5000));
    list.moves("UDP to an IPv6 address that has moved", a, frame, b);
    let bare = a_to_b().frame(b.mac, a.mac, IPPROTO_NONE, &[]);
    list.switches("IPv6 without a payload", a, bare, b);
}

fn sources(list: &mut List) {
    let (a, drop) = (&BLUE_A, DropReason::SpoofedIp);
    for (name, source) in [
        ("a neighbour's IPv6 address", BLUE_C.ip6),
        ("a neighbour's second IPv6 address", BLUE_C.further_v6()),
        ("a neighbour's link-local address", BLUE_C.link_local()),
        (
            "a free IPv6 address",
            Ipv6Addr::new(0xfd10, 0x10, 0, 0, 0, 0, 0, 0x99),
        ),
        (
            "a link-local address of no MAC",
            Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x99),
        ),
        ("an IPv6 address of another network", RED_D.ip6),
        ("no IPv6 address", Ipv6Addr::UNSPECIFIED),
        ("the loopback IPv6 address", Ipv6Addr::LOCALHOST),
        ("a group IPv6 address", ALL_NODES),
    ] {
        list.drops(name, a, to_b(&Ipv6 { source, ..a_to_b() }), drop);
    }
    let frame = to_group(&Ipv6::new(BLUE_C.ip6, ALL_NODES), a);
    list.drops(
        "a multicast from a neighbour's IPv6 address",
        a,
        frame,
        drop,
    );
    // An address of the other family in its mapped form belongs on no wire.
    let (source, destination) = (BLUE_C.further_v4(), BLUE_A.ip4);
    let malformed = DropReason::Malformed;
    let ip = Ipv6::new(source.to_ipv6_mapped(), BLUE_A.ip6);
    let frame = ip.udp(BLUE_A.mac, BLUE_C.mac, (4000, 5000));
    list.drops(
        "one's own IPv4 address as IPv6 source",
        &BLUE_C,
        frame,
        malformed,
    );
    let ip = Ipv6::new(BLUE_C.ip6, destination.to_ipv6_mapped());
    let frame = ip.udp(BLUE_A.mac, BLUE_C.mac, (4000, 5000));
    list.drops(
        "an IPv4 address as IPv6 destination",
        &BLUE_C,
        frame,
        malformed,
    );
    let ip = Ipv6::new(source.to_ipv6_mapped(), destination.to_ipv6_mapped());
    let frame = ip.udp(crate::world::GREY_B.mac, GREY_A.mac, (4000, 5000));
    list.drops(
        "IPv4 addresses in IPv6 without addresses",
        &GREY_A,
        frame,
        malformed,
    );
}

fn headers(list: &mut List) {
    let (a, b) = (&BLUE_A, &BLUE_B);
    let whole = to_b(&a_to_b());
    let malformed = DropReason::Malformed;
    list.drops(
        "IPv6 version 4",
        a,
        with_byte(whole.clone(), 14, 0x45),
        malformed,
    );
    list.drops(
        "IPv6 version 7",
        a,
        with_byte(whole.clone(), 14, 0x70),
        malformed,
    );
    let says = |length| {
        to_b(&Ipv6 {
            length: Some(length),
            ..a_to_b()
        })
    };
    let length = u16::try_from(whole.len() - 54).unwrap_or(0);
    list.drops("IPv6 longer than the frame", a, says(length + 1), malformed);
    list.drops("IPv6 of length 65535", a, says(65_535), malformed);
    list.switches("IPv6 shorter than the frame", a, says(length - 1), b);
    list.drops(
        "an IPv6 header one byte short",
        a,
        cut(whole, 53),
        DropReason::Truncated,
    );
    let short = a_to_b().frame(b.mac, a.mac, IPPROTO_UDP, &[0x0f, 0xa0, 0x13]);
    list.drops(
        "UDP over IPv6 without ports",
        a,
        short,
        DropReason::Truncated,
    );
    let short = a_to_b().frame(b.mac, a.mac, IPPROTO_ICMPV6, &[128]);
    list.drops("ICMPv6 of one byte", a, short, DropReason::Truncated);
}

fn extensions(list: &mut List) {
    let (a, b) = (&BLUE_A, &BLUE_B);
    let drop = DropReason::Ipv6Headers;
    for (name, extension) in [
        (
            "a hop-by-hop header",
            Extension::options(IPPROTO_HOPOPTS, 0),
        ),
        ("a routing header", Extension::options(IPPROTO_ROUTING, 2)),
        (
            "a long destination options header",
            Extension::options(IPPROTO_DSTOPTS, 8),
        ),
        ("a mobility header", Extension::options(IPPROTO_MOBILITY, 1)),
        ("an authentication header", Extension::authentication()),
    ] {
        list.switches(name, a, to_b(&a_to_b().with(vec![extension])), b);
    }
    let eight = a_to_b().with(Extension::chain(8));
    list.switches("eight extension headers", a, to_b(&eight), b);
    let nine = a_to_b().with(Extension::chain(9));
    list.drops("nine extension headers", a, to_b(&nine), drop);
    let long = Extension::options(IPPROTO_DSTOPTS, 255);
    list.drops(
        "an extension header beyond the frame",
        a,
        {
            let beyond = Ipv6 {
                length: Some(64),
                ..a_to_b().with(vec![long.clone(), long])
            };
            cut(to_b(&beyond), 118)
        },
        drop,
    );
    let bare = a_to_b().frame(b.mac, a.mac, IPPROTO_HOPOPTS, &[]);
    list.drops("an extension header that is not there", a, bare, drop);
    let cut_off = a_to_b().frame(b.mac, a.mac, IPPROTO_HOPOPTS, &[IPPROTO_UDP, 0, 1]);
    list.drops("an extension header of three bytes", a, cut_off, drop);
    let esp = a_to_b().frame(b.mac, a.mac, IPPROTO_ESP, &[0; 16]);
    list.switches("an encrypted payload", a, esp, b);
    let spoofed = Ipv6 {
        source: BLUE_C.ip6,
        ..eight
    };
    let name = "a neighbour's address behind eight extension headers";
    list.drops(name, a, to_b(&spoofed), DropReason::SpoofedIp);
}

fn fragments(list: &mut List) {
    let (a, b) = (&BLUE_A, &BLUE_B);
    let at = |offset, more| a_to_b().with(vec![Extension::fragment(offset, more)]);
    list.switches("a first IPv6 fragment", a, to_b(&at(0, true)), b);
    list.switches("an IPv6 fragment that is all", a, to_b(&at(0, false)), b);
    let later = at(181, false).frame(b.mac, a.mac, IPPROTO_UDP, &[2, 0x23, 2]);
    list.switches("a later IPv6 fragment of three bytes", a, later, b);
    let later = at(181, false).frame(b.mac, a.mac, IPPROTO_HOPOPTS, &[255, 255]);
    list.switches("a later IPv6 fragment that names a header", a, later, b);
    let first = at(0, true).frame(b.mac, a.mac, IPPROTO_DSTOPTS, &[IPPROTO_UDP, 1, 1, 4]);
    let name = "a first IPv6 fragment without its headers";
    // The walk lands behind the frame (RFC 7112).
    list.drops(name, a, first, DropReason::Ipv6Headers);
    let first = at(0, true).frame(b.mac, a.mac, IPPROTO_DSTOPTS, &[IPPROTO_HOPOPTS, 0, 1, 4]);
    let name = "a first IPv6 fragment that ends in its headers";
    list.drops(name, a, first, DropReason::Ipv6Headers);
    let spoofed = Ipv6 {
        source: BLUE_C.ip6,
        ..at(181, false)
    };
    let frame = spoofed.frame(b.mac, a.mac, IPPROTO_UDP, &[0; 8]);
    list.drops(
        "a later IPv6 fragment in a neighbour's name",
        a,
        frame,
        DropReason::SpoofedIp,
    );
    let nameless = Ipv6 {
        source: Ipv6Addr::UNSPECIFIED,
        ..at(181, false)
    };
    let frame = nameless.frame(b.mac, a.mac, IPPROTO_ICMPV6, &[143, 0]);
    list.drops(
        "a later IPv6 fragment without an address",
        a,
        frame,
        DropReason::SpoofedIp,
    );
}

fn dhcp(list: &mut List) {
    let (a, b) = (&BLUE_A, &BLUE_B);
    let drop = DropReason::Dhcp;
    let solicit = Ipv6::new(a.link_local(), DHCP_SERVERS);
    let frame = solicit.udp(group_mac_v6(DHCP_SERVERS), a.mac, (546, 547));
    list.drops("a DHCPv6 solicit", a, frame, drop);
    let offer = |ip: &Ipv6, ports| ip.udp(b.mac, a.mac, ports);
    list.drops("a DHCPv6 advertise", a, offer(&a_to_b(), (547, 546)), drop);
    // RFC 8415 section 7.2 says where messages go, and nothing of where they come from.
    list.drops(
        "a DHCPv6 advertise from another port",
        a,
        offer(&a_to_b(), (5470, 546)),
        drop,
    );
    list.drops(
        "a relayed DHCPv6 message",
        a,
        offer(&a_to_b(), (547, 547)),
        drop,
    );
    let behind = a_to_b().with(Extension::chain(2));
    list.drops(
        "a DHCPv6 advertise behind headers",
        a,
        offer(&behind, (547, 546)),
        drop,
    );
    let first = a_to_b().with(vec![Extension::fragment(0, true)]);
    list.drops(
        "a DHCPv6 advertise in fragments",
        a,
        offer(&first, (547, 546)),
        drop,
    );
    let nameless = Ipv6 {
        source: Ipv6Addr::UNSPECIFIED,
        ..solicit
    };
    let frame = nameless.udp(group_mac_v6(DHCP_SERVERS), a.mac, (546, 547));
    list.drops("a DHCPv6 solicit without an address", a, frame, drop);
    list.switches(
        "UDP over IPv6 from port 546",
        a,
        offer(&a_to_b(), (546, 5000)),
        b,
    );
}

fn membership(list: &mut List) {
    let a = &BLUE_A;
    let send =
        |ip: &Ipv6, kind: u8| ip.icmp(group_mac_v6(ip.destination), a.mac, kind, 0, &[0; 20]);
    let report = |source| {
        let ip = Ipv6 {
            hops: 1,
            ..Ipv6::new(source, ALL_MLD_ROUTERS)
        };
        ip.with(vec![Extension::router_alert()])
    };
    list.floods("an MLDv2 report", a, send(&report(a.link_local()), 143));
    let nameless = report(Ipv6Addr::UNSPECIFIED);
    list.floods(
        "an MLDv2 report without an address",
        a,
        send(&nameless, 143),
    );
    list.floods(
        "an MLDv1 report without an address",
        a,
        send(&nameless, 131),
    );
    let done = Ipv6 {
        destination: ALL_ROUTERS,
        ..nameless.clone()
    };
    list.floods("an MLD done without an address", a, send(&done, 132));
    let query = DropReason::ControlMessage;
    let frame = send(&nameless, 130);
    list.drops("an MLD query without an address", a, frame, query);
    let frame = send(&report(a.link_local()), 130);
    list.drops("an MLD query", a, frame, query);
    let spoofed = report(BLUE_B.link_local());
    let name = "an MLDv2 report in a neighbour's name";
    list.drops(name, a, send(&spoofed, 143), DropReason::SpoofedIp);
    let ping = Ipv6 {
        destination: ALL_NODES,
        ..nameless
    };
    list.drops(
        "a ping without an address",
        a,
        send(&ping, 128),
        DropReason::SpoofedIp,
    );
}
