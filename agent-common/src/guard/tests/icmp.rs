//! ICMP: pings, and errors that belong to a connection.

use super::*;

const DENIED: Result<(), DropReason> = Err(DropReason::PolicyIngress);

fn echo(from: [u8; 4], to: [u8; 4], kind: u8, id: u16) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    ipv4(from, to, 1, (1, 0), &[kind, 0, 0, 0, high, low, 0, 1])
}

/// An error about a packet, which is quoted with its IP header.
fn error(from: [u8; 4], to: [u8; 4], kind: u8, about: &[u8]) -> Vec<u8> {
    let quoted = &about[14..(14 + 28).min(about.len())];
    let payload = [&[kind, 4, 0, 0, 0, 0, 5, 0], quoted].concat();
    ipv4(from, to, 1, (1, 0), &payload)
}

#[test]
fn a_ping_needs_a_rule_without_ports_and_its_reply_none_a_np_28() {
    let mut world = World::new().with(B, 0, WEB);
    assert_eq!(world.send(A, B, &echo(A, B, 8, 5)), DENIED);
    world.set(B, NOTHING, PINGS);
    assert_eq!(world.send(A, B, &echo(A, B, 8, 5)), Ok(()));
    assert_eq!(world.send(B, A, &echo(B, A, 0, 5)), Ok(()));
    let denied = Err(DropReason::PolicyEgress);
    assert_eq!(world.send(B, A, &echo(B, A, 0, 6)), denied);
}

/// A reply has another type (RFC 792): a request is none, whatever its identifier.
#[test]
fn an_echo_request_is_no_part_of_the_other_end_s_ping() {
    for asked in [0, 1, 5, 0x7fff, 0x8000, 0xfffe, 0xffff] {
        let mut world = World::new().with(B, 0, NOTHING);
        assert_eq!(world.send(B, A, &echo(B, A, 8, asked)), Ok(()));
        for id in [0, 1, 4, 5, 6, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff] {
            let came = world.send(A, B, &echo(A, B, 8, id));
            assert_eq!(came, DENIED, "{id} after {asked}");
        }
        assert_eq!(world.send(A, B, &echo(A, B, 0, asked)), Ok(()), "{asked}");
    }
}

#[test]
fn an_answer_without_its_question_turns_no_connection_round() {
    for (question, answer) in [(8, 0), (13, 14), (15, 16), (17, 18), (42, 43)] {
        let mut world = World::new().with(B, 0, ALL);
        assert_eq!(world.send(B, A, &echo(B, A, answer, 5)), Ok(()));
        assert_eq!(world.flows.borrow().len(), 0);
        world.set(B, 0, NOTHING);
        assert_eq!(
            world.send(A, B, &echo(A, B, question, 5)),
            DENIED,
            "{question}"
        );
    }
}

#[test]
fn each_kind_of_question_gets_its_answer_and_none_is_one() {
    for (question, answer) in [(8, 0), (13, 14), (15, 16), (17, 18), (42, 43)] {
        let mut world = World::new().with(B, 0, NOTHING);
        assert_eq!(world.send(A, B, &echo(A, B, answer, 5)), DENIED);
        assert_eq!(world.send(B, A, &echo(B, A, question, 5)), Ok(()));
        assert_eq!(world.send(A, B, &echo(A, B, question, 5)), DENIED);
        assert_eq!(world.send(A, B, &echo(A, B, answer, 6)), DENIED);
        assert_eq!(world.send(A, B, &echo(A, B, answer, 5)), Ok(()));
    }
}

#[test]
fn no_other_message_opens_anything_for_the_other_end() {
    for kind in 0..=255 {
        if [8, 13, 15, 17, 42].contains(&kind) {
            continue;
        }
        let mut world = World::new().with(B, 0, NOTHING);
        assert_eq!(world.send(B, A, &echo(B, A, kind, 0)), Ok(()), "{kind}");
        for came in 0..=255 {
            let came = world.send(A, B, &echo(A, B, came, 0));
            assert_eq!(came, DENIED, "{kind}");
        }
    }
}

#[test]
fn a_ping_that_is_denied_now_denies_none_of_the_other_end() {
    let mut world = World::new().with(B, 0, PINGS);
    assert_eq!(world.send(A, B, &echo(A, B, 8, 5)), Ok(()));
    world.set(B, 0, NOTHING);
    assert_eq!(world.send(A, B, &echo(A, B, 8, 5)), DENIED);
    assert_eq!(world.send(B, A, &echo(B, A, 8, 5)), Ok(()));
    assert_eq!(world.send(A, B, &echo(A, B, 0, 5)), Ok(()));
}

#[test]
fn an_error_about_a_ping_passes_to_the_end_that_asked() {
    let mut world = World::new().with(A, PINGS, NOTHING);
    let asked = echo(A, B, 8, 5);
    assert_eq!(world.send(A, B, &asked), Ok(()));
    assert_eq!(world.send(B, A, &error(B, A, 3, &asked)), Ok(()));
    // About a reply that was never sent.
    let reply = echo(A, B, 0, 5);
    assert!(world.send(B, A, &error(B, A, 3, &reply)).is_err());
}

#[test]
fn an_error_about_a_connection_passes_with_it_c_ct_8() {
    let mut world = World::new().with(A, WEB, NOTHING).with(B, NOTHING, WEB);
    let sent = tcp((A, 40_000), (B, 80), SYN);
    assert_eq!(world.send(A, B, &sent), Ok(()));
    for kind in [3, 11, 12] {
        assert_eq!(
            world.send(B, A, &error(B, A, kind, &sent)),
            Ok(()),
            "{kind}"
        );
    }
    // A redirect is none.
    assert!(world.send(B, A, &error(B, A, 5, &sent)).is_err());
}

#[test]
fn a_forged_error_does_not_pass() {
    let mut world = World::new().with(A, WEB, NOTHING).with(B, NOTHING, WEB);
    let sent = tcp((A, 40_000), (B, 80), SYN);
    assert_eq!(world.send(A, B, &sent), Ok(()));
    // About a connection that is not there.
    let other = tcp((A, 40_001), (B, 80), SYN);
    assert!(world.send(B, A, &error(B, A, 3, &other)).is_err());
    // Of a third port, about the connection of two others.
    assert!(world.send(C, A, &error(C, A, 3, &sent)).is_err());
    // To the end that did not send what is quoted.
    assert!(world.send(A, B, &error(A, B, 3, &sent)).is_err());
    // Cut before the ports.
    let cut = error(B, A, 3, &sent[..14 + 20]);
    assert!(world.send(B, A, &cut).is_err());
    // About a later fragment.
    let mut later = sent.clone();
    later[14 + 7] = 1;
    assert!(world.send(B, A, &error(B, A, 3, &later)).is_err());
    assert_eq!(world.flows.borrow().len(), 1);
}

#[test]
fn a_router_in_between_may_send_the_error() {
    let mut world = World::new().with(A, WEB, NOTHING);
    let sent = tcp((A, 40_000), (B, 80), SYN);
    assert_eq!(world.send(A, B, &sent), Ok(()));
    let router = [192, 0, 2, 1];
    let told = error(router, A, 3, &sent);
    assert_eq!(world.receive(End::Outside, A, &told), Ok(()));
    assert_eq!(world.receive(End::Member, A, &told), DENIED);
}

#[test]
fn an_error_about_a_connection_that_was_cut_does_not_pass() {
    let mut world = World::new().with(A, WEB, NOTHING);
    let sent = tcp((A, 40_000), (B, 80), SYN);
    assert_eq!(world.send(A, B, &sent), Ok(()));
    world.set(A, NOTHING, NOTHING);
    let on = tcp((A, 40_000), (B, 80), ACK);
    assert_eq!(world.send(A, B, &on), Err(DropReason::PolicyEgress));
    assert_eq!(world.send(B, A, &error(B, A, 3, &sent)), DENIED);
}

#[test]
fn an_error_about_a_connection_waits_until_that_is_judged_by_new_policies() {
    let mut world = World::new().with(A, WEB, NOTHING).with(B, NOTHING, WEB);
    let sent = tcp((A, 40_000), (B, 80), SYN);
    assert_eq!(world.send(A, B, &sent), Ok(()));
    let told = error(B, A, 3, &sent);
    assert_eq!(world.send(B, A, &told), Ok(()));
    // Nothing of the connection has passed since: whether it still may is not known.
    world.set(B, NOTHING, WEB);
    assert!(world.send(B, A, &told).is_err());
    let on = tcp((A, 40_000), (B, 80), ACK);
    assert_eq!(world.send(A, B, &on), Ok(()));
    assert_eq!(world.send(B, A, &told), Ok(()));
    world.set(A, WEB, NOTHING);
    assert!(world.send(B, A, &told).is_err());
}

#[test]
fn icmpv6_in_ipv4_is_no_neighbour_discovery() {
    let mut world = World::new().with(B, 0, WEB);
    for kind in 133..=136 {
        let mut frame = ipv4(A, B, 58, (1, 0), &[kind, 0, 0, 0, 0, 0, 0, 0]);
        frame[14 + 8] = 255;
        assert_eq!(world.send(A, B, &frame), DENIED, "{kind}");
    }
}
