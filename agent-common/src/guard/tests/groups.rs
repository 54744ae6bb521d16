//! Frames for all, frames that are not IP, and stations on L2 networks.

use super::*;
use crate::port::PORT_ANY_IP;

fn on_l2(
    world: &World,
    from: [u8; 4],
    act: Act,
    to: [u8; 4],
    flags: u32,
    frame: &[u8],
) -> Result<(), DropReason> {
    let mut scratch = Scratch::EMPTY;
    policy::read(frame, &mut scratch).unwrap();
    scratch.to = endpoint(to);
    scratch.route.network = NETWORK;
    let sender = Port {
        flags,
        ..port(from)
    };
    let mut passage = world.passage(sender);
    depart(frame, act, &scratch, world, &mut passage)
}

#[test]
fn a_frame_for_all_is_judged_by_the_sender_s_set() {
    let group = udp((A, 40_000), ([224, 0, 0, 251], 5353));
    let send = |world: &World| on_l2(world, A, Act::Flood, B, 0, &group);
    let denied = Err(DropReason::PolicyEgress);
    assert_eq!(send(&World::new()), Ok(()));
    assert_eq!(send(&World::new().with(A, WEB, 0)), denied);
    assert_eq!(send(&World::new().with(A, ALL, NOTHING)), Ok(()));
    // One with the address of a pod would be for all others, too.
    let one = udp((A, 40_000), (B, 80));
    let world = World::new().with(A, ALL, NOTHING);
    assert_eq!(on_l2(&world, A, Act::Flood, B, 0, &one), denied);
    // It opens no connection.
    assert_eq!(send(&world), Ok(()));
    assert!(world.opened.borrow().is_empty());
}

#[test]
fn arp_always_passes_and_other_protocols_not_where_a_policy_speaks() {
    let frame = |ether_type: u16| {
        let mut frame = [mac(B).0, mac(A).0].concat();
        frame.extend(ether_type.to_be_bytes());
        frame.extend([0; 46]);
        frame
    };
    let (arp, other) = (frame(0x0806), frame(0x88b5));
    let long = [arp.as_slice(), &[0; 5]].concat();
    let sender = World::new().with(A, ALL, 0);
    let receiver = World::new().with(B, 0, ALL);
    for world in [&sender, &receiver] {
        assert_eq!(on_l2(world, A, Act::Switch, B, 0, &arp), Ok(()));
    }
    let egress = Err(DropReason::PolicyEgress);
    let ingress = Err(DropReason::PolicyIngress);
    assert_eq!(on_l2(&sender, A, Act::Switch, B, 0, &other), egress);
    assert_eq!(on_l2(&sender, A, Act::Flood, B, 0, &other), egress);
    assert_eq!(on_l2(&receiver, A, Act::Switch, B, 0, &other), ingress);
    assert_eq!(on_l2(&World::new(), A, Act::Switch, B, 0, &other), Ok(()));
    // ARP with something behind it.
    assert_eq!(on_l2(&sender, A, Act::Switch, B, 0, &long), egress);
    assert_eq!(on_l2(&receiver, A, Act::Switch, B, 0, &long), ingress);
}

#[test]
fn neighbour_discovery_always_passes_a_mnp_10() {
    let (source, group) = ([0xfe, 0x80], [0xff, 0x02]);
    let nd = |kind: u8, hops: u8| {
        let mut frame = [mac(B).0, mac(A).0].concat();
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, hops]);
        frame.extend(source);
        frame.extend([0; 13]);
        frame.extend([1]);
        frame.extend(group);
        frame.extend([0; 13]);
        frame.extend([2]);
        frame.extend([kind, 0, 0, 0]);
        frame.extend([0; 20]);
        frame
    };
    let world = World::new()
        .with(A, NOTHING, NOTHING)
        .with(B, NOTHING, NOTHING);
    for kind in [133, 135, 136] {
        assert_eq!(on_l2(&world, A, Act::Flood, B, 0, &nd(kind, 255)), Ok(()));
    }
    let denied = Err(DropReason::PolicyEgress);
    let long = [nd(136, 255).as_slice(), &[0; 25]].concat();
    assert_eq!(on_l2(&world, A, Act::Flood, B, 0, &long), denied);
    assert_eq!(on_l2(&world, A, Act::Flood, B, 0, &nd(135, 64)), denied);
    assert_eq!(on_l2(&world, A, Act::Flood, B, 0, &nd(128, 255)), denied);
}

#[test]
fn an_allowed_address_does_not_lead_to_another_station() {
    let world = World::new().with(A, WEB, 0);
    let right = udp((A, 40_000), (B, 80));
    assert_eq!(on_l2(&world, A, Act::Switch, B, 0, &right), Ok(()));
    // The packet is B's by address, and the frame is for C.
    let mut wrong = right.clone();
    wrong[..6].copy_from_slice(&mac(C).0);
    let denied = Err(DropReason::PolicyEgress);
    assert_eq!(on_l2(&world, A, Act::Switch, C, 0, &wrong), denied);
    // Of a network without addresses podnet cannot tell.
    assert_eq!(
        on_l2(&world, A, Act::Switch, C, PORT_ANY_IP, &wrong),
        Ok(())
    );
    // Where the receiver's address has moved, the frame is changed later.
    assert_eq!(on_l2(&world, A, Act::Moved, B, 0, &wrong), Ok(()));
}

#[test]
fn an_address_beyond_the_uplink_may_be_reached_there_only() {
    let world = World::new().with(A, ALL, 0);
    let beyond = udp((A, 40_000), ([192, 0, 2, 9], 80));
    assert_eq!(on_l2(&world, A, Act::Wire, B, 0, &beyond), Ok(()));
    let denied = Err(DropReason::PolicyEgress);
    assert_eq!(on_l2(&world, A, Act::Switch, B, 0, &beyond), denied);
}
