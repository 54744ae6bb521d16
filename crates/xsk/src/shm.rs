//! Map memory shared with the kernel: frames, and the rings that name them.
//!
//! Nothing here is handed out twice: frames are reached by their [`Frame`](crate::umem::Frame) only, and
//! a ring by its one owner.
#![expect(
    unsafe_code,
    reason = "maps memory that the kernel uses too, and makes atomics and slices of places in it"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Alignment of heap memory that stands in for a mapping, bytes.
///
/// A page, or a multiple of one, as a mapping has.
const HEAP_ALIGN: usize = 4096;
/// `XDP_RING_NEED_WAKEUP`: the kernel sleeps and wants to be called.
const NEED_WAKEUP: u32 = 1;

/// Where memory is from.
enum Backing {
    Mapped,
    /// For tests that have no socket: Miri knows no mappings of files.
    Heap(Layout),
}

/// Some memory, gone with this.
pub(crate) struct Memory {
    base: NonNull<u8>,
    len: usize,
    backing: Backing,
}

// SAFETY: memory belongs to no thread. A ring is only used through its one owner, frames only by who
// holds their token.
unsafe impl Send for Memory {}
// SAFETY: through a shared reference there is nothing but what `bytes_mut` gives, for which its caller vouches,
// and atomics.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed memory of this process that no other one has.
    pub(crate) fn anonymous(len: usize) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: with a null hint the kernel chooses a place where nothing of ours is.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE) }?;
        Self::mapped(base.cast(), len)
    }

    /// Maps a ring of a socket, of `len` bytes at the mapping offset `offset`.
    ///
    /// Its pages are there from the start, not when they are touched first.
    pub(crate) fn ring(socket: BorrowedFd<'_>, len: usize, offset: u64) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: as above. The kernel keeps a ring for as long as it is mapped.
        let base = unsafe { mmap(ptr::null_mut(), len, access, flags, socket, offset) }?;
        Self::mapped(base.cast(), len)
    }

    fn mapped(base: *mut u8, len: usize) -> Result<Self, Errno> {
        Ok(Self {
            base: NonNull::new(base).ok_or(Errno::FAULT)?,
            len,
            backing: Backing::Mapped,
        })
    }

    /// Zeroed memory of the heap.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "rings without a socket, for tests")
    )]
    pub(crate) fn heap(len: usize) -> Self {
        let layout =
            Layout::from_size_align(len.max(1), HEAP_ALIGN).expect("a length that memory can have");
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else {
            handle_alloc_error(layout)
        };
        Self {
            base,
            len,
            backing: Backing::Heap(layout),
        }
    }

    /// Bytes of it.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where it is, as a socket is told.
    pub(crate) fn address(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// Bytes to write; none if they are not all inside.
    ///
    /// # Safety
    /// Neither kernel nor anybody else uses them while the result lives.
    #[expect(
        clippy::mut_from_ref,
        reason = "frames are used one beside the other; each by who holds its token"
    )]
    pub(crate) unsafe fn bytes_mut(&self, offset: usize, len: usize) -> Option<&mut [u8]> {
        let at = self.place(offset, len)?;
        // SAFETY: `len` bytes are there, initialised when the memory was made; nobody uses them, as the
        // caller says.
        Some(unsafe { slice::from_raw_parts_mut(at.as_ptr(), len) })
    }

    fn place(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        // SAFETY: offset <= end <= self.len, in one allocation or mapping.
        (end <= self.len).then(|| unsafe { self.base.add(offset) })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self.backing {
            Backing::Mapped => {
                // SAFETY: base and len are what mmap gave and got; what borrows this is gone.
                let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
                debug_assert_eq!(unmapped, Ok(()), "munmap of a mapping of ours");
            }
            // SAFETY: base is from alloc_zeroed with this layout.
            Backing::Heap(layout) => unsafe { dealloc(self.base.as_ptr(), layout) },
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.len)
    }
}

/// Where in a ring's memory its parts are, in bytes: the kernel says it of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) producer: usize,
    pub(crate) consumer: usize,
    pub(crate) flags: usize,
    pub(crate) entries: usize,
}

/// Content of a slot, by the number of 64-bit words it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// An address: fill and completion ring.
    Address,
    /// `struct xdp_desc`: address, then length and options.
    Descriptor,
}

impl Width {
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Address => 8,
            Self::Descriptor => 16,
        }
    }
}

/// A ring as it is in memory. It has no opinion about what is in it.
#[derive(Debug)]
pub(crate) struct RingMemory {
    memory: Memory,
    parts: Parts,
    mask: u32,
    width: Width,
}

impl RingMemory {
    /// Builds a ring of `slots` slots, a power of two, in this memory.
    ///
    /// None when it is not all inside the memory or not aligned.
    pub(crate) fn new(memory: Memory, parts: Parts, slots: u32, width: Width) -> Option<Self> {
        let mask = slots.checked_sub(1).filter(|_| slots.is_power_of_two())?;
        let bytes = usize::try_from(slots).ok()?.checked_mul(width.bytes())?;
        let fits = |at: usize, len: usize, align: usize| {
            at.is_multiple_of(align) && at.checked_add(len).is_some_and(|end| end <= memory.len())
        };
        let is_sound = fits(parts.producer, 4, 4)
            && fits(parts.consumer, 4, 4)
            && fits(parts.flags, 4, 4)
            && fits(parts.entries, bytes, 8);
        is_sound.then_some(Self {
            memory,
            parts,
            mask,
            width,
        })
    }

    pub(crate) fn slots(&self) -> u32 {
        self.mask.saturating_add(1)
    }

    fn index(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at <= self.memory.len());
        // SAFETY: `new` has checked that 4 aligned bytes are inside at each of the three places that
        // callers pass. The memory lives as long as `self`, and these are accessed atomically only.
        unsafe { AtomicU32::from_ptr(self.memory.base.as_ptr().add(at).cast()) }
    }

    /// A word of a slot: `second` only in descriptors.
    fn word(&self, index: u32, second: bool) -> &AtomicU64 {
        let slot = (index & self.mask) as usize;
        let second = second && self.width == Width::Descriptor;
        let at = slot
            .saturating_mul(self.width.bytes())
            .saturating_add(8 * usize::from(second));
        // SAFETY: slot <= mask, so the aligned word is inside the entries, which `new` has checked.
        let place = unsafe { self.memory.base.as_ptr().add(self.parts.entries).add(at) };
        // SAFETY: as above; the memory lives as long as `self`. Relaxed atomic accesses are plain ones
        // to the machine; the order is that of the indices.
        unsafe { AtomicU64::from_ptr(place.cast()) }
    }

    pub(crate) fn producer(&self) -> &AtomicU32 {
        self.index(self.parts.producer)
    }

    pub(crate) fn consumer(&self) -> &AtomicU32 {
        self.index(self.parts.consumer)
    }

    /// Whether the kernel wants a call before it goes on with this ring.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.index(self.parts.flags).load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    pub(crate) fn address(&self, index: u32) -> u64 {
        self.word(index, false).load(Ordering::Relaxed)
    }

    /// Length, and options in the upper half; of an address ring the address.
    pub(crate) fn length(&self, index: u32) -> u32 {
        let [a, b, c, d, ..] = self.word(index, true).load(Ordering::Relaxed).to_ne_bytes();
        u32::from_ne_bytes([a, b, c, d])
    }

    pub(crate) fn set(&self, index: u32, address: u64, length: u32) {
        self.word(index, false).store(address, Ordering::Relaxed);
        if self.width == Width::Descriptor {
            let [a, b, c, d] = length.to_ne_bytes();
            let word = u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]);
            self.word(index, true).store(word, Ordering::Relaxed);
        }
    }
}
