//! List IP packets between networks that their virtual gateways lead to each other.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::build::{Arp, Ipv4, Ipv6, advertisement, link_address};
use super::{List, Pod};
use crate::addr::{GATEWAY_MAC, MacAddr};
use crate::drop::DropReason;
use crate::policy::{Decision, Family};
use crate::world::{AMBER_A, CORAL_A, CORAL_OUT, GREEN_A, JADE_A, JADE_B, PEARL_A};

const PORTS: (u16, u16) = (4000, 5000);
/// In the prefix of both networks, and no network's.
const FREE4: Ipv4Addr = Ipv4Addr::new(10, 72, 0, 1);

pub(super) fn add(list: &mut List) {
    across(list);
    refused(list);
    from_outside(list);
    switched(list);
}

/// Builds the frame of `from`, and that at `to`, one hop later.
fn v4(from: &Pod, to: &Pod, ttl: u8) -> [Vec<u8>; 2] {
    [
        (GATEWAY_MAC, from.mac, ttl),
        (to.mac, GATEWAY_MAC, ttl.saturating_sub(1)),
    ]
    .map(|(to_mac, from_mac, ttl)| {
        let ip = Ipv4 {
            ttl,
            ..Ipv4::new(from.ip4, to.ip4)
        };
        ip.udp(to_mac, from_mac, PORTS)
    })
}

fn v6(from: &Pod, to: &Pod) -> [Vec<u8>; 2] {
    [(GATEWAY_MAC, from.mac, 64), (to.mac, GATEWAY_MAC, 63)].map(|(to_mac, from_mac, hops)| {
        let ip = Ipv6 {
            hops,
            ..Ipv6::new(from.ip6, to.ip6)
        };
        ip.udp(to_mac, from_mac, PORTS)
    })
}

/// Builds the frame of `from` to an address.
fn to(from: &Pod, ip: Ipv4Addr) -> Vec<u8> {
    Ipv4::new(from.ip4, ip).udp(GATEWAY_MAC, from.mac, PORTS)
}

fn across(list: &mut List) {
    let (a, b) = (&CORAL_A, &PEARL_A);
    list.routes_v4("IPv4 to a network of the VPC", v4(a, b, 64), a, b);
    list.routes_v4("IPv4 back", v4(b, a, 64), b, a);
    list.routes_v6("IPv6 to a network of the VPC", v6(a, b), a, b);
    list.routes_v6("IPv6 back from a network of the VPC", v6(b, a), b, a);
}

fn refused(list: &mut List) {
    let (a, b) = (&CORAL_A, &PEARL_A);
    let [spent, _] = v4(a, b, 1);
    list.drops("TTL 1 to a network of the VPC", a, spent, DropReason::Ttl);
    let reason = DropReason::NoEndpoint;
    list.drops(
        "a free address of another network of the VPC, not by the way out",
        a,
        to(a, Ipv4Addr::new(10, 71, 0, 99)),
        reason,
    );
    list.drops(
        "an address of the VPC that no network has, not by the way out",
        a,
        to(a, FREE4),
        reason,
    );
    list.drops(
        "a free address of the own network in a VPC, not by the way out",
        a,
        to(a, Ipv4Addr::new(10, 70, 0, 99)),
        reason,
    );
    list.drops(
        "to a network that does not lead back",
        a,
        to(a, GREEN_A.ip4),
        DropReason::SpoofedIp,
    );
    list.drops(
        "an address of a network of no VPC",
        b,
        to(b, GREEN_A.ip4),
        reason,
    );
    list.drops(
        "to a network of a VPC from one that is in none",
        &GREEN_A,
        to(&GREEN_A, b.ip4),
        reason,
    );
    list.drops(
        "with the address of another network of the VPC",
        a,
        Ipv4::new(b.ip4, b.ip4).udp(GATEWAY_MAC, a.mac, PORTS),
        DropReason::SpoofedIp,
    );
}

/// Packets from outside: none of a member, and none for another network.
fn from_outside(list: &mut List) {
    let out = &CORAL_OUT;
    let v4 = |source, to| Ipv4::new(source, to).udp(GATEWAY_MAC, out.mac, PORTS);
    let spoofed = DropReason::SpoofedIp;
    list.drops(
        "from outside with an address of another network of the VPC",
        out,
        v4(PEARL_A.ip4, CORAL_A.ip4),
        spoofed,
    );
    list.drops(
        "from outside with a free address of the VPC",
        out,
        v4(FREE4, CORAL_A.ip4),
        spoofed,
    );
    list.drops(
        "from outside to another network of the VPC",
        out,
        v4(Ipv4Addr::new(192, 0, 2, 7), PEARL_A.ip4),
        DropReason::NoEndpoint,
    );
    let v6 = Ipv6::new(PEARL_A.ip6, CORAL_A.ip6).udp(GATEWAY_MAC, out.mac, PORTS);
    list.drops(
        "from outside with an IPv6 address of another network of the VPC",
        out,
        v6,
        spoofed,
    );
    let outside = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
    list.drops(
        "IPv6 to an address of another network's VPC",
        &AMBER_A,
        Ipv6::new(PEARL_A.ip6, outside).udp(GATEWAY_MAC, AMBER_A.mac, PORTS),
        spoofed,
    );
}

/// An L2 network: its members are on a segment, and the gateway is a station of it.
fn switched(list: &mut List) {
    let (a, b) = (&JADE_A, &PEARL_A);
    let gateway = Ipv4Addr::new(10, 73, 0, 1);
    list.routes_v4("from an L2 network by the gateway", v4(a, b, 64), a, b);
    list.routes_v4("to an L2 network by the gateway", v4(b, a, 64), b, a);
    list.routes_v6("IPv6 from an L2 network by the gateway", v6(a, b), a, b);
    list.routes_v6("IPv6 to an L2 network by the gateway", v6(b, a), b, a);
    let [spent, _] = v4(a, b, 1);
    list.drops("TTL 1 from an L2 network", a, spent, DropReason::Ttl);
    let reason = DropReason::NoEndpoint;
    list.drops(
        "to an address of the VPC that no network has, from an L2 network",
        a,
        to(a, FREE4),
        reason,
    );
    list.drops(
        "past the gateway, to the MAC address of a pod of another network",
        a,
        Ipv4::new(a.ip4, b.ip4).udp(b.mac, a.mac, PORTS),
        reason,
    );
    // Of the link, and it would not be judged by policies.
    for (name, kind, body) in [
        ("router solicitation to another network", 133, vec![0; 4]),
        (
            "neighbour advertisement to another network",
            136,
            advertisement(0x20, a.ip6, &link_address(2, a.mac)),
        ),
        ("listener report to another network", 131, vec![0x41; 900]),
    ] {
        let frame = Ipv6::neighbour(a.ip6, b.ip6).icmp(GATEWAY_MAC, a.mac, kind, 0, &body);
        list.drops(name, a, frame, reason);
    }
    // A neighbour by way of the gateway is one all the same.
    let frame = to(a, JADE_B.ip4);
    list.moves("to a neighbour by the gateway", a, frame, &JADE_B);
    let question = Arp::request((a.mac, a.ip4), gateway);
    let answer = Arp::reply((GATEWAY_MAC, gateway), (a.mac, a.ip4));
    list.answers(
        "ARP for the gateway of an L2 network in a VPC",
        a,
        [
            question.frame(MacAddr::BROADCAST, a.mac),
            answer.frame(a.mac, GATEWAY_MAC),
        ],
        Decision::ArpReply(GATEWAY_MAC),
    );
    let ping = |from, to, kind, macs: (MacAddr, MacAddr)| {
        Ipv4::new(from, to).icmp(macs.0, macs.1, kind, 0)
    };
    list.answers(
        "ping of the gateway of an L2 network in a VPC",
        a,
        [
            ping(a.ip4, gateway, 8, (GATEWAY_MAC, a.mac)),
            ping(gateway, a.ip4, 0, (a.mac, GATEWAY_MAC)),
        ],
        Decision::EchoReply(Family::V4, 34),
    );
}
