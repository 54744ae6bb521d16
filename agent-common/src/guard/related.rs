//! Errors of ICMP that belong to a connection.
//!
//! An error quotes the packet that it is about (RFC 792, RFC 4443). It passes with the connection of that
//! packet, if it goes to the end which sent it.

use super::Guard;
use super::flow::{FlowKey, FlowWords};
use super::pass::stamp_of;
use super::tables::GuardTables;
use super::tuple::{Tuple, has_ports, is_icmp};
use crate::addr::Ip16;
use crate::packet::{
    Frame, ICMP_HLEN, IPPROTO_ICMP, IPPROTO_ICMPV6, IPV4_HLEN, IPV6_HLEN, PORTS_LEN,
};
use crate::policy::{Family, Packet};

/// True for a message of this type that is about another packet.
#[inline(always)]
pub(crate) const fn is_error(packet: &Packet, kind: u8) -> bool {
    if !is_icmp(packet) || packet.fragment {
        return false;
    }
    match packet.family {
        Family::V4 => matches!(kind, 3 | 11 | 12),
        Family::V6 => matches!(kind, 1..=4),
    }
}

/// Reads the ends of the packet that an error quotes.
///
/// Returns where in the frame its ports are, or its message of ICMP. Of a later fragment, a packet with
/// extension headers and a query that is none, there is nothing to read.
#[inline(always)]
pub(crate) fn quote<F: Frame + ?Sized>(
    frame: &F,
    packet: &Packet,
    tuple: &mut Tuple,
) -> Option<usize> {
    let quoted = packet.payload as usize + ICMP_HLEN;
    match packet.family {
        Family::V4 => quote_v4(frame, quoted, tuple),
        Family::V6 => quote_v6(frame, quoted, tuple),
    }
}

/// Reports whether an error belongs to a connection that policies let pass.
///
/// Policies let the connection pass before, and would now.
/// A connection that policies have changed for since its last packet has none until its next one is judged.
/// `sender` and `receiver` are the sets of the error's ends.
/// `from_router`: the sender may be between the ends. A port of this node is none of those: it is an end, and
/// its errors are about packets that it got.
#[inline(always)]
pub(super) fn is_related<F: Frame + ?Sized, T: GuardTables>(
    frame: &F,
    network: u32,
    packet: &Packet,
    (from_router, sender, receiver): (bool, &Guard, &Guard),
    tables: &T,
    tuple: &mut Tuple,
    (key, words): (&mut FlowKey, &mut FlowWords),
) -> bool {
    if quote(frame, packet, tuple).is_none() {
        return false;
    }
    // The quoted packet is on its way from the end that gets the error.
    if !tuple.source.same(&packet.destination) {
        return false;
    }
    if !from_router && !tuple.destination.same(&packet.source) {
        return false;
    }
    let from_high = tuple.is_from_high();
    key.write(network, tuple, from_high);
    tables.seek(key);
    if !tables.flow(key, words) {
        return false;
    }
    if !words.is_alive(tuple.protocol, tables.now()) || words.flags & super::FLOW_DENIED != 0 {
        return false;
    }
    // The end that gets the error has sent what is quoted.
    let (of_receiver, of_sender) = if words.is_onward(from_high) {
        (
            words.egress == stamp_of(receiver.egress, receiver),
            words.ingress == stamp_of(sender.ingress, sender),
        )
    } else {
        (
            words.ingress == stamp_of(receiver.ingress, receiver),
            words.egress == stamp_of(sender.egress, sender),
        )
    };
    of_receiver && (of_sender || from_router)
}

#[inline(always)]
fn quote_v4<F: Frame + ?Sized>(frame: &F, at: usize, tuple: &mut Tuple) -> Option<usize> {
    let header = frame.load::<IPV4_HLEN>(at)?;
    let [
        version_ihl,
        _,
        _,
        _,
        _,
        _,
        f0,
        f1,
        _,
        protocol,
        _,
        _,
        s0,
        s1,
        s2,
        s3,
        d0,
        d1,
        d2,
        d3,
    ] = header;
    let length = (version_ihl & 0x0f) as usize * 4;
    // A later fragment has no ports.
    if version_ihl >> 4 != 4 || length < IPV4_HLEN || u16::from_be_bytes([f0, f1]) & 0x1fff != 0 {
        return None;
    }
    tuple.source = Ip16::from_v4([s0, s1, s2, s3]);
    tuple.destination = Ip16::from_v4([d0, d1, d2, d3]);
    ports(
        frame,
        at + length,
        protocol,
        protocol == IPPROTO_ICMP,
        tuple,
    )
}

#[inline(always)]
fn quote_v6<F: Frame + ?Sized>(frame: &F, at: usize, tuple: &mut Tuple) -> Option<usize> {
    let [version, _, _, _, _, _, protocol, _] = frame.load::<8>(at)?;
    if version >> 4 != 6 {
        return None;
    }
    tuple.source = Ip16(frame.load::<16>(at + 8)?);
    tuple.destination = Ip16(frame.load::<16>(at + 24)?);
    // A packet with extension headers is not looked into.
    ports(
        frame,
        at + IPV6_HLEN,
        protocol,
        protocol == IPPROTO_ICMPV6,
        tuple,
    )
}

#[inline(always)]
fn ports<F: Frame + ?Sized>(
    frame: &F,
    at: usize,
    protocol: u8,
    icmp: bool,
    tuple: &mut Tuple,
) -> Option<usize> {
    tuple.protocol = protocol;
    tuple.has_ports = has_ports(protocol);
    tuple.source_port = 0;
    tuple.destination_port = 0;
    tuple.tcp = 0;
    if tuple.has_ports {
        let [s0, s1, d0, d1] = frame.load::<PORTS_LEN>(at)?;
        tuple.source_port = u16::from_be_bytes([s0, s1]);
        tuple.destination_port = u16::from_be_bytes([d0, d1]);
    } else if icmp {
        let [kind, _, _, _, i0, i1, _, _] = frame.load::<ICMP_HLEN>(at)?;
        if !tuple.take_query(kind, [i0, i1]) {
            return None;
        }
    }
    Some(at)
}
