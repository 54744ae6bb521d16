//! First stage: reads the headers of a frame, and knows no ports and networks.

use super::decision::{Family, Step, drop};
use super::scratch::{Packet, Scratch};
use crate::addr::Ip16;
use crate::drop::DropReason;
use crate::packet::{ETH_HLEN, Frame, IPV4_HLEN, IPV6_HLEN, L3, ipv6_payload};

/// Reads the start of a frame; returns its EtherType, or its IEEE 802.3 length.
///
/// # Errors
/// `Truncated`.
#[inline(always)]
pub(super) fn ethernet<F: Frame + ?Sized>(frame: &F, scratch: &mut Scratch) -> Step<u16> {
    frame.read_start(&mut scratch.start);
    let start = &scratch.start;
    if !start.has::<ETH_HLEN>() {
        return drop(DropReason::Truncated);
    }
    Ok(u16::from_be_bytes(start.field::<12, 2>()))
}

/// Reads the header of an IPv4 packet.
///
/// # Errors
/// `Truncated`; `Malformed` for a header that contradicts itself, the frame, or what is still to be written.
#[inline(always)]
pub(super) fn ipv4<F: Frame + ?Sized>(frame: &F, scratch: &mut Scratch) -> Step<()> {
    let start = &scratch.start;
    if !start.has::<{ L3 + IPV4_HLEN }>() {
        return drop(DropReason::Truncated);
    }
    let [version_ihl] = start.field::<L3, 1>();
    let header_length = (version_ihl & 0x0f) as usize * 4;
    if version_ihl >> 4 != 4 || header_length < IPV4_HLEN {
        return drop(DropReason::Malformed);
    }
    let gso = frame.segment_length() != frame.length();
    let total = u16::from_be_bytes(start.field::<{ L3 + 2 }, 2>()) as usize;
    if !gso && (total < header_length || total > frame.length() - ETH_HLEN) {
        return drop(DropReason::Malformed);
    }
    let fragmentation = u16::from_be_bytes(start.field::<{ L3 + 6 }, 2>());
    let fragment = fragmentation & 0x3fff != 0;
    let [hops, protocol] = start.field::<{ L3 + 8 }, 2>();
    let payload = L3 + header_length;
    if !scratch.partial.is_of_transport(payload, protocol, fragment) {
        return drop(DropReason::Malformed);
    }
    scratch.packet = Packet {
        source: Ip16::from_v4(start.field::<{ L3 + 12 }, 4>()),
        destination: Ip16::from_v4(start.field::<{ L3 + 16 }, 4>()),
        payload: narrow(payload),
        protocol,
        hops,
        family: Family::V4,
        fragment,
        later: fragmentation & 0x1fff != 0,
    };
    Ok(())
}

/// Reads the headers of an IPv6 packet.
///
/// # Errors
/// `Truncated`; `Ipv6Headers` for a chain of headers that is too long or not whole; `Malformed` as for IPv4, and
/// for addresses that stand for IPv4 ones.
#[inline(always)]
pub(super) fn ipv6<F: Frame + ?Sized>(frame: &F, scratch: &mut Scratch) -> Step<()> {
    let start = &scratch.start;
    if !start.has::<{ L3 + IPV6_HLEN }>() {
        return drop(DropReason::Truncated);
    }
    let [version] = start.field::<L3, 1>();
    let source = Ip16(start.field::<{ L3 + 8 }, 16>());
    let destination = Ip16(start.field::<{ L3 + 24 }, 16>());
    // A mapped address stands for IPv4 in the tables and belongs on no wire: let through, it would
    // be looked up as the IPv4 address of somebody.
    if version >> 4 != 6 || source.is_mapped_v4() || destination.is_mapped_v4() {
        return drop(DropReason::Malformed);
    }
    let gso = frame.segment_length() != frame.length();
    let payload_length = u16::from_be_bytes(start.field::<{ L3 + 4 }, 2>()) as usize;
    if !gso && payload_length > frame.length() - ETH_HLEN - IPV6_HLEN {
        return drop(DropReason::Malformed);
    }
    let [next_header, hops] = start.field::<{ L3 + 6 }, 2>();
    let Some(payload) = ipv6_payload(frame, next_header) else {
        return drop(DropReason::Ipv6Headers);
    };
    let (protocol, fragment) = (payload.protocol, payload.fragment);
    if !scratch
        .partial
        .is_of_transport(payload.offset, protocol, fragment)
    {
        return drop(DropReason::Malformed);
    }
    scratch.packet = Packet {
        source,
        destination,
        payload: narrow(payload.offset),
        protocol,
        hops,
        family: Family::V6,
        fragment,
        later: payload.later_fragment,
    };
    Ok(())
}

#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the longest chain of headers ends before byte 16,440"
)]
const fn narrow(offset: usize) -> u16 {
    offset as u16
}
