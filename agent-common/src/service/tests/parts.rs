//! Tests of packets in parts.

use super::*;

const MORE: u16 = 0x2000;

/// The parts of a datagram with this identification.
fn parts((from, source): End, (to, destination): End, id: u16) -> [Vec<u8>; 2] {
    let ports = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    let first = [&ports[..], &[0; 12]].concat();
    [
        part(from, to, IPPROTO_UDP, (id, MORE), &first),
        part(from, to, IPPROTO_UDP, (id, 2), &[0; 16]),
    ]
}

#[test]
fn all_parts_of_a_datagram_go_where_the_first_one_went() {
    let world = World::new().with(SERVICE, &BACKENDS);
    let [first, rest] = parts((CLIENT, 4000), (SERVICE, 80), 9);
    assert_eq!(world.send(&rest), Err(DropReason::PolicyFragment));
    let (_, (backend, port)) = world.send(&first).unwrap();
    assert_eq!(world.send(&rest).unwrap().1, (backend, port));
    let [first, rest] = parts((backend, 8080), (CLIENT, 4000), 10);
    assert_eq!(world.deliver(&rest), None);
    let from_service = Some(((SERVICE, 80), (CLIENT, 4000)));
    assert_eq!(world.deliver(&first), from_service);
    assert_eq!(world.deliver(&rest), from_service);
}

#[test]
fn first_parts_of_what_is_not_translated_are_not_kept() {
    let world = World::new().with(SERVICE, &BACKENDS);
    let [first, _] = parts((BACKENDS[0], 8080), (CLIENT, 4000), 9);
    assert_eq!(world.deliver(&first), None);
    let [refused, _] = parts((CLIENT, 4000), (OTHER_SERVICE, 80), 9);
    assert!(world.send(&refused).is_err());
    world.budget.set(0);
    let [unpaid, _] = parts((CLIENT, 4000), (SERVICE, 80), 9);
    assert_eq!(world.send(&unpaid), Err(DropReason::FlowLimit));
    assert!(world.fragments.borrow().is_empty());
}
