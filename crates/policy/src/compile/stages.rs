//! Rules in the order in which they are asked, and the rows that they make.

use std::sync::Arc;

use super::atoms::Part;
use super::bits::Bits;
use super::row::Row;
use super::sets::{Ground, SetKey};
use super::shape::{Body, BodyRule, Shape};
use crate::model::{Action, Direction, Tier};

/// A tier's rules for a member.
#[derive(Default)]
struct Stage<'a> {
    isolates: bool,
    steps: Vec<Step<'a>>,
}

/// A rule for a member.
struct Step<'a> {
    action: Action,
    peers: Option<Bits>,
    /// The traffic that it is for, whatever the other end.
    traffic: Row,
    /// Names of ports that the other end gives numbers, in egress rules.
    names: &'a [u32],
}

/// Rules of a set, by tier.
pub(super) struct Stages<'a>([Stage<'a>; 3]);

impl<'a> Stages<'a> {
    /// Returns the rules of a key; `None` for a member that is not known.
    pub(super) fn of(ground: &Ground<'a>, key: &SetKey) -> Option<Self> {
        let mut stages = [(); 3].map(|()| Stage::default());
        for number in key.bodies.as_ref()? {
            let shape: &'a Shape = ground.shape;
            let Some(body): Option<&'a Arc<Body>> = shape.bodies.get(*number) else {
                continue;
            };
            let [admin, network, baseline] = &mut stages;
            let stage = match body.tier {
                Tier::Admin => admin,
                Tier::Network => network,
                Tier::Baseline => baseline,
            };
            stage.isolates |= body.tier == Tier::Network;
            let steps = body.rules.iter().map(|rule| step(ground, key, rule));
            stage.steps.extend(steps);
        }
        Some(Self(stages))
    }
}

fn step<'a>(ground: &Ground<'_>, key: &SetKey, rule: &'a BodyRule) -> Step<'a> {
    let mut traffic = Row::NOTHING;
    let mut names: &[u32] = &[];
    match &rule.ports {
        None => traffic = Row::ALL,
        Some(ports) => {
            for (protocol, first, last) in &ports.ranges {
                traffic = traffic.with(&ground.classes.row(*protocol, *first, *last));
            }
            for (_, protocol, port) in key.ports.iter().filter(|it| ports.names.contains(&it.0)) {
                traffic = traffic.with(&ground.classes.row(*protocol, *port, *port));
            }
            if key.direction == Direction::Egress {
                names = &ports.names;
            }
        }
    }
    Step {
        action: rule.action,
        peers: rule.peers.as_ref().map(|it| it.iter().copied().collect()),
        traffic,
        names,
    }
}

/// Traffic that is decided so far, and that goes on to the next tier.
struct Answer {
    allowed: Row,
    decided: Row,
    passed: Row,
}

impl Answer {
    fn add(&mut self, traffic: &Row, action: Action) {
        let open = traffic.without(&self.decided).without(&self.passed);
        match action {
            Action::Accept => {
                self.allowed = self.allowed.with(&open);
                self.decided = self.decided.with(&open);
            }
            Action::Deny => self.decided = self.decided.with(&open),
            Action::Pass => self.passed = self.passed.with(&open),
        }
    }
}

/// Asks the rules of all tiers in their order.
fn answer(stages: &Stages<'_>, ask: impl Fn(&Step<'_>, &mut Answer)) -> Row {
    let mut answer = Answer {
        allowed: Row::NOTHING,
        decided: Row::NOTHING,
        passed: Row::NOTHING,
    };
    for stage in &stages.0 {
        answer.passed = Row::NOTHING;
        for step in &stage.steps {
            ask(step, &mut answer);
        }
        if stage.isolates {
            return answer.allowed;
        }
    }
    answer.allowed.with(&Row::ALL.without(&answer.decided))
}

/// Returns the traffic that a member may exchange with an atom.
pub(super) fn row_of(
    ground: &Ground<'_>,
    stages: &Stages<'_>,
    (part, within): (&Part, &Bits),
) -> Row {
    answer(stages, |step, answer| {
        let is = |peers: &Bits| peers.meets(&part.peers) || peers.meets(within);
        if !step.peers.as_ref().is_none_or(is) {
            return;
        }
        let mut traffic = step.traffic;
        let numbers = step.names.iter().flat_map(|name| part.numbers(*name));
        for (protocol, port) in numbers {
            traffic = traffic.with(&ground.classes.row(protocol, port, port));
        }
        answer.add(&traffic, step.action);
    })
}

/// Returns the traffic of a member with an end of which nothing is known.
///
/// A rule that may be for it accepts nothing, and denies what it would deny or pass.
pub(super) fn row_of_unknown(stages: &Stages<'_>) -> Row {
    answer(stages, |step, answer| {
        let is_sure = step.peers.is_none();
        if is_sure {
            answer.add(&step.traffic, step.action);
        }
        if step.action != Action::Accept {
            let any_port = !step.names.is_empty();
            match (any_port, is_sure) {
                (true, _) => answer.add(&Row::ALL, Action::Deny),
                (false, false) => answer.add(&step.traffic, Action::Deny),
                (false, true) => {}
            }
        }
    })
}
