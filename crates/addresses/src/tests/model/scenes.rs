//! Sequences of steps that come near to what can go wrong.
//!
//! Steps by chance seldom come together to what a rule is there for. A scene leaves out some of its
//! steps, and single steps by chance come between scenes.

use proptest::prelude::*;
use proptest::sample::subsequence;

use super::host::Fate;
use super::pods::Want;
use super::steps::{Followed, Step, step};
use super::{CLAIMS, HOSTS};

/// Makes a walk of scenes and single steps.
pub(super) fn walk(parts: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Step>> {
    let part = prop_oneof![
        5 => prop::collection::vec(step(), 1..6),
        4 => scene(),
    ];
    prop::collection::vec(part, parts).prop_map(|parts| parts.concat())
}

/// A node, the other one, and the number of an address, a claim or a form.
type Scene = fn(usize, usize, u8) -> Vec<Step>;

fn scene() -> impl Strategy<Value = Vec<Step>> {
    let all: [Scene; 10] = [
        by_name,
        of_a_claim,
        by_claim_twice,
        back_and_forth,
        forced,
        too_many,
        node_gone,
        node_again,
        rewritten,
        lost,
    ];
    let choice = (0..all.len(), 0..HOSTS, 0..3_u8);
    choice.prop_flat_map(move |(scene, host, number)| {
        let steps = all[scene](host, 1 - host, number);
        let most = steps.len();
        subsequence(steps, most * 4 / 5..=most)
    })
}

fn controller() -> Vec<Step> {
    let mut steps = vec![Step::Catch(HOSTS), Step::Plan];
    steps.extend([Step::Act; 6]);
    steps
}

/// A pod asks by name for an address of the other node, which may have given it.
fn by_name(host: usize, other: usize, number: u8) -> Vec<Step> {
    vec![
        Step::Bind(other, Want::Any),
        Step::Turn(other),
        Step::Add(other, 0),
        Step::Bind(host, Want::Named(number)),
        Step::Add(host, 7),
        Step::Settle(host),
        Step::Hear(other, Followed::Reservations, 3),
        Step::Add(other, 0),
        Step::Work(other),
        Step::Turn(host),
        Step::Remove(host, 7),
        if number > 0 {
            Step::Say(host)
        } else {
            Step::Delete(host)
        },
        Step::Turn(host),
        Step::Turn(other),
        Step::Bind(other, Want::Any),
        Step::Add(other, 0),
        Step::Bind(other, Want::Any),
        Step::Add(other, 0),
    ]
}

/// The address of a claim stays while its block goes to the other node.
fn of_a_claim(host: usize, other: usize, number: u8) -> Vec<Step> {
    let fates = [Fate::Served, Fate::Lost];
    let number = number % CLAIMS;
    vec![
        Step::MakeClaim(number),
        Step::Bind(host, Want::Claim(number)),
        Step::Turn(host),
        Step::Add(host, 7),
        Step::Turn(host),
        Step::Turn(host),
        Step::Remove(host, 7),
        Step::Say(host),
        Step::Delete(host),
        Step::Work(host),
        Step::Tick(3),
        Step::Work(host),
        Step::Work(host),
        Step::Bind(other, Want::Any),
        Step::Bind(other, Want::Any),
        Step::Work(other),
        Step::Hear(other, Followed::Blocks, 9),
        Step::Round(other),
        Step::Serve(other, 0, Fate::Served),
        Step::Serve(other, 0, fates[usize::from(number)]),
        Step::Settle(other),
        Step::Add(other, 0),
        Step::Add(other, 1),
        Step::Work(other),
        Step::Add(other, 0),
    ]
}

/// Pods of one claim start on both nodes at the same moment.
fn by_claim_twice(host: usize, other: usize, number: u8) -> Vec<Step> {
    let number = number % CLAIMS;
    let mut steps = vec![
        Step::DropClaim(number),
        Step::MakeClaim(number),
        Step::Bind(host, Want::Claim(number)),
        Step::Bind(other, Want::Claim(number)),
        Step::Turn(host),
        Step::Turn(other),
        Step::Add(host, 7),
        Step::Add(other, 7),
    ];
    for _ in 0..4 {
        steps.extend([
            Step::Settle(host),
            Step::Turn(other),
            Step::Hear(host, Followed::Reservations, 2),
            Step::Work(host),
        ]);
    }
    steps.extend([Step::Detach(host, 7), Step::Turn(other), Step::Turn(host)]);
    steps
}

/// A node gives blocks back that it does not need, or needs again just now.
fn back_and_forth(host: usize, other: usize, number: u8) -> Vec<Step> {
    let mut steps = vec![Step::Bind(host, Want::Any); 3];
    steps.extend([Step::Turn(host), Step::Turn(host)]);
    steps.extend([Step::Add(host, 0); 3]);
    // Other nodes hear of it, or not.
    steps.push(Step::Say(host));
    steps.extend([Step::Remove(host, 2), Step::Remove(host, 1)]);
    steps.push(Step::Delete(host));
    if number > 0 {
        steps.push(Step::Say(host));
    }
    steps.extend([Step::Bind(other, Want::Any); 3]);
    steps.extend([Step::Turn(other), Step::Turn(other)]);
    steps.extend([Step::Add(other, 0); 3]);
    steps.extend([Step::Work(host), Step::Tick(3), Step::Round(host)]);
    if number > 1 {
        // It has counted what is in use, and asks whether another node needs the block.
        steps.extend([Step::Serve(host, 0, Fate::Served); 2]);
        steps.extend([Step::Bind(host, Want::Any); 2]);
        steps.extend([Step::Add(host, 0); 2]);
    }
    steps.extend([Step::Settle(host), Step::Tick(1)]);
    steps.extend([Step::Turn(other), Step::Turn(other)]);
    steps.extend([Step::Add(other, 0); 3]);
    steps
}

/// The objects of pods are deleted while their containers run.
fn forced(host: usize, other: usize, number: u8) -> Vec<Step> {
    let mut steps = vec![
        Step::Bind(host, Want::Named(number)),
        Step::Bind(host, Want::Any),
        Step::Turn(host),
    ];
    steps.extend([Step::Add(host, 0); 2]);
    steps.extend([Step::Turn(other), Step::Turn(host), Step::Turn(host)]);
    if number == 1 {
        steps.push(Step::Unregister(host));
    }
    steps.extend([Step::Force(host, 0), Step::Force(host, 1)]);
    for _ in 0..3 {
        steps.extend(controller());
    }
    steps.extend([Step::Tick(3), Step::Register(host)]);
    steps
}

/// Pods come and go before the controller counts the blocks taken for them.
fn too_many(host: usize, other: usize, number: u8) -> Vec<Step> {
    let mut steps = vec![Step::Bind(host, Want::Any); 5];
    steps.extend([Step::Turn(host), Step::Turn(host)]);
    steps.extend([Step::Add(host, 0); 3]);
    steps.extend([
        Step::Remove(host, usize::from(number)),
        Step::Remove(host, 2),
        Step::Remove(host, 2),
        Step::Remove(host, 1),
        Step::Delete(host),
        Step::Say(host),
    ]);
    steps.extend(controller());
    steps.push(Step::Tick(3));
    steps.extend(controller());
    if number > 0 {
        steps.extend(controller());
    }
    steps.extend([
        Step::Bind(host, Want::Any),
        Step::Tick(3),
        Step::Add(host, 0),
        Step::Tick(6),
        Step::Work(host),
        Step::Tick(3),
    ]);
    steps.extend(controller());
    steps.extend([
        Step::Bind(other, Want::Any),
        Step::Turn(other),
        Step::Add(other, 0),
        Step::Add(host, 0),
    ]);
    steps
}

/// A node goes, and what it has left is taken back.
fn node_gone(host: usize, other: usize, number: u8) -> Vec<Step> {
    let mut steps = vec![
        Step::Turn(host),
        Step::Add(host, 0),
        Step::Unregister(host),
        Step::Remove(host, 0),
        Step::Remove(host, 0),
        Step::Delete(host),
    ];
    steps.extend(controller());
    steps.push(Step::Tick(35));
    if number == 0 {
        steps.push(Step::RestartController);
    }
    steps.extend(controller());
    steps.extend([
        Step::Bind(other, Want::Any),
        Step::Turn(other),
        Step::Add(other, 0),
        Step::Tick(35),
    ]);
    steps.extend(controller());
    steps.extend([Step::Register(host), Step::Turn(host), Step::Add(host, 0)]);
    steps
}

/// A node is registered again while its pods run, and another controller leads.
fn node_again(host: usize, other: usize, number: u8) -> Vec<Step> {
    let mut steps = vec![
        Step::Bind(host, Want::Any),
        Step::Bind(host, Want::Any),
        Step::Turn(host),
        Step::Add(host, 0),
        Step::Register(host),
        Step::Add(host, 0),
    ];
    if number > 0 {
        steps.push(Step::RestartController);
    }
    for seconds in [3, 6, 6] {
        steps.extend(controller());
        steps.extend([Step::Tick(seconds), Step::Turn(host), Step::Add(host, 0)]);
    }
    steps.extend(controller());
    steps.extend([
        Step::Bind(other, Want::Any),
        Step::Turn(other),
        Step::Add(other, 0),
    ]);
    steps
}

/// The nodes take blocks of different lengths at the same moment.
fn rewritten(host: usize, other: usize, number: u8) -> Vec<Step> {
    vec![
        Step::Rewrite(number.into()),
        Step::Hear(host, Followed::Networks, 1),
        Step::Bind(host, Want::Any),
        Step::Bind(other, Want::Any),
        Step::Round(host),
        Step::Serve(host, 0, Fate::Served),
        Step::Round(other),
        Step::Serve(other, 0, Fate::Served),
        Step::Settle(other),
        Step::Settle(host),
        Step::Turn(other),
        Step::Turn(host),
        Step::Add(host, 0),
        Step::Add(other, 0),
        Step::Add(host, 0),
        Step::Add(other, 0),
        Step::Restart(host),
        Step::Start(host),
        Step::Turn(host),
        Step::Add(host, 0),
    ]
}

/// Answers to a request are lost, and pods are started again.
fn lost(host: usize, other: usize, number: u8) -> Vec<Step> {
    vec![
        Step::Bind(host, Want::Named(number)),
        Step::Add(host, 7),
        Step::Serve(host, 0, Fate::AnswerLost),
        Step::Add(host, 7),
        Step::Serve(host, 0, Fate::Late),
        Step::Add(host, 7),
        Step::Turn(other),
        Step::Turn(host),
        Step::Add(host, 7),
        Step::Turn(other),
        Step::Turn(host),
        Step::Turn(host),
        Step::Detach(host, 7),
        Step::Say(host),
        Step::Round(host),
        Step::Serve(host, 0, Fate::Served),
        Step::Serve(host, 0, Fate::Served),
        Step::Serve(host, 0, Fate::Served),
        Step::Add(host, 7),
        Step::Serve(host, 0, Fate::Late),
        Step::Add(host, 7),
        Step::Settle(host),
        Step::Turn(host),
        Step::Late(0),
        Step::Turn(other),
        Step::Turn(host),
        Step::Bind(other, Want::Any),
        Step::Add(other, 0),
        Step::Boot(host),
        Step::Start(host),
        Step::Add(host, 7),
    ]
}
