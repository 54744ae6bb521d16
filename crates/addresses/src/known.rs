//! Inputs of the machine: copies, the book and the node, as plain data.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::{IpBlock, IpReservation, Network, Prefix};
use book::ledger::{Ledger, Wanted};
use book::record::PodIdentity;
use world::World;

/// Copies as the watches have them now.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// The reason why they say nothing, if they do not.
    pub unread: Option<String>,
    /// UID of this node's object.
    pub node_uid: Option<String>,
    /// Blocks with this node's name.
    pub blocks: Vec<Arc<IpBlock>>,
    /// Reservations of all nodes.
    pub reservations: Vec<Arc<IpReservation>>,
    /// Members that other nodes may believe to be here.
    pub said: Said,
    /// Networks.
    pub world: Arc<World>,
}

/// Addresses that other nodes may believe to be on this node, by its slices.
///
/// None of them may become another node's before the slices say so no more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Said {
    /// The slices were not read yet: it may be any address.
    Unread,
    /// None: this cluster has no slices.
    #[default]
    Nothing,
    /// These, by network.
    Members(BTreeSet<(String, IpAddr)>),
}

impl Said {
    /// True when one of these addresses of a network may have been said.
    pub(super) fn has(&self, network: &str, addresses: &Prefix) -> bool {
        match self {
            Self::Unread => true,
            Self::Nothing => false,
            Self::Members(members) => members
                .iter()
                .any(|(of, ip)| of == network && addresses.contains(ip)),
        }
    }
}

/// Addresses that the book has given.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// By network.
    given: BTreeMap<String, BTreeMap<IpAddr, Bearer>>,
    /// The network that the node routes for, and what of it is the node's alone.
    own: Option<(String, Vec<Prefix>)>,
}

/// The pod or the container that has an address.
#[derive(Debug, Clone)]
pub(super) struct Bearer {
    pub(super) pod: Option<PodIdentity>,
    container: String,
}

impl Given {
    /// Reads them from a book.
    pub fn of(ledger: &Ledger) -> Self {
        let own = ledger.own();
        let mut given = Self {
            own: own.map(|(network, blocks)| (network.to_owned(), blocks.to_vec())),
            ..Self::default()
        };
        for record in ledger.entries().map(|entry| &entry.record) {
            let of_network = given.given.entry(record.network.name.clone()).or_default();
            of_network.extend(record.leases.iter().map(|lease| {
                let bearer = Bearer {
                    pod: record.pod.clone(),
                    container: record.key.container.to_string(),
                };
                (lease.address, bearer)
            }));
        }
        given
    }

    /// Makes those of one container with an address.
    #[cfg(test)]
    pub(super) fn holding(network: &str, ip: IpAddr) -> Self {
        let bearer = Bearer {
            pod: None,
            container: "c1".to_owned(),
        };
        Self {
            given: BTreeMap::from([(network.to_owned(), BTreeMap::from([(ip, bearer)]))]),
            own: None,
        }
    }

    /// Counts those of a block.
    pub(super) fn of_block(&self, network: &str, block: &Prefix) -> u64 {
        let of_network = self.given.get(network).into_iter().flatten();
        let given = of_network.filter(|(ip, _)| block.contains(*ip));
        u64::try_from(given.count()).unwrap_or(u64::MAX)
    }

    /// Finds the bearer of an address.
    pub(super) fn bearer(&self, network: &str, ip: IpAddr) -> Option<&Bearer> {
        self.given.get(network)?.get(&ip)
    }

    /// Returns the prefixes of a network that belong to the node alone.
    ///
    /// They do not depend on blocks. A network that the node does not route for has none.
    pub(super) fn own(&self, network: &str) -> Option<&[Prefix]> {
        let own = self.own.as_ref().filter(|(of, _)| of == network);
        own.map(|(_, prefixes)| prefixes.as_slice())
    }

    /// Names the networks with attachments.
    pub(super) fn networks(&self) -> impl Iterator<Item = &String> {
        self.given.keys()
    }
}

impl Bearer {
    /// Describes it for people on other nodes.
    pub(super) fn describe(&self, node: &str) -> String {
        match &self.pod {
            Some(pod) => format!("pod {}/{} on node {node}", pod.namespace, pod.name),
            None => format!("container {} on node {node}", self.container),
        }
    }
}

/// The node at one moment.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The book is complete: all records were read.
    pub ready: bool,
    /// Attachments that are expected soon, by network.
    pub expected: BTreeMap<String, u64>,
    /// Addresses that are given.
    pub given: Given,
}

/// An attachment that wants addresses.
#[derive(Debug, Clone)]
pub struct Wish {
    /// As it was asked for.
    pub wanted: Wanted,
    /// Its network.
    pub network: Network,
    /// Addresses of it by name that need no reservation.
    pub ours: BTreeSet<IpAddr>,
}
