//! IPv4 on an L2 network: whose address, which header, which fragment, no DHCP.

use std::net::Ipv4Addr;

use super::build::{IPPROTO_TCP, Ipv4, cut, group_mac_v4, padded, tcp_syn, with_byte};
use super::{List, Pod};
use crate::addr::MacAddr;
use crate::drop::DropReason;
use crate::packet::{IPPROTO_ICMP, IPPROTO_IGMP, IPPROTO_UDP};
use crate::world::{BLUE_A, BLUE_B, BLUE_C, RED_A, RED_D};

/// Multicast DNS, RFC 6762.
const MDNS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
/// More fragments follow.
const MORE: u16 = 0x2000;

/// The MAC address of a port that is gone.
const GONE: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 0x99]);

pub(super) fn add(list: &mut List) {
    delivery(list);
    heirs(list);
    sources(list);
    headers(list);
    fragments(list);
    dhcp(list);
}

fn to_b(ip: &Ipv4) -> Vec<u8> {
    ip.udp(BLUE_B.mac, BLUE_A.mac, (4000, 5000))
}

fn a_to_b() -> Ipv4 {
    Ipv4::new(BLUE_A.ip4, BLUE_B.ip4)
}

fn delivery(list: &mut List) {
    let (a, b, c) = (&BLUE_A, &BLUE_B, &BLUE_C);
    list.switches("UDP", a, to_b(&a_to_b()), b);
    let frame = a_to_b().frame(b.mac, a.mac, IPPROTO_TCP, &tcp_syn());
    list.switches("TCP", a, frame, b);
    list.switches(
        "ping of a neighbour",
        a,
        a_to_b().icmp(b.mac, a.mac, 8, 0),
        b,
    );
    list.switches("UDP with TTL 1", a, to_b(&Ipv4 { ttl: 1, ..a_to_b() }), b);
    let frame = Ipv4::new(c.further_v4(), a.ip4).udp(a.mac, c.mac, (4000, 5000));
    list.switches("UDP from a second address", c, frame, a);
    let far = Ipv4::new(a.ip4, Ipv4Addr::new(192, 0, 2, 1));
    list.switches("UDP by way of a neighbour", a, to_b(&far), b);
    let all = Ipv4::new(a.ip4, Ipv4Addr::BROADCAST);
    list.floods(
        "UDP to everybody",
        a,
        all.udp(MacAddr::BROADCAST, a.mac, (4000, 5000)),
    );
    let group = Ipv4::new(a.ip4, MDNS);
    list.floods(
        "UDP to a group",
        a,
        group.udp(group_mac_v4(MDNS), a.mac, (5353, 5353)),
    );
    let report = Ipv4 {
        ttl: 1,
        options: vec![0x94, 4, 0, 0],
        ..group
    };
    let igmp = [0x16, 0, 0x09, 0x04, 224, 0, 0, 251];
    let frame = report.frame(group_mac_v4(MDNS), a.mac, IPPROTO_IGMP, &igmp);
    list.floods("a group membership report", a, frame);
    let frame = Ipv4::new(a.ip4, RED_D.ip4).udp(RED_D.mac, a.mac, (4000, 5000));
    list.drops("UDP to another network", a, frame, DropReason::NoEndpoint);
    let frame = Ipv4::new(a.ip4, a.ip4).udp(a.mac, a.mac, (4000, 5000));
    list.drops("UDP to oneself", a, frame, DropReason::Hairpin);
}

/// Packets to an address that a neighbour remembers at an older MAC address.
fn heirs(list: &mut List) {
    let (a, b, c) = (&BLUE_A, &BLUE_B, &BLUE_C);
    let to = |ip: Ipv4| ip.udp(GONE, a.mac, (4000, 5000));
    list.moves("UDP to an address that has moved", a, to(a_to_b()), b);
    let further = Ipv4::new(a.ip4, c.further_v4());
    list.moves("UDP to a second address that has moved", a, to(further), c);
    let ping = a_to_b().icmp(RED_D.mac, a.mac, 8, 0);
    list.moves("a ping at a MAC address of another network", a, ping, b);
    for (name, address) in [
        (
            "UDP to a free address at no port",
            Ipv4Addr::new(10, 10, 0, 99),
        ),
        ("UDP to oneself at no port", a.ip4),
        ("UDP to another network at no port", RED_D.ip4),
    ] {
        let frame = to(Ipv4::new(a.ip4, address));
        list.drops(name, a, frame, DropReason::NoEndpoint);
    }
    let stolen = Ipv4::new(c.ip4, b.ip4).udp(GONE, a.mac, (4000, 5000));
    let name = "UDP from a neighbour's address to one that has moved";
    list.drops(name, a, stolen, DropReason::SpoofedIp);
}

fn sources(list: &mut List) {
    let drop = DropReason::SpoofedIp;
    for (name, source) in [
        ("a neighbour's IPv4 address", BLUE_C.ip4),
        ("a neighbour's second IPv4 address", BLUE_C.further_v4()),
        ("a free IPv4 address", Ipv4Addr::new(10, 10, 0, 99)),
        ("an IPv4 address of another network", RED_D.ip4),
        ("a public IPv4 address", Ipv4Addr::new(192, 0, 2, 1)),
        ("no IPv4 address", Ipv4Addr::UNSPECIFIED),
        ("a loopback IPv4 address", Ipv4Addr::LOCALHOST),
        ("the broadcast IPv4 address", Ipv4Addr::BROADCAST),
        ("a group IPv4 address", MDNS),
    ] {
        list.drops(name, &BLUE_A, to_b(&Ipv4 { source, ..a_to_b() }), drop);
    }
    let ip = Ipv4::new(BLUE_C.ip4, Ipv4Addr::BROADCAST);
    let frame = ip.udp(MacAddr::BROADCAST, BLUE_A.mac, (4000, 5000));
    list.drops(
        "a broadcast from a neighbour's IPv4 address",
        &BLUE_A,
        frame,
        drop,
    );
    let frame = Ipv4::new(RED_A.ip4, RED_D.ip4).udp(RED_D.mac, RED_A.mac, (4000, 5000));
    list.switches(
        "an address that another network has too",
        &RED_A,
        frame,
        &RED_D,
    );
    let frame = Ipv4::new(BLUE_C.further_v4(), BLUE_A.ip4);
    let frame = frame.udp(BLUE_A.mac, BLUE_B.mac, (4000, 5000));
    list.drops("a second address from another port", &BLUE_B, frame, drop);
}

fn headers(list: &mut List) {
    let (a, b): (&'static Pod, _) = (&BLUE_A, &BLUE_B);
    let whole = to_b(&a_to_b());
    let malformed = DropReason::Malformed;
    list.switches("IPv4 with Ethernet padding", a, padded(whole.clone()), b);
    for (name, first) in [
        ("IPv4 version 5", 0x55),
        ("IPv6 in an IPv4 EtherType", 0x60),
        ("an IPv4 header of 16 bytes", 0x44),
        ("an IPv4 header of no bytes", 0x40),
    ] {
        list.drops(name, a, with_byte(whole.clone(), 14, first), malformed);
    }
    let says = |total| {
        to_b(&Ipv4 {
            total: Some(total),
            ..a_to_b()
        })
    };
    let length = u16::try_from(whole.len() - 14).unwrap_or(0);
    list.drops("IPv4 shorter than its header", a, says(19), malformed);
    list.drops("IPv4 of length 0", a, says(0), malformed);
    list.drops("IPv4 longer than the frame", a, says(length + 1), malformed);
    list.drops("IPv4 of length 65535", a, says(65_535), malformed);
    list.switches("IPv4 shorter than the frame", a, says(length - 1), b);
    let options = Ipv4 {
        options: vec![1, 1, 1, 0],
        ..a_to_b()
    };
    list.switches("IPv4 with options", a, to_b(&options), b);
    let most = Ipv4 {
        options: vec![1; 40],
        ..a_to_b()
    };
    list.switches("IPv4 with 40 bytes of options", a, to_b(&most), b);
    let beyond = Ipv4 {
        total: Some(59),
        ..most
    };
    list.drops(
        "IPv4 options beyond its length",
        a,
        to_b(&beyond),
        malformed,
    );
    let bare = a_to_b().frame(b.mac, a.mac, 255, &[]);
    list.switches("IPv4 without a payload", a, bare.clone(), b);
    list.drops(
        "an IPv4 header one byte short",
        a,
        cut(bare, 33),
        DropReason::Truncated,
    );
}

fn fragments(list: &mut List) {
    let (a, b) = (&BLUE_A, &BLUE_B);
    let truncated = DropReason::Truncated;
    let at = |fragment| Ipv4 {
        fragment,
        ..a_to_b()
    };
    list.switches("a first IPv4 fragment", a, to_b(&at(MORE)), b);
    let later = at(MORE | 185).frame(b.mac, a.mac, IPPROTO_UDP, &[0, 68, 0, 67, 0, 0, 0, 0]);
    list.switches("a later IPv4 fragment that looks like DHCP", a, later, b);
    let last = at(185).frame(b.mac, a.mac, IPPROTO_UDP, &[1]);
    list.switches("a last IPv4 fragment of one byte", a, last, b);
    let spoofed = Ipv4 {
        source: BLUE_C.ip4,
        ..at(185)
    };
    let frame = spoofed.frame(b.mac, a.mac, IPPROTO_UDP, &[0; 8]);
    list.drops(
        "a later IPv4 fragment in a neighbour's name",
        a,
        frame,
        DropReason::SpoofedIp,
    );
    let tiny = at(MORE).frame(b.mac, a.mac, IPPROTO_UDP, &[0, 68, 0]);
    list.drops(
        "a first IPv4 fragment without UDP ports",
        a,
        tiny,
        truncated,
    );
    let none = a_to_b().frame(b.mac, a.mac, IPPROTO_UDP, &[]);
    list.drops("IPv4 UDP without a header", a, none, truncated);
}

fn dhcp(list: &mut List) {
    let (a, b) = (&BLUE_A, &BLUE_B);
    let drop = DropReason::Dhcp;
    let discover = Ipv4::new(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
    let frame = discover.udp(MacAddr::BROADCAST, a.mac, (68, 67));
    list.drops("a DHCP discover", a, frame, drop);
    list.drops(
        "a DHCP request to a neighbour",
        a,
        a_to_b().udp(b.mac, a.mac, (68, 67)),
        drop,
    );
    list.drops(
        "a DHCP offer",
        a,
        a_to_b().udp(b.mac, a.mac, (67, 68)),
        drop,
    );
    // RFC 2131 section 4.1 says where messages go, and clients listen on raw sockets for just that.
    list.drops(
        "a DHCP offer from another port",
        a,
        a_to_b().udp(b.mac, a.mac, (6767, 68)),
        drop,
    );
    let relayed = a_to_b().udp(b.mac, a.mac, (67, 67));
    list.drops("a relayed DHCP message", a, relayed, drop);
    let options = Ipv4 {
        options: vec![1; 8],
        ..a_to_b()
    };
    let frame = options.udp(b.mac, a.mac, (67, 68));
    list.drops("a DHCP offer behind IPv4 options", a, frame, drop);
    let first = Ipv4 {
        fragment: MORE,
        ..a_to_b()
    }
    .udp(b.mac, a.mac, (67, 68));
    list.drops("a DHCP offer in fragments", a, first, drop);
    let spoofed = Ipv4 {
        source: BLUE_C.ip4,
        ..a_to_b()
    }
    .udp(b.mac, a.mac, (67, 68));
    list.drops("a DHCP offer in a neighbour's name", a, spoofed, drop);
    let from_68 = a_to_b().udp(b.mac, a.mac, (68, 5000));
    list.switches("UDP from port 68 to another", a, from_68, b);
    let tcp = with_byte(with_byte(tcp_syn(), 2, 0), 3, 67);
    let frame = a_to_b().frame(b.mac, a.mac, IPPROTO_TCP, &tcp);
    list.switches("TCP to port 67", a, frame, b);
    let ping = a_to_b().frame(b.mac, a.mac, IPPROTO_ICMP, &[8, 0, 0, 67, 0, 0, 0, 0]);
    list.switches("a ping that looks like DHCP", a, ping, b);
}
