//! Holdings of nodes at the API server, by which their claims are judged. Pure.
//!
//! A slice is written by the node that it is about, so it proves nothing. These objects do: admission
//! policies bind a block and the reservation of a pod's address to the node that made it, and a node has
//! the addresses of its `Node`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use api::Prefix;
use k8s_openapi::jiff::Timestamp;

use super::peer::Served;

/// Lengths that a block can have, from the largest one: of IPv4, of IPv6.
const LENGTHS: [std::ops::RangeInclusive<u8>; 2] =
    [api::BLOCK_LEN_V4..=32, api::BLOCK_LEN_V6..=128];

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// When its object was made.
    pub made: Timestamp,
    /// Addresses by which it is reached.
    pub addresses: BTreeSet<IpAddr>,
}

/// A block of addresses that a node has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The addresses.
    pub cidr: Prefix,
    /// Name of the node.
    pub node: String,
    /// When it was taken.
    pub taken: Timestamp,
}

/// An address that was granted to a pod or a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The node of the pod; none for an `IPAMClaim`, which pods of any node use.
    pub node: Option<String>,
    /// The node that says it has granted it.
    pub granted_by: String,
    /// When it was asked for.
    pub made: Timestamp,
}

/// Values by network and address.
pub type ByAddress<T> = HashMap<String, HashMap<IpAddr, T>>;

/// How good a claim to an address is; the better one holds, whatever the dates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// No proof contradicts the claim.
    ///
    /// There is no cluster to ask, or a grant that the holder of the block may not have given.
    Said,
    /// The node holds the block.
    Block,
    /// It is reserved for a pod of the node, or for a claim, and granted.
    Reserved,
}

/// Why something that a node says does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// None of the addresses of its tunnels is its own.
    Vtep,
    /// The address is in no subnet of the network.
    Outside,
    /// The address is a gateway's.
    Gateway,
    /// No block and no reservation of the node has the address.
    NotHeld,
    /// A member without an address, where the network has subnets.
    NoAddress,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Vtep,
        Self::Outside,
        Self::Gateway,
        Self::NotHeld,
        Self::NoAddress,
    ];

    /// In one word, for metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Vtep => "vtep",
            Self::Outside => "outside",
            Self::Gateway => "gateway",
            Self::NotHeld => "not_held",
            Self::NoAddress => "no_address",
        }
    }

    /// In a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Vtep => {
                "no address of its tunnels is an InternalIP or ExternalIP of its Node, or in the \
                 Node's annotation podnet.dev/vteps"
            }
            Self::Outside => "the address is in no subnet of the network",
            Self::Gateway => "the address is the gateway's",
            Self::NotHeld => "no IPBlock or granted IPReservation of the node has the address",
            Self::NoAddress => "a member of a network with subnets has an address",
        }
    }
}

/// Everything that is known of that.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    nodes: BTreeMap<String, NodeFacts>,
    /// By which addresses tunnels may reach each node. An address is one node's.
    vteps: BTreeMap<String, BTreeSet<IpAddr>>,
    /// By their first addresses.
    blocks: ByAddress<Block>,
    reservations: ByAddress<Reservation>,
    /// Nodes, blocks and reservations have been read once.
    pub(super) read: [bool; 3],
}

impl Holdings {
    /// Sets the nodes, and keeps those that are gone and still `heard` of.
    ///
    /// They are where they were. Returns the names of the nodes whose addresses for tunnels have changed.
    pub(super) fn set_nodes(
        &mut self,
        nodes: BTreeMap<String, NodeFacts>,
        heard: impl Fn(&str) -> bool,
    ) -> BTreeSet<String> {
        self.read[0] = true;
        let mut gone = std::mem::take(&mut self.nodes);
        gone.retain(|name, _| !nodes.contains_key(name) && heard(name));
        // Of two that say they have an address, the one that was there first has it.
        let mut all: Vec<(bool, &String, &NodeFacts)> = Vec::new();
        all.extend(nodes.iter().map(|(name, facts)| (false, name, facts)));
        all.extend(gone.iter().map(|(name, facts)| (true, name, facts)));
        all.sort_by_key(|(is_gone, name, facts)| (*is_gone, facts.made, *name));
        let mut taken = BTreeSet::new();
        let mut vteps: BTreeMap<String, BTreeSet<IpAddr>> = BTreeMap::new();
        for (_, name, facts) in all {
            let own = facts.addresses.iter().filter(|ip| taken.insert(**ip));
            vteps.insert(name.clone(), own.copied().collect());
        }
        let before = std::mem::replace(&mut self.vteps, vteps);
        let names = before.keys().chain(self.vteps.keys());
        let changed = names
            .filter(|name| before.get(*name) != self.vteps.get(*name))
            .cloned()
            .collect();
        self.nodes = nodes;
        self.nodes.extend(gone);
        changed
    }

    /// All blocks that there are; the networks for which that is a change.
    pub(super) fn set_blocks(&mut self, all: ByAddress<Block>) -> BTreeSet<String> {
        self.read[1] = true;
        replace_all(&mut self.blocks, all)
    }

    /// Sets or removes the block that begins with this address; false without a change.
    pub(super) fn set_block(&mut self, network: &str, first: IpAddr, block: Option<Block>) -> bool {
        put(&mut self.blocks, network, first, block)
    }

    /// All reservations that were granted; the networks for which that is a change.
    pub(super) fn set_reservations(&mut self, all: ByAddress<Reservation>) -> BTreeSet<String> {
        self.read[2] = true;
        replace_all(&mut self.reservations, all)
    }

    /// Sets or removes the reservation of an address; false without a change.
    pub(super) fn set_reservation(
        &mut self,
        network: &str,
        ip: IpAddr,
        reservation: Option<Reservation>,
    ) -> bool {
        put(&mut self.reservations, network, ip, reservation)
    }

    /// Of these addresses those by which tunnels may reach a node.
    pub(super) fn vteps_of(&self, node: &str, said: &[IpAddr]) -> Vec<IpAddr> {
        let own = self.vteps.get(node);
        let is_own = |ip: &&IpAddr| own.is_some_and(|own| own.contains(*ip));
        said.iter().filter(is_own).copied().collect()
    }

    /// Finds the block of an address; of several, the one that was taken first.
    ///
    /// A node that takes a part of another's block gives it up again.
    fn block_of(&self, network: &str, ip: IpAddr) -> Option<&Block> {
        let blocks = self.blocks.get(network)?;
        let [v4, v6] = LENGTHS;
        let lengths = if ip.is_ipv4() { v4 } else { v6 };
        let first = |len| Some(Prefix::new(ip, len).ok()?.trunc().addr());
        let found = lengths.filter_map(|len| {
            let block = blocks.get(&first(len)?)?;
            (block.cidr.prefix_len() == len).then_some(block)
        });
        found.min_by_key(|block| (block.taken, block.cidr.prefix_len()))
    }

    /// How good a node's claim to an address is.
    fn standing(&self, network: &str, node: &str, ip: IpAddr) -> Result<Standing, Refusal> {
        let block = self.block_of(network, ip);
        let has_block = block.is_some_and(|block| block.node == node);
        let reservations = self.reservations.get(network);
        let reservation = reservations.and_then(|all| all.get(&ip));
        let by_reservation = reservation
            .filter(|it| it.node.as_deref().is_none_or(|other| other == node))
            .map(|it| {
                // A later holder of the block keeps to what was granted before: it looks first. What is
                // granted after that, and not by it, may be in use.
                let is_granted =
                    block.is_none_or(|block| it.granted_by == block.node || it.made < block.taken);
                if is_granted {
                    Standing::Reserved
                } else {
                    Standing::Said
                }
            });
        let by_block = has_block.then_some(Standing::Block);
        by_reservation.max(by_block).ok_or(Refusal::NotHeld)
    }
}

/// Judges what nodes say of one network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judge<'a> {
    /// None where there is no cluster: then what nodes say counts.
    pub(super) holdings: Option<&'a Holdings>,
    /// Name of the network.
    pub(super) network: &'a str,
    pub(super) served: &'a Served,
}

impl Judge<'_> {
    /// How good a node's claim to an address is.
    pub(super) fn standing(&self, node: &str, ip: IpAddr) -> Result<Standing, Refusal> {
        let Some(holdings) = self.holdings else {
            return Ok(Standing::Said);
        };
        let mut subnets = self.served.subnets.iter();
        if subnets.any(|subnet| subnet.gateway == Some(ip)) {
            return Err(Refusal::Gateway);
        }
        let mut subnets = self.served.subnets.iter();
        if !subnets.any(|subnet| subnet.prefix.contains(&ip)) {
            return Err(Refusal::Outside);
        }
        holdings.standing(self.network, node, ip)
    }

    /// Whether a member needs an address to count.
    pub(super) fn wants_address(&self) -> bool {
        self.holdings.is_some() && !self.served.subnets.is_empty()
    }
}

fn replace_all<T: PartialEq>(known: &mut ByAddress<T>, all: ByAddress<T>) -> BTreeSet<String> {
    let before = std::mem::replace(known, all);
    let names: BTreeSet<&String> = before.keys().chain(known.keys()).collect();
    names
        .into_iter()
        .filter(|name| before.get(*name) != known.get(*name))
        .cloned()
        .collect()
}

fn put<T: PartialEq>(
    known: &mut ByAddress<T>,
    network: &str,
    ip: IpAddr,
    value: Option<T>,
) -> bool {
    let Some(value) = value else {
        let Some(of_network) = known.get_mut(network) else {
            return false;
        };
        let was_there = of_network.remove(&ip).is_some();
        if of_network.is_empty() {
            known.remove(network);
        }
        return was_there;
    };
    let of_network = known.entry(network.to_owned()).or_default();
    if of_network.get(&ip) == Some(&value) {
        return false;
    }
    of_network.insert(ip, value);
    true
}

#[cfg(test)]
mod tests;
