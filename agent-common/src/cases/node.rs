//! List IP packets on the L3 network that the node routes for.
//!
//! The node's stack gets what a pod may send as it is, and nothing else.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::build::{
    ALL_NODES, Arp, Extension, IPPROTO_TCP, Ipv4, Ipv6, echo_body, group_mac_v4, group_mac_v6,
    solicitation, solicited_node, tcp_syn,
};
use super::{List, Pod};
use crate::addr::{GATEWAY_MAC, GATEWAY_V6, MacAddr};
use crate::drop::DropReason;
use crate::policy::{Decision, Family};
use crate::world::{GREEN_A, GREEN_B, TUNNEL_PORT, WHITE_A, WHITE_B};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const GATEWAY4: Ipv4Addr = Ipv4Addr::new(10, 30, 0, 1);
const PORTS: (u16, u16) = (4000, 5000);

pub(super) fn add(list: &mut List) {
    destinations(list);
    tunnels(list);
    hops_and_headers(list);
    sources(list);
    the_node_itself(list);
    the_gateway(list);
    groups(list);
    isolated(list);
}

fn v4(from: &Pod, to: Ipv4Addr) -> Vec<u8> {
    Ipv4::new(from.ip4, to).udp(GATEWAY_MAC, from.mac, PORTS)
}

fn v6(from: &Pod, to: Ipv6Addr) -> Vec<u8> {
    Ipv6::new(from.ip6, to).udp(GATEWAY_MAC, from.mac, PORTS)
}

/// Wherever it is: the node knows, and translates addresses.
fn destinations(list: &mut List) {
    let (a, b) = (&WHITE_A, &WHITE_B);
    for (name, ip) in [
        ("UDP, by the node", b.ip4),
        ("to a second IPv4 address, by the node", b.further_v4()),
        (
            "a free IPv4 address, by the node",
            Ipv4Addr::new(10, 30, 0, 99),
        ),
        (
            "an IPv4 address of an isolated network, by the node",
            GREEN_A.ip4,
        ),
        (
            "a public IPv4 address, by the node",
            Ipv4Addr::new(192, 0, 2, 1),
        ),
        (
            "a link-local IPv4 address, by the node",
            Ipv4Addr::new(169, 254, 20, 10),
        ),
    ] {
        list.goes_to_node(name, a, v4(a, ip));
    }
    for (name, ip) in [
        ("UDP over IPv6, by the node", b.ip6),
        ("to a second IPv6 address, by the node", b.further_v6()),
        (
            "a free IPv6 address, by the node",
            Ipv6Addr::new(0xfd30, 0x30, 0, 0, 0, 0, 0, 0x99),
        ),
        (
            "a public IPv6 address, by the node",
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        ),
    ] {
        list.goes_to_node(name, a, v6(a, ip));
    }
    let tcp = Ipv4::new(a.ip4, b.ip4).frame(GATEWAY_MAC, a.mac, IPPROTO_TCP, &tcp_syn());
    list.goes_to_node("TCP, by the node", a, tcp);
    let further = Ipv4::new(b.further_v4(), a.ip4).udp(GATEWAY_MAC, b.mac, PORTS);
    list.goes_to_node("from a second IPv4 address, by the node", b, further);
    let further = Ipv6::new(b.further_v6(), a.ip6).udp(GATEWAY_MAC, b.mac, PORTS);
    list.goes_to_node("from a second IPv6 address, by the node", b, further);
    list.drops("oneself, by the node", a, v4(a, a.ip4), DropReason::Hairpin);
    list.drops(
        "oneself, by the node, IPv6",
        a,
        v6(a, a.ip6),
        DropReason::Hairpin,
    );
    let past = Ipv4::new(a.ip4, b.ip4).udp(b.mac, a.mac, PORTS);
    list.drops("past the node", a, past, DropReason::NoEndpoint);
    let past = Ipv6::new(a.ip6, b.ip6).udp(b.mac, a.mac, PORTS);
    list.drops("past the node, IPv6", a, past, DropReason::NoEndpoint);
}

/// Where the node translates addresses, pods have its own towards other nodes.
fn tunnels(list: &mut List) {
    let (a, ports) = (&WHITE_A, (4000, TUNNEL_PORT));
    let drop = DropReason::TunnelPort;
    let node = Ipv4::new(a.ip4, Ipv4Addr::new(192, 0, 2, 1));
    let frame = node.udp(GATEWAY_MAC, a.mac, ports);
    list.drops("a tunnel, by the node", a, frame, drop);
    let pod = Ipv4::new(a.ip4, WHITE_B.ip4).udp(GATEWAY_MAC, a.mac, ports);
    list.drops("a tunnel to a neighbour, by the node", a, pod, drop);
    let node = Ipv6::new(a.ip6, Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    let frame = node.udp(GATEWAY_MAC, a.mac, ports);
    list.drops("a tunnel, by the node, IPv6", a, frame, drop);
}

fn hops_and_headers(list: &mut List) {
    let (a, b) = (&WHITE_A, &WHITE_B);
    // The node answers these with an error of its own, which is what traceroute lives on.
    for (name, ttl) in [("TTL 0, by the node", 0), ("TTL 1, by the node", 1)] {
        let ip = Ipv4 {
            ttl,
            ..Ipv4::new(a.ip4, b.ip4)
        };
        list.goes_to_node(name, a, ip.udp(GATEWAY_MAC, a.mac, PORTS));
    }
    let ip = Ipv6 {
        hops: 1,
        ..Ipv6::new(a.ip6, b.ip6)
    };
    let frame = ip.udp(GATEWAY_MAC, a.mac, PORTS);
    list.goes_to_node("hop limit 1, by the node", a, frame);
    let fragment = Ipv4 {
        fragment: 0x2000 | 185,
        ..Ipv4::new(a.ip4, b.ip4)
    };
    let frame = fragment.udp(GATEWAY_MAC, a.mac, PORTS);
    list.goes_to_node("a later IPv4 fragment, by the node", a, frame);
    let headers = Ipv6::new(a.ip6, b.ip6).with(Extension::chain(9));
    let frame = headers.udp(GATEWAY_MAC, a.mac, PORTS);
    list.drops(
        "nine extension headers, by the node",
        a,
        frame,
        DropReason::Ipv6Headers,
    );
}

fn sources(list: &mut List) {
    let (a, b) = (&WHITE_A, &WHITE_B);
    for (name, source) in [
        ("a neighbour's IPv4 address, by the node", b.ip4),
        (
            "a foreign IPv4 address, by the node",
            Ipv4Addr::new(192, 0, 2, 1),
        ),
        (
            "a loopback IPv4 address as source, by the node",
            Ipv4Addr::LOCALHOST,
        ),
        ("no IPv4 address, by the node", Ipv4Addr::UNSPECIFIED),
    ] {
        let frame = Ipv4::new(source, b.ip4).udp(GATEWAY_MAC, a.mac, PORTS);
        list.drops(name, a, frame, DropReason::SpoofedIp);
    }
    for (name, source) in [
        ("a neighbour's IPv6 address, by the node", b.ip6),
        (
            "the loopback IPv6 address as source, by the node",
            Ipv6Addr::LOCALHOST,
        ),
        ("no IPv6 address, by the node", Ipv6Addr::UNSPECIFIED),
    ] {
        let frame = Ipv6::new(source, b.ip6).udp(GATEWAY_MAC, a.mac, PORTS);
        list.drops(name, a, frame, DropReason::SpoofedIp);
    }
    let frame = Ipv4::new(a.ip4, b.ip4).udp(GATEWAY_MAC, b.mac, PORTS);
    list.drops(
        "a neighbour's MAC address, by the node",
        a,
        frame,
        DropReason::SpoofedMac,
    );
    let frame = Ipv6::new(a.link_local(), b.ip6).udp(GATEWAY_MAC, a.mac, PORTS);
    list.drops(
        "from a link-local address, by the node",
        a,
        frame,
        DropReason::LinkLocal,
    );
    let frame = Ipv6::new(a.ip6, b.link_local()).udp(GATEWAY_MAC, a.mac, PORTS);
    list.drops(
        "a link-local IPv6 address, by the node",
        a,
        frame,
        DropReason::LinkLocal,
    );
    let discover = Ipv4::new(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
    let frame = discover.udp(MacAddr::BROADCAST, a.mac, (68, 67));
    list.drops("a DHCP discover, by the node", a, frame, DropReason::Dhcp);
}

/// Adds packets that the node's stack would take for its own, from any sender.
fn the_node_itself(list: &mut List) {
    let a = &WHITE_A;
    for (name, ip) in [
        ("the node's loopback address", Ipv4Addr::LOCALHOST),
        (
            "another loopback address of the node",
            Ipv4Addr::new(127, 9, 9, 9),
        ),
        ("no IPv4 address as destination", Ipv4Addr::UNSPECIFIED),
    ] {
        list.drops(name, a, v4(a, ip), DropReason::NoEndpoint);
    }
    for (name, ip) in [
        ("the node's IPv6 loopback address", Ipv6Addr::LOCALHOST),
        ("no IPv6 address as destination", Ipv6Addr::UNSPECIFIED),
    ] {
        list.drops(name, a, v6(a, ip), DropReason::NoEndpoint);
    }
    let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
    list.drops(
        "the node's loopback address as IPv6 destination",
        a,
        v6(a, mapped),
        DropReason::Malformed,
    );
}

fn the_gateway(list: &mut List) {
    let a = &WHITE_A;
    let ip = Ipv4::new(a.ip4, GATEWAY4);
    let back = Ipv4::new(GATEWAY4, a.ip4);
    let frames = [
        ip.icmp(GATEWAY_MAC, a.mac, 8, 0),
        back.icmp(a.mac, GATEWAY_MAC, 0, 0),
    ];
    list.answers(
        "ping of the gateway before the node",
        a,
        frames,
        Decision::EchoReply(Family::V4, 34),
    );
    let (ip, back) = (Ipv6::new(a.ip6, GATEWAY_V6), Ipv6::new(GATEWAY_V6, a.ip6));
    let body = echo_body();
    let frames = [
        ip.icmp(GATEWAY_MAC, a.mac, 128, 0, &body),
        back.icmp(a.mac, GATEWAY_MAC, 129, 0, &body),
    ];
    list.answers(
        "ping of the gateway before the node, IPv6",
        a,
        frames,
        Decision::EchoReply(Family::V6, 54),
    );
    list.drops(
        "UDP for the gateway before the node",
        a,
        v4(a, GATEWAY4),
        DropReason::Gateway,
    );
    let question = Arp::request((a.mac, a.ip4), GATEWAY4);
    let answer = Arp::reply((GATEWAY_MAC, GATEWAY4), (a.mac, a.ip4));
    list.answers(
        "who has the gateway before the node",
        a,
        [
            question.frame(MacAddr::BROADCAST, a.mac),
            answer.frame(a.mac, GATEWAY_MAC),
        ],
        Decision::ArpReply(GATEWAY_MAC),
    );
    let question = Arp::request((a.mac, a.ip4), Ipv4Addr::new(192, 0, 2, 1));
    list.drops(
        "who has an address that only the node knows",
        a,
        question.frame(MacAddr::BROADCAST, a.mac),
        DropReason::NoEndpoint,
    );
    let free = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let group = solicited_node(free);
    let asked = Ipv6::neighbour(a.ip6, group);
    let frame = asked.icmp(group_mac_v6(group), a.mac, 135, 0, &solicitation(free, &[]));
    list.drops(
        "solicit an address that only the node knows",
        a,
        frame,
        DropReason::NoEndpoint,
    );
}

fn groups(list: &mut List) {
    let (a, drop) = (&WHITE_A, DropReason::Multicast);
    for (name, ip) in [
        ("an IPv4 group by way of the node", GROUP),
        (
            "the IPv4 broadcast address by way of the node",
            Ipv4Addr::BROADCAST,
        ),
        (
            "a reserved IPv4 address by way of the node",
            Ipv4Addr::new(240, 0, 0, 1),
        ),
    ] {
        list.drops(name, a, v4(a, ip), drop);
    }
    list.drops(
        "an IPv6 group by way of the node",
        a,
        v6(a, ALL_NODES),
        drop,
    );
    let frame = Ipv4::new(a.ip4, GROUP).udp(group_mac_v4(GROUP), a.mac, PORTS);
    list.drops("an IPv4 multicast, by the node", a, frame, drop);
    let frame = Ipv6::new(a.ip6, ALL_NODES).udp(group_mac_v6(ALL_NODES), a.mac, PORTS);
    list.drops("an IPv6 multicast, by the node", a, frame, drop);
    let frame = Ipv4::new(a.ip4, WHITE_B.ip4).udp(MacAddr::BROADCAST, a.mac, PORTS);
    list.drops("a neighbour by broadcast, by the node", a, frame, drop);
}

/// No other network has a way there, not even to pods that the node routes for.
fn isolated(list: &mut List) {
    let (a, b) = (&GREEN_A, &GREEN_B);
    let none = DropReason::NoEndpoint;
    let frame = v4(a, WHITE_A.ip4);
    list.drops(
        "from an isolated network to one of the node",
        a,
        frame,
        none,
    );
    let frame = v6(b, WHITE_A.ip6);
    list.drops(
        "from an isolated network to one of the node, IPv6",
        b,
        frame,
        none,
    );
}
