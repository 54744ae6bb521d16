//! Networks with an uplink.

use std::net::Ipv4Addr;
use std::sync::Arc;

use agent_common::addr::MacAddr;
use agent_common::endpoint::ENDPOINT_WIRE;
use agent_common::network::{NETWORK_ANY_IP, NETWORK_NEXT_HOP, NETWORK_TRUNK, NETWORK_WIRE};
use agent_common::wire::{NextHop, WireKey};
use api::{Mode, Share, Transport, VlanRange, Wire};
use book::samples::network;

use super::super::Reach;
use super::super::wires::beyond;
use super::tests::{NETWORK, at, attached};
use super::*;
use crate::surroundings::{Hops, Routers};
use remotes::Peer;

const FAR: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const UPLINK: u32 = 5;
/// Routers to the outside: by IPv4 only.
const ROUTERS: Routers = [Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 254))), None];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn over(mode: Mode, share: Share, subnets: &[(&str, &str)]) -> api::Network {
    let transport = match share {
        Share::Vlan(_) | Share::Trunk(_) => Transport::Vlan,
        Share::Untagged | Share::Routed => Transport::Native,
    };
    let wire = Wire {
        uplink: "eth1".to_owned(),
        share,
        ether_types: Vec::new(),
    };
    api::Network {
        transport,
        wire: Some(wire),
        ..network("blue", mode, subnets)
    }
}

fn here(all: &[Attachment], uplink: u32) -> Entries {
    let hops = Arc::default();
    let others = Others {
        reach: Reach::Wire {
            uplink,
            hops,
            routers: ROUTERS,
        },
        ..Others::default()
    };
    own(NETWORK, all.iter(), &others).0
}

/// A member of a network that is routed, on a node with these addresses.
fn member(ips: &[&str], vteps: &[&str]) -> RemoteEndpoint {
    let peer = Peer {
        node: "node-9".to_owned(),
        vteps: vteps.iter().copied().map(ip).collect(),
    };
    RemoteEndpoint {
        mac: FAR,
        ips: ips.iter().copied().map(ip).collect(),
        peer: Arc::new(peer),
        pod: None,
    }
}

#[test]
fn a_vlan_is_the_networks_at_its_uplink_and_nobody_is_entered_beyond() {
    let blue = over(Mode::L2, Share::Vlan(100), &[("10.10.0.0/24", "")]);
    let all = attached(&blue, &[|_| {}]);
    let entries = here(&all, UPLINK);
    let expected = Network {
        vlan: 100,
        uplink: UPLINK,
        ..Network::new(NETWORK_WIRE, 1500)
    };
    assert_eq!(entries.networks.get(&NETWORK), Some(&expected));
    let keys: Vec<_> = entries.wires.keys().copied().collect();
    assert_eq!(keys, [WireKey::segment(UPLINK, 100)]);
    let flags = entries.ports[&10].flags;
    assert_eq!(
        flags & (PORT_WIRE | PORT_TRUNK | PORT_REPLICATE),
        PORT_WIRE | PORT_REPLICATE
    );
    assert!(entries.flood_vteps.is_empty() && entries.next_hops.is_empty());
}

/// Ports of a segment that may carry the nodes' own tunnels send none.
///
/// Their addresses do not matter.
#[test]
fn ports_of_a_segment_without_a_tag_are_kept_from_tunnels() {
    let trunk = vec![VlanRange { first: 7, last: 7 }];
    for (mode, share, subnets, guarded) in [
        (Mode::L2, Share::Untagged, &[][..], 4789),
        (Mode::L2, Share::Untagged, &[("10.10.0.0/24", "")][..], 4789),
        (Mode::L2, Share::Vlan(100), &[][..], 0),
        (Mode::L2, Share::Trunk(trunk), &[][..], 0),
        (Mode::L3, Share::Routed, &[("10.10.0.0/24", "")][..], 0),
    ] {
        let network = over(mode, share.clone(), subnets);
        for uplink in [UPLINK, 0] {
            let mut entries = here(&attached(&network, &[|_| {}]), uplink);
            guard_tunnels(&mut entries, 4789);
            assert_eq!(entries.ports[&10].tunnel_port, guarded, "{share:?}");
        }
    }
}

#[test]
fn a_trunk_has_all_its_vlans() {
    let ranges = vec![
        VlanRange { first: 7, last: 7 },
        VlanRange { first: 9, last: 11 },
    ];
    let blue = over(Mode::L2, Share::Trunk(ranges), &[]);
    let all = attached(&blue, &[|_| {}]);
    let entries = here(&all, UPLINK);
    assert_eq!(entries.wires.len(), 8, "{:?}", entries.wires);
    for id in [7, 9, 10, 11] {
        for key in [WireKey::segment(UPLINK, id), WireKey::trunk(NETWORK, id)] {
            assert_eq!(entries.wires.get(&key), Some(&NETWORK), "{key:?}");
        }
    }
    let network = entries.networks[&NETWORK];
    assert_eq!(
        (network.flags, network.vlan),
        (NETWORK_WIRE | NETWORK_TRUNK | NETWORK_ANY_IP, 0)
    );
    assert_eq!(entries.ports[&10].flags & PORT_TRUNK, PORT_TRUNK);
}

#[test]
fn a_segment_lists_the_ether_types_that_it_carries() {
    let mut blue = over(Mode::L2, Share::Untagged, &[("10.10.0.0/24", "")]);
    let wire = blue.wire.as_mut().unwrap();
    wire.ether_types = vec![0x88b5, 0x88f7];
    for uplink in [UPLINK, 0] {
        let entries = here(&attached(&blue, &[|_| {}]), uplink);
        for listed in [0x88b5, 0x88f7] {
            let key = WireKey::ether_type(NETWORK, listed);
            assert_eq!(entries.wires.get(&key), Some(&NETWORK), "{listed:#x}");
        }
        let segments = usize::from(uplink != 0);
        assert_eq!(entries.wires.len(), 2 + segments);
    }
}

#[test]
fn a_routed_network_takes_its_own_addresses_and_knows_who_leads_to_others() {
    let green = over(Mode::L3, Share::Routed, &[("10.10.0.0/24", "10.10.0.1")]);
    let all = attached(&green, &[|_| {}]);
    let entries = here(&all, UPLINK);
    let leases = all[0].leases.iter().map(|it| mapped(it.address));
    let expected: Vec<_> = leases.map(|ip| WireKey::address(UPLINK, ip)).collect();
    assert!(entries.wires.keys().eq(&expected), "{:?}", entries.wires);
    assert_eq!(
        entries.networks[&NETWORK].flags,
        NETWORK_WIRE | NETWORK_L3 | NETWORK_NEXT_HOP
    );
    let away = here(&all, 0);
    assert!(
        away.wires.is_empty(),
        "without its uplink it has nothing there"
    );
    assert_eq!(away.networks[&NETWORK].uplink, 0);
}

#[test]
fn members_elsewhere_are_known_and_who_leads_to_them_by_the_uplink() {
    let green = over(Mode::L3, Share::Routed, &[("10.10.0.0/24", "10.10.0.1")]);
    let all = attached(&green, &[|_| {}]);
    let facts = &all[0].network;
    let far = Endpoint {
        ifindex: 0,
        flags: ENDPOINT_REMOTE | ENDPOINT_WIRE,
        mac: FAR,
        port_id: u16::MAX,
    };
    let (router, link_local) = (ip("192.0.2.9"), ip("fe80::9"));
    let both = member(&["10.10.0.9", "fd10::9"], &["192.0.2.7", "2001:db8::7"]);
    let hops = |by| Hops::from([(ip("192.0.2.7"), Some((by, router)))]);
    let entries = beyond(
        &Members::of(facts),
        std::slice::from_ref(&both),
        UPLINK,
        &hops(UPLINK),
    );
    for address in ["10.10.0.9", "fd10::9"] {
        assert_eq!(entries.endpoints.get(&at(address)), Some(&far));
    }
    let hop = NextHop::new(&mapped(router));
    assert_eq!(entries.next_hops.get(&at("10.10.0.9")), Some(&hop));
    // The kernel gives IPv6 packets to IPv6 neighbours only.
    assert_eq!(entries.next_hops.len(), 1);
    let mut two = hops(UPLINK);
    two.insert(ip("2001:db8::7"), Some((UPLINK, link_local)));
    let entries = beyond(
        &Members::of(facts),
        std::slice::from_ref(&both),
        UPLINK,
        &two,
    );
    let hop = NextHop::new(&mapped(link_local));
    assert_eq!(entries.next_hops.get(&at("fd10::9")), Some(&hop));
    // By another interface, or not at all: they are known, and nobody leads there.
    for hops in [hops(UPLINK + 1), Hops::from([(ip("192.0.2.7"), None)])] {
        let entries = beyond(
            &Members::of(facts),
            std::slice::from_ref(&both),
            UPLINK,
            &hops,
        );
        assert_eq!(entries.endpoints.get(&at("10.10.0.9")), Some(&far));
        assert!(entries.next_hops.is_empty());
    }
    let segment = over(Mode::L2, Share::Untagged, &[("10.10.0.0/24", "")]);
    let all = attached(&segment, &[|_| {}]);
    let entries = beyond(&Members::of(&all[0].network), &[both], UPLINK, &two);
    assert_eq!(entries, Entries::default(), "everybody answers for himself");
}

#[test]
fn what_nobody_has_leaves_by_the_uplink_where_the_network_says_so_and_its_own_subnets_do_not() {
    let subnets = [
        ("10.10.0.0/24", "10.10.0.1"),
        ("10.11.0.0/24", ""),
        ("fd10::/64", ""),
    ];
    let mut green = over(Mode::L3, Share::Routed, &subnets);
    let nobody = EndpointKey {
        network: NETWORK,
        ip: Ip16::NONE,
    };
    let closed = here(&attached(&green, &[|_| {}]), UPLINK);
    assert_eq!(closed.endpoints.get(&nobody), None);
    assert_eq!(closed.ports[&10].flags & PORT_EGRESS, 0);
    assert!(closed.next_hops.is_empty());
    green.egress = api::Egress::Uplink;
    let all = attached(&green, &[|_| {}]);
    let entries = here(&all, UPLINK);
    let way_out = entries.endpoints[&nobody];
    assert_eq!(way_out.flags, ENDPOINT_OUTSIDE | ENDPOINT_WIRE);
    assert_eq!(entries.ports[&10].flags & PORT_EGRESS, PORT_EGRESS);
    // Of the family that has a router.
    let hops: Vec<_> = entries.next_hops.into_iter().collect();
    let hop = NextHop::new(&mapped(ip("192.0.2.254")));
    assert_eq!(hops, [(at("0.0.0.0"), hop)]);
    // What has no tag is nobody's but the node's.
    assert!(!entries.wires.contains_key(&WireKey::segment(UPLINK, 0)));
    let mut lengths = entries.networks[&NETWORK].subnets;
    lengths.sort_unstable();
    assert_eq!(lengths[14..], [64, 120]);
    assert_eq!(lengths[..14], [0; 14]);
    for (first, length) in [("10.10.0.0", 120), ("10.11.0.0", 120), ("fd10::", 64)] {
        let key = WireKey::subnet(NETWORK, mapped(ip(first)), length);
        assert_eq!(entries.wires.get(&key), Some(&NETWORK), "{first}");
    }
}
