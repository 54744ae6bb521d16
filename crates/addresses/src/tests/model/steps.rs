//! Steps of a walk, and how often each is taken.

use proptest::prelude::*;

use super::host::Fate;
use super::pods::Want;
use super::{CLAIMS, HOSTS};

/// Kinds that a client follows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Followed {
    Nodes,
    Blocks,
    Reservations,
    Claims,
    Pods,
    Networks,
}

impl Followed {
    pub(super) const ALL: [Self; 6] = [
        Self::Nodes,
        Self::Blocks,
        Self::Reservations,
        Self::Claims,
        Self::Pods,
        Self::Networks,
    ];
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// A node, or the controller as the last one, hears some changes of a kind.
    Hear(usize, Followed, usize),
    /// It has lost the watch, and lists what was there some changes ago.
    List(usize, Followed, usize),
    /// It hears of everything.
    Catch(usize),
    Round(usize),
    /// A round from its beginning to its end, and all that waited for it.
    Work(usize),
    /// It hears of everything, and two rounds with all that waited for them.
    Turn(usize),
    Serve(usize, usize, Fate),
    /// Everything that is on its way is served.
    Settle(usize),
    Wake(usize),
    /// A write arrives whose client has given up.
    Late(usize),
    Bind(usize, Want),
    Add(usize, usize),
    /// The containers of a pod end, and are not started again.
    Remove(usize, usize),
    /// The containers of a pod end; the runtime starts them again.
    Detach(usize, usize),
    /// The object of a pod goes while its containers still run.
    Force(usize, usize),
    /// The object of a pod goes whose containers are gone.
    Delete(usize),
    Say(usize),
    Tick(i64),
    Restart(usize),
    /// The node boots: its book is empty, and no container runs.
    Boot(usize),
    Ready(usize),
    /// The agent has read everything, and is ready.
    Start(usize),
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
    /// The subnet of the network is written in another form.
    Rewrite(usize),
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let host = || 0..HOSTS;
    let client = || 0..=HOSTS;
    prop_oneof![
        8 => (client(), followed(), 1..4_usize).prop_map(|(who, what, n)| Step::Hear(who, what, n)),
        2 => (client(), followed(), prop_oneof![Just(0), 1..6_usize])
            .prop_map(|(who, what, back)| Step::List(who, what, back)),
        6 => client().prop_map(Step::Catch),
        6 => host().prop_map(Step::Round),
        12 => host().prop_map(Step::Work),
        8 => host().prop_map(Step::Turn),
        10 => (host(), 0..4_usize, fate()).prop_map(|(host, n, fate)| Step::Serve(host, n, fate)),
        6 => host().prop_map(Step::Settle),
        4 => host().prop_map(Step::Wake),
        2 => (0..8_usize).prop_map(Step::Late),
        8 => (host(), want()).prop_map(|(host, want)| Step::Bind(host, want)),
        14 => (host(), 0..8_usize).prop_map(|(host, n)| Step::Add(host, n)),
        4 => (host(), 0..8_usize).prop_map(|(host, n)| Step::Remove(host, n)),
        3 => (host(), 0..8_usize).prop_map(|(host, n)| Step::Detach(host, n)),
        1 => (host(), 0..8_usize).prop_map(|(host, n)| Step::Force(host, n)),
        3 => host().prop_map(Step::Delete),
        2 => host().prop_map(Step::Say),
        8 => prop_oneof![4 => Just(1), 4 => Just(3), 2 => Just(6), 1 => Just(35), 1 => Just(100)]
            .prop_map(Step::Tick),
        1 => host().prop_map(Step::Restart),
        1 => host().prop_map(Step::Boot),
        3 => host().prop_map(Step::Ready),
        14 => host().prop_map(Step::Start),
        1 => host().prop_map(Step::Register),
        1 => host().prop_map(Step::Unregister),
        1 => host().prop_map(Step::Replace),
        3 => (0..CLAIMS).prop_map(Step::MakeClaim),
        1 => (0..CLAIMS).prop_map(Step::DropClaim),
        5 => Just(Step::Plan),
        6 => Just(Step::Act),
        1 => Just(Step::RestartController),
        1 => (0..3_usize).prop_map(Step::Rewrite),
    ]
}

fn followed() -> impl Strategy<Value = Followed> {
    prop_oneof![
        Just(Followed::Nodes),
        Just(Followed::Blocks),
        Just(Followed::Reservations),
        Just(Followed::Claims),
        Just(Followed::Pods),
        Just(Followed::Networks),
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
        2 => (0..3_u8).prop_map(Want::Named),
        2 => (0..CLAIMS).prop_map(Want::Claim),
    ]
}
