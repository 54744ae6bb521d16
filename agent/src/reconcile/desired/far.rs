//! Members on other nodes.

use agent_common::addr::MacAddr;
use api::{Mode, Transport};

use super::super::Far;
use super::tests::{NETWORK, at, attached, ip};
use super::*;
use crate::samples::network;

const FAR: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

fn elsewhere(mac: MacAddr, ips: &[&str]) -> Elsewhere {
    Elsewhere {
        endpoints: vec![Far {
            mac,
            ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            vtep: 3,
        }],
        nodes: vec![3, 7],
        way_out: None,
        wire: None,
    }
}

fn spanning(mode: Mode) -> api::Network {
    api::Network {
        transport: Transport::Vxlan,
        mtu: 1430,
        ..network("blue", mode, &[("10.10.0.0/24", ""), ("fd10::/64", "")])
    }
}

fn remote(mac: MacAddr) -> Endpoint {
    Endpoint {
        ifindex: 3,
        flags: ENDPOINT_REMOTE,
        mac,
        port_id: u16::MAX,
    }
}

#[test]
fn a_member_elsewhere_is_found_as_one_here_is_by_the_number_of_its_node() {
    let all = attached(&spanning(Mode::L2), &[|_| {}]);
    let entries = desired(
        NETWORK,
        all.iter(),
        &elsewhere(FAR, &["10.10.0.9", "fd10::9"]),
    );
    let expected = remote(FAR);
    assert_eq!(entries.fdb.get(&FdbKey::new(NETWORK, FAR)), Some(&expected));
    let link_local = FAR.link_local().to_string();
    for address in ["10.10.0.9", "fd10::9", &link_local] {
        assert_eq!(
            entries.endpoints.get(&at(address)),
            Some(&expected),
            "{address}"
        );
    }
    let facts = Network::new(0, 1430);
    assert_eq!(entries.networks.get(&NETWORK), Some(&facts));
    assert_eq!(entries.ports[&10].flags & PORT_SPREAD, PORT_SPREAD);
    let nodes = entries.flood_vteps[&FloodKey {
        network: NETWORK,
        chunk: 0,
    }];
    assert_eq!((nodes.count, &nodes.vteps[..3]), (2, &[3, 7, 0][..]));
    // Copies for ports of this node go to these only.
    assert_eq!(entries.flood.len(), 1);
}

#[test]
fn a_routed_network_finds_members_elsewhere_by_address_and_spreads_nothing() {
    let all = attached(&spanning(Mode::L3), &[|_| {}]);
    let entries = desired(NETWORK, all.iter(), &elsewhere(FAR, &["10.10.0.9"]));
    assert_eq!(entries.endpoints.get(&at("10.10.0.9")), Some(&remote(FAR)));
    assert!(entries.fdb.is_empty() && entries.flood_vteps.is_empty());
    assert_eq!(entries.networks[&NETWORK].flags, NETWORK_L3);
    assert_eq!(entries.ports[&10].flags & PORT_SPREAD, 0);
}

#[test]
fn what_this_node_has_itself_nobody_else_takes_from_it() {
    let all = attached(&spanning(Mode::L2), &[|_| {}]);
    let (mac, own) = (all[0].mac, all[0].leases[0].address.to_string());
    let entries = desired(NETWORK, all.iter(), &elsewhere(mac, &[&own, "10.10.0.99"]));
    assert_eq!(entries.fdb[&FdbKey::new(NETWORK, mac)].ifindex, 10);
    assert_eq!(entries.endpoints[&at(&own)].flags & ENDPOINT_REMOTE, 0);
    let link_local = ip(&mac.link_local().to_string());
    let key = EndpointKey {
        network: NETWORK,
        ip: link_local,
    };
    assert_eq!(entries.endpoints[&key].ifindex, 10);
    assert_eq!(entries.endpoints[&at("10.10.0.99")].ifindex, 3);
}

#[test]
fn a_network_that_stays_on_its_node_knows_no_other() {
    let local = network("blue", Mode::L2, &[("10.10.0.0/24", "")]);
    let all = attached(&local, &[|_| {}]);
    let with = desired(NETWORK, all.iter(), &elsewhere(FAR, &["10.10.0.9"]));
    let without = desired(NETWORK, all.iter(), &Elsewhere::default());
    assert_eq!(with, without);
    assert!(with.networks.is_empty());
}

#[test]
fn without_ports_here_a_network_has_no_entry_whoever_is_elsewhere() {
    let entries = desired(NETWORK, std::iter::empty(), &elsewhere(FAR, &["10.10.0.9"]));
    assert_eq!(entries, Entries::default());
}

#[test]
fn broadcast_reaches_as_many_nodes_as_there_is_room_for() {
    let all = attached(&spanning(Mode::L2), &[|_| {}]);
    let nodes = Elsewhere {
        endpoints: Vec::new(),
        nodes: (1..=2000).collect(),
        way_out: None,
        wire: None,
    };
    let entries = desired(NETWORK, all.iter(), &nodes);
    let counts: Vec<u32> = entries.flood_vteps.values().map(|it| it.count).collect();
    assert_eq!(counts, [126; 4]);
}
