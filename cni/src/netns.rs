//! The network namespace of the call, as an open descriptor.
//!
//! It is opened here because the path is the runtime's: it holds in this process's mount
//! namespace, and the agent's may differ (CNI-ADD-07).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use cni_spec::{Call, CniError, CniVersion, ErrorCode};
use rustix::fs::{CWD, FsWord, Mode, OFlags, fstat, fstatfs, openat, stat};

/// `f_type` of the filesystem of namespaces, nsfs (linux/magic.h, `NSFS_MAGIC`).
const NSFS_MAGIC: FsWord = 0x6e73_6673;

const OWN: &str = "/proc/self/ns/net";

/// Opens `CNI_NETNS` for the commands that have one.
///
/// A `DEL` goes on without it: a namespace that is gone is why it was called (CNI-DEL-01). `ADD`
/// and `DEL` refuse our own namespace unless `allow_own` (CNI-ENV-08).
pub(crate) fn open(
    call: &Call,
    allow_own: bool,
    version: CniVersion,
) -> Result<Option<OwnedFd>, CniError> {
    let Some(path) = call.netns() else {
        return Ok(None);
    };
    let refuse = |code, msg: String, details: String| CniError::new(version, code, msg, details);
    let deleting = matches!(call, Call::Del { .. });
    let fd = match open_namespace(path) {
        Ok(fd) => fd,
        Err(_) if deleting => return Ok(None),
        Err(source) => {
            let msg = format!("CNI_NETNS {path:?} is not a network namespace");
            return Err(refuse(ErrorCode::INVALID_ENV, msg, source.to_string()));
        }
    };
    let guarded = deleting || matches!(call, Call::Add { .. });
    if guarded && !allow_own && is_own(&fd) {
        let msg = format!("CNI_NETNS {path:?} is the plugin's own network namespace");
        let details = "a container needs one of its own; CNI_NETNS_OVERRIDE=1 lifts this check";
        return Err(refuse(ErrorCode::INVALID_NETNS, msg, details.to_owned()));
    }
    Ok(Some(fd))
}

fn open_namespace(path: &str) -> io::Result<OwnedFd> {
    // NONBLOCK: the path may name a FIFO, and opening one waits for a writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = openat(CWD, path, flags, Mode::empty())?;
    if fstatfs(&fd)?.f_type != NSFS_MAGIC {
        return Err(io::Error::other(
            "the file is not in the namespace filesystem",
        ));
    }
    Ok(fd)
}

/// By inode, never by path: there are many paths to one namespace.
fn is_own(fd: impl AsFd) -> bool {
    match (fstat(fd), stat(OWN)) {
        (Ok(theirs), Ok(own)) => (theirs.st_dev, theirs.st_ino) == (own.st_dev, own.st_ino),
        // Without /proc there is nothing to compare with.
        _ => false,
    }
}
