//! Arithmetic of ring indices: 16 bits, free-running, modulo the ring's size.
//!
//! A slot is the index modulo the ring's size.

use crate::error::Violation;

/// How far a peer's index is ahead of ours, if that is at most `most`.
///
/// # Errors
/// It is further ahead, or behind, which is the same to a 16-bit number.
#[inline]
pub(crate) fn ahead(ours: u16, theirs: u16, most: u16) -> Result<u16, Violation> {
    let distance = theirs.wrapping_sub(ours);
    if distance <= most {
        Ok(distance)
    } else {
        Err(Violation::Index { ours, theirs })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_distance_within_the_ring_is_found_across_the_wrap(ours: u16, log2 in 1_u32..15, part: u16) {
            let size = 1_u16 << log2;
            let distance = part % (size + 1);
            prop_assert_eq!(ahead(ours, ours.wrapping_add(distance), size), Ok(distance));
        }

        #[test]
        fn a_jump_and_a_step_back_are_refused(ours: u16, log2 in 1_u32..15, far: u16) {
            let size = 1_u16 << log2;
            let distance = size + 1 + far % (u16::MAX - size);
            let theirs = ours.wrapping_add(distance);
            prop_assert_eq!(ahead(ours, theirs, size), Err(Violation::Index { ours, theirs }));
        }
    }
}
