//! Keep a `DEL` as a file while the agent is away: a tombstone (CNI-DEL-05).
//!
//! The directory is `pending-del`, next to the agent's socket. The agent carries the request out when
//! it is back.
//!
//! The content is what counts. The file is called `<containerID>-<ifname>`, but both may contain a
//! dash: when the name is taken by another attachment a number is appended. Files that begin with
//! a dot are not finished.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use cni_spec::{AttachmentKey, MAX_FRAME, PENDING_DEL, Request};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, fstat, fsync, openat, renameat, renameat_with,
    unlinkat,
};
use rustix::io::Errno;
use rustix::process::{geteuid, getpid};

/// Names tried before giving up.
///
/// Two attachments that share one are an accident already.
const ATTEMPTS: usize = 16;

/// Where the tombstones of an agent are.
pub(crate) fn directory(socket: &Path) -> PathBuf {
    socket.parent().unwrap_or(Path::new("/")).join(PENDING_DEL)
}

/// Writes the request to the tombstone directory and returns its path.
///
/// Leaving it twice is leaving it once.
pub(crate) fn leave(socket: &Path, key: &AttachmentKey, request: &[u8]) -> io::Result<PathBuf> {
    let path = directory(socket);
    let dir = open_directory(&path)?;
    let draft = format!(".draft-{}", getpid().as_raw_nonzero());
    let kept = write_draft(&dir, &draft, request).and_then(|()| publish(&dir, &draft, key));
    match kept {
        Ok(name) => {
            fsync(&dir)?;
            Ok(path.join(name))
        }
        Err(error) => {
            // Not finished is not left behind; when this fails too, the first error says why.
            let _ = unlinkat(&dir, &draft, AtFlags::empty());
            Err(error)
        }
    }
}

/// Opens the tombstone directory, if no other user can write to it.
///
/// The agent carries out the requests that it finds there.
fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(CWD, path, flags, Mode::empty())?;
    let stat = fstat(&dir)?;
    let others_write = Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH);
    if stat.st_uid != geteuid().as_raw() || others_write {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{} belongs to others, or others may write to it",
                path.display()
            ),
        ));
    }
    Ok(dir)
}

fn write_draft(dir: impl AsFd, draft: &str, request: &[u8]) -> io::Result<()> {
    // One of a process that died and had our number.
    match unlinkat(&dir, draft, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(openat(&dir, draft, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(request)?;
    file.sync_all()
}

/// Gives the draft its name, taking no name from another attachment.
fn publish(dir: impl AsFd, draft: &str, key: &AttachmentKey) -> io::Result<String> {
    let first = format!("{}-{}", key.container, key.ifname);
    let mut name = first.clone();
    for attempt in 1..=ATTEMPTS {
        match renameat_with(&dir, draft, &dir, &name, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(name),
            Err(Errno::EXIST) => {}
            // The filesystem cannot tell: then the name decides.
            Err(Errno::INVAL) => {
                renameat(&dir, draft, &dir, &name)?;
                return Ok(name);
            }
            Err(errno) => return Err(errno.into()),
        }
        match holder(&dir, &name) {
            Ok(Some(other)) if other != *key => name = format!("{first}.{attempt}"),
            Ok(_) => {
                renameat(&dir, draft, &dir, &name)?;
                return Ok(name);
            }
            // The agent has just carried it out; the name is free again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::EXIST.into())
}

/// Reads the attachment that a tombstone removes; none for an unreadable file.
fn holder(dir: impl AsFd, name: &str) -> io::Result<Option<AttachmentKey>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(dir, name, flags, Mode::empty())?);
    let mut body = Vec::new();
    file.take(u64::try_from(MAX_FRAME).unwrap_or(u64::MAX))
        .read_to_end(&mut body)?;
    let Ok(Request::Cni(request)) = Request::from_body(&body) else {
        return Ok(None);
    };
    Ok(request
        .invocation()
        .ok()
        .and_then(|invocation| invocation.call.key().cloned()))
}
