//! List pings of the virtual gateway.
//!
//! A ping is all that the gateway answers besides ARP and neighbour discovery.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::List;
use super::build::{Extension, IPPROTO_TCP, Ipv4, Ipv6, echo_body, tcp_syn};
use crate::addr::{GATEWAY_MAC, GATEWAY_V6, MacAddr};
use crate::drop::DropReason;
use crate::packet::{IPPROTO_DSTOPTS, IPPROTO_ICMP, IPPROTO_ICMPV6};
use crate::policy::{Decision, Family};
use crate::world::{BLUE_A, GREEN_A, GREEN_C};

const GATEWAY4: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 1);
const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfd20, 0x20, 0, 0, 0, 0, 0, 1);
const PORTS: (u16, u16) = (4000, 5000);

pub(super) fn add(list: &mut List) {
    answered_v4(list);
    answered_v6(list);
    refused_v4(list);
    refused_v6(list);
}

/// Builds a ping of the gateway and its answer.
///
/// The answer has the same fields but for addresses and type.
fn ping4(ip: &Ipv4, from: MacAddr) -> [Vec<u8>; 2] {
    let back = Ipv4 {
        source: ip.destination,
        destination: ip.source,
        ..ip.clone()
    };
    [
        ip.icmp(GATEWAY_MAC, from, 8, 0),
        back.icmp(from, GATEWAY_MAC, 0, 0),
    ]
}

fn ping6(ip: &Ipv6, from: MacAddr) -> [Vec<u8>; 2] {
    let back = Ipv6 {
        source: ip.destination,
        destination: ip.source,
        ..ip.clone()
    };
    let body = echo_body();
    [
        ip.icmp(GATEWAY_MAC, from, 128, 0, &body),
        back.icmp(from, GATEWAY_MAC, 129, 0, &body),
    ]
}

fn answered_v4(list: &mut List) {
    let (a, c) = (&GREEN_A, &GREEN_C);
    let at = |offset| Decision::EchoReply(Family::V4, offset);
    let ip = Ipv4::new(a.ip4, GATEWAY4);
    list.answers("ping of the gateway", a, ping4(&ip, a.mac), at(34));
    let further = Ipv4::new(c.further_v4(), GATEWAY4);
    list.answers(
        "ping from a second address",
        c,
        ping4(&further, c.mac),
        at(34),
    );
    let last = Ipv4 {
        ttl: 1,
        ..ip.clone()
    };
    list.answers("ping with TTL 1", a, ping4(&last, a.mac), at(34));
    let options = Ipv4 {
        options: vec![1, 1, 1, 0],
        ..ip.clone()
    };
    list.answers("ping with IPv4 options", a, ping4(&options, a.mac), at(38));
    let most = Ipv4 {
        options: vec![1; 40],
        ..ip.clone()
    };
    list.answers(
        "ping with 40 bytes of IPv4 options",
        a,
        ping4(&most, a.mac),
        at(74),
    );
    let whole = Ipv4 {
        fragment: 0x4000,
        ..ip
    };
    list.answers(
        "ping that must not be fragmented",
        a,
        ping4(&whole, a.mac),
        at(34),
    );
}

fn answered_v6(list: &mut List) {
    let (a, c) = (&GREEN_A, &GREEN_C);
    let at = |offset| Decision::EchoReply(Family::V6, offset);
    let ip = Ipv6::new(a.ip6, GATEWAY6);
    list.answers(
        "ping of the gateway over IPv6",
        a,
        ping6(&ip, a.mac),
        at(54),
    );
    let local = Ipv6::new(a.link_local(), GATEWAY_V6);
    let name = "ping of the gateway's link-local address";
    list.answers(name, a, ping6(&local, a.mac), at(54));
    let further = Ipv6::new(c.further_v6(), GATEWAY_V6);
    list.answers(
        "ping from a second IPv6 address",
        c,
        ping6(&further, c.mac),
        at(54),
    );
    let last = Ipv6 {
        hops: 1,
        ..ip.clone()
    };
    list.answers("ping with hop limit 1", a, ping6(&last, a.mac), at(54));
    let options = ip.with(vec![Extension::options(IPPROTO_DSTOPTS, 1)]);
    list.answers(
        "ping behind destination options",
        a,
        ping6(&options, a.mac),
        at(70),
    );
}

fn refused_v4(list: &mut List) {
    let a = &GREEN_A;
    let drop = DropReason::Gateway;
    let ip = Ipv4::new(a.ip4, GATEWAY4);
    let icmp = |kind, code| ip.icmp(GATEWAY_MAC, a.mac, kind, code);
    list.drops(
        "UDP to the gateway",
        a,
        ip.udp(GATEWAY_MAC, a.mac, PORTS),
        drop,
    );
    let frame = ip.frame(GATEWAY_MAC, a.mac, IPPROTO_TCP, &tcp_syn());
    list.drops("TCP to the gateway", a, frame, drop);
    list.drops("an echo request with code 1", a, icmp(8, 1), drop);
    list.drops("an echo reply to the gateway", a, icmp(0, 0), drop);
    list.drops("a timestamp request to the gateway", a, icmp(13, 0), drop);
    let first = Ipv4 {
        fragment: 0x2000,
        ..ip.clone()
    }
    .icmp(GATEWAY_MAC, a.mac, 8, 0);
    list.drops("a ping in fragments", a, first, drop);
    let later = Ipv4 {
        fragment: 185,
        ..ip.clone()
    }
    .icmp(GATEWAY_MAC, a.mac, 8, 0);
    list.drops("a later fragment to the gateway", a, later, drop);
    let short = ip.frame(
        GATEWAY_MAC,
        a.mac,
        IPPROTO_ICMP,
        &[8, 0, 0xf7, 0xff, 0, 0, 0],
    );
    list.drops("a ping one byte short", a, short, DropReason::Truncated);
    let none = ip.frame(GATEWAY_MAC, a.mac, IPPROTO_ICMP, &[]);
    list.drops("a ping without its header", a, none, DropReason::Truncated);
    let frame = ip.icmp(MacAddr::BROADCAST, a.mac, 8, 0);
    list.drops(
        "a ping of the gateway by broadcast",
        a,
        frame,
        DropReason::Multicast,
    );
    let spoofed = Ipv4::new(GREEN_C.ip4, GATEWAY4).icmp(GATEWAY_MAC, a.mac, 8, 0);
    list.drops(
        "a ping in a neighbour's name",
        a,
        spoofed,
        DropReason::SpoofedIp,
    );
    let b = &BLUE_A;
    let frame = Ipv4::new(b.ip4, GATEWAY4).icmp(GATEWAY_MAC, b.mac, 8, 0);
    list.drops(
        "a ping of another network's gateway",
        b,
        frame,
        DropReason::NoEndpoint,
    );
}

fn refused_v6(list: &mut List) {
    let a = &GREEN_A;
    let drop = DropReason::Gateway;
    let ip = Ipv6::new(a.ip6, GATEWAY6);
    list.drops(
        "UDP over IPv6 to the gateway",
        a,
        ip.udp(GATEWAY_MAC, a.mac, PORTS),
        drop,
    );
    let icmp = |kind, code| ip.icmp(GATEWAY_MAC, a.mac, kind, code, &echo_body());
    list.drops("an ICMPv6 echo request with code 1", a, icmp(128, 1), drop);
    list.drops("an ICMPv6 echo reply to the gateway", a, icmp(129, 0), drop);
    list.drops("an ICMPv6 error to the gateway", a, icmp(1, 0), drop);
    let first = ip.clone().with(vec![Extension::fragment(0, false)]);
    let [frame, _] = ping6(&first, a.mac);
    list.drops("a ping over IPv6 in a fragment", a, frame, drop);
    let short = ip.frame(GATEWAY_MAC, a.mac, IPPROTO_ICMPV6, &[128, 0, 0, 0, 0, 0, 0]);
    list.drops(
        "a ping over IPv6 one byte short",
        a,
        short,
        DropReason::Truncated,
    );
    let other = Ipv4::new(a.ip4, GATEWAY4);
    let frame = other.frame(
        GATEWAY_MAC,
        a.mac,
        IPPROTO_ICMPV6,
        &[128, 0, 0, 0, 0, 0, 0, 0],
    );
    list.drops("ICMPv6 in IPv4 to the gateway", a, frame, drop);
    let frame = ip.frame(GATEWAY_MAC, a.mac, IPPROTO_ICMP, &[8, 0, 0, 0, 0, 0, 0, 0]);
    list.drops("ICMP in IPv6 to the gateway", a, frame, drop);
}
