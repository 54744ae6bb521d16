//! Atoms: ends that the rules of a network cannot tell apart.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{Atom, CompileError, MAX_ATOMS, UNKNOWN, by_number, longest, number};
use crate::labels::Labels;
use crate::model::{Peer, Policy, Ports, Protocol};
use crate::world::{Member, NamedPort, World};

/// A named port, as egress rules ask for it.
type Name = (Option<Protocol>, String);

/// Facts about a member that its atom depends on, with its addresses.
type Workload<'a> = (&'a str, &'a Labels, &'a [NamedPort]);

/// All that rules can tell of an end by labels, and names of its ports.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    /// Indexes of the peers that it is.
    peers: BTreeSet<usize>,
    /// Numbers of its ports, for the indexes of names that it has.
    ports: BTreeMap<usize, BTreeSet<(Protocol, u16)>>,
}

/// Number of a part, and of a set of blocks.
type Signature = (u32, u32);

/// The atoms of a network.
pub(super) struct Atoms {
    pub(super) identities: BTreeMap<IpAddr, Atom>,
    pub(super) blocks: Vec<(IpNet, Atom)>,
    /// Peers of rules, each once.
    peers: BTreeMap<Peer, usize>,
    /// Names of ports in egress rules, each once.
    names: BTreeMap<Name, usize>,
    parts: Vec<Part>,
    /// Indexes of the blocks that an address is in.
    within: Vec<BTreeSet<usize>>,
    /// By number, without the unknown one.
    signatures: Vec<Signature>,
}

impl Atoms {
    /// Finds the atoms of all addresses.
    ///
    /// # Errors
    /// There are more than [`MAX_ATOMS`].
    pub(super) fn of(world: &World, policies: &[Policy]) -> Result<Self, CompileError> {
        let (peers, names) = (peers(policies), names(policies));
        let (mut parts, mut within) = (BTreeMap::new(), BTreeMap::new());
        let nothing = number(&mut parts, Part::default());
        let prefixes: Vec<(IpNet, u32)> = prefixes(&peers)
            .into_iter()
            .map(|net| (net, number(&mut within, blocks_of(&peers, net))))
            .collect();
        let block_of = |address: IpAddr| longest(&prefixes, address);
        let mut found: BTreeMap<IpAddr, Option<Signature>> = BTreeMap::new();
        for address in world.nodes.iter().flat_map(|node| &node.addresses) {
            let part = Part {
                peers: matching(&peers, |peer| world.is_node(peer, *address)),
                ports: BTreeMap::new(),
            };
            let part = number(&mut parts, part);
            found.insert(*address, Some((part, block_of(*address))));
        }
        // An address of a pod that a node has too is the pod's on this network.
        let mut workloads: BTreeMap<Workload<'_>, u32> = BTreeMap::new();
        for member in &world.members {
            let part = world.knows(member).then(|| {
                let workload = (
                    member.namespace.as_str(),
                    &member.labels,
                    member.ports.as_slice(),
                );
                *workloads
                    .entry(workload)
                    .or_insert_with(|| number(&mut parts, part_of(world, member, &peers, &names)))
            });
            for address in &member.addresses {
                found.insert(*address, part.map(|part| (part, block_of(*address))));
            }
        }
        let outside = prefixes.iter().map(|(_, blocks)| (nothing, *blocks));
        let all: BTreeSet<Signature> = found.values().flatten().copied().chain(outside).collect();
        if all.len() >= MAX_ATOMS {
            return Err(CompileError::TooManyAtoms { found: all.len() });
        }
        let numbers: BTreeMap<Signature, Atom> =
            (1..).zip(&all).map(|(at, one)| (*one, at)).collect();
        let atom = |signature: Signature| numbers.get(&signature).copied().unwrap_or(UNKNOWN);
        Ok(Self {
            identities: found
                .into_iter()
                .map(|(address, it)| (address, it.map_or(UNKNOWN, atom)))
                .collect(),
            blocks: prefixes
                .iter()
                .map(|(net, blocks)| (*net, atom((nothing, *blocks))))
                .collect(),
            peers,
            names,
            parts: by_number(parts),
            within: by_number(within),
            signatures: all.into_iter().collect(),
        })
    }

    /// How many there are, with the unknown one.
    pub(super) fn count(&self) -> Atom {
        Atom::try_from(self.signatures.len() + 1).unwrap_or(Atom::MAX)
    }

    /// Whether all ends of an atom are a peer; never so of the unknown one.
    pub(super) fn is(&self, atom: Atom, peer: &Peer) -> bool {
        let Some(((part, within), index)) = self.facts(atom).zip(self.peers.get(peer)) else {
            return false;
        };
        part.peers.contains(index) || within.contains(index)
    }

    /// The numbers that the ends of an atom give a name.
    pub(super) fn numbers(
        &self,
        atom: Atom,
        protocol: Option<Protocol>,
        name: &str,
    ) -> Vec<(Protocol, u16)> {
        let index = self.names.get(&(protocol, name.to_owned()));
        let found = self.facts(atom).zip(index);
        let ports = found.and_then(|((part, _), index)| part.ports.get(index));
        ports.into_iter().flatten().copied().collect()
    }

    fn facts(&self, atom: Atom) -> Option<(&Part, &BTreeSet<usize>)> {
        let index = usize::try_from(atom).ok()?.checked_sub(1)?;
        let (part, within) = self.signatures.get(index)?;
        let part = self.parts.get(*part as usize)?;
        Some((part, self.within.get(*within as usize)?))
    }
}

fn part_of(
    world: &World,
    member: &Member,
    peers: &BTreeMap<Peer, usize>,
    names: &BTreeMap<Name, usize>,
) -> Part {
    let ports = names.iter().filter_map(|((protocol, name), index)| {
        let numbers: BTreeSet<_> = member.numbers(*protocol, name).collect();
        (!numbers.is_empty()).then_some((*index, numbers))
    });
    Part {
        peers: matching(peers, |peer| match peer {
            Peer::Pods(pods) => world.selects(pods, member),
            Peer::Block(_) | Peer::Nodes(_) => false,
        }),
        ports: ports.collect(),
    }
}

fn matching(peers: &BTreeMap<Peer, usize>, is: impl Fn(&Peer) -> bool) -> BTreeSet<usize> {
    let found = peers.iter().filter(|(peer, _)| is(peer));
    found.map(|(_, index)| *index).collect()
}

/// Returns the blocks that a prefix is in.
///
/// All addresses are in them that no longer one of [`prefixes`] has.
fn blocks_of(peers: &BTreeMap<Peer, usize>, net: IpNet) -> BTreeSet<usize> {
    matching(peers, |peer| match peer {
        Peer::Block(block) => {
            let out = block.except.iter().any(|it| it.contains(&net));
            block.cidr.contains(&net) && !out
        }
        Peer::Pods(_) | Peer::Nodes(_) => false,
    })
}

/// The prefixes of all blocks and their exceptions, and of all addresses.
fn prefixes(peers: &BTreeMap<Peer, usize>) -> BTreeSet<IpNet> {
    let blocks = peers.keys().filter_map(|peer| match peer {
        Peer::Block(block) => Some(block),
        Peer::Pods(_) | Peer::Nodes(_) => None,
    });
    let written = blocks.flat_map(|block| block.except.iter().chain([&block.cidr]));
    let whole = [
        Ipv4Net::new(Ipv4Addr::UNSPECIFIED, 0).ok().map(IpNet::V4),
        Ipv6Net::new(Ipv6Addr::UNSPECIFIED, 0).ok().map(IpNet::V6),
    ];
    written
        .map(IpNet::trunc)
        .chain(whole.into_iter().flatten())
        .collect()
}

fn peers(policies: &[Policy]) -> BTreeMap<Peer, usize> {
    let rules = policies
        .iter()
        .flat_map(|policy| policy.ingress.iter().chain(&policy.egress));
    let all: BTreeSet<Peer> = rules
        .flat_map(|rule| rule.peers.iter().flatten())
        .cloned()
        .collect();
    all.into_iter().zip(0..).collect()
}

fn names(policies: &[Policy]) -> BTreeMap<Name, usize> {
    let rules = policies.iter().flat_map(|policy| &policy.egress);
    let all: BTreeSet<Name> = rules
        .flat_map(|rule| rule.ports.iter().flatten())
        .filter_map(|ports| match ports {
            Ports::Named(protocol, name) => Some((*protocol, name.clone())),
            Ports::Range(..) => None,
        })
        .collect();
    all.into_iter().zip(0..).collect()
}
