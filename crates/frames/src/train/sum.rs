//! Compute checksums of packets (RFC 1071) as the kernel writes them.
//!
//! Words are summed as they lie in memory: the checksum is right in either byte order.

/// The sum of the 16-bit words of some bytes, the last of which may be half a word.
#[inline]
pub(super) fn of(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut sum: u64 = words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)))
        .sum();
    let (halves, rest) = rest.as_chunks::<2>();
    for half in halves {
        sum = sum.wrapping_add(u64::from(u16::from_ne_bytes(*half)));
    }
    if let [last] = rest {
        sum = sum.wrapping_add(u64::from(u16::from_ne_bytes([*last, 0])));
    }
    sum
}

/// Folds a sum into one word.
#[inline]
pub(super) fn fold(sum: u64) -> [u8; 2] {
    let mut sum = sum;
    for _ in 0..4 {
        sum = (sum & 0xffff).wrapping_add(sum >> 16);
    }
    u16::try_from(sum & 0xffff)
        .unwrap_or_default()
        .to_ne_bytes()
}

/// The checksum of words with this sum.
#[inline]
pub(super) fn field(sum: u64) -> [u8; 2] {
    let [a, b] = fold(sum);
    [!a, !b]
}

/// A number in wire order, as a part of a sum.
#[inline]
pub(super) fn number(value: u16) -> u64 {
    u64::from(value.to_be())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The example of RFC 1071 section 3.
    #[test]
    fn the_sum_is_that_of_rfc_1071() {
        let words = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(field(of(&words)), [!0xdd, !0xf2]);
    }

    proptest! {
        #[test]
        fn the_sum_is_that_of_words_in_wire_order(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut sum: u32 = bytes
                .chunks(2)
                .map(|it| u32::from(it[0]) << 8 | u32::from(*it.get(1).unwrap_or(&0)))
                .sum();
            while sum > 0xffff {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            prop_assert_eq!(fold(of(&bytes)), u16::try_from(sum).unwrap().to_be_bytes());
        }
    }
}
