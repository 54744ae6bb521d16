use proptest::prelude::*;

use super::*;

fn id(number: u32) -> Option<NetworkId> {
    NetworkId::new(number)
}

fn plain(name: &str) -> Numbered {
    Numbered {
        name: name.to_owned(),
        uid: format!("{name}-uid"),
        created: 0,
        asked: None,
        held: None,
        wanted: true,
        used: false,
    }
}

fn number_of(networks: &[Numbered], name: &str) -> Option<u32> {
    assign(networks)[name].number.map(NetworkId::get)
}

#[test]
fn a_number_is_given_from_the_upper_half_and_kept() {
    let given = number_of(&[plain("blue")], "blue").unwrap();
    assert!(given >= FIRST);
    let held = Numbered {
        held: id(given),
        ..plain("blue")
    };
    assert_eq!(number_of(&[held, plain("red")], "blue"), Some(given));
    // What was given by another version of the rules is kept as well.
    let low = Numbered {
        held: id(5),
        ..plain("blue")
    };
    assert_eq!(number_of(&[low], "blue"), Some(5));
}

#[test]
fn a_status_that_was_lost_comes_back_the_same() {
    let all = [plain("blue"), plain("red"), plain("green")];
    let before = assign(&all);
    assert_eq!(assign(&all), before);
    let others: Vec<Numbered> = all
        .iter()
        .map(|it| Numbered {
            held: before[&it.name].number,
            ..it.clone()
        })
        .map(|it| if it.name == "red" { plain("red") } else { it })
        .collect();
    assert_eq!(assign(&others), before);
}

#[test]
fn the_number_a_user_asks_for_is_given() {
    let asks = Numbered {
        asked: id(7),
        ..plain("blue")
    };
    assert_eq!(number_of(std::slice::from_ref(&asks), "blue"), Some(7));
    // Also when another network was given it before, that nobody uses: that one gets another.
    let idle = Numbered {
        held: id(7),
        ..plain("red")
    };
    let all = [asks, idle];
    assert_eq!(number_of(&all, "blue"), Some(7));
    assert!(number_of(&all, "red").unwrap() >= FIRST);
}

#[test]
fn a_number_that_pods_use_is_not_taken_from_them() {
    let asks = Numbered {
        asked: id(7),
        ..plain("blue")
    };
    let busy = Numbered {
        held: id(7),
        used: true,
        ..plain("red")
    };
    let assigned = assign(&[asks, busy]);
    assert_eq!(assigned["red"].number, id(7));
    assert_eq!(assigned["blue"].number, None);
    let conflict = assigned["blue"].conflict.as_ref().unwrap().to_string();
    assert!(conflict.contains("PodNetwork red"), "{conflict}");
}

#[test]
fn a_network_with_pods_keeps_its_number_whatever_it_asks_for_now() {
    let busy = Numbered {
        asked: id(7),
        held: id(9),
        used: true,
        ..plain("blue")
    };
    let assigned = assign(std::slice::from_ref(&busy));
    assert_eq!(assigned["blue"].number, id(9));
    assert!(matches!(
        assigned["blue"].conflict,
        Some(NumberConflict::InUse { .. })
    ));
    let idle = Numbered {
        used: false,
        ..busy
    };
    assert_eq!(number_of(&[idle], "blue"), Some(7));
}

#[test]
fn of_two_that_ask_for_one_number_neither_gets_it() {
    let all = ["blue", "red"].map(|name| Numbered {
        asked: id(7),
        ..plain(name)
    });
    let assigned = assign(&all);
    assert_eq!(
        [assigned["blue"].number, assigned["red"].number],
        [None, None]
    );
}

#[test]
fn of_two_that_hold_one_number_the_used_or_the_older_keeps_it() {
    let older = Numbered {
        held: id(9),
        created: 1,
        ..plain("older")
    };
    let newer = Numbered {
        held: id(9),
        created: 2,
        ..plain("newer")
    };
    let all = [newer.clone(), older.clone()];
    assert_eq!(number_of(&all, "older"), Some(9));
    assert!(number_of(&all, "newer").unwrap() >= FIRST);
    let all = [
        Numbered {
            used: true,
            ..newer
        },
        older,
    ];
    assert_eq!(number_of(&all, "newer"), Some(9));
}

#[test]
fn a_network_without_valid_parameters_gets_no_number_but_keeps_its_own() {
    let broken = Numbered {
        wanted: false,
        ..plain("blue")
    };
    assert_eq!(number_of(std::slice::from_ref(&broken), "blue"), None);
    let held = Numbered {
        held: id(9),
        ..broken
    };
    assert_eq!(number_of(&[held, plain("red")], "blue"), Some(9));
}

fn numbered() -> impl Strategy<Value = Vec<Numbered>> {
    let some = || prop::option::of(1u32..6);
    let one = (some(), some(), any::<bool>(), any::<bool>(), 0i64..3);
    prop::collection::vec(one, 1..8).prop_map(|all| {
        let network = |(index, (asked, held, wanted, used, created))| Numbered {
            asked: Option::and_then(asked, id),
            held: Option::and_then(held, id),
            wanted,
            used,
            created,
            ..plain(&format!("n{index}"))
        };
        all.into_iter().enumerate().map(network).collect()
    })
}

proptest! {
    /// Each number is one network's for all statuses, and an assigned one stays.
    #[test]
    fn no_two_networks_have_one_number(networks in numbered()) {
        let assigned = assign(&networks);
        let numbers: Vec<NetworkId> = assigned.values().filter_map(|it| it.number).collect();
        let different: BTreeSet<NetworkId> = numbers.iter().copied().collect();
        prop_assert_eq!(numbers.len(), different.len());
        let settled: Vec<Numbered> = networks
            .iter()
            .map(|it| Numbered { held: assigned[&it.name].number, ..it.clone() })
            .collect();
        for (name, again) in assign(&settled) {
            prop_assert_eq!(again.number, assigned[&name].number);
        }
    }
}
