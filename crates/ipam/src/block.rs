//! Blocks: aligned parts of the address space, each for one node of a cluster to give from.
//!
//! A block does not depend on the subnets of a network, so two of one length are the same or share no
//! address, whatever became of the subnets between the moments they were taken in. Of a block only
//! what a [`Pool`] can give is given.

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use ipnet::IpNet;

use crate::{
    error::Family,
    pool::{Pool, Range, number},
};

/// Lengths of the prefixes of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLength {
    /// Of IPv4, at most 32.
    pub v4: u8,
    /// Of IPv6, at most 128.
    pub v6: u8,
}

impl BlockLength {
    /// The block an address is in.
    #[must_use]
    pub fn block_of(self, address: IpAddr) -> IpNet {
        let length = match address {
            IpAddr::V4(_) => self.v4.min(32),
            IpAddr::V6(_) => self.v6.min(128),
        };
        IpNet::new_assert(address, length).trunc()
    }
}

/// Blocks of a family in the order in which a node should try to take them: those of the first pool
/// before those of the next, each pool from a place that `seed` says, round at its end. Nodes with
/// seeds of their own rarely want the same one. Blocks without an address to give are left out, and
/// so are those that `taken` knows.
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
    let first = Range::of(&length.block_of(pool.prefix().network()));
    // All blocks are as long as the first; one less, so that no sum can leave the address space.
    let size_less_one = first.last - first.first;
    let Some(size) = size_less_one.checked_add(1) else {
        return all.first;
    };
    let count = (all.last - all.first) / size + 1;
    let index = u128::from(seed) % count.min(WINDOW);
    (first.first + index * size).max(all.first)
}

/// The blocks in which something of a range can be given, from the first to the last.
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
        let block = self.length.block_of(address);
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

/// What a node should do about its blocks of one family on one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing.
    Keep,
    /// Take one more.
    Take,
    /// Give this one back.
    GiveBack(IpNet),
}

/// Free addresses that a node keeps ahead of what it knows to need.
pub const LOW_WATER: u64 = 4;
/// Free addresses beyond that which have to be left when a block is given back: the pod that comes
/// next must not be the reason to take it again.
pub const SLACK: u64 = 8;

/// What to do, for pods that will soon need `coming` addresses; none where no pod of the node uses
/// the network. Only an empty block is given back.
#[must_use]
pub fn plan(held: &[Held], coming: Option<u64>) -> Plan {
    let free = held
        .iter()
        .fold(0_u64, |sum, block| sum.saturating_add(block.free()));
    let wanted = coming.map(|coming| coming.saturating_add(LOW_WATER));
    if wanted.is_some_and(|wanted| free < wanted) {
        return Plan::Take;
    }
    let enough = wanted.map_or(0, |wanted| wanted.saturating_add(SLACK));
    let mut empty = held.iter().filter(|block| block.used == 0);
    empty
        .find(|block| block.room == 0 || free - block.free() >= enough)
        .map_or(Plan::Keep, |block| Plan::GiveBack(block.block))
}
