//! `NETWORKS`: the networks that frames of other nodes may belong to.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The network is routed, as [`PORT_L3`](crate::port::PORT_L3) tells its ports.
pub const NETWORK_L3: u32 = 1 << 0;
/// Its packets leave the node by an uplink as they are, and by no tunnel.
pub const NETWORK_WIRE: u32 = 1 << 1;
/// Its pods tag their frames themselves, with VLAN ids of the network.
pub const NETWORK_TRUNK: u32 = 1 << 2;
/// Its packets go to routers on the uplink, by the addresses of `NEXT_HOPS`.
pub const NETWORK_NEXT_HOP: u32 = 1 << 3;
/// The network has no addresses of podnet.
///
/// [`PORT_ANY_IP`](crate::port::PORT_ANY_IP) tells its ports the same.
pub const NETWORK_ANY_IP: u32 = 1 << 4;

/// Lengths of subnets that a network has at most, one for each of its subnets.
pub const NETWORK_SUBNETS: usize = 16;

/// A network with members on other nodes.
///
/// A network that is not in the map has none, whatever a tunnel says.
///
/// *Written by* the reconciler. *Read by* `from_overlay`, `from_uplink`,
/// `from_wire`, `from_pod` and `replicate`. *Lifetime*: as long as the network has ports
/// on this node.
/// *Key*: the network's number, which is its VNI, `u32`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Network {
    /// `NETWORK_*` flags.
    pub flags: u32,
    /// Largest L3 packet in bytes.
    pub mtu: u32,
    /// The interface of a network that has one of its own; 0 while it is not there.
    pub uplink: u32,
    /// The VLAN id that its frames have there; 0 for none, or for the pods' own.
    pub vlan: u16,
    /// Zero.
    pub reserved: u16,
    /// The different lengths of the subnets in `WIRES`, bits; 0 behind the last.
    ///
    /// Lengths are those of mapped addresses.
    pub subnets: [u8; NETWORK_SUBNETS],
}

const _: () = assert!(size_of::<Network>() == 32);

impl Network {
    /// One without an uplink.
    pub const fn new(flags: u32, mtu: u32) -> Self {
        Self {
            flags,
            mtu,
            uplink: 0,
            vlan: 0,
            reserved: 0,
            subnets: [0; NETWORK_SUBNETS],
        }
    }
}
