//! A ring's header and descriptors, by atomic loads and stores.
//!
//! ```text
//!   0  u32 cookie      4  u16 flags      6  u16 head
//!  64  u16 tail
//! 128  descriptors of 16 bytes: u16 flags, u16 region, u32 length, u32 offset, u32 metadata
//! ```
//!
//! Indices are 16 bits and are read and written as such: a peer that saw half of a new index would
//! take it for another one, and overrun the ring.
#![expect(
    unsafe_code,
    reason = "makes atomics of places in memory that a peer has mapped too"
)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::region::Regions;
use crate::error::Violation;
use crate::handshake::{DESCRIPTORS_AT, RingPlace, ring_bytes};

/// The first bytes of a ring.
pub(crate) const COOKIE: u32 = 0x03E3_1F20;
/// Ring flag: its receiver polls and needs no doorbell.
const MASK_INT: u16 = 1;
/// Descriptor flag: the packet goes on in the next slot.
pub(crate) const NEXT: u16 = 1;

const FLAGS_AT: usize = 4;
const HEAD_AT: usize = 6;
const TAIL_AT: usize = 64;

/// A descriptor, as it was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Desc {
    pub(crate) flags: u16,
    pub(crate) region: u16,
    pub(crate) length: u32,
    pub(crate) offset: u32,
}

impl Desc {
    #[inline]
    fn from_words(first: u64, second: u64) -> Self {
        let [f0, f1, r0, r1, l0, l1, l2, l3] = first.to_ne_bytes();
        let [o0, o1, o2, o3, ..] = second.to_ne_bytes();
        Self {
            flags: u16::from_ne_bytes([f0, f1]),
            region: u16::from_ne_bytes([r0, r1]),
            length: u32::from_ne_bytes([l0, l1, l2, l3]),
            offset: u32::from_ne_bytes([o0, o1, o2, o3]),
        }
    }

    #[inline]
    fn first_word(&self) -> u64 {
        let [f0, f1] = self.flags.to_ne_bytes();
        let [r0, r1] = self.region.to_ne_bytes();
        let [l0, l1, l2, l3] = self.length.to_ne_bytes();
        u64::from_ne_bytes([f0, f1, r0, r1, l0, l1, l2, l3])
    }

    #[inline]
    fn second_word(&self) -> u64 {
        let [o0, o1, o2, o3] = self.offset.to_ne_bytes();
        u64::from_ne_bytes([o0, o1, o2, o3, 0, 0, 0, 0])
    }
}

/// A ring in a region. It has no opinion about what is in it.
pub(crate) struct RingMemory {
    /// Keeps the memory mapped.
    regions: Arc<Regions>,
    base: NonNull<u8>,
    /// Number of slots less one; slots are a power of two.
    mask: u16,
}

// SAFETY: `base` points into memory that `regions` owns, which is Send and Sync, and is only used
// for atomic operations.
unsafe impl Send for RingMemory {}
// SAFETY: as above.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    /// The ring at `place`, whose header and descriptors are inside its region.
    pub(crate) fn new(regions: &Arc<Regions>, place: RingPlace) -> Result<Self, Violation> {
        place.check_inside(&regions.sizes())?;
        let outside = Violation::RingPlace {
            region: place.region,
            offset: place.offset,
        };
        let len = u32::try_from(ring_bytes(place.log2_size));
        let segment = len
            .ok()
            .and_then(|len| regions.segment(place.region, place.offset, len));
        let slots = 1_u32.checked_shl(u32::from(place.log2_size));
        let mask = slots.and_then(|slots| u16::try_from(slots.saturating_sub(1)).ok());
        match (segment, mask) {
            (Some(segment), Some(mask)) => Ok(Self {
                regions: Arc::clone(regions),
                base: segment.start(),
                mask,
            }),
            _ => Err(outside),
        }
    }

    /// Number of slots.
    #[inline]
    pub(crate) fn size(&self) -> u16 {
        // At most 2^14 slots.
        self.mask.saturating_add(1)
    }

    /// The client's table, for what descriptors name.
    #[inline]
    pub(crate) fn regions(&self) -> &Regions {
        &self.regions
    }

    #[inline]
    fn half(&self, at: usize) -> &AtomicU16 {
        debug_assert!(at <= TAIL_AT && at.is_multiple_of(2));
        // SAFETY: callers pass the three constants above, which are in the 128 bytes of the header
        // that `new` has checked to be inside the region.
        let place = unsafe { self.base.add(at) };
        // SAFETY: aligned to 2, because the region is to a page, the ring in it to 16, and the
        // constants are even. The memory lives as long as `regions`. It is accessed atomically
        // only, but for payload that a peer lets overlap with it; then both are the peer's.
        unsafe { AtomicU16::from_ptr(place.as_ptr().cast()) }
    }

    #[inline]
    fn words(&self, index: u16) -> (&AtomicU64, &AtomicU64) {
        let slot = usize::from(index & self.mask);
        let at = slot.saturating_mul(16).saturating_add(DESCRIPTORS);
        // SAFETY: slot <= mask, so the 16 bytes are in the ring, which is inside the region.
        let first = unsafe { self.base.add(at) };
        // SAFETY: as above, its second half.
        let second = unsafe { first.add(8) };
        // SAFETY: aligned to 8, as region, ring and descriptors are aligned to 16; living as long
        // as `regions`; accessed as in `half`.
        let first = unsafe { AtomicU64::from_ptr(first.as_ptr().cast()) };
        // SAFETY: as above.
        let second = unsafe { AtomicU64::from_ptr(second.as_ptr().cast()) };
        (first, second)
    }

    #[inline]
    fn cookie_place(&self) -> &AtomicU32 {
        // SAFETY: the header's first 4 bytes, aligned to 16; otherwise as in `half`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().cast()) }
    }

    /// The header says that a ring is here.
    pub(crate) fn check_cookie(&self) -> Result<(), Violation> {
        match self.cookie_place().load(Ordering::Relaxed) {
            COOKIE => Ok(()),
            found => Err(Violation::Cookie { found }),
        }
    }

    /// An empty ring.
    pub(crate) fn reset(&self) {
        self.half(HEAD_AT).store(0, Ordering::Relaxed);
        self.half(TAIL_AT).store(0, Ordering::Release);
    }

    /// Says that a ring is here: the client does.
    pub(crate) fn format(&self) {
        self.half(FLAGS_AT).store(0, Ordering::Relaxed);
        self.reset();
        self.cookie_place().store(COOKIE, Ordering::Release);
    }

    #[inline]
    pub(crate) fn head(&self) -> u16 {
        self.half(HEAD_AT).load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_head(&self, head: u16) {
        self.half(HEAD_AT).store(head, Ordering::Release);
    }

    #[inline]
    pub(crate) fn tail(&self) -> u16 {
        self.half(TAIL_AT).load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_tail(&self, tail: u16) {
        self.half(TAIL_AT).store(tail, Ordering::Release);
    }

    /// Whether its receiver wants no doorbells.
    #[inline]
    pub(crate) fn is_masked(&self) -> bool {
        self.half(FLAGS_AT).load(Ordering::Relaxed) & MASK_INT != 0
    }

    /// Says whether we want doorbells. All flags are written: there is only this one.
    #[inline]
    pub(crate) fn set_masked(&self, masked: bool) {
        let flags = if masked { MASK_INT } else { 0 };
        self.half(FLAGS_AT).store(flags, Ordering::Relaxed);
    }

    /// The descriptor of a slot, read once.
    #[inline]
    pub(crate) fn desc(&self, index: u16) -> Desc {
        let (first, second) = self.words(index);
        Desc::from_words(
            first.load(Ordering::Relaxed),
            second.load(Ordering::Relaxed),
        )
    }

    /// Writes flags, region and length of a slot.
    #[inline]
    pub(crate) fn set_desc_start(&self, index: u16, desc: Desc) {
        let (first, _) = self.words(index);
        first.store(desc.first_word(), Ordering::Relaxed);
    }

    /// Writes all of a slot.
    #[inline]
    pub(crate) fn set_desc(&self, index: u16, desc: Desc) {
        let (first, second) = self.words(index);
        first.store(desc.first_word(), Ordering::Relaxed);
        second.store(desc.second_word(), Ordering::Relaxed);
    }
}

/// [`DESCRIPTORS_AT`] for pointers.
const DESCRIPTORS: usize = 128;
const _: () = assert!(DESCRIPTORS_AT == 128, "one place for descriptors");

impl fmt::Debug for RingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Ring({} slots, head {}, tail {})",
            self.size(),
            self.head(),
            self.tail()
        )
    }
}
