//! List IP packets on the L3 network with a way out.
//!
//! Packets for addresses that no member has go there, and packets that come from there reach the pods.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::build::{
    Arp, Extension, IPPROTO_TCP, Ipv4, Ipv6, group_mac_v6, solicitation, solicited_node, tcp_syn,
};
use super::{List, Pod};
use crate::addr::{GATEWAY_MAC, MacAddr};
use crate::drop::DropReason;
use crate::world::{AMBER_A, AMBER_B, AMBER_OUT, GREEN_A, TUNNEL_PORT};

const PORTS: (u16, u16) = (4000, 5000);
const BEYOND4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
const BEYOND6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
const GATEWAY4: Ipv4Addr = Ipv4Addr::new(10, 40, 0, 1);

pub(super) fn add(list: &mut List) {
    leaving(list);
    tunnels(list);
    staying(list);
    sources(list);
    entering(list);
    not_entering(list);
}

/// Builds the frame of `from`, and that at the way out, one hop later.
fn v4(from: &Pod, to: Ipv4Addr, ttl: u8) -> [Vec<u8>; 2] {
    let ip = Ipv4 {
        ttl,
        ..Ipv4::new(from.ip4, to)
    };
    [(GATEWAY_MAC, from.mac), (AMBER_OUT.mac, GATEWAY_MAC)]
        .map(|(to, from)| ip.udp(to, from, PORTS))
}

fn v6(from: &Pod, to: Ipv6Addr, hops: u8) -> [Vec<u8>; 2] {
    let ip = Ipv6 {
        hops,
        ..Ipv6::new(from.ip6, to)
    };
    [(GATEWAY_MAC, from.mac), (AMBER_OUT.mac, GATEWAY_MAC)]
        .map(|(to, from)| ip.udp(to, from, PORTS))
}

fn leaving(list: &mut List) {
    let a = &AMBER_A;
    for (name, ip) in [
        ("a public IPv4 address, by the way out", BEYOND4),
        // The way out sends these back, where they end.
        (
            "a free IPv4 address of the network, by the way out",
            Ipv4Addr::new(10, 40, 0, 99),
        ),
        (
            "an IPv4 address of another network, by the way out",
            GREEN_A.ip4,
        ),
    ] {
        list.leaves(name, v4(a, ip, 64), a);
    }
    for (name, ip) in [
        ("a public IPv6 address, by the way out", BEYOND6),
        (
            "a free IPv6 address of the network, by the way out",
            Ipv6Addr::new(0xfd40, 0x40, 0, 0, 0, 0, 0, 0x99),
        ),
        (
            "an IPv6 address of another network, by the way out",
            GREEN_A.ip6,
        ),
    ] {
        list.leaves(name, v6(a, ip, 64), a);
    }
    // The way out answers these with an error, which is what traceroute lives on.
    list.leaves("TTL 1, by the way out", v4(a, BEYOND4, 1), a);
    list.leaves("hop limit 1, by the way out", v6(a, BEYOND6, 1), a);
    let ip = Ipv4::new(a.ip4, BEYOND4);
    let tcp = [(GATEWAY_MAC, a.mac), (AMBER_OUT.mac, GATEWAY_MAC)]
        .map(|(to, from)| ip.frame(to, from, IPPROTO_TCP, &tcp_syn()));
    list.leaves("TCP, by the way out", tcp, a);
    let further = Ipv4::new(AMBER_B.further_v4(), BEYOND4);
    let frames = [(GATEWAY_MAC, AMBER_B.mac), (AMBER_OUT.mac, GATEWAY_MAC)]
        .map(|(to, from)| further.udp(to, from, PORTS));
    list.leaves(
        "from a second IPv4 address, by the way out",
        frames,
        &AMBER_B,
    );
}

/// Lists packets to the tunnel port, which the way out must not carry.
///
/// The way out gives a pod its node's address, by which other nodes know whose tunnel a packet is of.
fn tunnels(list: &mut List) {
    let (a, ports) = (&AMBER_A, (4000, TUNNEL_PORT));
    let drop = DropReason::TunnelPort;
    let (v4, v6) = (Ipv4::new(a.ip4, BEYOND4), Ipv6::new(a.ip6, BEYOND6));
    let options = Ipv4 {
        options: vec![0x94, 4, 0, 0],
        ..v4.clone()
    };
    let first = Ipv4 {
        fragment: 0x2000,
        ..v4.clone()
    };
    let later = Ipv4 {
        fragment: 0x2000 | 185,
        ..v4.clone()
    };
    for (name, ip) in [
        ("a tunnel to the outside", &v4),
        ("a tunnel to the outside, with IPv4 options", &options),
        ("a tunnel to the outside, first fragment", &first),
    ] {
        list.drops(name, a, ip.udp(GATEWAY_MAC, a.mac, ports), drop);
    }
    for (name, extensions) in [
        ("a tunnel to the outside, IPv6", vec![]),
        (
            "a tunnel to the outside behind eight extension headers",
            Extension::chain(8),
        ),
        (
            "a tunnel to the outside, first IPv6 fragment",
            vec![Extension::fragment(0, true)],
        ),
    ] {
        let frame = v6.clone().with(extensions).udp(GATEWAY_MAC, a.mac, ports);
        list.drops(name, a, frame, drop);
    }
    // Without the first it comes to nothing, and its bytes are no ports.
    let frames = [(GATEWAY_MAC, a.mac), (AMBER_OUT.mac, GATEWAY_MAC)];
    let frame = frames.map(|(to, from)| later.udp(to, from, ports));
    list.leaves("a later fragment with a tunnel's bytes", frame, a);
    let back = frames.map(|(to, from)| v4.udp(to, from, (TUNNEL_PORT, 5000)));
    list.leaves("from a tunnel's port to another one", back, a);
    let within = Ipv4::new(a.ip4, AMBER_B.ip4);
    let nearer = Ipv4 {
        ttl: 63,
        ..within.clone()
    };
    let frames = [
        within.udp(GATEWAY_MAC, a.mac, ports),
        nearer.udp(AMBER_B.mac, GATEWAY_MAC, ports),
    ];
    list.routes_v4("a tunnel to a neighbour", frames, a, &AMBER_B);
}

fn staying(list: &mut List) {
    let a = &AMBER_A;
    let one = |[frame, _]: [Vec<u8>; 2]| frame;
    for (name, ip, reason) in [
        (
            "the node's metadata service, with a way out",
            Ipv4Addr::new(169, 254, 169, 254),
            DropReason::LinkLocal,
        ),
        (
            "a loopback address, with a way out",
            Ipv4Addr::new(127, 0, 0, 53),
            DropReason::NoEndpoint,
        ),
        (
            "no IPv4 address, with a way out",
            Ipv4Addr::UNSPECIFIED,
            DropReason::NoEndpoint,
        ),
        (
            "everybody by broadcast, with a way out",
            Ipv4Addr::BROADCAST,
            DropReason::Multicast,
        ),
        (
            "an IPv4 group at the gateway's MAC address, with a way out",
            Ipv4Addr::new(239, 1, 2, 3),
            DropReason::Multicast,
        ),
    ] {
        list.drops(name, a, one(v4(a, ip, 64)), reason);
    }
    for (name, ip, reason) in [
        (
            "no IPv6 address, which stands for the way out",
            Ipv6Addr::UNSPECIFIED,
            DropReason::NoEndpoint,
        ),
        (
            "the IPv6 loopback address, with a way out",
            Ipv6Addr::LOCALHOST,
            DropReason::NoEndpoint,
        ),
        (
            "a link-local IPv6 address, with a way out",
            Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9),
            DropReason::LinkLocal,
        ),
        (
            "an IPv6 group at the gateway's MAC address, with a way out",
            Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 9),
            DropReason::Multicast,
        ),
    ] {
        list.drops(name, a, one(v6(a, ip, 64)), reason);
    }
    let past = Ipv4::new(a.ip4, BEYOND4).udp(AMBER_OUT.mac, a.mac, PORTS);
    list.drops(
        "past the gateway to the way out",
        a,
        past,
        DropReason::NoEndpoint,
    );
    let request = Ipv4::new(a.ip4, BEYOND4).udp(GATEWAY_MAC, a.mac, (68, 67));
    list.drops("DHCP for the outside", a, request, DropReason::Dhcp);
    let question = Arp::request((a.mac, a.ip4), BEYOND4);
    let frame = question.frame(MacAddr::BROADCAST, a.mac);
    list.drops(
        "who has an address outside",
        a,
        frame,
        DropReason::NoEndpoint,
    );
    let none = Ipv6Addr::UNSPECIFIED;
    let group = solicited_node(none);
    let asked = Ipv6::neighbour(a.ip6, group);
    let frame = asked.icmp(group_mac_v6(group), a.mac, 135, 0, &solicitation(none, &[]));
    list.drops("who is the way out", a, frame, DropReason::NoEndpoint);
    let routed = Ipv4::new(a.ip4, AMBER_B.ip4);
    let nearer = Ipv4 {
        ttl: 63,
        ..routed.clone()
    };
    let frames = [
        routed.udp(GATEWAY_MAC, a.mac, PORTS),
        nearer.udp(AMBER_B.mac, GATEWAY_MAC, PORTS),
    ];
    list.routes_v4("to a neighbour, with a way out", frames, a, &AMBER_B);
}

fn sources(list: &mut List) {
    let a = &AMBER_A;
    for (name, source) in [
        (
            "from a neighbour's IPv4 address to the outside",
            AMBER_B.ip4,
        ),
        ("from an outside IPv4 address to the outside", BEYOND4),
    ] {
        let frame = Ipv4::new(source, BEYOND4).udp(GATEWAY_MAC, a.mac, PORTS);
        list.drops(name, a, frame, DropReason::SpoofedIp);
    }
    let frame = Ipv6::new(AMBER_B.ip6, BEYOND6).udp(GATEWAY_MAC, a.mac, PORTS);
    list.drops(
        "from a neighbour's IPv6 address to the outside",
        a,
        frame,
        DropReason::SpoofedIp,
    );
    let frame = Ipv6::new(a.link_local(), BEYOND6).udp(GATEWAY_MAC, a.mac, PORTS);
    list.drops(
        "from a link-local address to the outside",
        a,
        frame,
        DropReason::LinkLocal,
    );
}

fn entering(list: &mut List) {
    let (a, out) = (&AMBER_A, &AMBER_OUT);
    let frames4 = |source, ttl: u8| {
        let ip = Ipv4 {
            ttl,
            ..Ipv4::new(source, a.ip4)
        };
        let nearer = Ipv4 {
            ttl: ttl.saturating_sub(1),
            ..ip.clone()
        };
        [
            ip.udp(GATEWAY_MAC, out.mac, PORTS),
            nearer.udp(a.mac, GATEWAY_MAC, PORTS),
        ]
    };
    list.routes_v4("from outside", frames4(BEYOND4, 64), out, a);
    // Of too many hops the way out tells by this address.
    list.routes_v4("from the gateway's address", frames4(GATEWAY4, 64), out, a);
    let [late, _] = frames4(BEYOND4, 1);
    list.drops("from outside with TTL 1", out, late, DropReason::Ttl);
    let ip = Ipv6::new(BEYOND6, a.ip6);
    let nearer = Ipv6 {
        hops: 63,
        ..ip.clone()
    };
    let frames = [
        ip.udp(GATEWAY_MAC, out.mac, PORTS),
        nearer.udp(a.mac, GATEWAY_MAC, PORTS),
    ];
    list.routes_v6("from outside, IPv6", frames, out, a);
}

fn not_entering(list: &mut List) {
    let (a, b, out) = (&AMBER_A, &AMBER_B, &AMBER_OUT);
    let v4 = |from, to| Ipv4::new(from, to).udp(GATEWAY_MAC, out.mac, PORTS);
    let v6 = |from, to| Ipv6::new(from, to).udp(GATEWAY_MAC, out.mac, PORTS);
    let none = Ipv6Addr::UNSPECIFIED;
    for (name, frame, reason) in [
        (
            "from outside as a pod of the network",
            v4(b.ip4, a.ip4),
            DropReason::SpoofedIp,
        ),
        (
            "from outside as a pod of the network, IPv6",
            v6(b.ip6, a.ip6),
            DropReason::SpoofedIp,
        ),
        (
            "from outside as nobody, IPv6",
            v6(none, a.ip6),
            DropReason::SpoofedIp,
        ),
        (
            "sent back by the way out",
            v4(a.ip4, Ipv4Addr::new(10, 40, 0, 99)),
            DropReason::NoEndpoint,
        ),
        (
            "sent back by the way out, IPv6",
            v6(a.ip6, Ipv6Addr::new(0xfd40, 0x40, 0, 0, 0, 0, 0, 0x99)),
            DropReason::NoEndpoint,
        ),
        (
            "from outside to a pod of another network",
            v4(BEYOND4, GREEN_A.ip4),
            DropReason::NoEndpoint,
        ),
        (
            "from outside to the way out itself",
            v6(BEYOND6, none),
            DropReason::NoEndpoint,
        ),
        (
            "from outside to the gateway",
            v4(BEYOND4, GATEWAY4),
            DropReason::Gateway,
        ),
        (
            "from outside to a link-local address",
            v6(BEYOND6, a.link_local()),
            DropReason::LinkLocal,
        ),
    ] {
        list.drops(name, out, frame, reason);
    }
    let mac = Ipv4::new(BEYOND4, a.ip4).udp(GATEWAY_MAC, b.mac, PORTS);
    list.drops(
        "from outside with a pod's MAC address",
        out,
        mac,
        DropReason::SpoofedMac,
    );
}
