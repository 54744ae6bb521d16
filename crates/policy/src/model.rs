//! Policies of all kinds, in one form.

use std::fmt;

use ipnet::IpNet;

use crate::labels::Selector;

/// The kind of an object that a policy was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `networking.k8s.io/v1` NetworkPolicy.
    NetworkPolicy,
    /// `k8s.cni.cncf.io` MultiNetworkPolicy.
    MultiNetworkPolicy,
    /// `policy.networking.k8s.io` ClusterNetworkPolicy.
    ClusterNetworkPolicy,
}

/// The object that a policy was read from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for kinds of the cluster.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for PolicyId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            namespace,
            name,
        } = self;
        match namespace.as_str() {
            "" => write!(out, "{kind:?} {name}"),
            namespace => write!(out, "{kind:?} {namespace}/{name}"),
        }
    }
}

/// The way of a packet, as its judged end sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// To the end that is judged.
    Ingress,
    /// From the end that is judged.
    Egress,
}

/// A transport protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// Protocol 6.
    Tcp,
    /// Protocol 17.
    Udp,
    /// Protocol 132.
    Sctp,
}

impl Protocol {
    /// All of them, in the order of their tables.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// Place in [`Self::ALL`].
    pub const fn index(self) -> usize {
        match self {
            Self::Tcp => 0,
            Self::Udp => 1,
            Self::Sctp => 2,
        }
    }
}

/// The order in which policies are asked; the first that decides is obeyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// ClusterNetworkPolicy of the tier Admin.
    Admin,
    /// NetworkPolicy and MultiNetworkPolicy.
    ///
    /// One that selects an end denies what none of them accepts.
    Network,
    /// ClusterNetworkPolicy of the tier Baseline.
    Baseline,
}

/// The outcome of a rule that matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// The packet may pass in this direction.
    Accept,
    /// The packet is dropped.
    Deny,
    /// The rest of the tier is left out.
    Pass,
}

/// Namespaces of pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Namespaces {
    /// The one of this name.
    Named(String),
    /// All with such labels.
    Matching(Selector),
}

/// Pods of some namespaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pods {
    /// The namespaces.
    pub namespaces: Namespaces,
    /// Labels of the pods.
    pub pods: Selector,
}

/// Addresses of a network without some of its parts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// The addresses.
    pub cidr: IpNet,
    /// Parts that are left out; inside of `cidr`.
    pub except: Vec<IpNet>,
}

/// The other end of a packet, as a rule names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// Pods, by labels.
    Pods(Pods),
    /// Addresses, of pods too.
    Block(Block),
    /// Nodes, by labels.
    Nodes(Selector),
}

/// Ports of the destination.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ports {
    /// From the first to the last, of one protocol.
    Range(Protocol, u16, u16),
    /// The ports that the destination pod gives this name, of one protocol or of any.
    Named(Option<Protocol>, String),
}

/// A rule of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The outcome if it matches.
    pub action: Action,
    /// The other ends; `None`: any.
    pub peers: Option<Vec<Peer>>,
    /// Ports of the destination; `None`: any traffic, of any protocol.
    pub ports: Option<Vec<Ports>>,
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The object that it was read from.
    pub id: PolicyId,
    /// Its tier.
    pub tier: Tier,
    /// Its place in its tier, the lowest first; 0 in [`Tier::Network`].
    pub priority: u16,
    /// Pods that it is for.
    pub subject: Pods,
    /// Whether these receive only what a policy of [`Tier::Network`] accepts.
    pub isolates_ingress: bool,
    /// Whether these send only what a policy of [`Tier::Network`] accepts.
    pub isolates_egress: bool,
    /// Rules for what they receive.
    pub ingress: Vec<Rule>,
    /// Rules for what they send.
    pub egress: Vec<Rule>,
}

impl Policy {
    /// Its rules for a direction.
    pub fn rules(&self, direction: Direction) -> &[Rule] {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }

    /// Whether its subject may do only what is accepted in a direction.
    pub const fn isolates(&self, direction: Direction) -> bool {
        match direction {
            Direction::Ingress => self.isolates_ingress,
            Direction::Egress => self.isolates_egress,
        }
    }
}
