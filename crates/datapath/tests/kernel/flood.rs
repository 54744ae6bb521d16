//! Test the largest flood: all chunks are copied, within the kernel's tail calls.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use agent_common::addr::{Ip16, MacAddr};
use agent_common::cases::{BLUE, BLUE_A, World, build};
use agent_common::flood::{FLOOD_CHUNK, FLOOD_CHUNKS, FloodKey, FloodPorts};
use agent_common::port::PORT_REPLICATE;
use agent_common::vtep::{FloodVteps, VTEP_CHUNK, VTEP_CHUNKS, Vtep};
use datapath::{Datapath, Dispatcher, Entries};
use netdev::{Connection, VethSpec};

use super::scratch::{LOOPBACK, SHOT, entries, run, scene};

/// Number of the node that stands for all others.
const THERE: u16 = 5;

/// A link that is up at both ends.
fn link(name: &str, peer: &str) -> u32 {
    let mut connection = Connection::open().expect("a socket");
    let spec = VethSpec::new(name, peer);
    let pair = connection.create_veth(&spec).expect("a link");
    // The host end last: the one that goes up first is given its queue later, when the kernel gets to it, and
    // drops what is sent before.
    for ifindex in [pair.peer_ifindex, pair.host_ifindex] {
        connection.set_up(ifindex).expect("it goes up");
    }
    pair.host_ifindex
}

/// Frames that have left by an interface of this namespace.
fn sent(name: &str) -> usize {
    let text = fs::read_to_string("/proc/thread-self/net/dev").expect("counters of interfaces");
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))
        .expect("the interface");
    // Eight numbers of what was received are in front, and the bytes.
    let packets = line.split_whitespace().nth(9).expect("ten numbers");
    packets.parse().expect("a number")
}

/// The first and the last port of each chunk are this interface.
fn ports(ifindex: u32) -> impl Iterator<Item = (FloodKey, FloodPorts)> {
    (0..FLOOD_CHUNKS).map(move |chunk| {
        let mut ifindexes = [0; FLOOD_CHUNK];
        (ifindexes[0], ifindexes[FLOOD_CHUNK - 1]) = (ifindex, ifindex);
        let total = if chunk == 0 { 2 * FLOOD_CHUNKS } else { 0 };
        let ports = FloodPorts {
            count: u16::try_from(FLOOD_CHUNK).expect("a count"),
            total: u16::try_from(total).expect("a count"),
            network: BLUE,
            ifindexes,
            network_again: BLUE,
        };
        let network = BLUE;
        (FloodKey { network, chunk }, ports)
    })
}

/// The first and the last node of each chunk.
fn nodes() -> impl Iterator<Item = (FloodKey, FloodVteps)> {
    (0..VTEP_CHUNKS).map(|chunk| {
        let mut vteps = [0; VTEP_CHUNK];
        (vteps[0], vteps[VTEP_CHUNK - 1]) = (THERE, THERE);
        let total = if chunk == 0 { 2 * VTEP_CHUNKS } else { 0 };
        let nodes = FloodVteps {
            count: u16::try_from(VTEP_CHUNK).expect("a count"),
            total: u16::try_from(total).expect("a count"),
            vteps,
        };
        let network = BLUE;
        (FloodKey { network, chunk }, nodes)
    })
}

#[test]
fn a_flood_reaches_the_last_port_of_the_last_chunk_behind_the_last_node() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        let hook = datapath.hook();
        hook.program(Dispatcher::Overlay)
            .expect("programs that load");
        let (here, there) = (link("here", "here-peer"), link("there", "there-peer"));
        let mut world = World::with_pod_at(&BLUE_A, LOOPBACK);
        let sender = world.ports.get_mut(&LOOPBACK).expect("the sender's port");
        sender.flags |= PORT_REPLICATE;
        world.flood = ports(here).collect();
        let wanted = Entries {
            flood_vteps: nodes().collect(),
            ..entries(&world)
        };
        let tables = datapath.tables();
        tables
            .apply(&Entries::default(), &wanted)
            .expect("tables with room");
        let vtep = Vtep::new(&Ip16::from_v4([192, 0, 2, 7]), there);
        tables.vteps.set(THERE.into(), vtep).expect("set");
        let frame = build::ethernet(MacAddr::BROADCAST, BLUE_A.mac, 0x88b5, &[0; 46]);
        // The links speak for themselves too: neighbour discovery of their own.
        let before = (sent("here"), sent("there"));
        assert_eq!(run(&datapath, &frame).verdict, SHOT);
        let ports = sent("here") - before.0;
        let nodes = sent("there") - before.1;
        let per_chunk = |chunks: u32| usize::try_from(2 * chunks).expect("a count");
        assert!(
            ports >= per_chunk(FLOOD_CHUNKS) && nodes >= per_chunk(VTEP_CHUNKS),
            "{ports} copies for ports, {nodes} for nodes"
        );
        let flooded = datapath.counters().port(BLUE_A.port_id).expect("counters");
        assert_eq!(flooded.flooded.packets, 1);
    });
}

/// As the kernel begins to write it: at its first word, or at its last one.
#[test]
fn a_list_that_becomes_another_network_s_gets_no_copy() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        let here = link("here", "here-peer");
        let frame = build::ethernet(MacAddr::BROADCAST, BLUE_A.mac, 0x88b5, &[0; 46]);
        for (network, network_again) in [(BLUE + 1, BLUE), (BLUE, BLUE + 1)] {
            let mut world = World::with_pod_at(&BLUE_A, LOOPBACK);
            let begun = |list| FloodPorts {
                network,
                network_again,
                ..list
            };
            world.flood = ports(here).map(|(key, list)| (key, begun(list))).collect();
            let tables = datapath.tables();
            let old = tables.dump().expect("tables that can be read");
            tables
                .apply(&old, &entries(&world))
                .expect("tables with room");
            let before = sent("here");
            for _ in 0..100 {
                run(&datapath, &frame);
            }
            // The link speaks for itself too.
            let copies = sent("here") - before;
            assert!(copies < 100, "{copies} copies");
        }
    });
}

/// Its memory is the other network's with the next write, while it is read.
#[test]
fn a_list_that_is_replaced_sends_no_copy_to_another_network_s_ports() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        let (here, there) = (link("here", "here-peer"), link("there", "there-peer"));
        let mut world = World::with_pod_at(&BLUE_A, LOOPBACK);
        world.flood = ports(here).collect();
        let tables = datapath.tables();
        tables
            .apply(&Entries::default(), &entries(&world))
            .expect("tables with room");
        let frame = build::ethernet(MacAddr::BROADCAST, BLUE_A.mac, 0x88b5, &[0; 46]);
        let (before, done) = (sent("there"), AtomicBool::new(false));
        let mut lists = scratch.map::<8, 64>("FLOOD");
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for (network, ifindex) in [(BLUE, here), (BLUE + 1, there)] {
                        let (key, list) = ports(ifindex).next().expect("a list");
                        let key = FloodKey { network, ..key };
                        let list = FloodPorts {
                            network,
                            ifindexes: [ifindex; FLOOD_CHUNK],
                            network_again: network,
                            ..list
                        };
                        let key: [u8; 8] = zerocopy::transmute!(key);
                        let list: [u64; 64] = zerocopy::transmute!(list);
                        lists.insert(key, list, 0).expect("room");
                    }
                }
            });
            for _ in 0..2000 {
                run(&datapath, &frame);
            }
            done.store(true, Ordering::Relaxed);
        });
        // The link speaks for itself too.
        let copies = sent("there") - before;
        assert!(copies < 20, "{copies} copies");
    });
}
