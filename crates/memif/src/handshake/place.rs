//! Compute and check places of rings in regions, in 64 bits.

use crate::error::Violation;

/// Where a ring's descriptors start, counted from its header.
pub(crate) const DESCRIPTORS_AT: u64 = 128;
/// Alignment of a ring's offset: a descriptor's size, so that none is torn.
///
/// Clients align their first ring to a page, and the ones behind it by the size of those before.
pub(crate) const RING_ALIGN: u32 = 16;
/// Bytes of a descriptor.
const DESCRIPTOR: u64 = 16;
/// Where descriptors start when DPDK is built for cache lines of 128 bytes.
const DESCRIPTORS_AT_128: u64 = 256;

/// Where a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlace {
    /// The region.
    pub region: u16,
    /// The offset of the ring's header in the region, in bytes.
    pub offset: u32,
    /// Slots, as a power of two.
    pub log2_size: u8,
}

/// Bytes of a ring with its header.
pub(crate) fn ring_bytes(log2_size: u8) -> u64 {
    let slots = 1_u64.checked_shl(u32::from(log2_size)).unwrap_or(u64::MAX);
    slots
        .saturating_mul(DESCRIPTOR)
        .saturating_add(DESCRIPTORS_AT)
}

impl RingPlace {
    /// Its first byte, and the first one behind it.
    fn extent(&self) -> (u64, u64) {
        let start = u64::from(self.offset);
        (start, start.saturating_add(ring_bytes(self.log2_size)))
    }

    /// The place is aligned, and inside its region.
    ///
    /// # Errors
    /// It is not.
    pub(crate) fn check_inside(&self, regions: &[u64]) -> Result<(), Violation> {
        let size = regions.get(usize::from(self.region));
        let inside = size.is_some_and(|size| self.extent().1 <= *size);
        if inside && self.offset.is_multiple_of(RING_ALIGN) {
            Ok(())
        } else {
            Err(Violation::RingPlace {
                region: self.region,
                offset: self.offset,
            })
        }
    }
}

/// Checks that a client's rings are inside their regions and do not overlap.
///
/// Nor may they be laid out for other cache lines than ours.
///
/// # Errors
/// The first finding.
pub(crate) fn check(regions: &[u64], rings: &[RingPlace]) -> Result<(), Violation> {
    if rings.is_empty() {
        return Err(Violation::NoRing);
    }
    for ring in rings {
        ring.check_inside(regions)?;
    }
    let mut sorted = rings.to_vec();
    sorted.sort_unstable_by_key(|ring| (ring.region, ring.offset));
    let mut neighbours = sorted.iter().zip(sorted.iter().skip(1)).peekable();
    let mut for_128 = neighbours.peek().is_some();
    for (first, second) in neighbours {
        if first.region != second.region {
            for_128 = false;
            continue;
        }
        let (start, end) = first.extent();
        let next = second.extent().0;
        if next < end {
            return Err(Violation::RingsOverlap(first.region));
        }
        let wide = end
            .saturating_sub(DESCRIPTORS_AT)
            .saturating_add(DESCRIPTORS_AT_128);
        for_128 &= next == wide && start < next;
    }
    if for_128 {
        return Err(Violation::CacheLine128);
    }
    Ok(())
}
