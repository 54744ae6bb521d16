//! Memory that the kernel and the agent write while the switch reads it.
#![expect(
    unsafe_code,
    reason = "maps a file of the agent's, and reads words of it by raw pointers"
)]

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Words of 32 bits that others write.
#[derive(Debug)]
pub(crate) struct Words {
    base: NonNull<AtomicU32>,
    count: usize,
}

// SAFETY: the memory belongs to no thread, and is only read, word by word, as atomics.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Maps the first words of a file, which must not become smaller.
    ///
    /// The agent's are maps of the kernel, whose size never changes.
    ///
    /// # Errors
    /// When it is no file of that size that can be in memory.
    pub(crate) fn map(file: BorrowedFd<'_>, count: usize) -> Result<Self, Errno> {
        let bytes = count.checked_mul(size_of::<u32>()).ok_or(Errno::OVERFLOW)?;
        // SAFETY: with a null hint the kernel chooses a place where nothing of ours is.
        let base = unsafe {
            mmap(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::FAULT)?;
        Ok(Self { base, count })
    }

    /// Reads words from a place on.
    ///
    /// Each is one that was there, all of them together need not have been.
    #[inline]
    pub(crate) fn read<const N: usize>(&self, at: usize) -> Option<[u32; N]> {
        if at.checked_add(N)? > self.count {
            return None;
        }
        let mut words = [0; N];
        for (nth, word) in words.iter_mut().enumerate() {
            // SAFETY: at + nth is less than the words of the mapping, which lives as long as self and is aligned to a page.
            *word = unsafe { self.base.add(at.wrapping_add(nth)).as_ref() }.load(Ordering::Relaxed);
        }
        Some(words)
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        let bytes = self.count.saturating_mul(size_of::<u32>());
        // SAFETY: this is the mapping of `map`, and no reference into it is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn words_are_those_of_the_file_and_none_behind_its_end() {
        let file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0_u32..1024).flat_map(u32::to_ne_bytes).collect();
        file.write_all_at(&bytes, 0).unwrap();
        let words = Words::map(file.as_fd(), 1024).unwrap();
        assert_eq!(words.read(1020), Some([1020, 1021, 1022, 1023]));
        assert_eq!(words.read::<4>(1021), None);
        assert_eq!(words.read::<4>(usize::MAX), None);
        file.write_all_at(&7_u32.to_ne_bytes(), 0).unwrap();
        assert_eq!(words.read(0), Some([7, 1]));
    }
}
