//! The namespace of a socket that somebody else made.
#![expect(unsafe_code, reason = "SIOCGSKNS, which rustix does not have")]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, FromRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};

use super::NetnsId;
use crate::error::Error;

/// `SIOCGSKNS` of linux/sockios.h: opens the namespace of a socket (Linux 4.10).
const SIOCGSKNS: Opcode = 0x894c;

struct NamespaceOf;

// SAFETY: the request takes no argument, writes no memory, and returns a new descriptor or an error.
unsafe impl Ioctl for NamespaceOf {
    type Output = OwnedFd;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        SIOCGSKNS
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<OwnedFd> {
        if out < 0 {
            return Err(Errno::BADF);
        }
        // SAFETY: the kernel has just made this descriptor for us; nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(out) })
    }
}

impl NetnsId {
    /// Returns the namespace of a socket: that of its maker when it was made.
    ///
    /// A connection that was accepted on a Unix socket is in the namespace of its client, whatever file
    /// that went by and in whatever namespace of process numbers: it cannot be faked.
    ///
    /// # Errors
    /// [`Error::InspectNetns`]: it is no socket, or without `CAP_NET_ADMIN` there.
    pub fn of_socket(socket: impl AsFd) -> Result<Self, Error> {
        let inspect = |source: io::Error| Error::InspectNetns { source };
        // SAFETY: on a socket the request is what `NamespaceOf` says; every other file refuses it, for no
        // other kind of file has this number.
        let namespace = unsafe { ioctl(socket, NamespaceOf) };
        let namespace = namespace.map_err(|errno| inspect(errno.into()))?;
        Self::of(namespace).map_err(inspect)
    }
}
