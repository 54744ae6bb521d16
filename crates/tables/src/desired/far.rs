//! Members on other nodes.

use std::sync::Arc;

use agent_common::addr::MacAddr;
use api::{Mode, Transport};
use book::samples::network;

use super::tests::{NETWORK, at, attached, of};
use super::*;
use remotes::Peer;

const FAR: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

fn member(mac: MacAddr, ips: &[&str]) -> RemoteEndpoint {
    let peer = Peer {
        node: "node-3".to_owned(),
        vteps: vec!["192.0.2.3".parse().unwrap()],
    };
    RemoteEndpoint {
        mac,
        ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
        peer: Arc::new(peer),
        pod: None,
    }
}

/// The entries for members elsewhere alone; nodes have the numbers 3 and 7.
fn elsewhere(all: &[Attachment], members: &[RemoteEndpoint]) -> Entries {
    let (_, facts) = own(NETWORK, all.iter(), &Others::default());
    let numbers = BTreeMap::from([("node-3", 3), ("node-7", 7)]);
    tunnelled(&Members::of(facts.unwrap()), members, &numbers)
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
    let entries = elsewhere(&all, &[member(FAR, &["10.10.0.9", "fd10::9"])]);
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
    let here = of(&all);
    let facts = Network::new(0, 1430);
    assert_eq!(here.networks.get(&NETWORK), Some(&facts));
    assert_eq!(here.ports[&10].flags & PORT_REPLICATE, PORT_REPLICATE);
    let nodes = entries.flood_vteps[&FloodKey {
        network: NETWORK,
        chunk: 0,
    }];
    assert_eq!((nodes.count, nodes.total), (2, 2));
    assert_eq!(nodes.vteps[..3], [3, 7, 0]);
    // Copies for ports of this node go to these only.
    assert_eq!(here.flood.len(), 1);
}

#[test]
fn a_routed_network_finds_members_elsewhere_by_address_and_spreads_nothing() {
    let all = attached(&spanning(Mode::L3), &[|_| {}]);
    let entries = elsewhere(&all, &[member(FAR, &["10.10.0.9"])]);
    assert_eq!(entries.endpoints.get(&at("10.10.0.9")), Some(&remote(FAR)));
    assert!(entries.fdb.is_empty() && entries.flood_vteps.is_empty());
    let here = of(&all);
    assert_eq!(here.networks[&NETWORK].flags, NETWORK_L3);
    assert_eq!(here.ports[&10].flags & PORT_REPLICATE, 0);
}

#[test]
fn a_member_on_a_node_that_no_tunnel_reaches_is_not_entered() {
    let all = attached(&spanning(Mode::L2), &[|_| {}]);
    let mut lost = member(FAR, &["10.10.0.9"]);
    Arc::make_mut(&mut lost.peer).node = "node-9".to_owned();
    let entries = elsewhere(&all, &[lost]);
    assert!(entries.fdb.is_empty() && entries.endpoints.is_empty());
}

#[test]
fn a_network_that_stays_on_its_node_knows_no_other() {
    let local = network("blue", Mode::L2, &[("10.10.0.0/24", "")]);
    let all = attached(&local, &[|_| {}]);
    let (entries, facts) = own(NETWORK, all.iter(), &Others::default());
    assert!(facts.is_none() && entries.networks.is_empty());
}

#[test]
fn without_ports_here_a_network_has_no_entry_whoever_is_elsewhere() {
    let (entries, facts) = own(NETWORK, std::iter::empty(), &Others::default());
    assert!(facts.is_none());
    assert_eq!(entries, Entries::default());
}

#[test]
fn broadcast_reaches_as_many_nodes_as_there_is_room_for() {
    let all = attached(&spanning(Mode::L2), &[|_| {}]);
    let names: Vec<String> = (1..=2000).map(|number| format!("node-{number}")).collect();
    let numbers = names.iter().map(String::as_str).zip(1..).collect();
    let (_, facts) = own(NETWORK, all.iter(), &Others::default());
    let entries = tunnelled(&Members::of(facts.unwrap()), &[], &numbers);
    let counts: Vec<u16> = entries.flood_vteps.values().map(|it| it.count).collect();
    assert_eq!(counts, [126; 4]);
}
