//! Judge what a port sends, and what comes for a port from elsewhere.

use super::pass::{End, Passage, To, pass};
use super::tables::GuardTables;
use super::tuple::is_exempt;
use super::{GUARD_NODE, Guard};
use crate::addr::{Ip16, MacAddr};
use crate::drop::DropReason;
use crate::endpoint::{
    ENDPOINT_GATEWAY, ENDPOINT_OUTSIDE, ENDPOINT_REMOTE, ENDPOINT_ROUTES, ENDPOINT_SERVICE,
    ENDPOINT_WIRE, Endpoint,
};
use crate::packet::{ETH_P_ARP, ETH_P_IP, ETH_P_IPV6, Frame};
use crate::policy::{self, Act, Family, Scratch};
use crate::port::{PORT_ANY_IP, PORT_L3, PORT_OUTSIDE, Port};

/// The longest frame of ARP, bytes: the shortest of Ethernet, and a tag.
///
/// A frame of ARP is padded to the shortest that Ethernet has.
pub const ARP_MAX: usize = 64;

/// Judges a frame of [`Passage::port`], of which it was decided what becomes of it.
///
/// # Errors
/// `PolicyEgress`, `PolicyIngress`, `PolicyFragment`, `FlowLimit`, `Truncated`.
#[inline(always)]
pub fn depart<F: Frame + ?Sized, T: GuardTables>(
    frame: &F,
    act: Act,
    scratch: &Scratch,
    tables: &T,
    passage: &mut Passage,
) -> Result<(), DropReason> {
    let to = match act {
        Act::Switch | Act::Moved | Act::Route => port_here(&scratch.to),
        // The node may translate the address: its receiver is judged once more there, with the address it has then.
        Act::Node => match tables.endpoint(passage.port.network, &scratch.packet.destination) {
            Some(receiver) => port_here(&receiver),
            None => NO_PORT,
        },
        Act::Leave | Act::Wire | Act::WireRoute | Act::Flood => NO_PORT,
        Act::Drop(_)
        | Act::Ignore
        | Act::Service
        | Act::ArpReply
        | Act::NdReply
        | Act::EchoReply => {
            return Ok(());
        }
    };
    passage.take_sender(tables, passage.port.port_id);
    passage.receiver.clear();
    if to != NO_PORT {
        passage.take_receiver(tables, number(to));
    }
    let ether_type = u16::from_be_bytes(scratch.start.field::<12, 2>());
    if !is_ip(ether_type) {
        return other(frame, ether_type, &passage.sender, &passage.receiver);
    }
    let kind = if act == Act::Flood {
        To::Group
    } else {
        To::One
    };
    if passage.sender.egress != 0
        && is_stray(&passage.port, act, scratch, tables)
        && !is_exempt(frame, &scratch.packet)
    {
        return Err(DropReason::PolicyEgress);
    }
    let from = if passage.port.flags & PORT_OUTSIDE != 0 {
        End::Outside
    } else {
        End::Port(passage.port.port_id)
    };
    let network = passage.port.network;
    let other = receiver_network(&passage.port, act, scratch);
    let (network, shared) = between(network, other);
    passage.shared = shared;
    pass(frame, network, (from, kind), scratch, tables, passage)
}

/// Judges a frame from elsewhere for a port of this node.
///
/// # Errors
/// Those of [`depart`] but `PolicyEgress`, and those of frames that cannot be read.
#[inline(always)]
pub fn arrive<F: Frame + ?Sized, T: GuardTables>(
    frame: &F,
    (network, from): (u32, End),
    to: &Endpoint,
    scratch: &mut Scratch,
    tables: &T,
    passage: &mut Passage,
) -> Result<(), DropReason> {
    passage.sender.clear();
    passage.take_receiver(tables, to.port_id);
    if passage.receiver.egress | passage.receiver.ingress == 0 {
        return Ok(());
    }
    let ether_type = policy::read(frame, scratch)?;
    if !is_ip(ether_type) {
        return other(frame, ether_type, &passage.sender, &passage.receiver);
    }
    let other = sender_network(tables, network, to, &scratch.packet.source);
    let (network, shared) = between(network, other);
    passage.shared = shared;
    pass(frame, network, (from, To::One), scratch, tables, passage)
}

/// The place where the node's stack got a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The node made it.
    Node,
    /// It came by the link of this port of the network.
    Port(u16),
    /// It came by another link.
    Elsewhere,
    /// The kernel does not say: it may be a fragment of one that the node carried.
    ///
    /// A fragment that IPv6 makes anew has no link that it came by.
    Unknown,
}

/// Judges a packet that the node's stack sends to [`Passage::port`].
///
/// Addresses are those of the end of the way: the node has translated what it translates. What it made itself
/// always passes, with its replies.
///
/// # Errors
/// Those of [`depart`], `SpoofedIp`, and those of frames that cannot be read.
#[inline(always)]
pub fn from_node<F: Frame + ?Sized, T: GuardTables>(
    frame: &F,
    origin: Origin,
    scratch: &mut Scratch,
    tables: &T,
    passage: &mut Passage,
) -> Result<(), DropReason> {
    let network = passage.port.network;
    passage.shared = network;
    passage.sender.clear();
    passage.take_receiver(tables, passage.port.port_id);
    let is_open = passage.receiver.egress | passage.receiver.ingress == 0;
    let ether_type = match policy::read(frame, scratch) {
        Ok(ether_type) => ether_type,
        // What no policy is about is the stack's to judge.
        Err(_) if is_open => return Ok(()),
        Err(reason) => return Err(reason),
    };
    if !is_ip(ether_type) {
        // The node asks for the pod's hardware address.
        return Ok(());
    }
    let is_anew = scratch.packet.fragment && matches!(scratch.packet.family, Family::V6);
    let origin = match origin {
        Origin::Node if is_anew => Origin::Unknown,
        origin => origin,
    };
    let own = passage.port.port_id;
    let source = match tables.endpoint(network, &scratch.packet.source) {
        // A pod may talk to itself, whatever policies say: this is its own packet, by a Service.
        Some(source)
            if source.flags & ENDPOINT_SERVICE != 0
                && matches!(origin, Origin::Port(port_id) if port_id == own) =>
        {
            return Ok(());
        }
        Some(source) => port_here(&source),
        None => NO_PORT,
    };
    let came_by = match origin {
        Origin::Unknown => source,
        Origin::Node | Origin::Elsewhere => NO_PORT,
        Origin::Port(port_id) => port_id as u32,
    };
    if matches!(origin, Origin::Node) {
        passage.sender.flags = GUARD_NODE;
    } else if source != NO_PORT {
        // No other link brings packets of a pod of this node.
        if source != came_by {
            return if is_open {
                Ok(())
            } else {
                Err(DropReason::SpoofedIp)
            };
        }
        passage.take_sender(tables, number(source));
    }
    // With another source, its own or that of a Service, the node sends it for the port still.
    let from = if came_by == NO_PORT {
        End::Outside
    } else {
        End::Port(number(came_by))
    };
    pass(frame, network, (from, To::One), scratch, tables, passage)
}

/// Returns the network in the key of a connection, and the one of both ends.
///
/// The connection is between ends of these networks. They may be one; of two there is none of both ends, 0. The key is the same in both directions. No other
/// connection has the addresses there: networks that are routed to each other have none in common.
#[inline(always)]
pub const fn between(one: u32, other: u32) -> (u32, u32) {
    if one == other {
        (one, one)
    } else if one < other {
        (one, 0)
    } else {
        (other, 0)
    }
}

/// Returns the network of a sender elsewhere, which has been believed.
///
/// It is a member of the receiver's network, or of one to which the gateway of that routes.
#[inline(always)]
pub fn sender_network<T: GuardTables>(
    tables: &T,
    network: u32,
    to: &Endpoint,
    source: &Ip16,
) -> u32 {
    if to.flags & ENDPOINT_ROUTES != 0
        && tables.endpoint(network, source).is_none()
        && let Some(route) = tables.route(network, source)
    {
        return route.network;
    }
    network
}

/// The network of the receiver of a frame, by the decision about it.
#[inline(always)]
pub const fn receiver_network(port: &Port, act: Act, scratch: &Scratch) -> u32 {
    match act {
        Act::Route => scratch.route.network,
        _ => port.network,
    }
}

/// No port of this node.
///
/// A number, as the compiler reads the payload of an `Option` where there is none, which no verifier accepts.
pub(super) const NO_PORT: u32 = u32::MAX;

/// The port of an endpoint of this node, else [`NO_PORT`].
#[inline(always)]
pub(super) const fn port_here(to: &Endpoint) -> u32 {
    let elsewhere =
        ENDPOINT_REMOTE | ENDPOINT_GATEWAY | ENDPOINT_OUTSIDE | ENDPOINT_WIRE | ENDPOINT_SERVICE;
    if to.flags & elsewhere == 0 {
        to.port_id as u32
    } else {
        NO_PORT
    }
}

/// The number of a port that is not [`NO_PORT`].
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "it was one of 16 bits")]
pub(super) const fn number(port: u32) -> u16 {
    port as u16
}

#[inline(always)]
pub(super) const fn is_ip(ether_type: u16) -> bool {
    matches!(ether_type, ETH_P_IP | ETH_P_IPV6)
}

/// Drops what is neither IP nor ARP: no policy can name it.
///
/// So is ARP with something behind it, by which ports could talk that may not.
#[inline(always)]
fn other<F: Frame + ?Sized>(
    frame: &F,
    ether_type: u16,
    sender: &Guard,
    receiver: &Guard,
) -> Result<(), DropReason> {
    if ether_type == ETH_P_ARP && frame.length() <= ARP_MAX {
        return Ok(());
    }
    if sender.egress != 0 {
        return Err(DropReason::PolicyEgress);
    }
    if receiver.ingress != 0 {
        return Err(DropReason::PolicyIngress);
    }
    Ok(())
}

/// True for an IP packet to a station that does not have its destination address.
///
/// A policy that allows an address allows the port which has it, and no other that would take its packets. A frame
/// for all may have the address of a group only.
#[inline(always)]
pub(super) fn is_stray<T: GuardTables>(
    port: &Port,
    act: Act,
    scratch: &Scratch,
    tables: &T,
) -> bool {
    // What is routed goes by its address.
    if port.flags & (PORT_L3 | PORT_ANY_IP | PORT_OUTSIDE) != 0 || matches!(act, Act::Route) {
        return false;
    }
    if matches!(act, Act::Flood) {
        return !scratch.packet.destination.is_group();
    }
    let station = match act {
        Act::Moved => scratch.to.mac,
        _ => MacAddr(scratch.start.field::<0, 6>()),
    };
    match tables.endpoint(port.network, &scratch.packet.destination) {
        Some(holder) => holder.mac != station,
        // Beyond the uplink are hosts that podnet does not know.
        None => act != Act::Wire,
    }
}
