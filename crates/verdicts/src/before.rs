//! Tell when an address that becomes a member's is less to policies than it was.
//!
//! Connections with it were let pass by what blocks say of the address. Ports get new stamps then, so that these are
//! judged again.

use std::collections::BTreeMap;

use agent_common::addr::Ip16;
use agent_common::guard::{ROW_WORDS, UNKNOWN_ATOM};

use super::{Guarded, SetRows};

/// The addresses of a network, as they were judged without atoms of their own.
#[derive(Debug)]
pub(super) struct Before<'a> {
    content: &'a Guarded,
    /// Answers, by both atoms: many addresses have the same.
    known: BTreeMap<(u32, u32), bool>,
}

impl<'a> Before<'a> {
    /// The addresses of the network with these tables.
    pub(super) fn new(content: &'a Guarded) -> Self {
        Self {
            content,
            known: BTreeMap::new(),
        }
    }

    /// Reports whether these atoms of addresses may let less pass than before.
    pub(super) fn is_changed_by(&mut self, atoms: &[(Ip16, u32)]) -> bool {
        atoms
            .iter()
            .any(|(ip, atom)| match self.content.atoms.get(ip) {
                Some(known) => known != atom,
                None => self.lets_less_pass(ip, *atom),
            })
    }

    /// Reports whether a set lets less pass with an address once it has this atom.
    pub(super) fn lets_less_pass(&mut self, ip: &Ip16, atom: u32) -> bool {
        let (content, before) = (self.content, self.atom(ip));
        let compare = || {
            let mut sets = content.sets.iter();
            sets.any(|set| {
                let [old, new] = [before, atom].map(|atom| words(content, set, atom));
                old.iter().zip(new).any(|(old, new)| old & !new != 0)
            })
        };
        before != atom && *self.known.entry((before, atom)).or_insert_with(compare)
    }

    /// The atom of an address that is no member's, by the longest block.
    fn atom(&self, ip: &Ip16) -> u32 {
        let blocks = &self.content.blocks;
        let mut lengths = (0..=128).rev();
        let found = lengths.find_map(|length| blocks.get(&(ip.first_of(length), length)));
        found.copied().unwrap_or(UNKNOWN_ATOM)
    }
}

/// The classes that a set lets pass with an atom.
fn words(content: &Guarded, set: &SetRows, atom: u32) -> [u32; ROW_WORDS] {
    let row = set.entry(atom).unwrap_or(set.others) as usize;
    content
        .rows
        .get(row)
        .map_or([0; ROW_WORDS], |row| row.words)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent_common::guard::{Classes, Row, STARTS};

    use super::*;

    const POD: [u8; 4] = [10, 0, 0, 9];

    fn v4(ip: [u8; 4]) -> Ip16 {
        Ip16::from_v4(ip)
    }

    /// Tables of a set with these rows: nothing passes by row 0, all by row 1.
    ///
    /// Atom 1 is of all addresses, atom 2 of 10.0.0.0/8.
    fn tables(rows: &[(u32, u32)]) -> Guarded {
        let set = SetRows {
            rows: rows.to_vec(),
            unknown: 0,
            others: 0,
        };
        let blocks = [((v4([0; 4]), 96), 1), ((v4([10, 0, 0, 0]), 104), 2)];
        Guarded {
            numbering: None,
            atoms: BTreeMap::new(),
            blocks: blocks.into_iter().collect(),
            classes: Box::new(Classes {
                counts: [1, 1, 1, 0],
                starts: [0; STARTS],
            }),
            rows: [0, u32::MAX]
                .map(|word| Row {
                    words: [word; ROW_WORDS],
                })
                .to_vec(),
            sets: vec![Arc::new(set)],
            ports: BTreeMap::new(),
        }
    }

    #[test]
    fn an_address_that_its_block_lets_pass_and_its_labels_do_not_is_less() {
        let tables = tables(&[(2, 1)]);
        assert!(Before::new(&tables).lets_less_pass(&v4(POD), 7));
        // It is in the shorter block alone, of which nothing passes.
        assert!(!Before::new(&tables).lets_less_pass(&v4([192, 0, 2, 1]), 7));
    }

    #[test]
    fn an_address_that_may_more_by_its_labels_or_the_same_is_not_less() {
        for rows in [&[(2, 1), (7, 1)][..], &[(7, 1)], &[]] {
            let tables = tables(rows);
            assert!(
                !Before::new(&tables).lets_less_pass(&v4(POD), 7),
                "{rows:?}"
            );
        }
    }

    #[test]
    fn an_address_that_no_block_has_was_unknown() {
        let mut tables = tables(&[(2, 1)]);
        tables.blocks.clear();
        assert!(!Before::new(&tables).lets_less_pass(&v4(POD), 7));
    }

    #[test]
    fn an_address_of_another_member_is_another_one() {
        let mut tables = tables(&[(2, 1), (7, 1), (8, 1)]);
        tables.atoms.insert(v4(POD), 7);
        assert!(Before::new(&tables).is_changed_by(&[(v4(POD), 8)]));
        assert!(!Before::new(&tables).is_changed_by(&[(v4(POD), 7)]));
        assert!(!Before::new(&tables).is_changed_by(&[(v4([10, 0, 0, 8]), 8)]));
    }
}
