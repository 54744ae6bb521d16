//! Compute the checksum of IP, UDP and ICMP headers (RFC 1071).
//!
//! Words are summed as they lie in memory: the checksum is right in either byte order.

use crate::addr::Ip16;
use crate::packet::{ETH_HLEN, ETH_P_IP, Frame, IPV4_HLEN, L3};

/// The sum of the 16-bit words of `bytes`, of which there is an even number.
#[inline(always)]
pub fn sum<const N: usize>(bytes: &[u8; N]) -> u32 {
    const { assert!(N.is_multiple_of(2), "half a word") };
    let mut sum = 0;
    let mut rest: &[u8] = bytes;
    while let [a, b, more @ ..] = rest {
        sum += u32::from(u16::from_ne_bytes([*a, *b]));
        rest = more;
    }
    sum
}

/// Returns the sum of the eight 16-bit words of an address.
///
/// The address is read as one number: byte by byte, the program that answers would need twice the stack.
#[inline(always)]
pub fn sum_of(ip: &Ip16) -> u32 {
    let mut rest = u128::from_ne_bytes(ip.0);
    let mut sum = 0;
    for _ in 0..8 {
        sum += (rest & 0xffff) as u32;
        rest >>= 16;
    }
    sum
}

/// The sum in 16 bits.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "16 bits are left, twice folded"
)]
const fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

/// The checksum field for words that sum up to this.
#[inline(always)]
pub const fn field(sum: u32) -> [u8; 2] {
    (!fold(sum)).to_ne_bytes()
}

/// The checksum field of a datagram or segment whose words change.
///
/// `diff` is the sum of the words that are new less that of those that were, other than `old` and `new`. A sum of zero means
/// none in UDP, so it is written as the other zero (RFC 768), which is as right in TCP.
#[inline(always)]
pub fn changed(field: [u8; 2], old: &[u8; 4], new: &[u8; 4], diff: u32) -> [u8; 2] {
    let was = u32::from(!u16::from_ne_bytes(field));
    let [a, b, c, d] = *old;
    let gone = [!a, !b, !c, !d];
    let sum = was + sum(&gone) + sum(new) + (diff & 0xffff) + (diff >> 16);
    match !fold(sum) {
        0 => u16::MAX.to_ne_bytes(),
        field => field.to_ne_bytes(),
    }
}

/// Whether words that sum up to this, their checksum field among them, are whole.
#[inline(always)]
pub const fn is_right(sum: u32) -> bool {
    fold(sum) == 0xffff
}

/// Four-byte words of options that an IPv4 header can have.
const OPTIONS: usize = 10;

/// True when the checksum of a frame's IPv4 header is right.
///
/// True of a frame too that has no IPv4 header, or less of one than its 20 bytes without options.
#[inline(always)]
pub fn of_ipv4_is_right<F: Frame + ?Sized>(frame: &F) -> bool {
    let Some([t0, t1, header @ ..]) = frame.load::<{ 2 + IPV4_HLEN }>(ETH_HLEN - 2) else {
        return true;
    };
    if u16::from_be_bytes([t0, t1]) != ETH_P_IP {
        return true;
    }
    let [first, ..] = header;
    let length = (first & 0x0f) as usize * 4;
    let mut all = sum::<IPV4_HLEN>(&header);
    for word in 0..OPTIONS {
        let at = IPV4_HLEN + word * 4;
        if at >= length {
            break;
        }
        let Some(option) = frame.load::<4>(L3 + at) else {
            return false;
        };
        all += sum(&option);
    }
    is_right(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 1071 section 3.
    #[test]
    fn the_sum_is_that_of_rfc_1071() {
        let words = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(field(sum(&words)), [!0xdd, !0xf2]);
    }

    #[test]
    fn the_sum_of_an_address_is_that_of_its_bytes() {
        for bytes in [
            [0xff; 16],
            *b"\xfd\x10\0\0\x12\x34\0\0\xab\xcd\0\x01\0\0\0\x09",
        ] {
            assert_eq!(sum_of(&Ip16(bytes)), sum(&bytes));
        }
    }

    #[test]
    fn words_are_whole_with_their_own_checksum_and_with_no_other() {
        let header = *b"\x45\0\0\x54\x12\x34\x40\0\x40\x01\0\0\x0a\x0a\0\x02\x0a\x0a\0\x03";
        let mut whole = header;
        let [a, b] = field(sum(&header));
        (whole[10], whole[11]) = (a, b);
        assert!(is_right(sum(&whole)));
        for place in 0..whole.len() {
            let mut broken = whole;
            broken[place] ^= 0x10;
            assert!(!is_right(sum(&broken)), "byte {place}");
        }
    }

    #[test]
    fn a_changed_checksum_is_that_of_the_changed_words() {
        let before = *b"\x12\x34\x56\x78\x9a\xbc\xde\xf0\0\0";
        for (ports, address) in [
            ([0, 0, 0, 0], 0),
            ([0xff; 4], 0xffff),
            ([1, 2, 3, 4], 0x0a0b),
        ] {
            let [old @ .., a, b, c, d, _, _] = before;
            let field_before = field(sum(&before));
            let mut after = before;
            after[4..8].copy_from_slice(&ports);
            after[..2].copy_from_slice(&u16::to_ne_bytes(address));
            let diff = u32::from(address) + u32::from(!u16::from_ne_bytes([old[0], old[1]]));
            let changed = changed(field_before, &[a, b, c, d], &ports, diff);
            let mut whole = after;
            whole[8..].copy_from_slice(&changed);
            assert!(is_right(sum(&whole)), "{ports:?}");
            assert_ne!(changed, [0; 2]);
        }
    }

    fn frame(ether_type: u16, header: &[u8]) -> Vec<u8> {
        [&[0; 12], &ether_type.to_be_bytes()[..], header].concat()
    }

    #[test]
    fn an_ipv4_header_is_whole_with_all_of_its_options_only() {
        for words in 0..=OPTIONS {
            let mut header = vec![0x45; IPV4_HLEN + words * 4];
            header[0] = 0x45 + u8::try_from(words).unwrap();
            header[10..12].fill(0);
            let all = header
                .chunks(2)
                .map(|it| u32::from(u16::from_ne_bytes([it[0], it[1]])));
            let own = field(all.sum());
            header[10..12].copy_from_slice(&own);
            assert!(
                of_ipv4_is_right(&frame(ETH_P_IP, &header)[..]),
                "{words} words"
            );
            for place in 1..header.len() {
                let mut broken = header.clone();
                broken[place] ^= 0x20;
                let broken = frame(ETH_P_IP, &broken);
                assert!(
                    !of_ipv4_is_right(&broken[..]),
                    "{words} words, byte {place}"
                );
                // What is no IPv4, and what is no whole header, is for others to judge.
                let other = [&frame(0x86dd, &[]), &broken[14..]].concat();
                assert!(of_ipv4_is_right(&other[..]));
            }
            assert!(of_ipv4_is_right(&frame(ETH_P_IP, &header[..19])[..]));
        }
    }
}
