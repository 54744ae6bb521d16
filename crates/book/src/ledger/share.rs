//! Share of a network's addresses that is this node's to give.
//!
//! Other nodes give of the network, too.
//!
//! The rules, and why no address can be given twice in a cluster:
//!
//! 1. An address that nobody asked for by name is given by the node that holds its block, from its
//!    own book. A block has one holder: it is an object with a name made of the addresses.
//! 2. An address with a reservation is given to nobody but the reservation's holder, by anybody who
//!    knows of it. It has one holder: it is an object with a name made of the address.
//! 3. A reservation serves when it is granted, and the holder of the block grants it, after a look
//!    into its book, and after the book knows of the reservation. So either the address was given
//!    before, and the grant is refused, or it is not given any more.
//! 4. Who takes a block reads the reservations from the API server itself before it gives anything of
//!    it (`Share::blocks` has no block for which that was not done). Whoever granted any held the block
//!    before, so the reservation is older than the block's change of hands, and is read.
//! 5. Blocks are of several lengths, so two may overlap under two names. Before it reads reservations,
//!    who takes a block reads all blocks, and gives nothing of its own while another has part of it.
//!    Of two that overlap one was made later, and whoever made that one reads both: the other may be
//!    in use. So the newcomer gives way, and an agent that starts anew, and cannot tell which it is,
//!    gives way unless its pods have addresses of the block.
//! 6. A block is given back when nothing of it is given, and not before this book has forgotten it.
//!    A reservation is deleted when the address is not in use any more, and not before this book has
//!    forgotten that it was granted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use api::{Holder, Network, Prefix};
use ipam::{Allocator, IpamError, Request};

use super::{Ledger, choose};
use crate::record::Attachment;
use crate::{AddressError, BookError};

/// Blocks of a network that are this node's, and all reservations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Share {
    /// Blocks from which this node gives; none twice.
    pub blocks: Vec<Prefix>,
    /// Reservations in the whole cluster.
    pub reserved: BTreeMap<IpAddr, Reserved>,
}

/// A reserved address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    /// Holder of the address.
    pub holder: Holder,
    /// True when the holder of the block has agreed.
    pub granted: bool,
}

/// From what an attachment to a network may get its addresses.
pub(super) struct Scope<'a> {
    network: &'a str,
    /// None where there are no other nodes, and all is ours.
    share: Option<&'a Share>,
    picked: &'a BTreeMap<(String, IpAddr), Holder>,
}

/// A network of which this node has nothing.
static NOTHING: Share = Share {
    blocks: Vec::new(),
    reserved: BTreeMap::new(),
};

/// Returns this node's share of a network: routed ones come before shared ones.
pub(super) fn of<'a>(
    own: Option<&'a (String, Share)>,
    shares: Option<&'a HashMap<String, Share>>,
    network: &str,
) -> Option<&'a Share> {
    if let Some((_, own)) = own.filter(|(name, _)| name == network) {
        return Some(own);
    }
    Some(shares?.get(network).unwrap_or(&NOTHING))
}

impl<'a> Scope<'a> {
    pub(super) fn new(
        share: Option<&'a Share>,
        picked: &'a BTreeMap<(String, IpAddr), Holder>,
        network: &'a str,
    ) -> Self {
        Self {
            network,
            share,
            picked,
        }
    }

    /// Succeeds when `holder` may get the addresses.
    ///
    /// Addresses without a reservation go to anybody.
    pub(super) fn check(
        &self,
        requests: &[Request],
        holder: Option<&Holder>,
    ) -> Result<(), BookError> {
        let Some(share) = self.share else {
            return Ok(());
        };
        for ip in requests.iter().map(|request| request.address) {
            let reserved = share.reserved.get(&ip);
            let picked = self.picked.get(&(self.network.to_owned(), ip));
            let owner = reserved.map(|reserved| &reserved.holder).or(picked);
            let is_theirs = owner.zip(holder).is_some_and(|(a, b)| a.is_same(b));
            if let Some(owner) = owner.filter(|_| !is_theirs) {
                return Err(AddressError::reserved(self.network, ip, owner).into());
            }
            // Without a reservation it is like any address of the block.
            let is_ours = owner.is_none() && share.has(ip);
            if !is_ours && !reserved.is_some_and(|reserved| reserved.granted) {
                return Err(AddressError::NotGranted {
                    network: self.network.to_owned(),
                    ip,
                    node: None,
                }
                .into());
            }
        }
        Ok(())
    }

    /// Checked requests, and one free address of each family that has none.
    pub(super) fn allocate(
        &self,
        allocator: &mut Allocator,
        requests: &[Request],
        given: &HashSet<IpAddr>,
    ) -> Result<Vec<ipam::Lease>, IpamError> {
        let Some(share) = self.share else {
            return allocator.allocate(requests, &|ip| given.contains(&ip));
        };
        let in_use = |ip: IpAddr| {
            let asked = requests.iter().any(|request| request.address == ip);
            given.contains(&ip) || (!asked && self.is_set_apart(share, ip))
        };
        allocator.allocate_in(&share.blocks, requests, &in_use)
    }

    fn is_set_apart(&self, share: &Share, ip: IpAddr) -> bool {
        share.reserved.contains_key(&ip) || self.picked.contains_key(&(self.network.to_owned(), ip))
    }
}

impl Share {
    /// True when the address is in one of the blocks.
    pub fn has(&self, ip: IpAddr) -> bool {
        self.blocks.iter().any(|block| block.contains(&ip))
    }
}

impl Ledger {
    /// From now on only what is this node's is given. What is given already stays.
    pub fn set_shares(&mut self, shares: HashMap<String, Share>) {
        self.shares = Some(shares);
    }

    /// Of this network, these prefixes are the node's alone, by what routes say.
    pub fn set_own(&mut self, network: &str, prefixes: Vec<Prefix>) {
        let share = Share {
            blocks: prefixes,
            reserved: BTreeMap::new(),
        };
        self.own = Some((network.to_owned(), share));
    }

    /// This network is shared like any other, whatever it was before.
    pub fn forget_own(&mut self, network: &str) {
        self.own.take_if(|(name, _)| name == network);
    }

    /// The network that the node routes for, and prefixes that are the node's alone.
    pub fn own(&self) -> Option<(&str, &[Prefix])> {
        let own = self.own.as_ref();
        own.map(|(network, share)| (network.as_str(), share.blocks.as_slice()))
    }

    /// Returns this node's share of a network; none where there are no other nodes.
    pub fn share_of(&self, network: &str) -> Option<&Share> {
        of(self.own.as_ref(), self.shares.as_ref(), network)
    }

    /// True when a reserved address is granted to the holder with this UID.
    pub fn is_granted(&self, network: &str, ip: IpAddr, holder: &str) -> bool {
        let share = self.share_of(network);
        let reserved = share.and_then(|share| share.reserved.get(&ip));
        reserved.is_some_and(|it| it.granted && it.holder.uid() == holder)
    }

    /// The attachment to a network that has an address.
    pub fn holder_of(&self, network: &str, ip: IpAddr) -> Option<&Attachment> {
        self.of_network(network)
            .find(|record| record.leases.iter().any(|lease| lease.address == ip))
    }

    /// How many addresses of a block are given.
    pub fn given_of(&self, network: &str, block: &Prefix) -> u64 {
        let leases = self.of_network(network).flat_map(|record| &record.leases);
        let given = leases.filter(|lease| block.contains(&lease.address));
        u64::try_from(given.count()).unwrap_or(u64::MAX)
    }

    /// Networks with attachments.
    pub fn networks_in_use(&self) -> impl Iterator<Item = &str> {
        let in_use = |(_, id): &(&String, &u32)| self.usage_of(**id).0 > 0;
        self.ids
            .iter()
            .filter(in_use)
            .map(|(name, _)| name.as_str())
    }

    fn of_network(&self, network: &str) -> impl Iterator<Item = &Attachment> {
        let usage = self.id_of(network).and_then(|id| self.usage.get(&id));
        usage
            .into_iter()
            .flat_map(|usage| &usage.keys)
            .filter_map(|key| self.entries.get(key))
            .map(|entry| &entry.record)
    }

    /// Chooses free addresses of this node's blocks for `holder`, one of each family.
    ///
    /// The holder is going to reserve them. Until [`Self::unpick`] no other request gets them.
    ///
    /// # Errors
    /// When there is none.
    pub fn pick(&mut self, network: &Network, holder: &Holder) -> Result<Vec<IpAddr>, BookError> {
        let none = HashSet::new();
        let given = self.id_of(&network.name).and_then(|id| self.usage.get(&id));
        let given = given.map_or(&none, |usage| &usage.ips);
        let allocator = choose::allocator(&mut self.allocators, network)?;
        let scope = Scope::new(
            of(self.own.as_ref(), self.shares.as_ref(), &network.name),
            &self.picked,
            &network.name,
        );
        let leases = scope.allocate(allocator, &[], given);
        let leases = leases.map_err(|source| BookError::Address {
            network: network.name.clone(),
            source,
        })?;
        let picked: Vec<IpAddr> = leases.iter().map(|lease| lease.address).collect();
        for ip in &picked {
            self.picked
                .insert((network.name.clone(), *ip), holder.clone());
        }
        Ok(picked)
    }

    /// The reservations of picked addresses are known, or will not be made.
    pub fn unpick(&mut self, network: &str, ips: &[IpAddr]) {
        for ip in ips {
            self.picked.remove(&(network.to_owned(), *ip));
        }
    }
}

#[cfg(test)]
mod tests;
