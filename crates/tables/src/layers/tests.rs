use agent_common::addr::{Ip16, MacAddr};
use agent_common::endpoint::{ENDPOINT_REMOTE, Endpoint, EndpointKey, FdbKey};
use api::Mode;
use book::samples;
use proptest::prelude::*;

use super::*;
use crate::beyond::Members;
use crate::beyond::Source;
use crate::{Others, Reach};

const NETWORK: u32 = 7;

/// By last octet of the MAC address, and of the IP address: where that is.
type Places = BTreeMap<u8, u32>;

fn entries(places: &Places, flags: u32) -> Entries {
    let mut entries = Entries::default();
    for (last, ifindex) in places {
        let mac = MacAddr([2, 0, 0, 0, 0, *last]);
        let endpoint = Endpoint {
            ifindex: *ifindex,
            flags,
            mac,
            port_id: 0,
        };
        let ip = Ip16::from_v4([10, 0, 0, *last]);
        entries.fdb.insert(FdbKey::new(NETWORK, mac), endpoint);
        let key = EndpointKey {
            network: NETWORK,
            ip,
        };
        entries.endpoints.insert(key, endpoint);
    }
    entries
}

fn beyond(places: &Places) -> Arc<Beyond> {
    Arc::new(Beyond::new(entries(places, ENDPOINT_REMOTE), None))
}

/// Returns the entries that packets find.
fn shown(layers: &Layers) -> Entries {
    let mut shown = layers.beyond.entries.clone();
    shown.fdb.extend(&layers.own.fdb);
    shown.endpoints.extend(&layers.own.endpoints);
    shown
}

fn places() -> impl Strategy<Value = Places> {
    prop::collection::btree_map(0..12_u8, 1..4_u32, 0..10)
}

proptest! {
    /// Tables that were right are right after any change of members.
    ///
    /// Nothing else is touched.
    #[test]
    fn a_change_leads_from_what_is_there_to_what_shall_be(
        own in [places(), places()],
        far in [places(), places()],
        same in any::<bool>(),
    ) {
        let [before, after] = own.map(|places| entries(&places, 0));
        let [there, then] = far.map(|places| beyond(&places));
        let old = Layers { own: before, beyond: there, basis: None };
        let then = if same { Arc::clone(&old.beyond) } else { then };
        let new = Layers { own: after, beyond: then, basis: None };
        let change = old.to(&new);
        let mut tables = shown(&old);
        for (key, endpoint) in &change.old.endpoints {
            prop_assert_eq!(tables.endpoints.remove(key), Some(*endpoint));
        }
        for (key, endpoint) in &change.old.fdb {
            prop_assert_eq!(tables.fdb.remove(key), Some(*endpoint));
        }
        for (key, endpoint) in &change.new.endpoints {
            prop_assert_ne!(change.old.endpoints.get(key), Some(endpoint), "needlessly");
            prop_assert_eq!(tables.endpoints.insert(*key, *endpoint), None);
        }
        tables.fdb.extend(&change.new.fdb);
        prop_assert_eq!(tables, shown(&new));
    }

    /// A start reads what it left.
    #[test]
    fn what_is_read_from_the_maps_is_divided_as_it_was(own in places(), far in places()) {
        let mut far = far;
        far.retain(|last, _| !own.contains_key(last));
        let written = Layers { own: entries(&own, 0), beyond: beyond(&far), basis: None };
        let (mut read, strays) = by_network(shown(&written));
        let read = read.remove(&NETWORK).unwrap_or_default();
        prop_assert_eq!(&read.own, &written.own);
        prop_assert_eq!(&read.beyond.entries, &written.beyond.entries);
        prop_assert_eq!(&read.beyond.nodes, &far.into_values().collect());
        prop_assert_eq!(strays, Entries::default());
    }
}

#[test]
fn who_was_hidden_by_an_attachment_of_this_node_is_found_again_when_that_goes() {
    let far = beyond(&Places::from([(1, 3), (2, 3)]));
    let with = |own: Places| Layers {
        own: entries(&own, 0),
        beyond: Arc::clone(&far),
        basis: None,
    };
    let (without, hiding) = (with(Places::new()), with(Places::from([(1, 10)])));
    let coming = without.to(&hiding);
    assert_eq!(coming.new, hiding.own);
    assert_eq!(
        coming.old,
        entries(&Places::from([(1, 3)]), ENDPOINT_REMOTE)
    );
    let going = hiding.to(&without);
    assert_eq!((going.old, going.new), (coming.new, coming.old));
}

#[test]
fn members_elsewhere_are_entered_anew_only_when_something_is_new() {
    let facts = |mode| {
        let blue = samples::network("blue", mode, &[("10.10.0.0/24", "")]);
        samples::record(&blue, |_| {}).network
    };
    let (switched, routed) = (facts(Mode::L2), facts(Mode::L3));
    let own = vec!["192.0.2.1".parse().unwrap()];
    let others = |said: &Arc<_>, device, own: &[_]| Others {
        said: Some(Arc::clone(said)),
        reach: Reach::Tunnels {
            device,
            own: own.to_vec(),
        },
        ..Others::default()
    };
    let said = Arc::default();
    let first = others(&said, 5, &own);
    let of = |others: &Others| Source::new(&Members::of(&switched), others);
    let known = Beyond::new(Entries::default(), Some(of(&first)));
    assert!(known.is_of(&of(&others(&said, 5, &own))));
    let complete = Others {
        complete: true,
        ..others(&said, 5, &own)
    };
    for (what, other) in [
        ("members", of(&others(&Arc::default(), 5, &own))),
        ("the device", of(&others(&said, 6, &own))),
        ("the node's addresses", of(&others(&said, 5, &[]))),
        ("all nodes were heard", of(&complete)),
        ("nobody", of(&Others::default())),
        ("the mode", Source::new(&Members::of(&routed), &first)),
    ] {
        assert!(!known.is_of(&other), "{what}");
    }
    assert!(!Beyond::default().is_of(&of(&first)), "what was read");
}
