//! Check file descriptors of a peer without touching the files behind them.
//!
//! Those that are not what they should be are closed without blocking.

use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::fs::{fcntl_get_seals, readlink};

use crate::handshake::{Descriptor, Kind};

/// Threads that may wait for a close at a time.
const CLOSING_MAX: usize = 32;
/// Threads that wait for a close.
static CLOSING: AtomicUsize = AtomicUsize::new(0);

/// A descriptor that came from a peer, or that a peer has as well.
#[derive(Debug)]
pub struct PeerFd {
    /// Always there until it is dropped.
    fd: Option<OwnedFd>,
    kind: Kind,
}

impl PeerFd {
    /// Finds out the kind of a descriptor.
    ///
    /// Nothing here asks the file system behind it, which may be the peer's own and may never answer.
    pub fn new(fd: OwnedFd) -> Self {
        let kind = probe(fd.as_fd());
        Self { fd: Some(fd), kind }
    }

    /// An eventfd of ours.
    pub(crate) fn own_event(fd: OwnedFd) -> Self {
        Self {
            fd: Some(fd),
            kind: Kind::Event,
        }
    }

    /// The open file.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        let fd = self.fd.as_ref();
        fd.expect("only drop takes it").as_fd()
    }
}

impl AsFd for PeerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        Self::as_fd(self)
    }
}

impl Descriptor for PeerFd {
    fn kind(&self) -> Kind {
        self.kind
    }
}

impl Drop for PeerFd {
    fn drop(&mut self) {
        if let (Kind::Foreign, Some(fd)) = (self.kind, self.fd.take()) {
            discard(fd);
        }
    }
}

/// Returns the kind of a descriptor, as the kernel's own tables have it.
///
/// Only memory that can be sealed answers F_GET_SEALS, and only an eventfd has this name: names of files
/// begin with a slash. Neither question leaves the kernel.
fn probe(fd: BorrowedFd<'_>) -> Kind {
    use std::os::fd::AsRawFd as _;

    if fcntl_get_seals(fd).is_ok() {
        return Kind::Memory;
    }
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match readlink(link, Vec::new()) {
        Ok(name) if name.as_bytes() == b"anon_inode:[eventfd]" => Kind::Event,
        _ => Kind::Foreign,
    }
}

/// Closes a file on a thread of its own.
///
/// The close of a file on FUSE waits for an answer of the file system's owner, and that may be the peer.
fn discard(fd: OwnedFd) {
    if CLOSING.fetch_add(1, Ordering::AcqRel) >= CLOSING_MAX {
        CLOSING.fetch_sub(1, Ordering::AcqRel);
        // So many that do not close are an attack. A number in our table is what it costs.
        let _ = fd.into_raw_fd();
        return;
    }
    let closing = thread::Builder::new()
        .name("memif-close".to_owned())
        .stack_size(64 << 10)
        .spawn(move || {
            drop(fd);
            CLOSING.fetch_sub(1, Ordering::AcqRel);
        });
    if closing.is_err() {
        // The descriptor went with the closure that did not run, and is closed already.
        CLOSING.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "system calls that Miri does not have")]
    fn a_descriptor_is_known_by_the_kernels_own_tables() {
        let memfd = memfd_create("anon_inode:[eventfd]", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(PeerFd::new(memfd).kind(), Kind::Memory);
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        assert_eq!(PeerFd::new(event).kind(), Kind::Event);
        let (pipe, _other) = std::io::pipe().unwrap();
        assert_eq!(PeerFd::new(pipe.into()).kind(), Kind::Foreign);
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let seals = fcntl_get_seals(&file);
        let expected = if seals.is_ok() {
            Kind::Memory
        } else {
            Kind::Foreign
        };
        assert_eq!(PeerFd::new(file.into()).kind(), expected);
        let device = File::open("/dev/null").unwrap();
        assert_eq!(PeerFd::new(device.into()).kind(), Kind::Foreign);
        let directory = File::open("/").unwrap();
        assert_eq!(PeerFd::new(directory.into()).kind(), Kind::Foreign);
    }

    #[test]
    #[cfg_attr(miri, ignore = "system calls that Miri does not have")]
    fn a_foreign_descriptor_is_closed() {
        let (ours, theirs) = std::io::pipe().unwrap();
        drop(PeerFd::new(theirs.into()));
        // A read of a pipe ends when nobody can write any more.
        let mut byte = [0];
        assert_eq!(rustix::io::read(&ours, &mut byte), Ok(0));
    }
}
