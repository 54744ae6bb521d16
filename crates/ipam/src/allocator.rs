//! The addresses of one attachment: one of each family, or those asked for.

#[cfg(test)]
mod tests;

use std::{fmt, net::IpAddr};

use ipnet::IpNet;

use crate::{
    error::{Family, IpamError},
    pool::Pool,
};

/// An address and the subnet it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The address.
    pub address: IpAddr,
    /// The subnet.
    pub prefix: IpNet,
    /// The subnet's gateway.
    pub gateway: Option<IpAddr>,
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix.prefix_len())
    }
}

/// An address an attachment must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The address.
    pub address: IpAddr,
    /// The length of the subnet's prefix, checked when given.
    ///
    /// The length of a single address (32 or 128) says nothing about the subnet and always passes.
    pub prefix_len: Option<u8>,
}

impl From<IpAddr> for Request {
    fn from(address: IpAddr) -> Self {
        Self {
            address,
            prefix_len: None,
        }
    }
}

/// The pools of one network, and where the search in each goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocator {
    pools: Vec<Pool>,
    /// The address last given from the pool of the same place.
    last: Vec<Option<IpAddr>>,
}

impl Allocator {
    /// Builds the allocator of one network over its subnets.
    ///
    /// Without any subnet it gives attachments no addresses.
    ///
    /// # Errors
    /// Two pools share addresses.
    pub fn new(pools: Vec<Pool>) -> Result<Self, IpamError> {
        for (index, pool) in pools.iter().enumerate() {
            let second = pool.prefix();
            let overlaps = |first: &IpNet| first.contains(&second) || second.contains(first);
            if let Some(first) = pools[..index].iter().map(Pool::prefix).find(overlaps) {
                return Err(IpamError::PoolsOverlap { first, second });
            }
        }
        let last = vec![None; pools.len()];
        Ok(Self { pools, last })
    }

    /// The pools, in the order they are tried.
    #[must_use]
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// Counts the addresses that a family can give, held ones included.
    ///
    /// `u128::MAX` if there are more.
    #[must_use]
    pub fn capacity(&self, family: Family) -> u128 {
        self.of_family(family)
            .fold(0, |sum, (_, pool)| sum.saturating_add(pool.capacity()))
    }

    /// Chooses the addresses of one attachment: requested ones, else free ones.
    ///
    /// A family without a request gets one free address from its first subnet with room. Families come
    /// in the order of the pools, requests of a family in their own order.
    ///
    /// Nothing is recorded: the caller makes the leases durable before it lets go of whatever
    /// keeps two calls apart, and `in_use` answers from that record.
    ///
    /// # Errors
    /// A family is exhausted, or a request is held, reserved, outside the subnets, of another
    /// prefix length, or made twice. Then no address is given.
    pub fn allocate(
        &mut self,
        requests: &[Request],
        in_use: &dyn Fn(IpAddr) -> bool,
    ) -> Result<Vec<Lease>, IpamError> {
        self.give(requests, in_use, None)
    }

    /// Chooses addresses as [`Self::allocate`], the free ones from these blocks only.
    ///
    /// A request may be of any block: whether the caller may give it is for the caller to know.
    ///
    /// # Errors
    /// As [`Self::allocate`], and [`IpamError::NoRoom`] when the blocks have no free address of a
    /// family.
    pub fn allocate_in(
        &mut self,
        blocks: &[IpNet],
        requests: &[Request],
        in_use: &dyn Fn(IpAddr) -> bool,
    ) -> Result<Vec<Lease>, IpamError> {
        self.give(requests, in_use, Some(blocks))
    }

    fn give(
        &mut self,
        requests: &[Request],
        in_use: &dyn Fn(IpAddr) -> bool,
        blocks: Option<&[IpNet]>,
    ) -> Result<Vec<Lease>, IpamError> {
        let requested = self.requested(requests, in_use)?;
        let mut leases = Vec::with_capacity(requested.len().max(2));
        let mut given = Vec::new();
        for family in self.families() {
            let of_family = |lease: &&Lease| Family::of(lease.address) == family;
            let before = leases.len();
            leases.extend(requested.iter().filter(of_family));
            if leases.len() == before {
                let (index, lease) = self.dynamic(family, in_use, blocks)?;
                given.push((index, lease.address));
                leases.push(lease);
            }
        }
        // Only now: a call that gives nothing must not move on.
        for (index, address) in given {
            self.last[index] = Some(address);
        }
        Ok(leases)
    }

    fn requested(
        &self,
        requests: &[Request],
        in_use: &dyn Fn(IpAddr) -> bool,
    ) -> Result<Vec<Lease>, IpamError> {
        let mut leases: Vec<Lease> = Vec::with_capacity(requests.len());
        for request in requests {
            let ip = request.address;
            let Some(pool) = self.pools.iter().find(|pool| pool.prefix().contains(&ip)) else {
                let subnets = self.pools.iter().map(Pool::prefix).collect();
                return Err(IpamError::OutOfSubnets { ip, subnets });
            };
            let subnet = pool.prefix();
            if let Some(asked) = request.prefix_len
                && asked != subnet.prefix_len()
                && asked != subnet.max_prefix_len()
            {
                return Err(IpamError::PrefixLength { ip, asked, subnet });
            }
            if leases.iter().any(|lease| lease.address == ip) {
                return Err(IpamError::RequestedTwice { ip });
            }
            leases.push(lease(pool, pool.request(ip, in_use)?));
        }
        Ok(leases)
    }

    fn dynamic(
        &self,
        family: Family,
        in_use: &dyn Fn(IpAddr) -> bool,
        blocks: Option<&[IpNet]>,
    ) -> Result<(usize, Lease), IpamError> {
        let mut pools = self.of_family(family);
        let found = pools.find_map(|(index, pool)| {
            let last = self.last[index];
            let address = match blocks {
                None => pool.next(in_use, last),
                Some(blocks) => pool.next_in(blocks, in_use, last),
            }?;
            Some((index, lease(pool, address)))
        });
        found.ok_or_else(|| match blocks {
            None => IpamError::Exhausted {
                family,
                subnets: self
                    .of_family(family)
                    .map(|(_, pool)| pool.prefix())
                    .collect(),
                in_use: self.capacity(family),
            },
            Some(blocks) => IpamError::NoRoom {
                family,
                blocks: blocks
                    .iter()
                    .filter(|block| Family::of(block.addr()) == family)
                    .count(),
            },
        })
    }

    fn of_family(&self, family: Family) -> impl Iterator<Item = (usize, &Pool)> {
        self.pools
            .iter()
            .enumerate()
            .filter(move |(_, pool)| pool.family() == family)
    }

    /// In the order of the pools.
    fn families(&self) -> Vec<Family> {
        let mut families: Vec<Family> = Vec::with_capacity(2);
        for pool in &self.pools {
            if !families.contains(&pool.family()) {
                families.push(pool.family());
            }
        }
        families
    }
}

fn lease(pool: &Pool, address: IpAddr) -> Lease {
    Lease {
        address,
        prefix: pool.prefix(),
        gateway: pool.gateways().first().copied(),
    }
}
