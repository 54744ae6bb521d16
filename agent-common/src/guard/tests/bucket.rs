//! A bucket: which entry is a connection's, and which one goes.

use super::super::bucket::WAYS;
use super::super::switched::Sum;
use super::super::{
    FLOW_ANSWERED, FLOW_DENIED, FLOW_FIN_HIGH, FLOW_FIN_LOW, FLOW_RESET, FLOW_TCP, FlowKey,
    FlowWords, Secret,
};
use crate::addr::Ip16;

const NOW: u32 = 50_000;
/// An open connection of TCP.
const OPEN: u32 = FLOW_TCP | FLOW_ANSWERED;

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

fn sum(number: u16) -> Sum {
    let halves = [0_u64, 1].map(|half| {
        [1_u64, 2, 3, 4, 5, 6, 7, 8]
            .map(|at| (half * 8 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    });
    let [low, high] = &halves;
    Secret { low, high }.sum(&key(number))
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
        sum(number).state(&words(age, flags))
    })
}

fn at(states: &[u64; 8]) -> impl Fn(u64) -> u64 + '_ {
    |way| states[usize::try_from(way).expect("a place")]
}

fn room(states: &[u64; 8]) -> usize {
    let place = sum(1).room(NOW, 0, at(states));
    usize::try_from(place).expect("a place")
}

#[test]
fn an_entry_says_to_its_own_connection_what_was_written() {
    let words = words(3, OPEN | FLOW_DENIED);
    let (state, stamps) = (sum(1).state(&words), sum(1).stamps(&words));
    assert_eq!(sum(1).words(state, stamps), Some(words));
    assert_eq!(sum(2).words(state, stamps), None);
    assert_eq!(sum(1).words(0, stamps), None);
}

#[test]
fn stamps_of_another_connection_are_those_of_no_port() {
    let theirs = sum(2).stamps(&words(0, OPEN));
    let read = sum(1).words(sum(1).state(&words(0, OPEN)), theirs);
    let read = read.expect("an entry");
    assert_ne!((read.egress, read.ingress), (3, u32::MAX));
}

#[test]
fn a_connection_is_found_at_its_first_place_and_nowhere_else() {
    let mut states = bucket([(0, OPEN); 8]);
    assert_eq!(sum(1).find(0, at(&states)), WAYS);
    for place in [6, 2] {
        states[place] = sum(1).state(&words(9, 0));
        assert_eq!(sum(1).find(0, at(&states)), place as u64);
    }
    assert_eq!(sum(103).find(0, at(&states)), WAYS);
    assert_eq!(sum(102).find(0, at(&states)), 1);
}

#[test]
fn a_connection_takes_its_own_place_again() {
    let mut states = bucket([(0, 0); 8]);
    states[3] = 0;
    states[5] = sum(1).state(&words(0, OPEN));
    assert_eq!(room(&states), 5);
}

#[test]
fn an_entry_that_is_free_or_over_goes_first() {
    let full = [(100, 0); 8];
    let mut free = bucket(full);
    free[6] = 0;
    assert_eq!(room(&free), 6);
    for over in [(113, FLOW_ANSWERED), (20_201, OPEN), (113, 0)] {
        let mut entries = full;
        entries[4] = over;
        assert_eq!(room(&bucket(entries)), 4, "{over:?}");
    }
}

/// A free place was seen at no time: shortly after a boot that is not long ago.
#[test]
fn a_free_place_goes_first_shortly_after_a_boot() {
    let mut states = [sum(9).state(&FlowWords {
        seen: 1,
        flags: 0,
        ..words(0, 0)
    }); 8];
    states[7] = 0;
    assert_eq!(sum(1).room(60, 0, at(&states)), 7);
}

#[test]
fn what_one_end_has_opened_goes_before_what_both_ends_keep() {
    let weak = [
        0,
        FLOW_TCP,
        OPEN | FLOW_RESET,
        OPEN | FLOW_DENIED,
        OPEN | FLOW_FIN_LOW | FLOW_FIN_HIGH,
    ];
    for flags in weak {
        for kept in [(1_800, OPEN), (90, FLOW_ANSWERED)] {
            let mut entries = [kept; 8];
            entries[2] = (0, flags);
            assert_eq!(room(&bucket(entries)), 2, "{flags:#x}");
        }
    }
    // One end alone has closed it: the other one may send for long.
    let mut entries = [(10, OPEN); 8];
    entries[2] = (9, OPEN | FLOW_FIN_LOW);
    entries[3] = (11, OPEN);
    assert_eq!(room(&bucket(entries)), 3);
}

#[test]
fn what_is_in_use_stays_and_the_oldest_of_a_kind_goes() {
    for flags in [0, FLOW_ANSWERED, OPEN] {
        let mut entries = [(40, flags); 8];
        entries[1] = (41, flags);
        entries[5] = (0, flags);
        assert_eq!(room(&bucket(entries)), 1, "{flags:#x}");
    }
    // Both ends keep both.
    let mut entries = [(40, FLOW_ANSWERED); 8];
    entries[6] = (41, OPEN);
    assert_eq!(room(&bucket(entries)), 6);
    // By a processor that is a tick ahead.
    let mut states = bucket([(0, OPEN); 8]);
    states[3] = sum(104).state(&words(1, OPEN));
    states[0] = sum(101).state(&FlowWords {
        seen: NOW + 1,
        ..words(0, OPEN)
    });
    assert_eq!(room(&states), 3);
}
