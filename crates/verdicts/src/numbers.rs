//! Numbers of generations and stamps: none is used twice.

use std::collections::BTreeSet;

use agent_common::guard::DENIED;
use datapath::connections::now;
use datapath::{DatapathError, GuardMaps};

/// The next free numbers.
#[derive(Debug)]
pub(super) struct Numbers {
    generation: u32,
    stamp: u32,
}

/// Stamps that are left out behind the largest that is known.
///
/// The switch, and processors for a moment, may remember a few of connections that are in no map any more.
const GAP: u32 = 1024;

/// Stamps by which a connection may be ahead of all ports.
///
/// One that is further ahead was written by two processors at once, each its half.
const AHEAD: u32 = 1 << 24;

/// The largest stamp that ports and connections have.
#[derive(Debug)]
struct Stamps {
    largest: Option<u32>,
    /// That of a connection is not larger; never that of a denial.
    most: u32,
}

impl Stamps {
    /// With the largest one that a port has.
    fn new(of_ports: Option<u32>) -> Self {
        let most = of_ports.map_or(DENIED, |stamp| stamp.saturating_add(AHEAD));
        Self {
            largest: of_ports,
            most: most.min(DENIED - 1),
        }
    }

    /// Takes those of a connection.
    fn see(&mut self, stamps: [u32; 2]) {
        let stamps = stamps.into_iter().filter(|it| *it <= self.most);
        self.largest = self.largest.max(stamps.max());
    }
}

impl Numbers {
    /// Finds those behind all that are in the maps.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn read(maps: &GuardMaps) -> Result<Self, DatapathError> {
        let guards = maps.guards.dump()?;
        let after = |largest: Option<u32>| largest.map_or(1, |it| it.saturating_add(1));
        let generations = guards.values().map(|guard| guard.generation);
        let mut stamps = Stamps::new(guards.values().map(|guard| guard.stamp).max());
        let now = now();
        maps.connections.each(|key, flow| {
            if flow.is_alive(key.protocol, now) {
                stamps.see([flow.egress, flow.ingress]);
            }
        })?;
        Ok(Self {
            generation: after(generations.chain(all(maps)?).max()),
            stamp: after(stamps.largest).saturating_add(GAP),
        })
    }

    pub(super) fn generation(&mut self) -> u32 {
        self.generation += 1;
        self.generation - 1
    }

    /// The next stamp, never 0 or that of a denial.
    ///
    /// They begin anew after 4 billion: no flow lives long enough to have an old one.
    pub(super) fn stamp(&mut self) -> u32 {
        let stamp = match self.stamp {
            0 | DENIED => 1,
            stamp => stamp,
        };
        self.stamp = stamp.wrapping_add(1);
        stamp
    }
}

/// The generations of which there is anything in the maps.
fn all(maps: &GuardMaps) -> Result<BTreeSet<u32>, DatapathError> {
    let mut found: BTreeSet<u32> = maps.classes.keys()?.into_iter().collect();
    found.extend(maps.atoms.keys()?.iter().map(|key| key.generation));
    found.extend(maps.blocks.dump()?.keys().map(|key| key.0));
    found.extend(maps.sets.keys()?.iter().map(|key| key.generation));
    found.extend(maps.rows.keys()?.iter().map(|key| key.generation));
    Ok(found)
}

/// Removes all generations that are neither in `used` nor in force at any port.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn sweep(maps: &mut GuardMaps, mut used: BTreeSet<u32>) -> Result<(), DatapathError> {
    let guards = maps.guards.dump()?;
    used.extend(guards.values().map(|guard| guard.generation));
    if all(maps)?.is_subset(&used) {
        return Ok(());
    }
    remove(maps, |generation| !used.contains(&generation))
}

/// Removes all of some generations.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn remove(
    maps: &mut GuardMaps,
    is_one: impl Fn(u32) -> bool,
) -> Result<(), DatapathError> {
    maps.sets.remove_where(|key| is_one(key.generation))?;
    maps.rows.remove_where(|key| is_one(key.generation))?;
    maps.atoms.remove_where(|key| is_one(key.generation))?;
    for key in maps.blocks.dump()?.into_keys().filter(|key| is_one(key.0)) {
        maps.blocks.remove(key)?;
    }
    maps.classes.remove_where(|generation| is_one(*generation))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn largest(of_ports: Option<u32>, connections: &[[u32; 2]]) -> Option<u32> {
        let mut stamps = Stamps::new(of_ports);
        connections.iter().for_each(|it| stamps.see(*it));
        stamps.largest
    }

    #[test]
    fn the_largest_stamp_may_be_a_ports_or_a_connections() {
        assert_eq!(largest(None, &[]), None);
        assert_eq!(largest(Some(7), &[[3, 0], [0, 5]]), Some(7));
        // The port that had it is gone.
        assert_eq!(largest(Some(7), &[[3, 9], [0, 5]]), Some(9));
        assert_eq!(largest(None, &[[3, 9]]), Some(9));
    }

    #[test]
    fn halves_of_two_connections_and_denials_are_no_stamps() {
        let torn = 7 + AHEAD + 1;
        assert_eq!(largest(Some(7), &[[torn, 9]]), Some(9));
        assert_eq!(largest(Some(7), &[[torn - 1, 0]]), Some(torn - 1));
        assert_eq!(largest(None, &[[DENIED, DENIED]]), None);
        assert_eq!(largest(Some(DENIED - 1), &[[DENIED, 0]]), Some(DENIED - 1));
    }
}
