//! Judge what a port sends, and what comes for a port from elsewhere.

use super::Guard;
use super::pass::{End, Passage, To, pass};
use super::tables::GuardTables;
use super::tuple::is_exempt;
use crate::addr::MacAddr;
use crate::drop::DropReason;
use crate::endpoint::{
    ENDPOINT_GATEWAY, ENDPOINT_OUTSIDE, ENDPOINT_REMOTE, ENDPOINT_WIRE, Endpoint,
};
use crate::packet::{ETH_P_ARP, ETH_P_IP, ETH_P_IPV6, Frame};
use crate::policy::{self, Act, Scratch};
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
        Act::Switch | Act::Moved | Act::Route => Some(&scratch.to).filter(|to| is_here(to)),
        Act::Leave | Act::Wire | Act::WireRoute | Act::Flood => None,
        Act::Drop(_) | Act::Ignore | Act::Node | Act::ArpReply | Act::NdReply | Act::EchoReply => {
            return Ok(());
        }
    };
    passage.sender = tables.guard(passage.port.port_id);
    passage.receiver = match to {
        Some(to) => tables.guard(to.port_id),
        None => Guard::default(),
    };
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
    let packet = &scratch.packet;
    let network = passage.port.network;
    pass(frame, network, (from, kind), packet, tables, passage)
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
    passage.sender = Guard::default();
    passage.receiver = tables.guard(to.port_id);
    if passage.receiver.egress | passage.receiver.ingress == 0 {
        return Ok(());
    }
    let ether_type = policy::read(frame, scratch)?;
    if !is_ip(ether_type) {
        return other(frame, ether_type, &passage.sender, &passage.receiver);
    }
    let packet = &scratch.packet;
    pass(frame, network, (from, To::One), packet, tables, passage)
}

/// True for a port of this node.
#[inline(always)]
const fn is_here(to: &Endpoint) -> bool {
    to.flags & (ENDPOINT_REMOTE | ENDPOINT_GATEWAY | ENDPOINT_OUTSIDE | ENDPOINT_WIRE) == 0
}

#[inline(always)]
const fn is_ip(ether_type: u16) -> bool {
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
fn is_stray<T: GuardTables>(port: &Port, act: Act, scratch: &Scratch, tables: &T) -> bool {
    if port.flags & (PORT_L3 | PORT_ANY_IP | PORT_OUTSIDE) != 0 {
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
