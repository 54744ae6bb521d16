//! `UPLINKS`: the interfaces by which packets of other nodes come in.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::Ip16;

/// `bpf_skb_adjust_room` takes a header of one family off a packet of the other (Linux 6.3).
pub const UPLINK_ANY_FAMILY: u32 = 1 << 0;
/// Networks have it as their uplink: see `WIRES`.
pub const UPLINK_WIRES: u32 = 1 << 8;

/// Frames for other MAC addresses than the interface's are wanted too.
pub const UPLINK_EVERY_FRAME: u32 = 1 << 9;
/// Podnet has set the interface to promiscuous mode for that, and nobody else.
pub const UPLINK_PROMISCUOUS: u32 = 1 << 10;

/// What `from_uplink` takes from an interface. Everything else is the node's own.
///
/// *Written by* the agent, before the dispatcher is attached. *Read by* `from_uplink`. *Lifetime*: as
/// long as a network needs the interface.
/// *Key*: the interface's index, `u32`, host order.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Uplink {
    /// `UPLINK_*` flags.
    pub flags: u32,
    /// UDP port of tunnels, in wire order; 0: no tunnel ends here.
    pub port: [u8; 2],
    /// Zero.
    pub reserved: u16,
    /// The node's IPv4 address for tunnels, mapped; [`Ip16::NONE`] for none.
    pub v4: Ip16,
    /// The node's IPv6 address for tunnels; [`Ip16::NONE`] for none.
    pub v6: Ip16,
}

const _: () = assert!(size_of::<Uplink>() == 40);
