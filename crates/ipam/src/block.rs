//! Divide subnets into blocks: aligned prefixes, each for one node to give from.
//!
//! Blocks are aligned, so two of one length are the same or share no address, whatever became of the
//! subnets between the moments they were taken in. Those of a small subnet are shorter, so that many
//! nodes can have one; who takes a block has to see to it that none of another length has part of it
//! ([`overlap`]). Of a block only what a [`Pool`] can give is given.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::{
    error::Family,
    pool::{Pool, Range, number},
};

/// Blocks of a pool, as a power of two, if it has as many addresses.
///
/// It has more where its blocks would be too large.
const SHARES: u8 = 4;

/// Lengths of the prefixes of the largest blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLength {
    /// Of IPv4, at most 32.
    pub v4: u8,
    /// Of IPv6, at most 128.
    pub v6: u8,
}

impl BlockLength {
    /// The length of a pool's blocks.
    #[must_use]
    pub fn of(self, pool: &Pool) -> u8 {
        let (largest, one) = match pool.family() {
            Family::V4 => (self.v4, 32),
            Family::V6 => (self.v6, 128),
        };
        let shared = pool.prefix().prefix_len().saturating_add(SHARES);
        shared.clamp(largest.min(one), one)
    }

    /// How many addresses a block of the pool has.
    #[must_use]
    pub fn size(self, pool: &Pool) -> u64 {
        let bits = pool.prefix().max_prefix_len() - self.of(pool);
        1_u64.checked_shl(bits.into()).unwrap_or(u64::MAX)
    }

    /// Finds the block to take for an address that is in no block of `taken`.
    ///
    /// It is the pool's block, or the largest part of that around the address that is free. None when
    /// the address is of no pool.
    #[must_use]
    pub fn free_block_of(self, pools: &[Pool], address: IpAddr, taken: &Occupied) -> Option<IpNet> {
        let pool = pools.iter().find(|pool| pool.prefix().contains(&address))?;
        let mut block = self.block_of(pool, address);
        while taken.has_part_of(&block) {
            let next = block.prefix_len().checked_add(1)?;
            block = IpNet::new(address, next).ok()?.trunc();
        }
        Some(block)
    }

    /// The block of a pool that an address is in.
    #[must_use]
    pub fn block_of(self, pool: &Pool, address: IpAddr) -> IpNet {
        IpNet::new_assert(address, self.of(pool)).trunc()
    }
}

/// True when two blocks have an address in common.
#[must_use]
pub fn overlap(one: &IpNet, other: &IpNet) -> bool {
    // Aligned as they are, the longer of them has both of its ends in the shorter, or none.
    one.contains(other) || other.contains(one)
}

/// All blocks of a network, of any holder.
#[derive(Clone, Debug)]
pub struct Occupied {
    largest: BlockLength,
    blocks: BTreeSet<IpNet>,
}

impl Occupied {
    /// These blocks, none of which is larger than `largest`.
    pub fn new(largest: BlockLength, blocks: impl IntoIterator<Item = IpNet>) -> Self {
        Self {
            largest,
            blocks: blocks.into_iter().collect(),
        }
    }

    /// Tells whether a block of the network shares an address with `block`.
    ///
    /// A network can have thousands of blocks, and as many places are looked at.
    #[must_use]
    pub fn has_part_of(&self, block: &IpNet) -> bool {
        let largest = match block {
            IpNet::V4(_) => self.largest.v4.min(32),
            IpNet::V6(_) => self.largest.v6.min(128),
        };
        // Whatever overlaps it begins in the largest block there could be at this place.
        let around = IpNet::new_assert(block.addr(), largest.min(block.prefix_len())).trunc();
        let first = IpNet::new_assert(around.network(), 0);
        let last = IpNet::new_assert(around.broadcast(), around.max_prefix_len());
        let mut near = self.blocks.range(first..=last);
        near.any(|other| overlap(other, block))
    }
}

/// Lists free blocks of a family in the order in which a node tries to take them.
///
/// Those of the first pool come before those of the next, each pool from a place that `seed` says,
/// round at its end. Nodes with seeds of their own rarely want the same one. Blocks without an address
/// to give are left out, and so are those that `taken` knows.
///
/// The place is among the first 4096 blocks of a pool: addresses of a large IPv6 subnet stay short.
pub fn candidates<'a>(
    pools: &'a [Pool],
    family: Family,
    length: BlockLength,
    seed: u64,
    taken: &'a dyn Fn(IpNet) -> bool,
) -> impl Iterator<Item = IpNet> + 'a {
    pools
        .iter()
        .filter(move |pool| pool.family() == family)
        .flat_map(move |pool| {
            let start = start(pool, length, seed);
            let all = Range::of(&pool.prefix());
            let later = Range {
                first: start,
                last: all.last,
            };
            let earlier = start.checked_sub(1).map(|last| Range {
                first: all.first,
                last,
            });
            let earlier = earlier.filter(|range| range.first <= range.last);
            [Some(later), earlier]
                .into_iter()
                .flatten()
                .flat_map(move |range| Blocks {
                    pool,
                    length,
                    rest: Some(range),
                })
        })
        .filter(move |block| !taken(*block))
}

/// Where the search in a pool begins: the first address of a block, or of the pool.
fn start(pool: &Pool, length: BlockLength, seed: u64) -> u128 {
    const WINDOW: u128 = 4096;
    let all = Range::of(&pool.prefix());
    let first = Range::of(&length.block_of(pool, pool.prefix().network()));
    // All blocks are as long as the first; one less, so that no sum can leave the address space.
    let size_less_one = first.last - first.first;
    let Some(size) = size_less_one.checked_add(1) else {
        return all.first;
    };
    let count = (all.last - all.first) / size + 1;
    let index = u128::from(seed) % count.min(WINDOW);
    (first.first + index * size).max(all.first)
}

/// Iterator over the blocks of a range that have an address to give, in order.
struct Blocks<'a> {
    pool: &'a Pool,
    length: BlockLength,
    rest: Option<Range>,
}

impl Iterator for Blocks<'_> {
    type Item = IpNet;

    fn next(&mut self) -> Option<IpNet> {
        let range = self.rest.take()?;
        // By way of the next address there is: what is excluded may be as large as 2^63 blocks.
        let address = self.pool.search(range, &|_| false)?;
        let block = self.length.block_of(self.pool, address);
        let next = number(block.broadcast()).checked_add(1);
        self.rest = next
            .filter(|&first| first <= range.last)
            .map(|first| Range { first, ..range });
        Some(block)
    }
}

/// A block that a node holds, and what has become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The block.
    pub block: IpNet,
    /// How many of its addresses can be given, held ones included.
    pub room: u64,
    /// How many are in use.
    pub used: u64,
}

impl Held {
    const fn free(&self) -> u64 {
        self.room.saturating_sub(self.used)
    }
}

/// Step of a node about its blocks of one family on one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing.
    Keep,
    /// Take one more.
    Take,
    /// Give this one back.
    GiveBack(IpNet),
}

/// Free addresses that a node keeps beyond its known need, at most a block's.
pub const LOW_WATER: u64 = 4;
/// Free addresses left beyond the low-water mark after a block is given back.
///
/// At most as many as a block has. The pod that comes next must not be the reason to take the block
/// again.
pub const SLACK: u64 = 8;

/// Decides whether a node takes a block of `size` addresses, or gives one back.
///
/// `coming` are the addresses that pods need soon, none where no pod of the node uses the network. Only
/// an empty block is given back, the first there is.
#[must_use]
pub fn plan(held: &[Held], coming: Option<u64>, size: u64) -> Plan {
    let free = held
        .iter()
        .fold(0_u64, |sum, block| sum.saturating_add(block.free()));
    let wanted = coming.map(|coming| coming.saturating_add(LOW_WATER.min(size)));
    if wanted.is_some_and(|wanted| free < wanted) {
        return Plan::Take;
    }
    let enough = wanted.map_or(0, |wanted| wanted.saturating_add(SLACK.min(size)));
    let mut empty = held.iter().filter(|block| block.used == 0);
    empty
        .find(|block| block.room == 0 || free - block.free() >= enough)
        .map_or(Plan::Keep, |block| Plan::GiveBack(block.block))
}
