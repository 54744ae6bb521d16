//! `FDB` and `ENDPOINTS`: members of a network by MAC address and by IP address.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::{Ip16, MacAddr};

/// Deliver through the host end of the link, not straight into the pod.
///
/// Something at the host end or in the pod must see the packet, and `bpf_redirect_peer` would pass it by.
pub const ENDPOINT_NO_PEER: u32 = 1 << 0;
/// The network's virtual gateway: answered for, never delivered to.
pub const ENDPOINT_GATEWAY: u32 = 1 << 1;

/// On another node: `ifindex` is its number in `VTEPS`, `port_id` is nobody's.
pub const ENDPOINT_REMOTE: u32 = 1 << 2;
/// Reached by the network's uplink, not by a tunnel; `ifindex` is 0.
///
/// Set with [`ENDPOINT_REMOTE`] or [`ENDPOINT_OUTSIDE`].
pub const ENDPOINT_WIRE: u32 = 1 << 3;
/// A socket takes what is delivered there, without a rate.
///
/// XDP may give it a frame that no skb was made of.
pub const ENDPOINT_SOCKET: u32 = 1 << 4;

/// The network's way out, found under [`Ip16::NONE`].
///
/// It is meant for every address that no member has; [`Ip16::NONE`] itself belongs to none. With
/// [`ENDPOINT_WIRE`] it stands for routers beyond the network's uplink, in `NEXT_HOPS` under the unspecified
/// address of each family.
pub const ENDPOINT_OUTSIDE: u32 = 1 << 8;

/// A policy speaks of the port: what comes for it is judged before it is delivered.
pub const ENDPOINT_GUARD: u32 = 1 << 9;

/// The address of a Service, which no port has.
///
/// It is answered for as the virtual gateway is; packets for it are translated, and decided about anew.
pub const ENDPOINT_SERVICE: u32 = 1 << 10;
/// The network has Services: what comes for the port may be an answer of one.
pub const ENDPOINT_SERVED: u32 = 1 << 11;

/// The network's virtual gateway routes to other networks.
///
/// What comes for the port may be from one of them.
pub const ENDPOINT_ROUTES: u32 = 1 << 12;

/// Key of `FDB`.
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
pub struct FdbKey {
    /// Network.
    pub network: u32,
    /// Destination MAC address.
    pub mac: MacAddr,
    /// Zero.
    pub reserved: u16,
}

const _: () = assert!(size_of::<FdbKey>() == 12);

impl FdbKey {
    /// The key of `mac` on `network`.
    #[inline(always)]
    pub const fn new(network: u32, mac: MacAddr) -> Self {
        Self {
            network,
            mac,
            reserved: 0,
        }
    }
}

/// Key of `ENDPOINTS`.
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
pub struct EndpointKey {
    /// Network.
    pub network: u32,
    /// Address, IPv4 mapped.
    pub ip: Ip16,
}

const _: () = assert!(size_of::<EndpointKey>() == 20);

/// Where an endpoint is.
///
/// *Written by* the reconciler. *Read by* `from_pod` for forwarding and for answering ARP and ND.
/// *Lifetime*: as long as the attachment, or the network for its gateway.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Endpoint {
    /// Host end of the pod's link; 0 for a gateway.
    ///
    /// A key of `VTEPS` for an endpoint on another node.
    pub ifindex: u32,
    /// `ENDPOINT_*` flags.
    pub flags: u32,
    /// The endpoint's MAC address.
    pub mac: MacAddr,
    /// Index of the port's counters.
    pub port_id: u16,
}

const _: () = assert!(size_of::<Endpoint>() == 16);
