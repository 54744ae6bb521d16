//! Keep maps of state that outlives the layout of the other maps.
//!
//! A change of any other map makes new maps of that layout, and empties them. State that cannot be written
//! again from records is apart: each kind has a directory of its own, named after a digest of its own maps
//! only. Programs of the old layout and of the new one use the same maps of that state, so nothing is lost
//! between a copy and the flip.
//!
//! What follows `--max-ports`, as `PORT_COUNTERS` and `PORT_REASONS`, belongs to the layout of the ports.

use std::path::PathBuf;

use crate::object::Layout;
use crate::pin::PinDir;

/// State that outlives layouts: its name in paths, and its maps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    /// Name in the path of the directory: lower-case letters.
    pub(crate) name: &'static str,
    /// Names of the maps.
    pub(crate) maps: &'static [&'static str],
}

/// Counters of drops.
pub(crate) const DROPS: Kind = Kind {
    name: "drops",
    maps: &["DROPS", "NETWORK_DROPS"],
};

/// Compiled policies.
///
/// Which ports have which sets goes by their numbers, and so with the layout of the ports.
pub(crate) const GUARDS: Kind = Kind {
    name: "guards",
    maps: &["ATOMS", "BLOCKS", "CLASSES", "SETS", "ROWS"],
};

/// Connections that policies let pass.
///
/// None is cut by another layout of the ports, nor of the policies.
pub(crate) const CONNECTIONS: Kind = Kind {
    name: "connections",
    maps: &["FLOWS", "FLOW_SECRET", "FRAGMENTS", "FLOW_BUDGETS"],
};

/// Services, and the connections to them.
pub(crate) const SERVICES: Kind = Kind {
    name: "services",
    maps: &[
        "SERVICES",
        "BACKENDS",
        "MEMBERS",
        "AFFINITIES",
        "TRANSLATIONS",
        "SERVICE_SECRET",
        "SERVICE_BUDGETS",
    ],
};

/// All kinds.
pub(crate) const KINDS: [Kind; 4] = [DROPS, GUARDS, CONNECTIONS, SERVICES];

impl Kind {
    /// Returns the kind that a map belongs to, if any.
    pub(crate) fn of(map: &str) -> Option<Self> {
        KINDS.into_iter().find(|kind| kind.maps.contains(&map))
    }

    /// Returns the directory of this kind's maps in a layout.
    pub(crate) fn directory(self, pins: &PinDir, layout: &Layout) -> PathBuf {
        let mut own = layout.clone();
        own.0.retain(|name, _| self.maps.contains(&name.as_str()));
        pins.state(self.name, &own.digest())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::object::MapLayout;

    const MAP: MapLayout = MapLayout {
        map_type: 6,
        key_size: 4,
        value_size: 16,
        max_entries: 64,
        flags: 0,
    };

    fn directory(changed: &str) -> PathBuf {
        let maps = ["PORTS", "DROPS", "NETWORK_DROPS"].map(|name| {
            let max_entries = if name == changed { 65 } else { 64 };
            (name.to_owned(), MapLayout { max_entries, ..MAP })
        });
        let pins = PinDir::new(PathBuf::from("/pins"));
        DROPS.directory(&pins, &Layout(BTreeMap::from(maps)))
    }

    #[test]
    fn state_keeps_its_directory_while_its_own_maps_keep_their_layout() {
        assert_eq!(directory("PORTS"), directory(""));
        assert_ne!(directory("DROPS"), directory(""));
        assert_ne!(directory("NETWORK_DROPS"), directory(""));
        assert!(directory("").starts_with("/pins"));
    }

    #[test]
    fn no_map_belongs_to_two_kinds() {
        for kind in KINDS {
            for map in kind.maps {
                assert_eq!(Kind::of(map).map(|kind| kind.name), Some(kind.name));
            }
        }
        assert!(Kind::of("PORT_COUNTERS").is_none());
    }
}
