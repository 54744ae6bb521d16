//! Judge by the meaning of policies, rule by rule.
//!
//! For people, and to compare the compiled form with.

use std::net::IpAddr;

use crate::model::{Action, Direction, Policy, Ports, Protocol, Rule, Tier};
use crate::world::{Member, World};

/// The other end of a packet.
#[derive(Debug, Clone, Copy)]
pub enum Peer<'a> {
    /// A member, at one of its addresses.
    Member(&'a Member, IpAddr),
    /// An address that no member has.
    Address(IpAddr),
}

/// The part of a packet that rules ask for, but its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// To a port of the destination.
    Port(Protocol, u16),
    /// Of any other protocol, as ICMP.
    Other,
}

/// A judgement of one end in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// No policy says anything: it passes.
    Free,
    /// A rule accepts it, by the indexes of the policy and of its rule.
    Accepted(usize, usize),
    /// A rule denies it.
    Denied(usize, usize),
    /// The end is isolated, and no rule accepts it.
    Isolated,
    /// The namespace of the judged end is not known: nothing passes.
    Unknown,
}

impl Decision {
    /// Whether the packet may pass in this direction.
    pub const fn allows(self) -> bool {
        matches!(self, Self::Free | Self::Accepted(..))
    }
}

/// The outcome of one tier.
enum End {
    Decided(Decision),
    Next,
}

/// Judges traffic of a member with another end, by all policies of its network.
///
/// A-NP-01 to -34, A-CNP-01 to -13. Replies and what belongs to a connection are not its concern.
pub fn judge(
    world: &World,
    policies: &[Policy],
    direction: Direction,
    subject: &Member,
    peer: Peer<'_>,
    traffic: Traffic,
) -> Decision {
    if !world.knows(subject) {
        return Decision::Unknown;
    }
    let case = Case {
        world,
        direction,
        subject,
        peer,
        traffic,
    };
    let relevant = relevant(world, policies, subject);
    for tier in [Tier::Admin, Tier::Network, Tier::Baseline] {
        if let End::Decided(decision) = case.tier(policies, &relevant, tier) {
            return decision;
        }
    }
    Decision::Free
}

/// Indexes of the policies for a member, in the order in which they are asked.
///
/// Those of equal priority are in the order of their names: any would do (A-CNP-02), but the same one always.
fn relevant(world: &World, policies: &[Policy], subject: &Member) -> Vec<usize> {
    let mut found: Vec<usize> = (0..policies.len())
        .filter(|index| world.selects(&policies[*index].subject, subject))
        .collect();
    found.sort_by_key(|index| {
        let policy = &policies[*index];
        (policy.tier, policy.priority, &policy.id)
    });
    found
}

struct Case<'a> {
    world: &'a World,
    direction: Direction,
    subject: &'a Member,
    peer: Peer<'a>,
    traffic: Traffic,
}

impl Case<'_> {
    fn tier(&self, policies: &[Policy], relevant: &[usize], tier: Tier) -> End {
        let of_tier = relevant
            .iter()
            .filter(|index| policies[**index].tier == tier);
        let mut isolated = false;
        for index in of_tier {
            let policy = &policies[*index];
            if tier == Tier::Network && !policy.isolates(self.direction) {
                continue;
            }
            isolated |= tier == Tier::Network;
            for (number, rule) in policy.rules(self.direction).iter().enumerate() {
                match self.effect(rule) {
                    None => {}
                    Some(Action::Accept) => {
                        return End::Decided(Decision::Accepted(*index, number));
                    }
                    Some(Action::Deny) => return End::Decided(Decision::Denied(*index, number)),
                    Some(Action::Pass) => return End::Next,
                }
            }
        }
        match isolated {
            true => End::Decided(Decision::Isolated),
            false => End::Next,
        }
    }

    /// Returns what a rule does with the packet; `None` if it does not match.
    ///
    /// Of a peer that is not known, no rule is sure that asks for labels or for a named port of it. Such a rule
    /// accepts nothing, and denies what it would deny or pass.
    fn effect(&self, rule: &Rule) -> Option<Action> {
        let known = match self.peer {
            Peer::Member(member, _) => self.world.knows(member),
            Peer::Address(_) => true,
        };
        let among = rule.peers.as_ref().is_none_or(|peers| {
            peers.iter().any(|peer| match self.peer {
                Peer::Member(member, address) => self.world.is_member(peer, member, address),
                Peer::Address(address) => self.world.is_address(peer, address),
            })
        });
        let sure_peer = known || rule.peers.is_none();
        let (sure_port, perhaps) = self.ports(rule, known);
        if sure_peer {
            if !among {
                return None;
            }
            if sure_port {
                return Some(rule.action);
            }
        }
        (perhaps && rule.action != Action::Accept).then_some(Action::Deny)
    }

    /// Returns whether the packet's port is one of a rule's, and whether it may be.
    fn ports(&self, rule: &Rule, known: bool) -> (bool, bool) {
        let Some(ports) = &rule.ports else {
            return (true, true);
        };
        let mut perhaps = false;
        let sure = ports.iter().any(|ports| match (ports, self.traffic) {
            (Ports::Range(of, first, last), Traffic::Port(protocol, port)) => {
                *of == protocol && (*first..=*last).contains(&port)
            }
            (Ports::Range(..), Traffic::Other) => false,
            (Ports::Named(of, name), traffic) => {
                let destination = match (self.direction, self.peer) {
                    (Direction::Ingress, _) => Some(&self.subject.workload),
                    (Direction::Egress, Peer::Member(member, _)) => {
                        known.then_some(&member.workload)
                    }
                    (Direction::Egress, Peer::Address(_)) => None,
                };
                perhaps |= self.direction == Direction::Egress && !known;
                let is = |(protocol, port)| traffic == Traffic::Port(protocol, port);
                destination.is_some_and(|it| it.numbers(*of, name).any(is))
            }
        });
        (sure, sure || perhaps)
    }
}
