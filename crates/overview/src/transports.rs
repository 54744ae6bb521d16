//! Decides on the transport of each network: `status.transport`.
//!
//! - The transport that the parameters have, or that follows from their routing, is the network's.
//! - A network for which nothing is written spans the nodes: VXLAN.
//! - One that has a number already and no transport is of a version that kept it on its nodes, with pods
//!   attached to it: Local.
//! - A decision never changes: pods are attached by it.

use api::{Given, Network, PodNetwork, Routing, Transport, decided_transport};

/// Decides on the transport of a network with this in its status.
#[must_use]
pub fn decide(network: &Network, given: Given) -> Transport {
    decided_transport(network, given).unwrap_or(Transport::Vxlan)
}

/// Returns the transport that belongs into the status of a network.
///
/// It stays without a definition, and while the network is deleted none is decided on.
#[must_use]
pub fn kept(object: &PodNetwork, definition: Option<&Network>) -> Option<Transport> {
    let given = object.given();
    let wanted = definition.filter(|_| object.metadata.deletion_timestamp.is_none());
    let decided = wanted.map(|network| decide(network, given));
    given.transport.or(decided)
}

/// True for a network whose pods reach pods of their own node only.
///
/// With routing by the nodes they reach all of them without a transport.
#[must_use]
pub fn ends_at_the_node(definition: Option<&Network>, transport: Option<Transport>) -> bool {
    let isolated = definition.is_some_and(|network| network.routing == Routing::Isolated);
    isolated && transport == Some(Transport::Local)
}
