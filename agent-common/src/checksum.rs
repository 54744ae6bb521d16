//! The checksum of IP, UDP and ICMP headers (RFC 1071). Words are summed as they lie in memory: the
//! checksum is right in either byte order.

use crate::addr::Ip16;

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

/// The sum of an address's words. It is read as one number: byte by byte the program that answers would
/// need twice the stack.
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

/// Whether words that sum up to this, their checksum field among them, are whole.
#[inline(always)]
pub const fn is_right(sum: u32) -> bool {
    fold(sum) == 0xffff
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
}
