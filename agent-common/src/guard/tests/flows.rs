//! Connections of TCP and UDP.

use super::*;

const OTHER: ([u8; 4], u16) = (B, 81);

fn send(
    world: &mut World,
    from: ([u8; 4], u16),
    to: ([u8; 4], u16),
    flags: u8,
) -> Result<(), DropReason> {
    world.send(from.0, to.0, &tcp(from, to, flags))
}

fn connect(world: &mut World) {
    assert_eq!(send(world, CLIENT, SERVER, SYN), Ok(()));
    assert_eq!(send(world, SERVER, CLIENT, SYN_ACK), Ok(()));
    assert_eq!(send(world, CLIENT, SERVER, ACK), Ok(()));
}

#[test]
fn a_port_without_sets_costs_no_entry() {
    let mut world = World::new();
    connect(&mut world);
    assert!(world.flows.borrow().is_empty());
}

#[test]
fn a_connection_passes_in_both_directions_and_replies_need_no_rule_a_np_05() {
    // The server isolates what it receives and what it sends.
    let mut world = World::new().with(B, NOTHING, WEB);
    connect(&mut world);
    assert_eq!(world.flows.borrow().len(), 1);
    assert_eq!(send(&mut world, SERVER, CLIENT, FIN_ACK), Ok(()));
}

#[test]
fn a_port_that_no_rule_names_is_denied_and_leaves_no_entry_c_ct_3() {
    let mut world = World::new().with(B, 0, WEB);
    assert_eq!(send(&mut world, CLIENT, OTHER, SYN), REFUSED);
    assert!(world.flows.borrow().is_empty());
    // What would be the reply is a connection of its own, and free.
    assert_eq!(send(&mut world, OTHER, CLIENT, SYN), Ok(()));
}

#[test]
fn egress_is_judged_at_the_sender_and_ingress_at_the_receiver_a_np_03() {
    let mut world = World::new().with(A, NOTHING, 0);
    let denied = Err(DropReason::PolicyEgress);
    assert_eq!(send(&mut world, CLIENT, SERVER, SYN), denied);
    world.set(A, WEB, 0);
    assert_eq!(send(&mut world, CLIENT, SERVER, SYN), Ok(()));
    world.set(B, 0, NOTHING);
    assert_eq!(send(&mut world, CLIENT, SERVER, SYN), REFUSED);
}

/// Another processor may write the flags of a moment ago over those of the denial.
#[test]
fn a_denial_stays_when_a_race_loses_its_flag() {
    let mut world = World::new().with(B, 0, WEB);
    connect(&mut world);
    let (key, before) = { world.connections()[0] };
    world.set(B, 0, NOTHING);
    assert_eq!(send(&mut world, CLIENT, SERVER, ACK), REFUSED);
    let denied = world.flows.borrow()[&key];
    assert_eq!((denied.egress, denied.ingress), (DENIED, DENIED));
    let lost = FlowWords {
        flags: before.flags,
        ..denied
    };
    world.flows.borrow_mut().insert(key, lost);
    assert_eq!(send(&mut world, CLIENT, SERVER, ACK), REFUSED);
    assert_eq!(send(&mut world, SERVER, CLIENT, ACK), REFUSED);
}

#[test]
fn a_spoofed_reply_opens_nothing() {
    let mut world = World::new().with(B, 0, NOTHING);
    for flags in [SYN_ACK, ACK, FIN_ACK, RST, ACK | RST, 0, !SYN] {
        assert_eq!(
            send(&mut world, CLIENT, SERVER, flags),
            REFUSED,
            "{flags:#x}"
        );
    }
    assert_eq!(world.send(A, B, &udp((A, 53), (B, 4000))), REFUSED);
    assert!(world.flows.borrow().is_empty());
}

#[test]
fn a_syn_is_judged_whatever_entry_there_is_c_ct_4() {
    let mut world = World::new().with(B, 0, WEB);
    connect(&mut world);
    // The server's end of the same tuple opens one to the client, which allows none.
    world.set(A, 0, NOTHING);
    assert_eq!(send(&mut world, SERVER, CLIENT, SYN), REFUSED);
    // The connection goes on: A's ingress is not asked about what A opened.
    assert_eq!(send(&mut world, CLIENT, SERVER, ACK), Ok(()));
    assert_eq!(send(&mut world, SERVER, CLIENT, ACK), Ok(()));
}

#[test]
fn a_policy_that_changes_cuts_a_connection_in_both_directions() {
    let mut world = World::new().with(B, 0, WEB);
    connect(&mut world);
    world.set(B, 0, NOTHING);
    assert_eq!(send(&mut world, SERVER, CLIENT, ACK), REFUSED);
    assert_eq!(send(&mut world, CLIENT, SERVER, ACK), REFUSED);
    assert_eq!(send(&mut world, SERVER, CLIENT, ACK), REFUSED);
    assert_eq!(send(&mut world, CLIENT, SERVER, SYN), REFUSED);
    // And lets it go on when it changes back.
    world.set(B, 0, WEB);
    assert_eq!(send(&mut world, CLIENT, SERVER, ACK), Ok(()));
    assert_eq!(send(&mut world, SERVER, CLIENT, ACK), Ok(()));
}

#[test]
fn an_entry_that_is_judged_again_is_judged_as_the_opener_s() {
    let mut world = World::new().with(B, 0, WEB);
    connect(&mut world);
    // Another set that says the same: the reply is not taken for a connection to port 40000.
    world.set(B, NOTHING, ALL);
    assert_eq!(send(&mut world, SERVER, CLIENT, ACK), Ok(()));
}

#[test]
fn the_middle_of_a_connection_is_adopted_only_for_a_while_c_ct_6() {
    let mut world = World::new().with(B, 0, NOTHING);
    // B's own connection to A, from before: B only receives.
    assert_eq!(send(&mut world, CLIENT, SERVER, ACK), REFUSED);
    world.adopt(B);
    assert_eq!(send(&mut world, CLIENT, SERVER, SYN), REFUSED);
    assert_eq!(send(&mut world, CLIENT, SERVER, ACK), Ok(()));
    world.set(B, 0, NOTHING);
    assert_eq!(send(&mut world, CLIENT, SERVER, ACK), Ok(()));
    assert_eq!(send(&mut world, SERVER, CLIENT, ACK), Ok(()));
    // One in which B may not be the opener either is not.
    let mut world = World::new().with(B, NOTHING, NOTHING);
    world.adopt(B);
    assert_eq!(send(&mut world, CLIENT, SERVER, ACK), REFUSED);
}

#[test]
fn an_adopted_connection_is_the_client_s_whichever_end_sends_first() {
    let mut world = World::new().with(B, 0, WEB);
    world.adopt(B);
    assert_eq!(send(&mut world, SERVER, CLIENT, ACK), Ok(()));
    world.set(B, 0, NOTHING);
    assert_eq!(send(&mut world, SERVER, CLIENT, ACK), REFUSED);
    assert_eq!(send(&mut world, CLIENT, SERVER, ACK), REFUSED);
}

#[test]
fn an_idle_connection_ends_c_ct_7() {
    let answered = |world: &mut World| {
        assert_eq!(world.send(A, B, &udp(CLIENT, SERVER)), Ok(()));
        assert_eq!(world.send(B, A, &udp(SERVER, CLIENT)), Ok(()));
    };
    let mut world = World::new().with(B, NOTHING, WEB);
    answered(&mut world);
    world.later(112);
    assert_eq!(world.send(B, A, &udp(SERVER, CLIENT)), Ok(()));
    world.later(113);
    let denied = Err(DropReason::PolicyEgress);
    assert_eq!(world.send(B, A, &udp(SERVER, CLIENT)), denied);
    // Without an answer the entry is gone sooner.
    let mut world = World::new().with(B, NOTHING, WEB);
    assert_eq!(world.send(A, B, &udp(CLIENT, SERVER)), Ok(()));
    world.later(29);
    assert_eq!(world.send(B, A, &udp(SERVER, CLIENT)), denied);
    // A TCP connection lives for hours, and not after both ends have closed it.
    let mut world = World::new().with(B, NOTHING, WEB);
    connect(&mut world);
    world.later(20_000);
    assert_eq!(send(&mut world, SERVER, CLIENT, FIN_ACK), Ok(()));
    assert_eq!(send(&mut world, CLIENT, SERVER, FIN_ACK), Ok(()));
    world.later(11);
    assert_eq!(send(&mut world, SERVER, CLIENT, ACK), denied);
}

/// Two processors read the clock at other moments.
#[test]
fn a_connection_of_a_tick_that_is_to_come_goes_on() {
    let mut world = World::new().with(B, NOTHING, WEB);
    connect(&mut world);
    world.later(1);
    assert_eq!(send(&mut world, CLIENT, SERVER, ACK), Ok(()));
    world.now.set(world.now.get() - 1);
    world.jiffies.set(world.jiffies.get() + 1);
    // B may open none.
    assert_eq!(send(&mut world, SERVER, CLIENT, ACK), Ok(()));
    let seen: Vec<u32> = world
        .connections()
        .iter()
        .map(|(_, words)| words.seen)
        .collect();
    assert_eq!(seen, [1001], "the later time stays");
}

#[test]
fn a_reset_does_not_end_a_connection_that_goes_on_c_ct_5() {
    let mut world = World::new().with(B, NOTHING, WEB);
    connect(&mut world);
    assert_eq!(send(&mut world, CLIENT, SERVER, RST), Ok(()));
    assert_eq!(send(&mut world, SERVER, CLIENT, ACK), Ok(()));
}

#[test]
fn a_closed_connection_s_ports_are_used_again_at_once_c_ct_4() {
    let mut world = World::new().with(B, NOTHING, WEB);
    connect(&mut world);
    assert_eq!(send(&mut world, SERVER, CLIENT, FIN_ACK), Ok(()));
    assert_eq!(send(&mut world, CLIENT, SERVER, FIN_ACK), Ok(()));
    connect(&mut world);
    world.later(11);
    assert_eq!(send(&mut world, SERVER, CLIENT, ACK), Ok(()));
}

#[test]
fn who_opens_too_many_connections_opens_no_more_and_keeps_those_it_has_c_ct_11() {
    let mut world = World::new().with(B, 0, WEB);
    world.budget.set(1);
    connect(&mut world);
    let next = (A, 40_001);
    let refused = Err(DropReason::FlowLimit);
    assert_eq!(send(&mut world, next, SERVER, SYN), refused);
    assert_eq!(send(&mut world, CLIENT, SERVER, ACK), Ok(()));
    assert_eq!(world.flows.borrow().len(), 1);
}

#[test]
fn a_member_without_known_labels_is_let_pass_by_no_rule_with_peers() {
    let mut world = World::new().with(B, 0, WEB);
    assert_eq!(send(&mut world, (C, 40_000), SERVER, SYN), REFUSED);
}

#[test]
fn a_frame_of_another_node_is_judged_at_its_receiver() {
    let mut world = World::new().with(B, NOTHING, WEB);
    let syn = tcp(CLIENT, SERVER, SYN);
    assert_eq!(world.receive(End::Member, B, &syn), Ok(()));
    assert_eq!(send(&mut world, SERVER, CLIENT, SYN_ACK), Ok(()));
    let other = tcp(CLIENT, OTHER, SYN);
    assert_eq!(world.receive(End::Member, B, &other), REFUSED);
}

#[test]
fn a_port_is_judged_with_its_own_protocol() {
    let mut world = World::new().with(B, 0, WEB);
    assert_eq!(world.send(A, B, &udp(CLIENT, SERVER)), Ok(()));
    // SCTP port 80 is in no rule (A-NP-27).
    let sctp = ipv4(A, B, 132, (1, 0), &ports(40_000, 80));
    assert_eq!(world.send(A, B, &sctp), REFUSED);
    // A header that is not there.
    let short = ipv4(A, B, 17, (1, 0), &[1, 2]);
    assert_eq!(world.send(A, B, &short), Err(DropReason::Truncated));
}

/// A pod could make entries that live for hours by itself.
#[test]
fn the_middle_of_a_connection_is_answered_by_its_other_end_only() {
    let mut world = World::new().with(B, 0, WEB);
    let flags = |world: &World| world.connections()[0].1.flags & (FLOW_ANSWERED | FLOW_TCP);
    assert_eq!(send(&mut world, CLIENT, SERVER, ACK), Ok(()));
    assert_eq!(send(&mut world, CLIENT, SERVER, ACK), Ok(()));
    assert_eq!(flags(&world), FLOW_TCP);
    assert_eq!(send(&mut world, SERVER, CLIENT, ACK), Ok(()));
    assert_eq!(flags(&world), FLOW_TCP | FLOW_ANSWERED);
}
