//! Describe where the kernel's `struct sk_buff` has the fields that programs read.
//!
//! `__sk_buff` does not show these fields.
//!
//! The loader finds their places in the kernel's type information; programs get them as one constant.

/// Most bytes of the structure that are read at once.
pub const SKB_WINDOW: usize = 96;

/// The part of `struct sk_buff` (linux/skbuff.h) that is read, and its fields.
///
/// Offsets are in bytes and, but for the first, count from where that part begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkbLayout {
    /// Where the part begins in the structure, a multiple of 8.
    pub begin: u16,
    /// Its length, at most [`SKB_WINDOW`].
    pub length: u8,
    /// The byte that has `ip_summed`.
    pub summed: u8,
    /// The lowest of its two bits in that byte.
    pub summed_bit: u8,
    /// `csum_start`, a multiple of 2. `csum_offset` follows it.
    pub csum_start: u8,
    /// `head`, a multiple of 8. `data` follows it.
    pub head: u8,
}

/// `CHECKSUM_PARTIAL` of linux/skbuff.h, in `ip_summed`.
pub const CHECKSUM_PARTIAL: u8 = 3;

impl SkbLayout {
    /// As the constant.
    #[inline(always)]
    pub const fn pack(self) -> u64 {
        let [a, b] = self.begin.to_le_bytes();
        u64::from_le_bytes([
            a,
            b,
            self.length,
            self.summed,
            self.summed_bit,
            self.csum_start,
            self.head,
            0,
        ])
    }

    /// Of the constant.
    #[inline(always)]
    pub const fn unpack(word: u64) -> Self {
        let [a, b, length, summed, summed_bit, csum_start, head, _] = word.to_le_bytes();
        Self {
            begin: u16::from_le_bytes([a, b]),
            length,
            summed,
            summed_bit,
            csum_start,
            head,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constant_holds_every_field() {
        let layout = SkbLayout {
            begin: 0x1230,
            length: 80,
            summed: 1,
            summed_bit: 5,
            csum_start: 8,
            head: 64,
        };
        assert_eq!(SkbLayout::unpack(layout.pack()), layout);
    }
}
