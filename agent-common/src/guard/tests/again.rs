//! The connection of the packet before.

use super::*;
use crate::endpoint::ENDPOINT_REMOTE;

/// A may send to B's port 80, and nobody may send to A.
fn world() -> World {
    World::new().with(A, ALL, NOTHING).with(B, ALL, WEB)
}

/// Sends, and returns the verdict and how often a connection was looked up.
///
/// Not once where the first program lets the frame pass.
fn looked_up(
    world: &mut World,
    from: [u8; 4],
    to: [u8; 4],
    frame: &[u8],
) -> (Result<(), DropReason>, usize) {
    let before = world.looked.get();
    let verdict = world.send(from, to, frame);
    let looked = world.looked.get() - before;
    if world.repeated.get() {
        return (verdict, 0);
    }
    assert!(looked > 0 || verdict.is_err(), "it was to be judged");
    (verdict, looked)
}

/// Flags of the only connection.
fn flags(world: &World) -> u32 {
    let [(_, words)] = world.connections()[..] else {
        panic!("one connection");
    };
    words.flags
}

fn segment(flags: u8) -> Vec<u8> {
    tcp(CLIENT, SERVER, flags)
}

#[test]
fn it_is_looked_up_once_in_a_tick_of_the_kernels_timer() {
    let mut world = world();
    let (there, back) = (udp(CLIENT, SERVER), udp(SERVER, CLIENT));
    assert_eq!(looked_up(&mut world, A, B, &there), (Ok(()), 1));
    assert_eq!(looked_up(&mut world, A, B, &there), (Ok(()), 0));
    // The first answer is noted in the entry, the next ones have nothing to note.
    assert_eq!(looked_up(&mut world, B, A, &back), (Ok(()), 0));
    assert_eq!(flags(&world) & FLOW_ANSWERED, FLOW_ANSWERED);
    assert_eq!(looked_up(&mut world, B, A, &back), (Ok(()), 0));
    assert_eq!(looked_up(&mut world, A, B, &there), (Ok(()), 0));
    // Another one comes between.
    let other = udp((A, 40_001), SERVER);
    assert_eq!(looked_up(&mut world, A, B, &other), (Ok(()), 1));
    assert_eq!(looked_up(&mut world, A, B, &there), (Ok(()), 1));
    world.jiffies.set(2);
    assert_eq!(looked_up(&mut world, A, B, &there), (Ok(()), 1));
    world.later(1);
    assert_eq!(looked_up(&mut world, A, B, &there), (Ok(()), 1));
    let has_time = world
        .connections()
        .iter()
        .any(|(_, words)| words.seen == 1001);
    assert!(has_time, "the entry has the time of its last packet");
}

#[test]
fn it_is_judged_by_sets_that_change() {
    let mut world = world();
    let (there, back) = (udp(CLIENT, SERVER), udp(SERVER, CLIENT));
    assert_eq!(world.send(A, B, &there), Ok(()));
    assert_eq!(looked_up(&mut world, A, B, &there), (Ok(()), 0));
    world.set(B, ALL, NOTHING);
    assert_eq!(world.send(A, B, &there), REFUSED);
    assert_eq!(world.send(A, B, &there), REFUSED);
    assert_eq!(world.send(B, A, &back), REFUSED);
    world.set(B, ALL, WEB);
    assert_eq!(world.send(A, B, &there), Ok(()));
    assert_eq!(world.send(B, A, &back), Ok(()));
}

/// An opening is paid for, and makes an entry without an answer.
#[test]
fn it_is_opened_again_by_a_segment_that_opens() {
    let mut world = world();
    assert_eq!(world.send(A, B, &segment(SYN)), Ok(()));
    assert_eq!(world.send(B, A, &tcp(SERVER, CLIENT, SYN_ACK)), Ok(()));
    assert_eq!(looked_up(&mut world, A, B, &segment(ACK)), (Ok(()), 0));
    let paid = world.budget.get();
    assert_eq!(world.send(A, B, &segment(SYN)), Ok(()));
    assert!(!world.repeated.get());
    assert_eq!(world.budget.get(), paid - 1);
    assert_eq!(flags(&world) & FLOW_ANSWERED, 0);
}

#[test]
fn it_is_ended_in_its_entry_by_each_segment_that_ends() {
    for (ends, told) in [(FIN_ACK, FLOW_FIN_LOW), (RST, FLOW_RESET)] {
        let mut world = world();
        assert_eq!(world.send(A, B, &segment(SYN)), Ok(()));
        let answer = tcp(SERVER, CLIENT, SYN_ACK);
        assert_eq!(looked_up(&mut world, B, A, &answer), (Ok(()), 0));
        assert_eq!(looked_up(&mut world, A, B, &segment(ACK)), (Ok(()), 0));
        let before = flags(&world);
        assert_eq!(looked_up(&mut world, A, B, &segment(ends)), (Ok(()), 0));
        assert_eq!(flags(&world), before | told);
    }
}

/// One processor does not know what the other one has told the entry.
#[test]
fn it_is_ended_by_both_ends_on_two_processors() {
    let mut world = world();
    let mut other = Passage::EMPTY;
    assert_eq!(world.send(A, B, &segment(SYN)), Ok(()));
    let (answer, end) = (tcp(SERVER, CLIENT, SYN_ACK), tcp(SERVER, CLIENT, FIN_ACK));
    let answered = world.on_cpu(&mut other, |world| world.send(B, A, &answer));
    assert_eq!(answered, Ok(()));
    assert_eq!(looked_up(&mut world, A, B, &segment(FIN_ACK)), (Ok(()), 0));
    let ended = world.on_cpu(&mut other, |world| looked_up(world, B, A, &end));
    assert_eq!(ended, (Ok(()), 0));
    let both = FLOW_FIN_LOW | FLOW_FIN_HIGH | FLOW_ANSWERED;
    assert_eq!(flags(&world) & both, both);
}

/// Its entry is denied, of another opener, or gone.
#[test]
fn it_is_judged_where_its_entry_has_changed() {
    for change in [
        |words: &mut FlowWords| words.flags |= FLOW_DENIED,
        |words: &mut FlowWords| words.flags ^= FLOW_HIGH_OPENED,
    ] {
        let mut world = world();
        let answer = tcp(SERVER, CLIENT, SYN_ACK);
        assert_eq!(world.send(A, B, &segment(SYN)), Ok(()));
        world.flows.borrow_mut().values_mut().for_each(change);
        let _ = world.send(B, A, &answer);
        assert!(!world.repeated.get());
    }
    let mut world = world();
    assert_eq!(world.send(A, B, &segment(SYN)), Ok(()));
    world.flows.borrow_mut().clear();
    let _ = world.send(B, A, &tcp(SERVER, CLIENT, SYN_ACK));
    assert!(!world.repeated.get());
}

/// The client's packets come on one processor, the server's on another.
#[test]
fn a_connection_that_is_opened_anew_elsewhere_is_answered_in_its_entry() {
    let mut world = world();
    let mut other = Passage::EMPTY;
    let answer = tcp(SERVER, CLIENT, SYN_ACK);
    for _ in 0..2 {
        assert_eq!(world.send(A, B, &segment(SYN)), Ok(()));
        let answered = world.on_cpu(&mut other, |world| {
            let ack = world.send(B, A, &answer);
            world.send(B, A, &tcp(SERVER, CLIENT, ACK)).and(ack)
        });
        assert_eq!(answered, Ok(()));
        let words: Vec<FlowWords> = world.flows.borrow().values().copied().collect();
        assert!(
            words.iter().all(|it| it.flags & FLOW_ANSWERED != 0),
            "{words:?}"
        );
    }
}

#[test]
fn it_is_forgotten_where_there_was_no_room_for_it() {
    let mut world = world();
    let there = udp(CLIENT, SERVER);
    world.full.set(true);
    assert_eq!(looked_up(&mut world, A, B, &there), (Ok(()), 1));
    assert_eq!(looked_up(&mut world, A, B, &there), (Ok(()), 1));
    world.full.set(false);
    assert_eq!(looked_up(&mut world, A, B, &there), (Ok(()), 1));
    assert_eq!(looked_up(&mut world, A, B, &there), (Ok(()), 0));
}

/// The connection that an error quotes is not that of the packet before.
#[test]
fn an_error_between_has_it_looked_up_again() {
    let mut world = world();
    let (there, other) = (udp(CLIENT, SERVER), udp((A, 40_001), SERVER));
    assert_eq!(world.send(A, B, &there), Ok(()));
    assert_eq!(world.send(A, B, &other), Ok(()));
    let quote = there.get(14..42).unwrap();
    let error = [&[3, 3, 0, 0, 0, 0, 0, 0], quote].concat();
    let error = ipv4(B, A, 1, (1, 0), &error);
    assert_eq!(world.send(B, A, &error), Ok(()));
    assert_eq!(looked_up(&mut world, A, B, &there), (Ok(()), 1));
}

/// Reports what becomes of a frame of A after one of a connection to B.
fn again(change: impl FnOnce(&mut World, &mut Port, &mut Scratch) -> Act, frame: &[u8]) -> bool {
    let mut world = world();
    assert_eq!(world.send(A, B, &udp(CLIENT, SERVER)), Ok(()));
    assert_eq!(world.send(A, B, &udp(CLIENT, SERVER)), Ok(()));
    assert!(world.repeated.get());
    let mut scratch = Scratch::EMPTY;
    policy::read(frame, &mut scratch).unwrap();
    scratch.to = endpoint(B);
    scratch.route.network = NETWORK;
    let mut port = port(A);
    let act = change(&mut world, &mut port, &mut scratch);
    let mut passage = world.passage(port);
    repeats(frame, &port, act, &scratch, &world, &mut passage)
}

/// Has the packet before be one to a port without sets.
fn without_sets_at_b(world: &mut World) {
    world.guards.remove(&port_id(B));
    let there = udp(CLIENT, SERVER);
    assert_eq!(world.send(A, B, &there), Ok(()));
    assert_eq!(world.send(A, B, &there), Ok(()));
    assert!(world.repeated.get());
}

#[test]
fn what_is_not_as_the_packet_before_is_judged() {
    let frame = udp(CLIENT, SERVER);
    assert!(again(|_, _, _| Act::Route, &frame));
    for act in [
        Act::Moved,
        Act::Leave,
        Act::Node,
        Act::Wire,
        Act::WireRoute,
        Act::Flood,
    ] {
        assert!(!again(|_, _, _| act, &frame), "{act:?}");
    }
    let elsewhere = |world: &mut World, _: &mut Port, scratch: &mut Scratch| {
        without_sets_at_b(world);
        scratch.to.flags = ENDPOINT_REMOTE;
        Act::Route
    };
    assert!(!again(elsewhere, &frame));
    let in_another_network = |_: &mut World, port: &mut Port, scratch: &mut Scratch| {
        port.network += 1;
        scratch.route.network = port.network;
        Act::Route
    };
    assert!(!again(in_another_network, &frame));
    let switched = |world: &mut World, _: &mut Port, _: &mut Scratch| {
        world.guards.get_mut(&port_id(B)).unwrap().flags = GUARD_SWITCHED;
        Act::Route
    };
    assert!(!again(switched, &frame), "the switch is shown each packet");
    let to_another = |_: &mut World, _: &mut Port, scratch: &mut Scratch| {
        scratch.to = endpoint(C);
        Act::Route
    };
    assert!(!again(to_another, &frame), "other sets");
    let part = ipv4(A, B, 17, (1, 0x2000), frame.get(34..).unwrap());
    assert!(!again(|_, _, _| Act::Route, &part), "a fragment");
    for other in [
        udp((A, 40_001), SERVER),
        udp(CLIENT, (B, 81)),
        udp(CLIENT, (C, 80)),
    ] {
        assert!(!again(|_, _, _| Act::Route, &other));
    }
    let sctp = ipv4(A, B, 132, (1, 0), frame.get(34..).unwrap());
    assert!(!again(|_, _, _| Act::Route, &sctp), "another protocol");
}

/// The connection's packet to the station of another is no packet of it.
#[test]
fn a_stray_packet_is_judged() {
    let frame = udp(CLIENT, SERVER);
    let on_l2 = |_: &mut World, port: &mut Port, _: &mut Scratch| {
        port.flags = 0;
        Act::Switch
    };
    assert!(again(on_l2, &frame));
    let mut stray = frame;
    stray.splice(..6, mac(C).0);
    // Both receivers have no sets, so their stamps are the same.
    let open = |world: &mut World, port: &mut Port, scratch: &mut Scratch| {
        without_sets_at_b(world);
        scratch.to = endpoint(C);
        port.flags = 0;
        Act::Switch
    };
    assert!(!again(open, &stray));
}
