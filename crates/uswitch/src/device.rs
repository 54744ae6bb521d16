//! Read and write a port's device, a file with one frame at a time.
//!
//! The kernel program is attached to it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, ioctl_fionbio, read, write};

/// The file of a TAP device, without packet information.
#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

/// Result of a write of a frame to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Yes,
    /// Its queue has no room.
    Full,
    /// It is down, or gone.
    Down,
}

/// Result of a read from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// A frame of this length.
    Frame(usize),
    /// Nothing more for now.
    Nothing,
    /// It is gone: nothing will ever come.
    Gone,
}

impl Device {
    /// Uses a file, from now on without waiting.
    ///
    /// # Errors
    /// It is none that can do that.
    pub(crate) fn new(file: OwnedFd) -> Result<Self, Errno> {
        ioctl_fionbio(&file, true)?;
        Ok(Self(file))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(crate) fn write(&self, frame: &[u8]) -> Written {
        loop {
            match write(&self.0, frame) {
                Ok(_) => return Written::Yes,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => return Written::Full,
                Err(_) => return Written::Down,
            }
        }
    }

    pub(crate) fn read(&self, into: &mut [u8]) -> Read {
        loop {
            match read(&self.0, &mut *into) {
                Ok(0) => return Read::Gone,
                Ok(len) => return Read::Frame(len),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Read::Nothing,
                Err(_) => return Read::Gone,
            }
        }
    }
}
