//! The traffic that was allowed last.

use super::*;

/// A may send to B's port 80, and nobody may send to A.
fn world() -> World {
    World::new().with(A, ALL, NOTHING).with(B, ALL, WEB)
}

/// Sends, and returns the verdict and whether sets were asked.
fn asks(
    world: &mut World,
    from: [u8; 4],
    to: [u8; 4],
    frame: &[u8],
) -> (Result<(), DropReason>, bool) {
    let before = world.rows.get();
    let verdict = world.send(from, to, frame);
    (verdict, world.rows.get() != before)
}

fn opening(port: u16, to: ([u8; 4], u16)) -> Vec<u8> {
    tcp((A, port), to, SYN)
}

#[test]
fn it_is_allowed_from_another_port_without_asking_the_sets() {
    let mut world = world();
    assert_eq!(
        asks(&mut world, A, B, &opening(40_000, SERVER)),
        (Ok(()), true)
    );
    for port in 40_001..40_010 {
        let before = world.budget.get();
        assert_eq!(
            asks(&mut world, A, B, &opening(port, SERVER)),
            (Ok(()), false)
        );
        assert_eq!(world.budget.get(), before - 1, "it is paid for");
    }
    assert_eq!(world.connections().len(), 10);
}

/// An address that becomes a member's changes no stamp of other ports.
#[test]
fn sets_are_asked_what_an_address_is_in_the_next_tick() {
    let mut world = World::new().with(B, ALL, WEB);
    assert_eq!(world.send(A, B, &opening(40_000, SERVER)), Ok(()));
    world.atom_of_a.set(ATOM_REST);
    world.jiffies.set(2);
    let next = opening(40_001, SERVER);
    assert_eq!(asks(&mut world, A, B, &next), (REFUSED, true));
}

#[test]
fn sets_are_asked_for_any_other_end_port_protocol_or_direction() {
    let mut world = world();
    let there = opening(40_000, SERVER);
    assert_eq!(world.send(A, B, &there), Ok(()));
    let refused = [
        (A, B, opening(40_001, (B, 81))),
        (A, B, udp((A, 40_001), (B, 81))),
        (C, B, tcp((C, 40_001), SERVER, SYN)),
        (B, A, tcp((B, 80), (A, 81), SYN)),
        (B, A, tcp((B, 40_001), (A, 80), SYN)),
    ];
    for (from, to, frame) in refused {
        assert_eq!(asks(&mut world, from, to, &frame), (REFUSED, true));
    }
    // What was refused is nothing that is allowed, and has left what was.
    let again = opening(40_001, SERVER);
    assert_eq!(asks(&mut world, A, B, &again), (Ok(()), false));
    let other = udp((A, 40_001), SERVER);
    assert_eq!(asks(&mut world, A, B, &other), (Ok(()), true));
}

/// Ends without a set have no stamp that would tell them apart.
#[test]
fn sets_are_asked_for_another_end_without_sets() {
    let mut world = World::new().with(B, ALL, WEB);
    assert_eq!(world.send(A, B, &opening(40_000, SERVER)), Ok(()));
    let frame = tcp((C, 40_000), SERVER, SYN);
    assert_eq!(asks(&mut world, C, B, &frame), (REFUSED, true));
    let mut world = World::new().with(A, WEB, ALL);
    assert_eq!(world.send(A, B, &opening(40_000, SERVER)), Ok(()));
    let frame = opening(40_000, (C, 80));
    let refused = Err(DropReason::PolicyEgress);
    assert_eq!(asks(&mut world, A, C, &frame), (refused, true));
}

#[test]
fn sets_that_change_are_asked() {
    let mut world = world();
    assert_eq!(world.send(A, B, &opening(40_000, SERVER)), Ok(()));
    for change in [(B, ALL, WEB), (A, ALL, NOTHING)] {
        world.set(change.0, change.1, change.2);
        let next = opening(40_001, SERVER);
        assert_eq!(asks(&mut world, A, B, &next), (Ok(()), true));
    }
    world.set(B, ALL, NOTHING);
    let next = opening(40_002, SERVER);
    assert_eq!(asks(&mut world, A, B, &next), (REFUSED, true));
    assert_eq!(asks(&mut world, A, B, &next), (REFUSED, true));
}

/// A connection that was adopted may be of the other direction.
#[test]
fn a_middle_that_was_adopted_lets_nothing_be_opened() {
    let mut world = World::new().with(A, NOTHING, ALL).with(B, ALL, NOTHING);
    world.adopt(A);
    // B has opened it, from the higher port.
    let middle = tcp((A, 80), (B, 40_000), ACK);
    assert_eq!(world.send(A, B, &middle), Ok(()));
    let (opening, refused) = (tcp((A, 80), (B, 40_000), SYN), DropReason::PolicyEgress);
    assert_eq!(world.send(A, B, &opening), Err(refused));
}

#[test]
fn it_is_of_one_network() {
    let mut tuple = Tuple::EMPTY;
    (tuple.source, tuple.destination) = (Ip16::from_v4(A), Ip16::from_v4(B));
    (tuple.source_port, tuple.destination_port, tuple.protocol) = (40_000, 80, 6);
    let mut allowed = Allowed::NOTHING;
    allowed.keep(NETWORK, &tuple, (1, 2));
    assert!(allowed.is_for(NETWORK, &tuple, (1, 2)));
    assert!(!allowed.is_for(NETWORK + 1, &tuple, (1, 2)));
    for by in [(0, 2), (1, 0), (2, 1), (0, 0)] {
        assert!(!allowed.is_for(NETWORK, &tuple, by), "{by:?}");
    }
}
