//! Limit the memory that clients lend, for each port, each pod and in all.
//!
//! A port may lend as much as its queues need.

use std::sync::Arc;

use memif::Budget;

use super::{Switch, ports};
use crate::port::PortConfig;

/// Bytes of a buffer, unless frames are longer: the clients' default.
const BUFFER: u64 = 2048;
/// Bytes of a descriptor.
const DESCRIPTOR: u64 = 16;
/// Bytes of a frame besides its packet: Ethernet header and tag.
const AROUND: u64 = 18;
/// Granularity in which a region is counted, bytes.
const REGION: u64 = 64 << 10;
/// Regions that a client may have.
pub(super) const REGIONS: u16 = 4;

/// Limits of the memory that clients lend, in bytes.
///
/// Lent memory is charged to the switch if that touches it first, so the sum has to be below the memory
/// limit of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Slots of a ring in a port's limit. Larger rings can have smaller buffers.
    pub ring_slots: u16,
    /// For all ports of a pod.
    pub pod: u64,
    /// For all pods.
    pub switch: u64,
}

impl Memory {
    /// Bytes that the switch has for itself, besides those that clients lend.
    pub const OWN: u64 = 64 << 20;
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            ring_slots: 1024,
            pod: 64 << 20,
            switch: 768 << 20,
        }
    }
}

/// Returns the bytes that the queues of a port can use.
///
/// They are rings, and a buffer for each slot, in both directions.
pub(super) fn of_port(config: &PortConfig, ring_slots: u16) -> u64 {
    let frame = u64::from(config.mtu).saturating_add(AROUND);
    let buffer = frame.max(1).next_multiple_of(BUFFER);
    let slots = u64::from(ring_slots).saturating_mul(buffer.saturating_add(DESCRIPTOR));
    let rings = u64::from(ports::rings(config)).saturating_mul(2);
    // Headers of rings, and that rings and buffers may be in regions of their own.
    let rounded = rings.saturating_mul(slots.saturating_add(BUFFER));
    rounded
        .next_multiple_of(REGION)
        .saturating_add(REGION.saturating_mul(u64::from(REGIONS)))
}

impl Switch {
    /// Returns the budget of the port's pod, shared with the pod's other ports.
    pub(super) fn budget_of(&self, config: &PortConfig) -> Arc<Budget> {
        let mut ports = self.ports.values();
        let same = ports.find(|port| port.config.pod() == config.pod());
        same.map_or_else(
            || Budget::within("pod", self.memory.pod, &self.budget),
            |port| Arc::clone(&port.budget),
        )
    }
}

#[cfg(test)]
mod tests {
    use memif::{Agreed, Layout, Name};

    use super::*;

    /// ATT-03a: a port's limit is the use of its queues, and usual rings are accepted.
    #[test]
    fn a_port_may_have_what_its_queues_can_use() {
        for (mtu, buffer) in [(68, 2048), (1500, 2048), (9000, 9216), (9000, 10240)] {
            for queues in [2, 3, 8] {
                let config = PortConfig {
                    mtu,
                    queues,
                    ..PortConfig::sample()
                };
                let agreed = Agreed {
                    app: Name::default(),
                    c2s_rings: queues,
                    s2c_rings: queues,
                    log2_ring_size: 10,
                };
                let usual = u64::from(Layout::new(&agreed, buffer).unwrap().size());
                let most = of_port(&config, Memory::default().ring_slots);
                assert!(usual.next_multiple_of(REGION) <= most, "{mtu} {queues}");
                let slack = u64::from(queues) * 2 * (1024 * 1024 + 2048) + 6 * REGION;
                assert!(most <= usual + slack, "{mtu} {queues}: {most}");
                assert!(most < of_port(&config, 2048));
            }
        }
        proof::of!("ATT-03a");
    }
}
