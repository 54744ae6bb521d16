//! Prove that sending and receiving node judge an L2 frame alike.
//!
//! Over the table of packets, each of whose senders is taken for a pod of another node.

use super::*;
use crate::cases::{self, BLUE, Case, GREY, RED, View, World};
use crate::policy::Decision;

/// The node that the sender of a case is on.
const VTEP: u32 = 5;

/// The world of the cases as another node has it, where the sender is not.
struct There<'a> {
    world: View<'a>,
    sender: u32,
}

impl There<'_> {
    fn turn(&self, found: Option<Endpoint>) -> Option<Endpoint> {
        found.map(|found| {
            if found.ifindex != self.sender {
                return found;
            }
            Endpoint {
                ifindex: VTEP,
                flags: ENDPOINT_REMOTE,
                ..found
            }
        })
    }
}

impl Tables for There<'_> {
    fn is_further_address(&self, ip: &Ip16) -> bool {
        self.world.is_further_address(ip)
    }

    fn endpoint(&self, network: u32, ip: &Ip16) -> Option<Endpoint> {
        self.turn(self.world.endpoint(network, ip))
    }

    fn station(&self, network: u32, mac: MacAddr) -> Option<Endpoint> {
        self.turn(self.world.station(network, mac))
    }
}

fn arrives(world: &World, case: &Case) -> Arrival {
    let network = case.sender.network;
    let flags = if network == GREY { NETWORK_ANY_IP } else { 0 };
    let tables = There {
        world: world.seen_by(case.sender.ifindex),
        sender: case.sender.ifindex,
    };
    let origin = Origin {
        network,
        vtep: VTEP,
    };
    arrive(case, &Network::new(flags, 1500), origin, &tables)
}

/// Cases of L2 networks that have no uplink, and so may have tunnels.
fn switched() -> impl Iterator<Item = Case> {
    cases::all()
        .into_iter()
        .filter(|case| [BLUE, RED, GREY].contains(&case.sender.network))
}

#[test]
fn what_a_pod_may_send_arrives_on_another_node() {
    let world = World::new();
    let mut seen = 0;
    for case in switched() {
        let expected = match case.decision {
            Decision::Switch(to) => Arrival::Deliver(to),
            Decision::Flood => Arrival::Flood,
            _ => continue,
        };
        assert_eq!(arrives(&world, &case), expected, "{}", case.name);
        seen += 1;
    }
    assert!(seen > 40, "{seen} cases");
}

#[test]
fn what_a_pod_may_not_send_does_not_arrive_from_a_node_that_lies() {
    let world = World::new();
    let mut seen = 0;
    for case in switched() {
        let Decision::Drop(reason) = case.decision else {
            continue;
        };
        // That there is a tag beside the frame is known of no frame in a tunnel.
        if case.vlan_tag {
            continue;
        }
        let arrival = arrives(&world, &case);
        let dropped = matches!(arrival, Arrival::Drop(_));
        // A question that the sending node answers, or that nobody can, is none to fear.
        let asked = reason == DropReason::NoEndpoint && arrival == Arrival::Flood;
        assert!(dropped || asked, "{}: {arrival:?}, not {reason}", case.name);
        seen += 1;
    }
    assert!(seen > 100, "{seen} cases");
}
