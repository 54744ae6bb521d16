//! Test what the switch of memif ports is shown: stamps of ports, and a secret.

use std::os::fd::OwnedFd;

use agent_common::cases::{self, World};
use agent_common::guard::{GUARD_SWITCHED, Guard, ROW_WORDS};
use agent_common::port::PORT_GUARD;
use aya::maps::{Array, Map, MapData};
use datapath::{Datapath, GuardMaps};

use super::scratch::{LOOPBACK, REDIRECT, SHOT, Scratch, allow, fill, run, scene};

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
        let word = 77 << 32 | u64::from(GUARD_SWITCHED) << 8 | 0b011;
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
fn a_program_goes_by_a_stamp_that_is_whole_and_else_by_the_sets() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        let mut maps = datapath.guards().expect("maps");
        datapath.serve_guards().expect("programs that load");
        let all = cases::all();
        let case = all.iter().find(|case| case.name == "UDP").expect("a case");
        let mut world = World::with_pod_at(case.sender, LOOPBACK);
        let port = world.ports.get_mut(&LOOPBACK).expect("the sender's");
        port.flags |= PORT_GUARD;
        let number = u32::from(port.port_id);
        fill(&mut datapath, &world);
        // Sets of which there is no row let nothing pass.
        maps.guards.insert(number, SETS).expect("an entry");
        let mut stamps = Scratch::array::<2>(&scratch.generation(), "STAMPS");
        let of_sets = 77 << 32 | u64::from(GUARD_SWITCHED) << 8 | 0b011;
        assert_eq!(
            stamps.get(&number, 0).expect("a stamp"),
            [of_sets, !of_sets]
        );
        let mut verdict = |word: u64, complement: u64| {
            let entry = [word, complement];
            stamps.set(number, entry, 0).expect("a stamp");
            run(&datapath, &case.frame).verdict
        };
        assert_eq!(verdict(0b001, !0b001), REDIRECT, "known to have no sets");
        let torn = [(0b001, !0b011), (0b001, 0), (0b1000, !0b1000), (0, 0)];
        for (word, complement) in torn.into_iter().chain([(of_sets, !of_sets)]) {
            assert_eq!(verdict(word, complement), SHOT, "{word:#x} {complement:#x}");
        }
        // A stamp has no rows: those of the sets are asked.
        allow(&mut maps, &SETS, [u32::MAX; ROW_WORDS]);
        let mut flows = Scratch::array::<64>(&scratch.state("connections"), "FLOWS");
        for (word, complement) in torn.into_iter().chain([(of_sets, !of_sets)]) {
            for bucket in 0..flows.len() {
                flows.set(bucket, [0; 64], 0).expect("an empty bucket");
            }
            assert_eq!(
                verdict(word, complement),
                REDIRECT,
                "{word:#x} {complement:#x}"
            );
        }
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
