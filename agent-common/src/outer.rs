//! The outer headers of a tunnel's packet (RFC 7348 section 5), as they come in by an uplink.

use crate::addr::Ip16;
use crate::packet::{ETH_HLEN, IPPROTO_UDP, IPV4_HLEN, IPV6_HLEN, L3};
use crate::uplink::Uplink;
use crate::vtep::{ADDED_V4, ADDED_V6, UDP_HLEN, VXLAN_FLAGS};

/// What they say.
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

/// What keeps a tunnel's packet from being taken. It may still be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// A UDP checksum, which the node's stack has to check.
    Checksum,
    /// Flags or reserved bits that no node sends, and the kernel's device refuses.
    Header,
}

/// Reads a packet over IPv4 whose frame is of this `length`. `None` for all that is not a tunnel to
/// this node's address and port: that is the node's to judge.
#[inline(always)]
pub fn v4(bytes: &[u8; ADDED_V4], length: usize, uplink: &Uplink) -> Option<Outer> {
    let [
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _, //
        version,
        tos,
        l0,
        l1,
        i0,
        i1,
        f0,
        f1,
        ttl,
        protocol,
        c0,
        c1, //
        s0,
        s1,
        s2,
        s3,
        d0,
        d1,
        d2,
        d3,
        rest @ ..,
    ] = bytes;
    // Neither options nor a fragment.
    let is_plain = *version == 0x45 && *protocol == IPPROTO_UDP && (*f0 & 0x3f) | *f1 == 0;
    let total = u16::from_be_bytes([*l0, *l1]);
    let destination = Ip16::from_v4([*d0, *d1, *d2, *d3]);
    if !is_plain || total as usize != length - ETH_HLEN || !destination.same(&uplink.v4) {
        return None;
    }
    let words = [
        [*version, *tos],
        [*l0, *l1],
        [*i0, *i1],
        [*f0, *f1],
        [*ttl, *protocol],
        [*c0, *c1],
        [*s0, *s1],
        [*s2, *s3],
        [*d0, *d1],
        [*d2, *d3],
    ];
    // RFC 1071; the sum is the same in either byte order.
    let mut sum = 0;
    for word in words {
        sum += u32::from(u16::from_ne_bytes(word));
    }
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    if sum != 0xffff {
        return None;
    }
    let (network, flaw) = network(rest, total as usize - IPV4_HLEN, uplink)?;
    Some(Outer {
        source: Ip16::from_v4([*s0, *s1, *s2, *s3]),
        network,
        congested: tos & 3 == 3,
        flaw,
    })
}

/// The same over IPv6.
#[inline(always)]
pub fn v6(bytes: &[u8; ADDED_V6], length: usize, uplink: &Uplink) -> Option<Outer> {
    let [
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _, //
        version,
        class,
        _,
        _,
        l0,
        l1,
        protocol,
        _,
        rest @ ..,
    ] = bytes;
    let payload = u16::from_be_bytes([*l0, *l1]) as usize;
    if version >> 4 != 6
        || *protocol != IPPROTO_UDP
        || payload != length.wrapping_sub(L3 + IPV6_HLEN)
    {
        return None;
    }
    let (addresses, rest) = rest.split_first_chunk::<32>()?;
    let (source, destination) = Ip16::pair(*addresses);
    if !destination.same(&uplink.v6) {
        return None;
    }
    let (network, flaw) = network(rest.first_chunk()?, payload, uplink)?;
    Some(Outer {
        source,
        network,
        congested: class >> 4 & 3 == 3,
        flaw,
    })
}

/// The VNI, of the UDP and VXLAN headers in front of a payload of this `length`, UDP header included.
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
