//! Ask rules and tables the same question.

use policy::{Direction, Network, PeerEnd, Policy, Traffic, World, judge};

/// Whether a member's traffic with another end may pass, by its rules.
///
/// The tables must agree. `subject` is its index in the world, and one of those that `tables` was compiled for.
pub(crate) fn passes(
    (world, policies, tables): (&World, &[Policy], &Network),
    (direction, subject): (Direction, usize),
    peer: PeerEnd<'_>,
    traffic: Traffic,
) -> bool {
    let member = &world.members[subject];
    let decision = judge(world, policies, direction, member, peer, traffic);
    let guard = tables.guards[&subject];
    let set = match direction {
        Direction::Ingress => guard.ingress,
        Direction::Egress => guard.egress,
    };
    let (PeerEnd::Member(_, address) | PeerEnd::Address(address)) = peer;
    let found = tables.allows(set, tables.atom(address), traffic);
    assert_eq!(found, decision.allows(), "{peer:?}: {decision:?}");
    found
}
