//! `FLOOD`: the ports of an L2 network, for broadcast and multicast.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Ports per chunk.
pub const FLOOD_CHUNK: usize = 125;
/// Chunks per network.
///
/// How many tail calls they take is in [`tail_call`](crate::tail_call).
pub const FLOOD_CHUNKS: u32 = 28;

/// Bit of an interface whose port gets no frames for all.
///
/// ARP and neighbour discovery are the exception.
///
/// A policy isolates what the port receives. No interface has a number this large.
pub const FLOOD_CLOSED: u32 = 1 << 31;

/// Key of `FLOOD`.
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
pub struct FloodKey {
    /// Network.
    pub network: u32,
    /// 0-based; the first missing chunk ends the list.
    pub chunk: u32,
}

/// Some of the ports of a network.
///
/// *Written by* the reconciler. *Read by* `flood`. *Lifetime*: as long as the network has ports.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FloodPorts {
    /// How many of `ifindexes` are meant, 0..=125.
    pub count: u16,
    /// Ports that the network has on this node, in the first chunk; else 0.
    ///
    /// The number counts the ports of all chunks together.
    pub total: u16,
    /// The network.
    ///
    /// The memory of a list that was replaced is soon another one's ([`seal`](crate::seal)). A program that copies for long looks
    /// here and at the end: the kernel begins to write at one of both.
    pub network: u32,
    /// Host-side interfaces, with [`FLOOD_CLOSED`] where it holds.
    pub ifindexes: [u32; FLOOD_CHUNK],
    /// The network once more.
    pub network_again: u32,
}

const _: () = assert!(size_of::<FloodPorts>() == 512);
