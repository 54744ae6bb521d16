//! The frames of a socket, and who holds each.
//!
//! A [`Frame`] is the right to its bytes. While the kernel has a frame there is no token of it, and one
//! that the kernel gives back is believed only if the kernel had it.
#![expect(
    unsafe_code,
    reason = "slices of memory that the kernel uses too, for who holds the token of a frame"
)]

use rustix::io::Errno;

use crate::shm::Memory;

/// A frame that is ours: neither copied nor made but by [`Umem`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame(u32);

/// The memory of a socket's frames.
#[derive(Debug)]
pub(crate) struct Umem {
    memory: Memory,
    /// Bytes of a frame, a power of two.
    size: u32,
    /// Which the kernel has.
    lent: Vec<bool>,
    /// Frames in use neither by the kernel nor by the socket's owner.
    free: Vec<Frame>,
}

impl Umem {
    pub(crate) fn new(frames: u32, size: u32) -> Result<Self, Errno> {
        let len = (frames as usize).checked_mul(size as usize);
        Ok(Self::over(
            Memory::anonymous(len.ok_or(Errno::OVERFLOW)?)?,
            size,
        ))
    }

    /// Frames of this size, in all of the memory.
    fn over(memory: Memory, size: u32) -> Self {
        let count = memory.len().checked_div(size as usize).unwrap_or(0);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            size,
            lent: (0..count).map(|_| false).collect(),
            free: (0..count).rev().map(Frame).collect(),
            memory,
        }
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Bytes of a frame.
    pub(crate) fn frame_size(&self) -> u32 {
        self.size
    }

    /// A free frame.
    pub(crate) fn take(&mut self) -> Option<Frame> {
        self.free.pop()
    }

    /// Free frames.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Puts a frame back.
    pub(crate) fn put(&mut self, frame: Frame) {
        self.free.push(frame);
    }

    /// Lends a frame to the kernel: the address that it is told.
    #[expect(clippy::needless_pass_by_value, reason = "the token ends here")]
    pub(crate) fn lend(&mut self, frame: Frame) -> u64 {
        if let Some(lent) = self.lent.get_mut(frame.0 as usize) {
            *lent = true;
        }
        u64::from(frame.0).saturating_mul(self.size.into())
    }

    /// Takes back the frame of an address that the kernel names, with the offset in it.
    ///
    /// None when the kernel did not have it.
    pub(crate) fn reclaim(&mut self, address: u64) -> Option<(Frame, u32)> {
        let size = u64::from(self.size);
        let index = u32::try_from(address.checked_div(size)?).ok()?;
        let offset = u32::try_from(address.checked_rem(size)?).ok()?;
        let lent = self.lent.get_mut(index as usize)?;
        std::mem::take(lent).then_some((Frame(index), offset))
    }

    /// Bytes of a frame of ours; none if they are not all in it.
    pub(crate) fn bytes(&mut self, frame: &mut Frame, offset: u32, len: u32) -> Option<&mut [u8]> {
        if offset.checked_add(len)? > self.size {
            return None;
        }
        let at = (frame.0 as usize).checked_mul(self.size as usize)?;
        let at = at.checked_add(offset as usize)?;
        // SAFETY: the range is in one frame. Its one token is borrowed for as long as the result lives, so
        // it was not lent: the kernel writes only to what it was lent, and this memory is no other
        // process's.
        unsafe { self.memory.bytes_mut(at, len as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn umem(frames: usize) -> Umem {
        Umem::over(Memory::heap(frames * 2048), 2048)
    }

    #[test]
    fn each_frame_is_had_once() {
        let mut umem = umem(3);
        let frames: Vec<_> = (0..3).map(|_| umem.take().unwrap()).collect();
        assert_eq!(frames, [Frame(0), Frame(1), Frame(2)]);
        assert_eq!(umem.take(), None);
        for frame in frames {
            umem.put(frame);
        }
        assert_eq!(umem.free(), 3);
    }

    #[test]
    fn the_kernel_gives_back_what_it_had_and_nothing_else() {
        let mut umem = umem(4);
        let _first = umem.take().unwrap();
        let second = umem.take().unwrap();
        assert_eq!(umem.lend(second), 2048);
        assert_eq!(umem.reclaim(0), None, "never lent");
        assert_eq!(umem.reclaim(4 * 2048), None, "no frame at all");
        assert_eq!(umem.reclaim(u64::MAX), None);
        let (frame, offset) = umem.reclaim(2048 + 256).expect("lent");
        assert_eq!((frame, offset), (Frame(1), 256));
        assert_eq!(umem.reclaim(2048), None, "not twice");
    }

    #[test]
    fn bytes_are_of_one_frame_only() {
        let mut umem = umem(2);
        let (mut first, mut second) = (umem.take().unwrap(), umem.take().unwrap());
        umem.bytes(&mut first, 0, 2048).unwrap().fill(1);
        umem.bytes(&mut second, 2040, 8).unwrap().fill(2);
        assert!(umem.bytes(&mut first, 2040, 9).is_none());
        assert!(umem.bytes(&mut first, u32::MAX, 9).is_none());
        assert!(
            umem.bytes(&mut first, 0, 2048)
                .unwrap()
                .iter()
                .all(|it| *it == 1)
        );
        assert_eq!(
            umem.bytes(&mut second, 2039, 9).unwrap(),
            [0, 2, 2, 2, 2, 2, 2, 2, 2]
        );
    }
}
