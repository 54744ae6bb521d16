//! Test that a connection keeps its place, and that a place is nobody else's.
//!
//! The secret is one that puts all connections of a test in one bucket.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use agent_common::addr::Ip16;
use agent_common::cases::{BLUE_A, BLUE_B, BLUE_C, Pod, World, build};
use agent_common::drop::DropReason;
use agent_common::guard::{
    CLASSES, Classes, FLOW_ANSWERED, FLOW_HIGH_OPENED, FlowBucket, FlowKey, FlowWords, Guard,
    ROW_WORDS, Row, RowKey, Secret, SetKey, UNKNOWN_ATOM,
};
use agent_common::port::PORT_GUARD;
use aya::maps::{Array, HashMap, Map, MapData};
use datapath::connections::{self, Connections};
use datapath::{Datapath, GuardMaps, Trial};
use zerocopy::FromZeros as _;

use super::scratch::{LOOPBACK, REDIRECT, SHOT, Scratch, fill, run, scene};

const GENERATION: u32 = 9;
/// Sends TCP to all, and else nothing but answers.
const SETS: Guard = Guard {
    generation: GENERATION,
    egress: 1,
    ingress: 0,
    stamp: 77,
    flags: 0,
};
/// Of a key only its ports count, for the tag.
///
/// They do not count for the bucket: the lower end's are below 256.
const SECRET: [[u64; 8]; 2] = {
    let mut secret = [[0; 8]; 2];
    secret[1][2] = 1 << 26;
    secret
};
const BUCKET: u32 = 0;
/// The port of the guarded pod in all connections.
const HERE: u16 = 80;
/// The connection that the other end has opened.
const KEPT: u16 = 40_000;
/// Runs of a frame in a row, and how often.
const REPEAT: u32 = 100_000;
const ROUNDS: usize = 10;
/// Value of `GUARDS`.
type Sets = [u8; size_of::<Guard>()];

/// A value of `N` words in an array of the guards.
fn array<const N: usize>(scratch: &Scratch, name: &str) -> Array<MapData, [u64; N]> {
    let pin = MapData::from_pin(scratch.state("guards").join(name)).expect("a pin");
    Array::try_from(Map::Array(pin)).expect("an array")
}

fn bucket(scratch: &Scratch) -> FlowBucket {
    let words: [u64; 64] = array(scratch, "FLOWS").get(&BUCKET, 0).expect("a bucket");
    zerocopy::transmute!(words)
}

fn key(port: u16, protocol: u8) -> FlowKey {
    FlowKey {
        network: BLUE_A.network,
        low: Ip16::from_v4(BLUE_A.ip4.octets()),
        high: Ip16::from_v4(BLUE_B.ip4.octets()),
        low_port: HERE,
        high_port: port,
        protocol,
        reserved: [0; 3],
    }
}

/// Writes the connection that the other end has opened, answered, as old as this.
fn keep(scratch: &Scratch, age: u32) {
    let [low, high] = &SECRET;
    let key = key(KEPT, 17);
    let sum = Secret { low, high }.sum(&key);
    assert_eq!(sum.bucket(), BUCKET);
    let words = FlowWords {
        seen: connections::now() - age,
        flags: FLOW_HIGH_OPENED | FLOW_ANSWERED,
        egress: 0,
        ingress: 0,
    };
    let mut bucket = FlowBucket::new_zeroed();
    bucket.states[5] = sum.state(&words);
    bucket.entries[5].key = key;
    bucket.entries[5].stamps = sum.stamps(&words);
    let mut flows = array(scratch, "FLOWS");
    let words: [u64; 64] = zerocopy::transmute!(bucket);
    flows.set(BUCKET, words, 0).expect("a bucket");
}

/// A datagram of the guarded pod to a port of another one.
fn datagram(to: &Pod, port: u16) -> Vec<u8> {
    build::Ipv4::new(BLUE_A.ip4, to.ip4).udp(to.mac, BLUE_A.mac, (HERE, port))
}

/// A segment by which the guarded pod opens a connection.
fn opening(port: u16) -> Vec<u8> {
    let [h0, h1] = HERE.to_be_bytes();
    let [p0, p1] = port.to_be_bytes();
    let ports = [h0, h1, p0, p1];
    let segment = [&ports[..], &build::tcp_syn()[4..]].concat();
    let ip = build::Ipv4::new(BLUE_A.ip4, BLUE_B.ip4);
    ip.frame(BLUE_B.mac, BLUE_A.mac, build::IPPROTO_TCP, &segment)
}

/// A guarded pod, with the connection that another one has opened to it.
fn guarded(scratch: &Scratch) -> (Datapath, GuardMaps) {
    let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
    let mut maps = datapath.guards().expect("maps");
    datapath.serve_guards().expect("programs that load");
    let mut world = World::with_pod_at(&BLUE_A, LOOPBACK);
    let port = world.ports.get_mut(&LOOPBACK).expect("the sender's");
    port.flags |= PORT_GUARD;
    let number = u32::from(port.port_id);
    fill(&mut datapath, &world);
    let classes = Classes {
        counts: [1, 1, 1, 0],
        starts: [0; 3 * CLASSES],
    };
    maps.classes.insert(GENERATION, classes).expect("an entry");
    let mut words = [0; ROW_WORDS];
    words[..8].fill(u32::MAX);
    let row = RowKey {
        generation: GENERATION,
        row: 1,
    };
    maps.rows.insert(row, Row { words }).expect("an entry");
    let set = SetKey {
        generation: GENERATION,
        set: SETS.egress,
        atom: UNKNOWN_ATOM,
    };
    maps.sets.insert(set, 1).expect("an entry");
    maps.guards.insert(number, SETS).expect("an entry");
    let secret: [u64; 16] = zerocopy::transmute!(SECRET);
    array(scratch, "FLOW_SECRET")
        .set(0, secret, 0)
        .expect("a secret");
    keep(scratch, 0);
    assert_eq!(run(&datapath, &datagram(&BLUE_B, KEPT)).verdict, REDIRECT);
    assert_eq!(run(&datapath, &datagram(&BLUE_B, KEPT + 1)).verdict, SHOT);
    // By this secret it has the same place and the same tag.
    assert_eq!(run(&datapath, &datagram(&BLUE_C, KEPT)).verdict, SHOT);
    (datapath, maps)
}

fn denied(datapath: &mut Datapath) -> u64 {
    let drops = datapath.counters().total_drops(DropReason::PolicyEgress);
    drops.expect("drops").packets
}

/// Opens one connection after the other until it is `enough`.
fn open_until(scratch: &Scratch, datapath: &Datapath, enough: impl Fn(u16) -> bool) {
    let mut budgets: Array<MapData, [u64; 1]> = array(scratch, "FLOW_BUDGETS");
    for port in (1..=u16::MAX).cycle() {
        if enough(port) {
            return;
        }
        if port.is_multiple_of(1000) {
            for bucket in 0..budgets.len() {
                budgets.set(bucket, [0], 0).expect("a budget");
            }
        }
        assert_eq!(run(datapath, &opening(port)).verdict, REDIRECT, "{port}");
    }
}

#[test]
fn what_one_end_opens_takes_no_place_of_what_both_ends_keep() {
    scene(|scratch| {
        let (datapath, _maps) = guarded(scratch);
        keep(scratch, 10);
        open_until(scratch, &datapath, |port| port > 500);
        assert!(bucket(scratch).states.iter().all(|state| *state != 0));
        assert_eq!(run(&datapath, &datagram(&BLUE_B, KEPT)).verdict, REDIRECT);
        assert_eq!(run(&datapath, &datagram(&BLUE_B, KEPT + 1)).verdict, SHOT);
    });
}

#[test]
fn the_last_connections_of_a_bucket_are_in_it() {
    scene(|scratch| {
        let (datapath, maps) = guarded(scratch);
        let connections: &Connections = &maps.connections;
        open_until(scratch, &datapath, |port| port > 20);
        // By the secret that the agent had when it opened the map, none of them is one.
        assert_eq!(connections.get(&key(KEPT, 17)).expect("a look"), None);
        drop(maps);
        let mut again = Datapath::open(&scratch.options()).expect("programs that load");
        let maps = again.guards().expect("maps");
        let found = maps.connections.get(&key(KEPT, 17)).expect("a look");
        assert_eq!(
            found.map(|it| it.flags),
            Some(FLOW_HIGH_OPENED | FLOW_ANSWERED)
        );
        assert!(maps.connections.get(&key(20, 6)).expect("a look").is_some());
        assert_eq!(maps.connections.get(&key(1, 6)).expect("a look"), None);
        let mut all = Vec::new();
        maps.connections
            .each(|key, words| all.push((key, words)))
            .expect("a look");
        assert_eq!(all.len(), 8);
        assert!(all.contains(&(key(KEPT, 17), found.expect("an entry"))));
    });
}

/// One processor fills the bucket all the time, and another one looks at it.
#[test]
fn a_connection_goes_on_and_no_other_one_does_while_its_bucket_changes() {
    scene(|scratch| {
        let (mut datapath, _maps) = guarded(scratch);
        let before = denied(&mut datapath);
        let (kept, other) = (datagram(&BLUE_B, KEPT), datagram(&BLUE_B, KEPT + 1));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let datapath = &datapath;
            scope.spawn(|| open_until(scratch, datapath, |_| done.load(Ordering::Relaxed)));
            for frame in [&kept, &other].into_iter().cycle().take(2 * ROUNDS) {
                let trial = Trial {
                    frame,
                    repeat: REPEAT,
                };
                datapath.try_frame(&trial).expect("a frame that is run");
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(
            denied(&mut datapath) - before,
            u64::from(REPEAT) * ROUNDS as u64
        );
    });
}

/// Sets of two ports take each other's memory all the time.
#[test]
fn a_port_is_judged_by_its_own_sets_while_those_of_all_ports_are_written() {
    scene(|scratch| {
        let (mut datapath, _maps) = guarded(scratch);
        let number = BLUE_A.port().port_id.into();
        let pin = |name: &str| MapData::from_pin(scratch.generation().join(name)).expect("a pin");
        let stamps = Array::try_from(Map::Array(pin("STAMPS")));
        let mut stamps: Array<MapData, [u64; 2]> = stamps.expect("an array");
        // Of a stamp that is torn nothing is believed.
        stamps.set(number, [1, 1], 0).expect("a stamp");
        let sets = HashMap::try_from(Map::HashMap(pin("GUARDS")));
        let mut sets: HashMap<MapData, u32, Sets> = sets.expect("a map");
        // It lets nothing pass.
        let closed = Guard { egress: 2, ..SETS };
        let before = denied(&mut datapath);
        let frame = opening(40_001);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for (port, guard) in [(number, SETS), (number + 1, closed)] {
                        let guard: Sets = zerocopy::transmute!(guard);
                        sets.insert(port, guard, 0).expect("room");
                    }
                }
            });
            for _ in 0..ROUNDS {
                let trial = Trial {
                    frame: &frame,
                    repeat: REPEAT,
                };
                datapath.try_frame(&trial).expect("a frame that is run");
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(denied(&mut datapath), before);
    });
}
