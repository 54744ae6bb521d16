//! Test what the switch of memif ports is shown: stamps of ports, and a secret.

use std::os::fd::OwnedFd;

use agent_common::guard::{GUARD_SWITCHED, Guard};
use aya::maps::{Array, Map, MapData};
use datapath::{Datapath, GuardMaps};

use super::scratch::scene;

const SETS: Guard = Guard {
    generation: 9,
    egress: 1,
    ingress: 0,
    stamp: 77,
    flags: GUARD_SWITCHED,
};

fn array<const N: usize>(file: OwnedFd) -> Array<MapData, [u64; N]> {
    let data = MapData::from_fd(file).expect("a map");
    Array::try_from(Map::Array(data)).expect("an array")
}

/// Words of a port's stamp.
fn stamp(maps: &GuardMaps, port: u32) -> [u64; 2] {
    let files = maps.guards.files().expect("descriptors");
    array(files.stamps).get(&port, 0).expect("a stamp")
}

/// Words of the secret.
fn secret(maps: &GuardMaps) -> [[u64; 8]; 2] {
    let files = maps.guards.files().expect("descriptors");
    let flows = array(files.flows);
    [0, 1].map(|slot| flows.get(&slot, 0).expect("a slot"))
}

#[test]
fn a_stamp_is_shown_as_long_as_a_switched_port_has_sets() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        let mut maps = datapath.guards().expect("maps");
        assert_eq!(stamp(&maps, 5), [0, 0]);
        maps.guards.insert(5, SETS).expect("an entry");
        let word = 77 << 32 | 0b011;
        assert_eq!(stamp(&maps, 5), [word, !word]);
        assert_eq!(maps.guards.get(&5).expect("an entry"), Some(SETS));
        // Of another kind of port with that number.
        let other = Guard { flags: 0, ..SETS };
        maps.guards.insert(5, other).expect("an entry");
        assert_eq!(stamp(&maps, 5), [0, 0]);
        // An agent that ended before it was shown.
        maps.guards.confirm(5, &SETS).expect("a stamp");
        assert_eq!(stamp(&maps, 5), [word, !word]);
        maps.guards.remove(&5).expect("none any more");
        assert_eq!(stamp(&maps, 5), [0, 0]);
        // Of an agent that ended between the two maps, once all sets are known.
        maps.guards.confirm(6, &SETS).expect("a stamp");
        maps.guards.insert(5, SETS).expect("an entry");
        maps.guards.sweep().expect("stamps");
        assert_eq!((stamp(&maps, 6), stamp(&maps, 5)), ([0, 0], [word, !word]));
        // A port beyond the map is the kernel's.
        maps.guards.insert(65_535, SETS).expect("an entry");
        maps.guards.remove(&65_535).expect("none any more");
    });
}

#[test]
fn a_secret_is_made_once_for_a_layout() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        let retired = datapath.activate().expect("a flip");
        retired.remove().expect("nothing to remove");
        let first = secret(&datapath.guards().expect("maps"));
        assert!(first.iter().all(|half| *half != [0; 8]), "{first:?}");
        let mut again = Datapath::open(&scratch.options()).expect("programs that load");
        assert!(again.adopted());
        let before = again.guards().expect("maps");
        assert_eq!(secret(&before), first);
        let mut another = Datapath::open(&scratch.with_ports(64)).expect("programs that load");
        let files = another.guards().expect("maps");
        assert_ne!(secret(&files), first);
        assert_eq!(files.guards.files().expect("descriptors").ports, 64);
        // The switch has the maps of before until it is given those of the new layout.
        assert_eq!(stamp(&before, 5), [0, 0]);
        let retired = another.activate().expect("a flip");
        let changing = stamp(&before, 5);
        assert!(
            changing[0] != 0 && changing[0] & 1 == 0 && changing[1] == !changing[0],
            "{changing:?}"
        );
        retired.remove().expect("the layout of before");
    });
}
