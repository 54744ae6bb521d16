//! Finding the BPF file system, or mounting it where the whole node sees it.
//!
//! Pins live as long as the mount they are in. A tool that runs us in a mount namespace of its own
//! (`ip netns exec` does, and hides `/sys/fs/bpf` by mounting a fresh `/sys`) must not make us pin
//! into a mount that goes away with us: what forwards packets would go with it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::{Mode, statfs};
use rustix::mount::{MountFlags, mount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::DatapathError;

/// `BPF_FS_MAGIC` of `linux/magic.h`.
const BPF_FS_MAGIC: u32 = 0xcafe_4a11;
/// Where everybody expects it.
const USUAL: &str = "/sys/fs/bpf";
/// The node's files, as its first process sees them.
const INIT_ROOT: &str = "/proc/1/root";

/// The directory to pin under: `wanted`, or the same directory as the node's first process sees it.
/// Mounts a BPF file system at `/sys/fs/bpf` when `wanted` is below that and there is none.
///
/// # Errors
/// [`DatapathError::NotBpffs`] when there is none and none can be mounted.
pub fn find(wanted: &Path) -> Result<PathBuf, DatapathError> {
    if is_bpffs(wanted) {
        return Ok(wanted.to_owned());
    }
    let seen_by_init = Path::new(INIT_ROOT).join(wanted.strip_prefix("/").unwrap_or(wanted));
    if is_bpffs(&seen_by_init) {
        return Ok(seen_by_init);
    }
    let refuse = || DatapathError::NotBpffs { path: wanted.to_owned() };
    if !wanted.starts_with(USUAL) {
        return Err(refuse());
    }
    mount_for_all().map_err(|source| DatapathError::Pin {
        operation: "mount a BPF file system at",
        path: USUAL.into(),
        source,
    })?;
    [wanted, &seen_by_init].into_iter().find(|path| is_bpffs(path)).map(Path::to_owned).ok_or_else(refuse)
}

/// True when the directory, or the nearest one above it that is there, is on a BPF file system.
pub(crate) fn is_bpffs(path: &Path) -> bool {
    path.ancestors()
        .find_map(|path| statfs(path).ok())
        .is_some_and(|stat| u32::try_from(stat.f_type).is_ok_and(|magic| magic == BPF_FS_MAGIC))
}

/// Mounts in the mount namespace of the node's first process, from a thread that ends afterwards.
fn mount_for_all() -> io::Result<()> {
    let namespace = File::open("/proc/1/ns/mnt")?;
    let worker = thread::Builder::new().name("podnet-mount".to_owned()).spawn(move || {
        // A thread that shares its root directory with others cannot change namespaces.
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS)?;
        move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&namespace),
            Some(LinkNameSpaceType::Mount),
        )?;
        mount("bpf", USUAL, "bpf", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)?;
        rustix::fs::chmod(USUAL, Mode::RWXU)?;
        Ok(())
    })?;
    worker.join().unwrap_or_else(|_| Err(io::Error::other("the mounting thread died")))
}
