//! Describe other nodes and their members as this node knows them.

use std::net::IpAddr;
use std::sync::Arc;

use agent_common::addr::MacAddr;
pub use api::EndpointSlice as Slice;
use api::{EndpointPod, Transport};
use book::record::{NetworkFacts, SubnetFacts};
use k8s_openapi::jiff::SignedDuration;

/// Largest difference between clocks of honest nodes.
///
/// A claim that is dated later than this from now holds against no other.
pub const SKEW: SignedDuration = SignedDuration::from_secs(60);

/// Another node, and by which addresses tunnels reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub node: String,
    /// Its addresses: at most one of each family, at least one.
    pub vteps: Vec<IpAddr>,
}

impl Peer {
    /// The address of the node in the first family of `own` that it has too.
    pub fn address_for(&self, own: &[IpAddr]) -> Option<IpAddr> {
        let of_family = |ours: &IpAddr| {
            let mut theirs = self.vteps.iter();
            theirs.find(|it| it.is_ipv4() == ours.is_ipv4()).copied()
        };
        own.iter().find_map(of_family)
    }
}

/// A member of a network, on another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteEndpoint {
    /// Its MAC address; on L2, no other remote endpoint of the network has it.
    pub mac: MacAddr,
    /// Its addresses; no other remote endpoint of the network has one of them.
    pub ips: Vec<IpAddr>,
    /// The node it is on.
    pub peer: Arc<Peer>,
    /// Its pod, where its node says so; the slice's own.
    pub pod: Option<Arc<EndpointPod>>,
}

/// A network that has attachments on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Its number here.
    pub id: u32,
    /// Transport of its packets.
    pub transport: Transport,
    /// True for L3: members are found by their IP addresses alone.
    pub routed: bool,
    /// Its subnets, those that attachments here still have among them.
    pub subnets: Vec<SubnetFacts>,
}

impl From<&NetworkFacts> for Served {
    fn from(facts: &NetworkFacts) -> Self {
        Self {
            id: facts.id,
            transport: facts.transport,
            routed: facts.routed,
            subnets: facts.subnets.clone(),
        }
    }
}
