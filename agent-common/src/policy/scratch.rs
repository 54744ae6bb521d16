//! Memory of the stages, which an engine keeps where it has room.

use super::decision::Family;
use crate::addr::{Ip16, MacAddr};
use crate::endpoint::Endpoint;
use crate::packet::{Ipv6Payload, Start};
use crate::partial::Partial;
use crate::route::Route;

/// Values that a stage leaves for those after it.
///
/// A program keeps them in a map of its CPU: its stack has 512 bytes. All zeroes are a value.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Scratch {
    /// The first bytes of the frame; `parse` writes it.
    pub start: Start,
    /// The checksum that is still to be written into the frame.
    pub partial: Partial,
    /// Fields of the IP packet; `parse` writes them.
    pub packet: Packet,
    /// The address that the frame asks for; `rights` writes it.
    pub target: Ip16,
    /// The receiver; `resolve` writes it. Of an answer its MAC address is what is told.
    pub to: Endpoint,
    /// The receiver's network; `forward` writes it of a routed packet.
    pub route: Route,
}

impl Scratch {
    /// Of no frame.
    pub const EMPTY: Self = Self {
        start: Start::EMPTY,
        partial: Partial::NONE,
        packet: Packet::EMPTY,
        target: Ip16::NONE,
        to: Endpoint {
            ifindex: 0,
            flags: 0,
            mac: MacAddr([0; 6]),
            port_id: 0,
        },
        route: Route::NOWHERE,
    };
}

/// The fields of an IP packet that stages after `parse` look at.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    /// Source address.
    pub source: Ip16,
    /// Destination address.
    pub destination: Ip16,
    /// Where the payload begins in the frame, bytes.
    pub payload: u16,
    /// The first header that is no extension header.
    pub protocol: u8,
    /// TTL or hop limit.
    pub hops: u8,
    /// Address family.
    pub family: Family,
    /// A fragment, the first one too.
    pub fragment: bool,
    /// A fragment other than the first.
    pub later: bool,
}

impl Packet {
    /// Of no packet.
    const EMPTY: Self = Self {
        source: Ip16::NONE,
        destination: Ip16::NONE,
        payload: 0,
        protocol: 0,
        hops: 0,
        family: Family::V4,
        fragment: false,
        later: false,
    };

    /// Its payload, for the judges of IPv6.
    #[inline(always)]
    pub(super) const fn ipv6_payload(&self) -> Ipv6Payload {
        Ipv6Payload {
            protocol: self.protocol,
            offset: self.payload as usize,
            fragment: self.fragment,
            later_fragment: self.later,
        }
    }
}
