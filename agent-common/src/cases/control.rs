//! List messages that find or configure routers and switches; no pod may send one.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::build::{
    ALL_NODES, ALL_ROUTERS, Arp, Extension, Ipv4, Ipv6, ethernet, group_mac_v4, group_mac_v6,
    link_address, nonce,
};
use super::{ETHER_TYPE_OF_TEAL, List, Pod};
use crate::addr::{GATEWAY_MAC, MacAddr};
use crate::drop::DropReason;
use crate::packet::{IPPROTO_ICMP, IPPROTO_IGMP};
use crate::policy::Decision;
use crate::world::{BLUE_A, BLUE_B, GREEN_A, GREEN_B, GREY_A, GREY_B, STEEL_A, TEAL_A, TEAL_B};

const HOST: MacAddr = MacAddr([2, 0, 0, 0, 0x99, 0x02]);
const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);

pub(super) fn add(list: &mut List) {
    solicitations(list);
    icmpv6(list);
    igmp(list);
    mac_control(list);
    link_protocols(list);
}

fn solicit(from: &Pod, source: Ipv6Addr, options: &[u8]) -> Vec<u8> {
    let body = [&[0; 4][..], options].concat();
    let ip = Ipv6::neighbour(source, ALL_ROUTERS);
    ip.icmp(group_mac_v6(ALL_ROUTERS), from.mac, 133, 0, &body)
}

/// The options of a router solicitation, judged as those of a neighbour's.
fn solicitations(list: &mut List) {
    let (a, b) = (&BLUE_A, &BLUE_B);
    let spoofed = DropReason::SpoofedNd;
    let theirs = link_address(1, b.mac);
    list.drops(
        "a router solicitation for another MAC",
        a,
        solicit(a, a.link_local(), &theirs),
        spoofed,
    );
    list.drops(
        "a router solicitation without an address for another MAC",
        a,
        solicit(a, Ipv6Addr::UNSPECIFIED, &theirs),
        spoofed,
    );
    let second = [link_address(1, a.mac), theirs.clone()].concat();
    list.drops(
        "a router solicitation for another MAC too",
        a,
        solicit(a, a.link_local(), &second),
        spoofed,
    );
    let long = [&[1, 2][..], &a.mac.0, &[0; 8]].concat();
    list.drops(
        "a router solicitation with a long address option",
        a,
        solicit(a, a.link_local(), &long),
        spoofed,
    );
    for (name, options) in [
        (
            "a router solicitation with an option of no length",
            vec![1, 0, 2, 0, 0, 0, 0, 1],
        ),
        (
            "a router solicitation with half an option",
            vec![1, 1, 2, 0],
        ),
        ("a router solicitation with five options", nonce().repeat(5)),
    ] {
        let frame = solicit(a, a.link_local(), &options);
        list.drops(name, a, frame, DropReason::Malformed);
    }
    list.floods(
        "a router solicitation with a nonce",
        a,
        solicit(a, a.link_local(), &nonce()),
    );
    let any = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
    let frame = solicit(&GREY_A, any, &link_address(1, GREY_A.mac));
    list.floods("any router solicitation without addresses", &GREY_A, frame);
    let frame = solicit(&GREY_A, any, &link_address(1, GREY_B.mac));
    list.drops(
        "a router solicitation for another MAC without addresses",
        &GREY_A,
        frame,
        spoofed,
    );
}

fn icmpv6(list: &mut List) {
    let (a, b) = (&BLUE_A, &BLUE_B);
    let drop = DropReason::ControlMessage;
    let ip = Ipv6::neighbour(a.link_local(), ALL_NODES);
    let body = [0; 24];
    for (name, kind) in [
        ("a listener query", 130),
        ("router renumbering", 138),
        ("a node information query", 139),
        ("a node information answer", 140),
        ("an inverse solicitation", 141),
        ("an inverse advertisement", 142),
        ("a certification path solicitation", 148),
        ("a certification path advertisement", 149),
        ("a multicast router advertisement", 151),
        ("a multicast router solicitation", 152),
        ("a multicast router termination", 153),
        ("an RPL control message", 155),
        ("an ICMPv6 type of 0", 0),
        ("an ICMPv6 type for experiments", 200),
        ("the last ICMPv6 type", 255),
    ] {
        list.drops(name, a, ip.icmp(b.mac, a.mac, kind, 0, &body), drop);
    }
    let group = group_mac_v6(ALL_NODES);
    let query = |extensions| {
        let ip = Ipv6 {
            hops: 1,
            ..ip.clone()
        };
        ip.with(extensions).icmp(group, a.mac, 130, 0, &body)
    };
    let alert = query(vec![Extension::router_alert()]);
    list.drops("a listener query to all, with its alert", a, alert, drop);
    let first = query(vec![Extension::fragment(0, true)]);
    list.drops("a listener query in fragments", a, first, drop);
    let frame = ip.icmp(GREY_B.mac, GREY_A.mac, 130, 0, &body);
    list.drops("a listener query without addresses", &GREY_A, frame, drop);
    let ip = Ipv6::new(GREEN_A.ip6, GREEN_B.ip6);
    let frame = ip.icmp(GATEWAY_MAC, GREEN_A.mac, 139, 0, &body);
    list.drops("a node information query, L3", &GREEN_A, frame, drop);
    let ip = Ipv6::new(a.ip6, b.ip6);
    for (name, kind) in [
        ("a destination that is not reached", 1),
        ("a packet too big", 2),
        ("a ping over IPv6", 128),
        ("a ping's answer over IPv6", 129),
        ("an extended ping over IPv6", 160),
    ] {
        list.switches(name, a, ip.icmp(b.mac, a.mac, kind, 0, &body), b);
    }
}

fn igmp(list: &mut List) {
    let (a, b) = (&BLUE_A, &BLUE_B);
    let ip = |options| Ipv4 {
        ttl: 1,
        options,
        ..Ipv4::new(a.ip4, ALL_SYSTEMS)
    };
    let group = group_mac_v4(ALL_SYSTEMS);
    let alert = vec![0x94, 4, 0, 0];
    for (name, kind) in [
        ("a group membership query", 0x11),
        ("a multicast router advertisement over IPv4", 0x30),
        ("a multicast router solicitation over IPv4", 0x31),
        ("a multicast router termination over IPv4", 0x32),
    ] {
        let frame =
            ip(alert.clone()).frame(group, a.mac, IPPROTO_IGMP, &[kind, 0, 0, 0, 0, 0, 0, 0]);
        list.drops(name, a, frame, DropReason::ControlMessage);
    }
    let query = [0x11, 0, 0xee, 0xff, 0, 0, 0, 0];
    let frame = ip(Vec::new()).frame(b.mac, a.mac, IPPROTO_IGMP, &query);
    list.drops(
        "a group membership query to one neighbour",
        a,
        frame,
        DropReason::ControlMessage,
    );
    let frame = ip(Vec::new()).frame(group, a.mac, IPPROTO_ICMP, &[9, 0, 0, 0, 1, 2, 0, 30]);
    list.drops(
        "a router advertisement over IPv4",
        a,
        frame,
        DropReason::RouterAdvertisement,
    );
}

/// Pause and its kind are between the ends of a link, whatever the address.
fn mac_control(list: &mut List) {
    let drop = DropReason::EtherType;
    let pause = |to, from| ethernet(to, from, 0x8808, &[0, 1, 0xff, 0xff]);
    for (name, from, to) in [
        ("a pause frame to a neighbour", &BLUE_A, BLUE_B.mac),
        ("a pause frame to all", &BLUE_A, MacAddr::BROADCAST),
        ("a pause frame without addresses", &GREY_A, GREY_B.mac),
        ("a pause frame on a VLAN", &TEAL_A, HOST),
    ] {
        list.drops(name, from, pause(to, from.mac), drop);
    }
}

/// Switches beyond an uplink take these from whoever sends them.
fn link_protocols(list: &mut List) {
    let drop = DropReason::EtherType;
    let typed = |to, ether_type| ethernet(to, TEAL_A.mac, ether_type, &[0x5a; 46]);
    for (name, ether_type) in [
        ("PTP to a host of the VLAN", 0x88f7),
        ("LLDP to a host of the VLAN", 0x88cc),
        ("PPPoE discovery to a host of the VLAN", 0x8863),
        ("PPPoE to a host of the VLAN", 0x8864),
        ("MPLS to a host of the VLAN", 0x8847),
        ("MPLS multicast to a host of the VLAN", 0x8848),
        ("a backbone tag to a host of the VLAN", 0x88e7),
        ("an E-tag to a host of the VLAN", 0x893f),
        ("a VN-tag to a host of the VLAN", 0x8926),
        ("802.1X to a host of the VLAN", 0x888e),
        ("MACsec to a host of the VLAN", 0x88e5),
        ("reverse ARP to a host of the VLAN", 0x8035),
        (
            "an unknown EtherType to a host of the VLAN",
            ETHER_TYPE_OF_TEAL + 1,
        ),
    ] {
        list.drops(name, &TEAL_A, typed(HOST, ether_type), drop);
    }
    let frame = typed(MacAddr::BROADCAST, 0x88f7);
    list.drops("PTP to all of the VLAN", &TEAL_A, frame, drop);
    let frame = typed(TEAL_B.mac, 0x88f7);
    list.drops("PTP to a pod of this node, on a VLAN", &TEAL_A, frame, drop);
    let frame = typed(MacAddr::BROADCAST, ETHER_TYPE_OF_TEAL);
    list.floods("a listed EtherType to all of the VLAN", &TEAL_A, frame);
    let frame = Arp::request((TEAL_A.mac, TEAL_A.ip4), Ipv4Addr::new(10, 50, 0, 98));
    let frame = frame.frame(MacAddr::BROADCAST, TEAL_A.mac);
    list.floods("ARP needs no place in the list", &TEAL_A, frame);
    // What one network lists is no other's.
    let frame = ethernet(HOST, STEEL_A.mac, ETHER_TYPE_OF_TEAL, &[0; 46]);
    let tagged = list.push(
        "an EtherType of another network's list, on a trunk",
        &STEEL_A,
        frame,
        Decision::Drop(drop),
        None,
    );
    (tagged.vlan_tag, tagged.vlan_id) = (true, super::TRUNK_VLANS[0]);
}
