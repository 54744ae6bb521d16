//! Compile policies to tables: two look-ups for a packet.
//!
//! That is so whatever the number of policies.
//!
//! An *atom* is all ends that the rules of a network cannot tell apart; each address has the number of its atom.
//! A *class* is all ports of a protocol that no rule tells apart. A *row* is what one end may exchange with an
//! atom: a bit for each class of each protocol, and one for all other traffic. A *set* has the row of each
//! atom. A port has a set for each direction in which any policy has something to say.
//!
//! So the question is `rows[sets[set][atom]]` at the bit of the class, and has as many steps with a thousand policies
//! as with one.

mod atoms;
mod classes;
mod row;

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use self::atoms::Atoms;
pub use self::classes::{Classes, MAX_CLASSES};
pub use self::row::Row;
use crate::judge::{Traffic, relevant};
use crate::model::{Action, Direction, Policy, Ports, Protocol, Rule, Tier};
use crate::world::{Member, World};

/// Number of an atom.
pub type Atom = u32;

/// Number of a row.
pub type RowId = u32;

/// Number of a set.
pub type SetId = u32;

/// The atom of ends of which nothing is known.
///
/// No rule accepts it that asks for a peer.
pub const UNKNOWN: Atom = 0;

/// Atoms that a network can have.
pub const MAX_ATOMS: usize = 65_536;

/// A network whose policies cannot be compiled.
///
/// Nothing may pass its guarded ports then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// Rules tell apart too many ports.
    #[error(
        "the rules of the network tell apart {found} ranges of {protocol:?} ports, and {MAX_CLASSES} can be: \
         use fewer different ports in its policies"
    )]
    TooManyPorts {
        /// The protocol.
        protocol: Protocol,
        /// The number of ranges.
        found: usize,
    },
    /// Rules tell apart too many ends.
    #[error(
        "the rules of the network tell apart {found} groups of addresses, and {MAX_ATOMS} can be: \
         use fewer different selectors and blocks in its policies"
    )]
    TooManyAtoms {
        /// The number of groups.
        found: usize,
    },
}

/// Rows by atom.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Set {
    /// The row of each atom that has another one than most.
    pub rows: BTreeMap<Atom, RowId>,
    /// The row of [`UNKNOWN`].
    pub unknown: RowId,
    /// The row of all other atoms.
    pub others: RowId,
}

/// Sets of a member; `None`: no policy says anything in this direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Guard {
    /// For what it receives.
    pub ingress: Option<SetId>,
    /// For what it sends.
    pub egress: Option<SetId>,
}

/// The tables of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Atoms of the addresses of members and nodes.
    pub identities: BTreeMap<IpAddr, Atom>,
    /// Atoms of all other addresses, by longest prefix; both families are whole.
    pub blocks: Vec<(IpNet, Atom)>,
    /// Classes of ports.
    pub classes: Classes,
    /// Rows, by number.
    pub rows: Vec<Row>,
    /// Sets, by number.
    pub sets: Vec<Set>,
    /// Guards of the members that are judged here, by their index in the world.
    pub guards: BTreeMap<usize, Guard>,
}

impl Network {
    /// Returns the atom of an address.
    pub fn atom(&self, address: IpAddr) -> Atom {
        let known = self.identities.get(&address).copied();
        known.unwrap_or_else(|| longest(&self.blocks, address))
    }

    /// Reports what a program finds: whether a set lets traffic with an atom pass.
    pub fn allows(&self, set: Option<SetId>, atom: Atom, traffic: Traffic) -> bool {
        let Some(set) = set else {
            return true;
        };
        let row = self.sets.get(set as usize).and_then(|set| {
            let row = match atom {
                UNKNOWN => set.unknown,
                atom => set.rows.get(&atom).copied().unwrap_or(set.others),
            };
            self.rows.get(row as usize)
        });
        row.is_some_and(|row| row.has(&self.classes, traffic))
    }
}

/// Compiles the policies of a network, for the members that are judged here.
///
/// Others are peers only. `judged` has their indexes in the world.
///
/// # Errors
/// The network has more of something than its tables hold.
pub fn compile(
    world: &World,
    policies: &[Policy],
    judged: impl IntoIterator<Item = usize>,
) -> Result<Network, CompileError> {
    let classes = Classes::of(world, policies)?;
    let atoms = Atoms::of(world, policies)?;
    let mut tables = Tables {
        policies,
        classes: &classes,
        atoms: &atoms,
        rows: BTreeMap::new(),
        sets: BTreeMap::new(),
        known: BTreeMap::new(),
    };
    let guards = judged
        .into_iter()
        .filter_map(|index| {
            let member = world.members.get(index)?;
            let guard = Guard {
                ingress: tables.set(world, Direction::Ingress, member),
                egress: tables.set(world, Direction::Egress, member),
            };
            Some((index, guard))
        })
        .collect();
    let (rows, sets) = (by_number(tables.rows), by_number(tables.sets));
    Ok(Network {
        identities: atoms.identities,
        blocks: atoms.blocks,
        classes,
        rows,
        sets,
        guards,
    })
}

/// Returns the number of the longest prefix that has an address.
///
/// Prefixes of both families are whole: each address has one.
fn longest(prefixes: &[(IpNet, u32)], address: IpAddr) -> u32 {
    let found = prefixes.iter().filter(|(net, _)| net.contains(&address));
    let longest = found.max_by_key(|(net, _)| net.prefix_len());
    longest.map_or(0, |(_, number)| *number)
}

fn by_number<T>(found: BTreeMap<T, u32>) -> Vec<T> {
    let mut numbered: Vec<(u32, T)> = found.into_iter().map(|(one, at)| (at, one)).collect();
    numbered.sort_by_key(|(at, _)| *at);
    numbered.into_iter().map(|(_, one)| one).collect()
}

/// Numbers of what is equal, given in the order in which it comes.
fn number<T: Ord>(known: &mut BTreeMap<T, u32>, one: T) -> u32 {
    let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
    *known.entry(one).or_insert(next)
}

/// Facts on which the set of a member depends.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SetKey {
    direction: Direction,
    /// Policies in the order in which they are asked.
    ///
    /// `None` for a member that is not known.
    policies: Option<Vec<usize>>,
    /// Named ports of the member that rules ask for.
    ports: Vec<(String, Protocol, u16)>,
}

struct Tables<'a> {
    policies: &'a [Policy],
    classes: &'a Classes,
    atoms: &'a Atoms,
    rows: BTreeMap<Row, RowId>,
    sets: BTreeMap<Set, SetId>,
    known: BTreeMap<SetKey, SetId>,
}

impl Tables<'_> {
    /// Returns the set of a member, made if no other has it.
    fn set(&mut self, world: &World, direction: Direction, member: &Member) -> Option<SetId> {
        let policies = world
            .knows(member)
            .then(|| self.speaking(world, direction, member));
        if policies.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        let asked = policies.iter().flatten();
        let ports = match direction {
            Direction::Ingress => self.named(asked, member),
            // The destination's, and so a part of its atom.
            Direction::Egress => Vec::new(),
        };
        let key = SetKey {
            direction,
            policies,
            ports,
        };
        if let Some(set) = self.known.get(&key) {
            return Some(*set);
        }
        let set = self.fill(&key, member);
        let set = number(&mut self.sets, set);
        self.known.insert(key, set);
        Some(set)
    }

    /// The policies that select a member and say something in a direction.
    fn speaking(&self, world: &World, direction: Direction, member: &Member) -> Vec<usize> {
        let mut found = relevant(world, self.policies, member);
        found.retain(|index| {
            let policy = &self.policies[*index];
            match policy.tier {
                Tier::Network => policy.isolates(direction),
                Tier::Admin | Tier::Baseline => !policy.rules(direction).is_empty(),
            }
        });
        found
    }

    /// The numbers of a member's ports that ingress rules of policies name.
    fn named<'a>(
        &self,
        policies: impl Iterator<Item = &'a usize>,
        member: &Member,
    ) -> Vec<(String, Protocol, u16)> {
        let rules = policies.flat_map(|index| &self.policies[*index].ingress);
        let mut found: Vec<_> = rules
            .flat_map(|rule| rule.ports.iter().flatten())
            .flat_map(|ports| match ports {
                Ports::Range(..) => Vec::new(),
                Ports::Named(protocol, name) => {
                    let numbers = member.numbers(*protocol, name);
                    numbers
                        .map(|(protocol, port)| (name.clone(), protocol, port))
                        .collect()
                }
            })
            .collect();
        found.sort();
        found.dedup();
        found
    }

    fn fill(&mut self, key: &SetKey, member: &Member) -> Set {
        let mut rows: BTreeMap<Atom, RowId> = BTreeMap::new();
        for atom in 0..self.atoms.count() {
            let row = match &key.policies {
                Some(policies) => self.row(policies, key.direction, member, atom),
                None => Row::NOTHING,
            };
            rows.insert(atom, number(&mut self.rows, row));
        }
        let unknown = rows.remove(&UNKNOWN).unwrap_or_default();
        let mut counts: BTreeMap<RowId, usize> = BTreeMap::new();
        for row in rows.values() {
            *counts.entry(*row).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(row, count)| (*count, *row));
        let others = most.map_or(unknown, |(row, _)| row);
        rows.retain(|_, row| *row != others);
        Set {
            rows,
            unknown,
            others,
        }
    }

    /// Returns the traffic that a member may exchange with an atom.
    fn row(&self, policies: &[usize], direction: Direction, member: &Member, atom: Atom) -> Row {
        let (mut allowed, mut decided) = (Row::NOTHING, Row::NOTHING);
        for tier in [Tier::Admin, Tier::Network, Tier::Baseline] {
            let mut passed = Row::NOTHING;
            let of_tier = policies
                .iter()
                .map(|index| &self.policies[*index])
                .filter(|policy| policy.tier == tier);
            let mut isolated = false;
            for policy in of_tier {
                isolated |= tier == Tier::Network;
                for rule in policy.rules(direction) {
                    for (traffic, action) in self.effects(rule, direction, member, atom) {
                        let open = traffic.without(&decided).without(&passed);
                        match action {
                            Action::Accept => {
                                allowed = allowed.with(&open);
                                decided = decided.with(&open);
                            }
                            Action::Deny => decided = decided.with(&open),
                            Action::Pass => passed = passed.with(&open),
                        }
                    }
                }
            }
            if isolated {
                return allowed;
            }
        }
        allowed.with(&Row::ALL.without(&decided))
    }

    /// The traffic that a rule decides, surely and then perhaps, and how.
    fn effects(
        &self,
        rule: &Rule,
        direction: Direction,
        member: &Member,
        atom: Atom,
    ) -> Vec<(Row, Action)> {
        let known = atom != UNKNOWN;
        let sure_peer = known || rule.peers.is_none();
        let among = match &rule.peers {
            None => true,
            Some(peers) => peers.iter().any(|peer| self.atoms.is(atom, peer)),
        };
        if sure_peer && !among {
            return Vec::new();
        }
        let (sure, perhaps) = self.traffic(rule, direction, member, atom);
        let mut effects = Vec::new();
        if sure_peer {
            effects.push((sure, rule.action));
        }
        let perhaps = match sure_peer {
            true => perhaps,
            false => perhaps.with(&sure),
        };
        if rule.action != Action::Accept {
            effects.push((perhaps, Action::Deny));
        }
        effects
    }

    /// Returns the sure traffic of a rule's ports, and further possible traffic.
    fn traffic(
        &self,
        rule: &Rule,
        direction: Direction,
        member: &Member,
        atom: Atom,
    ) -> (Row, Row) {
        let Some(ports) = &rule.ports else {
            return (Row::ALL, Row::NOTHING);
        };
        let (mut sure, mut perhaps) = (Row::NOTHING, Row::NOTHING);
        for ports in ports {
            match ports {
                Ports::Range(protocol, first, last) => {
                    sure = sure.with(&self.classes.row(*protocol, *first, *last));
                }
                Ports::Named(protocol, name) => {
                    let numbers: Vec<(Protocol, u16)> = match direction {
                        Direction::Ingress => member.numbers(*protocol, name).collect(),
                        Direction::Egress if atom == UNKNOWN => {
                            perhaps = Row::ALL;
                            continue;
                        }
                        Direction::Egress => self.atoms.numbers(atom, *protocol, name),
                    };
                    for (protocol, port) in numbers {
                        sure = sure.with(&self.classes.row(protocol, port, port));
                    }
                }
            }
        }
        (sure, perhaps)
    }
}
