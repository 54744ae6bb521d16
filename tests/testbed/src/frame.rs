//! Make frames by hand, honest and otherwise.
//!
//! Everything is explicit, so that a test can lie in any field; checksums are right unless a test
//! overwrites them.

mod ipv4;
mod ipv6;
mod reflect;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};

use agent_common::addr::MacAddr;

pub use self::ipv4::{IPV4_DF, IPV4_MF, Ipv4, icmp_echo, tcp4, udp4};
pub use self::ipv6::{
    Ipv6, echo6, extension, fragment_header, icmp6, nd_option, neighbour_advertisement,
    neighbour_solicitation, redirect, router_advertisement, tcp6, udp6,
};

pub use self::reflect::{has_udp_checksum, reflect};

/// Returns an address for a header of IPv4.
///
/// # Panics
/// If it is another one.
pub fn v4(ip: IpAddr) -> Ipv4Addr {
    match ip {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(_) => unreachable!("an IPv4 address"),
    }
}

/// Returns an address for a header of IPv6.
///
/// # Panics
/// If it is another one.
pub fn v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V6(ip) => ip,
        IpAddr::V4(_) => unreachable!("an IPv6 address"),
    }
}

/// Bytes that occur in no other frame of the run.
pub type Marker = [u8; 12];

/// A new marker.
pub fn marker() -> Marker {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let process = std::process::id();
    let mut marker = [0xa5; 12];
    // Spread so that a marker is no plausible address, length or checksum.
    let bytes = (number ^ (u64::from(process) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    marker[2..10].copy_from_slice(&bytes.to_be_bytes());
    marker
}

/// An Ethernet frame (IEEE 802.3), not padded.
pub fn ethernet(to: MacAddr, from: MacAddr, ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(14 + payload.len());
    frame.extend(to.0);
    frame.extend(from.0);
    frame.extend(ether_type.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The same frame with a tag between its addresses and its EtherType (IEEE 802.1Q).
pub fn tagged(frame: &[u8], tag_type: u16, vlan: u16) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(12);
    let mut out = addresses.to_vec();
    out.extend(tag_type.to_be_bytes());
    out.extend(vlan.to_be_bytes());
    out.extend(rest);
    out
}

/// An ARP packet for IPv4 over Ethernet (RFC 826).
#[derive(Debug, Clone, Copy)]
pub struct Arp {
    /// 1 request, 2 reply.
    pub operation: u16,
    /// Sender.
    pub sender: (MacAddr, Ipv4Addr),
    /// Target.
    pub target: (MacAddr, Ipv4Addr),
}

impl Arp {
    /// "Who has `target`?"
    pub fn request(sender: (MacAddr, Ipv4Addr), target: Ipv4Addr) -> Self {
        Self {
            operation: 1,
            sender,
            target: (MacAddr([0; 6]), target),
        }
    }

    /// The frame; `trailer` follows the packet as padding.
    pub fn frame(&self, to: MacAddr, from: MacAddr, trailer: &[u8]) -> Vec<u8> {
        let mut packet = vec![0, 1, 0x08, 0, 6, 4];
        packet.extend(self.operation.to_be_bytes());
        packet.extend(self.sender.0.0);
        packet.extend(self.sender.1.octets());
        packet.extend(self.target.0.0);
        packet.extend(self.target.1.octets());
        packet.extend(trailer);
        ethernet(to, from, 0x0806, &packet)
    }
}

/// True for an ARP reply that says who has `ip`.
pub fn is_arp_reply_for(frame: &[u8], ip: Ipv4Addr) -> bool {
    frame.get(12..14) == Some(&[0x08, 0x06])
        && frame.get(20..22) == Some(&[0, 2])
        && frame.get(28..32) == Some(&ip.octets())
}

/// The Internet checksum (RFC 1071).
pub fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let bytes: Vec<u8> = parts.concat();
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or_default();
        sum += u32::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let folded = !u16::try_from(sum).unwrap_or_default();
    folded.to_be_bytes()
}

/// The length of something that fits a 16-bit length field.
fn length16(length: usize) -> [u8; 2] {
    u16::try_from(length)
        .expect("no packet of these tests is that long")
        .to_be_bytes()
}

/// A UDP datagram; the checksum counts the pseudo header.
fn udp(pseudo: &[u8], ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + payload.len());
    out.extend(ports.0.to_be_bytes());
    out.extend(ports.1.to_be_bytes());
    out.extend(length16(8 + payload.len()));
    out.extend([0, 0]);
    out.extend(payload);
    let sum = checksum(&[pseudo, &out]);
    out[6..8].copy_from_slice(&sum);
    out
}

/// A segment of TCP without options; the checksum counts the pseudo header.
fn tcp(pseudo: &[u8], ports: (u16, u16), flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(20 + payload.len());
    out.extend(ports.0.to_be_bytes());
    out.extend(ports.1.to_be_bytes());
    out.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    out.extend(payload);
    let sum = checksum(&[pseudo, &out]);
    out[16..18].copy_from_slice(&sum);
    out
}
