//! Sets: what a member may exchange with each atom.

use std::collections::HashMap;
use std::sync::Arc;

use super::atoms::Atoms;
use super::bits::Bits;
use super::classes::Classes;
use super::numbers::Numbers;
use super::row::Row;
use super::shape::Shape;
use super::stages::{Stages, row_of, row_of_unknown};
use super::{Atom, RowId, Set, SetId};
use crate::model::{Action, Direction, Protocol, Tier};
use crate::world::Workload;

/// Facts on which the set of a member depends.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct SetKey {
    /// How often classes had changed: its rows are of those.
    pub(super) classes: u64,
    pub(super) direction: Direction,
    /// Numbers of what policies say, in the order in which they are asked.
    ///
    /// `None` for a member that is not known.
    pub(super) bodies: Option<Vec<u32>>,
    /// Named ports of the member that ingress rules ask for, by number of the name.
    pub(super) ports: Vec<(u32, Protocol, u16)>,
}

impl SetKey {
    /// Returns the key for a member of an unknown namespace.
    pub(super) const fn of_unknown(classes: u64, direction: Direction) -> Self {
        Self {
            classes,
            direction,
            bodies: None,
            ports: Vec::new(),
        }
    }

    /// Returns the key for a workload that has such policies; `None` for none.
    pub(super) fn of(
        shape: &Shape,
        classes: u64,
        direction: Direction,
        bodies: Vec<u32>,
        workload: &Workload,
    ) -> Option<Self> {
        if bodies.is_empty() {
            return None;
        }
        let found = bodies.iter().filter_map(|number| shape.bodies.get(*number));
        let rules = found.flat_map(|body| &body.rules);
        let mut ports: Vec<_> = match direction {
            Direction::Ingress => rules
                .flat_map(|rule| rule.ports.iter().flat_map(|ports| &ports.names))
                .filter_map(|number| Some((*number, shape.names.get(*number)?)))
                .flat_map(|(number, (protocol, name))| {
                    let found = workload.numbers(*protocol, name);
                    found.map(move |(protocol, port)| (number, protocol, port))
                })
                .collect(),
            // The destination's, and so a part of its atom.
            Direction::Egress => Vec::new(),
        };
        ports.sort_unstable();
        ports.dedup();
        Some(Self {
            classes,
            direction,
            bodies: Some(in_order(shape, bodies)),
            ports,
        })
    }
}

/// Orders bodies of which the order says nothing by their numbers, each once.
///
/// They are those of [`Tier::Network`], whose rules accept and nothing else.
fn in_order(shape: &Shape, mut bodies: Vec<u32>) -> Vec<u32> {
    let is_network = |number: &u32| {
        let body = shape.bodies.get(*number);
        body.is_some_and(|body| {
            let mut rules = body.rules.iter();
            body.tier == Tier::Network && rules.all(|rule| rule.action == Action::Accept)
        })
    };
    for run in bodies.chunk_by_mut(|one, two| is_network(one) && is_network(two)) {
        run.sort_unstable();
    }
    bodies.dedup();
    bodies
}

/// Sets of a network, by number, and their rows.
#[derive(Debug, Default)]
pub(super) struct Sets {
    keys: Numbers<Arc<SetKey>>,
    filled: Vec<Option<Arc<Set>>>,
    /// The lowest number of an equal set, by number.
    first: Vec<SetId>,
    /// Rows, with the number of the classes that they are of.
    rows: Numbers<(u64, Row)>,
    /// Atoms that filled sets have rows for.
    present: Vec<Atom>,
}

/// Facts that rows are made of.
pub(super) struct Ground<'a> {
    pub(super) shape: &'a Shape,
    pub(super) atoms: &'a Atoms,
    pub(super) classes: &'a Classes,
}

impl Sets {
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.keys.things().len() + self.filled.len() + self.rows.things().len()
    }

    /// Returns the number of a set, to be filled.
    pub(super) fn number(&mut self, key: Arc<SetKey>) -> SetId {
        self.keys.number(key)
    }

    /// Fills the sets whose numbers were asked for, and forgets all others.
    ///
    /// `present`: the atoms in use, ascending. Rows are made for those that came since the last time.
    pub(super) fn fill(&mut self, ground: &Ground<'_>, present: Vec<Atom>) {
        row_number(&mut self.rows, 0, Row::NOTHING);
        let before: Bits = self.present.iter().copied().collect();
        let came: Vec<Atom> = present
            .iter()
            .copied()
            .filter(|atom| !before.has(*atom))
            .collect();
        let is_same = came.is_empty() && self.present.len() == present.len();
        self.present = present;
        self.filled.resize(self.keys.things().len(), None);
        let used: Vec<SetId> = self.keys.all_used().collect();
        for number in used {
            let index = number as usize;
            let old = self.filled.get_mut(index).and_then(Option::take);
            let set = match old {
                Some(set) if is_same => set,
                old => Arc::new(self.filled(ground, number, old.as_deref(), &came)),
            };
            for row in set.all_rows() {
                self.rows.touch(row);
            }
            if let Some(place) = self.filled.get_mut(index) {
                *place = Some(set);
            }
        }
        self.rows.sweep();
        for (number, set) in (0..).zip(&mut self.filled) {
            if !self.keys.is_used(number) {
                *set = None;
            }
        }
        self.keys.sweep();
        self.filled.truncate(self.keys.things().len());
        let mut firsts: HashMap<&Set, SetId> = HashMap::new();
        let numbered = (0..).zip(&self.filled);
        self.first = numbered
            .map(|(number, set)| {
                let set = set.as_deref();
                set.map_or(number, |set| *firsts.entry(set).or_insert(number))
            })
            .collect();
    }

    /// Returns rows by number; a free number lets nothing pass.
    pub(super) fn rows(&self) -> Vec<Row> {
        let rows = self.rows.things().iter();
        rows.map(|row| row.map_or(Row::NOTHING, |(_, row)| row))
            .collect()
    }

    /// Returns sets by number; that of a number that nobody has lets nothing pass.
    pub(super) fn sets(&self) -> Vec<Arc<Set>> {
        let nothing = Arc::<Set>::default();
        let numbered = (0..).zip(&self.first).zip(&self.filled);
        let sets = numbered.map(|((number, first), set)| {
            let own = set.as_ref().filter(|_| *first == number);
            Arc::clone(own.unwrap_or(&nothing))
        });
        sets.collect()
    }

    /// Returns the number that a set is told by: the lowest of those that are equal.
    pub(super) fn told(&self, number: SetId) -> SetId {
        let first = self.first.get(number as usize);
        first.copied().unwrap_or(number)
    }

    /// Returns a set with rows for the atoms in use, of which it has the old ones.
    fn filled(
        &mut self,
        ground: &Ground<'_>,
        number: SetId,
        old: Option<&Set>,
        came: &[Atom],
    ) -> Set {
        let Some(key) = self.keys.get(number).map(Arc::clone) else {
            return Set::default();
        };
        let Some(stages) = Stages::of(ground, &key) else {
            return Set::default();
        };
        let mut row = |row| row_number(&mut self.rows, key.classes, row);
        let end = self.present.last().map_or(0, |atom| *atom as usize + 1);
        let mut rows: Vec<RowId> = vec![old.map_or(0, |old| old.others); end];
        let known = old.into_iter().flat_map(|old| &old.rows).copied();
        let mut put = |atom: Atom, row: RowId| {
            if let Some(place) = rows.get_mut(atom as usize) {
                *place = row;
            }
        };
        known.for_each(|(atom, row)| put(atom, row));
        let new = if old.is_some() { came } else { &self.present };
        for atom in new {
            let facts = ground.atoms.facts(*atom);
            let found = facts.map(|facts| row_of(ground, &stages, facts));
            put(*atom, found.map_or(0, &mut row));
        }
        let unknown = match old {
            Some(old) => old.unknown,
            None => row(row_of_unknown(&stages)),
        };
        let of = |atom: Atom| rows.get(atom as usize).copied().unwrap_or_default();
        let others = self.most(old.map(|old| old.others), of);
        let listed = self.present.iter().map(|atom| (*atom, of(*atom)));
        Set {
            rows: listed.filter(|(_, row)| *row != others).collect(),
            unknown,
            others,
        }
    }

    /// Returns the row of most atoms, or the one before as long as it is that of many.
    fn most(&self, before: Option<RowId>, of: impl Fn(Atom) -> RowId) -> RowId {
        let mut counts: HashMap<RowId, usize> = HashMap::new();
        for atom in &self.present {
            *counts.entry(of(*atom)).or_default() += 1;
        }
        let most = counts.iter().max_by_key(|(row, count)| (**count, **row));
        let Some((most, count)) = most.map(|(row, count)| (*row, *count)) else {
            return before.unwrap_or_default();
        };
        let is_many = |row: &RowId| counts.get(row).is_some_and(|it| 2 * it >= count);
        before.filter(is_many).unwrap_or(most)
    }
}

/// Returns the number of a row of such classes.
///
/// No traffic is the same with any classes: it has the number 0.
fn row_number(rows: &mut Numbers<(u64, Row)>, classes: u64, row: Row) -> RowId {
    let is_any = row == Row::NOTHING || row == Row::ALL;
    rows.number((if is_any { 0 } else { classes }, row))
}
