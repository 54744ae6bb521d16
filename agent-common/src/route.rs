//! `ROUTES`: prefixes of other networks to which virtual gateways route.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::Ip16;

/// Bits of a key in front of the address.
const NETWORK_BITS: u32 = 32;

/// Key of `ROUTES`: a prefix, seen from one network.
///
/// The kernel's layout of a key of longest prefix match: `length`, then the bytes that it is of.
#[repr(C)]
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
pub struct RouteKey {
    /// Bits that count, of the network and of the address; all of both for a look-up.
    pub length: u32,
    /// The network that the packet is from.
    pub network: u32,
    /// First address of the prefix, IPv4 mapped.
    pub ip: Ip16,
}

const _: () = assert!(size_of::<RouteKey>() == 24);

impl RouteKey {
    /// The key by which an address is looked up.
    pub const fn of(network: u32, ip: Ip16) -> Self {
        Self::new(network, ip, 128)
    }

    /// The key of a prefix of this first address and length, bits of a mapped address.
    pub const fn new(network: u32, ip: Ip16, length: u8) -> Self {
        Self {
            length: NETWORK_BITS + length as u32,
            network,
            ip,
        }
    }
}

/// The network in which a destination is looked up.
///
/// *Written by* the reconciler, with the ports of the network that the packets are from. *Read by* `from_pod`, and by
/// programs that take packets from elsewhere, which look up their sources.
/// *Lifetime*: as long as that network has ports on this node.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Route {
    /// The other network; 0 where none has the address, to drop the packet.
    pub network: u32,
    /// Largest L3 packet there in bytes; 0 for that of the sender's network.
    pub mtu: u32,
}

const _: () = assert!(size_of::<Route>() == 8);

impl Route {
    /// To a prefix that no network has.
    pub const NOWHERE: Self = Self { network: 0, mtu: 0 };
}
