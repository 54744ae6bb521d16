//! IP on the L3 network: by destination address, through the virtual gateway.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::build::{
    ALL_NODES, Extension, IPPROTO_TCP, Ipv4, Ipv6, group_mac_v4, group_mac_v6, tcp_syn,
};
use super::{List, Pod};
use crate::addr::{GATEWAY_MAC, MacAddr};
use crate::drop::DropReason;
use crate::world::{BLUE_B, GREEN_A, GREEN_B, GREEN_C};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const PORTS: (u16, u16) = (4000, 5000);

pub(super) fn add(list: &mut List) {
    delivery(list);
    hops(list);
    sources(list);
    destinations(list);
    groups(list);
}

/// Builds the frame of `from` to the gateway, and that which reaches `to`.
fn v4(ip: &Ipv4, from: &Pod, to: &Pod) -> [Vec<u8>; 2] {
    let farther = Ipv4 {
        ttl: ip.ttl.saturating_sub(1),
        ..ip.clone()
    };
    [
        ip.udp(GATEWAY_MAC, from.mac, PORTS),
        farther.udp(to.mac, GATEWAY_MAC, PORTS),
    ]
}

/// Builds the frame of `from` to the gateway, and that which reaches `to`.
fn v6(ip: &Ipv6, from: &Pod, to: &Pod) -> [Vec<u8>; 2] {
    let farther = Ipv6 {
        hops: ip.hops.saturating_sub(1),
        ..ip.clone()
    };
    [
        ip.udp(GATEWAY_MAC, from.mac, PORTS),
        farther.udp(to.mac, GATEWAY_MAC, PORTS),
    ]
}

fn delivery(list: &mut List) {
    let (a, b, c) = (&GREEN_A, &GREEN_B, &GREEN_C);
    let (ip4, ip6) = (Ipv4::new(a.ip4, b.ip4), Ipv6::new(a.ip6, b.ip6));
    list.routes_v4("UDP, L3", v4(&ip4, a, b), a, b);
    list.routes_v6("UDP over IPv6, L3", v6(&ip6, a, b), a, b);
    list.routes_v4(
        "to a receiver behind its host end, L3",
        v4(&Ipv4::new(a.ip4, c.ip4), a, c),
        a,
        c,
    );
    let further = Ipv4::new(a.ip4, c.further_v4());
    list.routes_v4("to a second IPv4 address, L3", v4(&further, a, c), a, c);
    let further = Ipv6::new(a.ip6, c.further_v6());
    list.routes_v6("to a second IPv6 address, L3", v6(&further, a, c), a, c);
    let further = Ipv4::new(c.further_v4(), a.ip4);
    list.routes_v4("from a second IPv4 address, L3", v4(&further, c, a), c, a);
    let further = Ipv6::new(c.further_v6(), a.ip6);
    list.routes_v6("from a second IPv6 address, L3", v6(&further, c, a), c, a);
    let options = Ipv4 {
        options: vec![1; 4],
        ..ip4.clone()
    };
    list.routes_v4("IPv4 with options, L3", v4(&options, a, b), a, b);
    let fragment = Ipv4 {
        fragment: 0x2000 | 185,
        ..ip4.clone()
    };
    list.routes_v4("a later IPv4 fragment, L3", v4(&fragment, a, b), a, b);
    let headers = ip6.clone().with(Extension::chain(8));
    list.routes_v6("eight extension headers, L3", v6(&headers, a, b), a, b);
    let nine = ip6.with(Extension::chain(9));
    let frame = nine.udp(GATEWAY_MAC, a.mac, PORTS);
    list.drops(
        "nine extension headers, L3",
        a,
        frame,
        DropReason::Ipv6Headers,
    );
    let tcp = |ip: &Ipv4, to, from| ip.frame(to, from, IPPROTO_TCP, &tcp_syn());
    let farther = Ipv4 {
        ttl: 63,
        ..ip4.clone()
    };
    let frames = [
        tcp(&ip4, GATEWAY_MAC, a.mac),
        tcp(&farther, b.mac, GATEWAY_MAC),
    ];
    list.routes_v4("TCP, L3", frames, a, b);
    let mut padded = v4(&ip4, a, b);
    for frame in &mut padded {
        frame.resize(frame.len() + 6, 0);
    }
    list.routes_v4("IPv4 with Ethernet padding, L3", padded, a, b);
}

fn hops(list: &mut List) {
    let (a, b) = (&GREEN_A, &GREEN_B);
    let with = |ttl| Ipv4 {
        ttl,
        ..Ipv4::new(a.ip4, b.ip4)
    };
    list.drops(
        "TTL 0",
        a,
        with(0).udp(GATEWAY_MAC, a.mac, PORTS),
        DropReason::Ttl,
    );
    list.drops(
        "TTL 1",
        a,
        with(1).udp(GATEWAY_MAC, a.mac, PORTS),
        DropReason::Ttl,
    );
    list.routes_v4("TTL 2", v4(&with(2), a, b), a, b);
    list.routes_v4("TTL 255", v4(&with(255), a, b), a, b);
    let with = |hops| Ipv6 {
        hops,
        ..Ipv6::new(a.ip6, b.ip6)
    };
    list.drops(
        "hop limit 0",
        a,
        with(0).udp(GATEWAY_MAC, a.mac, PORTS),
        DropReason::Ttl,
    );
    list.drops(
        "hop limit 1",
        a,
        with(1).udp(GATEWAY_MAC, a.mac, PORTS),
        DropReason::Ttl,
    );
    list.routes_v6("hop limit 2", v6(&with(2), a, b), a, b);
    list.routes_v6("hop limit 255", v6(&with(255), a, b), a, b);
}

fn sources(list: &mut List) {
    let (a, b, c) = (&GREEN_A, &GREEN_B, &GREEN_C);
    let drop = DropReason::SpoofedIp;
    for (name, source) in [
        ("a neighbour's IPv4 address, L3", c.ip4),
        ("a neighbour's second IPv4 address, L3", c.further_v4()),
        (
            "the gateway's IPv4 address, L3",
            Ipv4Addr::new(10, 20, 0, 1),
        ),
        ("no IPv4 address, L3", Ipv4Addr::UNSPECIFIED),
    ] {
        let frame = Ipv4::new(source, b.ip4).udp(GATEWAY_MAC, a.mac, PORTS);
        list.drops(name, a, frame, drop);
    }
    for (name, source) in [
        ("a neighbour's IPv6 address, L3", c.ip6),
        ("a neighbour's link-local address, L3", c.link_local()),
        (
            "the gateway's link-local address, L3",
            crate::addr::GATEWAY_V6,
        ),
        ("no IPv6 address, L3", Ipv6Addr::UNSPECIFIED),
    ] {
        let frame = Ipv6::new(source, b.ip6).udp(GATEWAY_MAC, a.mac, PORTS);
        list.drops(name, a, frame, drop);
    }
    let frame = Ipv6::new(a.link_local(), b.ip6).udp(GATEWAY_MAC, a.mac, PORTS);
    list.drops(
        "from a link-local address, L3",
        a,
        frame,
        DropReason::LinkLocal,
    );
    let discover = Ipv4::new(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
    let frame = discover.udp(MacAddr::BROADCAST, a.mac, (68, 67));
    list.drops("a DHCP discover, L3", a, frame, DropReason::Dhcp);
    let frame = Ipv6::new(a.ip6, b.ip6).udp(GATEWAY_MAC, a.mac, (547, 546));
    list.drops("a DHCPv6 advertise, L3", a, frame, DropReason::Dhcp);
}

fn destinations(list: &mut List) {
    let (a, b) = (&GREEN_A, &GREEN_B);
    let none = DropReason::NoEndpoint;
    for (name, ip) in [
        ("a free IPv4 address, L3", Ipv4Addr::new(10, 20, 0, 99)),
        ("an IPv4 address of another network, L3", BLUE_B.ip4),
        ("a public IPv4 address, L3", Ipv4Addr::new(192, 0, 2, 1)),
        ("an IPv4 group by way of the gateway", GROUP),
        (
            "the IPv4 broadcast address by way of the gateway",
            Ipv4Addr::BROADCAST,
        ),
        ("a loopback IPv4 address, L3", Ipv4Addr::LOCALHOST),
    ] {
        let frame = Ipv4::new(a.ip4, ip).udp(GATEWAY_MAC, a.mac, PORTS);
        list.drops(name, a, frame, none);
    }
    for (name, ip) in [
        (
            "a free IPv6 address, L3",
            Ipv6Addr::new(0xfd20, 0x20, 0, 0, 0, 0, 0, 0x99),
        ),
        ("an IPv6 address of another network, L3", BLUE_B.ip6),
        ("an IPv6 group by way of the gateway", ALL_NODES),
        ("the loopback IPv6 address, L3", Ipv6Addr::LOCALHOST),
    ] {
        let frame = Ipv6::new(a.ip6, ip).udp(GATEWAY_MAC, a.mac, PORTS);
        list.drops(name, a, frame, none);
    }
    let frame = Ipv6::new(a.ip6, b.link_local()).udp(GATEWAY_MAC, a.mac, PORTS);
    list.drops(
        "a link-local address by way of the gateway",
        a,
        frame,
        DropReason::LinkLocal,
    );
    let frame = Ipv6::new(a.ip6, b.ip4.to_ipv6_mapped()).udp(GATEWAY_MAC, a.mac, PORTS);
    list.drops(
        "an IPv4 address as IPv6 destination, L3",
        a,
        frame,
        DropReason::Malformed,
    );
    let frame = Ipv4::new(a.ip4, b.ip4).udp(b.mac, a.mac, PORTS);
    list.drops("a neighbour past the gateway", a, frame, none);
    let frame = Ipv6::new(a.ip6, b.ip6).udp(b.mac, a.mac, PORTS);
    list.drops("a neighbour past the gateway, IPv6", a, frame, none);
    let frame = Ipv4::new(a.ip4, a.ip4).udp(GATEWAY_MAC, a.mac, PORTS);
    list.drops(
        "oneself by way of the gateway",
        a,
        frame,
        DropReason::Hairpin,
    );
    let frame = Ipv6::new(a.ip6, a.ip6).udp(GATEWAY_MAC, a.mac, PORTS);
    list.drops(
        "oneself by way of the gateway, IPv6",
        a,
        frame,
        DropReason::Hairpin,
    );
}

fn groups(list: &mut List) {
    let (a, b) = (&GREEN_A, &GREEN_B);
    let drop = DropReason::Multicast;
    let frame = Ipv4::new(a.ip4, Ipv4Addr::BROADCAST).udp(MacAddr::BROADCAST, a.mac, PORTS);
    list.drops("an IPv4 broadcast, L3", a, frame, drop);
    let frame = Ipv4::new(a.ip4, b.ip4).udp(MacAddr::BROADCAST, a.mac, PORTS);
    list.drops("a neighbour by broadcast, L3", a, frame, drop);
    let frame = Ipv4::new(a.ip4, GROUP).udp(group_mac_v4(GROUP), a.mac, PORTS);
    list.drops("an IPv4 multicast, L3", a, frame, drop);
    let frame = Ipv6::new(a.ip6, ALL_NODES).udp(group_mac_v6(ALL_NODES), a.mac, PORTS);
    list.drops("an IPv6 multicast, L3", a, frame, drop);
    let frame = Ipv6::new(a.link_local(), ALL_NODES).udp(group_mac_v6(ALL_NODES), a.mac, PORTS);
    list.drops(
        "an IPv6 multicast from a link-local address, L3",
        a,
        frame,
        drop,
    );
}
