//! A generation in the maps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_common::addr::Ip16;
use agent_common::guard::{
    AtomKey, CLASSES, Classes, GUARD_ADOPT, GUARD_SWITCHED, Guard, ROW_WORDS, Row, RowKey, SetKey,
};
use datapath::{DatapathError, GuardMaps};

use super::before::Before;
use super::{Guarded, PortSets, numbers};

/// Reports whether a network's new tables can be written into those in force.
///
/// Only members, ports that come or go, and rows and sets that were not there may differ.
pub(super) fn extends(new: &Guarded, old: &Guarded) -> bool {
    let is_kept = |(port, sets): (&u16, &PortSets)| new.ports.get(port).is_none_or(|it| it == sets);
    new.numbering.is_some()
        && old.numbering == new.numbering
        && old.classes == new.classes
        && old.blocks == new.blocks
        // Tables without sets are not written: nothing looks anything up.
        && (new.sets.is_empty() || !old.sets.is_empty())
        && old.ports.iter().all(is_kept)
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

/// Finds the sets of ports that let all traffic in, by generation and number.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn open_sets<'a>(
    maps: &GuardMaps,
    guards: impl Iterator<Item = &'a Guard>,
) -> Result<BTreeSet<(u32, u32)>, DatapathError> {
    let asked: BTreeSet<(u32, u32)> = guards
        .map(|guard| (guard.generation, guard.ingress))
        .collect();
    let (mut open, mut closed) = (BTreeSet::new(), BTreeSet::new());
    for (key, row) in maps.sets.dump()? {
        let set = (key.generation, key.set);
        if !asked.contains(&set) {
            continue;
        }
        let generation = key.generation;
        let row = maps.rows.get(&RowKey { generation, row })?;
        let found = row.zip(maps.classes.get(&generation)?);
        match found.is_some_and(|(row, classes)| is_open(&row, &classes)) {
            true => open.insert(set),
            false => closed.insert(set),
        };
    }
    // A set without any row is not open either.
    Ok(&open - &closed)
}

/// Writes what is new of a generation; returns whether a verdict may have changed.
///
/// Rows come before the sets that have them, and these before members that need them.
///
/// # Errors
/// When a table is full or the kernel refuses.
pub(super) fn update(
    maps: &mut GuardMaps,
    generation: u32,
    old: &Guarded,
    new: &Guarded,
) -> Result<bool, DatapathError> {
    for (row, words) in (0..).zip(&new.rows) {
        if old.rows.get(row as usize) != Some(words) {
            maps.rows.insert(RowKey { generation, row }, *words)?;
        }
    }
    for (place, set) in new.sets.iter().enumerate() {
        let before = old.sets.get(place);
        if before.is_some_and(|before| Arc::ptr_eq(before, set) || before == set) {
            continue;
        }
        for (atom, row) in set.entries() {
            let known = before.and_then(|before| before.entry(atom));
            if known != Some(row) {
                let key = set_key(generation, place, atom);
                maps.sets.insert(key, row)?;
            }
        }
        let gone = before.into_iter().flat_map(|before| before.entries());
        for (atom, _) in gone.filter(|(atom, _)| set.entry(*atom).is_none()) {
            maps.sets.remove(&set_key(generation, place, atom))?;
        }
    }
    // A number that is free may be another set's next, which has not all of these rows.
    for (place, set) in old.sets.iter().enumerate().skip(new.sets.len()) {
        for (atom, _) in set.entries() {
            maps.sets.remove(&set_key(generation, place, atom))?;
        }
    }
    let (mut changed, mut before) = (false, Before::new(new));
    // Without sets nothing was judged.
    let is_first = old.sets.is_empty();
    for (ip, atom) in &new.atoms {
        let known = old.atoms.get(ip);
        if known != Some(atom) {
            changed |= known.is_some() || !is_first && before.lets_less_pass(ip, *atom);
            maps.atoms.insert(atom_key(generation, *ip), *atom)?;
        }
    }
    for ip in old.atoms.keys().filter(|ip| !new.atoms.contains_key(ip)) {
        changed = true;
        maps.atoms.remove(&atom_key(generation, *ip))?;
    }
    Ok(changed)
}

/// Writes the atom of one more member.
///
/// # Errors
/// When the table is full or the kernel refuses.
pub(super) fn add_atom(
    maps: &mut GuardMaps,
    generation: u32,
    ip: Ip16,
    atom: u32,
) -> Result<(), DatapathError> {
    maps.atoms.insert(atom_key(generation, ip), atom)
}

/// Writes a generation that no port uses yet.
///
/// # Errors
/// When a table is full or the kernel refuses: nothing of it is left then.
pub(super) fn write(
    maps: &mut GuardMaps,
    generation: u32,
    content: &Guarded,
) -> Result<(), DatapathError> {
    let nothing = Guarded {
        numbering: None,
        atoms: BTreeMap::new(),
        blocks: BTreeMap::new(),
        classes: content.classes.clone(),
        rows: Vec::new(),
        sets: Vec::new(),
        ports: BTreeMap::new(),
    };
    if content.sets.is_empty() {
        // Nothing looks anything up.
        return Ok(());
    }
    let mut write = || {
        maps.classes.insert(generation, *content.classes)?;
        for ((ip, length), atom) in &content.blocks {
            maps.blocks.insert((generation, *ip, *length), *atom)?;
        }
        update(maps, generation, &nothing, content).map(drop)
    };
    let written = write();
    if written.is_err() {
        // The error of the table that is full is the one to tell.
        let _ = numbers::remove(maps, |it| it == generation);
    }
    written
}

/// The number of a set in the maps; 0 for none.
pub(super) fn set_number(place: Option<usize>) -> u32 {
    match place {
        None => 0,
        // One that is not there lets nothing pass.
        Some(place) => u32::try_from(place + 1).unwrap_or(u32::MAX),
    }
}

/// The `GUARD_*` flags of a port.
pub(super) const fn flags(adopting: bool, switched: bool) -> u32 {
    let mut flags = 0;
    if adopting {
        flags |= GUARD_ADOPT;
    }
    if switched {
        flags |= GUARD_SWITCHED;
    }
    flags
}

fn set_key(generation: u32, place: usize, atom: u32) -> SetKey {
    SetKey {
        generation,
        set: set_number(Some(place)),
        atom,
    }
}

const fn atom_key(generation: u32, ip: Ip16) -> AtomKey {
    AtomKey { generation, ip }
}
