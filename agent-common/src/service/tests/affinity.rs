//! Tests of clients that keep their backend (`sessionAffinity: ClientIP`).

use super::*;

/// A timeout of 100 s: 93 ticks of 1.07 s.
fn sticky(backends: &[[u8; 4]]) -> World {
    let mut world = World::new();
    world.set(SERVICE, backends, |service| service.affinity_s = 100);
    world
}

#[test]
fn a_client_has_the_same_backend_for_all_its_connections() {
    let world = sticky(&BACKENDS);
    for protocol in [IPPROTO_TCP, IPPROTO_UDP] {
        let first = world.backend_of(1000, protocol);
        for port in 1001..1200 {
            assert_eq!(world.backend_of(port, protocol), first);
        }
    }
    // Other clients have others.
    let of = |client: u8| {
        let frame = packet(([10, 0, 1, client], 1000), (SERVICE, 80), IPPROTO_TCP, SYN);
        world.send(&frame).unwrap().1.0
    };
    let all: std::collections::BTreeSet<_> = (0..100).map(of).collect();
    assert_eq!(all.len(), BACKENDS.len());
}

#[test]
fn affinity_ends_with_its_timeout_after_the_last_connection() {
    let world = sticky(&BACKENDS);
    let first = world.backend_of(1000, IPPROTO_TCP);
    for port in 1001..1020 {
        world.later(90);
        assert_eq!(world.backend_of(port, IPPROTO_TCP), first);
    }
    let differs = (2000..2020).any(|port| {
        world.later(94);
        world.backend_of(port, IPPROTO_TCP) != first
    });
    assert!(differs);
}

#[test]
fn affinity_ends_with_its_backend() {
    let mut world = sticky(&BACKENDS);
    let first = world.backend_of(1000, IPPROTO_TCP);
    let rest: Vec<_> = BACKENDS.into_iter().filter(|it| *it != first).collect();
    world.set(SERVICE, &rest, |service| service.affinity_s = 100);
    let next = world.backend_of(1001, IPPROTO_TCP);
    assert_ne!(next, first);
    // It comes back, and the client stays where it is.
    world.set(SERVICE, &BACKENDS, |service| service.affinity_s = 100);
    for port in 1002..1050 {
        assert_eq!(world.backend_of(port, IPPROTO_TCP), next);
    }
}

#[test]
fn affinity_that_is_turned_off_holds_nobody() {
    let mut world = sticky(&BACKENDS);
    let first = world.backend_of(1000, IPPROTO_TCP);
    world.set(SERVICE, &BACKENDS, |_| {});
    assert!((1001..1050).any(|port| world.backend_of(port, IPPROTO_TCP) != first));
}

#[test]
fn affinity_holds_where_another_processor_is_a_tick_ahead() {
    let world = sticky(&BACKENDS);
    let first = world.backend_of(1000, IPPROTO_TCP);
    world.now.set(world.now.get() - 1);
    for port in 1001..1050 {
        assert_eq!(world.backend_of(port, IPPROTO_TCP), first);
        world.now.set(world.now.get() ^ 1);
    }
}
