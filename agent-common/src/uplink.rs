//! `UPLINKS`: the interfaces by which packets of other nodes come in.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::{Ip16, MacAddr};

/// `bpf_skb_adjust_room` takes off outer headers of another family (Linux 6.3).
///
/// The outer header is of one family, the packet inside of the other.
pub const UPLINK_ANY_FAMILY: u32 = 1 << 0;
/// Networks have it as their uplink: see `WIRES`.
pub const UPLINK_WIRES: u32 = 1 << 8;

/// Frames for other MAC addresses than the interface's are wanted too.
pub const UPLINK_EVERY_FRAME: u32 = 1 << 9;
/// Podnet has set the interface to promiscuous mode for that, and nobody else.
pub const UPLINK_PROMISCUOUS: u32 = 1 << 10;
/// XDP sees each frame there as it is on the wire.
///
/// Alone, whole, finished and with its tag. Frames for a socket go on from `xdp_uplink`.
pub const UPLINK_STEERS: u32 = 1 << 11;

/// Share of podnet in the packets of an interface.
///
/// `from_uplink` takes it, and `xdp_uplink` drops it there or gives it to sockets. Everything else is the
/// node's own.
///
/// *Written by* the agent, before the dispatcher is attached. *Read by* `from_uplink` and
/// `xdp_uplink`. *Lifetime*: as
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
    /// The interface's MAC address.
    ///
    /// `xdp_uplink` does not see a tag that a driver has taken off, and frames for a VLAN of somebody else's are
    /// not sent here.
    pub mac: MacAddr,
    /// Zero.
    pub reserved_too: u16,
}

impl Uplink {
    /// Nothing is taken.
    pub const NOTHING: Self = Self {
        flags: 0,
        port: [0; 2],
        reserved: 0,
        v4: Ip16::NONE,
        v6: Ip16::NONE,
        mac: MacAddr([0; 6]),
        reserved_too: 0,
    };

    /// Tunnels end there.
    #[inline(always)]
    pub const fn has_tunnels(&self) -> bool {
        u16::from_ne_bytes(self.port) != 0
    }
}

const _: () = assert!(size_of::<Uplink>() == 48);
