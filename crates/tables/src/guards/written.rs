//! A generation in the maps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use agent_common::addr::Ip16;
use agent_common::guard::{
    AtomKey, CLASSES, Classes, Guard, OTHERS, ROW_WORDS, Row, SetKey, UNKNOWN_ATOM,
};
use datapath::{DatapathError, GuardMaps};

use super::Guarded;
use super::numbers::Numbers;

/// Keys of a generation.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) generation: u32,
    /// Numbers of its sets.
    pub(super) sets: Range<u32>,
    /// Numbers of its rows.
    pub(super) rows: Range<u32>,
    set_keys: Vec<SetKey>,
    blocks: Vec<(Ip16, u8)>,
}

/// Reports whether two differ in members and ports only.
pub(super) fn is_same_form(old: &Guarded, new: &Guarded) -> bool {
    old.classes == new.classes
        && old.blocks == new.blocks
        && old.rows == new.rows
        && old.sets == new.sets
}

/// Reports whether a row lets all traffic pass.
pub(super) fn is_open(row: &Row, classes: &Classes) -> bool {
    let counts = classes.counts.iter().take(3);
    let mut open = row.words.get(ROW_WORDS - 1).is_some_and(|it| it & 1 == 1);
    for (protocol, count) in counts.enumerate() {
        for class in 0..usize::from(*count).min(CLASSES) {
            let word = row.words.get(protocol * 8 + class / 32);
            open &= word.is_some_and(|word| word >> (class % 32) & 1 == 1);
        }
    }
    open
}

/// Finds the sets of ports that let all traffic in.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn open_sets<'a>(
    maps: &GuardMaps,
    guards: impl Iterator<Item = &'a Guard>,
) -> Result<BTreeSet<u32>, DatapathError> {
    let generations: BTreeMap<u32, u32> = guards
        .map(|guard| (guard.ingress, guard.generation))
        .collect();
    let (mut open, mut closed) = (BTreeSet::new(), BTreeSet::new());
    for (key, row) in maps.sets.dump()? {
        let Some(generation) = generations.get(&key.set) else {
            continue;
        };
        let found = maps.rows.get(&row)?.zip(maps.classes.get(generation)?);
        match found.is_some_and(|(row, classes)| is_open(&row, &classes)) {
            true => open.insert(key.set),
            false => closed.insert(key.set),
        };
    }
    // A set without any row is not open either.
    Ok(&open - &closed)
}

/// Writes members that came, changed or went; returns whether a verdict may have changed.
pub(super) fn update(
    maps: &mut GuardMaps,
    written: &Written,
    old: &BTreeMap<Ip16, u32>,
    new: &BTreeMap<Ip16, u32>,
) -> Result<bool, DatapathError> {
    let generation = written.generation;
    let mut changed = false;
    for (ip, atom) in new {
        let before = old.get(ip);
        if before == Some(atom) {
            continue;
        }
        changed |= before.is_some();
        let key = AtomKey {
            generation,
            ip: *ip,
        };
        maps.atoms.insert(key, *atom)?;
    }
    for ip in old.keys().filter(|ip| !new.contains_key(ip)) {
        changed = true;
        let key = AtomKey {
            generation,
            ip: *ip,
        };
        maps.atoms.remove(&key)?;
    }
    Ok(changed)
}

impl Written {
    /// Writes a generation that no port uses yet.
    ///
    /// # Errors
    /// When a table is full or the kernel refuses: nothing of it is left then.
    pub(super) fn new(
        maps: &mut GuardMaps,
        numbers: &mut Numbers,
        content: &Guarded,
    ) -> Result<Self, DatapathError> {
        let mut this = Self {
            generation: numbers.generation(),
            sets: numbers.sets(content.sets.len()),
            rows: numbers.rows(content.rows.len()),
            set_keys: Vec::new(),
            blocks: content.blocks.keys().copied().collect(),
        };
        let filled = this.fill(maps, content);
        if filled.is_err() {
            // The error of the table that is full is the one to tell.
            let _ = this.remove(maps);
        }
        filled.map(|()| this)
    }

    fn fill(&mut self, maps: &mut GuardMaps, content: &Guarded) -> Result<(), DatapathError> {
        let generation = self.generation;
        if content.sets.is_empty() {
            // Nothing looks anything up.
            return Ok(());
        }
        maps.classes.insert(generation, *content.classes)?;
        for ((ip, length), atom) in &content.blocks {
            maps.blocks.insert((generation, *ip, *length), *atom)?;
        }
        for (ip, atom) in &content.atoms {
            let key = AtomKey {
                generation,
                ip: *ip,
            };
            maps.atoms.insert(key, *atom)?;
        }
        for (number, row) in self.rows.clone().zip(&content.rows) {
            maps.rows.insert(number, *row)?;
        }
        let first = self.rows.start;
        for (set, rows) in self.sets.clone().zip(&content.sets) {
            let own = rows.rows.iter().map(|(atom, row)| (*atom, *row));
            let all = own.chain([(UNKNOWN_ATOM, rows.unknown), (OTHERS, rows.others)]);
            for (atom, row) in all {
                let key = SetKey { set, atom };
                let row = first + u32::try_from(row).unwrap_or(u32::MAX - first);
                self.set_keys.push(key);
                maps.sets.insert(key, row)?;
            }
        }
        Ok(())
    }

    /// The number of a set; 0 for none.
    pub(super) fn set(&self, place: Option<usize>) -> u32 {
        let Some(place) = place else {
            return 0;
        };
        let number = u32::try_from(place).ok();
        let number = number.and_then(|place| self.sets.start.checked_add(place));
        let number = number.filter(|number| self.sets.contains(number));
        // One that is not there lets nothing pass.
        number.unwrap_or(u32::MAX)
    }

    /// Removes it; no program may use it.
    pub(super) fn remove(&self, maps: &mut GuardMaps) -> Result<(), DatapathError> {
        for key in &self.set_keys {
            maps.sets.remove(key)?;
        }
        for row in self.rows.clone() {
            maps.rows.remove(&row)?;
        }
        for (ip, length) in &self.blocks {
            maps.blocks.remove((self.generation, *ip, *length))?;
        }
        let atoms = maps.atoms.keys()?;
        for key in atoms.iter().filter(|key| key.generation == self.generation) {
            maps.atoms.remove(key)?;
        }
        maps.classes.remove(&self.generation)
    }
}
