//! Ethernet itself, and the network whose addresses podnet does not know.

use super::build::{
    ALL_NODES, Arp, Ipv4, Ipv6, advertisement, cut, ethernet, link_address, solicitation,
};
use super::{List, Pod};
use crate::addr::{GATEWAY_MAC, MacAddr};
use crate::drop::DropReason;
use crate::packet::{ETH_P_ARP, ETH_P_IP, ETH_P_IPV6};
use crate::world::{BLUE_A, BLUE_B, BLUE_C, GREEN_A, GREEN_B, GREY_A, GREY_B, RED_A, RED_B, RED_D};
use std::net::{Ipv4Addr, Ipv6Addr};

/// IEEE 802, local experiments.
const EXPERIMENT: u16 = 0x88b5;
const GROUP: MacAddr = MacAddr([0x01, 0x00, 0x5e, 0x00, 0x00, 0xfb]);

pub(super) fn add(list: &mut List) {
    lengths(list);
    sources(list);
    tags(list);
    destinations(list);
    ether_types(list);
    sizes(list);
    unknown_addresses(list);
}

/// `length` bytes of L3 payload that no guard looks into.
fn plain(to: MacAddr, from: &Pod, length: usize) -> Vec<u8> {
    ethernet(to, from.mac, EXPERIMENT, &vec![0x5a; length])
}

fn udp(from: &Pod, to: &Pod) -> Vec<u8> {
    Ipv4::new(from.ip4, to.ip4).udp(to.mac, from.mac, (4000, 5000))
}

fn lengths(list: &mut List) {
    let frame = udp(&BLUE_A, &BLUE_B);
    list.drops("an empty frame", &BLUE_A, Vec::new(), DropReason::Truncated);
    list.drops(
        "a frame of one byte",
        &BLUE_A,
        cut(frame.clone(), 1),
        DropReason::Truncated,
    );
    list.drops(
        "a frame of 13 bytes",
        &BLUE_A,
        cut(frame.clone(), 13),
        DropReason::Truncated,
    );
    list.drops(
        "IPv4 without a header",
        &BLUE_A,
        cut(frame, 14),
        DropReason::Truncated,
    );
    list.switches(
        "an empty payload",
        &BLUE_A,
        plain(BLUE_B.mac, &BLUE_A, 0),
        &BLUE_B,
    );
    for (name, ether_type) in [
        ("IPv6 without a header", ETH_P_IPV6),
        ("ARP without a packet", ETH_P_ARP),
    ] {
        let frame = ethernet(BLUE_B.mac, BLUE_A.mac, ether_type, &[]);
        list.drops(name, &BLUE_A, frame, DropReason::Truncated);
    }
}

fn sources(list: &mut List) {
    let from = |mac| ethernet(BLUE_B.mac, mac, EXPERIMENT, &[0; 46]);
    for (name, mac) in [
        ("the source MAC of a neighbour", BLUE_C.mac),
        ("the source MAC of the receiver", BLUE_B.mac),
        ("a source MAC of another network", RED_A.mac),
        ("a source MAC nobody has", MacAddr([2, 0, 0, 0, 0, 1])),
        ("a source MAC of zeros", MacAddr([0; 6])),
        (
            "a source MAC that is a group",
            MacAddr([3, 0, 0, 0, 0x0b, 0x0a]),
        ),
        ("the gateway's MAC as source", GATEWAY_MAC),
    ] {
        list.drops(name, &BLUE_A, from(mac), DropReason::SpoofedMac);
    }
    let ip = Ipv4::new(GREEN_A.ip4, GREEN_B.ip4);
    let frame = ip.udp(GATEWAY_MAC, GREEN_B.mac, (4000, 5000));
    list.drops(
        "the source MAC of a neighbour, L3",
        &GREEN_A,
        frame,
        DropReason::SpoofedMac,
    );
}

fn tags(list: &mut List) {
    let tagged = |tpid: u16, tci: u16| {
        let mut frame = udp(&BLUE_A, &BLUE_B);
        frame.splice(12..12, [tpid.to_be_bytes(), tci.to_be_bytes()].concat());
        frame
    };
    let drop = DropReason::VlanTag;
    list.drops("an 802.1Q tag", &BLUE_A, tagged(0x8100, 100), drop);
    list.drops(
        "a priority tag (VLAN 0)",
        &BLUE_A,
        tagged(0x8100, 0xe000),
        drop,
    );
    list.drops("an 802.1ad tag", &BLUE_A, tagged(0x88a8, 100), drop);
    list.drops("a 0x9100 tag", &BLUE_A, tagged(0x9100, 100), drop);
    list.drops("a 0x9200 tag", &BLUE_A, tagged(0x9200, 100), drop);
    list.drops("a 0x9300 tag", &BLUE_A, tagged(0x9300, 100), drop);
    let mut twice = tagged(0x8100, 100);
    twice.splice(12..12, [0x88, 0xa8, 0, 7]);
    list.drops("a tag in a tag", &BLUE_A, twice, drop);
    let beside = list.drops(
        "a tag beside the frame",
        &BLUE_A,
        udp(&BLUE_A, &BLUE_B),
        drop,
    );
    beside.vlan_tag = true;
    let spoofed = plain(BLUE_B.mac, &BLUE_C, 46);
    let beside = list.drops(
        "a tag beside a frame with a false source",
        &BLUE_A,
        spoofed,
        drop,
    );
    beside.vlan_tag = true;
}

fn destinations(list: &mut List) {
    let control = |last| MacAddr([0x01, 0x80, 0xc2, 0x00, 0x00, last]);
    let bridge = ethernet(control(0), BLUE_A.mac, 38, &[0x42; 38]);
    list.drops(
        "a spanning tree frame",
        &BLUE_A,
        bridge,
        DropReason::LinkControl,
    );
    let pause = ethernet(control(1), BLUE_A.mac, 0x8808, &[0; 46]);
    list.drops("a pause frame", &BLUE_A, pause, DropReason::LinkControl);
    let lldp = ethernet(control(0x0e), BLUE_A.mac, 0x88cc, &[0; 46]);
    list.drops("an LLDP frame", &BLUE_A, lldp, DropReason::LinkControl);
    let last = plain(control(0x0f), &BLUE_A, 46);
    list.drops(
        "the last link-control group",
        &BLUE_A,
        last,
        DropReason::LinkControl,
    );
    let ip = Ipv4::new(BLUE_A.ip4, BLUE_B.ip4).udp(control(0), BLUE_A.mac, (4000, 5000));
    list.drops(
        "IP to a link-control group",
        &BLUE_A,
        ip,
        DropReason::LinkControl,
    );
    list.floods(
        "the group after link control",
        &BLUE_A,
        plain(control(0x10), &BLUE_A, 46),
    );

    list.switches(
        "a MAC on the network",
        &BLUE_A,
        plain(BLUE_B.mac, &BLUE_A, 46),
        &BLUE_B,
    );
    let frame = plain(BLUE_C.mac, &BLUE_A, 46);
    list.switches("a receiver behind its host end", &BLUE_A, frame, &BLUE_C);
    let frame = plain(RED_B.mac, &RED_A, 46);
    list.switches("a MAC that another network has too", &RED_A, frame, &RED_B);
    list.floods(
        "a broadcast",
        &BLUE_A,
        plain(MacAddr::BROADCAST, &BLUE_A, 46),
    );
    list.floods("a multicast", &BLUE_A, plain(GROUP, &BLUE_A, 46));
    for (name, mac) in [
        ("a MAC nobody has", MacAddr([2, 0, 0, 0, 0, 1])),
        ("a MAC of another network", RED_D.mac),
        ("a MAC of an L3 network", GREEN_B.mac),
        ("the virtual gateway's MAC on an L2 network", GATEWAY_MAC),
        ("a destination of zeros", MacAddr([0; 6])),
    ] {
        list.drops(
            name,
            &BLUE_A,
            plain(mac, &BLUE_A, 46),
            DropReason::NoEndpoint,
        );
    }
    list.drops(
        "a frame to oneself",
        &BLUE_A,
        plain(BLUE_A.mac, &BLUE_A, 46),
        DropReason::Hairpin,
    );
}

fn ether_types(list: &mut List) {
    let typed = |to: MacAddr, ether_type| ethernet(to, BLUE_A.mac, ether_type, &[0xaa; 46]);
    let drop = DropReason::EtherType;
    list.drops("a length of 0", &BLUE_A, typed(BLUE_B.mac, 0), drop);
    list.drops("an LLC frame", &BLUE_A, typed(BLUE_B.mac, 46), drop);
    list.drops(
        "an LLC broadcast",
        &BLUE_A,
        typed(MacAddr::BROADCAST, 46),
        drop,
    );
    list.drops("the last length", &BLUE_A, typed(BLUE_B.mac, 0x05ff), drop);
    list.switches(
        "the first EtherType",
        &BLUE_A,
        typed(BLUE_B.mac, 0x0600),
        &BLUE_B,
    );
    list.switches(
        "the last EtherType",
        &BLUE_A,
        typed(BLUE_B.mac, 0xffff),
        &BLUE_B,
    );
    list.switches(
        "MPLS on an L2 network",
        &BLUE_A,
        typed(BLUE_B.mac, 0x8847),
        &BLUE_B,
    );
    list.floods(
        "reverse ARP on an L2 network",
        &BLUE_A,
        typed(MacAddr::BROADCAST, 0x8035),
    );
    for (name, to, ether_type) in [
        ("MPLS on an L3 network", GATEWAY_MAC, 0x8847),
        ("reverse ARP on an L3 network", MacAddr::BROADCAST, 0x8035),
        ("PPPoE on an L3 network", MacAddr::BROADCAST, 0x8863),
        ("an LLC frame on an L3 network", GATEWAY_MAC, 46),
        (
            "an unknown EtherType to a neighbour on an L3 network",
            GREEN_B.mac,
            EXPERIMENT,
        ),
    ] {
        list.drops(
            name,
            &GREEN_A,
            ethernet(to, GREEN_A.mac, ether_type, &[0xaa; 46]),
            drop,
        );
    }
}

fn sizes(list: &mut List) {
    let mtu = 1500;
    list.switches(
        "a frame of the MTU",
        &BLUE_A,
        plain(BLUE_B.mac, &BLUE_A, mtu),
        &BLUE_B,
    );
    let longer = plain(BLUE_B.mac, &BLUE_A, mtu + 1);
    list.drops(
        "a frame one byte over the MTU",
        &BLUE_A,
        longer,
        DropReason::TooBig,
    );
    let longer = plain(MacAddr::BROADCAST, &BLUE_A, mtu + 1);
    list.drops(
        "a broadcast over the MTU",
        &BLUE_A,
        longer,
        DropReason::TooBig,
    );

    let ip = Ipv4 {
        total: Some(0),
        ..Ipv4::new(BLUE_A.ip4, BLUE_B.ip4)
    };
    let large = ip.frame(BLUE_B.mac, BLUE_A.mac, 6, &[0; 9000]);
    let name = "a GSO packet with segments of the MTU";
    list.switches(name, &BLUE_A, large.clone(), &BLUE_B).segment = Some(mtu + 14);
    let name = "a GSO packet with segments over the MTU";
    list.drops(name, &BLUE_A, large, DropReason::TooBig).segment = Some(mtu + 15);
    let ip = Ipv6 {
        length: Some(0),
        ..Ipv6::new(BLUE_A.ip6, BLUE_B.ip6)
    };
    let large = ip.frame(BLUE_B.mac, BLUE_A.mac, 6, &[0; 9000]);
    let name = "an IPv6 GSO packet longer than its length field";
    list.switches(name, &BLUE_A, large, &BLUE_B).segment = Some(1448);
}

fn unknown_addresses(list: &mut List) {
    let any4 = Ipv4Addr::new(192, 0, 2, 7);
    let any6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
    let (to, from) = (GREY_B.mac, GREY_A.mac);
    let frame = Ipv4::new(any4, Ipv4Addr::new(192, 0, 2, 8)).udp(to, from, (4000, 5000));
    list.switches("any IPv4 source without addresses", &GREY_A, frame, &GREY_B);
    let frame = Ipv6::new(any6, any6).udp(to, from, (4000, 5000));
    list.switches("any IPv6 source without addresses", &GREY_A, frame, &GREY_B);
    let none = Ipv4Addr::UNSPECIFIED;
    let frame = Ipv4::new(none, Ipv4Addr::BROADCAST).udp(MacAddr::BROADCAST, from, (68, 67));
    list.floods("DHCP without addresses", &GREY_A, frame);
    let frame = Ipv6::new(any6, any6).udp(to, from, (547, 546));
    list.switches("DHCPv6 without addresses", &GREY_A, frame, &GREY_B);
    let frame = Arp::request((from, any4), any4).frame(MacAddr::BROADCAST, from);
    list.floods("any ARP question without addresses", &GREY_A, frame);
    let frame = Arp::reply((from, any4), (to, any4)).frame(to, from);
    list.switches("any ARP answer without addresses", &GREY_A, frame, &GREY_B);
    let frame = Arp::reply((to, any4), (to, any4)).frame(to, from);
    list.drops(
        "ARP for another MAC without addresses",
        &GREY_A,
        frame,
        DropReason::SpoofedArp,
    );

    let ip = Ipv6::neighbour(any6, ALL_NODES);
    let body = |mac| advertisement(0x20, any6, &link_address(2, mac));
    let frame = ip.icmp(to, from, 136, 0, &body(from));
    list.switches(
        "any advertisement without addresses",
        &GREY_A,
        frame,
        &GREY_B,
    );
    let frame = ip.icmp(to, from, 136, 0, &body(to));
    let name = "an advertisement for another MAC without addresses";
    list.drops(name, &GREY_A, frame, DropReason::SpoofedNd);
    let frame = ip.icmp(
        to,
        from,
        135,
        0,
        &solicitation(any6, &link_address(1, from)),
    );
    list.switches(
        "any solicitation without addresses",
        &GREY_A,
        frame,
        &GREY_B,
    );
    let frame = ip.icmp(to, from, 135, 0, &solicitation(any6, &link_address(1, to)));
    let name = "a solicitation for another MAC without addresses";
    list.drops(name, &GREY_A, frame, DropReason::SpoofedNd);
    let frame = ip.icmp(to, from, 134, 0, &[0; 12]);
    let name = "a router advertisement without addresses";
    list.drops(name, &GREY_A, frame, DropReason::RouterAdvertisement);
    let frame = ethernet(to, BLUE_A.mac, ETH_P_IP, &[0; 46]);
    list.drops(
        "a false source MAC without addresses",
        &GREY_A,
        frame,
        DropReason::SpoofedMac,
    );
    let frame = ethernet(BLUE_B.mac, from, EXPERIMENT, &[0; 46]);
    let name = "a MAC of another network without addresses";
    list.drops(name, &GREY_A, frame, DropReason::NoEndpoint);
}
