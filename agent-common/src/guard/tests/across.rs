//! Connections between networks that are routed to each other.

use super::*;

/// A server of the other network.
const FAR: ([u8; 4], u16) = (D, 80);

#[test]
fn answers_from_another_network_need_no_rule_and_questions_do() {
    let mut world = World::new().with(A, ALL, NOTHING);
    assert_eq!(world.send(D, A, &tcp(FAR, CLIENT, SYN)), REFUSED);
    assert_eq!(world.send(A, D, &tcp(CLIENT, FAR, SYN)), Ok(()));
    assert_eq!(world.send(D, A, &tcp(FAR, CLIENT, SYN_ACK)), Ok(()));
    // In both directions as the packet before, without judging.
    assert_eq!(world.send(A, D, &tcp(CLIENT, FAR, 0x10)), Ok(()));
    assert_eq!(world.send(A, D, &tcp(CLIENT, FAR, 0x10)), Ok(()));
    assert!(world.repeated.get());
    assert_eq!(world.flows.borrow().len(), 1, "one connection of both");
}

#[test]
fn a_member_of_another_network_is_what_blocks_say_of_its_address() {
    let mut world = World::new().with(A, ALL, 0);
    // One of this network without known labels is nothing until they are.
    let to_c = tcp(CLIENT, (C, 80), SYN);
    assert_eq!(world.send(A, C, &to_c), Err(DropReason::PolicyEgress));
    assert_eq!(world.send(A, D, &tcp(CLIENT, FAR, SYN)), Ok(()));
    world.set(A, WEB, 0);
    let refused = Err(DropReason::PolicyEgress);
    assert_eq!(world.send(A, D, &tcp(CLIENT, FAR, SYN)), refused);
    // So at the other end.
    world.set(A, 0, 0);
    world.set(D, 0, WEB);
    assert_eq!(
        world.send(A, D, &tcp(CLIENT, FAR, SYN)),
        Ok(()),
        "A has an atom there, too"
    );
    assert_eq!(world.send(C, D, &tcp((C, 1), FAR, SYN)), REFUSED);
    world.set(D, 0, ALL);
    assert_eq!(world.send(C, D, &tcp((C, 1), FAR, SYN)), Ok(()));
}

#[test]
fn what_another_node_sends_from_another_network_is_of_the_same_connection() {
    let mut world = World::new().with(A, ALL, NOTHING);
    let answer = tcp(FAR, CLIENT, SYN_ACK);
    assert_eq!(world.receive(End::Member, A, &answer), REFUSED);
    assert_eq!(world.send(A, D, &tcp(CLIENT, FAR, SYN)), Ok(()));
    assert_eq!(world.receive(End::Member, A, &answer), Ok(()));
    // And seen from the network with the lower number.
    let mut world = World::new().with(D, ALL, NOTHING);
    let answer = tcp(CLIENT, FAR, SYN_ACK);
    assert_eq!(world.receive(End::Member, D, &answer), REFUSED);
    assert_eq!(world.send(D, A, &tcp(FAR, CLIENT, SYN)), Ok(()));
    assert_eq!(world.receive(End::Member, D, &answer), Ok(()));
    assert_eq!(world.flows.borrow().len(), 1);
}

#[test]
fn an_error_about_a_packet_to_another_network_belongs_to_its_connection() {
    let mut world = World::new().with(A, ALL, NOTHING);
    let question = udp(CLIENT, FAR);
    let quoted = &question[14..14 + 28];
    let error = ipv4(
        D,
        A,
        1,
        (1, 0),
        &[&[3, 3, 0, 0, 0, 0, 0, 0], quoted].concat(),
    );
    assert_eq!(world.send(D, A, &error), REFUSED);
    assert_eq!(world.send(A, D, &question), Ok(()));
    assert_eq!(world.send(D, A, &error), Ok(()));
    assert_eq!(world.receive(End::Member, A, &error), Ok(()));
}

/// The network in a connection's key keeps those of other VPCs apart.
#[test]
fn connections_of_networks_that_are_not_routed_to_each_other_are_apart() {
    let mut world = World::new().with(A, ALL, NOTHING);
    assert_eq!(world.send(A, D, &tcp(CLIENT, FAR, SYN)), Ok(()));
    let keys: Vec<u32> = world.connections().iter().map(|it| it.0.network).collect();
    assert_eq!(keys, [ROUTED.min(NETWORK)]);
    assert_eq!(world.send(A, B, &tcp(CLIENT, SERVER, SYN)), Ok(()));
    let keys: Vec<u32> = world.connections().iter().map(|it| it.0.network).collect();
    assert_eq!(keys, [ROUTED, NETWORK]);
}
