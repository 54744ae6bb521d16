//! Test opening again, with another layout, and on pins of somebody else.

use std::fs;
use std::path::Path;

use agent_common::cases::{BLUE_A, BLUE_B, RED_A, World};
use agent_common::drop::DropReason;
use aya::maps::MapData;
use datapath::{Datapath, DatapathError, Dispatcher, Options};

use super::scratch::{LOOPBACK, REDIRECT, Scratch, case, entries, fill, name, run, scene};

/// The layout that agents before this one and after it rely on.
const PUBLISHED: &str = include_str!("../../../../agent-common/tests/abi.txt");

fn frame(name: &str) -> Vec<u8> {
    case(name).frame
}

fn spoofed(datapath: &mut Datapath) -> u64 {
    datapath
        .counters()
        .total_drops(DropReason::SpoofedIp)
        .expect("drops")
        .packets
}

fn spoofed_in_blue(datapath: &mut Datapath) -> u64 {
    let drops = datapath.counters().drops().expect("drops");
    let of_blue = drops
        .iter()
        .filter(|drop| (drop.network, drop.reason) == (BLUE_A.network, DropReason::SpoofedIp));
    of_blue.map(|drop| drop.count.packets).sum()
}

fn dropped_at_a(datapath: &mut Datapath) -> u64 {
    let counters = datapath.counters();
    let port = counters.port(BLUE_A.port_id).expect("counters");
    let dropped = port.dropped.packets;
    let reasons = counters.port_drops(BLUE_A.port_id).expect("counters");
    assert_eq!(reasons, [(DropReason::SpoofedIp, dropped)]);
    dropped
}

/// Has an agent with these options flip, and drop frames that a pod forges.
fn serve(options: &Options, forged: usize) -> Datapath {
    let mut datapath = Datapath::open(options).expect("programs that load");
    fill(&mut datapath, &World::with_pod_at(&BLUE_A, LOOPBACK));
    // It dies before it removes what was there.
    let _retired = datapath.activate().expect("a flip");
    for _ in 0..forged {
        run(&datapath, &frame("a neighbour's IPv4 address"));
    }
    datapath
}

#[test]
fn opening_again_adopts_the_maps_with_what_they_hold() {
    scene(|scratch| {
        let world = World::with_pod_at(&BLUE_A, LOOPBACK);
        let mut first = Datapath::open(&scratch.options()).expect("programs that load");
        assert!(!first.adopted());
        fill(&mut first, &world);
        first
            .activate()
            .expect("a flip")
            .remove()
            .expect("nothing to remove");
        run(&first, &frame("UDP"));
        run(&first, &frame("a neighbour's IPv4 address"));
        let generation = scratch.generation();
        drop(first);

        let mut second = Datapath::open(&scratch.options()).expect("programs that load");
        assert!(second.adopted());
        assert_eq!(scratch.generation(), generation);
        assert_eq!(second.tables().dump().expect("tables"), entries(&world));
        assert_eq!(spoofed(&mut second), 1);
        let counters = second.counters().port(BLUE_B.port_id).expect("counters");
        assert_eq!(counters.to_pod.packets, 1);
        assert_eq!(run(&second, &frame("UDP")).verdict, REDIRECT);
        // The programs that run keep their jump table until they do not run any more.
        assert_eq!(Scratch::jumps(&generation), ["jump-1", "jump-2"]);
        second
            .activate()
            .expect("a flip")
            .remove()
            .expect("pins that can be removed");
        assert_eq!(Scratch::jumps(&generation), ["jump-2"]);
        assert_eq!(run(&second, &frame("a broadcast")).verdict, 2);
        let flooded = second
            .counters()
            .port(BLUE_A.port_id)
            .expect("counters")
            .flooded;
        assert_eq!(flooded.packets, 1);
    });
}

#[test]
fn another_size_makes_new_maps_that_inherit_the_counters() {
    scene(|scratch| {
        let world = World::with_pod_at(&BLUE_A, LOOPBACK);
        let mut first = Datapath::open(&scratch.options()).expect("programs that load");
        fill(&mut first, &world);
        first
            .activate()
            .expect("a flip")
            .remove()
            .expect("nothing to remove");
        for _ in 0..3 {
            run(&first, &frame("a neighbour's IPv4 address"));
        }
        run(&first, &frame("UDP"));
        let older = scratch.generation();
        drop(first);

        let mut second = Datapath::open(&scratch.with_ports(64)).expect("programs that load");
        assert!(!second.adopted());
        assert_eq!(second.tables().dump().expect("tables"), <_>::default());
        assert_eq!(spoofed(&mut second), 3);
        let counters = second.counters().port(BLUE_A.port_id).expect("counters");
        assert_eq!(
            (counters.dropped.packets, counters.from_pod.packets),
            (3, 1)
        );
        let by_network = second.counters().drops().expect("drops");
        assert!(by_network.iter().any(|drop| {
            drop.reason == DropReason::SpoofedIp && drop.network == BLUE_A.network
        }));
        fill(&mut second, &world);
        assert_eq!(
            scratch.generations().len(),
            2,
            "the older maps are there until the flip"
        );
        second
            .activate()
            .expect("a flip")
            .remove()
            .expect("pins that can be removed");
        assert!(!older.exists(), "{} is left", older.display());
        assert_ne!(scratch.generation(), older);
        assert_eq!(run(&second, &frame("UDP")).verdict, REDIRECT);
    });
}

#[test]
fn drops_between_the_load_of_another_layout_and_its_flip_are_counted() {
    scene(|scratch| {
        let world = World::with_pod_at(&BLUE_A, LOOPBACK);
        let mut first = Datapath::open(&scratch.options()).expect("programs that load");
        fill(&mut first, &world);
        let retired = first.activate().expect("a flip");
        retired.remove().expect("nothing to remove");
        let (spoof, drops) = (frame("a neighbour's IPv4 address"), scratch.drops());
        run(&first, &spoof);

        let mut second = Datapath::open(&scratch.with_ports(64)).expect("programs that load");
        fill(&mut second, &world);
        for _ in 0..2 {
            run(&first, &spoof);
        }
        let retired = second.activate().expect("a flip");
        retired.remove().expect("pins that can be removed");
        run(&second, &spoof);
        assert_eq!(spoofed(&mut second), 4);
        assert_eq!(
            scratch.drops(),
            drops,
            "state outlives the layout of the ports"
        );
    });
}

/// Agents before this state had it among the maps of the layout.
#[test]
fn drops_that_an_older_agent_has_counted_are_taken_over() {
    scene(|scratch| {
        let world = World::with_pod_at(&BLUE_A, LOOPBACK);
        let mut older = Datapath::open(&scratch.options()).expect("programs that load");
        fill(&mut older, &world);
        for _ in 0..3 {
            run(&older, &frame("a neighbour's IPv4 address"));
        }
        let generation = scratch.make_older();
        drop(older);

        let mut newer = Datapath::open(&scratch.with_ports(64)).expect("programs that load");
        assert_eq!(spoofed(&mut newer), 3);
        assert_eq!(spoofed_in_blue(&mut newer), 3);
        let retired = newer.activate().expect("a flip");
        retired.remove().expect("pins that can be removed");
        assert!(!generation.exists(), "{} is left", generation.display());
    });
}

#[test]
fn an_agent_that_died_after_the_load_has_its_counters_copied_by_the_next() {
    for half_made in [None, Some("NETWORK_DROPS")] {
        scene(|scratch| {
            drop(serve(&scratch.options(), 3));
            let older = scratch.make_older();
            // Nothing to copy is there, as for an agent that did not get so far.
            let hidden = scratch.path.join("hidden");
            fs::rename(&older, &hidden).expect("a directory of pins");
            drop(Datapath::open(&scratch.with_ports(64)).expect("programs that load"));
            fs::rename(&hidden, &older).expect("a directory of pins");
            if let Some(map) = half_made {
                fs::remove_file(scratch.drops().join(map)).expect("a pin");
            }

            let mut next = Datapath::open(&scratch.with_ports(64)).expect("programs that load");
            assert_eq!(dropped_at_a(&mut next), 3, "{half_made:?}");
            assert_eq!(spoofed(&mut next), 3, "{half_made:?}");
            assert_eq!(spoofed_in_blue(&mut next), 3, "{half_made:?}");
        });
    }
}

/// Checks that drops without reasons stay so.
///
/// Another port may have had the id before.
#[test]
fn an_agent_before_reasons_of_ports_leaves_none_to_the_next_one() {
    scene(|scratch| {
        drop(serve(&scratch.options(), 3));
        let reasons = scratch.generation().join("PORT_REASONS");
        fs::remove_file(reasons).expect("a pin");
        let mut next = Datapath::open(&scratch.with_ports(64)).expect("programs that load");
        let counters = next.counters();
        let port = counters.port(BLUE_A.port_id).expect("counters");
        assert_eq!(port.dropped.packets, 3);
        assert_eq!(counters.port_drops(BLUE_A.port_id).expect("counters"), []);
    });
}

/// An older agent takes away all layouts but its own, and knows no such state.
#[test]
fn drops_that_an_older_agent_counts_after_a_rollback_are_what_the_next_one_goes_on_with() {
    scene(|scratch| {
        drop(serve(&scratch.options(), 3));
        let older = scratch.make_older();
        let hidden = scratch.path.join("hidden");
        fs::rename(&older, &hidden).expect("a directory of pins");
        drop(serve(&scratch.with_ports(64), 5));
        fs::remove_dir_all(scratch.generation()).expect("a layout");
        fs::rename(&hidden, &older).expect("a directory of pins");

        let mut again = serve(&scratch.with_ports(64), 1);
        assert_eq!(spoofed(&mut again), 4);
        assert_eq!(spoofed_in_blue(&mut again), 4);
        assert_eq!(dropped_at_a(&mut again), 4);
    });
}

#[test]
fn counters_of_ports_come_from_the_layout_that_packets_met_last() {
    for back_to in [1024, 32] {
        scene(|scratch| {
            drop(serve(&scratch.with_ports(1024), 1));
            drop(serve(&scratch.with_ports(64), 2));
            let mut next = serve(&scratch.with_ports(back_to), 1);
            assert_eq!(dropped_at_a(&mut next), 4, "{back_to} ports");
            assert_eq!(spoofed(&mut next), 4, "{back_to} ports");
        });
    }
}

#[test]
fn an_agent_that_died_after_the_flip_keeps_what_was_counted_since() {
    scene(|scratch| {
        drop(serve(&scratch.options(), 2));
        let older = scratch.make_older();
        drop(serve(&scratch.with_ports(64), 3));
        assert!(older.exists(), "it died before it removed that");
        let mut next = serve(&scratch.with_ports(64), 1);
        assert_eq!(dropped_at_a(&mut next), 6);
        assert_eq!(spoofed(&mut next), 6);
        assert_eq!(spoofed_in_blue(&mut next), 6);
    });
}

#[test]
fn a_map_or_a_program_of_others_among_the_drops_is_refused_by_its_path() {
    scene(|scratch| {
        drop(Datapath::open(&scratch.options()).expect("programs that load"));
        let place = scratch.drops().join("NETWORK_DROPS");
        let (map, program) = (
            scratch.generation().join("FDB"),
            scratch.path.join("root/d_pod"),
        );
        for foreign in [map, program] {
            fs::remove_file(&place).expect("a pin");
            fs::rename(&foreign, &place).expect("a pin");
            match Datapath::open(&scratch.options()) {
                Err(DatapathError::ForeignMap { path }) => assert_eq!(path, place),
                other => unreachable!("{} was opened: {other:?}", place.display()),
            }
        }
    });
}

/// Drops of maps with another shape are copied, and those maps go with the flip.
#[test]
fn state_of_another_layout_goes_with_the_flip() {
    scene(|scratch| {
        drop(Datapath::open(&scratch.options()).expect("programs that load"));
        let own = scratch.drops();
        let (other, foreign) = (
            scratch.path.join("state-drops-0123456789abcdef"),
            scratch.path.join("state-later-0123456789abcdef"),
        );
        fs::rename(&own, &other).expect("a directory of pins");
        fs::create_dir(&foreign).expect("a directory of a later agent");

        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        assert!(own.exists() && other.exists());
        let retired = datapath.activate().expect("a flip");
        retired.remove().expect("pins that can be removed");
        assert!(own.exists() && !other.exists());
        assert!(foreign.exists(), "this agent does not know what it is");
    });
}

#[test]
fn a_pinned_map_of_another_shape_is_refused_by_its_path() {
    scene(|scratch| {
        drop(Datapath::open(&scratch.options()).expect("programs that load"));
        let generation = scratch.generation();
        for (foreign, place) in [
            ("FDB", generation.join("PORTS")),
            ("EVENT_TIMES", scratch.path.join("root").join("ROOT_MISSES")),
        ] {
            fs::remove_file(&place).expect("a pin");
            fs::rename(generation.join(foreign), &place).expect("a pin");
            match Datapath::open(&scratch.options()) {
                Err(DatapathError::ForeignMap { path }) => assert_eq!(path, place),
                other => unreachable!("{} was opened: {other:?}", place.display()),
            }
            fs::remove_file(&place).expect("a pin");
        }
        assert!(
            Datapath::open(&scratch.options()).is_ok(),
            "what is gone is made anew"
        );
    });
}

#[test]
fn a_pinned_program_in_the_place_of_a_map_is_refused_by_its_path() {
    scene(|scratch| {
        drop(Datapath::open(&scratch.options()).expect("programs that load"));
        let place = scratch.generation().join("PORTS");
        fs::remove_file(&place).expect("a pin");
        fs::rename(scratch.path.join("root").join("d_pod"), &place).expect("a pin");
        match Datapath::open(&scratch.options()) {
            Err(DatapathError::ForeignMap { path }) => assert_eq!(path, place),
            other => unreachable!("a program was opened as a map: {other:?}"),
        }
    });
}

#[test]
fn a_full_table_says_which_and_how_large_and_still_takes_what_it_has() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.with_ports(2)).expect("programs that load");
        let ports = &mut datapath.tables().ports;
        ports.insert(11, BLUE_A.port()).expect("room");
        ports.insert(12, BLUE_B.port()).expect("room");
        match ports.insert(21, RED_A.port()) {
            Err(
                error @ DatapathError::MapFull {
                    name: "PORTS",
                    max_entries: 2,
                },
            ) => {
                assert!(error.to_string().contains("--max-ports"), "{error}");
            }
            other => unreachable!("a third port of two: {other:?}"),
        }
        ports
            .insert(12, RED_A.port())
            .expect("the place of an entry is its own");
        ports.remove(&11).expect("an entry");
        ports.remove(&11).expect("what is gone can be removed");
        ports.insert(21, RED_A.port()).expect("room again");
        assert_eq!(ports.get(&12).expect("a table"), Some(RED_A.port()));
        assert_eq!(ports.get(&11).expect("a table"), None);
    });
}

#[test]
fn applying_a_world_leaves_that_world_and_nothing_else() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        let worlds = [World::new(), World::with_pod_at(&RED_A, 99), World::new()];
        for world in &worlds {
            fill(&mut datapath, world);
            assert_eq!(datapath.tables().dump().expect("tables"), entries(world));
        }
        let all = datapath.tables().dump().expect("tables");
        datapath
            .tables()
            .apply(&all, &<_>::default())
            .expect("tables");
        assert_eq!(datapath.tables().dump().expect("tables"), <_>::default());
    });
}

#[test]
fn the_maps_in_the_kernel_have_the_published_layout() {
    scene(|scratch| {
        drop(Datapath::open(&scratch.options()).expect("programs that load"));
        let mut count = 0;
        for line in PUBLISHED.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let [
                "map",
                map,
                kind,
                "key",
                key,
                "value",
                value,
                "entries",
                entries,
            ] = words[..]
            else {
                continue;
            };
            let path = match map {
                "ROOT" | "ROOT_XDP" | "ROOT_MISSES" => scratch.path.join("root").join(map),
                "JUMP" => scratch.generation().join("jump-1"),
                "DROPS" | "NETWORK_DROPS" => scratch.drops().join(map),
                "ATOMS" | "BLOCKS" | "CLASSES" | "SETS" | "ROWS" => {
                    scratch.state("guards").join(map)
                }
                "FLOWS" | "FLOW_SECRET" | "FRAGMENTS" | "FLOW_BUDGETS" => {
                    scratch.state("connections").join(map)
                }
                "SERVICES" | "BACKENDS" | "MEMBERS" | "AFFINITIES" | "TRANSLATIONS"
                | "SERVICE_SECRET" | "SERVICE_BUDGETS" => scratch.state("services").join(map),
                _ => scratch.generation().join(map),
            };
            let info = MapData::from_pin(&path)
                .and_then(|map| map.info())
                .expect("a pinned map");
            let sizes = [info.key_size(), info.value_size(), info.max_entries()];
            assert_eq!(
                sizes.map(|size| size.to_string()),
                [key, value, entries],
                "{map}"
            );
            let number = match kind {
                "hash" => 1,
                "array" => 2,
                "prog_array" => 3,
                "percpu_hash" => 5,
                "lru_hash" => 9,
                "percpu_array" => 6,
                "lpm_trie" => 11,
                "ringbuf" => 27,
                other => unreachable!("{other} is no map type of ours"),
            };
            assert_eq!(
                info.map_type().map(|kind| kind as u32).ok(),
                Some(number),
                "{map}"
            );
            count += 1;
        }
        let pins = scratch.pins().contents().expect("pins");
        let dispatcher = |path: &Path| name(path) == Dispatcher::Pod.name();
        let maps = pins.iter().filter(|path| !dispatcher(path)).count();
        assert_eq!(maps, count, "{pins:?}");
    });
}
