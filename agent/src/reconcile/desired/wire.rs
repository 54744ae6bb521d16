//! Networks with an uplink.

use agent_common::addr::MacAddr;
use agent_common::endpoint::ENDPOINT_WIRE;
use agent_common::network::{NETWORK_NEXT_HOP, NETWORK_TRUNK, NETWORK_WIRE};
use agent_common::wire::{NextHop, WireKey};
use api::{Mode, Share, Transport, VlanRange, Wire};

use super::super::{OnWire, WireMember};
use super::tests::{NETWORK, at, attached};
use super::*;
use crate::samples::network;

const FAR: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const UPLINK: u32 = 5;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn over(mode: Mode, share: Share, subnets: &[(&str, &str)]) -> api::Network {
    let transport = match share {
        Share::Vlan(_) | Share::Trunk(_) => Transport::Vlan,
        Share::Untagged | Share::Routed => Transport::Native,
    };
    let uplink = "eth1".to_owned();
    api::Network {
        transport,
        wire: Some(Wire { uplink, share }),
        ..network("blue", mode, subnets)
    }
}

fn there(uplink: u32, members: Vec<WireMember>) -> Elsewhere {
    Elsewhere {
        wire: Some(OnWire { uplink, members }),
        ..Elsewhere::default()
    }
}

#[test]
fn a_vlan_is_the_networks_at_its_uplink_and_nobody_is_entered_beyond() {
    let blue = over(Mode::L2, Share::Vlan(100), &[("10.10.0.0/24", "")]);
    let all = attached(&blue, &[|_| {}]);
    let entries = desired(NETWORK, all.iter(), &there(UPLINK, Vec::new()));
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
        flags & (PORT_WIRE | PORT_TRUNK | PORT_SPREAD),
        PORT_WIRE | PORT_SPREAD
    );
    assert!(entries.flood_vteps.is_empty() && entries.next_hops.is_empty());
}

#[test]
fn a_trunk_has_all_its_vlans() {
    let ranges = vec![
        VlanRange { first: 7, last: 7 },
        VlanRange { first: 9, last: 11 },
    ];
    let blue = over(Mode::L2, Share::Trunk(ranges), &[]);
    let all = attached(&blue, &[|_| {}]);
    let entries = desired(NETWORK, all.iter(), &there(UPLINK, Vec::new()));
    assert_eq!(entries.wires.len(), 8, "{:?}", entries.wires);
    for id in [7, 9, 10, 11] {
        for key in [WireKey::segment(UPLINK, id), WireKey::trunk(NETWORK, id)] {
            assert_eq!(entries.wires.get(&key), Some(&NETWORK), "{key:?}");
        }
    }
    let network = entries.networks[&NETWORK];
    assert_eq!(
        (network.flags, network.vlan),
        (NETWORK_WIRE | NETWORK_TRUNK, 0)
    );
    assert_eq!(entries.ports[&10].flags & PORT_TRUNK, PORT_TRUNK);
}

#[test]
fn a_routed_network_takes_its_own_addresses_and_knows_who_leads_to_others() {
    let green = over(Mode::L3, Share::Routed, &[("10.10.0.0/24", "10.10.0.1")]);
    let all = attached(&green, &[|_| {}]);
    let member = WireMember {
        mac: FAR,
        ips: vec![
            (ip("10.10.0.9"), Some(ip("192.0.2.9"))),
            (ip("10.10.0.8"), None),
        ],
    };
    let entries = desired(NETWORK, all.iter(), &there(UPLINK, vec![member.clone()]));
    let own: Vec<_> = all[0].leases.iter().map(|it| mapped(it.address)).collect();
    let expected: Vec<_> = own.iter().map(|ip| WireKey::address(UPLINK, *ip)).collect();
    assert!(entries.wires.keys().eq(&expected), "{:?}", entries.wires);
    assert_eq!(
        entries.networks[&NETWORK].flags,
        NETWORK_WIRE | NETWORK_L3 | NETWORK_NEXT_HOP
    );
    let far = Endpoint {
        ifindex: 0,
        flags: ENDPOINT_REMOTE | ENDPOINT_WIRE,
        mac: FAR,
        port_id: u16::MAX,
    };
    for address in ["10.10.0.8", "10.10.0.9"] {
        assert_eq!(entries.endpoints.get(&at(address)), Some(&far));
    }
    let hop = NextHop::new(&mapped(ip("192.0.2.9")));
    assert_eq!(entries.next_hops.get(&at("10.10.0.9")), Some(&hop));
    assert_eq!(entries.next_hops.len(), 1);
    // Without its uplink it has nothing there, and its members are still known.
    let entries = desired(NETWORK, all.iter(), &there(0, vec![member]));
    assert!(entries.wires.is_empty());
    assert_eq!(entries.networks[&NETWORK].uplink, 0);
    assert_eq!(entries.endpoints.get(&at("10.10.0.9")), Some(&far));
}
