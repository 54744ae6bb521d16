//! `WIRES` and `NEXT_HOPS`, and the decision about a frame that an uplink brought.
//!
//! Networks with an uplink are a VLAN or a segment of the world outside, or routed to it. A frame that is not
//! for a pod of this node is left to the node.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::{GATEWAY_MAC, Ip16, MacAddr};
use crate::drop::DropReason;
use crate::endpoint::{
    ENDPOINT_GATEWAY, ENDPOINT_OUTSIDE, ENDPOINT_REMOTE, ENDPOINT_SERVICE, Endpoint,
};
use crate::network::{NETWORK_L3, NETWORK_NEXT_HOP, Network};
use crate::packet::{
    ARP_FRAME, ETH_HLEN, ETH_P_ARP, ETH_P_IP, ETH_P_IPV6, Frame, IPPROTO_ICMPV6, IPV6_HLEN, L3,
    Start, ip_addresses, ipv6_payload, is_vlan_ether_type,
};
use crate::policy::{Family, Tables, carries_on_wire};

mod asked;
mod tunnels;

use self::asked::Asked;
pub use self::asked::asked_for;
pub use self::tunnels::forges_tunnel;

/// Key of `WIRES`: what belongs to a network at an uplink.
///
/// The value is a sealed [`WireOwner`].
///
/// *Written by* the reconciler. *Read by* `from_wire`, and by `from_pod` for ports with
/// [`PORT_TRUNK`](crate::port::PORT_TRUNK). *Lifetime*: as long as the network has ports on this node;
/// an address as long as its attachment.
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
pub struct WireKey {
    /// The uplink; the network's number in entries that are of no uplink.
    ///
    /// Those are a trunk's own entries, subnets and EtherTypes.
    pub ifindex: u32,
    /// VLAN id, 0 for frames without a tag.
    ///
    /// Of a subnet its length, bits; or an EtherType.
    pub vlan: u16,
    /// Kind of the entry: 0 at an uplink, 1 of a trunk, 2 a subnet, 3 an EtherType.
    ///
    /// A trunk's own entries say what its pods may send.
    pub reserved: u16,
    /// A pod's address, for a network that routers lead to.
    ///
    /// [`Ip16::NONE`] for all frames of the VLAN.
    pub ip: Ip16,
}

const _: () = assert!(size_of::<WireKey>() == 24);

impl WireKey {
    /// All frames of a VLAN, or those without a tag.
    #[inline(always)]
    pub const fn segment(ifindex: u32, vlan: u16) -> Self {
        Self {
            ifindex,
            vlan,
            reserved: 0,
            ip: Ip16::NONE,
        }
    }

    /// A VLAN that pods of a trunk may send on.
    #[inline(always)]
    pub const fn trunk(network: u32, vlan: u16) -> Self {
        Self {
            ifindex: network,
            vlan,
            reserved: 1,
            ip: Ip16::NONE,
        }
    }

    /// A subnet of a network whose pods send to the outside by its uplink.
    #[inline(always)]
    pub const fn subnet(network: u32, first: Ip16, length: u8) -> Self {
        Self {
            ifindex: network,
            vlan: length as u16,
            reserved: 2,
            ip: first,
        }
    }

    /// Names an EtherType besides IPv4, IPv6 and ARP that an L2 network carries.
    ///
    /// The network has an uplink.
    #[inline(always)]
    pub const fn ether_type(network: u32, ether_type: u16) -> Self {
        Self {
            ifindex: network,
            vlan: ether_type,
            reserved: 3,
            ip: Ip16::NONE,
        }
    }

    /// Packets for an address.
    #[inline(always)]
    pub const fn address(ifindex: u32, ip: Ip16) -> Self {
        Self {
            ifindex,
            vlan: 0,
            reserved: 0,
            ip,
        }
    }
}

/// The network that has what a [`WireKey`] says, in a whole word of 64 bits.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct WireOwner {
    /// Network.
    pub network: u32,
    /// Zero.
    pub reserved: u32,
}

impl WireOwner {
    /// This network.
    pub const fn new(network: u32) -> Self {
        Self {
            network,
            reserved: 0,
        }
    }
}

/// Next hop to a member on another node, on the link of the network's uplink.
///
/// *Written by* the reconciler. *Read by* `from_pod`. *Lifetime*: as that of the member's entry in
/// `ENDPOINTS`, which has the same key.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct NextHop {
    /// `AF_INET` or `AF_INET6` (linux/socket.h).
    pub family: u32,
    /// In wire order, IPv4 in the first word.
    pub address: [u32; 4],
}

const _: () = assert!(size_of::<NextHop>() == 20);

/// ICMPv6 type of neighbour advertisements (RFC 4861 section 4.4).
const ADVERTISEMENT: u8 = 136;
/// `AF_INET6` of `linux/socket.h`.
pub const AF_INET6: u32 = 10;
/// `AF_INET` of `linux/socket.h`.
pub const AF_INET: u32 = 2;

impl NextHop {
    /// This neighbour.
    pub const fn new(ip: &Ip16) -> Self {
        match ip.v4() {
            Some(v4) => Self {
                family: AF_INET,
                address: [u32::from_ne_bytes(v4), 0, 0, 0],
            },
            None => Self {
                family: AF_INET6,
                address: ip.words(),
            },
        }
    }

    /// Its address.
    pub const fn ip(&self) -> Ip16 {
        if self.family == AF_INET6 {
            return Ip16::from_words(self.address);
        }
        let [first, ..] = self.address;
        Ip16::from_v4(first.to_ne_bytes())
    }
}

/// Verdict on a frame from an uplink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incoming {
    /// Not for a pod: the node's.
    Leave,
    /// Count and discard.
    Drop(DropReason),
    /// Deliver to a pod of this node as it is, but for its tag.
    Deliver(Endpoint),
    /// Deliver from the virtual gateway's MAC address to the pod's.
    Route(Endpoint),
    /// Copy to every port of the network on this node, then leave to the node.
    Flood,
    /// Send back that this member's IPv4 address is here.
    ///
    /// At its own MAC address, or at the uplink's where routers bring packets.
    ArpReply(Endpoint),
    /// The same for an IPv6 address.
    NdReply(Endpoint),
}

/// [`Incoming`] without its endpoint, which is kept apart and never left unset.
///
/// Linux 5.10 reads nothing of the stack that was not written, and a compiler leaves the endpoint of a variant
/// that has none unwritten.
#[derive(Debug, Clone, Copy)]
enum IncomingAct {
    Leave,
    Drop(DropReason),
    Deliver,
    Route,
    Flood,
    ArpReply,
    NdReply,
}

impl IncomingAct {
    #[inline(always)]
    const fn with(self, to: Endpoint) -> Incoming {
        match self {
            Self::Leave => Incoming::Leave,
            Self::Drop(reason) => Incoming::Drop(reason),
            Self::Deliver => Incoming::Deliver(to),
            Self::Route => Incoming::Route(to),
            Self::Flood => Incoming::Flood,
            Self::ArpReply => Incoming::ArpReply(to),
            Self::NdReply => Incoming::NdReply(to),
        }
    }
}

/// Endpoint of no port.
const NO_ENDPOINT: Endpoint = Endpoint {
    ifindex: 0,
    flags: 0,
    mac: MacAddr([0; 6]),
    port_id: 0,
};

type Judgement<T> = Result<T, IncomingAct>;

/// Decides about a frame of network `number`; its tag is next to it.
#[inline(always)]
pub fn incoming<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    network: &Network,
    number: u32,
    tables: &T,
) -> Incoming {
    // Before anything else, so that on the stack it has the place of what comes later.
    let partial = frame.partial();
    let start = frame.start();
    if !start.has::<ETH_HLEN>() {
        return Incoming::Leave;
    }
    let ether_type = u16::from_be_bytes(start.field::<12, 2>());
    let header = Ethernet {
        to: MacAddr(start.field::<0, 6>()),
        from: MacAddr(start.field::<6, 6>()),
        ether_type,
        is_settled: partial.fits(frame, &start, ether_type),
    };
    let mut to = NO_ENDPOINT;
    let decided = if network.flags & NETWORK_L3 != 0 {
        routed(frame, &start, &header, (network, number), tables, &mut to)
    } else {
        switched(frame, &start, &header, (network, number), tables, &mut to)
    };
    match decided {
        Ok(act) | Err(act) => act.with(to),
    }
}

struct Ethernet {
    to: MacAddr,
    from: MacAddr,
    ether_type: u16,
    /// Nothing that is judged here changes later.
    ///
    /// An interface of a virtual machine brings what its neighbour left unfinished.
    is_settled: bool,
}

#[inline(always)]
fn switched<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    start: &Start,
    header: &Ethernet,
    (network, number): (&Network, u32),
    tables: &T,
    to: &mut Endpoint,
) -> Judgement<IncomingAct> {
    if header.to.is_link_control() {
        return Err(IncomingAct::Leave);
    }
    let is_for_all = header.to.is_group();
    if !is_for_all {
        let local = tables.station(number, header.to).filter(is_local);
        *to = local.ok_or(IncomingAct::Leave)?;
    }
    // What is for all is the node's too, whatever pods do not take.
    let unfit = |reason| {
        if is_for_all {
            IncomingAct::Leave
        } else {
            IncomingAct::Drop(reason)
        }
    };
    if is_vlan_ether_type(header.ether_type) {
        return Err(unfit(DropReason::VlanTag));
    }
    if frame.segment_length() > network.mtu as usize + ETH_HLEN {
        return Err(unfit(DropReason::TooBig));
    }
    if header.from.is_group() {
        return Err(unfit(DropReason::Malformed));
    }
    if !header.is_settled {
        return Err(unfit(DropReason::Malformed));
    }
    // A pod of this node does not come in by the uplink, and the virtual gateway is nowhere.
    if header.from == GATEWAY_MAC || tables.station(number, header.from).is_some() {
        return Err(IncomingAct::Drop(DropReason::SpoofedMac));
    }
    let is_here = |ip: &Ip16| tables.endpoint(number, ip).is_some();
    match header.ether_type {
        ETH_P_ARP => {
            let packet = frame.load::<{ ARP_FRAME - ETH_HLEN }>(L3);
            let packet = packet.ok_or_else(|| unfit(DropReason::Truncated))?;
            let sender = MacAddr([
                packet[8], packet[9], packet[10], packet[11], packet[12], packet[13],
            ]);
            let ip = Ip16::from_v4([packet[14], packet[15], packet[16], packet[17]]);
            if is_here(&ip) || sender == GATEWAY_MAC || tables.station(number, sender).is_some() {
                return Err(IncomingAct::Drop(DropReason::SpoofedArp));
            }
        }
        ETH_P_IP | ETH_P_IPV6 => {
            let (source, _) = ip_addresses(start, header.ether_type).map_err(unfit)?;
            if is_here(&source) {
                return Err(IncomingAct::Drop(DropReason::SpoofedIp));
            }
            if header.ether_type == ETH_P_IPV6 {
                let target = advertised(frame, start).map_err(unfit)?;
                if target.is_some_and(|target| is_here(&target)) {
                    return Err(IncomingAct::Drop(DropReason::SpoofedNd));
                }
            }
        }
        other if carries_on_wire(number, other, tables) => {}
        _ => return Err(unfit(DropReason::EtherType)),
    }
    Ok(if is_for_all {
        IncomingAct::Flood
    } else {
        IncomingAct::Deliver
    })
}

/// The address that an IPv6 packet advertises, if it is a neighbour advertisement.
#[inline(always)]
fn advertised<F: Frame + ?Sized>(frame: &F, start: &Start) -> Result<Option<Ip16>, DropReason> {
    let Some([_, _, _, _, _, _, next_header, ..]) = start.get::<L3, IPV6_HLEN>() else {
        return Err(DropReason::Truncated);
    };
    let payload = ipv6_payload(frame, next_header).ok_or(DropReason::Ipv6Headers)?;
    if payload.protocol == IPPROTO_ICMPV6
        && !payload.later_fragment
        && let Some([ADVERTISEMENT]) = frame.load::<1>(payload.offset)
    {
        return Ok(frame.load::<16>(payload.offset + 8).map(Ip16));
    }
    Ok(None)
}

/// Decides about a frame on an L3 network.
///
/// The sender's node has routed it, or a router on the way; or somebody asks who has an address.
#[inline(always)]
fn routed<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    start: &Start,
    header: &Ethernet,
    (network, number): (&Network, u32),
    tables: &T,
    to: &mut Endpoint,
) -> Judgement<IncomingAct> {
    if let Some(asked) = Asked::read(frame, start, header.ether_type) {
        return asked.decide(frame, header, (network, number), tables, to);
    }
    let addresses = ip_addresses(start, header.ether_type);
    let (source, destination) = addresses.map_err(|_| IncomingAct::Leave)?;
    let here = tables.endpoint(number, &destination).filter(is_local);
    *to = here.ok_or(IncomingAct::Leave)?;
    let sender = tables.endpoint(number, &source);
    if network.flags & NETWORK_NEXT_HOP != 0 {
        // Anybody that the underlay routes for, but nobody who is here.
        if sender
            .as_ref()
            .is_some_and(|it| it.flags & ENDPOINT_REMOTE == 0)
            || source.is_link_local_v6()
        {
            return Err(IncomingAct::Drop(DropReason::SpoofedIp));
        }
    } else {
        if header.to != to.mac {
            return Err(IncomingAct::Leave);
        }
        match sender {
            Some(sender) if sender.flags & ENDPOINT_REMOTE == 0 => {
                return Err(IncomingAct::Drop(DropReason::SpoofedIp));
            }
            None => return Err(IncomingAct::Drop(DropReason::SpoofedIp)),
            Some(sender) if sender.mac != header.from => {
                return Err(IncomingAct::Drop(DropReason::SpoofedMac));
            }
            Some(_) => {}
        }
    }
    if frame.segment_length() > network.mtu as usize + ETH_HLEN {
        return Err(IncomingAct::Drop(DropReason::TooBig));
    }
    if !header.is_settled {
        return Err(IncomingAct::Drop(DropReason::Malformed));
    }
    Ok(IncomingAct::Route)
}

/// True when an address is in a subnet of the network.
///
/// The holder of such an address is known, or there is none.
#[inline(always)]
pub fn is_own<T: Tables>(network: &Network, number: u32, ip: &Ip16, tables: &T) -> bool {
    for length in network.subnets {
        if length == 0 {
            return false;
        }
        if tables.has_subnet(number, &ip.first_of(length), length) {
            return true;
        }
    }
    false
}

/// Where routers that lead to the outside are in `NEXT_HOPS`.
#[inline(always)]
pub const fn outside(family: Family) -> Ip16 {
    match family {
        Family::V4 => Ip16::from_v4([0; 4]),
        Family::V6 => Ip16::NONE,
    }
}

/// Where an IP packet goes; `None` for what is none.
#[inline(always)]
pub fn destination<F: Frame + ?Sized>(frame: &F) -> Option<Ip16> {
    let start = frame.start();
    let [.., t0, t1] = start.get::<0, ETH_HLEN>()?;
    let addresses = ip_addresses(&start, u16::from_be_bytes([t0, t1]));
    addresses.ok().map(|(_, destination)| destination)
}

#[inline(always)]
const fn is_local(endpoint: &Endpoint) -> bool {
    endpoint.flags & (ENDPOINT_REMOTE | ENDPOINT_GATEWAY | ENDPOINT_OUTSIDE | ENDPOINT_SERVICE) == 0
}

#[cfg(test)]
mod tests;
