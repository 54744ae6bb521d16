use std::collections::BTreeMap;

use api::{Endpoint, NetworkId, Transport};
use book::record::SubnetFacts;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;

use super::*;

fn mac(last: u8) -> api::MacAddr {
    api::MacAddr::new([2, 0, 0, 0, 0, last])
}

/// An endpoint with the address 10.0.0.`ip`, claimed at a second.
fn endpoint(last: u8, ip: u8, second: i64) -> Endpoint {
    Endpoint {
        mac: mac(last),
        ips: vec![IpAddr::from([10, 0, 0, ip])],
        since: Timestamp::from_second(second).unwrap(),
        pod: None,
    }
}

fn slice(network: &str, id: u32, node: &str, endpoints: &[Endpoint]) -> Slice {
    let last = node.bytes().last().unwrap_or(0);
    Slice {
        network: network.to_owned(),
        id: NetworkId::new(id).unwrap(),
        node: node.to_owned(),
        vteps: vec![IpAddr::from([192, 0, 2, last])],
        endpoints: endpoints.to_vec(),
    }
}

fn blue(node: &str, endpoints: &[Endpoint]) -> Option<Slice> {
    Some(slice("blue", 7, node, endpoints))
}

fn serving(networks: &[(&str, u32, Transport)]) -> BTreeMap<String, Served> {
    let networks = networks.iter();
    networks
        .map(|(name, id, transport)| {
            let served = Served {
                id: *id,
                transport: *transport,
                routed: false,
                subnets: vec![SubnetFacts {
                    prefix: "10.0.0.0/24".parse().unwrap(),
                    gateway: Some(IpAddr::from([10, 0, 0, 254])),
                }],
            };
            ((*name).to_owned(), served)
        })
        .collect()
}

/// Serves `blue` as 7 and `red` as 8, and is node `n1`.
fn remotes() -> Remotes {
    let remotes = Remotes::new("n1");
    remotes.serve(serving(&[
        ("blue", 7, Transport::Vxlan),
        ("red", 8, Transport::Vxlan),
    ]));
    remotes
}

/// Last octets of MAC addresses and of IP addresses, and nodes.
fn known(remotes: &Remotes, network: u32) -> Vec<(u8, Vec<String>, String)> {
    let endpoints = remotes.endpoints(network).into_iter();
    endpoints
        .map(|it| {
            let ips = it.ips.iter().map(ToString::to_string).collect();
            (it.mac.0[5], ips, it.peer.node.clone())
        })
        .collect()
}

fn held(last: u8, ip: Option<u8>, node: &str) -> (u8, Vec<String>, String) {
    let ips = ip.into_iter().map(|ip| format!("10.0.0.{ip}")).collect();
    (last, ips, node.to_owned())
}

fn nodes(peers: &[Arc<Peer>]) -> Vec<&str> {
    peers.iter().map(|peer| peer.node.as_str()).collect()
}

#[test]
fn members_and_their_nodes_are_known_by_the_number_of_the_network() {
    let remotes = remotes();
    let mut changes = remotes.changes();
    assert_eq!(
        remotes.replace("a", blue("n2", &[endpoint(1, 1, 1)])),
        [7].into()
    );
    remotes.replace("b", blue("n3", &[endpoint(2, 2, 1), endpoint(3, 3, 1)]));
    remotes.replace("c", Some(slice("red", 8, "n3", &[endpoint(1, 1, 1)])));
    let of_blue = [
        held(1, Some(1), "n2"),
        held(2, Some(2), "n3"),
        held(3, Some(3), "n3"),
    ];
    assert_eq!(known(&remotes, 7), of_blue);
    assert_eq!(known(&remotes, 8), [held(1, Some(1), "n3")]);
    assert_eq!(nodes(&remotes.peers(7)), ["n2", "n3"]);
    assert_eq!(nodes(&remotes.peers(8)), ["n3"]);
    assert_eq!(nodes(&remotes.all_peers()), ["n2", "n3"]);
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    assert_eq!(remotes.take_changed(), [7, 8].into());
    assert_eq!(remotes.take_changed(), BTreeSet::new());

    assert_eq!(remotes.replace("b", None), [7].into());
    assert_eq!(nodes(&remotes.peers(7)), ["n2"]);
    assert_eq!(nodes(&remotes.all_peers()), ["n2", "n3"]);
    assert_eq!(remotes.replace("c", None), [8].into());
    assert_eq!(nodes(&remotes.all_peers()), ["n2"]);
}

#[test]
fn what_says_the_same_again_changes_nothing() {
    let remotes = remotes();
    remotes.replace("a", blue("n2", &[endpoint(1, 1, 1)]));
    let changes = remotes.changes();
    let again = remotes.replace("a", blue("n2", &[endpoint(1, 1, 1)]));
    assert!(again.is_empty() && remotes.replace("x", None).is_empty());
    assert!(!changes.has_changed().unwrap());
}

#[test]
fn slices_of_this_node_of_other_numbers_and_of_networks_that_stay_here_do_not_count() {
    let remotes = remotes();
    let mut all = serving(&[("here", 9, Transport::Local)]);
    all.extend(serving(&[("blue", 7, Transport::Vxlan)]));
    remotes.serve(all);
    let members = [endpoint(1, 1, 1)];
    for (source, slice) in [
        ("own", slice("blue", 7, "n1", &members)),
        ("number", slice("blue", 6, "n2", &members)),
        ("here", slice("here", 9, "n2", &members)),
        ("unknown", slice("green", 10, "n2", &members)),
    ] {
        assert!(remotes.replace(source, Some(slice)).is_empty(), "{source}");
    }
    assert!(remotes.all_peers().is_empty());
    assert!(
        [6, 7, 9, 10]
            .iter()
            .all(|id| remotes.endpoints(*id).is_empty())
    );
}

#[test]
fn a_slice_counts_as_soon_and_as_long_as_its_network_is_served() {
    let remotes = Remotes::new("n1");
    assert!(
        remotes
            .replace("a", blue("n2", &[endpoint(1, 1, 1)]))
            .is_empty()
    );
    assert!(remotes.endpoints(7).is_empty());
    let blue = serving(&[("blue", 7, Transport::Vxlan)]);
    assert_eq!(remotes.serve(blue.clone()), [7].into());
    assert_eq!(known(&remotes, 7), [held(1, Some(1), "n2")]);
    assert!(remotes.serve(blue).is_empty());
    assert_eq!(remotes.serve(BTreeMap::new()), [7].into());
    assert!(remotes.endpoints(7).is_empty() && remotes.all_peers().is_empty());
}

/// Issue 5: a moved endpoint converges, and no two nodes have it.
#[test]
fn of_two_nodes_that_claim_an_address_the_later_claim_holds_whatever_came_first() {
    let old = blue("n3", &[endpoint(1, 1, 10), endpoint(2, 2, 10)]);
    // It has moved, and another there has the address of one that has not.
    let new = blue("n2", &[endpoint(1, 1, 11), endpoint(9, 2, 9)]);
    for order in [[("a", &old), ("b", &new)], [("b", &new), ("a", &old)]] {
        let remotes = remotes();
        for (source, slice) in order {
            remotes.replace(source, slice.clone());
        }
        let expected = [
            held(1, Some(1), "n2"),
            held(2, Some(2), "n3"),
            held(9, None, "n2"),
        ];
        assert_eq!(known(&remotes, 7), expected);
        assert_eq!(nodes(&remotes.peers(7)), ["n2", "n3"]);
    }
}

#[test]
fn claims_of_one_time_are_held_by_the_node_whose_name_comes_later() {
    let remotes = remotes();
    remotes.replace("a", blue("n3", &[endpoint(1, 1, 10)]));
    remotes.replace("b", blue("n2", &[endpoint(1, 1, 10)]));
    assert_eq!(known(&remotes, 7), [held(1, Some(1), "n3")]);
    remotes.replace("a", None);
    assert_eq!(known(&remotes, 7), [held(1, Some(1), "n2")]);
}

#[test]
fn a_claim_is_dated_later_than_those_that_are_known() {
    let remotes = remotes();
    let far = Timestamp::now().as_second() + SKEW.as_secs() / 2;
    remotes.replace("a", blue("n2", &[endpoint(1, 1, far), endpoint(2, 2, 5)]));
    let id = NetworkId::new(7).unwrap();
    let later = |last, ip: u8| {
        let ips = [IpAddr::from([10, 0, 0, ip])];
        remotes.date_of_claim(id, mac(last), &ips) > Timestamp::from_second(far).unwrap()
    };
    assert!(later(1, 50), "the MAC address is known");
    assert!(later(50, 1), "the IP address is known");
    assert!(!later(2, 2) && !later(50, 50));
}

#[test]
fn a_node_has_the_addresses_that_it_said_last_on_all_its_networks() {
    let remotes = remotes();
    remotes.replace("a", blue("n2", &[endpoint(1, 1, 1)]));
    let mut moved = slice("red", 8, "n2", &[endpoint(1, 1, 1)]);
    moved.vteps = vec![IpAddr::from([198, 51, 100, 2])];
    let vteps = moved.vteps.clone();
    assert_eq!(remotes.replace("b", Some(moved)), [7, 8].into());
    assert_eq!(remotes.peers(7)[0].vteps, vteps);
    assert_eq!(remotes.endpoints(8)[0].peer.vteps, vteps);
    assert_eq!(remotes.all_peers().len(), 1);
}

#[test]
fn tunnels_reach_this_node_by_the_first_address_of_each_family() {
    let remotes = Remotes::new("n1");
    let mut changes = remotes.vtep_changes();
    let given = ["2001:db8::1", "192.0.2.1", "192.0.2.2"].map(|it| it.parse().unwrap());
    remotes.set_vteps(&given);
    assert_eq!(remotes.vteps(), [given[1], given[0]]);
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    remotes.set_vteps(&given[..2]);
    assert!(!changes.has_changed().unwrap());
}

/// A step of a history: which slice says what now.
type Step = (u8, Option<(u8, bool, Vec<(u8, u8, u8)>)>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let members = prop::collection::vec((0..6_u8, 0..6_u8, 0..4_u8), 1..5);
    let said = prop::option::weighted(0.8, (0..4_u8, any::<bool>(), members));
    prop::collection::vec((0..5_u8, said), 0..40)
}

fn said(node: u8, is_blue: bool, members: &[(u8, u8, u8)]) -> Slice {
    // A slice has one endpoint of a MAC address.
    let members: BTreeMap<u8, Endpoint> = members
        .iter()
        .map(|(last, ip, second)| (*last, endpoint(*last, *ip, i64::from(*second))))
        .collect();
    let members: Vec<Endpoint> = members.into_values().collect();
    let (name, id) = if is_blue { ("blue", 7) } else { ("red", 8) };
    slice(name, id, &format!("n{}", node + 1), &members)
}

proptest! {
    /// The state depends on the slices that are there, not on their history.
    #[test]
    fn the_end_of_any_history_is_that_of_its_last_slices_alone(steps in steps()) {
        let (with_history, anew) = (remotes(), remotes());
        let mut last = BTreeMap::new();
        for (source, slice) in &steps {
            let before = [7, 8].map(|id| (known(&with_history, id), with_history.peers(id)));
            let slice = slice.as_ref().map(|(node, is_blue, members)| said(*node, *is_blue, members));
            let changed = with_history.replace(&source.to_string(), slice.clone());
            for (id, (endpoints, peers)) in [7, 8].into_iter().zip(before) {
                let same = known(&with_history, id) == endpoints && with_history.peers(id) == peers;
                prop_assert!(same || changed.contains(&id), "{id} changed, and nobody was told");
            }
            last.insert(*source, slice);
        }
        // Backwards: the order must not count.
        for (source, slice) in last.into_iter().rev() {
            anew.replace(&source.to_string(), slice);
        }
        for id in [7, 8] {
            prop_assert_eq!(with_history.endpoints(id), anew.endpoints(id));
            prop_assert_eq!(with_history.peers(id), anew.peers(id));
            let mut ips: Vec<IpAddr> =
                anew.endpoints(id).into_iter().flat_map(|it| it.ips).collect();
            let all = ips.len();
            ips.sort();
            ips.dedup();
            prop_assert_eq!(ips.len(), all, "one address, two holders");
        }
        prop_assert_eq!(with_history.all_peers(), anew.all_peers());
    }
}

/// 10,000 members share what their slices say of their pods.
#[test]
fn a_member_has_the_pod_that_its_slice_names() {
    let remotes = remotes();
    let pod = Arc::new(api::EndpointPod::new(Some(("ops", "web")), BTreeMap::new()));
    let mut named = endpoint(1, 1, 1);
    named.pod = Some(Arc::clone(&pod));
    remotes.replace(
        "s",
        Some(slice("blue", 7, "n2", &[named, endpoint(2, 2, 1)])),
    );
    let members = remotes.endpoints(7);
    assert!(Arc::ptr_eq(members[0].pod.as_ref().unwrap(), &pod));
    assert_eq!(members[1].pod, None);
    // A slice that only names a pod is a change: who follows members hears of it.
    remotes.take_changed();
    let mut renamed = endpoint(2, 2, 1);
    renamed.pod = Some(pod);
    let changed = remotes.replace("s", Some(slice("blue", 7, "n2", &[renamed])));
    assert_eq!(changed, [7].into());
}

/// A node that had it would get what is sent to the gateway.
#[test]
fn a_member_with_the_mac_address_of_the_gateway_does_not_count() {
    let remotes = remotes();
    let gateway = agent_common::addr::GATEWAY_MAC.to_string();
    let gateway = Endpoint {
        mac: gateway.parse().unwrap(),
        ..endpoint(3, 3, 1)
    };
    remotes.replace("a", blue("n2", &[gateway, endpoint(4, 4, 1)]));
    let members = remotes.endpoints(7);
    assert_eq!(members.len(), 1, "{members:?}");
    let refused = remotes.refused();
    assert_eq!((refused[0].why, refused[0].count), (Refusal::Gateway, 1));
}
