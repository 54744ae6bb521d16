//! Judge checksums that are written when a frame leaves: `CHECKSUM_PARTIAL`.
//!
//! The kernel writes them (linux/skbuff.h) when a frame leaves for where nothing finishes them.
//!
//! The sender names the place, and what is decided about the frame is decided before. So a place is
//! accepted only outside of all that the policy reads.

use crate::packet::{
    ETH_HLEN, ETH_P_ARP, ETH_P_IP, ETH_P_IPV6, Frame, IPPROTO_TCP, IPPROTO_UDP, IPV4_HLEN,
    IPV6_HLEN, L3, Start, UDP_HLEN, ipv6_payload,
};

/// SCTP, RFC 9260.
const IPPROTO_SCTP: u8 = 132;
/// IP protocols that carry packets.
///
/// IPv4 in IP (RFC 2003), IPv6 in IP (RFC 4213), GRE (RFC 2784), MPLS in IP (RFC 4023), Ethernet (RFC 8986).
const TUNNELS: [u8; 5] = [4, 41, 47, 137, 143];

/// Byte of the TCP header at which the checksum is (RFC 9293).
const TCP_CHECKSUM: u16 = 16;
/// Byte of the UDP header at which the checksum is (RFC 768).
const UDP_CHECKSUM: u16 = 6;
/// Byte of the SCTP header at which the checksum is (RFC 9260).
const SCTP_CHECKSUM: u16 = 8;

/// Where a checksum of a frame is still to be written, if one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partial(u64);

impl Partial {
    /// The frame is as it will be received.
    pub const NONE: Self = Self(u64::MAX);

    /// Names the place by two offsets, bytes.
    ///
    /// The sum begins `start` bytes after the frame does, and goes `offset` bytes behind that.
    #[inline(always)]
    #[expect(clippy::cast_sign_loss, reason = "read back as it was")]
    pub const fn new(start: i32, offset: u16) -> Self {
        Self((offset as u64) << 32 | start as u32 as u64)
    }

    /// The same of a frame that begins `length` bytes later.
    #[inline(always)]
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "the words that `new` has put together; lengths of headers"
    )]
    pub const fn behind(self, length: usize) -> Self {
        if self.is_none() {
            self
        } else {
            Self::new(self.start() - length as i32, (self.0 >> 32) as u16)
        }
    }

    /// True when nothing is to be written.
    #[inline(always)]
    pub const fn is_none(self) -> bool {
        self.0 == u64::MAX
    }

    /// True when what is written does not touch the first `end` bytes of the frame.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "lengths of headers"
    )]
    pub const fn spares(self, end: usize) -> bool {
        self.is_none() || self.start() >= end as i32
    }

    /// True when the checksum is that of the transport header found at `at`.
    ///
    /// True too when it lies in a packet that this one carries through a tunnel. The one of a fragment is always
    /// written by the program that cuts.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "the longest chain of headers ends before byte 16,440"
    )]
    pub fn is_of_transport(self, at: usize, protocol: u8, fragment: bool) -> bool {
        if self.is_none() {
            return true;
        }
        let own = |offset| self == Self::new(at as i32, offset);
        if fragment {
            return false;
        }
        match protocol {
            IPPROTO_TCP => own(TCP_CHECKSUM),
            IPPROTO_UDP => own(UDP_CHECKSUM) || self.spares(at + UDP_HLEN),
            IPPROTO_SCTP => own(SCTP_CHECKSUM),
            _ if TUNNELS.contains(&protocol) => self.spares(at),
            _ => false,
        }
    }

    /// True when the missing checksum is a transport's own, in a frame of `ether_type`.
    ///
    /// The policy asks the same of frames that pods send.
    #[inline(always)]
    pub fn fits<F: Frame + ?Sized>(self, frame: &F, start: &Start, ether_type: u16) -> bool {
        if self.is_none() {
            return true;
        }
        match ether_type {
            ETH_P_ARP => false,
            ETH_P_IP if start.has::<{ L3 + IPV4_HLEN }>() => {
                let [first] = start.field::<L3, 1>();
                let fragment = u16::from_be_bytes(start.field::<{ L3 + 6 }, 2>()) & 0x3fff != 0;
                let [protocol] = start.field::<{ L3 + 9 }, 1>();
                self.is_of_transport(L3 + (first & 0x0f) as usize * 4, protocol, fragment)
            }
            ETH_P_IPV6 if start.has::<{ L3 + IPV6_HLEN }>() => {
                let [next_header] = start.field::<{ L3 + 6 }, 1>();
                match ipv6_payload(frame, next_header) {
                    Some(it) => self.is_of_transport(it.offset, it.protocol, it.fragment),
                    None => false,
                }
            }
            ETH_P_IP | ETH_P_IPV6 => false,
            _ => self.spares_ethernet(),
        }
    }

    /// True when what is written lies behind the Ethernet header.
    #[inline(always)]
    pub const fn spares_ethernet(self) -> bool {
        self.spares(ETH_HLEN)
    }

    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "as it was put in"
    )]
    const fn start(self) -> i32 {
        self.0 as u32 as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: usize = 34;
    const NEAR: core::ops::Range<i32> = -2..80;

    /// Every place that is accepted for a protocol, with offsets as far as TCP's.
    fn accepted(protocol: u8) -> Vec<(i32, u16)> {
        let places = NEAR.flat_map(|start| (0..=16).map(move |offset| (start, offset)));
        places
            .filter(|(start, offset)| {
                Partial::new(*start, *offset).is_of_transport(AT, protocol, false)
            })
            .collect()
    }

    #[test]
    fn transports_have_one_place() {
        for (protocol, offset) in [(6, 16), (132, 8)] {
            assert_eq!(accepted(protocol), [(34, offset)], "protocol {protocol}");
        }
    }

    /// ICMP, IGMP, ICMPv6, ESP, AH and unknown: no kernel leaves theirs unfinished.
    #[test]
    fn other_protocols_have_none() {
        for protocol in [0, 1, 2, 33, 50, 51, 58, 89, 136, 255] {
            assert_eq!(accepted(protocol), [], "protocol {protocol}");
        }
    }

    #[test]
    fn a_tunnels_own_headers_are_spared_but_for_the_checksum_of_udp() {
        for (protocol, inside) in [(17, 42), (4, 34), (41, 34), (47, 34), (137, 34), (143, 34)] {
            let outside = |(start, _): &&(i32, u16)| *start < inside;
            let places = accepted(protocol);
            let own: Vec<_> = places.iter().filter(outside).copied().collect();
            let expected: &[_] = if protocol == 17 { &[(34, 6)] } else { &[] };
            assert_eq!(own, expected, "protocol {protocol}");
            assert_eq!(places.len() - own.len(), (inside..80).count() * 17);
        }
    }

    #[test]
    fn fragments_have_none_and_finished_frames_are_always_right() {
        for protocol in 0..=u8::MAX {
            for offset in [6, 8, 16] {
                let own = Partial::new(34, offset);
                assert!(
                    !own.is_of_transport(AT, protocol, true),
                    "protocol {protocol}"
                );
            }
            for fragment in [true, false] {
                assert!(Partial::NONE.is_of_transport(AT, protocol, fragment));
            }
        }
        assert!(Partial::NONE.spares(usize::MAX));
    }

    #[test]
    fn a_place_before_the_frame_or_far_behind_spares_nothing_it_should_not() {
        for start in [i32::MIN, -1, 0, 13] {
            assert!(!Partial::new(start, u16::MAX).spares_ethernet(), "{start}");
        }
        assert!(Partial::new(14, 0).spares_ethernet());
        assert!(Partial::new(i32::MAX, u16::MAX).spares(60_000));
    }

    #[test]
    fn a_frame_inside_has_the_same_place_nearer_to_its_beginning() {
        assert_eq!(Partial::new(84, 16).behind(50), Partial::new(34, 16));
        assert_eq!(Partial::new(34, 6).behind(50), Partial::new(-16, 6));
        assert!(Partial::NONE.behind(50).is_none());
    }
}
