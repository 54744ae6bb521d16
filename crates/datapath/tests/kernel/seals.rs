//! Test that programs believe no value of another key.
//!
//! The kernel gives the memory of an entry that was replaced to the next one that is written, while programs may
//! look at it still.

use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_common::addr::{Ip16, MacAddr};
use agent_common::cases::{
    self, BLUE_A, BLUE_B, BLUE_C, Case, GREEN_B, Pod, RED_A, TEAL_A, World, build,
};
use agent_common::drop::DropReason;
use agent_common::endpoint::{EndpointKey, FdbKey};
use agent_common::policy::Decision;
use agent_common::seal::{SealedPort, SealedWire, Stored as _};
use agent_common::uplink::{UPLINK_WIRES, Uplink};
use agent_common::wire::WireKey;
use datapath::{Datapath, Trial};

use super::scratch::{
    LOOPBACK, REDIRECT, REPEAT, SHOT, Scratch, case, fill, run, run_meanwhile, scene,
};

/// `TC_ACT_UNSPEC` of `linux/pkt_cls.h`: the node's own.
const LEFT: u32 = u32::MAX;
/// How often a frame is run in a row.
const ROUNDS: usize = 20;

fn drops(datapath: &mut Datapath) -> Vec<(DropReason, u64)> {
    let counters = datapath.counters();
    let count = |reason: &DropReason| {
        (
            *reason,
            counters.total_drops(*reason).expect("drops").packets,
        )
    };
    let all = DropReason::ALL.iter().map(count);
    all.filter(|(_, packets)| *packets != 0).collect()
}

/// Gives an entry the value of another one, and runs a frame.
fn dropped_with<const K: usize, const N: usize>(
    map: &str,
    [one, other]: [[u8; K]; 2],
    case: &Case,
    reason: DropReason,
) {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        fill(&mut datapath, &World::with_pod_at(case.sender, LOOPBACK));
        assert_eq!(run(&datapath, &case.frame).verdict, REDIRECT);
        let mut map = scratch.map::<K, N>(map);
        let foreign = map.get(&other, 0).expect("an entry");
        let own = map.get(&one, 0).expect("an entry");
        map.insert(one, foreign, 0).expect("room");
        assert_eq!(run(&datapath, &case.frame).verdict, SHOT);
        assert_eq!(drops(&mut datapath), [(reason, 1)]);
        map.insert(one, own, 0).expect("room");
        assert_eq!(run(&datapath, &case.frame).verdict, REDIRECT);
    });
}

#[test]
fn a_port_with_the_words_of_another_one_sends_nothing() {
    let keys = [LOOPBACK, BLUE_C.ifindex].map(u32::to_ne_bytes);
    dropped_with::<4, 9>("PORTS", keys, &case("UDP"), DropReason::NoPort);
}

/// It is on a node that there is not, and so reaches nothing.
#[test]
fn an_address_with_the_words_of_another_one_leads_nowhere() {
    let key = |pod: &Pod| {
        let ip = Ip16::from_v4(pod.ip4.octets());
        let network = pod.network;
        zerocopy::transmute!(EndpointKey { network, ip })
    };
    let keys = [key(&GREEN_B), key(&BLUE_B)];
    dropped_with::<20, 3>("ENDPOINTS", keys, &case("UDP, L3"), DropReason::NoTunnel);
}

#[test]
fn a_station_with_the_words_of_another_one_leads_nowhere() {
    let key = |pod: &Pod| zerocopy::transmute!(FdbKey::new(pod.network, pod.mac));
    let keys = [key(&BLUE_B), key(&RED_A)];
    let other = Case {
        frame: build::ethernet(BLUE_B.mac, BLUE_A.mac, 0x88b5, &[0; 46]),
        ..case("UDP")
    };
    dropped_with::<12, 3>("FDB", keys, &other, DropReason::NoTunnel);
}

#[test]
fn a_network_with_the_words_of_another_one_has_no_uplink() {
    let wired = |case: &Case| case.decision == Decision::Wire && case.beyond_test_run().is_none();
    let wired = cases::all().into_iter().find(wired).expect("such a case");
    let networks = World::new().networks.into_keys();
    let mut others = networks.filter(|number| *number != wired.sender.network);
    let other = others.next_back().expect("another network");
    let keys = [wired.sender.network, other].map(u32::to_ne_bytes);
    dropped_with::<4, 5>("NETWORKS", keys, &wired, DropReason::NoUplink);
}

#[test]
fn a_vlan_with_the_words_of_another_one_is_not_that_ones_network() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        let (here, there) = (WireKey::segment(LOOPBACK, 0), WireKey::segment(LOOPBACK, 7));
        let mut world = World::new();
        world.wires.insert(here, RED_A.network);
        world.wires.insert(there, TEAL_A.network);
        fill(&mut datapath, &world);
        let uplink = Uplink {
            flags: UPLINK_WIRES,
            ..Uplink::NOTHING
        };
        let uplinks = &mut datapath.tables().uplinks;
        uplinks.insert(LOOPBACK, uplink).expect("room");
        let host = MacAddr([2, 0, 0, 0, 0x99, 1]);
        let frame = build::ethernet(TEAL_A.mac, host, 0x0800, &[0; 46]);
        let verdict = || {
            let trial = Trial {
                frame: &frame,
                repeat: 1,
            };
            datapath
                .try_uplink(&trial)
                .expect("a frame that runs")
                .verdict
        };
        assert_eq!(verdict(), LEFT);
        let mut wires = scratch.map::<24, 2>("WIRES");
        let foreign: [u8; 24] = zerocopy::transmute!(there);
        let foreign = wires.get(&foreign, 0).expect("an entry");
        let own: [u8; 24] = zerocopy::transmute!(here);
        wires.insert(own, foreign, 0).expect("room");
        assert_eq!(verdict(), LEFT);
        let given = SealedWire::store(&here, TEAL_A.network);
        wires.insert(own, given, 0).expect("room");
        assert_eq!(verdict(), REDIRECT);
    });
}

/// Each entry has the memory that the one before it had a moment ago.
#[test]
fn a_port_is_itself_while_all_ports_are_written() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        fill(&mut datapath, &World::with_pod_at(&BLUE_A, LOOPBACK));
        let frame = case("UDP").frame;
        assert_eq!(run(&datapath, &frame).verdict, REDIRECT);
        run_meanwhile(&datapath, REPEAT, iter::repeat_n(&frame, ROUNDS), |done| {
            write_all(scratch, done);
        });
        // A port that is overwritten in two look-ups is none: one of two million in an emulated machine, which stops its
        // processors for longer than these writes take.
        let mut drops = drops(&mut datapath);
        drops.retain(|drop| drop.0 != DropReason::NoPort || drop.1 > 100);
        assert_eq!(drops, []);
    });
}

fn write_all(scratch: &Scratch, done: &AtomicBool) {
    let mut ports = scratch.map::<4, 9>("PORTS");
    let pods = [
        (LOOPBACK, &BLUE_A),
        (BLUE_B.ifindex, &BLUE_B),
        (RED_A.ifindex, &RED_A),
    ];
    while !done.load(Ordering::Relaxed) {
        for (ifindex, pod) in pods {
            let mut port = pod.port();
            port.home = ifindex;
            ports
                .insert(ifindex.to_ne_bytes(), SealedPort::store(&ifindex, port), 0)
                .expect("room");
        }
    }
}
