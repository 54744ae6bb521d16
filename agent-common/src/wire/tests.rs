//! Test frames from an uplink to pods, and from pods to an uplink.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

mod unfinished;

use super::*;
use crate::cases::build::{Ipv4, Ipv6, ethernet};
use crate::endpoint::{ENDPOINT_WIRE, EndpointKey, FdbKey};
use crate::network::{NETWORK_TRUNK, NETWORK_WIRE};
use crate::partial::Partial;
use crate::policy::{self, Decision, Family};
use crate::port::{PORT_ANY_IP, PORT_L3, PORT_TRUNK, PORT_WIRE, Port};

const BLUE: u32 = 7;
const PORTS: (u16, u16) = (4000, 5000);
const NEAR: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const FAR: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const STRANGER: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);
const NEAR_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const FAR_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const STRANGER_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const NEAR_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const STRANGER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 3);

const L2: Network = Network::new(NETWORK_WIRE, 1500);
const ROUTED: Network = Network::new(NETWORK_WIRE | NETWORK_L3, 1500);
const BY_ROUTERS: Network = Network::new(NETWORK_WIRE | NETWORK_L3 | NETWORK_NEXT_HOP, 1500);

/// A pod here, and one on another node where the network is routed.
struct Two {
    fdb: BTreeMap<FdbKey, Endpoint>,
    endpoints: BTreeMap<EndpointKey, Endpoint>,
}

fn near() -> Endpoint {
    Endpoint {
        ifindex: 11,
        flags: 0,
        mac: NEAR,
        port_id: 3,
    }
}

fn far() -> Endpoint {
    Endpoint {
        ifindex: 0,
        flags: ENDPOINT_REMOTE | ENDPOINT_WIRE,
        mac: FAR,
        port_id: u16::MAX,
    }
}

impl Two {
    fn on(routed: bool) -> Self {
        let mut two = Self {
            fdb: BTreeMap::new(),
            endpoints: BTreeMap::new(),
        };
        let mut add = |ip: IpAddr, endpoint| {
            let key = EndpointKey {
                network: BLUE,
                ip: ip.into(),
            };
            two.endpoints.insert(key, endpoint);
        };
        add(NEAR_V4.into(), near());
        add(NEAR_V6.into(), near());
        if routed {
            add(FAR_V4.into(), far());
        } else {
            two.fdb.insert(FdbKey::new(BLUE, NEAR), near());
        }
        two
    }
}

impl Tables for Two {
    fn is_further_address(&self, _: &Ip16) -> bool {
        false
    }

    fn endpoint(&self, network: u32, ip: &Ip16) -> Option<Endpoint> {
        self.endpoints
            .get(&EndpointKey { network, ip: *ip })
            .copied()
    }

    fn station(&self, network: u32, mac: MacAddr) -> Option<Endpoint> {
        self.fdb.get(&FdbKey::new(network, mac)).copied()
    }

    fn has_vlan(&self, network: u32, id: u16) -> bool {
        network == BLUE && (100..=110).contains(&id)
    }

    fn has_ether_type(&self, network: u32, ether_type: u16) -> bool {
        network == BLUE && matches!(ether_type, 0x88b5 | 0x8808 | 46)
    }
}

fn l2(frame: &[u8]) -> Incoming {
    incoming(frame, &L2, BLUE, &Two::on(false))
}

fn v4(to: MacAddr, from: MacAddr, source: Ipv4Addr) -> Vec<u8> {
    Ipv4::new(source, NEAR_V4).udp(to, from, PORTS)
}

fn dropped(reason: DropReason) -> Incoming {
    Incoming::Drop(reason)
}

#[test]
fn what_is_for_a_pod_of_this_node_is_delivered_and_what_is_not_is_left() {
    assert_eq!(
        l2(&v4(NEAR, STRANGER, STRANGER_V4)),
        Incoming::Deliver(near())
    );
    let v6 = Ipv6::new(STRANGER_V6, NEAR_V6).udp(NEAR, STRANGER, PORTS);
    assert_eq!(l2(&v6), Incoming::Deliver(near()));
    assert_eq!(
        l2(&v4(MacAddr::BROADCAST, STRANGER, STRANGER_V4)),
        Incoming::Flood
    );
    for to in [FAR, GATEWAY_MAC] {
        assert_eq!(l2(&v4(to, STRANGER, STRANGER_V4)), Incoming::Leave);
    }
    // Not even what lies is podnet's, when it is not for a pod.
    assert_eq!(l2(&v4(FAR, NEAR, NEAR_V4)), Incoming::Leave);
    let lldp = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x0e]);
    assert_eq!(
        l2(&ethernet(lldp, STRANGER, 0x88cc, &[0; 50])),
        Incoming::Leave
    );
    assert_eq!(l2(&[0; 10]), Incoming::Leave);
    let other = ethernet(NEAR, STRANGER, 0x88b5, &[0; 50]);
    assert_eq!(l2(&other), Incoming::Deliver(near()));
}

/// A frame for all hosts is the node's, and no pod's.
#[test]
fn an_ether_type_that_is_not_listed_reaches_no_pod() {
    for kind in [0x88b6, 0x88cc, 0x88f7, 0x8863, 0x8847, 0x8808, 46] {
        let frame = |to| ethernet(to, STRANGER, kind, &[0; 50]);
        assert_eq!(l2(&frame(NEAR)), dropped(DropReason::EtherType), "{kind:x}");
        assert_eq!(l2(&frame(MacAddr::BROADCAST)), Incoming::Leave, "{kind:x}");
    }
    let listed = ethernet(MacAddr::BROADCAST, STRANGER, 0x88b5, &[0; 50]);
    assert_eq!(l2(&listed), Incoming::Flood);
}

#[test]
fn who_is_here_does_not_come_in_by_the_uplink() {
    for to in [NEAR, MacAddr::BROADCAST] {
        for from in [NEAR, GATEWAY_MAC] {
            let lie = v4(to, from, STRANGER_V4);
            assert_eq!(l2(&lie), dropped(DropReason::SpoofedMac));
        }
        let lie = v4(to, STRANGER, NEAR_V4);
        assert_eq!(l2(&lie), dropped(DropReason::SpoofedIp));
        let lie = Ipv6::new(NEAR_V6, NEAR_V6).udp(to, STRANGER, PORTS);
        assert_eq!(l2(&lie), dropped(DropReason::SpoofedIp));
    }
}

#[test]
fn what_no_pod_may_get_is_dropped_or_the_nodes_alone() {
    let large = |to| ethernet(to, STRANGER, ETH_P_IP, &[0x45; 1501]);
    let tagged = |to| ethernet(to, STRANGER, 0x8100, &[0; 60]);
    let short = |to| ethernet(to, STRANGER, ETH_P_ARP, &[0; 20]);
    type To<'a> = &'a dyn Fn(MacAddr) -> Vec<u8>;
    let cases: [(To<'_>, DropReason); 3] = [
        (&large, DropReason::TooBig),
        (&tagged, DropReason::VlanTag),
        (&short, DropReason::Truncated),
    ];
    for (frame, reason) in cases {
        assert_eq!(l2(&frame(NEAR)), dropped(reason), "{reason}");
        assert_eq!(l2(&frame(MacAddr::BROADCAST)), Incoming::Leave, "{reason}");
    }
}

#[test]
fn a_routed_network_takes_what_its_members_sent() {
    let routed = |frame: &[u8]| incoming(frame, &ROUTED, BLUE, &Two::on(true));
    assert_eq!(routed(&v4(NEAR, FAR, FAR_V4)), Incoming::Route(near()));
    for (frame, reason) in [
        (v4(NEAR, STRANGER, FAR_V4), DropReason::SpoofedMac),
        (v4(NEAR, STRANGER, STRANGER_V4), DropReason::SpoofedIp),
        (v4(NEAR, FAR, NEAR_V4), DropReason::SpoofedIp),
    ] {
        assert_eq!(routed(&frame), dropped(reason));
    }
    let elsewhere = Ipv4::new(FAR_V4, STRANGER_V4).udp(NEAR, FAR, PORTS);
    for frame in [
        v4(STRANGER, FAR, FAR_V4),
        elsewhere,
        ethernet(NEAR, FAR, ETH_P_ARP, &[0; 46]),
    ] {
        assert_eq!(routed(&frame), Incoming::Leave);
    }
}

#[test]
fn routers_bring_what_anybody_sent_who_is_not_here() {
    let routed = |frame: &[u8]| incoming(frame, &BY_ROUTERS, BLUE, &Two::on(true));
    for source in [FAR_V4, STRANGER_V4] {
        let frame = v4(STRANGER, STRANGER, source);
        assert_eq!(routed(&frame), Incoming::Route(near()));
    }
    let lie = v4(STRANGER, STRANGER, NEAR_V4);
    assert_eq!(routed(&lie), dropped(DropReason::SpoofedIp));
}

fn port(flags: u32) -> Port {
    Port {
        network: BLUE,
        flags,
        mac: NEAR,
        mtu: 1500,
        ip4: NEAR_V4.octets(),
        port_id: 3,
        tunnel_port: 0,
        ip6: Ip16(NEAR_V6.octets()),
        link_local: Ip16::NONE,
        home: 11,
        shaper: 0,
    }
}

/// A frame with the values that a kernel keeps apart from its bytes.
///
/// The id of a tag, and the checksum still to be written.
struct Beside<'a> {
    bytes: &'a [u8],
    tag: Option<u16>,
    partial: Partial,
}

/// A frame with a tag next to it.
fn tagged(bytes: &[u8], id: u16) -> Beside<'_> {
    Beside {
        bytes,
        tag: Some(id),
        partial: Partial::NONE,
    }
}

impl Frame for Beside<'_> {
    fn length(&self) -> usize {
        self.bytes.len()
    }

    fn segment_length(&self) -> usize {
        self.bytes.len()
    }

    fn has_vlan_tag(&self) -> bool {
        self.tag.is_some()
    }

    fn vlan_id(&self) -> u16 {
        self.tag.unwrap_or(0)
    }

    fn partial(&self) -> Partial {
        self.partial
    }

    fn load<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.bytes.load(offset)
    }

    fn start(&self) -> Start {
        self.bytes.start()
    }
}

#[test]
fn whom_podnet_does_not_know_may_be_on_the_wire() {
    let decide = |frame: &[u8]| policy::decide(frame, &port(PORT_WIRE), &Two::on(false));
    let to = |to| Ipv4::new(NEAR_V4, STRANGER_V4).udp(to, NEAR, PORTS);
    assert_eq!(decide(&to(STRANGER)), Decision::Wire);
    assert_eq!(decide(&to(MacAddr::BROADCAST)), Decision::Flood);
    assert_eq!(decide(&to(NEAR)), Decision::Drop(DropReason::Hairpin));
    // Checked as on every network.
    let lie = Ipv4::new(FAR_V4, STRANGER_V4).udp(STRANGER, NEAR, PORTS);
    assert_eq!(decide(&lie), Decision::Drop(DropReason::SpoofedIp));
}

#[test]
fn a_routed_network_sends_to_members_on_the_wire_and_to_nobody_else() {
    let decide = |frame: &[u8]| policy::decide(frame, &port(PORT_L3), &Two::on(true));
    let to = |ip| Ipv4::new(NEAR_V4, ip).udp(GATEWAY_MAC, NEAR, PORTS);
    assert_eq!(decide(&to(FAR_V4)), Decision::WireRoute(far(), Family::V4));
    assert_eq!(
        decide(&to(STRANGER_V4)),
        Decision::Drop(DropReason::NoEndpoint)
    );
}

#[test]
fn a_trunk_carries_its_vlans_with_one_tag_and_nothing_else() {
    let port = port(PORT_WIRE | PORT_TRUNK | PORT_ANY_IP);
    let two = Two::on(false);
    let frame = Ipv4::new(FAR_V4, STRANGER_V4).udp(STRANGER, NEAR, PORTS);
    let decide = |frame: &[u8], id| policy::decide(&tagged(frame, id), &port, &two);
    assert_eq!(decide(&frame, 100), Decision::Wire);
    assert_eq!(decide(&frame, 110), Decision::Wire);
    for id in [0, 99, 111] {
        assert_eq!(decide(&frame, id), Decision::Drop(DropReason::VlanId));
    }
    let plain = policy::decide(frame.as_slice(), &port, &two);
    assert_eq!(plain, Decision::Drop(DropReason::VlanId));
    let twice = ethernet(STRANGER, NEAR, 0x8100, &[0; 60]);
    assert_eq!(decide(&twice, 100), Decision::Drop(DropReason::VlanTag));
    let other = Ipv4::new(FAR_V4, STRANGER_V4).udp(STRANGER, FAR, PORTS);
    assert_eq!(decide(&other, 100), Decision::Drop(DropReason::SpoofedMac));
    let trunk = Network::new(NETWORK_WIRE | NETWORK_TRUNK, 1500);
    let arrived = incoming(
        &tagged(&v4(NEAR, STRANGER, STRANGER_V4), 100),
        &trunk,
        BLUE,
        &two,
    );
    assert_eq!(arrived, Incoming::Deliver(near()));
}

/// Questions of hosts beyond the uplink, and their answers.
mod questions {
    use super::*;
    use crate::cases::build::{
        Arp, group_mac_v6, link_address, padded, solicitation, solicited_node,
    };

    const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
    const PROBE: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

    /// The node, with the address of the network's gateway.
    fn node() -> Two {
        let mut two = Two::on(true);
        let gateway = Endpoint {
            ifindex: 0,
            flags: ENDPOINT_GATEWAY,
            mac: GATEWAY_MAC,
            port_id: u16::MAX,
        };
        let key = EndpointKey {
            network: BLUE,
            ip: IpAddr::from(GATEWAY_V4).into(),
        };
        two.endpoints.insert(key, gateway);
        two
    }

    fn on(network: &Network, frame: &[u8]) -> Incoming {
        incoming(frame, network, BLUE, &node())
    }

    fn arp(to: MacAddr, sender: (MacAddr, Ipv4Addr), target: Ipv4Addr) -> Vec<u8> {
        padded(Arp::request(sender, target).frame(to, sender.0))
    }

    fn nd(to: MacAddr, from: MacAddr, source: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
        let option = link_address(1, from);
        let message = solicitation(target, &option);
        Ipv6::neighbour(source, solicited_node(target)).icmp(to, from, 135, 0, &message)
    }

    fn group() -> MacAddr {
        group_mac_v6(solicited_node(NEAR_V6))
    }

    #[test]
    fn who_asks_for_a_member_here_is_answered_and_for_nobody_else() {
        let all = MacAddr::BROADCAST;
        let host = (STRANGER, STRANGER_V4);
        for network in [ROUTED, BY_ROUTERS] {
            let ask = |to, target| on(&network, &arp(to, host, target));
            assert_eq!(ask(all, NEAR_V4), Incoming::ArpReply(near()));
            assert_eq!(ask(NEAR, NEAR_V4), Incoming::ArpReply(near()));
            for target in [FAR_V4, STRANGER_V4, GATEWAY_V4, PROBE] {
                assert_eq!(ask(all, target), Incoming::Leave, "{target}");
            }
            for to in [group(), NEAR] {
                let frame = nd(to, STRANGER, STRANGER_V6, NEAR_V6);
                assert_eq!(on(&network, &frame), Incoming::NdReply(near()));
            }
            let frame = nd(group(), STRANGER, NEAR_V6, STRANGER_V6);
            assert_eq!(on(&network, &frame), Incoming::Leave);
        }
        // Asked of the host that has the MAC address, it is that host's.
        let frame = arp(FAR, host, NEAR_V4);
        assert_eq!(on(&ROUTED, &frame), Incoming::Leave);
        let frame = nd(FAR, STRANGER, STRANGER_V6, NEAR_V6);
        assert_eq!(on(&ROUTED, &frame), Incoming::Leave);
    }

    /// Members on other nodes, a gateway out there, routers, hosts without an address.
    ///
    /// Routers ask from their link-local addresses.
    #[test]
    fn whoever_may_speak_for_the_address_he_asks_from_is_answered() {
        let all = MacAddr::BROADCAST;
        for sender in [(FAR, FAR_V4), (STRANGER, GATEWAY_V4), (STRANGER, PROBE)] {
            let frame = arp(all, sender, NEAR_V4);
            assert_eq!(on(&ROUTED, &frame), Incoming::ArpReply(near()));
        }
        let message = solicitation(NEAR_V6, &[]);
        let probe = Ipv6::neighbour(Ipv6Addr::UNSPECIFIED, solicited_node(NEAR_V6));
        let probe = probe.icmp(group(), STRANGER, 135, 0, &message);
        let router = nd(group(), STRANGER, STRANGER.link_local(), NEAR_V6);
        for frame in [probe, router] {
            assert_eq!(on(&ROUTED, &frame), Incoming::NdReply(near()));
        }
    }

    #[test]
    fn who_asks_as_somebody_else_is_dropped() {
        let all = MacAddr::BROADCAST;
        let other = Arp::request((FAR, STRANGER_V4), NEAR_V4).frame(all, STRANGER);
        for frame in [
            // An announcement of a pod's address.
            arp(all, (STRANGER, NEAR_V4), NEAR_V4),
            arp(all, (STRANGER, FAR_V4), NEAR_V4),
            arp(all, (NEAR, STRANGER_V4), NEAR_V4),
            arp(all, (GATEWAY_MAC, STRANGER_V4), NEAR_V4),
            arp(all, (all, STRANGER_V4), NEAR_V4),
            other,
        ] {
            assert_eq!(on(&ROUTED, &frame), dropped(DropReason::SpoofedArp));
        }
        let message = solicitation(NEAR_V6, &link_address(1, FAR));
        let other = Ipv6::neighbour(STRANGER_V6, solicited_node(NEAR_V6));
        let other = other.icmp(group(), STRANGER, 135, 0, &message);
        for frame in [
            nd(group(), STRANGER, NEAR_V6, NEAR_V6),
            nd(group(), GATEWAY_MAC, STRANGER_V6, NEAR_V6),
            other,
        ] {
            assert_eq!(on(&ROUTED, &frame), dropped(DropReason::SpoofedNd));
        }
    }

    #[test]
    fn what_is_no_question_is_not_answered() {
        let all = MacAddr::BROADCAST;
        let reply = Arp {
            operation: 2,
            ..Arp::request((STRANGER, STRANGER_V4), NEAR_V4)
        };
        let honest = nd(group(), STRANGER, STRANGER_V6, NEAR_V6);
        let with = |at: usize, byte| {
            let mut frame = honest.clone();
            frame[at] = byte;
            frame
        };
        for frame in [
            reply.frame(all, STRANGER),
            arp(all, (STRANGER, STRANGER_V4), NEAR_V4)[..40].to_vec(),
            // Routed, an advertisement, with a code, and cut off.
            with(L3 + 7, 254),
            with(L3 + IPV6_HLEN, 136),
            with(L3 + IPV6_HLEN + 1, 1),
            honest[..honest.len() - 1].to_vec(),
        ] {
            assert_eq!(on(&ROUTED, &frame), Incoming::Leave);
        }
        let asks = asked_for(honest.as_slice());
        assert_eq!(asks, Some(Ip16(NEAR_V6.octets())));
        let frame = v4(NEAR, FAR, FAR_V4);
        assert_eq!(asked_for(frame.as_slice()), None);
    }
}

/// No packet to an address of the network's own subnets goes to routers outside.
#[test]
fn an_address_is_the_networks_own_in_any_of_its_subnets() {
    struct Subnets([(IpAddr, u8); 3]);
    impl Tables for Subnets {
        fn is_further_address(&self, _: &Ip16) -> bool {
            false
        }
        fn endpoint(&self, _: u32, _: &Ip16) -> Option<Endpoint> {
            None
        }
        fn station(&self, _: u32, _: MacAddr) -> Option<Endpoint> {
            None
        }
        fn has_subnet(&self, network: u32, first: &Ip16, length: u8) -> bool {
            let mut known = self.0.iter();
            network == BLUE && known.any(|(ip, it)| Ip16::from(*ip) == *first && *it == length)
        }
    }
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let tables = Subnets([
        (ip("10.0.0.0"), 96 + 24),
        (ip("10.9.8.6"), 96 + 31),
        (ip("fd00::"), 64),
    ]);
    let mut network = BY_ROUTERS;
    network.subnets[..3].copy_from_slice(&[64, 120, 127]);
    for (text, own) in [
        ("10.0.0.0", true),
        ("10.0.0.255", true),
        ("10.0.1.0", false),
        ("9.255.255.255", false),
        ("10.9.8.6", true),
        ("10.9.8.7", true),
        ("10.9.8.8", false),
        ("10.9.8.5", false),
        ("fd00::ffff:ffff:ffff:ffff", true),
        ("fd00:0:0:1::", false),
        ("fcff::", false),
        ("0.0.0.0", false),
        ("::", false),
    ] {
        let found = is_own(&network, BLUE, &ip(text).into(), &tables);
        assert_eq!(found, own, "{text}");
        assert!(!is_own(&network, BLUE + 1, &ip(text).into(), &tables));
        assert!(!is_own(&BY_ROUTERS, BLUE, &ip(text).into(), &tables));
    }
}
