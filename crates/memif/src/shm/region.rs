//! Regions of shared memory, and the only way to bytes in them.
#![expect(
    unsafe_code,
    reason = "maps memory of a peer and copies bytes there by raw pointers"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, compiler_fence};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// Alignment of heap memory that replaces a mapping: a page, or more.
const HEAP_ALIGN: usize = 4096;

/// Where a region's bytes are from.
enum Backing {
    /// A mapping of a file.
    Mapped,
    /// Memory of this process, for two ends in it.
    Heap(Layout),
}

/// A piece of memory that others write while we read.
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    backing: Backing,
}

// SAFETY: a Region owns its memory, which does not belong to any thread, and gives out no
// reference to it: all access is by raw pointers and atomics, from whatever thread.
unsafe impl Send for Region {}
// SAFETY: as above. Copies that race with a writer give bytes of either, which is what every
// reader of shared memory has to expect; nothing of ours depends on them being stable.
unsafe impl Sync for Region {}

impl Region {
    /// Maps the first `size` bytes of a file.
    ///
    /// The caller has made sure that the file cannot become smaller, see
    /// [`crate::memory::check`]; without that a touch of the memory kills the process.
    pub(crate) fn map(file: BorrowedFd<'_>, size: u64) -> Result<Self, Errno> {
        let len = usize::try_from(size).map_err(|_| Errno::OVERFLOW)?;
        // SAFETY: with a null hint the kernel chooses a place where nothing of ours is.
        let base = unsafe {
            mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        // A huge page would be charged to us for a touch of one byte. A kernel without them refuses.
        // SAFETY: advice about a mapping of ours changes no byte of it.
        let _ = unsafe { madvise(base, len, Advice::LinuxNoHugepage) };
        let base = NonNull::new(base.cast()).ok_or(Errno::FAULT)?;
        Ok(Self {
            base,
            len,
            backing: Backing::Mapped,
        })
    }

    /// Zeroed memory of this process, for a server and a client that are both in it.
    ///
    /// # Panics
    /// If `len` is more than there can be.
    pub fn heap(len: usize) -> Self {
        let layout = Layout::from_size_align(len.max(1), HEAP_ALIGN)
            .expect("a length that an allocation can have");
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
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes from `offset` on, if all of them are inside.
    #[inline]
    pub fn segment(&self, offset: u32, len: u32) -> Option<Segment<'_>> {
        // Both are 32 bits wide: the sum cannot overflow 64.
        let end = u64::from(offset).checked_add(u64::from(len))?;
        let size = u64::try_from(self.len).ok()?;
        if end > size {
            return None;
        }
        let offset = usize::try_from(offset).ok()?;
        // SAFETY: offset <= end <= self.len, and base is the start of self.len bytes of one
        // allocation or mapping, which lives as long as self.
        let at = unsafe { self.base.add(offset) };
        Some(Segment {
            at,
            len,
            region: PhantomData,
        })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        match self.backing {
            Backing::Mapped => {
                // SAFETY: base and len are what mmap gave and got. Segments and rings borrow the
                // region, or own a part of it by Arc: none is left.
                let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
                debug_assert_eq!(unmapped, Ok(()), "munmap of a mapping of ours");
            }
            Backing::Heap(layout) => {
                // SAFETY: base is from alloc_zeroed with this layout; no user is left, as above.
                unsafe { dealloc(self.base.as_ptr(), layout) }
            }
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes)", self.len)
    }
}

/// All regions of one client, by index, in a table that the peer cannot change.
#[derive(Debug)]
pub struct Regions(Vec<Region>);

impl Regions {
    /// The table.
    pub fn new(regions: Vec<Region>) -> Self {
        Self(regions)
    }

    /// Bytes of a descriptor: exactly if all are inside the region.
    #[inline]
    pub fn segment(&self, region: u16, offset: u32, len: u32) -> Option<Segment<'_>> {
        self.0.get(usize::from(region))?.segment(offset, len)
    }

    /// Each region's size.
    pub fn sizes(&self) -> Vec<u64> {
        let sizes = self.0.iter().map(|region| u64::try_from(region.len));
        sizes.map(|size| size.unwrap_or(u64::MAX)).collect()
    }
}

/// Bytes of shared memory, checked to be inside a region that lives as long.
#[derive(Clone, Copy)]
pub struct Segment<'r> {
    at: NonNull<u8>,
    len: u32,
    region: PhantomData<&'r Region>,
}

impl<'r> Segment<'r> {
    /// No bytes.
    pub const EMPTY: Self = Self {
        at: NonNull::dangling(),
        len: 0,
        region: PhantomData,
    };

    /// Bytes of it.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The raw start; for atomics in `ring.rs`.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.at
    }

    /// Returns the rest behind the first `skip` bytes; empty if there are fewer.
    #[inline]
    #[must_use]
    pub fn skip(&self, skip: u32) -> Self {
        let Some(len) = self.len.checked_sub(skip) else {
            return Self::EMPTY;
        };
        let Ok(distance) = usize::try_from(skip) else {
            return Self::EMPTY;
        };
        // SAFETY: skip <= self.len, so the result is inside the segment or right behind it.
        let at = unsafe { self.at.add(distance) };
        Self {
            at,
            len,
            region: PhantomData,
        }
    }

    /// Copies from its start into `to`, as much as both have; returns the bytes.
    ///
    /// What was copied does not change any more, whatever the peer does.
    #[inline]
    pub fn read(&self, to: &mut [u8]) -> usize {
        let len = self.shared_len(to.len());
        // SAFETY: len is at most the segment's length, whose bytes are readable, and at most that
        // of `to`. They do not overlap: nothing of ours is in shared memory.
        unsafe { copy(self.at.as_ptr(), to.as_mut_ptr(), len) };
        // The compiler must not forward a later use of the copy to the bytes it was made from: the
        // peer may have changed those in between. With the fence they may change, to its eyes.
        compiler_fence(Ordering::SeqCst);
        len
    }

    /// Copies from memory of ours to its start, as much as both have. Returns how much.
    #[inline]
    pub fn write(&self, from: &[u8]) -> usize {
        let len = self.shared_len(from.len());
        // SAFETY: as in `read`, the other way round. The memory is mapped writable.
        unsafe { copy(from.as_ptr(), self.at.as_ptr(), len) };
        len
    }

    /// Copies from its start to another segment's, as much as both have.
    ///
    /// Returns the bytes.
    #[inline]
    pub fn copy_to(&self, to: &Segment<'_>) -> usize {
        let len = self.shared_len(usize::try_from(to.len).unwrap_or(usize::MAX));
        // SAFETY: len is at most the length of either, and both are inside their regions. A
        // client can make them overlap, so this is the copy that allows it.
        unsafe { ptr::copy(self.at.as_ptr(), to.at.as_ptr(), len) };
        len
    }

    #[inline]
    fn shared_len(&self, other: usize) -> usize {
        usize::try_from(self.len).map_or(other, |len| len.min(other))
    }
}

/// Copies `len` bytes, with few instructions for short ones.
///
/// Short frames and headers are most of what is copied, and a call of `memcpy` costs as much as they do:
/// two halves that overlap in the middle are any length up to 64.
///
/// # Safety
/// As of [`ptr::copy_nonoverlapping`].
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if (32..=64).contains(&len) {
        // SAFETY: the first and the last 32 of at least 32 bytes, which may be the same.
        let (last_from, last_to) =
            unsafe { (from.add(len.wrapping_sub(32)), to.add(len.wrapping_sub(32))) };
        // SAFETY: as above, readable by the caller's promise; arrays of bytes need no alignment.
        let first = unsafe { ptr::read(from.cast::<[u8; 32]>()) };
        // SAFETY: as above.
        let last = unsafe { ptr::read(last_from.cast::<[u8; 32]>()) };
        // SAFETY: as above, writable.
        unsafe { ptr::write(to.cast(), first) };
        // SAFETY: as above.
        unsafe { ptr::write(last_to.cast(), last) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { ptr::copy_nonoverlapping(from, to, len) };
    }
}

impl fmt::Debug for Segment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({} bytes)", self.len)
    }
}
