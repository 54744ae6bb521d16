use cni_spec::IfName;
use serde_json::json;

use super::record::{Maker, Member, PodRecord};
use super::*;
use crate::record::DefaultRoutes;
use crate::samples;

fn key(ifname: &str) -> AttachmentKey {
    samples::key("c1", ifname)
}

fn member(ifname: &str, maker: Maker) -> Member {
    Member {
        ifname: IfName::new(ifname).unwrap(),
        source: Source::Npwg,
        target: Target::Definition {
            namespace: "ns".to_owned(),
            name: "lan".to_owned(),
        },
        default_routes: DefaultRoutes {
            v4: Some(vec!["10.0.0.1".parse().unwrap()]),
            v6: None,
        },
        asked_default_route: Some(Vec::new()),
        maker,
    }
}

fn record(state: State) -> PodRecord {
    PodRecord {
        members: vec![
            member("eth0", Maker::Podnet),
            member("net1", Maker::Plugins(samples::delegation())),
        ],
        ..samples::pod("c1", state)
    }
}

/// NPWG-4.2.1, CNI-CONF-07: a record reads back whole, with numbers as they were.
#[test]
fn a_record_reads_back_as_it_was_written() {
    let record = record(State::Added);
    let text = serde_json::to_vec(&record).unwrap();
    assert_eq!(serde_json::from_slice::<PodRecord>(&text).unwrap(), record);
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.contains(r#""big":12345678901234567890,"f":1.10"#),
        "{text}"
    );
    proof::of!("NPWG-4.2.1", "CNI-CONF-07");
}

#[test]
fn members_of_ours_are_known_by_their_own_interfaces() {
    let pods = Pods::default();
    pods.insert(record(State::Adding));
    assert_eq!(pods.owned(), [key("eth0")].into());
    let record = pods.get(&key("eth0")).unwrap();
    assert_eq!(record.primary(), record.members.first());
    assert_eq!(pods.get(&key("net1")), None);
}

/// CNI-GC-06
#[test]
fn a_pod_is_older_than_what_comes_after_it() {
    let before = Instant::now();
    let pods = Pods::default();
    pods.insert(record(State::Added));
    assert!(!pods.is_older(&key("eth0"), before));
    assert!(pods.is_older(&key("eth0"), Instant::now()));
    pods.remove(&key("eth0"));
    assert!(!pods.is_older(&key("eth0"), Instant::now()));
    proof::of!("CNI-GC-06");
}

#[test]
fn an_answer_nobody_heard_undoes_only_what_nobody_knows_of() {
    let pods = Pods::default();
    let key = key("eth0");
    pods.insert(record(State::Adding));
    let first = pods.answer(&key).unwrap();
    let second = pods.answer(&key).unwrap();
    assert_eq!(first, second);
    assert!(!pods.unheard(&key, first), "the second is on its way");
    pods.heard(&key, second);
    assert!(!pods.unheard(&key, first), "somebody knows of it");
    pods.insert(record(State::Adding));
    let other = pods.answer(&key).unwrap();
    assert!(!pods.unheard(&key, first), "that was another pod");
    assert!(pods.unheard(&key, other));
}

#[test]
fn a_pod_from_the_store_is_known_to_its_runtime() {
    let pods = Pods::default();
    pods.insert(record(State::Added));
    let answer = pods.answer(&key("eth0")).unwrap();
    assert!(!pods.unheard(&key("eth0"), answer));
}

#[tokio::test]
async fn one_follower_hears_of_every_change() {
    let pods = Pods::default();
    pods.tell(detached("a"));
    let mut changes = pods.follow().unwrap();
    assert_eq!(pods.follow().unwrap_err(), FollowedAlready);
    pods.tell(detached("b"));
    pods.tell(detached("c"));
    assert_eq!(changes.recv().await, Some(detached("b")));
    assert_eq!(changes.recv().await, Some(detached("c")));
}

fn detached(name: &str) -> PodChange {
    PodChange::Detached {
        key: key("eth0"),
        pod: serde_json::from_value(json!({"namespace": "ns", "name": name, "uid": null})).unwrap(),
    }
}

/// ATT-17: pauses between failed attempts grow up to a largest length.
#[test]
fn attempts_to_remove_a_pod_come_less_and_less_often() {
    let pods = Pods::default();
    let key = key("eth0");
    pods.insert(record(State::Deleting));
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let passed = (0..100).take_while(|_| !pods.is_due(&key)).count();
        pauses.push(passed);
        pods.postpone(&key);
    }
    assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 16, 16]);
    pods.remove(&key);
    assert!(!pods.is_due(&key));
    proof::of!("ATT-17");
}

/// ATT-17: records of an older agent have plugins that may have been executed.
#[test]
fn a_record_without_what_is_settled_has_everything_left() {
    let mut text = serde_json::to_value(record(State::Deleting)).unwrap();
    assert_eq!(text.get("attempts"), None);
    let read: PodRecord = serde_json::from_value(text.clone()).unwrap();
    let left = |record: &PodRecord| {
        let delegations = record.members.iter().filter_map(Member::delegation);
        delegations
            .flat_map(|it| it.unsettled().map(ToOwned::to_owned).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    assert_eq!(left(&read), ["bridge"]);
    text["members"][1]["maker"]["Plugins"]["plugins"][0]["settled"] = json!(true);
    let read: PodRecord = serde_json::from_value(text).unwrap();
    assert_eq!(left(&read), Vec::<String>::new());
    proof::of!("ATT-17");
}
