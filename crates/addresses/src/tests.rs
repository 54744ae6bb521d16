use std::collections::BTreeSet;
use std::time::Duration;

use api::{IpBlock, Prefix};
use serde_json::json;

use super::command::Command;
use super::known::{Facts, Given};
use super::steps::Round;
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

/// ADR 0061: an ADD during the return of a block keeps the block.
///
/// It comes between the plan and the word of the book.
#[test]
fn a_block_of_which_was_given_meanwhile_is_not_given_back() {
    let object: IpBlock = serde_json::from_value(json!({
        "apiVersion": "podnet.io/v1alpha1",
        "kind": "IPBlock",
        "metadata": {"name": "blue-0", "uid": "u1", "resourceVersion": "1"},
        "spec": {"network": "blue", "cidr": "10.10.0.0/28", "node": "node-a", "nodeUID": "n1"},
    }))
    .unwrap();
    let block: Prefix = "10.10.0.0/28".parse().unwrap();
    let asked = |given: Given| {
        let mut machine = Machine::new("node-a", Duration::from_secs(600));
        machine.state.leaving.insert("u1".to_owned());
        let mut round = Round {
            steps: Vec::new(),
            view: View::default(),
            given,
            facts: Facts::default(),
            spare: BTreeSet::new(),
        };
        let command = machine.give_back_published(&mut round, &object, block, &mut Vec::new());
        (command, machine.state.leaving.contains("u1"))
    };
    let (command, leaves) = asked(Given::holding("blue", "10.10.0.3".parse().unwrap()));
    assert!(command.is_none() && !leaves, "{command:?}");
    let (command, leaves) = asked(Given::default());
    assert!(matches!(command, Some(Command::DeleteBlock(_))) && leaves);
}
