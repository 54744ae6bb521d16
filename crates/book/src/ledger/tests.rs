use std::net::IpAddr;

use api::Mode;
use ipam::{Family, IpamError, Request};

use super::*;
use crate::record::ObjectRef;
use crate::samples::{host, key, network, numbered, wanted};

mod model;

fn blue() -> Network {
    network(
        "blue",
        Mode::L2,
        &[("10.10.0.0/29", "10.10.0.1"), ("fd10::/64", "")],
    )
}

fn reserve(
    ledger: &mut Ledger,
    network: &Network,
    wanted: Wanted,
) -> Result<Attachment, BookError> {
    let host = host(&wanted, 0);
    ledger.reserve(wanted, network, host)
}

fn add(ledger: &mut Ledger, network: &Network, container: &str) -> Attachment {
    reserve(ledger, network, wanted(container)).unwrap()
}

fn ips(record: &Attachment) -> Vec<String> {
    record
        .leases
        .iter()
        .map(|lease| lease.address.to_string())
        .collect()
}

fn asking(container: &str, ips: &[&str]) -> Wanted {
    let ips = ips
        .iter()
        .map(|ip| Request::from(ip.parse::<IpAddr>().unwrap()))
        .collect();
    Wanted {
        ips: (ips, "the test"),
        ..wanted(container)
    }
}

#[test]
fn each_attachment_has_its_own_addresses_mac_and_port() {
    let mut ledger = Ledger::new(16);
    let (first, second) = (
        add(&mut ledger, &blue(), "c1"),
        add(&mut ledger, &blue(), "c2"),
    );
    assert_eq!(ips(&first), ["10.10.0.2", "fd10::1"]);
    assert_eq!(ips(&second), ["10.10.0.3", "fd10::2"]);
    assert_ne!(first.mac, second.mac);
    assert_eq!((first.port_id, second.port_id), (0, 1));
    assert_eq!(
        (first.state, first.network.id),
        (State::Adding, FIRST_OWN_ID)
    );
    assert_eq!(ledger.usage_of(FIRST_OWN_ID), (2, 4));
}

#[test]
fn networks_with_the_same_subnet_do_not_share_addresses() {
    let mut ledger = Ledger::new(16);
    let red = Network {
        name: "red".to_owned(),
        ..blue()
    };
    let (in_blue, in_red) = (
        add(&mut ledger, &blue(), "c1"),
        add(&mut ledger, &red, "c2"),
    );
    assert_eq!(ips(&in_blue), ips(&in_red));
    assert_ne!(in_blue.network.id, in_red.network.id);
    assert_ne!(
        in_blue.port_id, in_red.port_id,
        "ports are the node's, not the network's"
    );
}

#[test]
fn the_same_container_gets_the_same_mac_again() {
    let mut ledger = Ledger::new(16);
    let first = add(&mut ledger, &blue(), "c1");
    ledger.release(&first.key);
    assert_eq!(add(&mut ledger, &blue(), "c1").mac, first.mac);
}

#[test]
fn a_mac_that_somebody_took_is_not_given_again() {
    let mut ledger = Ledger::new(16);
    let derived = add(&mut ledger, &blue(), "c1");
    ledger.release(&derived.key);
    let thief = Wanted {
        mac: Some((derived.mac, "the test")),
        ..wanted("c2")
    };
    reserve(&mut ledger, &blue(), thief).unwrap();
    let again = add(&mut ledger, &blue(), "c1");
    assert_ne!(again.mac, derived.mac);
    assert!(
        again.mac.is_unicast() && again.mac.0[0] & 2 != 0,
        "{} is locally administered",
        again.mac
    );
}

#[test]
fn a_held_mac_and_the_gateways_mac_are_refused() {
    let mut ledger = Ledger::new(16);
    let held = add(&mut ledger, &blue(), "c1").mac;
    for mac in [held, agent_common::addr::GATEWAY_MAC] {
        let asking = Wanted {
            mac: Some((mac, "the test")),
            ..wanted("c2")
        };
        let refused = reserve(&mut ledger, &blue(), asking);
        assert!(matches!(refused, Err(BookError::MacHeld { mac: found, .. }) if found == mac));
    }
    // On another network it is another station.
    let elsewhere = Wanted {
        mac: Some((held, "the test")),
        ..wanted("c2")
    };
    let red = Network {
        name: "red".to_owned(),
        ..blue()
    };
    assert_eq!(reserve(&mut ledger, &red, elsewhere).unwrap().mac, held);
}

#[test]
fn an_address_is_held_from_the_reservation_to_the_release() {
    let mut ledger = Ledger::new(16);
    let first = reserve(&mut ledger, &blue(), asking("c1", &["10.10.0.5"])).unwrap();
    for state in [State::Adding, State::Added, State::Deleting] {
        ledger.set_state(&first.key, state, state == State::Added);
        let refused = reserve(&mut ledger, &blue(), asking("c2", &["10.10.0.5"]));
        let held = matches!(
            refused,
            Err(BookError::Address {
                source: IpamError::Held { .. },
                ..
            })
        );
        assert!(held, "{state:?}: {refused:?}");
    }
    ledger.release(&first.key);
    assert!(reserve(&mut ledger, &blue(), asking("c2", &["10.10.0.5"])).is_ok());
}

#[test]
fn nothing_is_booked_when_something_cannot_be_had() {
    let mut ledger = Ledger::new(2);
    add(&mut ledger, &blue(), "c1");
    let before = format!("{ledger:?}");
    let bad: [Wanted; 3] = [
        asking("c2", &["10.10.0.2"]),
        asking("c2", &["10.99.0.1"]),
        asking("c2", &["10.10.0.1"]),
    ];
    for wanted in bad {
        assert!(reserve(&mut ledger, &blue(), wanted).is_err());
        assert_eq!(format!("{ledger:?}"), before);
    }
}

#[test]
fn exhaustion_names_the_family_and_ends_with_a_release() {
    let mut ledger = Ledger::new(64);
    // .2 to .6 of the /29: network, gateway and broadcast are nobody's.
    let all: Vec<_> = (0..5)
        .map(|n| add(&mut ledger, &blue(), &format!("c{n}")))
        .collect();
    let refused = reserve(&mut ledger, &blue(), wanted("late"));
    let exhausted = matches!(
        refused,
        Err(BookError::Address {
            source: IpamError::Exhausted {
                family: Family::V4,
                ..
            },
            ..
        })
    );
    assert!(exhausted, "{refused:?}");
    assert_eq!(
        ledger.usage_of(FIRST_OWN_ID),
        (5, 10),
        "the IPv6 address of the failure is free"
    );
    ledger.release(&all[2].key);
    assert_eq!(ips(&add(&mut ledger, &blue(), "late"))[0], ips(&all[2])[0]);
}

#[test]
fn a_network_without_subnets_gives_no_addresses() {
    let mut ledger = Ledger::new(4);
    let raw = network("raw", Mode::L2, &[]);
    assert!(add(&mut ledger, &raw, "c1").leases.is_empty());
}

#[test]
fn new_subnets_are_used_at_once_and_old_addresses_stay_held() {
    let mut ledger = Ledger::new(16);
    let first = add(
        &mut ledger,
        &network("n", Mode::L2, &[("10.10.0.0/24", "")]),
        "c1",
    );
    let wider = network("n", Mode::L2, &[("10.10.0.0/23", "")]);
    let second = add(&mut ledger, &wider, "c2");
    assert_eq!(second.network.id, first.network.id);
    assert_ne!(ips(&second), ips(&first));
    assert_eq!(second.leases[0].prefix.to_string(), "10.10.0.0/23");
}

#[test]
fn the_last_port_is_given_and_then_it_is_refused() {
    let mut ledger = Ledger::new(2);
    let first = add(&mut ledger, &blue(), "c1");
    add(&mut ledger, &blue(), "c2");
    let refused = reserve(&mut ledger, &blue(), wanted("c3"));
    assert!(matches!(refused, Err(BookError::NoPort { max: 2 })));
    ledger.release(&first.key);
    assert_eq!(add(&mut ledger, &blue(), "c3").port_id, first.port_id);
}

#[test]
fn a_network_in_use_cannot_become_another_one() {
    let mut ledger = Ledger::new(16);
    let green = network("green", Mode::L3, &[("10.20.0.0/24", "")]);
    add(&mut ledger, &green, "c1");
    let changed = [
        (
            "mode",
            Network {
                mode: Mode::L2,
                ..green.clone()
            },
        ),
        ("networkID", numbered(green.clone(), 42)),
        (
            "choice of having subnets or none",
            Network {
                subnets: Vec::new(),
                ..green.clone()
            },
        ),
    ];
    for (field, network) in changed {
        let refused = reserve(&mut ledger, &network, wanted("c2"));
        let refused = refused.unwrap_err().to_string();
        let words = format!(
            "network green is in use with another {field}: remove its attachments first, or undo the change"
        );
        assert_eq!(refused, words);
    }
    ledger.release(&key("c1", "net1"));
    assert_eq!(add(&mut ledger, &numbered(green, 42), "c2").network.id, 42);
}

#[test]
fn a_networks_number_is_stable_while_its_name_is_known() {
    let mut ledger = Ledger::new(16);
    let first = add(&mut ledger, &blue(), "c1");
    ledger.release(&first.key);
    let red = Network {
        name: "red".to_owned(),
        ..blue()
    };
    assert_ne!(add(&mut ledger, &red, "c2").network.id, first.network.id);
    assert_eq!(add(&mut ledger, &blue(), "c3").network.id, first.network.id);
}

#[test]
fn a_number_in_use_belongs_to_its_network() {
    let mut ledger = Ledger::new(16);
    add(&mut ledger, &numbered(blue(), 5), "c1");
    let red = numbered(
        Network {
            name: "red".to_owned(),
            ..blue()
        },
        5,
    );
    let refused = reserve(&mut ledger, &red, wanted("c2"));
    let taken = matches!(&refused, Err(BookError::IdTaken { owner, id: 5, .. }) if owner == "blue");
    assert!(taken, "{refused:?}");
}

/// Two names of one number would mix up counters.
///
/// The first network would be refused for ever.
#[test]
fn a_number_that_is_free_again_passes_to_the_network_that_asks_for_it() {
    let mut ledger = Ledger::new(16);
    let first = add(&mut ledger, &numbered(blue(), 5), "c1");
    ledger.release(&first.key);
    let azure = numbered(
        Network {
            name: "azure".to_owned(),
            ..blue()
        },
        5,
    );
    let taken = add(&mut ledger, &azure, "c2");
    assert_eq!(
        (ledger.name_of(5), ledger.id_of("blue")),
        (Some("azure"), None)
    );
    // The first one asks for no number now, and gets one of its own.
    assert_ne!(add(&mut ledger, &blue(), "c3").network.id, 5);

    // The store knows both names; the record says which one is meant.
    let mut restored = Ledger::new(16);
    restored.restore_id("azure".to_owned(), 5);
    restored.restore_id("blue".to_owned(), 5);
    restored.restore(taken);
    assert_eq!(
        (restored.name_of(5), restored.id_of("blue")),
        (Some("azure"), None)
    );
}

#[test]
fn the_datapath_knows_only_what_is_live() {
    let mut ledger = Ledger::new(16);
    let record = add(&mut ledger, &blue(), "c1");
    let live = |ledger: &Ledger| {
        ledger
            .live_on(FIRST_OWN_ID)
            .map(|found| found.host.ifindex)
            .collect::<Vec<_>>()
    };
    assert_eq!(live(&ledger), [0; 0], "it has no link yet");
    let placed = Attachment {
        host: HostEnd {
            ifindex: 9,
            ..record.host.clone()
        },
        ..record.clone()
    };
    ledger.set_live(&placed);
    assert_eq!(live(&ledger), [9]);
    ledger.set_state(&record.key, State::Deleting, false);
    assert_eq!(live(&ledger), [0; 0]);
    assert!(
        ledger.get(&record.key).is_some(),
        "it is forgotten when nothing is left of it"
    );
}

/// A link can go at any moment, also while its `ADD` is not over.
#[test]
fn a_lost_link_leaves_the_datapath_and_stays_lost() {
    let mut ledger = Ledger::new(16);
    let record = add(&mut ledger, &blue(), "c1");
    let placed = Attachment {
        host: HostEnd {
            ifindex: 9,
            ..record.host.clone()
        },
        ..record.clone()
    };
    ledger.set_live(&placed);
    assert_eq!(ledger.lose_link(8), None, "somebody else's link");
    assert_eq!(
        ledger.lose_link(9).map(|lost| lost.key),
        Some(record.key.clone())
    );
    ledger.set_added(&record.key);
    let entry = ledger.get(&record.key).unwrap();
    assert_eq!((entry.record.state, entry.live), (State::Added, false));
    assert_eq!(ledger.lose_link(9), None, "told once");
}

#[test]
fn a_repeated_attachment_is_another_generation() {
    let mut ledger = Ledger::new(16);
    let first = add(&mut ledger, &blue(), "c1");
    let made = ledger.answer(&first.key).unwrap();
    ledger.release(&first.key);
    add(&mut ledger, &blue(), "c1");
    let now = ledger.answer(&first.key).unwrap();
    assert_ne!(now.generation, made.generation);
    assert!(!ledger.unheard(&made), "it is gone already");
    ledger.heard(&made);
    assert!(
        !ledger.get(&first.key).unwrap().acknowledged,
        "the answer was about the other one"
    );
    ledger.heard(&now);
    assert!(ledger.get(&first.key).unwrap().acknowledged);
}

/// Of two answers to one `ADD`, the one that ends last decides.
///
/// The plugin of an `ADD` died, and the repeated one is being answered.
#[test]
fn an_attachment_is_unknown_only_when_its_last_answer_was_lost() {
    let mut ledger = Ledger::new(16);
    let key = add(&mut ledger, &blue(), "c1").key;
    let first = ledger.answer(&key).unwrap();
    let second = ledger.answer(&key).unwrap();
    assert!(!ledger.unheard(&first), "the second may arrive yet");
    assert!(ledger.unheard(&second), "it did not");

    let third = ledger.answer(&key).unwrap();
    let fourth = ledger.answer(&key).unwrap();
    ledger.heard(&fourth);
    assert!(
        !ledger.unheard(&third),
        "the runtime has it from the fourth"
    );
    assert_eq!(ledger.answer(&crate::samples::key("c2", "net1")), None);
}

#[test]
fn unfinished_attachments_are_restored_but_not_live() {
    let mut first = Ledger::new(16);
    let added = Attachment {
        state: State::Added,
        ..add(&mut first, &blue(), "c1")
    };
    let adding = add(&mut first, &blue(), "c2");
    let deleting = Attachment {
        state: State::Deleting,
        ..add(&mut first, &blue(), "c3")
    };
    let mut restored = Ledger::new(16);
    for record in [&added, &adding, &deleting] {
        restored.restore(record.clone());
    }
    let live: Vec<_> = restored
        .live_on(FIRST_OWN_ID)
        .map(|record| record.key.clone())
        .collect();
    assert_eq!(live, [added.key]);
    // What they hold is held until somebody has cleaned up.
    assert_eq!(restored.usage_of(FIRST_OWN_ID), (3, 6));
}

#[test]
fn releasing_what_is_not_there_changes_nothing() {
    let mut ledger = Ledger::new(16);
    add(&mut ledger, &blue(), "c1");
    let before = format!("{ledger:?}");
    ledger.release(&key("c1", "net2"));
    ledger.set_state(&key("c9", "net1"), State::Added, true);
    assert_eq!(format!("{ledger:?}"), before);
}

#[test]
fn every_choice_has_a_decision_that_says_why() {
    let mut ledger = Ledger::new(16);
    let record = reserve(&mut ledger, &blue(), asking("c1", &["10.10.0.5"])).unwrap();
    let told: Vec<_> = record
        .decisions
        .iter()
        .map(|d| (d.about.as_str(), d.value.as_str()))
        .collect();
    let mac = record.mac.to_string();
    assert_eq!(
        told,
        [
            ("network id", "8388608"),
            ("mac", mac.as_str()),
            ("address", "10.10.0.5/29"),
            ("address", "fd10::1/64"),
            ("mtu", "1500"),
            ("host interface", record.host.name.as_str()),
        ]
    );
    let why: Vec<_> = record
        .decisions
        .iter()
        .map(|d| d.because.as_str())
        .collect();
    assert_eq!(
        (why[2], why[3]),
        ("the test", "next free address of the subnet")
    );
}

#[test]
fn a_port_of_a_cluster_is_refused_where_there_is_none_and_nothing_is_booked() {
    let mut ledger = Ledger::new(16);
    let claim = ClaimRef {
        kind: ClaimKind::Port,
        object: ObjectRef {
            namespace: "shop".to_owned(),
            name: "db-0".to_owned(),
        },
    };
    let wanted = Wanted {
        claim: Some(claim),
        ..wanted("c1")
    };
    let refused = reserve(&mut ledger, &blue(), wanted).unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("Port shop/db-0: the node has no cluster"),
        "{refused}"
    );
    assert_eq!(ledger.entries().count(), 0);
}
