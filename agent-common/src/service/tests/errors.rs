//! Test what becomes of ICMP errors.

use super::*;

const ROUTER: [u8; 4] = [10, 0, 0, 254];
const UNREACHABLE: u8 = 3;
const REDIRECT: u8 = 5;

/// An error from one host to another about a frame.
///
/// It quotes eight bytes of the payload.
fn error(from: [u8; 4], to: [u8; 4], kind: u8, about: &[u8]) -> Vec<u8> {
    let payload = [&[kind, 3, 0, 0, 0, 0, 0, 0], &about[14..14 + 20 + 8]].concat();
    part(from, to, IPPROTO_ICMP, (0, 0), &payload)
}

/// An error with its own ends and those that it quotes.
type Told = (([u8; 4], [u8; 4]), (End, End));

impl World {
    /// Translates an error to a client, or from one, if it is about a Service.
    fn error(&self, frame: &[u8], is_of_client: bool) -> Option<Told> {
        let (mut scratch, mut work) = (Scratch::EMPTY, Work::EMPTY);
        policy::read(frame, &mut scratch).unwrap();
        let written = self.written.get();
        let found = quoted(frame, (NETWORK, is_of_client), &scratch, self, &mut work);
        assert_eq!(self.written.get(), written, "errors keep nothing alive");
        found.then(|| {
            let v4 = |ip: Ip16| ip.v4().unwrap();
            assert_eq!(work.outer.ports, 14 + 20 + 8 + 20);
            let own = (v4(work.outer.source), v4(work.outer.destination));
            (own, ends(&work.leaves))
        })
    }
}

#[test]
fn an_error_about_what_a_client_has_sent_names_the_service() {
    let world = World::new().with(SERVICE, &BACKENDS);
    for protocol in [IPPROTO_TCP, IPPROTO_UDP] {
        let backend = world.backend_of(40_000, protocol);
        let sent = packet((CLIENT, 40_000), (backend, 8080), protocol, ACK);
        let quoted = ((CLIENT, 40_000), (SERVICE, 80));
        // The end that it was for is known by the Service's name, a router has its own.
        for (from, named) in [(backend, SERVICE), (ROUTER, ROUTER)] {
            let told = world.error(&error(from, CLIENT, UNREACHABLE, &sent), false);
            assert_eq!(told, Some(((named, CLIENT), quoted)));
        }
        // It is for the sender of what it quotes.
        let elsewhere = error(ROUTER, [10, 0, 0, 2], UNREACHABLE, &sent);
        assert_eq!(world.error(&elsewhere, false), None);
        // No message but an error quotes a packet.
        let other = error(ROUTER, CLIENT, REDIRECT, &sent);
        assert_eq!(world.error(&other, false), None);
    }
}

#[test]
fn an_error_about_an_answer_names_the_backend() {
    let world = World::new().with(SERVICE, &BACKENDS);
    for protocol in [IPPROTO_TCP, IPPROTO_UDP] {
        let backend = world.backend_of(40_000, protocol);
        let got = packet((SERVICE, 80), (CLIENT, 40_000), protocol, ACK);
        let told = world.error(&error(CLIENT, SERVICE, UNREACHABLE, &got), true);
        let quoted = ((backend, 8080), (CLIENT, 40_000));
        assert_eq!(told, Some(((CLIENT, backend), quoted)));
        // Another pod has got none of it.
        let forged = error([10, 0, 0, 2], SERVICE, UNREACHABLE, &got);
        assert_eq!(world.error(&forged, true), None);
    }
}

#[test]
fn an_error_that_quotes_the_wrong_direction_is_none_of_a_connection() {
    let world = World::new().with(SERVICE, &BACKENDS);
    let backend = world.backend_of(40_000, IPPROTO_UDP);
    let answer = packet((backend, 8080), (CLIENT, 40_000), IPPROTO_UDP, 0);
    let about_answer = error(CLIENT, backend, UNREACHABLE, &answer);
    assert_eq!(world.error(&about_answer, false), None);
    let question = packet((CLIENT, 40_000), (SERVICE, 80), IPPROTO_UDP, 0);
    let about_question = error(SERVICE, CLIENT, UNREACHABLE, &question);
    assert_eq!(world.error(&about_question, true), None);
    assert_eq!(world.error(&about_question, false), None);
}

#[test]
fn an_error_about_no_connection_of_a_service_stays_as_it_is() {
    let world = World::new().with(SERVICE, &BACKENDS);
    let backend = world.backend_of(40_000, IPPROTO_UDP);
    for (from, to, protocol) in [
        ((CLIENT, 40_001), (backend, 8080), IPPROTO_UDP),
        ((CLIENT, 40_000), (backend, 8081), IPPROTO_UDP),
        ((CLIENT, 40_000), (backend, 8080), IPPROTO_TCP),
        ((CLIENT, 40_000), (backend, 8080), IPPROTO_ICMP),
    ] {
        let about = packet(from, to, protocol, ACK);
        let frame = error(backend, CLIENT, UNREACHABLE, &about);
        assert_eq!(world.error(&frame, false), None);
    }
    let sent = packet((CLIENT, 40_000), (backend, 8080), IPPROTO_UDP, 0);
    // A later fragment has no ports; what is cut off has not, either.
    let later = part(CLIENT, backend, IPPROTO_UDP, (1, 185), &[0; 8]);
    assert_eq!(
        world.error(&error(backend, CLIENT, UNREACHABLE, &later), false),
        None
    );
    let whole = error(backend, CLIENT, UNREACHABLE, &sent);
    assert!(world.error(&whole, false).is_some());
    for length in 1..32 {
        let message = &whole[34..34 + length];
        let short = part(backend, CLIENT, IPPROTO_ICMP, (0, 0), message);
        assert_eq!(world.error(&short, false), None);
    }
    // An entry that has had its time is none.
    world.later(1_000_000);
    assert_eq!(world.error(&whole, false), None);
}

#[test]
fn an_endpoint_that_a_client_has_left_has_nothing_to_say_by_the_service() {
    let mut world = World::new().with(SERVICE, &BACKENDS[..1]);
    let old = world.backend_of(40_000, IPPROTO_UDP);
    let sent = packet((CLIENT, 40_000), (old, 8080), IPPROTO_UDP, 0);
    let told = error(old, CLIENT, UNREACHABLE, &sent);
    assert!(world.error(&told, false).is_some());
    world.set(SERVICE, &BACKENDS[1..2], |_| {});
    world.later(1);
    let new = world.backend_of(40_000, IPPROTO_UDP);
    assert_ne!(new, old);
    assert_eq!(world.error(&told, false), None);
    let sent = packet((CLIENT, 40_000), (new, 8080), IPPROTO_UDP, 0);
    let told = error(new, CLIENT, UNREACHABLE, &sent);
    assert!(world.error(&told, false).is_some());
}
