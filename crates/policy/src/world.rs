//! Members of one network, with the labels that policies ask for.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::labels::Labels;
use crate::model::{Block, Namespaces, Peer, Pods, Protocol};

/// A named port of a container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedPort {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub number: u16,
}

/// Facts about a pod that policies ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workload {
    /// Namespace of the pod.
    pub namespace: String,
    /// Labels of the pod.
    pub labels: Labels,
    /// Named ports of its containers, those of restartable init containers too.
    pub ports: Vec<NamedPort>,
}

/// A pod's port on the network.
///
/// Pods that have ended and pods of the host's network are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    /// Facts that pods of one workload share, best as one value ([`Workloads`]).
    pub workload: Arc<Workload>,
    /// Its addresses on this network.
    pub addresses: Vec<IpAddr>,
}

/// Workloads, each once, for members to share.
#[derive(Debug, Default)]
pub struct Workloads(HashSet<Arc<Workload>>);

impl Workloads {
    /// Returns the one value that is equal.
    pub fn share(&mut self, workload: Workload) -> Arc<Workload> {
        if let Some(known) = self.0.get(&workload) {
            return Arc::clone(known);
        }
        let shared = Arc::new(workload);
        self.0.insert(Arc::clone(&shared));
        shared
    }

    /// Forgets those that no member has any more.
    pub fn sweep(&mut self) {
        self.0.retain(|workload| Arc::strong_count(workload) > 1);
    }

    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// A node of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Its labels.
    pub labels: Labels,
    /// All of its addresses.
    pub addresses: Vec<IpAddr>,
}

/// One network at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct World {
    /// Labels of namespaces, by name. A member of another one is unknown to all rules.
    pub namespaces: BTreeMap<String, Labels>,
    /// Ports of pods on all nodes.
    pub members: Vec<Member>,
    /// The nodes.
    pub nodes: Vec<Node>,
}

impl World {
    /// Reports whether a member's namespace, and so what selects it, is known.
    pub fn knows(&self, member: &Member) -> bool {
        self.namespaces.contains_key(&member.workload.namespace)
    }

    /// Reports whether a selection has this member.
    pub fn selects(&self, pods: &Pods, member: &Member) -> bool {
        let workload = &member.workload;
        let inside = match &pods.namespaces {
            Namespaces::Named(name) => *name == workload.namespace,
            Namespaces::Matching(selector) => self
                .namespaces
                .get(&workload.namespace)
                .is_some_and(|labels| selector.matches(labels)),
        };
        inside && pods.pods.matches(&workload.labels)
    }

    /// Reports whether a rule's peer is this member at this address.
    pub(crate) fn is_member(&self, peer: &Peer, member: &Member, address: IpAddr) -> bool {
        match peer {
            Peer::Pods(pods) => self.selects(pods, member),
            Peer::Block(block) => block.has(address),
            Peer::Nodes(_) => false,
        }
    }

    /// Reports whether a rule's peer is an address that no member has.
    pub(crate) fn is_address(&self, peer: &Peer, address: IpAddr) -> bool {
        match peer {
            Peer::Block(block) => block.has(address),
            Peer::Pods(_) | Peer::Nodes(_) => self.is_node(peer, address),
        }
    }

    /// Reports whether a rule's peer is nodes, and one of these has this address.
    pub(crate) fn is_node(&self, peer: &Peer, address: IpAddr) -> bool {
        let Peer::Nodes(selector) = peer else {
            return false;
        };
        self.nodes
            .iter()
            .any(|node| node.addresses.contains(&address) && selector.matches(&node.labels))
    }
}

impl Workload {
    /// The numbers that a name has, of one protocol or of any.
    pub(crate) fn numbers(
        &self,
        protocol: Option<Protocol>,
        name: &str,
    ) -> impl Iterator<Item = (Protocol, u16)> {
        self.ports
            .iter()
            .filter(move |port| port.name == name && protocol.is_none_or(|it| it == port.protocol))
            .map(|port| (port.protocol, port.number))
    }
}

impl Block {
    /// Reports whether an address is in the block and in none of its exceptions.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.cidr.contains(&address) && !self.except.iter().any(|it| it.contains(&address))
    }
}
