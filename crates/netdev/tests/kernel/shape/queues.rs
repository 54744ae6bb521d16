//! Test the effect of a limit on packets.

use std::time::Instant;

use netdev::{Discipline, RootQueue, Shape};
use nix::sys::socket::{setsockopt, sockopt};

use super::{FAST, FLOWS, SLOW, WIRE, Wire, disciplines};
use crate::Scene;

#[test]
fn packets_above_the_rate_wait() {
    let Some(scene) = Scene::set() else { return };
    for discipline in disciplines(&scene) {
        let mut wire = Wire::lay(&scene);
        let start = Instant::now();
        wire.shape(&SLOW, discipline);
        wire.send_all(0..60);
        let state = wire.state();
        // However long this took: no more than the burst and what the rate allows since.
        let most = u64::from(SLOW.burst) + SLOW.rate * (start.elapsed().as_secs() + 1);
        assert!(state.sent_bytes <= most, "{discipline}: {state:?}");
        assert!(state.overlimits > 0, "{discipline}: {state:?}");
        assert_eq!(state.dropped_packets, 0, "{discipline}: {state:?}");
        assert_eq!(
            state.sent_packets + state.backlog_packets,
            60,
            "{discipline}: {state:?}"
        );
        assert_eq!(state.backlog_bytes, state.backlog_packets * WIRE);
        wire.node.delete(wire.pair.host_ifindex).expect("deleted");
    }
}

#[test]
fn the_ethernet_header_counts() {
    let Some(scene) = Scene::set() else { return };
    let mut wire = Wire::lay(&scene);
    wire.shape(&FAST, Discipline::Fifo);
    wire.send_all(0..3);
    wire.receive_all(3);
    let state = wire.state();
    assert_eq!((state.sent_bytes, state.sent_packets), (3 * WIRE, 3));
}

#[test]
fn a_change_of_the_rate_loses_nothing_that_waits() {
    let Some(scene) = Scene::set() else { return };
    for discipline in disciplines(&scene) {
        let mut wire = Wire::lay(&scene);
        wire.shape(&SLOW, discipline);
        wire.send_all(0..40);
        assert!(wire.state().backlog_packets > 10);
        // Slower still, then fast: the limit moves both ways.
        let slower = Shape { rate: 500, ..SLOW };
        wire.shape(&slower, discipline);
        wire.shape(&FAST, discipline);
        // The kernel looks at the queue when something new comes, or when the timer of the old
        // rate is done.
        wire.send_all(40..41);
        assert_eq!(
            wire.receive_all(41),
            (0..41).collect::<Vec<_>>(),
            "{discipline}"
        );
        let state = wire.state();
        assert_eq!(state.dropped_packets, 0, "{discipline}: {state:?}");
        assert_eq!(state.sent_packets, 41, "{discipline}: {state:?}");
        wire.node.delete(wire.pair.host_ifindex).expect("deleted");
    }
}

#[test]
fn what_waits_leaves_before_the_limit_goes() {
    let Some(scene) = Scene::set() else { return };
    for discipline in disciplines(&scene) {
        let mut wire = Wire::lay(&scene);
        // A packet in 42 ms, all of them in 1.7 s. CoDel drops what has waited for 0.4 s: none that
        // leaves with the limit.
        let shape = Shape {
            rate: 25_000,
            ..SLOW
        };
        wire.shape(&shape, discipline);
        wire.send_all(0..40);
        wire.node.unshape(wire.pair.host_ifindex).expect("removed");
        assert_eq!(
            wire.receive_all(40),
            (0..40).collect::<Vec<_>>(),
            "{discipline}"
        );
        let root = wire.node.shape_of(wire.pair.host_ifindex);
        assert_eq!(root.expect("an answer"), RootQueue::Default);
        // And the way is free.
        wire.send_all(40..41);
        assert_eq!(wire.receive(), 40);
        wire.node.delete(wire.pair.host_ifindex).expect("deleted");
    }
}

#[test]
fn a_large_packet_is_split_by_the_burst() {
    let Some(scene) = Scene::set() else { return };
    for discipline in disciplines(&scene) {
        let mut wire = Wire::lay(&scene);
        wire.shape(&SLOW, discipline);
        wire.send_segments(30);
        let state = wire.state();
        assert!(state.backlog_packets > 20, "{discipline}: {state:?}");
        assert_eq!(
            state.backlog_packets + state.sent_packets,
            30,
            "{discipline}: {state:?}"
        );
        wire.node.delete(wire.pair.host_ifindex).expect("deleted");
    }
}

#[test]
fn a_large_packet_is_split_below_a_larger_burst_too() {
    let Some(scene) = Scene::set() else { return };
    for discipline in disciplines(&scene) {
        let mut wire = Wire::lay(&scene);
        let shape = Shape {
            burst: 35_000,
            ..SLOW
        };
        wire.shape(&shape, discipline);
        // Most of these use the burst up.
        wire.send_segments(30);
        wire.send_segments(30);
        let state = wire.state();
        assert!(state.sent_packets >= 30, "{discipline}: {state:?}");
        assert!(state.backlog_packets > 10, "{discipline}: {state:?}");
        wire.node.delete(wire.pair.host_ifindex).expect("deleted");
    }
}

#[test]
fn a_packet_below_the_segment_stays_whole() {
    let Some(scene) = Scene::set() else { return };
    for discipline in disciplines(&scene) {
        let mut wire = Wire::lay(&scene);
        let shape = Shape {
            burst: 35_000,
            segment: 35_000,
            ..SLOW
        };
        wire.shape(&shape, discipline);
        wire.send_segments(30);
        wire.send_segments(30);
        let state = wire.state();
        assert_eq!(state.sent_packets, 30, "{discipline}: {state:?}");
        assert_eq!(state.backlog_packets, 1, "{discipline}: {state:?}");
        wire.node.delete(wire.pair.host_ifindex).expect("deleted");
    }
}

#[test]
fn a_flow_does_not_wait_for_another() {
    let Some(scene) = Scene::set() else { return };
    for discipline in disciplines(&scene) {
        if discipline == Discipline::Fifo {
            continue;
        }
        let mut wire = Wire::lay(&scene);
        wire.shape(&SLOW, discipline);
        wire.send_all(0..60);
        // Four, for fq_codel may by chance put one of them with the first flow.
        for n in 1..=4 {
            let flow = wire.flow(&scene);
            let class = i32::try_from(0x0f10_0000 + n).expect("a small number");
            setsockopt(&flow, sockopt::Priority, &class).expect("SO_PRIORITY");
            wire.send(&flow, 1000 + n);
        }
        wire.shape(&FAST, discipline);
        wire.send_all(60..61);
        let order = wire.receive_all(65);
        let after = |flow: u32| {
            let at = order.iter().position(|number| *number == flow);
            order.len() - at.expect("it arrived")
        };
        let ahead = (1001..=1004).filter(|flow| after(*flow) > 25).count();
        let enough = if discipline == Discipline::FqCodel {
            2
        } else {
            4
        };
        assert!(ahead >= enough, "{discipline}: {order:?}");
        wire.node.delete(wire.pair.host_ifindex).expect("deleted");
    }
}

#[test]
fn a_full_flow_loses_its_own_packets_and_no_others() {
    let Some(scene) = Scene::set() else { return };
    let discipline = Discipline::Htb(FLOWS);
    if !disciplines(&scene).contains(&discipline) {
        return;
    }
    let mut wire = Wire::lay(&scene);
    let shape = Shape {
        queue: 10 * u32::try_from(WIRE).expect("a small number"),
        ..SLOW
    };
    wire.shape(&shape, discipline);
    wire.send_all(0..60);
    let full = wire.state();
    assert!(full.dropped_packets > 30, "{full:?}");
    // One may have been taken out to be sent next.
    assert!(full.backlog_packets <= 11, "{full:?}");
    let flow = wire.flow(&scene);
    setsockopt(&flow, sockopt::Priority, &0x0f10_0001).expect("SO_PRIORITY");
    wire.send(&flow, 1000);
    let both = wire.state();
    assert_eq!(both.dropped_packets, full.dropped_packets, "{both:?}");
    // More room for the same flow, without a loss.
    wire.shape(&SLOW, discipline);
    wire.send_all(60..70);
    let roomy = wire.state();
    assert_eq!(roomy.dropped_packets, full.dropped_packets, "{roomy:?}");
}

#[test]
fn a_damaged_limit_that_lets_nothing_pass_does_so_again_after_repair() {
    let Some(scene) = Scene::set() else { return };
    let discipline = Discipline::Htb(FLOWS);
    if !disciplines(&scene).contains(&discipline) {
        return;
    }
    let mut wire = Wire::lay(&scene);
    wire.shape(&FAST, discipline);
    super::foreign::delete_queue(&scene, wire.pair.host_ifindex, 0x0f0f_0001);
    let state = wire.state();
    assert_eq!(state.discipline, None);
    wire.send_all(0..3);
    assert_eq!(wire.state().sent_packets, 0);
    wire.shape(&FAST, discipline);
    wire.send_all(3..5);
    assert_eq!(wire.receive_all(2), [3, 4]);
}
