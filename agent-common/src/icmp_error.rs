//! Build ICMP errors about packets that could not go on (RFC 792, RFC 4443).
//!
//! An error answers the sender of the packet.

use crate::addr::Ip16;
use crate::checksum::{field, sum, sum_of};
use crate::packet::{ETH_HLEN, ICMP_HLEN, IPPROTO_ICMP, IPPROTO_ICMPV6, IPV4_HLEN, IPV6_HLEN};

/// Bytes of the packet's payload that every error quotes (RFC 792).
///
/// By them the sender finds the socket that the packet was of.
pub const QUOTED: usize = 8;
/// Length of a frame with an error about an IPv4 packet, bytes.
pub const ICMP_ERROR_V4: usize = ETH_HLEN + IPV4_HLEN + ICMP_HLEN + IPV4_HLEN + QUOTED;
/// The same for IPv6.
pub const ICMP_ERROR_V6: usize = ETH_HLEN + IPV6_HLEN + ICMP_HLEN + IPV6_HLEN + QUOTED;
/// Length that the headers state, bytes.
///
/// Ethernet's header is not in it, and for IPv6 the IP header neither.
const LENGTH_V4: u8 = 56;
const LENGTH_V6: u8 = 56;
const _: () = assert!(LENGTH_V4 as usize == ICMP_ERROR_V4 - ETH_HLEN);
const _: () = assert!(LENGTH_V6 as usize == ICMP_ERROR_V6 - ETH_HLEN - IPV6_HLEN);
const HOPS: u8 = 64;

/// The fault of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpError {
    /// No hop was left.
    HopsSpent,
    /// The path ahead carries packets of this many bytes at most.
    TooBig(u32),
    /// Nothing listens at the port.
    Refused,
}

impl IcmpError {
    /// As two words.
    #[inline(always)]
    pub const fn pack(self) -> [u32; 2] {
        match self {
            Self::HopsSpent => [0, 0],
            Self::TooBig(mtu) => [1, mtu],
            Self::Refused => [2, 0],
        }
    }

    /// Of two words.
    #[inline(always)]
    pub const fn unpack([kind, mtu]: [u32; 2]) -> Self {
        match kind {
            0 => Self::HopsSpent,
            2 => Self::Refused,
            _ => Self::TooBig(mtu),
        }
    }

    /// Returns type, code, room for the checksum, and the word after it.
    ///
    /// RFC 1191 section 4 has the MTU in half of that word, RFC 4443 section 3.2 in all of it.
    #[inline(always)]
    const fn start(self, v4: bool) -> [u8; ICMP_HLEN] {
        let (kind, code, mtu) = match (self, v4) {
            (Self::HopsSpent, true) => (11, 0, 0),
            (Self::HopsSpent, false) => (3, 0, 0),
            (Self::TooBig(mtu), true) => (3, 4, mtu & 0xffff),
            (Self::TooBig(mtu), false) => (2, 0, mtu),
            (Self::Refused, true) => (3, 3, 0),
            (Self::Refused, false) => (1, 4, 0),
        };
        let [a, b, c, d] = mtu.to_be_bytes();
        [kind, code, 0, 0, a, b, c, d]
    }
}

/// True when an error about an IPv4 packet may be sent (RFC 1122 section 3.2.2).
///
/// No error is sent about a packet to a group, a later fragment or an ICMP message that is no echo; nor about
/// one with options, which would not fit.
#[inline(always)]
pub fn may_answer_v4(header: &[u8; IPV4_HLEN], data: &[u8; QUOTED]) -> bool {
    let [kind, ..] = *data;
    let is_error = header[9] == IPPROTO_ICMP && !matches!(kind, 0 | 8);
    let is_plain = header[0] == 0x45 && (header[6] & 0x1f) | header[7] == 0;
    is_plain && header[16] < 0xe0 && !is_error
}

/// True when an error about an IPv6 packet may be sent (RFC 4443 section 2.4).
///
/// Not about a packet with extension headers: those of an error stand before the 8 bytes that are looked at.
#[inline(always)]
pub fn may_answer_v6(header: &[u8; IPV6_HLEN], data: &[u8; QUOTED]) -> bool {
    let (next, group) = (header[6], header[24]);
    let [kind, ..] = *data;
    // TCP, UDP, or an informational message of ICMPv6.
    let is_known = matches!(next, 6 | 17) || (next == IPPROTO_ICMPV6 && kind & 0x80 != 0);
    is_known && group != 0xff
}

/// Builds the IPv4 and ICMP headers of an error about a packet.
///
/// `header` and `data` are the header and the start of the payload of the packet.
#[inline(always)]
pub fn v4(
    error: IcmpError,
    from: [u8; 4],
    header: &[u8; IPV4_HLEN],
    data: &[u8; QUOTED],
) -> ([u8; IPV4_HLEN], [u8; ICMP_HLEN]) {
    let [.., s0, s1, s2, s3, _, _, _, _] = *header;
    let [g0, g1, g2, g3] = from;
    let mut ip = [
        0x45,
        0,
        0,
        LENGTH_V4,
        0,
        0,
        0,
        0,
        HOPS,
        IPPROTO_ICMP,
        0,
        0, //
        g0,
        g1,
        g2,
        g3,
        s0,
        s1,
        s2,
        s3,
    ];
    [ip[10], ip[11]] = field(sum(&ip));
    let mut icmp = error.start(true);
    [icmp[2], icmp[3]] = field(sum(&icmp) + sum(header) + sum(data));
    (ip, icmp)
}

/// Builds the start of the IPv6 header and the ICMPv6 header of an error.
///
/// The IPv6 header goes on with the addresses `from` and the packet's source.
#[inline(always)]
pub fn v6(
    error: IcmpError,
    from: &Ip16,
    to: &Ip16,
    header: &[u8; IPV6_HLEN],
    data: &[u8; QUOTED],
) -> ([u8; 8], [u8; ICMP_HLEN]) {
    let ip = [0x60, 0, 0, 0, 0, LENGTH_V6, IPPROTO_ICMPV6, HOPS];
    let mut icmp = error.start(false);
    // The pseudo header of RFC 8200 section 8.1.
    let pseudo = sum(&[0, LENGTH_V6, 0, IPPROTO_ICMPV6]) + sum_of(from) + sum_of(to);
    [icmp[2], icmp[3]] = field(pseudo + sum(&icmp) + sum(header) + sum(data));
    (ip, icmp)
}

#[cfg(test)]
mod tests;
