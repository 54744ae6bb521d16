//! `WIRES` and `NEXT_HOPS`, and the decision about one frame that an uplink brought: networks that are
//! a VLAN or a segment of the world outside, or that it routes to. What is not for a pod of this node
//! is left to the node.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::{GATEWAY_MAC, Ip16, MacAddr};
use crate::drop::DropReason;
use crate::endpoint::{ENDPOINT_GATEWAY, ENDPOINT_OUTSIDE, ENDPOINT_REMOTE, Endpoint};
use crate::network::{NETWORK_L3, NETWORK_NEXT_HOP, Network};
use crate::packet::{
    ARP_FRAME, ETH_HLEN, ETH_P_ARP, ETH_P_IP, ETH_P_IPV6, Frame, IPPROTO_ICMPV6, IPV6_HLEN, L3,
    Start, ip_addresses, ipv6_payload, is_vlan_ether_type,
};
use crate::policy::{Family, Tables};

mod asked;

use self::asked::Asked;
pub use self::asked::asked_for;

/// Key of `WIRES`: what belongs to a network at an uplink. The value is its number, `u32`.
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
    /// The uplink; of a trunk's own entries and of subnets the number of the network.
    pub ifindex: u32,
    /// VLAN id, 0 for frames without a tag; of a subnet its length, bits.
    pub vlan: u16,
    /// Zero; 1 in a trunk's own entries, which say what its pods may send; 2 for a subnet.
    pub reserved: u16,
    /// A pod's address, for a network that routers lead to; [`Ip16::NONE`] for all frames of the VLAN.
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

/// Whom to give packets for a member on another node, on the link of its network's uplink.
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

/// What to do with a frame from an uplink.
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
    /// Copy to every port that the network has on this node, and leave it to the node then.
    Flood,
    /// Send back that this member's IPv4 address is here: at its own MAC address, or at the uplink's where
    /// routers bring packets.
    ArpReply(Endpoint),
    /// The same for an IPv6 address.
    NdReply(Endpoint),
}

type Step<T> = Result<T, Incoming>;

/// Decides about a frame of network `number`; its tag is beside it.
#[inline(always)]
pub fn incoming<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    network: &Network,
    number: u32,
    tables: &T,
) -> Incoming {
    let start = frame.start();
    let Some([d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1]) = start.get::<0, ETH_HLEN>()
    else {
        return Incoming::Leave;
    };
    let header = Ethernet {
        to: MacAddr([d0, d1, d2, d3, d4, d5]),
        from: MacAddr([s0, s1, s2, s3, s4, s5]),
        ether_type: u16::from_be_bytes([t0, t1]),
    };
    let decided = if network.flags & NETWORK_L3 != 0 {
        routed(frame, &start, &header, network, number, tables)
    } else {
        switched(frame, &start, &header, network, number, tables)
    };
    match decided {
        Ok(incoming) | Err(incoming) => incoming,
    }
}

struct Ethernet {
    to: MacAddr,
    from: MacAddr,
    ether_type: u16,
}

#[inline(always)]
fn switched<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    start: &Start,
    header: &Ethernet,
    network: &Network,
    number: u32,
    tables: &T,
) -> Step<Incoming> {
    if header.to.is_link_control() {
        return Err(Incoming::Leave);
    }
    let receiver = if header.to.is_group() {
        None
    } else {
        let local = tables.station(number, header.to).filter(is_local);
        Some(local.ok_or(Incoming::Leave)?)
    };
    // What is for all is the node's too, whatever pods do not take.
    let unfit = |reason| match receiver {
        Some(_) => Incoming::Drop(reason),
        None => Incoming::Leave,
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
    // A pod of this node does not come in by the uplink, and the virtual gateway is nowhere.
    if header.from == GATEWAY_MAC || tables.station(number, header.from).is_some() {
        return Err(Incoming::Drop(DropReason::SpoofedMac));
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
                return Err(Incoming::Drop(DropReason::SpoofedArp));
            }
        }
        ETH_P_IP | ETH_P_IPV6 => {
            let (source, _) = ip_addresses(start, header.ether_type).map_err(unfit)?;
            if is_here(&source) {
                return Err(Incoming::Drop(DropReason::SpoofedIp));
            }
            if header.ether_type == ETH_P_IPV6 {
                let target = advertised(frame, start).map_err(unfit)?;
                if target.is_some_and(|target| is_here(&target)) {
                    return Err(Incoming::Drop(DropReason::SpoofedNd));
                }
            }
        }
        _ => {}
    }
    Ok(match receiver {
        Some(endpoint) => Incoming::Deliver(endpoint),
        None => Incoming::Flood,
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

/// L3: the sender's node has routed it, or a router on the way; or somebody asks who has an address.
#[inline(always)]
fn routed<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    start: &Start,
    header: &Ethernet,
    network: &Network,
    number: u32,
    tables: &T,
) -> Step<Incoming> {
    if let Some(asked) = Asked::read(frame, start, header.ether_type) {
        return asked.decide(frame, header, network, number, tables);
    }
    let addresses = ip_addresses(start, header.ether_type);
    let (source, destination) = addresses.map_err(|_| Incoming::Leave)?;
    let here = tables.endpoint(number, &destination).filter(is_local);
    let receiver = here.ok_or(Incoming::Leave)?;
    let sender = tables.endpoint(number, &source);
    if network.flags & NETWORK_NEXT_HOP != 0 {
        // Anybody that the underlay routes for, but nobody who is here.
        if sender
            .as_ref()
            .is_some_and(|it| it.flags & ENDPOINT_REMOTE == 0)
            || source.is_link_local_v6()
        {
            return Err(Incoming::Drop(DropReason::SpoofedIp));
        }
    } else {
        if header.to != receiver.mac {
            return Err(Incoming::Leave);
        }
        match sender {
            Some(sender) if sender.flags & ENDPOINT_REMOTE == 0 => {
                return Err(Incoming::Drop(DropReason::SpoofedIp));
            }
            None => return Err(Incoming::Drop(DropReason::SpoofedIp)),
            Some(sender) if sender.mac != header.from => {
                return Err(Incoming::Drop(DropReason::SpoofedMac));
            }
            Some(_) => {}
        }
    }
    if frame.segment_length() > network.mtu as usize + ETH_HLEN {
        return Err(Incoming::Drop(DropReason::TooBig));
    }
    Ok(Incoming::Route(receiver))
}

/// Whether an address is in a subnet of the network: who has it there is known, or nobody has it.
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
    endpoint.flags & (ENDPOINT_REMOTE | ENDPOINT_GATEWAY | ENDPOINT_OUTSIDE) == 0
}

#[cfg(test)]
mod tests;
