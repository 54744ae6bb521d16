use proptest::prelude::*;

use super::*;

const UNSAID: Pods = Pods {
    named: false,
    labels: false,
};
const SAID: Pods = Pods {
    named: true,
    ..UNSAID
};

fn mac(number: u16) -> MacAddr {
    let [a, b] = number.to_be_bytes();
    MacAddr::new([2, 0, 0, 0, a, b])
}

fn members(numbers: impl IntoIterator<Item = u16>) -> Members {
    let numbers = numbers.into_iter();
    numbers
        .map(|number| {
            let [a, b] = number.to_be_bytes();
            let ips = vec![IpAddr::from([10, 0, a, b])];
            (mac(number), Member { ips, pod: None })
        })
        .collect()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn divided(published: &Slices, members: &Members, second: i64) -> Slices {
    divide(published, members, &BTreeSet::new(), UNSAID, |_, _| {
        at(second)
    })
}

/// Numbers of the slices that differ.
fn rewritten(before: &Slices, after: &Slices) -> BTreeSet<u32> {
    let all = before.keys().chain(after.keys());
    all.filter(|number| before.get(number) != after.get(number))
        .copied()
        .collect()
}

/// Asserts that each member is in exactly one slice, unchanged.
fn check(slices: &Slices, members: &Members) {
    let mut found = Members::new();
    for (number, endpoints) in slices {
        assert!(
            !endpoints.is_empty() && endpoints.len() <= ENDPOINTS_MAX,
            "{number}"
        );
        assert!(endpoints.is_sorted_by_key(|it| it.mac), "{number}");
        for endpoint in endpoints {
            let member = Member {
                ips: endpoint.ips.clone(),
                pod: endpoint.pod.clone(),
            };
            let first = found.insert(endpoint.mac, member).is_none();
            assert!(first, "{} is in two slices", endpoint.mac);
        }
    }
    assert_eq!(&found, members);
}

/// Issue 5: compact objects of bounded size, deltas.
#[test]
fn one_that_comes_or_goes_rewrites_one_slice_of_many() {
    let many = members(0..1000);
    let before = divided(&Slices::new(), &many, 1);
    check(&before, &many);
    assert_eq!(before.len(), 4);
    // In the middle of the order, so that it is not the last slice by accident.
    let mut fewer = many.clone();
    fewer.remove(&mac(300));
    let after = divided(&before, &fewer, 2);
    check(&after, &fewer);
    assert_eq!(rewritten(&before, &after), [1].into());
    let mut again = fewer.clone();
    again.extend(members([2000]));
    let filled = divided(&after, &again, 3);
    check(&filled, &again);
    assert_eq!(rewritten(&after, &filled), [1].into(), "there was room");
    assert_eq!(divided(&filled, &again, 4), filled);
}

#[test]
fn a_claim_keeps_its_time_for_as_long_as_its_addresses() {
    let before = divided(&Slices::new(), &members([1, 2]), 1);
    let mut changed = members([1, 2]);
    changed.get_mut(&mac(2)).unwrap().ips = vec![IpAddr::from([10, 9, 9, 9])];
    let after = divided(&before, &changed, 5);
    let times: Vec<i64> = after[&0].iter().map(|it| it.since.as_second()).collect();
    assert_eq!(times, [1, 5]);
}

/// Agents of before that read no slice with pods, and meet none without policies.
#[test]
fn pods_are_said_from_the_first_policy_that_names_networks_on() {
    let mut with_pods = members([1, 2]);
    for (mac, member) in &mut with_pods {
        let pod = EndpointPod::new(Some(("ops", &mac.to_string())), BTreeMap::new());
        member.pod = Some(Arc::new(pod));
    }
    let pods = |slices: &Slices| -> Vec<bool> {
        let all = slices.values().flatten();
        all.map(|it| it.pod.is_some()).collect()
    };
    let divided = |published: &Slices, members: &Members, pods, second| {
        divide(published, members, &BTreeSet::new(), pods, |_, _| {
            at(second)
        })
    };
    let silent = divided(&Slices::new(), &with_pods, UNSAID, 1);
    assert_eq!(pods(&silent), [false, false]);
    let said = divided(&silent, &with_pods, SAID, 2);
    check(&said, &with_pods);
    let times = |slices: &Slices| slices[&0].iter().all(|it| it.since == at(1));
    assert!(times(&said), "the addresses are as they were");
    // The last policy goes, or is not read yet after a start: nothing is written for that.
    assert_eq!(divided(&said, &with_pods, UNSAID, 3), said);
    // Where a runtime does not name the pod any more, nobody does.
    assert_eq!(divided(&said, &members([1, 2]), SAID, 4), silent);
}

/// A cluster knows labels, and cuts them out of a slice.
#[test]
fn labels_are_said_in_files_only_and_names_that_are_none_never() {
    let blue = book::samples::network("blue", api::Mode::L2, &[("10.10.0.0/24", "")]);
    let named = |namespace: &str| book::record::PodIdentity {
        namespace: namespace.to_owned(),
        name: "web".to_owned(),
        uid: None,
    };
    let record = |namespace: &str, labelled: bool| {
        book::samples::record(&blue, |wanted| {
            wanted.pod = Some(named(namespace));
            if labelled {
                wanted.labels.insert("app".to_owned(), "web".to_owned());
            }
        })
    };
    let pod = pod_of(&record("ops", true), SAID).unwrap();
    assert_eq!((pod.full_name(), pod.labels().len()), (Some("ops/web"), 0));
    let files = Pods {
        labels: true,
        ..SAID
    };
    let pod = pod_of(&record("Not a name", true), files).unwrap();
    assert_eq!((pod.full_name(), pod.labels().len()), (None, 1));
    assert_eq!(pod_of(&record("Not a name", false), files), None);
}

#[test]
fn a_number_that_is_anothers_is_left_out() {
    let all = members(0..300);
    let before = divided(&Slices::new(), &all, 1);
    let after = divide(&before, &all, &BTreeSet::from([0, 2]), UNSAID, |_, _| at(2));
    check(&after, &all);
    assert!(after.keys().copied().eq([1, 3]), "{:?}", after.keys());
}

#[test]
fn the_last_member_leaves_no_slice() {
    let before = divided(&Slices::new(), &members(0..300), 1);
    assert!(divided(&before, &Members::new(), 2).is_empty());
}

proptest! {
    /// A member stays in its slice, and a change writes only slices of changed members.
    #[test]
    fn members_stay_in_their_slices(
        histories in prop::collection::vec(prop::collection::btree_set(0..700_u16, 0..600), 1..6),
    ) {
        let mut slices = Slices::new();
        let mut before = Members::new();
        for (second, numbers) in (1..).zip(histories) {
            let now = members(numbers);
            let after = divided(&slices, &now, second);
            check(&after, &now);
            let place = |slices: &Slices, mac: &MacAddr| {
                let mut all = slices.iter();
                all.find(|(_, it)| it.iter().any(|it| it.mac == *mac)).map(|(number, _)| *number)
            };
            for (mac, _) in now.iter().filter(|(mac, _)| before.contains_key(mac)) {
                prop_assert_eq!(place(&slices, mac), place(&after, mac));
            }
            let differing = before.keys().filter(|it| !now.contains_key(it));
            let differing = differing.map(|mac| place(&slices, mac));
            let came = now.keys().filter(|it| !before.contains_key(it));
            let came = came.map(|mac| place(&after, mac));
            let touched: BTreeSet<u32> = differing.chain(came).flatten().collect();
            prop_assert!(rewritten(&slices, &after).is_subset(&touched));
            (slices, before) = (after, now);
        }
    }
}
