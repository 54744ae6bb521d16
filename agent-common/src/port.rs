//! `PORTS`: who sends on this host-side interface, and what it may send.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::{Ip16, MacAddr};

/// The network is routed: frames go to the virtual gateway.
///
/// Destinations are found by IP address.
pub const PORT_L3: u32 = 1 << 0;
/// The network has no addresses of ours: only MAC addresses are checked.
pub const PORT_ANY_IP: u32 = 1 << 1;
/// `PORT_ADDRESSES` holds further addresses of this port.
pub const PORT_MORE_IPS: u32 = 1 << 2;
/// The node's own network stack routes for this port of a routed network.
pub const PORT_NODE: u32 = 1 << 3;
/// The network has members on other nodes: what is for all goes there too.
pub const PORT_REPLICATE: u32 = 1 << 4;
/// Flag of a port whose packets to unknown addresses go to the network's way out.
///
/// Unknown is an address that no member and not the node of the network has.
pub const PORT_EGRESS: u32 = 1 << 8;
/// The way out itself: the sender of everything from outside of the network.
///
/// It may not speak for a member.
pub const PORT_OUTSIDE: u32 = 1 << 9;
/// The network is a segment beyond podnet, with hosts that podnet does not know.
pub const PORT_WIRE: u32 = 1 << 10;
/// The port sends and receives frames with VLAN tags of its network, and no others.
pub const PORT_TRUNK: u32 = 1 << 11;

/// Policies speak of ports of the network.
///
/// Programs for guarded ports judge what this one sends.
pub const PORT_GUARD: u32 = 1 << 12;

/// The node's stack routes for the port, and its network has Services.
///
/// What that stack sends to it may be an answer of one.
pub const PORT_SERVED: u32 = 1 << 13;

/// The port was there before its network had Services, and has [`PORT_SERVED`].
///
/// The node's stack may have connections of it that it translates.
pub const PORT_ELDER: u32 = 1 << 14;

/// The virtual gateway of the port's network routes to other networks, by `ROUTES`.
pub const PORT_ROUTES: u32 = 1 << 15;

/// A port's identity and its rights.
///
/// *Written by* the reconciler, last of all entries on the way in and first on the way out.
/// *Read by* `from_pod`. *Lifetime*: as long as the attachment is live.
/// *Key*: the ifindex of the host end of the pod's link, `u32`, host order.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Port {
    /// Network the port belongs to, 1..=16777215.
    pub network: u32,
    /// `PORT_*` flags.
    pub flags: u32,
    /// The only source MAC address accepted.
    pub mac: MacAddr,
    /// Largest L3 packet in bytes.
    pub mtu: u16,
    /// The first IPv4 address in wire order, zero for none.
    pub ip4: [u8; 4],
    /// Index of the port's counters.
    pub port_id: u16,
    /// UDP port of the nodes' tunnels; 0 allows any.
    ///
    /// The pod may not send to it anywhere outside of its network.
    pub tunnel_port: u16,
    /// The first IPv6 address, zero for none.
    pub ip6: Ip16,
    /// The link-local address that belongs to `mac`.
    pub link_local: Ip16,
    /// Host end of the pod's link.
    ///
    /// It is the key itself, except in the entry of a shaper's far end.
    pub home: u32,
    /// Device that delays what the pod sends; 0 for none.
    ///
    /// It hands the packets back at its far end.
    pub shaper: u32,
}

const _: () = assert!(size_of::<Port>() == 64);

/// Key of `PORT_ADDRESSES`: an address beyond the first of its family.
///
/// The value is a `u32` of 1.
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
pub struct PortAddressKey {
    /// Host-side interface.
    pub ifindex: u32,
    /// The address.
    pub ip: Ip16,
}

const _: () = assert!(size_of::<PortAddressKey>() == 20);
