//! Decide about one frame that another node sent through a tunnel.
//!
//! The other node has checked the frame. This one checks that the node may speak for the sender, and delivers
//! to its own pods only.

use crate::addr::{GATEWAY_MAC, Ip16, MacAddr};
use crate::drop::DropReason;
use crate::endpoint::{
    ENDPOINT_GATEWAY, ENDPOINT_OUTSIDE, ENDPOINT_REMOTE, ENDPOINT_SERVICE, Endpoint,
};
use crate::network::{NETWORK_ANY_IP, NETWORK_L3, NETWORK_WIRE, Network};
use crate::packet::{ETH_HLEN, Frame, Start, ip_addresses, is_vlan_ether_type};
use crate::policy::Tables;

mod switched;

use self::switched::Sender;

/// Where a frame came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The network's number, by the VNI.
    pub network: u32,
    /// The node, a key of `VTEPS`, by the outer source address.
    pub vtep: u32,
}

/// Verdict on the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Count and discard.
    Drop(DropReason),
    /// Deliver to a pod of this node as it is.
    Deliver(Endpoint),
    /// Copy to every port of the network on this node, and to no other node.
    ///
    /// That is the rule of split horizon.
    Flood,
}

impl From<DropReason> for Arrival {
    #[inline(always)]
    fn from(reason: DropReason) -> Self {
        Self::Drop(reason)
    }
}

type Admission<T> = Result<T, Arrival>;

const fn drop<T>(reason: DropReason) -> Admission<T> {
    Err(Arrival::Drop(reason))
}

/// Decides about a frame of `origin` on `network`.
#[inline(always)]
pub fn arrive<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    network: &Network,
    origin: Origin,
    tables: &T,
) -> Arrival {
    match admit(frame, network, origin, tables) {
        Ok(arrival) | Err(arrival) => arrival,
    }
}

#[inline(always)]
fn part<const AT: usize, const N: usize>(start: &Start) -> Admission<[u8; N]> {
    match start.get::<AT, N>() {
        Some(bytes) => Ok(bytes),
        None => drop(DropReason::Truncated),
    }
}

#[inline(always)]
fn admit<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    network: &Network,
    origin: Origin,
    tables: &T,
) -> Admission<Arrival> {
    // Its number is no VNI.
    if network.flags & NETWORK_WIRE != 0 {
        return drop(DropReason::UnknownNetwork);
    }
    let start = frame.start();
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = part::<0, ETH_HLEN>(&start)?;
    let to = MacAddr([d0, d1, d2, d3, d4, d5]);
    let from = MacAddr([s0, s1, s2, s3, s4, s5]);
    let ether_type = u16::from_be_bytes([t0, t1]);
    if frame.has_vlan_tag() || is_vlan_ether_type(ether_type) {
        return drop(DropReason::VlanTag);
    }
    if to.is_link_control() {
        return drop(DropReason::LinkControl);
    }
    if frame.segment_length() > network.mtu as usize + ETH_HLEN {
        return drop(DropReason::TooBig);
    }
    if network.flags & NETWORK_L3 != 0 {
        return routed(&start, origin, tables, (to, from), ether_type);
    }
    let (home, is_routed) = match tables.station(origin.network, from) {
        Some(sender) if is_of(&sender, origin.vtep) => (origin.network, false),
        // From another network of a VPC. Members of this one are not behind the gateway.
        None if from == GATEWAY_MAC => {
            let (source, _) = ip_addresses(&start, ether_type).map_err(Arrival::Drop)?;
            if tables.endpoint(origin.network, &source).is_some() {
                return drop(DropReason::SpoofedMac);
            }
            match tables.route(origin.network, &source) {
                Some(route) => (route.network, true),
                None => return drop(DropReason::SpoofedIp),
            }
        }
        Some(_) | None => return drop(DropReason::SpoofedMac),
    };
    let sender = Sender {
        from,
        origin: Origin {
            network: home,
            ..origin
        },
        is_routed,
        any_ip: !is_routed && network.flags & NETWORK_ANY_IP != 0,
        tables,
    };
    sender.check(frame, &start, ether_type)?;
    if is_routed {
        let (_, destination) = ip_addresses(&start, ether_type).map_err(Arrival::Drop)?;
        if destination.is_link_local_v6() {
            return drop(DropReason::LinkLocal);
        }
        return addressed(origin.network, tables, &destination, to);
    }
    if to.is_group() {
        return Ok(Arrival::Flood);
    }
    here(tables.station(origin.network, to))
}

/// Decides about a frame of an L3 network.
///
/// The sender's node has routed it, so its MAC addresses are the gateway's and the receiver's.
#[inline(always)]
fn routed<T: Tables>(
    start: &Start,
    origin: Origin,
    tables: &T,
    (to, from): (MacAddr, MacAddr),
    ether_type: u16,
) -> Admission<Arrival> {
    if from != GATEWAY_MAC {
        return drop(DropReason::SpoofedMac);
    }
    let (source, destination) = ip_addresses(start, ether_type).map_err(Arrival::Drop)?;
    let sender = match tables.endpoint(origin.network, &source) {
        // It may be of another network, from which this one is reached.
        None => match tables.route(origin.network, &source) {
            Some(route) => tables.endpoint(route.network, &source),
            None => None,
        },
        sender => sender,
    };
    match sender {
        Some(sender) if is_of(&sender, origin.vtep) => {}
        Some(_) | None => return drop(DropReason::SpoofedIp),
    }
    addressed(origin.network, tables, &destination, to)
}

/// Finds the receiver of a packet that another node has routed.
#[inline(always)]
fn addressed<T: Tables>(
    network: u32,
    tables: &T,
    destination: &Ip16,
    to: MacAddr,
) -> Admission<Arrival> {
    match here(tables.endpoint(network, destination))? {
        // The node that sent it believes the address to be another pod's.
        Arrival::Deliver(endpoint) if endpoint.mac != to => drop(DropReason::NoEndpoint),
        arrival => Ok(arrival),
    }
}

#[inline(always)]
const fn is_of(sender: &Endpoint, vtep: u32) -> bool {
    sender.flags & ENDPOINT_REMOTE != 0 && sender.ifindex == vtep
}

/// Split horizon: what came from a node goes to no other one.
#[inline(always)]
fn here(found: Option<Endpoint>) -> Admission<Arrival> {
    match found {
        None => drop(DropReason::NoEndpoint),
        Some(endpoint) if endpoint.flags & ENDPOINT_REMOTE != 0 => drop(DropReason::Hairpin),
        Some(endpoint) if endpoint.flags & ENDPOINT_GATEWAY != 0 => drop(DropReason::Gateway),
        Some(endpoint) if endpoint.flags & (ENDPOINT_OUTSIDE | ENDPOINT_SERVICE) != 0 => {
            drop(DropReason::NoEndpoint)
        }
        Some(endpoint) => Ok(Arrival::Deliver(endpoint)),
    }
}

#[cfg(test)]
mod tests;
