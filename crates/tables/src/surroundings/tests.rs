use api::{Endpoint, Mode, NetworkId, Transport};
use book::samples;
use k8s_openapi::jiff::Timestamp;

use super::*;
use remotes::{Served, Slice};

const NETWORK: u32 = 7;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Surroundings of a node that serves the network.
///
/// Another node has a member of it.
fn surroundings(transport: Transport) -> Surroundings {
    let remotes = Remotes::new("n1");
    remotes.set_vteps(&[ip("192.0.2.1")]);
    let served = Served {
        id: NETWORK,
        transport,
        routed: true,
        subnets: facts(transport).subnets,
    };
    remotes.serve(BTreeMap::from([("blue".to_owned(), served)]));
    let member = Endpoint {
        mac: api::MacAddr::new([2, 0, 0, 0, 0, 9]),
        ips: vec![ip("10.10.0.9")],
        since: Timestamp::UNIX_EPOCH,
        pod: None,
    };
    let slice = Slice {
        network: "blue".to_owned(),
        id: NetworkId::new(NETWORK).unwrap(),
        node: "n2".to_owned(),
        vteps: vec![ip("192.0.2.2")],
        endpoints: vec![member],
    };
    remotes.replace("n2", Some(slice));
    remotes.set_complete();
    Surroundings::new(Arc::new(remotes))
}

fn facts(transport: Transport) -> NetworkFacts {
    let wire = (transport == Transport::Native).then(|| api::Wire {
        uplink: "eth1".to_owned(),
        share: api::Share::Routed,
        ether_types: Vec::new(),
    });
    let network = api::Network {
        transport,
        wire,
        ..samples::network("blue", Mode::L3, &[("10.10.0.0/24", "")])
    };
    NetworkFacts::of(&network, NETWORK)
}

#[test]
fn members_elsewhere_are_there_once_there_are_tunnels() {
    let surroundings = surroundings(Transport::Vxlan);
    let facts = facts(Transport::Vxlan);
    let before = surroundings.of(NETWORK, Some(&facts));
    assert!(before.said.is_none() && !before.complete);
    surroundings.set_tunnels(4);
    let now = surroundings.of(NETWORK, Some(&facts));
    assert_eq!(now.said.unwrap().endpoints.len(), 1);
    assert!(now.complete);
    let Reach::Tunnels { device, own } = now.reach else {
        panic!("{:?}", now.reach);
    };
    assert_eq!((device, own), (4, vec![ip("192.0.2.1")]));
}

/// While next hops are not looked for, what is in the tables stays.
#[test]
fn a_routed_network_is_complete_when_the_way_to_all_of_it_is_known() {
    let surroundings = surroundings(Transport::Native);
    let facts = facts(Transport::Native);
    surroundings.set_uplinks(BTreeMap::from([("eth1".to_owned(), 5)]));
    assert!(!surroundings.of(NETWORK, Some(&facts)).complete);
    let hop = Some((5, ip("192.0.2.254")));
    let hops = Arc::new(Hops::from([(ip("192.0.2.2"), hop)]));
    surroundings.set_hops(Arc::clone(&hops), BTreeMap::new());
    let now = surroundings.of(NETWORK, Some(&facts));
    assert!(now.complete);
    assert_eq!((now.uplink(), now.routers()), (5, Routers::default()));
    let Reach::Wire { hops: found, .. } = now.reach else {
        panic!("{:?}", now.reach);
    };
    assert!(Arc::ptr_eq(&found, &hops));
}

#[test]
fn a_way_out_is_there_until_its_network_is_dropped() {
    let surroundings = surroundings(Transport::Vxlan);
    let way_out = WayOut {
        ifindex: 9,
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
    };
    for network in [NETWORK, NETWORK + 1] {
        surroundings.set_way_out(network, way_out);
    }
    surroundings.keep_ways_out(&BTreeSet::from([NETWORK]));
    assert_eq!(surroundings.of(NETWORK, None).way_out, Some(way_out));
    assert_eq!(surroundings.of(NETWORK + 1, None).way_out, None);
}

/// Inputs can be read under the locks of tables and ledger.
///
/// The inputs take their locks one after the other.
#[test]
fn inputs_are_read_under_the_locks_of_tables_and_book() {
    let tables = Ranked::new(Rank::Tables, ());
    let book = Ranked::new(Rank::Book, ());
    let _tables = tables.lock();
    let _book = book.lock();
    for transport in [Transport::Vxlan, Transport::Native] {
        let surroundings = surroundings(transport);
        surroundings.set_tunnels(4);
        surroundings.of(NETWORK, Some(&facts(transport)));
    }
}
