//! Read the outer headers of a tunnel's packet (RFC 7348 section 5) at an uplink.

use crate::addr::Ip16;
use crate::checksum;
use crate::packet::{ETH_HLEN, IPPROTO_UDP, IPV4_HLEN, IPV6_HLEN, L3, UDP_HLEN, v4_addresses};
use crate::uplink::Uplink;
use crate::vtep::{ADDED_V4, ADDED_V6, VXLAN_FLAGS};

/// Fields of the outer headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outer {
    /// The node that sent it.
    pub source: Ip16,
    /// The VNI.
    pub network: u32,
    /// It met congestion on its way (RFC 3168).
    pub congested: bool,
    /// Why it cannot be taken as it is.
    pub flaw: Option<Flaw>,
}

/// Reason why a tunnel's packet is not taken.
///
/// It may still be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// A UDP checksum, which the node's stack has to check.
    Checksum,
    /// Flags or reserved bits that no node sends, and the kernel's device refuses.
    Header,
}

/// Reads the outer headers over IPv4 of a frame of `length` bytes.
///
/// `None` for everything but a tunnel to this node's address and port: the node judges it.
#[inline(always)]
pub fn v4(bytes: &[u8; ADDED_V4], length: usize, uplink: &Uplink) -> Option<Outer> {
    let (_, rest) = bytes.split_first_chunk::<ETH_HLEN>()?;
    let (ip, rest) = rest.split_first_chunk::<IPV4_HLEN>()?;
    // Neither options nor a fragment.
    let is_plain = ip[0] == 0x45 && ip[9] == IPPROTO_UDP && (ip[6] & 0x3f) | ip[7] == 0;
    let total = u16::from_be_bytes([ip[2], ip[3]]);
    let (source, destination) = v4_addresses(ip);
    let is_ours = total as usize == length - ETH_HLEN && destination.same(&uplink.v4);
    if !is_plain || !is_ours || !checksum::is_right(checksum::sum(ip)) {
        return None;
    }
    let (network, flaw) = network(rest.first_chunk()?, total as usize - IPV4_HLEN, uplink)?;
    Some(Outer {
        source,
        network,
        congested: ip[1] & 3 == 3,
        flaw,
    })
}

/// The same over IPv6.
#[inline(always)]
pub fn v6(bytes: &[u8; ADDED_V6], length: usize, uplink: &Uplink) -> Option<Outer> {
    let (_, rest) = bytes.split_first_chunk::<ETH_HLEN>()?;
    let (ip, rest) = rest.split_first_chunk::<8>()?;
    let payload = u16::from_be_bytes([ip[4], ip[5]]) as usize;
    let is_udp = ip[0] >> 4 == 6 && ip[6] == IPPROTO_UDP;
    if !is_udp || payload != length.wrapping_sub(L3 + IPV6_HLEN) {
        return None;
    }
    let (addresses, rest) = rest.split_first_chunk::<32>()?;
    let (source, destination) = Ip16::pair(*addresses);
    // A mapped source would be looked up as the IPv4 address of another node. The node's stack drops it.
    if !destination.same(&uplink.v6) || source.is_mapped_v4() {
        return None;
    }
    let (network, flaw) = network(rest.first_chunk()?, payload, uplink)?;
    Some(Outer {
        source,
        network,
        congested: ip[1] >> 4 & 3 == 3,
        flaw,
    })
}

/// Reads the VNI from the UDP and VXLAN headers.
///
/// `length` is that of the UDP datagram in bytes, its header included.
#[inline(always)]
fn network(bytes: &[u8; 16], length: usize, uplink: &Uplink) -> Option<(u32, Option<Flaw>)> {
    let [_, _, p0, p1, l0, l1, c0, c1, flags, r0, r1, r2, a, b, c, r3] = *bytes;
    let is_whole = u16::from_be_bytes([l0, l1]) as usize == length && length > UDP_HLEN;
    if [p0, p1] != uplink.port || !is_whole {
        return None;
    }
    let is_vxlan = flags == VXLAN_FLAGS && r0 | r1 | r2 | r3 == 0;
    let flaw = match (is_vxlan, c0 | c1) {
        (false, _) => Some(Flaw::Header),
        // Without a checksum, as nodes send it.
        (true, 0) => None,
        (true, _) => Some(Flaw::Checksum),
    };
    Some((u32::from_be_bytes([0, a, b, c]), flaw))
}

#[cfg(test)]
mod tests;
