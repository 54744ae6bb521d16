//! Steps of a walk, and how often each is taken.

use proptest::prelude::*;

use super::host::{Fate, Want};
use super::{CLAIMS, HOSTS};

/// Kinds that a client follows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Followed {
    Nodes,
    Blocks,
    Reservations,
    Claims,
    Pods,
}

impl Followed {
    pub(super) const ALL: [Self; 5] = [
        Self::Nodes,
        Self::Blocks,
        Self::Reservations,
        Self::Claims,
        Self::Pods,
    ];
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// A node, or the controller as the last one, hears some changes of a kind.
    Hear(usize, Followed, usize),
    /// It has lost the watch, and lists again.
    List(usize, Followed),
    /// It hears of everything.
    Catch(usize),
    Round(usize),
    /// A round from its beginning to its end, and all that waited for it.
    Work(usize),
    Serve(usize, usize, Fate),
    /// Everything that is on its way is served.
    Settle(usize),
    Wake(usize),
    /// A write arrives whose client has given up.
    Late(usize),
    Bind(usize, Want),
    Add(usize, usize),
    Remove(usize, usize),
    /// The object of a pod goes whose containers are gone.
    Delete(usize),
    Say(usize),
    Tick(i64),
    Restart(usize),
    Ready(usize),
    /// The `Node` is deleted and made again, and its pods run on.
    Register(usize),
    /// The `Node` is deleted, and its pods run on.
    Unregister(usize),
    /// The machine is lost, with its pods, and another has its name.
    Replace(usize),
    MakeClaim(u8),
    DropClaim(u8),
    Plan,
    Act,
    RestartController,
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let host = || 0..HOSTS;
    let client = || 0..=HOSTS;
    prop_oneof![
        8 => (client(), followed(), 1..4_usize).prop_map(|(who, what, n)| Step::Hear(who, what, n)),
        2 => (client(), followed()).prop_map(|(who, what)| Step::List(who, what)),
        8 => client().prop_map(Step::Catch),
        6 => host().prop_map(Step::Round),
        12 => host().prop_map(Step::Work),
        8 => (host(), 0..4_usize, fate()).prop_map(|(host, n, fate)| Step::Serve(host, n, fate)),
        6 => host().prop_map(Step::Settle),
        4 => host().prop_map(Step::Wake),
        2 => (0..8_usize).prop_map(Step::Late),
        4 => (host(), want()).prop_map(|(host, want)| Step::Bind(host, want)),
        8 => (host(), 0..8_usize).prop_map(|(host, n)| Step::Add(host, n)),
        3 => (host(), 0..8_usize).prop_map(|(host, n)| Step::Remove(host, n)),
        2 => host().prop_map(Step::Delete),
        3 => host().prop_map(Step::Say),
        4 => prop_oneof![Just(1), Just(3), Just(6), Just(35), Just(100)].prop_map(Step::Tick),
        1 => host().prop_map(Step::Restart),
        3 => host().prop_map(Step::Ready),
        1 => host().prop_map(Step::Register),
        1 => host().prop_map(Step::Unregister),
        1 => host().prop_map(Step::Replace),
        2 => (0..CLAIMS).prop_map(Step::MakeClaim),
        1 => (0..CLAIMS).prop_map(Step::DropClaim),
        4 => Just(Step::Plan),
        4 => Just(Step::Act),
        1 => Just(Step::RestartController),
    ]
}

fn followed() -> impl Strategy<Value = Followed> {
    prop_oneof![
        Just(Followed::Nodes),
        Just(Followed::Blocks),
        Just(Followed::Reservations),
        Just(Followed::Claims),
        Just(Followed::Pods),
    ]
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Served),
        1 => Just(Fate::AnswerLost),
        1 => Just(Fate::Lost),
        1 => Just(Fate::Late),
    ]
}

fn want() -> impl Strategy<Value = Want> {
    prop_oneof![
        3 => Just(Want::Any),
        2 => prop_oneof![Just(2), Just(3), Just(6)].prop_map(Want::Named),
        2 => (0..CLAIMS).prop_map(Want::Claim),
    ]
}
