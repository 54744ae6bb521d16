//! A bucket: which entry is a connection's, and which one goes.

use super::super::bucket::WAYS;
use super::super::{
    FLOW_ANSWERED, FLOW_DENIED, FLOW_FIN_HIGH, FLOW_FIN_LOW, FLOW_HIGH_OPENED, FLOW_RESET,
    FLOW_TCP, FlowKey, FlowPlace, FlowWords, Secret,
};
use crate::addr::Ip16;

const NOW: u32 = 50_000;
/// An open connection of TCP.
const OPEN: u32 = FLOW_TCP | FLOW_ANSWERED;
/// One that both ends have closed.
const CLOSED: u32 = OPEN | FLOW_FIN_LOW | FLOW_FIN_HIGH;

fn key(number: u16) -> FlowKey {
    FlowKey {
        network: 7,
        low: Ip16::from_v4([10, 0, 0, 1]),
        high: Ip16::from_v4([10, 0, 0, 2]),
        low_port: number,
        high_port: 80,
        ..FlowKey::EMPTY
    }
}

fn place_of(number: u16) -> FlowPlace {
    let halves = [0_u64, 1].map(|half| {
        [1_u64, 2, 3, 4, 5, 6, 7, 8]
            .map(|at| (half * 8 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    });
    let [low, high] = &halves;
    FlowPlace::of(&Secret { low, high }, &key(number))
}

fn words(age: u32, flags: u32) -> FlowWords {
    FlowWords {
        seen: NOW - age,
        flags,
        egress: 3,
        ingress: u32::MAX,
    }
}

/// A bucket of entries with these ages and flags, each of another connection.
fn bucket(entries: [(u32, u32); 8]) -> [u64; 8] {
    let mut number = 100;
    entries.map(|(age, flags)| {
        number += 1;
        place_of(number).state(&words(age, flags))
    })
}

fn at(states: &[u64; 8]) -> impl Fn(u64) -> u64 + '_ {
    |way| states[usize::try_from(way).expect("a place")]
}

fn room(states: &[u64; 8]) -> usize {
    let place = place_of(1).room(NOW, 0, at(states));
    usize::try_from(place).expect("a place")
}

#[test]
fn an_entry_says_to_its_own_connection_what_was_written() {
    let words = words(3, OPEN | FLOW_DENIED);
    let (state, stamps) = (place_of(1).state(&words), place_of(1).stamps(&words));
    assert_eq!(place_of(1).words(state, stamps), Some(words));
    assert_eq!(place_of(2).words(state, stamps), None);
    assert_eq!(place_of(1).words(0, stamps), None);
}

#[test]
fn stamps_of_another_connection_are_those_of_no_port() {
    let theirs = place_of(2).stamps(&words(0, OPEN));
    let read = place_of(1).words(place_of(1).state(&words(0, OPEN)), theirs);
    let read = read.expect("an entry");
    assert_ne!((read.egress, read.ingress), (3, u32::MAX));
}

#[test]
fn a_connection_is_found_at_its_first_place_and_nowhere_else() {
    let mut states = bucket([(0, OPEN); 8]);
    assert_eq!(place_of(1).find(0, at(&states)), WAYS);
    for place in [6, 2] {
        states[place] = place_of(1).state(&words(9, 0));
        assert_eq!(place_of(1).find(0, at(&states)), place as u64);
    }
    assert_eq!(place_of(103).find(0, at(&states)), WAYS);
    assert_eq!(place_of(102).find(0, at(&states)), 1);
}

#[test]
fn a_connection_takes_its_own_place_again() {
    let mut states = bucket([(0, 0); 8]);
    states[3] = 0;
    states[5] = place_of(1).state(&words(0, OPEN));
    assert_eq!(room(&states), 5);
}

#[test]
fn a_free_place_is_taken_first() {
    for flags in [0, CLOSED, OPEN] {
        let mut states = bucket([(20_201, flags); 8]);
        states[6] = 0;
        assert_eq!(room(&states), 6);
    }
}

/// A free place was seen at no time: shortly after a boot that is not long ago.
#[test]
fn a_free_place_goes_first_shortly_after_a_boot() {
    let mut states = [place_of(9).state(&FlowWords {
        seen: 1,
        flags: 0,
        ..words(0, 0)
    }); 8];
    states[7] = 0;
    assert_eq!(place_of(1).room(60, 0, at(&states)), 7);
}

/// A bucket in which all but one entry are of a kind, and the one goes.
fn goes(one: (u32, u32), others: (u32, u32)) {
    for place in 0..8 {
        let mut entries = [others; 8];
        entries[place] = one;
        assert_eq!(room(&bucket(entries)), place, "{one:?} {others:?}");
    }
}

#[test]
fn what_one_end_has_opened_and_what_has_ended_goes_before_what_both_ends_keep() {
    let weak = [0, FLOW_TCP, OPEN | FLOW_RESET, CLOSED];
    for flags in weak {
        goes((1, flags), (1_800, OPEN));
        goes((1, flags), (90, FLOW_ANSWERED));
    }
    // One end alone has closed it: the other one may send for long.
    goes((11, OPEN), (10, OPEN | FLOW_FIN_LOW));
    // What has ended is in use no more.
    goes((0, CLOSED), (1_800, OPEN));
}

#[test]
fn what_was_answered_goes_before_connections_of_tcp() {
    goes((4, FLOW_ANSWERED), (20_000, OPEN));
    goes((2, 0), (4, FLOW_ANSWERED));
}

/// An opening, until it is answered, and a question of which the answer is late.
#[test]
fn what_is_in_use_goes_by_its_age() {
    goes((1, OPEN), (0, 0));
    goes((4, OPEN), (3, FLOW_ANSWERED));
    goes((3, FLOW_ANSWERED), (2, OPEN));
    goes((0, 0), (0, FLOW_ANSWERED));
}

/// No packet tells that it is denied: else the other end could open it.
#[test]
fn what_a_later_policy_denies_stays_as_connections_of_tcp_do() {
    for kind in [0, FLOW_ANSWERED, OPEN, CLOSED] {
        let denied = (1_000, kind | FLOW_DENIED);
        goes((4, FLOW_ANSWERED), denied);
        goes((1, 0), denied);
        goes((1_001, OPEN), denied);
        goes(denied, (999, OPEN));
    }
}

#[test]
fn the_oldest_of_a_kind_goes() {
    for flags in [0, FLOW_ANSWERED, OPEN, OPEN | FLOW_DENIED] {
        goes((41, flags), (40, flags));
    }
    // By a processor that is a tick ahead.
    let mut states = bucket([(0, OPEN); 8]);
    states[3] = place_of(104).state(&words(1, OPEN));
    states[0] = place_of(101).state(&FlowWords {
        seen: NOW + 1,
        ..words(0, OPEN)
    });
    assert_eq!(room(&states), 3);
}

/// The hash of a secret of zeroes is 0.
#[test]
fn a_free_place_is_no_place_of_any_key() {
    let secret = [[0; 8]; 2];
    let [low, high] = &secret;
    let place = FlowPlace::of(&Secret { low, high }, &key(1));
    assert_eq!(
        (place.bucket(), place.stamps(&words(0, 0))),
        (0, 0x3_ffff_ffff)
    );
    let mut states = [0; 8];
    assert_eq!(place.find(0, at(&states)), WAYS);
    states[4] = place.state(&words(0, OPEN));
    assert_eq!(place.find(0, at(&states)), 4);
    assert_eq!(place.room(NOW, 0, at(&states)), 4, "its own entry");
}

/// After two processors have opened it at once.
#[test]
fn the_first_of_two_entries_is_found_and_written() {
    let mut states = bucket([(0, OPEN); 8]);
    states[2] = place_of(1).state(&words(0, OPEN));
    states[6] = place_of(1).state(&words(90, 0));
    assert_eq!(place_of(1).find(0, at(&states)), 2);
    assert_eq!(room(&states), 2);
}

/// Else keys that have shared a bucket would tell which others will.
#[test]
fn keys_that_differ_alike_do_not_share_buckets_alike() {
    let bucket = |number: u16| place_of(number).bucket();
    let mut differences: Vec<u32> = (0..1000)
        .map(|number| bucket(number + 1000).wrapping_sub(bucket(number)))
        .collect();
    differences.sort_unstable();
    differences.dedup();
    assert!(differences.len() > 900, "{}", differences.len());
}

#[test]
fn an_entry_takes_flags_of_its_own_connection_alone() {
    let place = place_of(1);
    let state = place.state(&words(0, FLOW_TCP));
    let told = place.told(state, FLOW_ANSWERED | FLOW_FIN_LOW);
    assert_eq!(
        told,
        place.state(&words(0, FLOW_TCP | FLOW_ANSWERED | FLOW_FIN_LOW))
    );
    assert_eq!(place_of(2).told(state, FLOW_FIN_LOW), 0, "another one");
    assert_eq!(place.told(0, FLOW_FIN_LOW), 0, "a free one");
    let denied = place.state(&words(0, FLOW_TCP | FLOW_DENIED));
    assert_eq!(place.told(denied, FLOW_ANSWERED), 0, "a denied one");
    assert_eq!(place.told(state, FLOW_HIGH_OPENED), 0, "of another opener");
}
