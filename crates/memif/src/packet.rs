//! A packet where its sender has put it.

use crate::shm::Segment;

/// A packet in the peer's memory; decisions about it are made on a copy.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    first: Segment<'a>,
    more: &'a [Segment<'a>],
    len: u32,
}

impl<'a> Packet<'a> {
    /// Of its segments.
    #[inline]
    pub(crate) fn of(first: Segment<'a>, more: &'a [Segment<'a>]) -> Self {
        let lens = more.iter().map(Segment::len);
        let len = lens.fold(first.len(), u32::saturating_add);
        Self { first, more, len }
    }

    /// Its bytes, all segments together.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it has no bytes. None is ever visited that has not.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the bytes from `skip` on, as many as there are and fit. Returns how many.
    #[inline]
    pub fn read(&self, skip: u32, to: &mut [u8]) -> usize {
        if self.more.is_empty() {
            return self.first.skip(skip).read(to);
        }
        let mut copied: usize = 0;
        for segment in self.behind(skip) {
            copied = copied.saturating_add(segment.read(to.get_mut(copied..).unwrap_or_default()));
        }
        copied
    }

    /// Its parts behind the first `skip` bytes.
    #[inline]
    pub(crate) fn behind(&self, mut skip: u32) -> impl Iterator<Item = Segment<'a>> {
        let all = std::iter::once(self.first).chain(self.more.iter().copied());
        all.filter_map(move |segment| {
            let rest = segment.skip(skip);
            skip = skip.saturating_sub(segment.len());
            (!rest.is_empty()).then_some(rest)
        })
    }
}
