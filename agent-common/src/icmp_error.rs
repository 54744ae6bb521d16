//! ICMP errors: the answer to the sender of a packet that could not go on (RFC 792, RFC 4443).

use crate::addr::Ip16;
use crate::checksum::{field, sum, sum_of};
use crate::packet::{ETH_HLEN, ICMP_HLEN, IPPROTO_ICMP, IPPROTO_ICMPV6, IPV4_HLEN, IPV6_HLEN};

/// As much of the packet's payload as every error has: 8 bytes (RFC 792), by which the sender finds
/// whose it was.
pub const QUOTED: usize = 8;
/// Length of a frame with an error about an IPv4 packet, bytes.
pub const ICMP_ERROR_V4: usize = ETH_HLEN + IPV4_HLEN + ICMP_HLEN + IPV4_HLEN + QUOTED;
/// The same for IPv6.
pub const ICMP_ERROR_V6: usize = ETH_HLEN + IPV6_HLEN + ICMP_HLEN + IPV6_HLEN + QUOTED;
/// Length that the headers state: without Ethernet's, for IPv6 without the IP header.
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
}

impl IcmpError {
    /// As two words.
    #[inline(always)]
    pub const fn pack(self) -> [u32; 2] {
        match self {
            Self::HopsSpent => [0, 0],
            Self::TooBig(mtu) => [1, mtu],
        }
    }

    /// Of two words.
    #[inline(always)]
    pub const fn unpack([kind, mtu]: [u32; 2]) -> Self {
        match kind {
            0 => Self::HopsSpent,
            _ => Self::TooBig(mtu),
        }
    }

    /// Type, code, room for the checksum, and the word after it. RFC 1191 section 4 has the MTU in half
    /// of that word, RFC 4443 section 3.2 in all of it.
    #[inline(always)]
    const fn start(self, v4: bool) -> [u8; ICMP_HLEN] {
        let (kind, code, mtu) = match (self, v4) {
            (Self::HopsSpent, true) => (11, 0, 0),
            (Self::HopsSpent, false) => (3, 0, 0),
            (Self::TooBig(mtu), true) => (3, 4, mtu & 0xffff),
            (Self::TooBig(mtu), false) => (2, 0, mtu),
        };
        let [a, b, c, d] = mtu.to_be_bytes();
        [kind, code, 0, 0, a, b, c, d]
    }
}

/// Whether an error about an IPv4 packet may be sent (RFC 1122 section 3.2.2): not one to a group, a
/// later fragment or an ICMP message that is no echo. Nor one with options, which would not fit.
#[inline(always)]
pub fn may_answer_v4(header: &[u8; IPV4_HLEN], data: &[u8; QUOTED]) -> bool {
    let [kind, ..] = *data;
    let is_error = header[9] == IPPROTO_ICMP && !matches!(kind, 0 | 8);
    let is_plain = header[0] == 0x45 && (header[6] & 0x1f) | header[7] == 0;
    is_plain && header[16] < 0xe0 && !is_error
}

/// The same of an IPv6 packet (RFC 4443 section 2.4), extension headers and all: those of an error stand
/// before the 8 bytes that are looked at, and such packets have no error sent.
#[inline(always)]
pub fn may_answer_v6(header: &[u8; IPV6_HLEN], data: &[u8; QUOTED]) -> bool {
    let (next, group) = (header[6], header[24]);
    let [kind, ..] = *data;
    // TCP, UDP, or an informational message of ICMPv6.
    let is_known = matches!(next, 6 | 17) || (next == IPPROTO_ICMPV6 && kind & 0x80 != 0);
    is_known && group != 0xff
}

/// An IPv4 header and the ICMP header of an error about a packet with this header and start of payload.
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

/// Start of an IPv6 header, which goes on with the addresses `from` and the packet's source, and the
/// ICMPv6 header of an error about a packet.
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
