//! Tests of how long a connection keeps its backend, and its answers.

use super::*;
use crate::guard::FLOW_ANSWERED;

/// Sends the flags of a segment from the client, and takes those of its answer.
fn exchange(world: &World, backend: [u8; 4], (there, back): (u8, u8)) {
    let question = packet((CLIENT, 4000), (SERVICE, 80), IPPROTO_TCP, there);
    let (_, (to, _)) = world.send(&question).unwrap();
    assert_eq!(to, backend);
    let answer = packet((backend, 8080), (CLIENT, 4000), IPPROTO_TCP, back);
    assert!(world.deliver(&answer).is_some());
}

/// Two backends, of which the one is not that of the connection.
fn others(backend: [u8; 4]) -> Vec<[u8; 4]> {
    let all = BACKENDS.into_iter();
    all.filter(|it| *it != backend).collect()
}

#[test]
fn a_connection_of_tcp_keeps_a_backend_that_is_one_no_more() {
    let mut world = World::new().with(SERVICE, &BACKENDS);
    let backend = world.backend_of(4000, IPPROTO_TCP);
    exchange(&world, backend, (SYN, SYN | ACK));
    world.set(SERVICE, &others(backend), |_| {});
    for _ in 0..5 {
        world.later(1000);
        exchange(&world, backend, (ACK, ACK));
    }
    // Not even its Service has to be there.
    world.set(SERVICE, &[], |_| {});
    world.services.clear();
    exchange(&world, backend, (ACK, ACK));
}

#[test]
fn a_datagram_goes_to_another_backend_when_its_own_is_one_no_more() {
    let mut world = World::new().with(SERVICE, &BACKENDS);
    let backend = world.backend_of(4000, IPPROTO_UDP);
    // Another set with it changes nothing.
    world.set(SERVICE, &[BACKENDS[3], backend], |_| {});
    world.later(1);
    assert_eq!(world.backend_of(4000, IPPROTO_UDP), backend);
    world.set(SERVICE, &others(backend), |_| {});
    world.later(1);
    let next = world.backend_of(4000, IPPROTO_UDP);
    assert_ne!(next, backend);
    let answer = packet((next, 8080), (CLIENT, 4000), IPPROTO_UDP, 0);
    assert!(world.deliver(&answer).is_some());
    // None is left: the client is told.
    world.set(SERVICE, &[], |_| {});
    world.later(1);
    let datagram = packet((CLIENT, 4000), (SERVICE, 80), IPPROTO_UDP, 0);
    assert_eq!(world.send(&datagram), Err(DropReason::NoBackend));
    world.services.clear();
    assert_eq!(world.send(&datagram), Err(DropReason::NoService));
}

#[test]
fn a_connection_that_has_lost_its_entries_goes_on() {
    let world = World::new().with(SERVICE, &BACKENDS);
    for port in 0..200 {
        let backend = world.backend_of(port, IPPROTO_TCP);
        world.entries.borrow_mut().clear();
        let middle = packet((CLIENT, port), (SERVICE, 80), IPPROTO_TCP, ACK);
        let (_, (again, _)) = world.send(&middle).unwrap();
        assert_eq!(again, backend, "port {port}");
        let answer = packet((backend, 8080), (CLIENT, port), IPPROTO_TCP, ACK);
        assert!(world.deliver(&answer).is_some());
    }
}

#[test]
fn the_middle_of_a_connection_that_an_elder_port_may_have_by_another_way_is_left_to_that() {
    let mut world = World::new().with(SERVICE, &BACKENDS);
    world.elder = true;
    let segment = |flags| packet((CLIENT, 40_000), (SERVICE, 80), IPPROTO_TCP, flags);
    assert_eq!(world.send(&segment(ACK)), Err(DropReason::NoService));
    assert_eq!(world.send(&segment(FIN)), Err(DropReason::NoService));
    assert_eq!(world.written.get(), 0);
    // It opens one, and so is known.
    let backend = world.backend_of(40_000, IPPROTO_TCP);
    let (_, (ip, _)) = world.send(&segment(ACK)).unwrap();
    assert_eq!(ip, backend);
    // A datagram begins anywhere.
    world.backend_of(40_000, IPPROTO_UDP);
}

#[test]
fn packets_of_either_direction_keep_both_entries() {
    let world = World::new().with(SERVICE, &BACKENDS);
    let backend = world.backend_of(4000, IPPROTO_UDP);
    let question = packet((CLIENT, 4000), (SERVICE, 80), IPPROTO_UDP, 0);
    let answer = packet((backend, 8080), (CLIENT, 4000), IPPROTO_UDP, 0);
    // A datagram without an answer is forgotten after 28 ticks.
    for _ in 0..20 {
        world.later(20);
        world.send(&question).unwrap();
    }
    assert!(world.deliver(&answer).is_some());
    // With one after 112.
    for _ in 0..20 {
        world.later(100);
        assert!(world.deliver(&answer).is_some());
    }
    let (_, (to, _)) = world.send(&question).unwrap();
    assert_eq!(to, backend);
    assert_eq!(world.entries.borrow().len(), 2);
    world.later(113);
    assert_eq!(world.deliver(&answer), None);
}

#[test]
fn an_entry_of_answers_that_is_gone_is_made_again() {
    let world = World::new().with(SERVICE, &BACKENDS);
    let backend = world.backend_of(4000, IPPROTO_TCP);
    world
        .entries
        .borrow_mut()
        .retain(|(.., to)| to.kind != BACK);
    let answer = packet((backend, 8080), (CLIENT, 4000), IPPROTO_TCP, ACK);
    assert_eq!(world.deliver(&answer), None);
    world.later(1);
    world.backend_of(4000, IPPROTO_TCP);
    assert!(world.deliver(&answer).is_some());
    // And that of questions by an answer.
    world
        .entries
        .borrow_mut()
        .retain(|(.., to)| to.kind == BACK);
    world.later(1);
    assert!(world.deliver(&answer).is_some());
    let entries = world.entries.borrow();
    let (_, words, target) = entries.iter().find(|(.., to)| to.kind != BACK).unwrap();
    assert_eq!((target.ip, target.port), (Ip16::from_v4(backend), 8080));
    assert_ne!(words.flags & FLOW_ANSWERED, 0);
}

#[test]
fn entries_are_written_once_a_tick_and_for_news() {
    let world = World::new().with(SERVICE, &BACKENDS);
    let backend = world.backend_of(4000, IPPROTO_TCP);
    exchange(&world, backend, (SYN, SYN | ACK));
    let before = world.written.get();
    for _ in 0..100 {
        exchange(&world, backend, (ACK, ACK));
    }
    assert_eq!(world.written.get(), before);
    world.later(1);
    exchange(&world, backend, (ACK, ACK));
    assert_eq!(world.written.get(), before + 2);
    exchange(&world, backend, (FIN, ACK));
    assert_eq!(world.written.get(), before + 4);
    exchange(&world, backend, (ACK, FIN));
    assert_eq!(world.written.get(), before + 6);
}

#[test]
fn an_answer_to_a_client_s_port_that_has_opened_another_connection_is_none_of_the_last_one() {
    let world = World::new().with(SERVICE, &BACKENDS[..1]);
    exchange(&world, BACKENDS[0], (SYN, SYN | ACK));
    exchange(&world, BACKENDS[0], (RST, RST));
    // The client asks the backend by its own address.
    let accept = packet((BACKENDS[0], 8080), (CLIENT, 4000), IPPROTO_TCP, SYN | ACK);
    assert_eq!(world.deliver(&accept), None);
    // By the Service again, it is an answer of that.
    exchange(&world, BACKENDS[0], (SYN, SYN | ACK));
}

#[test]
fn a_syn_opens_another_connection_only_when_the_last_has_ended() {
    let mut world = World::new().with(SERVICE, &BACKENDS);
    let backend = world.backend_of(4000, IPPROTO_TCP);
    exchange(&world, backend, (SYN, SYN | ACK));
    exchange(&world, backend, (SYN, ACK));
    exchange(&world, backend, (FIN, ACK));
    exchange(&world, backend, (SYN, ACK));
    exchange(&world, backend, (ACK, FIN));
    exchange(&world, backend, (ACK, ACK));
    world.set(SERVICE, &others(backend), |_| {});
    let next = world.backend_of(4000, IPPROTO_TCP);
    assert_ne!(next, backend);
    exchange(&world, next, (ACK, SYN | ACK));
    // A reset by the backend ends it as well.
    exchange(&world, next, (ACK, RST));
    world.set(SERVICE, &[backend], |_| {});
    assert_eq!(world.backend_of(4000, IPPROTO_TCP), backend);
}

#[test]
fn ended_connections_are_forgotten_soon() {
    for (end, ticks) in [(FIN, 10), (RST, 112)] {
        let world = World::new().with(SERVICE, &BACKENDS);
        let backend = world.backend_of(4000, IPPROTO_TCP);
        exchange(&world, backend, (SYN, SYN | ACK));
        exchange(&world, backend, (end, end));
        let now = world.now.get();
        for (_, words, _) in world.entries.borrow().iter() {
            assert!(words.is_alive(IPPROTO_TCP, now + ticks));
            assert!(!words.is_alive(IPPROTO_TCP, now + ticks + 1));
        }
    }
}

#[test]
fn a_backend_that_has_left_takes_no_connection_from_another_one() {
    let mut world = World::new().with(SERVICE, &BACKENDS);
    let old = world.backend_of(4000, IPPROTO_UDP);
    world.set(SERVICE, &others(old), |_| {});
    world.later(1);
    let new = world.backend_of(4000, IPPROTO_UDP);
    assert_ne!(new, old);
    for _ in 0..3 {
        // The first packet of a tick has something to tell.
        world.later(1);
        let late = packet((old, 8080), (CLIENT, 4000), IPPROTO_UDP, 0);
        assert_eq!(world.deliver(&late), None);
        assert_eq!(world.backend_of(4000, IPPROTO_UDP), new);
    }
    // Nor does one of TCP, by what it sends after the connection has ended.
    let mut world = World::new().with(SERVICE, &BACKENDS);
    let old = world.backend_of(4000, IPPROTO_TCP);
    exchange(&world, old, (SYN, SYN | ACK));
    exchange(&world, old, (ACK, RST));
    world.set(SERVICE, &others(old), |_| {});
    let new = world.backend_of(4000, IPPROTO_TCP);
    for flags in [SYN, ACK, SYN | ACK] {
        world.later(1);
        let late = packet((old, 8080), (CLIENT, 4000), IPPROTO_TCP, flags);
        assert_eq!(world.deliver(&late), None);
        exchange(&world, new, (ACK, ACK));
    }
}

#[test]
fn a_syn_of_a_backend_opens_no_connection_of_the_client() {
    let mut world = World::new().with(SERVICE, &BACKENDS);
    let backend = world.backend_of(4000, IPPROTO_TCP);
    exchange(&world, backend, (SYN, SYN | ACK));
    exchange(&world, backend, (ACK, RST));
    world.set(SERVICE, &others(backend), |_| {});
    world.later(1);
    let syn = packet((backend, 8080), (CLIENT, 4000), IPPROTO_TCP, SYN);
    let _ = world.deliver(&syn);
    assert_ne!(world.backend_of(4000, IPPROTO_TCP), backend);
}

#[test]
fn a_syn_goes_to_no_backend_that_is_one_no_more() {
    let mut world = World::new().with(SERVICE, &BACKENDS);
    let backend = world.backend_of(4000, IPPROTO_TCP);
    exchange(&world, backend, (SYN, SYN | ACK));
    world.set(SERVICE, &others(backend), |_| {});
    // What is open goes on, what is opened does not.
    exchange(&world, backend, (ACK, ACK));
    world.later(1);
    assert_ne!(world.backend_of(4000, IPPROTO_TCP), backend);
}

#[test]
fn endpoints_that_talk_to_their_service_from_its_own_port_do_not_meet() {
    let [a, b, ..] = BACKENDS;
    let mut world = World::new();
    for protocol in [IPPROTO_TCP, IPPROTO_UDP] {
        let place = ServiceKey {
            port: 8080,
            ..key(SERVICE, protocol)
        };
        world.set(SERVICE, &[a, b], |_| {});
        let service = world.services[&key(SERVICE, protocol)];
        world.services.insert(place, service);
        let to = (SERVICE, 8080);
        let (_, first) = world.send(&packet((a, 8080), to, protocol, SYN)).unwrap();
        let (_, second) = world.send(&packet((b, 8080), to, protocol, SYN)).unwrap();
        // One of both may have itself; never have they each other.
        assert!(!(first.0 == b && second.0 == a), "{first:?} {second:?}");
    }
}
