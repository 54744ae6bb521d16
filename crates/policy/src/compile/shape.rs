//! Policies as numbers: what they ask for, each once.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use super::bits::Bits;
use super::numbers::Numbers;
use crate::labels::{Labels, Selector};
use crate::model::{
    Action, Block, Direction, Namespaces, Peer, Pods, Policy, Ports, Protocol, Rule, Tier,
};
use crate::world::Workload;

/// A named port, as rules ask for it.
pub(super) type Name = (Option<Protocol>, String);

/// Rules of a policy for one direction; policies that say the same share them.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Body {
    pub(super) tier: Tier,
    pub(super) rules: Vec<BodyRule>,
}

/// A rule whose peers and names are numbers.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct BodyRule {
    pub(super) action: Action,
    /// Numbers of the other ends; `None`: any.
    pub(super) peers: Option<Vec<u32>>,
    /// Ports of the destination; `None`: any traffic.
    pub(super) ports: Option<BodyPorts>,
}

/// Ports of a rule.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct BodyPorts {
    pub(super) ranges: Vec<(Protocol, u16, u16)>,
    /// Numbers of the names.
    pub(super) names: Vec<u32>,
}

/// Pods of some namespaces: indexes of both selections.
#[derive(Debug, Clone, Copy)]
struct Pick {
    space: u32,
    pods: u32,
}

/// A policy's selection of members, and numbers of its bodies.
#[derive(Debug)]
struct Subject {
    pick: Pick,
    ingress: Option<u32>,
    egress: Option<u32>,
}

/// Policies of a network, taken apart.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// As they were written.
    policies: Vec<Policy>,
    /// How often they have changed.
    pub(super) version: u64,
    peers: Numbers<Peer>,
    pub(super) names: Numbers<Name>,
    pub(super) bodies: Numbers<Arc<Body>>,
    spaces: Vec<Namespaces>,
    selectors: Vec<Selector>,
    /// Selections of pods that are peers, with their numbers.
    pods: Vec<(Pick, u32)>,
    /// Selectors of nodes that are peers, with their numbers.
    pub(super) nodes: Vec<(Selector, u32)>,
    /// Blocks that are peers, with their numbers.
    pub(super) blocks: Vec<(Block, u32)>,
    /// By policy, in the order in which they are asked.
    subjects: Vec<Subject>,
    /// Names of ports in egress rules, with their numbers.
    pub(super) egress_names: Vec<(Name, u32)>,
}

/// Answers of one workload, for selectors that are asked for more than once.
pub(super) struct Asked<'a> {
    shape: &'a Shape,
    spaces: &'a Bits,
    workload: &'a Workload,
    answers: Vec<Option<bool>>,
}

impl Shape {
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.peers.things().len() + self.names.things().len() + self.bodies.things().len()
    }

    /// Takes policies; says whether they are others than before.
    pub(super) fn take(&mut self, policies: &[Policy]) -> bool {
        if self.version > 0 && self.policies == policies {
            return false;
        }
        self.version += 1;
        policies.clone_into(&mut self.policies);
        self.policies.shrink_to(2 * policies.len());
        let mut order: Vec<&Policy> = policies.iter().collect();
        order.sort_by_key(|policy| (policy.tier, policy.priority, &policy.id));
        self.number_peers(policies);
        let (mut spaces, mut selectors) = (Indexes::default(), Indexes::default());
        let mut pick = |pods: &Pods| Pick {
            space: spaces.of(&pods.namespaces),
            pods: selectors.of(&pods.pods),
        };
        self.pods.clear();
        for number in self.peers.all_used() {
            if let Some(Peer::Pods(pods)) = self.peers.get(number) {
                self.pods.push((pick(pods), number));
            }
        }
        self.subjects = order
            .into_iter()
            .map(|policy| Subject {
                pick: pick(&policy.subject),
                ingress: self.body(policy, Direction::Ingress),
                egress: self.body(policy, Direction::Egress),
            })
            .collect();
        (self.spaces, self.selectors) = (spaces.list, selectors.list);
        self.peers.sweep();
        self.names.sweep();
        self.bodies.sweep();
        true
    }

    fn number_peers(&mut self, policies: &[Policy]) {
        let rules = policies
            .iter()
            .flat_map(|policy| policy.ingress.iter().chain(&policy.egress));
        let all: BTreeSet<&Peer> = rules.flat_map(|rule| rule.peers.iter().flatten()).collect();
        self.nodes.clear();
        self.blocks.clear();
        for peer in all {
            let number = self.peers.number(peer.clone());
            match peer {
                Peer::Pods(_) => {}
                Peer::Nodes(selector) => self.nodes.push((selector.clone(), number)),
                Peer::Block(block) => self.blocks.push((block.clone(), number)),
            }
        }
        let rules = policies.iter().flat_map(|policy| &policy.egress);
        let ports = rules.flat_map(|rule| rule.ports.iter().flatten());
        let names: BTreeSet<Name> = ports.filter_map(name).collect();
        let numbered = names.into_iter().map(|name| {
            let number = self.names.number(name.clone());
            (name, number)
        });
        self.egress_names = numbered.collect();
    }

    /// Returns the number of what a policy says in a direction, if it says anything.
    fn body(&mut self, policy: &Policy, direction: Direction) -> Option<u32> {
        let rules = policy.rules(direction);
        let speaks = match policy.tier {
            Tier::Network => policy.isolates(direction),
            Tier::Admin | Tier::Baseline => !rules.is_empty(),
        };
        speaks.then(|| {
            let rules = rules.iter().map(|rule| self.rule(rule)).collect();
            let tier = policy.tier;
            self.bodies.number(Arc::new(Body { tier, rules }))
        })
    }

    fn rule(&mut self, rule: &Rule) -> BodyRule {
        let peers = rule.peers.as_ref().map(|peers| {
            let peers = peers.iter();
            peers.map(|peer| self.peers.number(peer.clone())).collect()
        });
        let ports = rule.ports.as_ref().map(|ports| {
            let ranges = ports.iter().filter_map(|one| match one {
                Ports::Range(protocol, first, last) => Some((*protocol, *first, *last)),
                Ports::Named(..) => None,
            });
            let names = ports.iter().filter_map(name);
            BodyPorts {
                ranges: ranges.collect(),
                names: names.map(|name| self.names.number(name)).collect(),
            }
        });
        BodyRule {
            action: rule.action,
            peers,
            ports,
        }
    }

    /// All ports of rules.
    pub(super) fn ports(&self) -> impl Iterator<Item = &Ports> {
        let policies = self.policies.iter();
        let rules = policies.flat_map(|policy| policy.ingress.iter().chain(&policy.egress));
        rules.flat_map(|rule| rule.ports.iter().flatten())
    }

    /// Returns the selections that have a namespace of this name and these labels.
    pub(super) fn spaces_of(&self, name: &str, labels: &Labels) -> Bits {
        let spaces = (0..).zip(&self.spaces);
        let found = spaces.filter(|(_, space)| match space {
            Namespaces::Named(it) => it == name,
            Namespaces::Matching(selector) => selector.matches(labels),
        });
        found.map(|(index, _)| index).collect()
    }

    /// Asks selectors for a workload in such namespaces.
    pub(super) fn ask<'a>(&'a self, spaces: &'a Bits, workload: &'a Workload) -> Asked<'a> {
        Asked {
            shape: self,
            spaces,
            workload,
            answers: vec![None; self.selectors.len()],
        }
    }
}

impl Asked<'_> {
    fn is(&mut self, pick: Pick) -> bool {
        if !self.spaces.has(pick.space) {
            return false;
        }
        let index = pick.pods as usize;
        let Some(answer) = self.answers.get_mut(index) else {
            return false;
        };
        *answer.get_or_insert_with(|| {
            let selector = self.shape.selectors.get(index);
            selector.is_some_and(|it| it.matches(&self.workload.labels))
        })
    }

    /// Returns the numbers of the peers that the workload is by its labels.
    pub(super) fn peers(&mut self) -> Bits {
        let pods = self.shape.pods.iter();
        let found = pods.filter(|(pick, _)| self.is(*pick));
        found.map(|(_, number)| *number).collect()
    }

    /// Returns the bodies for the workload, in the order in which they are asked.
    pub(super) fn bodies(&mut self, direction: Direction) -> Vec<u32> {
        let bodies = self.shape.subjects.iter().filter_map(|subject| {
            let body = match direction {
                Direction::Ingress => subject.ingress,
                Direction::Egress => subject.egress,
            };
            body.filter(|_| self.is(subject.pick))
        });
        bodies.collect()
    }
}

fn name(ports: &Ports) -> Option<Name> {
    match ports {
        Ports::Named(protocol, name) => Some((*protocol, name.clone())),
        Ports::Range(..) => None,
    }
}

/// Indexes of what is equal.
struct Indexes<T> {
    known: HashMap<T, u32>,
    list: Vec<T>,
}

impl<T> Default for Indexes<T> {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            list: Vec::new(),
        }
    }
}

impl<T: Clone + Eq + Hash> Indexes<T> {
    fn of(&mut self, one: &T) -> u32 {
        if let Some(index) = self.known.get(one) {
            return *index;
        }
        let index = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(one.clone());
        self.known.insert(one.clone(), index);
        index
    }
}
