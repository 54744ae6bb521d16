//! `FRAGMENTS`: ports of packets that come in parts, which only the first part has.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::flow::ticks_since;
use super::tables::FragmentTables;
use super::tuple::{Tuple, is_icmp};
use crate::addr::Ip16;
use crate::drop::DropReason;
use crate::packet::{Frame, IPPROTO_FRAGMENT, L3};
use crate::policy::{Family, Packet, Scratch};

/// Ticks for which later fragments may follow the first.
const LIFETIME: i32 = 28;

/// Key of a packet in fragments (RFC 791, RFC 8200 section 4.5).
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
pub struct FragmentKey {
    /// Network.
    pub network: u32,
    /// Source address.
    pub source: Ip16,
    /// Destination address.
    pub destination: Ip16,
    /// Identification, as in the header; that of IPv4 in the first two bytes.
    pub id: [u8; 4],
    /// IP protocol.
    pub protocol: u8,
    /// Zero.
    pub reserved: [u8; 3],
}

const _: () = assert!(size_of::<FragmentKey>() == 44);

impl FragmentKey {
    /// Of no packet.
    pub const EMPTY: Self = Self {
        network: 0,
        source: Ip16::NONE,
        destination: Ip16::NONE,
        id: [0; 4],
        protocol: 0,
        reserved: [0; 3],
    };
}

/// Ports of the first fragment, which was let pass.
///
/// *Written by* and *read by* the programs of guarded networks. *Lifetime*: half a minute.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Fragment {
    /// Tick of the first fragment.
    pub seen: u32,
    /// Source port, or what stands for an identifier of ICMP.
    pub source_port: u16,
    /// Destination port, or what stands for an identifier of ICMP.
    pub destination_port: u16,
    /// Type of an ICMP message.
    pub icmp: u8,
    /// Zero.
    pub reserved: [u8; 3],
}

const _: () = assert!(size_of::<Fragment>() == 12);

/// Reports whether later fragments of a packet are judged by data of the first one.
#[inline(always)]
const fn needs_first(tuple: &Tuple, packet: &Packet) -> bool {
    tuple.has_ports || is_icmp(packet)
}

/// Reads the ports of a packet; of a later fragment from the first one.
///
/// # Errors
/// `PolicyFragment` for a later fragment without a first one; those of [`Tuple::read`].
#[inline(always)]
pub(crate) fn ports<F: Frame + ?Sized, T: FragmentTables>(
    frame: &F,
    network: u32,
    scratch: &Scratch,
    tables: &T,
    tuple: &mut Tuple,
    key: &mut FragmentKey,
) -> Result<(), DropReason> {
    let packet = &scratch.packet;
    if packet.fragment && needs_first(tuple, packet) {
        key.network = network;
        key.source = packet.source;
        key.destination = packet.destination;
        key.protocol = packet.protocol;
        key.id = identification(frame, packet).ok_or(DropReason::PolicyFragment)?;
    }
    if !packet.later {
        return tuple.read(frame, scratch);
    }
    if !needs_first(tuple, packet) {
        return Ok(());
    }
    let first = tables.fragment(key).ok_or(DropReason::PolicyFragment)?;
    if ticks_since(first.seen, tables.now()) > LIFETIME {
        return Err(DropReason::PolicyFragment);
    }
    tuple.source_port = first.source_port;
    tuple.destination_port = first.destination_port;
    tuple.icmp = first.icmp;
    Ok(())
}

/// Keeps the ports of a first fragment that passes, for those that follow.
#[inline(always)]
pub(crate) fn keep<T: FragmentTables>(
    packet: &Packet,
    tables: &T,
    tuple: &Tuple,
    key: &FragmentKey,
) {
    if !packet.fragment || packet.later || !needs_first(tuple, packet) {
        return;
    }
    let first = Fragment {
        seen: tables.now(),
        source_port: tuple.source_port,
        destination_port: tuple.destination_port,
        icmp: tuple.icmp,
        reserved: [0; 3],
    };
    tables.keep_fragment(key, &first);
}

/// Reads the identification of a packet.
///
/// `None` for IPv6 whose fragment header is not directly behind the fixed one, as no stack sends it.
#[inline(always)]
fn identification<F: Frame + ?Sized>(frame: &F, packet: &Packet) -> Option<[u8; 4]> {
    match packet.family {
        Family::V4 => {
            let [a, b] = frame.load::<2>(L3 + 4)?;
            Some([a, b, 0, 0])
        }
        Family::V6 => {
            let [next] = frame.load::<1>(L3 + 6)?;
            if next != IPPROTO_FRAGMENT {
                return None;
            }
            frame.load::<4>(L3 + 40 + 4)
        }
    }
}
