//! Test that a connection keeps its place, and that a place is nobody else's.
//!
//! The secret is one that puts all connections of a test in one bucket.

use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use agent_common::addr::Ip16;
use agent_common::cases::{BLUE_A, BLUE_B, BLUE_C, Pod, World, build};
use agent_common::drop::DropReason;
use agent_common::guard::{
    FLOW_ANSWERED, FLOW_HIGH_OPENED, FLOW_TCP, FlowBucket, FlowKey, FlowPlace, FlowWords, Guard,
    ROW_WORDS, Secret,
};
use agent_common::port::PORT_GUARD;
use agent_common::seal::{SealedGuard, Stored as _};
use aya::maps::{Array, MapData};
use datapath::connections;
use datapath::{Datapath, GuardMaps};
use zerocopy::FromZeros as _;

use super::scratch::{
    LOOPBACK, REDIRECT, REPEAT, SHOT, Scratch, allow, fill, run, run_meanwhile, scene,
};

const GENERATION: u32 = 9;
/// Sends TCP to all, and else nothing but answers.
const SETS: Guard = Guard {
    generation: GENERATION,
    egress: 1,
    ingress: 0,
    stamp: 77,
    flags: 0,
};
/// Of a key only its ports count.
const SECRET: [[u64; 8]; 2] = {
    let mut secret = [[0; 8]; 2];
    secret[1][2] = 0x9e37_79b9_7f4a_7c15;
    secret
};
/// Ports of the connection that the other end has opened.
///
/// The guarded pod's is the first.
const KEPT: (u16, u16) = (80, 40_000);
/// Ports of a datagram that belongs to none.
const OTHER: (u16, u16) = (80, 40_001);
/// Times that frames are run in a row.
const ROUNDS: usize = 10;
/// Runs of a frame in a row that end within a tick on slow machines, too.
const SHORT: u32 = 20_000;
/// Least connections that are opened meanwhile, several bucketfuls.
const OPENED: usize = 40;
/// Most tries to have all of them whole.
const TRIES: usize = 60;

/// Opens an array of the connections, whose values have `N` words.
fn array<const N: usize>(scratch: &Scratch, name: &str) -> Array<MapData, [u64; N]> {
    Scratch::array(&scratch.state("connections"), name)
}

fn place(key: &FlowKey) -> FlowPlace {
    let [low, high] = &SECRET;
    FlowPlace::of(&Secret { low, high }, key)
}

/// Ports of connections that share the bucket of [`KEPT`], but for those.
fn neighbours() -> impl Iterator<Item = (u16, u16)> {
    let bucket = place(&key(KEPT, 17)).bucket();
    let all = (1..=u16::MAX).flat_map(|here| (1..=u16::MAX).map(move |there| (here, there)));
    all.filter(move |ports| *ports != KEPT && place(&key(*ports, 6)).bucket() == bucket)
}

fn key((here, there): (u16, u16), protocol: u8) -> FlowKey {
    FlowKey {
        network: BLUE_A.network,
        low: Ip16::from_v4(BLUE_A.ip4.octets()),
        high: Ip16::from_v4(BLUE_B.ip4.octets()),
        low_port: here,
        high_port: there,
        protocol,
        reserved: [0; 3],
    }
}

/// Writes the connection that the other end has opened, answered.
fn keep(scratch: &Scratch) {
    let key = key(KEPT, 17);
    let place = place(&key);
    let words = FlowWords {
        seen: connections::now(),
        flags: FLOW_HIGH_OPENED | FLOW_ANSWERED,
        egress: 0,
        ingress: 0,
    };
    let mut bucket = FlowBucket::new_zeroed();
    bucket.states[5] = place.state(&words);
    bucket.entries[5].key = key;
    bucket.entries[5].stamps = place.stamps(&words);
    let mut flows = array(scratch, "FLOWS");
    let words: [u64; 64] = zerocopy::transmute!(bucket);
    flows.set(place.bucket(), words, 0).expect("a bucket");
}

/// A datagram of the guarded pod, from its port to that of another one.
fn datagram(to: &Pod, ports: (u16, u16)) -> Vec<u8> {
    build::Ipv4::new(BLUE_A.ip4, to.ip4).udp(to.mac, BLUE_A.mac, ports)
}

/// A segment by which the guarded pod opens a connection.
fn opening((here, there): (u16, u16)) -> Vec<u8> {
    let [h0, h1] = here.to_be_bytes();
    let [p0, p1] = there.to_be_bytes();
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
    let mut words = [0; ROW_WORDS];
    words[..8].fill(u32::MAX);
    allow(&mut maps, &SETS, words);
    maps.guards.insert(number, SETS).expect("an entry");
    let secret: [u64; 16] = zerocopy::transmute!(SECRET);
    array(scratch, "FLOW_SECRET")
        .set(0, secret, 0)
        .expect("a secret");
    keep(scratch);
    assert_eq!(run(&datapath, &datagram(&BLUE_B, KEPT)).verdict, REDIRECT);
    assert_eq!(run(&datapath, &datagram(&BLUE_B, OTHER)).verdict, SHOT);
    // By this secret it has the same place and the same tag.
    assert_eq!(run(&datapath, &datagram(&BLUE_C, KEPT)).verdict, SHOT);
    (datapath, maps)
}

fn denied(datapath: &mut Datapath) -> u64 {
    let drops = datapath.counters().total_drops(DropReason::PolicyEgress);
    drops.expect("drops").packets
}

/// Opens connections, one after the other, until `done`; returns their number.
fn open_until(
    done: &AtomicBool,
    scratch: &Scratch,
    datapath: &Datapath,
    connections: &[(u16, u16)],
) -> usize {
    let mut budgets: Array<MapData, [u64; 1]> = array(scratch, "FLOW_BUDGETS");
    // The first half is by port.
    let budget = u32::from(BLUE_A.port().port_id) % (budgets.len() / 2);
    let mut opened = 0;
    let more = |_: &_| !done.load(Ordering::Relaxed);
    for ports in connections.iter().cycle().take_while(more) {
        if usize::is_multiple_of(opened, 1000) {
            budgets.set(budget, [0], 0).expect("a budget");
        }
        assert_eq!(run(datapath, &opening(*ports)).verdict, REDIRECT);
        opened += 1;
    }
    opened
}

/// Waits until a tick begins, and returns it.
fn next_tick() -> u32 {
    let last = connections::now();
    while connections::now() == last {
        thread::sleep(Duration::from_millis(10));
    }
    connections::now()
}

#[test]
fn what_one_end_opens_takes_no_place_of_what_both_ends_use() {
    scene(|scratch| {
        let (datapath, _maps) = guarded(scratch);
        // Six in a tick: there is room for what is in use. After three of them the connection is idle.
        let mut ports = neighbours();
        for _ in 0..6 {
            for ports in ports.by_ref().take(6) {
                assert_eq!(run(&datapath, &opening(ports)).verdict, REDIRECT);
            }
            next_tick();
        }
        let again = Datapath::open(&scratch.options())
            .expect("programs that load")
            .guards();
        let mut all = Vec::new();
        let each = |key: FlowKey, _| all.push(key);
        again.expect("maps").connections.each(each).expect("a look");
        assert!(all.len() > 6, "{all:?}");
        assert!(all.contains(&key(KEPT, 17)));
        assert_eq!(run(&datapath, &datagram(&BLUE_B, KEPT)).verdict, REDIRECT);
        assert_eq!(run(&datapath, &datagram(&BLUE_B, OTHER)).verdict, SHOT);
    });
}

#[test]
fn the_agent_finds_connections_where_programs_keep_them() {
    scene(|scratch| {
        let (datapath, maps) = guarded(scratch);
        let ports: Vec<_> = neighbours().take(2).collect();
        let look = |maps: &GuardMaps, ports, protocol| {
            let found = maps.connections.get(&key(ports, protocol));
            found.expect("a look").map(|it| it.flags)
        };
        for ports in &ports {
            assert_eq!(run(&datapath, &opening(*ports)).verdict, REDIRECT);
        }
        // By the secret that the agent drew, none of them is one.
        assert_eq!(look(&maps, KEPT, 17), None);
        drop(maps);
        let mut again = Datapath::open(&scratch.options()).expect("programs that load");
        let maps = again.guards().expect("maps");
        let answered = FLOW_HIGH_OPENED | FLOW_ANSWERED;
        assert_eq!(look(&maps, KEPT, 17), Some(answered));
        assert_eq!(look(&maps, OTHER, 17), None);
        for ports in ports {
            assert_eq!(look(&maps, ports, 6), Some(FLOW_TCP));
            assert_eq!(look(&maps, ports, 17), None);
        }
    });
}

/// One processor fills the bucket all the time, and another one looks at it.
///
/// What opens eight connections of a bucket in a tick takes the place of one that was not seen in it. So this one has a
/// tick for its packets, and what began in one tick and ended in another proves nothing about it.
#[test]
fn a_connection_goes_on_and_no_other_one_does_while_its_bucket_changes() {
    scene(|scratch| {
        let (mut datapath, _maps) = guarded(scratch);
        // One handle runs one frame at a time.
        let again = Datapath::open(&scratch.options()).expect("programs that load");
        again.serve_guards().expect("programs that load");
        let others: Vec<_> = neighbours().take(100).collect();
        let (kept, other) = (datagram(&BLUE_B, KEPT), datagram(&BLUE_B, OTHER));
        let mut denied_of = |frame| {
            let before = denied(&mut datapath);
            let mut opened = 0;
            run_meanwhile(&datapath, SHORT, iter::once(frame), |done| {
                opened = open_until(done, scratch, &again, &others);
            });
            (denied(&mut datapath) - before, opened)
        };
        let mut whole = 0;
        for _ in 0..TRIES {
            let tick = next_tick();
            keep(scratch);
            let (denied, opened) = denied_of(&kept);
            if connections::now() == tick && opened > OPENED {
                assert_eq!(denied, 0);
                whole += 1;
            }
            let (denied, _) = denied_of(&other);
            assert_eq!(denied, u64::from(SHORT));
            if whole == ROUNDS {
                return;
            }
        }
        unreachable!("{whole} of {TRIES} tries lay within a tick");
    });
}

/// Sets of two ports take each other's memory all the time.
#[test]
fn a_port_is_judged_by_its_own_sets_while_those_of_all_ports_are_written() {
    scene(|scratch| {
        let (mut datapath, _maps) = guarded(scratch);
        let number = u32::from(BLUE_A.port().port_id);
        let mut stamps = Scratch::array::<2>(&scratch.generation(), "STAMPS");
        // Of a stamp that is torn nothing is believed.
        stamps.set(number, [1, 1], 0).expect("a stamp");
        let mut sets = scratch.map::<4, 4>("GUARDS");
        // It lets nothing pass.
        let closed = Guard { egress: 2, ..SETS };
        let before = denied(&mut datapath);
        let frame = opening(OTHER);
        run_meanwhile(&datapath, REPEAT, iter::repeat_n(&frame, ROUNDS), |done| {
            while !done.load(Ordering::Relaxed) {
                for (port, guard) in [(number, SETS), (number + 1, closed)] {
                    let stored = SealedGuard::store(&port, guard);
                    sets.insert(port.to_ne_bytes(), stored, 0).expect("room");
                }
            }
        });
        assert_eq!(denied(&mut datapath), before);
    });
}
