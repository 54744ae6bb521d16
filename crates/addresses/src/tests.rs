use std::time::Duration;

use api::{IpBlock, Prefix};
use serde_json::json;

use super::command::Command;
use super::known::{Facts, Given};
use super::steps::{Round, Step};
use super::view::View;
use super::*;

mod model;

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
            matches!(&steps[..], [Step::Do(Command::Unmark(object))] if object.name == "blue-0"),
            "{uid}: {steps:?}"
        );
    }
    // Without a pod here, the controller decides about those of the time before.
    assert!(asked("n1", Given::default()).is_empty());
    assert!(matches!(
        &asked("n2", Given::default())[..],
        [Step::Leave(..)]
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
