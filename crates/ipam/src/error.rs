//! Why there is no address.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// Reason why an address inside a subnet is never given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reserved {
    /// The gateway of the network has it.
    Gateway,
    /// The network excludes it.
    Excluded,
    /// The all-zeroes host of an IPv4 subnet (RFC 1122 §3.2.1.3).
    NetworkAddress,
    /// The all-ones host of an IPv4 subnet (RFC 919 §7).
    Broadcast,
    /// The all-zeroes interface of an IPv6 subnet (RFC 4291 §2.6.1).
    RouterAnycast,
}

impl fmt::Display for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gateway => "the gateway",
            Self::Excluded => "excluded by the network",
            Self::NetworkAddress => "the network address",
            Self::Broadcast => "the broadcast address",
            Self::RouterAnycast => "the subnet-router anycast address",
        })
    }
}

/// Why there is no address, or no pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IpamError {
    /// Every address of the family is held.
    #[error(
        "no free {family} address in {}: all {in_use} are held; add a subnet, or detach pods",
        list(subnets)
    )]
    Exhausted {
        /// The family that ran out.
        family: Family,
        /// All subnets of that family.
        subnets: Vec<IpNet>,
        /// How many addresses are held: all there are.
        in_use: u128,
    },
    /// The blocks have no free address of the family; the subnets may.
    #[error("no free {family} address in the {blocks} blocks that this node holds")]
    NoRoom {
        /// The family.
        family: Family,
        /// How many blocks of the family it holds.
        blocks: usize,
    },
    /// A requested address has a holder.
    #[error("{ip} is held by another attachment; request another address")]
    Held {
        /// The address.
        ip: IpAddr,
    },
    /// A requested address is not of this network.
    #[error(
        "{ip} is in none of the network's subnets ({}); request one inside",
        list(subnets)
    )]
    OutOfSubnets {
        /// The address.
        ip: IpAddr,
        /// All subnets of the network.
        subnets: Vec<IpNet>,
    },
    /// A requested address is never given.
    #[error("{ip} is {why}; request another address")]
    Reserved {
        /// The address.
        ip: IpAddr,
        /// Purpose that the address is reserved for.
        why: Reserved,
    },
    /// A requested address has the length of another prefix.
    #[error(
        "{ip}/{asked} is not how the network has it; write {ip}/{}, or leave the length out",
        subnet.prefix_len()
    )]
    PrefixLength {
        /// The address.
        ip: IpAddr,
        /// The length asked for.
        asked: u8,
        /// The subnet the address is in.
        subnet: IpNet,
    },
    /// One request asks twice for the same address.
    #[error("{ip} is requested twice; remove one")]
    RequestedTwice {
        /// The address.
        ip: IpAddr,
    },
    /// A pool of something that is not a prefix.
    #[error("{prefix} has host bits set; write {}", prefix.trunc())]
    HostBits {
        /// The prefix as given.
        prefix: IpNet,
    },
    /// A gateway outside the pool's prefix.
    #[error("gateway {gateway} is outside {prefix}; choose one inside")]
    GatewayOutside {
        /// The gateway.
        gateway: IpAddr,
        /// The pool's prefix.
        prefix: IpNet,
    },
    /// An exclude outside the pool's prefix.
    #[error("exclude {exclude} is not inside {prefix}; narrow or remove it")]
    ExcludeOutside {
        /// The exclude.
        exclude: IpNet,
        /// The pool's prefix.
        prefix: IpNet,
    },
    /// Two pools of one network share addresses.
    #[error("{first} and {second} overlap; remove one")]
    PoolsOverlap {
        /// The earlier pool's prefix.
        first: IpNet,
        /// The later pool's prefix.
        second: IpNet,
    },
}

fn list(subnets: &[IpNet]) -> String {
    subnets
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
