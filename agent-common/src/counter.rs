//! `PORT_COUNTERS`, `DROPS`, `NETWORK_DROPS`: exact counters of each CPU.
//!
//! Podnet never resets them while their port or network is there.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Packets and bytes of one kind. A GSO super-packet counts as its segments.
#[repr(C)]
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes, Ethernet header included, without the checksum sequence.
    pub bytes: u64,
}

/// One port's traffic.
///
/// *Written by* the TC programs. *Read by* the agent. *Lifetime*: indexes are reused; the agent
/// zeroes an entry before it hands the index out again.
#[repr(C)]
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct PortCounters {
    /// Packets of the pod that podnet forwarded or answered.
    pub from_pod: Count,
    /// Packets that podnet delivered to the pod.
    pub to_pod: Count,
    /// Packets of the pod that podnet dropped.
    pub dropped: Count,
    /// Packets of the pod that podnet replicated to the ports of its network.
    pub flooded: Count,
}

const _: () = assert!(size_of::<PortCounters>() == 64);

/// Key of `NETWORK_DROPS`; the value is a [`Count`] per CPU.
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
pub struct NetworkDropKey {
    /// Network; 0 when the port was unknown.
    pub network: u32,
    /// A `DropReason`.
    pub reason: u32,
}
