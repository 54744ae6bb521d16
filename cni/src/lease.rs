//! Read the lease of the agent: a restart is no absence (CNI-ST-05).

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use cni_spec::{LEASE, LEASE_BYTES, Lease, Question};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::process::geteuid;
use rustix::time::{ClockId, clock_gettime};

/// Changes with every boot (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Time that an agent has for its restart; zero without a lease.
pub(crate) fn left(socket: &Path) -> Duration {
    valid(socket).map_or(Duration::ZERO, |(_, left)| left)
}

/// Tells whether the agent has answered this `STATUS` with success.
pub(crate) fn answers(socket: &Path, config: &str) -> bool {
    valid(socket).is_some_and(|(lease, _)| lease.answers(Question::of(config)))
}

/// Reads the lease next to a socket, and the time that is left of it.
fn valid(socket: &Path) -> Option<(Lease, Duration)> {
    let path = socket.parent()?.join(LEASE);
    let lease = Lease::parse(&read(&path)?)?;
    let boot = fs::read_to_string(BOOT_ID).ok()?;
    let now = Duration::try_from(clock_gettime(ClockId::Boottime)).ok()?;
    let left = lease.left(&boot, now)?;
    Some((lease, left))
}

/// Reads a file that no other user can have written.
fn read(path: &Path) -> Option<String> {
    // NONBLOCK: opening a FIFO waits for a writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(CWD, path, flags, Mode::empty()).ok()?;
    let stat = fstat(&fd).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let others_write = Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH);
    if !is_file || others_write || stat.st_uid != geteuid().as_raw() {
        return None;
    }
    let mut text = String::new();
    let limit = u64::try_from(LEASE_BYTES).unwrap_or(u64::MAX);
    File::from(fd)
        .take(limit + 1)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}
