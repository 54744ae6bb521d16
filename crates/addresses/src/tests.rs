use std::time::Duration;

use api::{IpBlock, Prefix};
use serde_json::json;

use super::command::Command;
use super::known::{Facts, Given};
use super::steps::{Round, RoundStep};
use super::view::View;
use super::*;

mod model;

/// A block says how much of it is in use and why it is kept, now and later.
#[test]
fn a_block_says_why_its_node_keeps_it() {
    let cidr: Prefix = "10.10.0.0/28".parse().unwrap();
    let told = |given: Given, spare: bool, status: serde_json::Value| {
        let object: IpBlock = serde_json::from_value(json!({
            "apiVersion": "podnet.dev/v1alpha1",
            "kind": "IPBlock",
            "metadata": {"name": "blue.10-10-0-0", "uid": "u1", "resourceVersion": "1"},
            "spec": {"network": "blue", "cidr": "10.10.0.0/28", "node": "node-a", "nodeUID": "n1"},
            "status": status,
        }))
        .unwrap();
        let round = Round {
            steps: Vec::new(),
            view: View {
                blocks: vec![object.into()],
                serving: BTreeSet::from(["u1".to_owned()]),
                ..View::default()
            },
            given,
            facts: Facts::default(),
            spare: spare
                .then(|| ("blue".to_owned(), cidr))
                .into_iter()
                .collect(),
        };
        let mut machine = Machine::new("node-a", Duration::from_secs(600));
        let told = machine.uses(&round, Instant::now());
        let told = told.into_iter().map(|command| match command {
            Command::TellUsed(_, used, reason) => (used, reason.as_str()),
            other => panic!("{other:?}"),
        });
        told.collect::<Vec<_>>()
    };
    let in_use = || Given::holding("blue", "10.10.0.3".parse().unwrap());
    assert_eq!(told(in_use(), false, json!({})), [(1, "InUse")]);
    assert_eq!(told(Given::default(), false, json!({})), [(0, "Ahead")]);
    assert_eq!(told(Given::default(), true, json!({})), [(0, "Idle")]);
    let ahead = json!({"used": 0, "reason": "Ahead"});
    assert_eq!(told(Given::default(), false, ahead.clone()), []);
    assert_eq!(told(Given::default(), true, ahead), [(0, "Idle")]);
    // Written by an agent that knew no reasons.
    assert_eq!(told(in_use(), false, json!({"used": 1})), [(1, "InUse")]);
}

fn block_of(uid: &str, status: &serde_json::Value) -> IpBlock {
    serde_json::from_value(json!({
        "apiVersion": "podnet.io/v1alpha1",
        "kind": "IPBlock",
        "metadata": {"name": "blue-0", "uid": "u1", "resourceVersion": "1"},
        "spec": {"network": "blue", "cidr": "10.10.0.0/28", "node": "node-a", "nodeUID": uid},
        "status": status,
    }))
    .unwrap()
}

fn round_of(view: View, given: Given) -> Round {
    Round {
        view,
        given,
        facts: Facts {
            ready: true,
            ..Facts::default()
        },
        ..Round::new()
    }
}

/// ADR 0061: the `Node` was made again while its pods ran.
///
/// Of blocks beyond the need the controller keeps those without a mark.
#[test]
fn the_mark_of_a_block_in_use_is_removed_whichever_node_of_the_name_took_it() {
    let mut machine = Machine::new("node-a", Duration::from_secs(600));
    machine.seen.node_uid = Some("n2".to_owned());
    let asked = |uid: &str, given: Given| {
        let block = block_of(uid, &json!({"reclaimAfter": "2027-01-15T08:00:00Z"}));
        let view = View {
            blocks: vec![block.into()],
            ..View::default()
        };
        machine.marked(&round_of(view, given))
    };
    let in_use = || Given::holding("blue", "10.10.0.3".parse().unwrap());
    for uid in ["n1", "n2"] {
        let steps = asked(uid, in_use());
        assert!(
            matches!(&steps[..], [RoundStep::Do(Command::Unmark(object))] if object.name == "blue-0"),
            "{uid}: {steps:?}"
        );
    }
    // Without a pod here, the controller decides about those of the time before.
    assert!(asked("n1", Given::default()).is_empty());
    assert!(matches!(
        &asked("n2", Given::default())[..],
        [RoundStep::Leave(..)]
    ));
}

/// ADR 0061: the model does not find it, for the same round gives the block back.
#[test]
fn nothing_is_given_of_a_marked_block_or_one_whose_neighbours_were_not_read() {
    let mut machine = Machine::new("node-a", Duration::from_secs(600));
    machine.seen.node_uid = Some("n1".to_owned());
    let shares = |machine: &mut Machine, status: &serde_json::Value| {
        machine.seen.blocks = vec![block_of("n1", status).into()];
        machine.shares(&machine.view()).len()
    };
    assert_eq!(shares(&mut machine, &json!(null)), 0);
    machine.state.cleared.insert("u1".to_owned());
    assert_eq!(shares(&mut machine, &json!(null)), 1);
    let marked = json!({"reclaimAfter": "2027-01-15T08:00:00Z"});
    assert_eq!(shares(&mut machine, &marked), 0);
}

/// ADR 0061: an ADD during the return of a block keeps the block.
///
/// It comes between the plan and the word of the book.
#[test]
fn a_block_of_which_was_given_meanwhile_is_not_given_back() {
    let object = block_of("n1", &json!(null));
    let block: Prefix = "10.10.0.0/28".parse().unwrap();
    let asked = |given: Given| {
        let mut machine = Machine::new("node-a", Duration::from_secs(600));
        machine.state.leaving.insert("u1".to_owned());
        let mut round = round_of(View::default(), given);
        let command = machine.give_back_published(&mut round, &object, block, &mut Vec::new());
        (command, machine.state.leaving.contains("u1"))
    };
    let (command, leaves) = asked(Given::holding("blue", "10.10.0.3".parse().unwrap()));
    assert!(command.is_none() && !leaves, "{command:?}");
    let (command, leaves) = asked(Given::default());
    assert!(matches!(command, Some(Command::DeleteBlock(_))) && leaves);
}
