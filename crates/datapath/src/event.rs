//! Samples of dropped packets.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use agent_common::event::DropEvent;
use aya::maps::{MapData, RingBuf};
use zerocopy::FromBytes;

/// One sample.
pub type Sample = DropEvent;

/// The ring the programs publish to; its descriptor is readable when it has events.
pub struct Events {
    pub(crate) ring: RingBuf<MapData>,
}

impl fmt::Debug for Events {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    /// The next sample, or `None` when there is none right now.
    pub fn next_sample(&mut self) -> Option<Sample> {
        loop {
            let item = self.ring.next()?;
            if let Ok((event, _)) = DropEvent::read_from_prefix(&item) {
                return Some(event);
            }
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}
