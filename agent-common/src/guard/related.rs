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
    Frame, ICMP_HLEN, IPPROTO_FRAGMENT, IPPROTO_ICMP, IPPROTO_ICMPV6, IPV4_HLEN, IPV6_HLEN,
    PORTS_LEN,
};
use crate::policy::{Family, Packet};

/// Length of the fragment header of IPv6, bytes.
const FRAGMENT_HLEN: usize = 8;

/// True for a message of this type that is about another packet.
#[inline(always)]
pub(super) const fn is_error(packet: &Packet, kind: u8) -> bool {
    if !is_icmp(packet) || packet.fragment {
        return false;
    }
    match packet.family {
        Family::V4 => matches!(kind, 3 | 11 | 12),
        Family::V6 => matches!(kind, 1..=4),
    }
}

/// The same of a message that is not read yet.
#[inline(always)]
pub(crate) fn is_about_another<F: Frame + ?Sized>(frame: &F, packet: &Packet) -> bool {
    // Most packets are no messages, and pay for no reading.
    if !is_icmp(packet) {
        return false;
    }
    let kind = frame.load::<1>(packet.payload as usize);
    kind.is_some_and(|[kind]| is_error(packet, kind))
}

/// Reads the ends of the packet that an error quotes.
///
/// Returns where in the frame its ports are, or its message of ICMP. Of a later fragment, a packet with
/// other extension headers and a query that is none, there is nothing to read.
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
    // Of extension headers, only that of a first fragment is looked behind: the size of fragments is what errors are about.
    let (mut start, mut protocol) = (at + IPV6_HLEN, protocol);
    if protocol == IPPROTO_FRAGMENT {
        let [next, _, o0, o1, ..] = frame.load::<FRAGMENT_HLEN>(start)?;
        if u16::from_be_bytes([o0, o1]) & !7 != 0 {
            return None;
        }
        (start, protocol) = (start + FRAGMENT_HLEN, next);
    }
    ports(frame, start, protocol, protocol == IPPROTO_ICMPV6, tuple)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{IPPROTO_UDP, L3};

    /// An ICMPv6 message that quotes a fragment, and where the ports of that are.
    fn about_fragment(offset: u16) -> (Vec<u8>, usize) {
        let mut frame = vec![0; L3 + IPV6_HLEN + ICMP_HLEN];
        frame.extend([0x60, 0, 0, 0, 0, 0, IPPROTO_FRAGMENT, 64]);
        frame.extend([[1; 16], [2; 16]].concat());
        let [high, low] = (offset << 3 | 1).to_be_bytes();
        frame.extend([IPPROTO_UDP, 0, high, low, 0, 0, 0, 7]);
        let at = frame.len();
        frame.extend([0x9c, 0x40, 0, 80, 0, 8, 0, 0]);
        (frame, at)
    }

    /// RFC 8201: a large datagram is sent in parts, and errors are about the first.
    #[test]
    fn a_quoted_first_fragment_of_ipv6_has_ports_and_a_later_one_has_none() {
        let packet = Packet {
            payload: 54,
            protocol: IPPROTO_ICMPV6,
            family: Family::V6,
            ..crate::policy::Scratch::EMPTY.packet
        };
        let mut tuple = Tuple::EMPTY;
        let (frame, at) = about_fragment(0);
        assert_eq!(quote(frame.as_slice(), &packet, &mut tuple), Some(at));
        assert_eq!((tuple.source_port, tuple.destination_port), (40_000, 80));
        assert_eq!(tuple.protocol, IPPROTO_UDP);
        let (frame, _) = about_fragment(181);
        assert_eq!(quote(frame.as_slice(), &packet, &mut tuple), None);
    }
}
