//! Test interfaces without ports, storm control, missing programs, samples.
//!
//! These are results of the programs around the policy.

use agent_common::addr::MacAddr;
use agent_common::cases::{BLUE, BLUE_A, BLUE_B, Case, GREEN_A, PODS, Pod, World, build};
use agent_common::counter::Count;
use agent_common::drop::DropReason;
use agent_common::event::EVENT_HEAD;
use agent_common::map::{JUMP_ANSWER, JUMP_FLOOD};
use agent_common::policy::Decision;
use agent_common::storm::{NODE_COPIES, PORT_COPIES, STORM_BURST, StormLimits};
use aya::maps::{Map, MapData, ProgramArray};
use datapath::{Counters, Datapath, DropCount, Trial};

use super::scratch::{LOOPBACK, REDIRECT, SHOT, Scratch, fill, run, scene};

fn open(scratch: &Scratch, world: &World) -> Datapath {
    let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
    fill(&mut datapath, world);
    datapath
}

fn case(name: &str) -> Case {
    let all = agent_common::cases::all();
    all.into_iter()
        .find(|case| case.name == name)
        .expect("a case of this name")
}

fn reasons(counters: &Counters, pod: &Pod) -> Vec<(DropReason, u64)> {
    counters.port_drops(pod.port_id).expect("drops of a port")
}

fn broadcast() -> Vec<u8> {
    build::ethernet(MacAddr::BROADCAST, BLUE_A.mac, 0x88b5, &[0; 46])
}

#[test]
fn an_interface_that_is_no_port_gets_nothing_through() {
    scene(|scratch| {
        let mut datapath = open(scratch, &World::new());
        for name in [
            "UDP",
            "a broadcast",
            "who has a neighbour's address",
            "UDP, L3",
        ] {
            assert_eq!(run(&datapath, &case(name).frame).verdict, SHOT, "{name}");
        }
        let drops = datapath.counters().drops().expect("drops");
        assert!(
            matches!(
                drops[..],
                [DropCount {
                    network: 0,
                    reason: DropReason::NoPort,
                    count: Count { packets: 4, .. }
                }]
            ),
            "{drops:?}"
        );
    });
}

#[test]
fn a_port_floods_its_burst_and_then_storm_control_holds_it() {
    scene(|scratch| {
        let mut datapath = open(scratch, &World::with_pod_at(&BLUE_A, LOOPBACK));
        let frame = broadcast();
        let tries = u32::try_from(STORM_BURST).expect("a burst") * 3;
        let trial = Trial {
            frame: &frame,
            repeat: tries,
        };
        datapath
            .try_frame(&trial)
            .expect("a frame that a test may be");
        let counters = datapath.counters();
        let flooded = counters
            .port(BLUE_A.port_id)
            .expect("counters")
            .flooded
            .packets;
        let held = counters
            .total_drops(DropReason::Storm)
            .expect("drops")
            .packets;
        assert_eq!(flooded + held, u64::from(tries));
        assert!(flooded >= STORM_BURST, "{flooded}");
        assert!(held > 0, "{flooded} of {tries} were flooded");
        // Unicast is not what storm control is about, and its neighbour has a bucket of its own.
        assert_eq!(run(&datapath, &case("UDP").frame).verdict, REDIRECT);
        fill(&mut datapath, &World::with_pod_at(&BLUE_B, LOOPBACK));
        let frame = build::ethernet(MacAddr::BROADCAST, BLUE_B.mac, 0x88b5, &[0; 46]);
        run(&datapath, &frame);
        let flooded = datapath
            .counters()
            .port(BLUE_B.port_id)
            .expect("counters")
            .flooded;
        assert_eq!(
            flooded,
            Count {
                packets: 1,
                bytes: 60
            }
        );
    });
}

/// ATT-11a.
#[test]
fn a_network_has_as_many_copies_made_as_it_may() {
    scene(|scratch| {
        let mut datapath = open(scratch, &World::with_pod_at(&BLUE_A, LOOPBACK));
        let limits = StormLimits::new([PORT_COPIES, 1000, NODE_COPIES], 1);
        let set = datapath.tables().storm.set_limits(limits);
        set.expect("limits that are taken");
        let frame = broadcast();
        // Less than the port may send at once, for two receivers.
        let trial = Trial {
            frame: &frame,
            repeat: 1900,
        };
        datapath
            .try_frame(&trial)
            .expect("a frame that a test may be");
        let counters = datapath.counters();
        let port = counters.port(BLUE_A.port_id).expect("counters");
        let held = |reason| counters.total_drops(reason).expect("drops").packets;
        let by_network = held(DropReason::StormNetwork);
        assert_eq!(port.flooded.packets + by_network, 1900);
        assert!(
            by_network > 0 && port.flooded.packets >= 1000,
            "{by_network} held"
        );
        assert_eq!(held(DropReason::Storm), 0);
    });
    proof::of!("ATT-11a");
}

#[test]
fn without_its_flooding_and_answering_programs_the_port_drops_and_says_so() {
    scene(|scratch| {
        let mut datapath = open(scratch, &World::with_pod_at(&BLUE_A, LOOPBACK));
        let path = scratch.generation().join("jump-1");
        let pinned = MapData::from_pin(path)
            .and_then(Map::from_map_data)
            .expect("a jump table");
        let mut jump = ProgramArray::try_from(pinned).expect("a jump table");
        for slot in [JUMP_FLOOD, JUMP_ANSWER] {
            jump.clear_index(&slot).expect("a slot");
        }
        let question = case("who has a neighbour's address").frame;
        for frame in [&broadcast(), &question] {
            let result = run(&datapath, frame);
            assert_eq!((result.verdict, &result.frame), (SHOT, frame));
        }
        let drops = datapath.counters().drops().expect("drops");
        let reasons: Vec<_> = drops
            .iter()
            .map(|drop| (drop.reason, drop.count.packets))
            .collect();
        assert_eq!(reasons, [(DropReason::NoProgram, 2)]);
        assert_eq!(run(&datapath, &case("UDP").frame).verdict, REDIRECT);
    });
}

#[test]
fn a_dropped_packet_leaves_a_sample_and_others_of_its_kind_do_not_follow_at_once() {
    scene(|scratch| {
        let mut datapath = open(scratch, &World::with_pod_at(&BLUE_A, LOOPBACK));
        let mut events = datapath.events().expect("the ring");
        assert!(datapath.events().is_err(), "the ring can be taken once");
        assert_eq!(events.next_sample(), None);
        let spoofed = case("a neighbour's IPv4 address").frame;
        let trial = Trial {
            frame: &spoofed,
            repeat: 100,
        };
        datapath
            .try_frame(&trial)
            .expect("a frame that a test may be");
        let sample = events.next_sample().expect("a sample");
        assert_eq!((sample.ifindex, sample.network), (LOOPBACK, BLUE));
        assert_eq!(
            DropReason::from_number(sample.reason),
            Some(DropReason::SpoofedIp)
        );
        assert_eq!(usize::try_from(sample.length), Ok(spoofed.len()));
        let kept = spoofed.len().min(EVENT_HEAD);
        let head = usize::try_from(sample.head_length).expect("a length");
        assert!(head <= kept && head >= 42, "{head}");
        assert_eq!(&sample.head[..head], &spoofed[..head]);
        assert!(
            sample.head[head..].iter().all(|byte| *byte == 0),
            "bytes of no packet"
        );
        let mut more = 0;
        while events.next_sample().is_some() {
            more += 1;
        }
        // A hundred runs take no longer than a few of the intervals between samples.
        assert!(more < 10, "{more} samples of a hundred drops");

        let short = build::cut(case("who has a neighbour's address").frame, 41);
        run(&datapath, &short);
        let sample = events.next_sample().expect("a sample of another reason");
        assert_eq!(sample.length, 41);
        let head = usize::try_from(sample.head_length).expect("a length");
        assert_eq!(&sample.head[..head], &short[..head]);
        assert!(
            sample.head[head..].iter().all(|byte| *byte == 0),
            "bytes of no packet"
        );
    });
}

#[test]
fn counters_of_a_port_are_zeroed_alone_and_those_of_a_network_forgotten_alone() {
    scene(|scratch| {
        let mut datapath = open(scratch, &World::with_pod_at(&BLUE_A, LOOPBACK));
        run(&datapath, &case("UDP").frame);
        run(&datapath, &case("a neighbour's IPv4 address").frame);
        fill(&mut datapath, &World::with_pod_at(&GREEN_A, LOOPBACK));
        run(&datapath, &case("no IPv4 address, L3").frame);
        let counters = datapath.counters();
        let Decision::Drop(reason) = case("no IPv4 address, L3").decision else {
            unreachable!("it is dropped");
        };
        assert_eq!(reasons(counters, &BLUE_A), [(DropReason::SpoofedIp, 1)]);
        counters.reset_port(BLUE_A.port_id).expect("counters");
        assert_eq!(reasons(counters, &BLUE_A), []);
        assert_eq!(reasons(counters, &GREEN_A), [(reason, 1)]);
        assert_eq!(
            counters.port(BLUE_A.port_id).expect("counters"),
            <_>::default()
        );
        assert_eq!(
            counters
                .port(BLUE_B.port_id)
                .expect("counters")
                .to_pod
                .packets,
            1
        );
        counters.forget_network(BLUE).expect("drops");
        counters
            .forget_network(BLUE)
            .expect("nothing to forget is forgotten");
        let drops = counters.drops().expect("drops");
        assert!(
            drops.iter().all(|drop| drop.network == GREEN_A.network),
            "{drops:?}"
        );
        assert_eq!(drops.len(), 1);
        assert_eq!(
            counters
                .total_drops(DropReason::SpoofedIp)
                .expect("drops")
                .packets,
            2
        );
        assert!(counters.port(u16::MAX).is_err(), "there are fewer ports");
        assert!(PODS.len() > 2);
    });
}
