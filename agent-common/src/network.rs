//! `NETWORKS`: the networks that frames of other nodes may belong to.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The network is routed, as [`PORT_L3`](crate::port::PORT_L3) says it to its ports.
pub const NETWORK_L3: u32 = 1 << 0;

/// A network with members on other nodes. A network that is not here has none, whatever a tunnel says.
///
/// *Written by* the reconciler. *Read by* `from_overlay`. *Lifetime*: as long as the network has ports
/// on this node.
/// *Key*: the network's number, which is its VNI, `u32`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Network {
    /// `NETWORK_*` flags.
    pub flags: u32,
    /// Largest L3 packet in bytes.
    pub mtu: u32,
}

const _: () = assert!(size_of::<Network>() == 8);
