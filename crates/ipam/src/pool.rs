//! Search one subnet for its next free address, past the reserved ones.

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::error::{Family, IpamError, Reserved};

/// The addresses of one prefix less the reserved ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    prefix: IpNet,
    gateways: Vec<IpAddr>,
    excludes: Vec<IpNet>,
    /// Reserved addresses as sorted, disjoint, never adjacent ranges.
    holes: Vec<Range>,
}

/// Addresses as numbers, both ends included: an excluded /65 is one step, not 2^63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    pub(crate) first: u128,
    pub(crate) last: u128,
}

impl Range {
    const fn one(address: u128) -> Self {
        Self {
            first: address,
            last: address,
        }
    }

    pub(crate) fn of(prefix: &IpNet) -> Self {
        Self {
            first: number(prefix.network()),
            last: number(prefix.broadcast()),
        }
    }
}

pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

impl Pool {
    /// Builds the pool of `prefix`, less gateways, excludes and reserved addresses.
    ///
    /// Reserved are network and broadcast of IPv4 up to /30 (a /31 has none, RFC 3021), and the
    /// subnet-router anycast address of IPv6 up to /126 (a /127 has none, RFC 6164 §5).
    ///
    /// # Errors
    /// Host bits in `prefix`, or a gateway or exclude outside it.
    pub fn new(prefix: IpNet, gateways: &[IpAddr], excludes: &[IpNet]) -> Result<Self, IpamError> {
        if prefix.addr() != prefix.network() {
            return Err(IpamError::HostBits { prefix });
        }
        let all = Range::of(&prefix);
        let mut holes = Vec::new();
        if has_network_address(&prefix) {
            holes.push(Range::one(all.first));
        }
        if has_broadcast(&prefix) {
            holes.push(Range::one(all.last));
        }
        for &gateway in gateways {
            if !prefix.contains(&gateway) {
                return Err(IpamError::GatewayOutside { gateway, prefix });
            }
            holes.push(Range::one(number(gateway)));
        }
        for &exclude in excludes {
            if !prefix.contains(&exclude) {
                return Err(IpamError::ExcludeOutside { exclude, prefix });
            }
            holes.push(Range::of(&exclude));
        }
        Ok(Self {
            prefix,
            gateways: gateways.to_vec(),
            excludes: excludes.to_vec(),
            holes: merged(holes),
        })
    }

    /// The subnet.
    #[must_use]
    pub const fn prefix(&self) -> IpNet {
        self.prefix
    }

    /// The subnet's family.
    #[must_use]
    pub const fn family(&self) -> Family {
        match self.prefix {
            IpNet::V4(_) => Family::V4,
            IpNet::V6(_) => Family::V6,
        }
    }

    /// The subnet's gateways.
    #[must_use]
    pub fn gateways(&self) -> &[IpAddr] {
        &self.gateways
    }

    /// Counts the addresses that can be given, held ones included.
    ///
    /// `u128::MAX` when there are more.
    #[must_use]
    pub fn capacity(&self) -> u128 {
        let all = Range::of(&self.prefix);
        let reserved = |total: u128, hole: &Range| total - (hole.last - hole.first) - 1;
        match (all.last - all.first).checked_add(1) {
            Some(size) => self.holes.iter().fold(size, reserved),
            // Only ::/0, which has its anycast hole, so the sum fits again.
            None => self.holes.split_first().map_or(u128::MAX, |(first, rest)| {
                rest.iter()
                    .fold(u128::MAX - (first.last - first.first), reserved)
            }),
        }
    }

    /// Returns why `address` is never given, if it is a reserved one of this subnet.
    #[must_use]
    pub fn reserved(&self, address: IpAddr) -> Option<Reserved> {
        if self.gateways.contains(&address) {
            return Some(Reserved::Gateway);
        }
        if address == self.prefix.network() && has_network_address(&self.prefix) {
            return Some(match self.family() {
                Family::V4 => Reserved::NetworkAddress,
                Family::V6 => Reserved::RouterAnycast,
            });
        }
        if address == self.prefix.broadcast() && has_broadcast(&self.prefix) {
            return Some(Reserved::Broadcast);
        }
        self.excludes
            .iter()
            .any(|exclude| exclude.contains(&address))
            .then_some(Reserved::Excluded)
    }

    /// Finds the first free address after `after`, going round at the end.
    ///
    /// The search starts from the beginning when `after` is none or not of this subnet. None when all
    /// are held.
    ///
    /// Going round keeps an address that was just released from being given again at once, while
    /// a peer may still have its old owner in a cache. Asks `in_use` at most once more than there
    /// are held addresses.
    #[must_use]
    pub fn next(&self, in_use: &dyn Fn(IpAddr) -> bool, after: Option<IpAddr>) -> Option<IpAddr> {
        let all = Range::of(&self.prefix);
        let after = after
            .filter(|address| self.prefix.contains(address))
            .map(number);
        match after {
            None => self.search(all, in_use),
            Some(after) => {
                let later = after
                    .checked_add(1)
                    .filter(|&first| first <= all.last)
                    .and_then(|first| {
                        self.search(
                            Range {
                                first,
                                last: all.last,
                            },
                            in_use,
                        )
                    });
                later.or_else(|| {
                    self.search(
                        Range {
                            first: all.first,
                            last: after,
                        },
                        in_use,
                    )
                })
            }
        }
    }

    /// As [`Self::next`], of what lies in one of these blocks; they share no address.
    #[must_use]
    pub fn next_in(
        &self,
        blocks: &[IpNet],
        in_use: &dyn Fn(IpAddr) -> bool,
        after: Option<IpAddr>,
    ) -> Option<IpAddr> {
        let mut ranges: Vec<Range> = blocks.iter().filter_map(|block| self.part(block)).collect();
        ranges.sort_unstable();
        let after = after
            .filter(|address| self.prefix.contains(address))
            .map(number);
        let Some(after) = after else {
            return ranges
                .into_iter()
                .find_map(|range| self.search(range, in_use));
        };
        let later = ranges.iter().filter_map(|range| {
            let first = range.first.max(after.checked_add(1)?);
            (first <= range.last).then_some(Range { first, ..*range })
        });
        let earlier = ranges.iter().filter_map(|range| {
            let last = range.last.min(after);
            (range.first <= last).then_some(Range { last, ..*range })
        });
        later
            .chain(earlier)
            .find_map(|range| self.search(range, in_use))
    }

    /// How many addresses of a block can be given, held ones included.
    #[must_use]
    pub fn capacity_in(&self, block: &IpNet) -> u128 {
        let Some(part) = self.part(block) else {
            return 0;
        };
        let holes = self.holes.iter().filter_map(|hole| {
            let first = hole.first.max(part.first);
            let last = hole.last.min(part.last);
            (first <= last).then(|| last - first)
        });
        // Less one of each, as in the size of the part: ::/0 has more addresses than fit.
        let mut count = part.last - part.first;
        let mut none_left = false;
        for hole in holes {
            match count.checked_sub(hole).and_then(|rest| rest.checked_sub(1)) {
                Some(rest) => count = rest,
                // A hole is never larger than the part: it was all that was left.
                None => none_left = true,
            }
        }
        if none_left {
            0
        } else {
            count.saturating_add(1)
        }
    }

    /// Intersects a block with the subnet; none without a common address.
    fn part(&self, block: &IpNet) -> Option<Range> {
        if Family::of(block.addr()) != self.family() {
            return None;
        }
        let (all, block) = (Range::of(&self.prefix), Range::of(block));
        let part = Range {
            first: all.first.max(block.first),
            last: all.last.min(block.last),
        };
        (part.first <= part.last).then_some(part)
    }

    /// The address asked for, if it can be given.
    ///
    /// # Errors
    /// It is outside the subnet, reserved, or held.
    pub fn request(
        &self,
        address: IpAddr,
        in_use: &dyn Fn(IpAddr) -> bool,
    ) -> Result<IpAddr, IpamError> {
        if !self.prefix.contains(&address) {
            return Err(IpamError::OutOfSubnets {
                ip: address,
                subnets: vec![self.prefix],
            });
        }
        if let Some(why) = self.reserved(address) {
            return Err(IpamError::Reserved { ip: address, why });
        }
        if in_use(address) {
            return Err(IpamError::Held { ip: address });
        }
        Ok(address)
    }

    /// The first free address of `range`.
    pub(crate) fn search(&self, range: Range, in_use: &dyn Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let mut candidate = range.first;
        let mut holes = &self.holes[self.holes.partition_point(|hole| hole.last < candidate)..];
        while candidate <= range.last {
            if let Some((hole, rest)) = holes.split_first()
                && hole.first <= candidate
            {
                candidate = hole.last.checked_add(1)?;
                holes = rest;
                continue;
            }
            let address = self.address(candidate);
            if !in_use(address) {
                return Some(address);
            }
            candidate = candidate.checked_add(1)?;
        }
        None
    }

    fn address(&self, number: u128) -> IpAddr {
        match self.family() {
            Family::V4 => {
                let number = u32::try_from(number).expect("inside an IPv4 prefix");
                IpAddr::V4(Ipv4Addr::from(number))
            }
            Family::V6 => IpAddr::V6(Ipv6Addr::from(number)),
        }
    }
}

/// True where the first address is the network's or the routers', and not a host's.
fn has_network_address(prefix: &IpNet) -> bool {
    prefix.prefix_len() + 1 < prefix.max_prefix_len()
}

/// IPv6 has no broadcast.
fn has_broadcast(prefix: &IpNet) -> bool {
    matches!(prefix, IpNet::V4(_)) && has_network_address(prefix)
}

fn merged(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut merged: Vec<Range> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.first <= last.last.saturating_add(1) => {
                last.last = last.last.max(range.last);
            }
            _ => merged.push(range),
        }
    }
    merged
}
