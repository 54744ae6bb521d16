//! Atoms: ends that the rules of a network cannot tell apart.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::bits::Bits;
use super::numbers::Numbers;
use super::prefixes::Prefixes;
use super::shape::Shape;
use super::{Atom, CompileError, UNKNOWN};
use crate::model::Protocol;
use crate::world::{Node, Workload};

/// All that rules can tell of an end by labels, and names of its ports.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Part {
    /// Numbers of the peers that it is.
    pub(super) peers: Bits,
    /// Numbers of its ports, by the numbers of names that it has, ascending.
    ports: Vec<(u32, BTreeSet<(Protocol, u16)>)>,
}

impl Part {
    /// Returns the part of a workload that is such peers.
    pub(super) fn of(shape: &Shape, peers: Bits, workload: &Workload) -> Self {
        let names = shape.egress_names.iter();
        let mut ports: Vec<_> = names
            .filter_map(|((protocol, name), number)| {
                let found: BTreeSet<_> = workload.numbers(*protocol, name).collect();
                (!found.is_empty()).then_some((*number, found))
            })
            .collect();
        ports.sort_unstable();
        Self { peers, ports }
    }

    /// Returns the ports that it gives a name.
    pub(super) fn numbers(&self, name: u32) -> impl Iterator<Item = (Protocol, u16)> {
        let found = self.ports.iter().filter(move |(it, _)| *it == name);
        found.flat_map(|(_, ports)| ports.iter().copied())
    }
}

/// Number of a part, and of a set of blocks.
type Signature = (u32, u32);

/// The atoms of a network.
#[derive(Debug, Default)]
pub(super) struct Atoms {
    pub(super) parts: Numbers<Arc<Part>>,
    within: Numbers<Arc<Bits>>,
    /// Their numbers are one below those of atoms.
    ///
    /// The first atom is the unknown one.
    signatures: Numbers<Signature>,
    prefixes: Prefixes,
    /// The shape that the prefixes are of.
    version: u64,
}

/// Atoms of addresses.
pub(super) struct Found {
    pub(super) identities: BTreeMap<IpAddr, Atom>,
    pub(super) blocks: Vec<(ipnet::IpNet, Atom)>,
    /// Atoms in use, ascending, without the unknown one.
    pub(super) present: Vec<Atom>,
}

impl Atoms {
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.parts.things().len() + self.within.things().len() + self.signatures.things().len()
    }

    /// Finds the atoms of all addresses.
    ///
    /// `members` has the part of each address of members; `None`: it is not known.
    ///
    /// # Errors
    /// There are more than `most`.
    pub(super) fn find(
        &mut self,
        shape: &Shape,
        nodes: &[Node],
        members: impl Iterator<Item = (IpAddr, Option<u32>)>,
        most: usize,
    ) -> Result<Found, CompileError> {
        if self.version != shape.version {
            self.prefixes = Prefixes::of(&shape.blocks, &mut self.within);
            self.version = shape.version;
        }
        for (_, number) in &self.prefixes.list {
            self.within.touch(*number);
        }
        let nothing = self.parts.number(Arc::default());
        let nodes = nodes_of(shape, nodes).into_iter().map(|(address, peers)| {
            let ports = Vec::new();
            let part = self.parts.number(Arc::new(Part { peers, ports }));
            (address, Some(part))
        });
        // An address of a pod that a node has too is the pod's on this network.
        let mut ends: Vec<(IpAddr, Option<u32>)> = nodes.chain(members).collect();
        ends.sort_by_key(|(address, _)| *address);
        let mut identities = Vec::with_capacity(ends.len());
        let mut ends = ends.into_iter().peekable();
        while let Some((address, part)) = ends.next() {
            if ends.peek().is_some_and(|(next, _)| *next == address) {
                continue;
            }
            let atom = part.map_or(UNKNOWN, |part| {
                let within = self.prefixes.of_address(address);
                self.signatures.number((part, within)) + 1
            });
            identities.push((address, atom));
        }
        let blocks = self.prefixes.list.iter();
        let blocks = blocks
            .map(|(net, within)| (*net, self.signatures.number((nothing, *within)) + 1))
            .collect();
        let present: Vec<Atom> = self.signatures.all_used().map(|it| it + 1).collect();
        if present.len() >= most {
            let found = present.len();
            return Err(CompileError::TooManyAtoms { found });
        }
        Ok(Found {
            identities: identities.into_iter().collect(),
            blocks,
            present,
        })
    }

    /// Returns what rules can tell of an atom.
    pub(super) fn facts(&self, atom: Atom) -> Option<(&Part, &Bits)> {
        let (part, within) = self.signatures.get(atom.checked_sub(1)?)?;
        Some((self.parts.get(*part)?, self.within.get(*within)?))
    }

    /// One more than the highest number of an atom.
    pub(super) fn end(&self) -> usize {
        self.signatures.things().len() + 1
    }

    /// Forgets what is not in use.
    pub(super) fn sweep(&mut self) {
        self.parts.sweep();
        self.within.sweep();
        self.signatures.sweep();
    }
}

/// Returns the peers that each address of a node is.
fn nodes_of(shape: &Shape, nodes: &[Node]) -> BTreeMap<IpAddr, Bits> {
    let mut found: BTreeMap<IpAddr, Bits> = BTreeMap::new();
    for node in nodes {
        let peers = shape.nodes.iter();
        let peers: Vec<u32> = peers
            .filter(|(selector, _)| selector.matches(&node.labels))
            .map(|(_, number)| *number)
            .collect();
        for address in &node.addresses {
            let known = found.entry(*address).or_default();
            peers.iter().for_each(|number| known.add(*number));
        }
    }
    found
}
