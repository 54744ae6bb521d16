//! Packets in fragments.

use super::*;

const MORE: u16 = 0x2000;
const DENIED: Result<(), DropReason> = Err(DropReason::PolicyIngress);
const UNKNOWN: Result<(), DropReason> = Err(DropReason::PolicyFragment);

fn first(id: u16, port: u16) -> Vec<u8> {
    let mut payload = ports(40_000, port);
    payload.extend([0; 20]);
    ipv4(A, B, 17, (id, MORE), &payload)
}

fn later(id: u16) -> Vec<u8> {
    ipv4(A, B, 17, (id, 3), &[0; 24])
}

#[test]
fn later_fragments_pass_with_the_first_one_c_ct_9() {
    let mut world = World::new().with(B, 0, WEB);
    assert_eq!(world.send(A, B, &later(5)), UNKNOWN);
    assert_eq!(world.send(A, B, &first(5, 80)), Ok(()));
    assert_eq!(world.send(A, B, &later(5)), Ok(()));
    assert_eq!(world.send(A, B, &later(6)), UNKNOWN);
}

#[test]
fn a_first_fragment_that_is_denied_takes_the_others_with_it() {
    let mut world = World::new().with(B, 0, WEB);
    assert_eq!(world.send(A, B, &first(5, 81)), DENIED);
    assert_eq!(world.send(A, B, &later(5)), UNKNOWN);
}

#[test]
fn fragments_that_come_too_late_are_dropped() {
    let mut world = World::new().with(B, 0, WEB);
    assert_eq!(world.send(A, B, &first(5, 80)), Ok(()));
    world.later(29);
    assert_eq!(world.send(A, B, &later(5)), UNKNOWN);
}

#[test]
fn a_first_fragment_without_the_flags_of_tcp_is_dropped_rfc_1858() {
    let mut world = World::new().with(B, 0, WEB);
    let mut payload = ports(40_000, 80);
    payload.extend([0; 4]);
    let tiny = ipv4(A, B, 6, (5, MORE), &payload);
    assert_eq!(world.send(A, B, &tiny), UNKNOWN);
}

#[test]
fn fragments_of_a_ping_follow_the_first() {
    let mut world = World::new().with(B, 0, PINGS);
    let head = ipv4(A, B, 1, (5, MORE), &[8, 0, 0, 0, 0, 9, 0, 1]);
    let tail = ipv4(A, B, 1, (5, 1), &[0; 8]);
    assert_eq!(world.send(A, B, &tail), UNKNOWN);
    assert_eq!(world.send(A, B, &head), Ok(()));
    assert_eq!(world.send(A, B, &tail), Ok(()));
}

#[test]
fn the_payload_of_a_later_fragment_is_not_read_as_ports_f_15() {
    let mut world = World::new().with(B, 0, WEB);
    // Its first bytes look like a header for port 80.
    let looks_right = ipv4(A, B, 17, (5, 3), &first(5, 80)[34..]);
    assert_eq!(world.send(A, B, &looks_right), UNKNOWN);
}
