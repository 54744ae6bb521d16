//! Numbers of generations, sets, rows and stamps: none is used twice.

use std::collections::BTreeSet;
use std::ops::Range;

use datapath::{DatapathError, GuardMaps};

use super::written::Written;

/// The next free numbers.
#[derive(Debug)]
pub(super) struct Numbers {
    generation: u32,
    set: u32,
    row: u32,
    stamp: u32,
}

impl Numbers {
    /// Finds those behind all that are in the maps.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn read(maps: &GuardMaps) -> Result<Self, DatapathError> {
        let guards = maps.guards.dump()?;
        let after = |largest: Option<u32>| largest.map_or(1, |it| it.saturating_add(1));
        let flows = maps.flows.dump()?;
        let stamps = flows.values().flat_map(|flow| [flow.egress, flow.ingress]);
        Ok(Self {
            generation: after(
                maps.classes
                    .keys()?
                    .into_iter()
                    .chain(maps.atoms.keys()?.iter().map(|key| key.generation))
                    .chain(maps.blocks.dump()?.keys().map(|key| key.0))
                    .chain(guards.values().map(|guard| guard.generation))
                    .max(),
            ),
            set: after(
                maps.sets
                    .keys()?
                    .iter()
                    .map(|key| key.set)
                    .chain(
                        guards
                            .values()
                            .flat_map(|guard| [guard.egress, guard.ingress]),
                    )
                    .filter(|set| *set != u32::MAX)
                    .max(),
            ),
            row: after(maps.rows.keys()?.into_iter().max()),
            stamp: after(stamps.chain(guards.values().map(|guard| guard.stamp)).max()),
        })
    }

    pub(super) fn generation(&mut self) -> u32 {
        self.generation += 1;
        self.generation - 1
    }

    pub(super) fn sets(&mut self, count: usize) -> Range<u32> {
        range(&mut self.set, count)
    }

    pub(super) fn rows(&mut self, count: usize) -> Range<u32> {
        range(&mut self.row, count)
    }

    /// The next stamp, never 0.
    ///
    /// They begin anew after 4 billion: no flow lives long enough to have an old one.
    pub(super) fn stamp(&mut self) -> u32 {
        let stamp = self.stamp.max(1);
        self.stamp = stamp.wrapping_add(1);
        stamp
    }

    /// Removes all that is neither in `used` nor in force at any port.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn sweep(
        &mut self,
        maps: &mut GuardMaps,
        used: &[&Written],
    ) -> Result<(), DatapathError> {
        let guards = maps.guards.dump()?;
        let mut generations: BTreeSet<u32> = guards.values().map(|it| it.generation).collect();
        generations.extend(used.iter().map(|it| it.generation));
        let in_force: BTreeSet<u32> = guards
            .values()
            .flat_map(|guard| [guard.egress, guard.ingress])
            .collect();
        let of = |set: u32| used.iter().any(|it| it.sets.contains(&set));
        let mut rows = BTreeSet::new();
        for (key, row) in maps.sets.dump()? {
            if in_force.contains(&key.set) || of(key.set) {
                rows.insert(row);
            } else {
                maps.sets.remove(&key)?;
            }
        }
        for row in maps.rows.keys()? {
            if !rows.contains(&row) && !used.iter().any(|it| it.rows.contains(&row)) {
                maps.rows.remove(&row)?;
            }
        }
        for key in maps.atoms.keys()? {
            if !generations.contains(&key.generation) {
                maps.atoms.remove(&key)?;
            }
        }
        for key in maps.blocks.dump()?.into_keys() {
            if !generations.contains(&key.0) {
                maps.blocks.remove(key)?;
            }
        }
        for generation in maps.classes.keys()? {
            if !generations.contains(&generation) {
                maps.classes.remove(&generation)?;
            }
        }
        Ok(())
    }
}

fn range(next: &mut u32, count: usize) -> Range<u32> {
    let first = *next;
    *next = first.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    first..*next
}
