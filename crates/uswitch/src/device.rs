//! Read and write a port's device, a file with one frame at a time.
//!
//! The kernel program is attached to it.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, ioctl_fionbio, read, write, writev};

use frames::train::{HEADER, Kind, Kinds};

/// The file of a TAP device, without packet information.
#[derive(Debug)]
pub(crate) struct Device {
    file: OwnedFd,
    /// A header is in front of each frame, `struct virtio_net_hdr`.
    headers: bool,
    /// Kinds of trains that the kernel refused.
    refused_udp: AtomicBool,
    refused_tcp: AtomicBool,
    /// A kernel that cuts nothing.
    #[cfg(test)]
    pub(crate) cuts_nothing: bool,
}

/// Result of a write of a frame to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Yes,
    /// Its queue has no room.
    Full,
    /// The kernel cannot cut it.
    Refused,
    /// It is down, or gone.
    Down,
}

/// Result of a read from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read<'f> {
    Frame(&'f [u8]),
    /// Nothing more for now.
    Nothing,
    /// It is gone: nothing will ever come.
    Gone,
}

impl Device {
    /// Uses a file, from now on without waiting.
    ///
    /// With headers it was opened so that one is in front of each frame.
    ///
    /// # Errors
    /// It is none that can do that.
    pub(crate) fn new(file: OwnedFd, headers: bool) -> Result<Self, Errno> {
        ioctl_fionbio(&file, true)?;
        Ok(Self {
            file,
            headers,
            refused_udp: AtomicBool::new(!headers),
            refused_tcp: AtomicBool::new(!headers),
            #[cfg(test)]
            cuts_nothing: false,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Whether it was opened so that a header is in front of each frame.
    pub(crate) fn has_headers(&self) -> bool {
        self.headers
    }

    /// Kinds of trains that it takes, as far as is known.
    pub(crate) fn kinds(&self) -> Kinds {
        Kinds {
            udp: !self.refused_udp.load(Ordering::Relaxed),
            tcp: !self.refused_tcp.load(Ordering::Relaxed),
        }
    }

    /// Notes that the kernel takes no trains of a kind.
    ///
    /// Linux before 6.2 takes none of UDP.
    #[cold]
    pub(crate) fn refuse(&self, kind: Kind) {
        let refused = match kind {
            Kind::Udp => &self.refused_udp,
            Kind::Tcp => &self.refused_tcp,
        };
        refused.store(true, Ordering::Relaxed);
        tracing::info!(
            ?kind,
            "the kernel cuts no packets of this kind for a device; the port's frames are written one by one"
        );
    }

    /// Writes a frame behind its header.
    pub(crate) fn write(&self, packet: &[u8]) -> Written {
        #[cfg(test)]
        if self.cuts_nothing && packet.get(1).is_some_and(|kind| *kind != 0) {
            return Written::Refused;
        }
        let packet = if self.headers {
            packet
        } else {
            packet.get(HEADER..).unwrap_or_default()
        };
        written(|| write(&self.file, packet))
    }

    /// Writes a frame that is in parts, behind its header.
    pub(crate) fn write_parts(&self, [header, head, payload]: [&[u8]; 3]) -> Written {
        let header = if self.headers { header } else { &[] };
        let parts = [header, head, payload].map(IoSlice::new);
        written(|| writev(&self.file, &parts))
    }

    pub(crate) fn read<'f>(&self, into: &'f mut [u8]) -> Read<'f> {
        let skip = if self.headers { HEADER } else { 0 };
        loop {
            match read(&self.file, &mut *into) {
                Ok(0) => return Read::Gone,
                Ok(len) => return Read::Frame(into.get(skip..len).unwrap_or_default()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Read::Nothing,
                Err(_) => return Read::Gone,
            }
        }
    }
}

fn written(mut write: impl FnMut() -> Result<usize, Errno>) -> Written {
    loop {
        match write() {
            Ok(_) => return Written::Yes,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => return Written::Full,
            Err(Errno::INVAL) => return Written::Refused,
            Err(_) => return Written::Down,
        }
    }
}
