//! Finding the BPF file system, or mounting it where the whole node sees it.
//!
//! Pins live as long as the mount they are in. A tool that runs us in a mount namespace of its own
//! (`ip netns exec` does, and hides `/sys/fs/bpf` by mounting a fresh `/sys`) must not make us pin
//! into a mount that goes away with us: what forwards packets would go with it. So when our own
//! namespace has no BPF file system, the one of the oldest process we may look at is used, which
//! is the node's.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;

use rustix::fs::{Mode, OFlags, open, statfs};
use rustix::mount::{MountFlags, mount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::DatapathError;

/// `BPF_FS_MAGIC` of `linux/magic.h`.
const BPF_FS_MAGIC: u32 = 0xcafe_4a11;
/// Where everybody expects it.
const USUAL: &str = "/sys/fs/bpf";

/// The root directory of the node, when it is not ours.
///
/// It is open for the life of the process.
static NODE_ROOT: OnceLock<OwnedFd> = OnceLock::new();

/// Returns the directory for pins: `wanted`, or the same one as the node sees it.
///
/// Mounts a BPF file system at `/sys/fs/bpf` when `wanted` is below that and there is none.
///
/// # Errors
/// [`DatapathError::NotBpffs`] when there is none and none can be mounted.
pub fn find(wanted: &Path) -> Result<PathBuf, DatapathError> {
    if is_bpffs(wanted) {
        return Ok(wanted.to_owned());
    }
    let may_mount = wanted.starts_with(USUAL);
    if let Some(node) = Node::find() {
        let seen_by_node = node.root.join(wanted.strip_prefix("/").unwrap_or(wanted));
        if is_bpffs(&seen_by_node) {
            return Ok(seen_by_node);
        }
        if may_mount && node.mount().is_ok() && is_bpffs(&seen_by_node) {
            return Ok(seen_by_node);
        }
    }
    if may_mount {
        mount_here().map_err(|source| DatapathError::Pin {
            operation: "mount a BPF file system at",
            path: USUAL.into(),
            source,
        })?;
    }
    if is_bpffs(wanted) {
        Ok(wanted.to_owned())
    } else {
        Err(DatapathError::NotBpffs {
            path: wanted.to_owned(),
        })
    }
}

/// Reports whether the directory is on a BPF file system.
///
/// If it does not exist, the nearest one above it counts.
pub(crate) fn is_bpffs(path: &Path) -> bool {
    path.ancestors()
        .find_map(|path| statfs(path).ok())
        .is_some_and(|stat| u32::try_from(stat.f_type).is_ok_and(|magic| magic == BPF_FS_MAGIC))
}

/// The mount namespace of the node.
struct Node {
    /// Its root directory, by a descriptor of ours.
    ///
    /// So it stays the same when the process ends.
    root: PathBuf,
    namespace: File,
}

impl Node {
    /// That of the oldest process we may look at, unless it is our own.
    fn find() -> Option<Self> {
        let ours = fs::read_link("/proc/self/ns/mnt").ok()?;
        let mut processes: Vec<u32> = fs::read_dir("/proc")
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        processes.sort_unstable();
        let oldest = processes.into_iter().find_map(|process| {
            let process = PathBuf::from(format!("/proc/{process}"));
            Some((fs::read_link(process.join("ns/mnt")).ok()?, process))
        });
        let (namespace, process) = oldest?;
        if namespace == ours {
            return None;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(process.join("root"), flags, Mode::empty()).ok()?;
        let root = NODE_ROOT.get_or_init(|| root);
        Some(Self {
            root: PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd())),
            namespace: File::open(process.join("ns/mnt")).ok()?,
        })
    }

    /// Mounts there, from a thread that ends afterwards.
    fn mount(&self) -> io::Result<()> {
        let namespace = self.namespace.try_clone()?;
        let worker = thread::Builder::new()
            .name("podnet-mount".to_owned())
            .spawn(move || {
                // A thread that shares its root directory with others cannot change namespaces.
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS)?;
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
                mount_here()
            })?;
        worker
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the mounting thread died")))
    }
}

fn mount_here() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("bpf", USUAL, "bpf", flags, None)?;
    Ok(rustix::fs::chmod(USUAL, Mode::RWXU)?)
}
