//! Records of a capture: packets at a tap, and marks of ports under capture.
//!
//! A tap is a socket filter on a packet socket that is bound to one interface. It sees each frame before
//! the programs at the interface judge it, on the same CPU; they publish every drop of a port under
//! capture ([`crate::event::DropEvent::captured_on`]). A port that is not under capture has neither.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bit of an entry of `CAPTURED`: the port is under capture.
pub const CAPTURE_ON: u32 = 1;
/// Bit of an entry of `CAPTURED`: the port is in the flow log.
///
/// Drops of frames that it has sampled are published.
pub const FLOW_ON: u32 = 2;
/// Step of an entry of `CAPTURED` for a drop that found no room in `EVENTS`.
pub const CAPTURE_LOST: u32 = 4;

/// Longest part of a frame that the flow log looks at, bytes.
pub const FLOW_HEAD: usize = 96;
/// Size of the ring in which a port's samples wait, bytes.
///
/// A power of two and a multiple of the page size.
pub const FLOW_RING_BYTES: u32 = 16 * 1024;

/// Longest part of a frame that a tap copies, bytes.
///
/// A record of a perf buffer has 16 bits for its length, and its header and [`TapRecord`] are in it.
pub const MAX_SNAPLEN: u32 = 65_000;

/// From the pod.
pub const TAP_FROM_POD: u32 = 0;
/// To the pod.
pub const TAP_TO_POD: u32 = 1;

/// Bit of [`TapRecord::tag`] above the 16 of a tag: there is one.
pub const TAP_TAGGED: u32 = 1 << 16;

/// One frame at a tap; the first bytes of the frame follow it.
///
/// *Written by* the programs of `podnet-tap`, into a perf buffer of the CPU.
/// *Read by* the agent, which opened the buffer.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct TapRecord {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// Length of the frame in bytes, without a tag that the kernel keeps apart.
    pub length: u32,
    /// Bytes of it that follow.
    pub captured: u32,
    /// The VLAN tag that the kernel keeps apart from the frame, with [`TAP_TAGGED`].
    pub tag: u32,
    /// EtherType of that tag, in the lower 16 bits, as a number.
    pub tag_type: u32,
    /// [`TAP_FROM_POD`] or [`TAP_TO_POD`].
    pub direction: u32,
    /// Zero.
    pub reserved: u32,
}

const _: () = assert!(size_of::<TapRecord>() == 32);

/// One sampled frame of the flow log.
///
/// *Written by* the programs of `podnet-tap`, into the ring of the port.
/// *Read by* the agent, which made the ring.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FlowRecord {
    /// Facts about the frame; `captured` is the length of what `head` holds.
    pub tap: TapRecord,
    /// The CPU that has seen it.
    pub cpu: u32,
    /// Segments that the frame is cut into, 0 or 1 for none.
    pub segments: u32,
    /// The first bytes of the frame.
    pub head: [u8; FLOW_HEAD],
}

const _: () = assert!(size_of::<FlowRecord>() == 136);
