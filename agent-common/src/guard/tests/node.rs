//! Packets that the node's stack carries.

use super::*;

/// A host outside, and the node: no member has these addresses.
const HOST: [u8; 4] = [192, 0, 2, 1];
/// An address that the node translates to that of B.
const SERVICE: [u8; 4] = [10, 96, 0, 1];

const INGRESS: Result<(), DropReason> = Err(DropReason::PolicyIngress);
const EGRESS: Result<(), DropReason> = Err(DropReason::PolicyEgress);

fn from(ip: [u8; 4]) -> Origin {
    Origin::Port(port_id(ip))
}

#[test]
fn both_ends_are_judged_when_a_pod_sends_and_are_known_when_it_arrives() {
    let mut world = World::new().with(A, WEB, 0).with(B, 0, WEB);
    let frame = udp((A, 5), (B, 80));
    assert_eq!(world.hand_over(A, &frame), Ok(()));
    world.budget.set(0);
    // The entry has both stamps: no other is opened.
    assert_eq!(world.deliver(from(A), B, &frame), Ok(()));
    assert_eq!(world.flows.borrow().len(), 1);
    assert_eq!(world.hand_over(A, &udp((A, 5), (B, 81))), EGRESS);
    assert_eq!(world.hand_over(B, &udp((B, 80), (A, 5))), Ok(()));
}

#[test]
fn a_translated_packet_is_judged_by_the_address_and_port_that_it_arrives_with() {
    let mut world = World::new().with(B, 0, WEB);
    let called = udp((A, 5), (SERVICE, 8000));
    assert_eq!(world.hand_over(A, &called), Ok(()));
    assert_eq!(world.deliver(from(A), B, &udp((A, 5), (B, 80))), Ok(()));
    assert_eq!(world.deliver(from(A), B, &udp((A, 6), (B, 81))), INGRESS);
    // The reply of a guarded backend comes with the Service's address.
    let mut world = World::new().with(A, ALL, NOTHING).with(B, NOTHING, WEB);
    assert_eq!(world.hand_over(A, &called), Ok(()));
    assert_eq!(world.deliver(from(A), B, &udp((A, 5), (B, 80))), Ok(()));
    assert_eq!(world.hand_over(B, &udp((B, 80), (A, 5))), Ok(()));
    let reply = udp((SERVICE, 8000), (A, 5));
    assert_eq!(world.deliver(from(B), A, &reply), Ok(()));
}

#[test]
fn no_other_link_brings_packets_of_a_pod_of_this_node() {
    let mut world = World::new().with(B, 0, WEB);
    let frame = udp((A, 5), (B, 80));
    let spoofed = Err(DropReason::SpoofedIp);
    assert_eq!(world.deliver(Origin::Elsewhere, B, &frame), spoofed);
    assert_eq!(world.deliver(from(C), B, &frame), spoofed);
    assert_eq!(world.deliver(from(A), B, &frame), Ok(()));
}

/// The pod's first policy may come between the two.
#[test]
fn the_node_s_answer_to_a_ping_keeps_nothing_open_for_the_pod() {
    let ping = |from, to, kind| ipv4(from, to, 1, (1, 0), &[kind, 0, 0, 0, 0, 5, 0, 1]);
    let mut world = World::new().with(B, NOTHING, NOTHING);
    let answer = ping(HOST, B, 0);
    assert_eq!(world.deliver(Origin::Node, B, &answer), Ok(()));
    assert_eq!(world.hand_over(B, &ping(B, HOST, 8)), EGRESS);
    // Its own ping is answered.
    assert_eq!(world.deliver(Origin::Node, B, &ping(HOST, B, 8)), Ok(()));
    assert_eq!(world.hand_over(B, &ping(B, HOST, 0)), Ok(()));
}

#[test]
fn what_the_node_made_passes_with_its_replies_and_nothing_else_does_a_np_35() {
    let mut world = World::new().with(B, NOTHING, NOTHING);
    world.budget.set(0);
    let probe = udp((HOST, 5), (B, 80));
    assert_eq!(world.deliver(Origin::Elsewhere, B, &probe), INGRESS);
    assert_eq!(world.deliver(Origin::Node, B, &probe), Ok(()));
    assert_eq!(world.hand_over(B, &udp((B, 80), (HOST, 5))), Ok(()));
    assert_eq!(world.hand_over(B, &udp((B, 81), (HOST, 5))), EGRESS);
    // Another set does not end it, whichever packet comes first.
    world.set(B, NOTHING, NOTHING);
    assert_eq!(world.hand_over(B, &udp((B, 80), (HOST, 5))), Ok(()));
    world.set(B, NOTHING, NOTHING);
    assert_eq!(world.deliver(Origin::Node, B, &probe), Ok(()));
    // Whoever opens it anew is judged.
    let syn = tcp((HOST, 5), (B, 80), SYN);
    assert_eq!(world.deliver(Origin::Node, B, &syn), Ok(()));
    assert_eq!(
        world.hand_over(B, &tcp((B, 80), (HOST, 5), SYN_ACK)),
        Ok(())
    );
    assert_eq!(world.deliver(Origin::Elsewhere, B, &syn), INGRESS);
    assert_eq!(world.hand_over(B, &tcp((B, 80), (HOST, 5), SYN)), EGRESS);
}

#[test]
fn a_reply_of_the_node_is_part_of_the_pods_connection_and_ends_with_it() {
    let mut world = World::new().with(B, ALL, NOTHING);
    world.budget.set(1);
    assert_eq!(world.hand_over(B, &udp((B, 5), (HOST, 53))), Ok(()));
    let reply = udp((HOST, 53), (B, 5));
    assert_eq!(world.deliver(Origin::Node, B, &reply), Ok(()));
    world.set(B, NOTHING, NOTHING);
    assert_eq!(world.deliver(Origin::Node, B, &reply), EGRESS);
    assert_eq!(world.hand_over(B, &udp((B, 5), (HOST, 53))), EGRESS);
}

#[test]
fn the_middle_of_a_pods_connection_to_the_node_is_not_the_nodes() {
    let mut world = World::new().with(B, NOTHING, NOTHING);
    // The pod's connection to port 53 of the node was there before its first policy.
    let answer = tcp((HOST, 53), (B, 40_000), ACK);
    assert_eq!(world.deliver(Origin::Node, B, &answer), EGRESS);
    assert_eq!(
        world.hand_over(B, &tcp((B, 40_000), (HOST, 53), ACK)),
        EGRESS
    );
    // And that of a probe goes on.
    let probe = tcp((HOST, 40_000), (B, 80), ACK);
    assert_eq!(world.deliver(Origin::Node, B, &probe), Ok(()));
    assert_eq!(
        world.hand_over(B, &tcp((B, 80), (HOST, 40_000), ACK)),
        Ok(())
    );
}

#[test]
fn a_pod_that_no_policy_selects_gets_what_the_stack_lets_pass() {
    let mut world = World::new().with(A, NOTHING, NOTHING);
    assert_eq!(
        world.deliver(Origin::Elsewhere, B, &udp((A, 5), (B, 80))),
        Ok(())
    );
    let mut cut = udp((HOST, 5), (B, 80));
    cut.truncate(20);
    assert_eq!(world.deliver(Origin::Elsewhere, B, &cut), Ok(()));
}

/// IPv6 makes fragments again, and forgets where they came in.
#[test]
fn a_fragment_of_ipv6_is_not_taken_for_the_nodes() {
    let mut frame = [mac(B).0, mac(A).0].concat();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 44, 64]);
    let host = [0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let pod = [0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    frame.extend(host);
    frame.extend(pod);
    frame.extend([17, 0, 0, 1, 0, 0, 0, 9]);
    frame.extend(ports(5, 80));
    frame.extend([0, 40, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let mut world = World::new().with(B, NOTHING, NOTHING);
    assert_eq!(world.deliver(Origin::Node, B, &frame), INGRESS);
    assert!(world.flows.borrow().is_empty());
}
