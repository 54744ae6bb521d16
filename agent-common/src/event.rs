//! `EVENTS`: samples of dropped packets, in a ring buffer.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of the packet an event carries.
pub const EVENT_HEAD: usize = 64;

/// Shortest time between two events of one reason on one CPU, nanoseconds.
pub const EVENT_INTERVAL_NS: u64 = 50_000_000;

/// Bit of [`DropEvent::reserved`]: the flow log has sampled the frame.
pub const EVENT_SAMPLED: u32 = 1 << 31;

/// One dropped packet.
///
/// *Written by* the TC programs, at most one per reason, CPU and [`EVENT_INTERVAL_NS`]; without that limit
/// at a port under capture ([`crate::capture`]).
/// *Read by* the agent.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct DropEvent {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// Host-side interface the packet came from.
    pub ifindex: u32,
    /// Network; 0 when the port was unknown.
    pub network: u32,
    /// A `DropReason`.
    pub reason: u32,
    /// Length of the frame in bytes.
    pub length: u32,
    /// Length of what `head` holds.
    pub head_length: u32,
    /// One more than the CPU at a port under capture, 0 for a sample.
    ///
    /// With [`EVENT_SAMPLED`] for a frame of the flow log. [`Self::captured_on`] reads it. The name is of the layout, in which older programs have written 0.
    pub reserved: u32,
    /// The first bytes of the frame.
    pub head: [u8; EVENT_HEAD],
}

impl DropEvent {
    /// Returns the CPU of a drop at a port under capture; none for a sample.
    ///
    /// A capture gets every drop, and joins it to the packet that the CPU showed just before.
    #[must_use]
    pub const fn captured_on(&self) -> Option<u32> {
        (self.reserved & !EVENT_SAMPLED).checked_sub(1)
    }

    /// True for a drop of a frame that the flow log has sampled.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.reserved & EVENT_SAMPLED != 0
    }
}

const _: () = assert!(size_of::<DropEvent>() == 96);
