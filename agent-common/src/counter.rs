//! Count packets, bytes and drops exactly, on each CPU.
//!
//! These are `PORT_COUNTERS`, `PORT_REASONS`, `DROPS` and `NETWORK_DROPS`. Podnet never resets them while their port
//! or network is there.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::drop::DropReason;
use crate::map::MAX_DROP_REASONS;

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

/// Returns the key of a port and a reason in `PORT_REASONS`.
///
/// The value is packets per CPU.
///
/// *Written by* the programs that drop, after `dropped` of [`PortCounters`]. *Read by* the agent. *Lifetime*: as
/// [`PortCounters`].
#[inline(always)]
#[must_use]
pub const fn port_reason(port_id: u16, reason: DropReason) -> u32 {
    port_id as u32 * MAX_DROP_REASONS + reason as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::map::{MAX_PORT_REASONS, MAX_PORTS};

    #[test]
    fn each_port_and_reason_has_a_key_of_its_own_and_room_in_the_map() {
        let last = u16::try_from(MAX_PORTS - 1).unwrap();
        let ports = [0, 1, 2, last - 1, last];
        let found: BTreeSet<u32> = ports
            .into_iter()
            .flat_map(|port| {
                DropReason::ALL
                    .iter()
                    .map(move |why| port_reason(port, *why))
            })
            .collect();
        assert_eq!(found.len(), ports.len() * DropReason::ALL.len());
        assert!(found.into_iter().all(|index| index < MAX_PORT_REASONS));
    }
}
