//! List packets on networks with an uplink.
//!
//! A VLAN, a trunk, and L3 over a VLAN and behind routers. The tag of a VLAN is put on beside the frame, which
//! leaves as it is.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::build::{Arp, Ipv4, Ipv6, ethernet, group_mac_v6, solicitation, solicited_node};
use super::{List, Pod};
use crate::addr::{GATEWAY_MAC, MacAddr};
use crate::drop::DropReason;
use crate::policy::{Decision, Family};
use crate::port::PORT_EGRESS;
use crate::world::{
    BEYOND, ETHER_TYPE_OF_TEAL, OCHRE_A, OLIVE_A, OUTSIDE, STEEL_A, STEEL_B, TEAL_A, TEAL_B,
    TRUNK_VLANS,
};

const PORTS: (u16, u16) = (4000, 5000);
/// A host on the VLAN that podnet does not know.
const HOST: MacAddr = MacAddr([2, 0, 0, 0, 0x99, 0x01]);
const HOST4: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 99);
const HOST6: Ipv6Addr = Ipv6Addr::new(0xfd50, 0x50, 0, 0, 0, 0, 0, 0x99);

pub(super) fn add(list: &mut List) {
    vlan(list);
    trunk(list);
    routed(list);
}

impl List {
    /// A frame of a trunk's pod, with a tag of this id next to it.
    fn tagged(&mut self, name: &'static str, id: u16, frame: Vec<u8>, decision: Decision) {
        let stays = matches!(decision, Decision::Drop(_));
        let output = (!stays).then(|| frame.clone());
        let case = self.push(name, &STEEL_A, frame, decision, output);
        (case.vlan_tag, case.vlan_id) = (true, id);
    }

    fn wired(&mut self, name: &'static str, sender: &'static Pod, frame: Vec<u8>) {
        let output = Some(frame.clone());
        self.push(name, sender, frame, Decision::Wire, output);
    }
}

fn vlan(list: &mut List) {
    let (a, b) = (&TEAL_A, &TEAL_B);
    let (to_host4, to_host6) = (Ipv4::new(a.ip4, HOST4), Ipv6::new(a.ip6, HOST6));
    list.switches(
        "UDP to a pod of this node, on a VLAN",
        a,
        Ipv4::new(a.ip4, b.ip4).udp(b.mac, a.mac, PORTS),
        b,
    );
    for (name, frame) in [
        (
            "UDP to a host of the VLAN",
            to_host4.udp(HOST, a.mac, PORTS),
        ),
        (
            "UDP over IPv6 to a host of the VLAN",
            to_host6.udp(HOST, a.mac, PORTS),
        ),
        (
            "a listed EtherType to a host of the VLAN",
            ethernet(HOST, a.mac, ETHER_TYPE_OF_TEAL, &[7; 46]),
        ),
        (
            "who has a host's address, asked of the host itself",
            Arp::request((a.mac, a.ip4), HOST4).frame(HOST, a.mac),
        ),
    ] {
        list.wired(name, a, frame);
    }
    list.floods(
        "who has a host's address, on a VLAN",
        a,
        Arp::request((a.mac, a.ip4), HOST4).frame(MacAddr::BROADCAST, a.mac),
    );
    let group = solicited_node(HOST6);
    list.floods(
        "solicit a host, on a VLAN",
        a,
        Ipv6::neighbour(a.ip6, group).icmp(
            group_mac_v6(group),
            a.mac,
            135,
            0,
            &solicitation(HOST6, &super::build::link_address(1, a.mac)),
        ),
    );
    list.drops(
        "to a host of the VLAN from another's IPv4 address",
        a,
        Ipv4::new(b.ip4, HOST4).udp(HOST, a.mac, PORTS),
        DropReason::SpoofedIp,
    );
    list.drops(
        "to a host of the VLAN from another's IPv6 address",
        a,
        Ipv6::new(b.ip6, HOST6).udp(HOST, a.mac, PORTS),
        DropReason::SpoofedIp,
    );
    list.drops(
        "to a host of the VLAN from another's MAC address",
        a,
        to_host4.udp(HOST, b.mac, PORTS),
        DropReason::SpoofedMac,
    );
    let frame = to_host4.udp(HOST, a.mac, PORTS);
    let beside = list.drops(
        "a tag of one's own, on a VLAN",
        a,
        frame,
        DropReason::VlanTag,
    );
    (beside.vlan_tag, beside.vlan_id) = (true, 100);
}

fn trunk(list: &mut List) {
    let (a, b) = (&STEEL_A, &STEEL_B);
    let [first, second] = TRUNK_VLANS;
    let ip = Ipv4::new(HOST4, BEYOND.ip4);
    let to = |to: MacAddr| ip.udp(to, a.mac, PORTS);
    list.tagged(
        "to a pod of this node, on a trunk",
        first,
        to(b.mac),
        Decision::Switch(b.endpoint()),
    );
    list.tagged("to a host beyond a trunk", second, to(HOST), Decision::Wire);
    list.tagged(
        "to all of a trunk",
        first,
        to(MacAddr::BROADCAST),
        Decision::Flood,
    );
    let refuse = Decision::Drop(DropReason::VlanId);
    list.tagged("a VLAN between those of a trunk", 301, to(HOST), refuse);
    list.tagged("a priority tag, on a trunk", 0, to(HOST), refuse);
    list.drops("without a tag, on a trunk", a, to(HOST), DropReason::VlanId);
    list.tagged(
        "from another's MAC address, on a trunk",
        first,
        ip.udp(HOST, b.mac, PORTS),
        Decision::Drop(DropReason::SpoofedMac),
    );
    list.tagged(
        "a second tag, on a trunk",
        first,
        ethernet(HOST, a.mac, 0x8100, &[0; 46]),
        Decision::Drop(DropReason::VlanTag),
    );
}

/// Adds packets to the gateway, and the frames that leave by the uplink.
///
/// Over a VLAN these have the MAC addresses of the members, else those of the link, which the kernel writes.
fn routed(list: &mut List) {
    let far = BEYOND.endpoint();
    for (a, names, macs) in [
        (
            &OCHRE_A,
            [
                "IPv4 to a member elsewhere, over a VLAN",
                "IPv6 to a member elsewhere, over a VLAN",
                "no hop left to a member elsewhere, over a VLAN",
                "nobody's address, L3 over a VLAN",
                "over IPv6 to nobody's address, L3 over a VLAN",
            ],
            (BEYOND.mac, OCHRE_A.mac),
        ),
        (
            &OLIVE_A,
            [
                "IPv4 to a member elsewhere, by a router",
                "IPv6 to a member elsewhere, by a router",
                "no hop left to a member elsewhere, by a router",
                "the outside by IPv4, by the uplink",
                "the outside by IPv6, by the uplink",
            ],
            (GATEWAY_MAC, OLIVE_A.mac),
        ),
    ] {
        let v4 = |ttl| Ipv4 {
            ttl,
            ..Ipv4::new(a.ip4, BEYOND.ip4)
        };
        let v6 = |hops| Ipv6 {
            hops,
            ..Ipv6::new(a.ip6, BEYOND.ip6)
        };
        let [over4, over6, spent, out4, out6] = names;
        let route = |family| Decision::WireRoute(far, family);
        let leaving = v4(63).udp(macs.0, macs.1, PORTS);
        let frame = v4(64).udp(GATEWAY_MAC, a.mac, PORTS);
        list.push(over4, a, frame, route(Family::V4), Some(leaving));
        let leaving = v6(63).udp(macs.0, macs.1, PORTS);
        let frame = v6(64).udp(GATEWAY_MAC, a.mac, PORTS);
        list.push(over6, a, frame, route(Family::V6), Some(leaving));
        let frame = v4(1).udp(GATEWAY_MAC, a.mac, PORTS);
        list.drops(spent, a, frame, DropReason::Ttl);
        let sent4 = |ttl, macs: (_, _)| {
            let ip = Ipv4 {
                ttl,
                ..Ipv4::new(a.ip4, HOST4)
            };
            ip.udp(macs.0, macs.1, PORTS)
        };
        let sent6 = |hops, macs: (_, _)| {
            let ip = Ipv6 {
                hops,
                ..Ipv6::new(a.ip6, HOST6)
            };
            ip.udp(macs.0, macs.1, PORTS)
        };
        let asked = (GATEWAY_MAC, a.mac);
        let (frame4, frame6) = (sent4(64, asked), sent6(64, asked));
        if a.flags & PORT_EGRESS == 0 {
            list.drops(out4, a, frame4, DropReason::NoEndpoint);
            list.drops(out6, a, frame6, DropReason::NoEndpoint);
            continue;
        }
        let leave = |family| Decision::WireRoute(OUTSIDE.endpoint(), family);
        let output = Some(sent4(63, macs));
        list.push(out4, a, frame4, leave(Family::V4), output);
        let output = Some(sent6(63, macs));
        list.push(out6, a, frame6, leave(Family::V6), output);
        let last = sent4(1, asked);
        let name = "no hop left to the outside, by the uplink";
        list.drops(name, a, last, DropReason::Ttl);
        let link_local = Ipv4::new(a.ip4, Ipv4Addr::new(169, 254, 7, 7));
        let frame = link_local.udp(GATEWAY_MAC, a.mac, PORTS);
        let name = "a link-local address, by the uplink";
        list.drops(name, a, frame, DropReason::LinkLocal);
    }
}
