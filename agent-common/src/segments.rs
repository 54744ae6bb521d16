//! Packets that the kernel carries as one and that become several on a wire (GSO).

use crate::packet::{ETH_HLEN, ETH_P_IPV6, Frame, IPV6_HLEN, L3, ipv6_payload};

/// Payload below which a segment is small, bytes.
///
/// `TCP_MIN_MSS` of Linux (net/tcp.h).
pub const SEGMENT_MIN: u32 = 88;
/// Small segments that one packet may become.
///
/// `UDP_MAX_SEGMENTS` of Linux (linux/udp.h), so that no call by `UDP_SEGMENT` is refused.
pub const SMALL_SEGMENTS_MAX: u32 = 128;

/// Headers that a frame has besides, bytes: Ethernet, IPv6 and TCP.
const HEADERS: u32 = 14 + 40 + 20;

/// How many packets a frame of this many bytes becomes, at least 1.
///
/// `size` is the payload of a segment, bytes, 0 for a packet that stays one. `count` is what the kernel
/// says, which is 0 for headers that a program made (`PACKET_VNET_HDR`).
#[inline(always)]
pub const fn segments(length: u32, size: u32, count: u32) -> u32 {
    if size == 0 {
        return 1;
    }
    let least = length.div_ceil(size);
    if least > count { least } else { count }
}

/// The same of a frame with headers of this length, bytes, by lengths alone.
#[inline(always)]
pub const fn behind(length: u32, headers: u32, size: u32) -> u32 {
    if size == 0 || headers >= length {
        return 1;
    }
    (length - headers).div_ceil(size)
}

/// True for a frame of more small segments than any program needs.
///
/// Cutting it by software costs the node a thousand times what it costs the sender.
#[inline(always)]
pub const fn is_too_fine(length: u32, size: u32) -> bool {
    size != 0 && size < SEGMENT_MIN && length > size * SMALL_SEGMENTS_MAX + HEADERS
}

/// Tells an IPv6 packet of which segments are above the MTU, bytes.
///
/// Each repeats the extension headers, which [`Frame::segment_length`] does not know.
#[inline(always)]
pub fn repeat_too_much<F: Frame + ?Sized>(frame: &F, mtu: u16) -> bool {
    let segment = frame.segment_length();
    if segment == frame.length() {
        return false;
    }
    let Some([t0, t1, _, _, _, _, _, _, next_header]) = frame.load::<9>(ETH_HLEN - 2) else {
        return false;
    };
    if u16::from_be_bytes([t0, t1]) != ETH_P_IPV6 {
        return false;
    }
    let Some(payload) = ipv6_payload(frame, next_header) else {
        return true;
    };
    segment + payload.offset - (L3 + IPV6_HLEN) > mtu as usize + ETH_HLEN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Start;

    /// A frame that becomes segments of this length.
    struct Large(Vec<u8>, usize);

    impl Frame for Large {
        fn length(&self) -> usize {
            60_000
        }

        fn segment_length(&self) -> usize {
            self.1
        }

        fn has_vlan_tag(&self) -> bool {
            false
        }

        fn load<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
            self.0.as_slice().load(offset)
        }

        fn start(&self) -> Start {
            Start::of(&self.0)
        }
    }

    #[test]
    fn headers_that_each_segment_repeats_count() {
        let large = |units: u8, segment| {
            let mut bytes = vec![0; 12];
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 60, 64]);
            bytes.resize(L3 + IPV6_HLEN, 0);
            bytes.extend([6, units]);
            bytes.resize(L3 + IPV6_HLEN + (usize::from(units) + 1) * 8 + 20, 0);
            Large(bytes, segment)
        };
        assert!(!repeat_too_much(&large(0, 1506), 1500));
        assert!(repeat_too_much(&large(0, 1507), 1500));
        assert!(repeat_too_much(&large(255, 1442), 1500));
        assert!(!repeat_too_much(&large(255, 60_000), 1500), "one packet");
        let mut v4 = large(255, 1442);
        v4.0[12..14].copy_from_slice(&[8, 0]);
        assert!(!repeat_too_much(&v4, 1500));
    }

    #[test]
    fn a_frame_is_as_many_packets_as_its_length_has_segments() {
        assert_eq!(segments(1514, 0, 0), 1);
        assert_eq!(segments(1514, 0, 9), 1, "no size, no segments");
        assert_eq!(segments(60_000, 1, 0), 60_000);
        assert_eq!(
            segments(14 + 40 + 14_480, 1448, 10),
            11,
            "headers count too"
        );
        assert_eq!(segments(100, 1448, 0), 1);
        assert_eq!(segments(100, 10, 40), 40, "the kernel knows better");
    }

    #[test]
    fn behind_its_headers_a_frame_is_as_many_packets_as_were_joined() {
        for (headers, size, frames) in [(42, 18, 64), (42, 1472, 43), (66, 1448, 2), (62, 1, 1)] {
            let whole = headers + size * frames;
            assert_eq!(behind(whole, headers, size), frames);
            assert_eq!(
                behind(whole + 1, headers, size),
                frames + 1,
                "a shorter one"
            );
        }
        assert_eq!(behind(60, 60, 10), 1, "nothing behind them");
        assert_eq!(behind(60, u32::MAX, 10), 1, "headers that cannot be read");
        assert_eq!(behind(60, 20, 0), 1);
    }

    #[test]
    fn many_small_segments_are_too_fine_and_few_or_large_ones_are_not() {
        assert!(is_too_fine(60_000, 1) && is_too_fine(60_000, 87));
        assert!(!is_too_fine(60_000, SEGMENT_MIN) && !is_too_fine(60_000, 1448));
        assert!(!is_too_fine(60_000, 0));
        let most = 128 * 20 + HEADERS;
        assert!(!is_too_fine(most, 20) && is_too_fine(most + 1, 20));
    }
}
