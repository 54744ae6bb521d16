//! Lay out a client's memory: one region with all rings and a buffer for each slot.
//!
//! Buffers have one size.

use crate::error::Error;
use crate::handshake::{Agreed, RingPlace, ring_bytes};
use crate::shm::{Desc, Region, Regions, RingMemory};
use crate::wire::MAX_LOG2_RING_SIZE;

/// Buffers start at a multiple of this: a cache line.
const ALIGN: u64 = 64;
/// Buffers of a client, as others' clients can have them.
const BUFFER_SIZES: (u32, u32) = (64, 65535);
/// Rings of one direction.
const RINGS: (u64, u64) = (1, 256);

/// The buffers of one ring, a slot's buffer next to that of the slot before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    start: u32,
    size: u32,
    mask: u16,
}

impl Buffers {
    /// Bytes of each.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The descriptor of a slot whose buffer is empty.
    #[inline]
    pub(crate) fn lent(&self, index: u16) -> Desc {
        let slot = u32::from(index & self.mask);
        Desc {
            flags: 0,
            region: 0,
            length: self.size,
            // The layout has checked that the last buffer's offset is a u32.
            offset: self.start.wrapping_add(slot.wrapping_mul(self.size)),
        }
    }
}

/// Where everything is in a client's region, which has number 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Rings to the server, and their buffers.
    pub c2s: Vec<(RingPlace, Buffers)>,
    /// Rings from the server, and their buffers.
    pub s2c: Vec<(RingPlace, Buffers)>,
    size: u32,
}

impl Layout {
    /// The memory for these rings.
    ///
    /// # Errors
    /// A number is out of its range, or everything together is 4 GiB or more.
    pub fn new(agreed: &Agreed, buffer_size: u32) -> Result<Self, Error> {
        let log2_size = agreed.log2_ring_size;
        within("c2s_rings", agreed.c2s_rings.into(), RINGS)?;
        within("s2c_rings", agreed.s2c_rings.into(), RINGS)?;
        within(
            "log2_ring_size",
            log2_size.into(),
            (1, MAX_LOG2_RING_SIZE.into()),
        )?;
        let (least, most) = BUFFER_SIZES;
        within(
            "buffer_size",
            buffer_size.into(),
            (least.into(), most.into()),
        )?;

        let rings = u64::from(agreed.c2s_rings).saturating_add(agreed.s2c_rings.into());
        let slots = 1_u64.checked_shl(log2_size.into()).unwrap_or(u64::MAX);
        let buffers_of_ring = slots.saturating_mul(buffer_size.into());
        let buffers_at = rings
            .saturating_mul(ring_bytes(log2_size))
            .next_multiple_of(ALIGN);
        let size = buffers_at.saturating_add(rings.saturating_mul(buffers_of_ring));
        within("bytes of all buffers", size, (1, u32::MAX.into()))?;

        let mask = u16::try_from(slots.saturating_sub(1)).unwrap_or(u16::MAX);
        let mut all = (0..rings).map(|nth| {
            let offset = nth.saturating_mul(ring_bytes(log2_size));
            let start = buffers_at.saturating_add(nth.saturating_mul(buffers_of_ring));
            let place = RingPlace {
                region: 0,
                offset: narrow(offset),
                log2_size,
            };
            let buffers = Buffers {
                start: narrow(start),
                size: buffer_size,
                mask,
            };
            (place, buffers)
        });
        Ok(Self {
            c2s: all.by_ref().take(agreed.c2s_rings.into()).collect(),
            s2c: all.collect(),
            size: narrow(size),
        })
    }

    /// Bytes of the region.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Writes empty rings into the region.
    ///
    /// # Panics
    /// If the region is smaller than [`Self::size`].
    pub fn format(&self, region: Region) -> std::sync::Arc<Regions> {
        let regions = std::sync::Arc::new(Regions::new(vec![region]));
        for (place, _) in self.c2s.iter().chain(&self.s2c) {
            let ring = RingMemory::new(&regions, *place);
            ring.expect("a region of the layout's size has room for its rings")
                .format();
        }
        regions
    }
}

fn within(field: &'static str, value: u64, (min, max): (u64, u64)) -> Result<(), Error> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(Error::Layout {
            field,
            value,
            min,
            max,
        })
    }
}

/// Narrows an offset that was checked to be less than 4 GiB.
fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::handshake::check_places;
    use crate::wire::Name;

    fn agreed(c2s_rings: u16, s2c_rings: u16, log2_ring_size: u8) -> Agreed {
        Agreed {
            app: Name::default(),
            c2s_rings,
            s2c_rings,
            log2_ring_size,
        }
    }

    #[test]
    fn a_setting_out_of_range_is_named() {
        for (layout, field) in [
            (Layout::new(&agreed(0, 1, 10), 2048), "c2s_rings"),
            (Layout::new(&agreed(1, 257, 10), 2048), "s2c_rings"),
            (Layout::new(&agreed(1, 1, 0), 2048), "log2_ring_size"),
            (Layout::new(&agreed(1, 1, 15), 2048), "log2_ring_size"),
            (Layout::new(&agreed(1, 1, 10), 63), "buffer_size"),
            (Layout::new(&agreed(1, 1, 10), 65536), "buffer_size"),
            (
                Layout::new(&agreed(8, 8, 14), 65535),
                "bytes of all buffers",
            ),
        ] {
            let error = layout.unwrap_err().to_string();
            assert!(error.starts_with(field), "{error}");
        }
    }

    proptest! {
        #[test]
        fn rings_and_buffers_lie_apart_inside_the_region(
            c2s in 1_u16..9, s2c in 1_u16..9, log2 in 1_u8..11, buffer in 64_u32..9000,
        ) {
            let layout = Layout::new(&agreed(c2s, s2c, log2), buffer).unwrap();
            let places: Vec<RingPlace> =
                layout.c2s.iter().chain(&layout.s2c).map(|(place, _)| *place).collect();
            prop_assert_eq!(places.len(), usize::from(c2s + s2c));
            // What a server of ours would say to it.
            prop_assert_eq!(check_places(&[layout.size().into()], &places), Ok(()));
            let mut end = u64::from(places.last().unwrap().offset) + ring_bytes(log2);
            for (_, buffers) in layout.c2s.iter().chain(&layout.s2c) {
                for slot in 0..1_u16 << log2 {
                    let desc = buffers.lent(slot);
                    prop_assert!(u64::from(desc.offset) >= end);
                    end = u64::from(desc.offset) + u64::from(desc.length);
                }
            }
            prop_assert!(end <= u64::from(layout.size()));
        }
    }
}
