//! Tell people why a policy decides, what it is for, and what to look at.

use std::fmt;

use crate::judge::Decision;
use crate::model::{Action, Direction, Peer, Policy, Tier};
use crate::world::{Member, World};

/// Most policies that one sentence names.
const NAMED: usize = 3;
/// Most warnings that are told of one policy.
const MOST: usize = 32;

/// A part of a policy that may mean something else than its writer thinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Warning {
    /// The policy selects no member.
    SelectsNobody,
    /// A rule accepts any other end, by a list that is empty or missing.
    AnyPeer {
        /// Direction of the rule.
        direction: Direction,
        /// Index of the rule.
        rule: usize,
        /// Whether it accepts any traffic of these ends, too.
        any_port: bool,
    },
    /// A rule names pods, whose addresses on the network nobody knows.
    NoAddresses {
        /// Direction of the rule.
        direction: Direction,
        /// Index of the rule.
        rule: usize,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::SelectsNobody => out.write_str(
                "the policy selects no pod of the network: compare its selectors with the pods' labels",
            ),
            Self::AnyPeer {
                direction,
                rule,
                any_port,
            } => {
                let (name, list) = (rule_name(direction, rule), list(direction));
                let what = if any_port { "everything" } else { "its ports" };
                let way = match direction {
                    Direction::Ingress => "from any address",
                    Direction::Egress => "to any address",
                };
                write!(
                    out,
                    "{name} has no `{list}`, or an empty one, and so allows {what} {way}: \
                     remove the rule if it is to allow nothing"
                )
            }
            Self::NoAddresses { direction, rule } => {
                let name = rule_name(direction, rule);
                write!(
                    out,
                    "{name} selects pods, and the network gives pods no addresses to know them by, so that it \
                     matches none: name addresses in an ipBlock"
                )
            }
        }
    }
}

/// Returns why traffic of a member passes or does not, as one sentence.
///
/// `decision` is that of [`crate::judge`] for these policies, direction and member.
pub fn reason(
    world: &World,
    policies: &[Policy],
    direction: Direction,
    subject: &Member,
    decision: Decision,
) -> String {
    let named = |index: usize, rule: usize| {
        let id = policies.get(index).map(|policy| policy.id.to_string());
        let id = id.unwrap_or_else(|| "a policy that is gone".to_owned());
        (id, rule_name(direction, rule))
    };
    match decision {
        Decision::Free => format!("No policy decides on {}, so it passes.", noun(direction)),
        Decision::Accepted(index, rule) => {
            let (policy, rule) = named(index, rule);
            format!("{policy} accepts it by {rule}.")
        }
        Decision::Denied(index, rule) => {
            let policy = policies.get(index);
            let action = policy.and_then(|it| Some(it.rules(direction).get(rule)?.action));
            let (policy, rule) = named(index, rule);
            match action {
                // A rule that would let it go on denies only who may be another one.
                Some(Action::Pass) => format!(
                    "{policy} denies it by {rule}, which passes it on only for labels that are known, and those of \
                     the other end are not yet."
                ),
                _ => format!("{policy} denies it by {rule}."),
            }
        }
        Decision::Isolated => {
            let isolating: Vec<String> = policies
                .iter()
                .filter(|policy| policy.tier == Tier::Network && policy.isolates(direction))
                .filter(|policy| world.selects(&policy.subject, subject))
                .map(|policy| policy.id.to_string())
                .collect();
            let only = match direction {
                Direction::Ingress => "lets the pod receive only what a rule accepts",
                Direction::Egress => "lets the pod send only what a rule accepts",
            };
            format!("{} {only}, and none accepts it.", some_of(&isolating))
        }
        Decision::Unknown => format!(
            "Nothing passes, because the labels of namespace {} are not known.",
            subject.workload.namespace
        ),
    }
}

/// Returns the indexes of the members that a policy is for.
pub fn selected(world: &World, policy: &Policy) -> Vec<usize> {
    let members = world.members.iter().enumerate();
    let found = members.filter(|(_, it)| is_for(world, policy, it));
    found.map(|(index, _)| index).collect()
}

/// Returns what may be wrong with a policy that can be obeyed, 32 at most.
///
/// `has_addresses`: whether the network gives its members addresses, by which alone a rule can know them.
pub fn warnings(world: &World, policy: &Policy, has_addresses: bool) -> Vec<Warning> {
    let nobody = !world.members.iter().any(|it| is_for(world, policy, it));
    let of_rules = [Direction::Ingress, Direction::Egress]
        .into_iter()
        .flat_map(|direction| {
            let rules = policy.rules(direction).iter().enumerate();
            rules.filter_map(move |(rule, it)| match &it.peers {
                None => (it.action == Action::Accept).then_some(Warning::AnyPeer {
                    direction,
                    rule,
                    any_port: it.ports.is_none(),
                }),
                Some(peers) => {
                    let selects = peers.iter().any(|peer| matches!(peer, Peer::Pods(_)));
                    let blind = selects && !has_addresses;
                    blind.then_some(Warning::NoAddresses { direction, rule })
                }
            })
        });
    let all = nobody.then_some(Warning::SelectsNobody).into_iter();
    all.chain(of_rules).take(MOST).collect()
}

fn is_for(world: &World, policy: &Policy, member: &Member) -> bool {
    world.knows(member) && world.selects(&policy.subject, member)
}

/// A rule as people count it, and as its field is named.
fn rule_name(direction: Direction, rule: usize) -> String {
    let noun = noun(direction);
    format!("{noun} rule {} (spec.{noun}[{rule}])", rule + 1)
}

const fn noun(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "ingress",
        Direction::Egress => "egress",
    }
}

const fn list(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "from",
        Direction::Egress => "to",
    }
}

/// Names some of a list, and how many more there are.
fn some_of(names: &[String]) -> String {
    let told = names.get(..NAMED).unwrap_or(names);
    match (names.len() - told.len(), told) {
        (_, []) => "A policy that is gone".to_owned(),
        (0, [one]) => one.clone(),
        (0, [first @ .., last]) => format!("Each of {} and {last}", first.join(", ")),
        (more, told) => format!("Each of {} and {more} more", told.join(", ")),
    }
}
