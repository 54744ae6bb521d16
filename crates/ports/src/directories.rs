//! Directories of the node, one for each device; containers see theirs.
//!
//! Only the agent makes anything in the directories around it. In its own, a container may make files as
//! any user: clients of memif refuse a directory that they cannot write. So that no container fills the
//! node's memory, or takes the room that others' sockets need, each device has a file system of its own,
//! with little room.
//!
//! Devices that may be ports of AF_XDP have another directory in the BPF file system, for the map of the
//! port. A container only reads that.

use std::ffi::CStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use book::record::{Attachment, Device};
use datapath::PinDir;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use world::resource;

/// Mode of directories around devices: the agent alone gets to them.
const AROUND: u32 = 0o700;
/// Everybody in the container may write, and nobody may remove what is another's.
const DEVICE: u32 = 0o1777;
/// Everybody in the container may look.
const MAP: u32 = 0o755;
/// Directory of a device's file system that a container sees.
///
/// Files are made ready next to it, where the container does not get to.
const SEEN: &str = "files";
/// Options of a device's file system (tmpfs).
///
/// A port takes two files, and an application may want some more.
const ROOM: &CStr = c"mode=0700,size=1m,nr_inodes=256";
/// Files in it are to be talked to and to be read.
const FLAGS: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC);

/// Where the directories are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directories {
    sockets: PathBuf,
    maps: PathBuf,
    /// Each device has a file system of its own.
    has_room: bool,
}

impl Directories {
    /// Next to the agent's socket, and among its pins.
    pub fn new(socket: &Path, pins: &PinDir) -> Self {
        Self {
            sockets: Self::beside(socket),
            maps: pins.devices(),
            has_room: false,
        }
    }

    /// The same with a file system for each device, which takes root to mount.
    #[must_use]
    pub fn with_file_systems(self) -> Self {
        Self {
            has_room: true,
            ..self
        }
    }

    /// The directory that has those with sockets, next to the agent's own.
    pub fn beside(socket: &Path) -> PathBuf {
        socket.with_file_name("devices")
    }

    /// The directory of a device.
    pub fn path(&self, resource: &str, device: &str) -> PathBuf {
        self.around(resource, device).join(SEEN)
    }

    /// Where the file system of a device is.
    fn around(&self, resource: &str, device: &str) -> PathBuf {
        self.sockets.join(resource::short(resource)).join(device)
    }

    /// The directory for the map of a port that is a device; none of one that is not.
    pub(crate) fn of_map_of(&self, record: &Attachment) -> Option<PathBuf> {
        let Device { resource, id } = record.device.as_ref()?;
        Some(self.of_map(resource, id))
    }

    /// The directory in which the map of a device is pinned.
    pub fn of_map(&self, resource: &str, device: &str) -> PathBuf {
        self.maps.join(resource::short(resource)).join(device)
    }

    /// The same, made, without the map of a pod that had the device before.
    ///
    /// # Errors
    /// When it cannot be emptied or made.
    pub fn renew_map(&self, resource: &str, device: &str) -> io::Result<PathBuf> {
        let path = self.of_map(resource, device);
        remove(&path)?;
        ensure_map(&path)?;
        Ok(path)
    }

    /// The directories of maps that there are.
    pub fn maps(&self) -> Vec<PathBuf> {
        devices_below(&self.maps).collect()
    }

    /// Returns the directory of a device, and makes it when it is not there.
    ///
    /// After a reboot no kubelet asks for it again.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn ensure(&self, resource: &str, device: &str) -> io::Result<PathBuf> {
        let around = self.around(resource, device);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(AROUND)
            .create(&around)?;
        if self.has_room && !is_mounted(&around)? {
            mount("podnet", &around, "tmpfs", FLAGS, ROOM)?;
        }
        let path = self.path(resource, device);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // Not by the mode it is made with, which the umask limits.
        fs::set_permissions(&path, Permissions::from_mode(DEVICE))?;
        Ok(path)
    }

    /// The directory of a device without anything of a pod that had it before.
    ///
    /// # Errors
    /// When it cannot be emptied or made.
    pub fn renew(&self, resource: &str, device: &str) -> io::Result<PathBuf> {
        let around = self.around(resource, device);
        detach(&around)?;
        remove(&around)?;
        self.ensure(resource, device)
    }
}

/// Detaches the file systems of all devices in a directory.
///
/// [`Directories::beside`] has named it.
///
/// # Errors
/// When one cannot be taken away.
pub fn detach_all(sockets: &Path) -> io::Result<()> {
    devices_below(sockets).try_for_each(|device| detach(&device))
}

/// The directories `<resource>/<device>` that there are.
fn devices_below(path: &Path) -> impl Iterator<Item = PathBuf> {
    let below = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    below(path)
        .flat_map(move |resource| below(&resource.path()))
        .map(|device| device.path())
}

/// Whether something is mounted on a directory.
fn is_mounted(path: &Path) -> io::Result<bool> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    Ok(fs::metadata(path)?.dev() != fs::metadata(parent)?.dev())
}

/// Detaches a device's file system.
///
/// Containers that are still there keep it.
fn detach(path: &Path) -> io::Result<()> {
    match is_mounted(path) {
        Ok(true) => Ok(unmount(path, UnmountFlags::DETACH)?),
        Ok(false) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes the directory of a map when it is not there.
///
/// Only the agent can write it.
///
/// # Errors
/// When it cannot be made.
pub fn ensure_map(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::set_permissions(directory, Permissions::from_mode(MAP))
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_pod_gets_a_directory_that_is_its_own_to_write_and_empty() {
        let run = tempfile::tempdir().unwrap();
        let pins = PinDir::new(run.path().join("pins"));
        let directories = Directories::new(&run.path().join("agent.sock"), &pins);
        let path = directories.ensure("podnet.dev/blue", "7").unwrap();
        assert_eq!(path, run.path().join("devices/blue/7/files"));
        assert_eq!(path, directories.path("podnet.dev/blue", "7"));
        assert_eq!(mode(&path), 0o1777);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!(mode(&run.path().join("devices")), 0o700);

        let outside = run.path().join("outside");
        fs::write(&outside, "kept").unwrap();
        std::os::unix::fs::symlink(run.path(), path.join("way out")).unwrap();
        fs::create_dir(path.join("folder")).unwrap();
        fs::write(path.join("folder/file"), "old").unwrap();
        assert_eq!(directories.ensure("podnet.dev/blue", "7").unwrap(), path);
        assert!(path.join("folder/file").exists(), "it is still that pod's");

        directories.renew("podnet.dev/blue", "7").unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        assert_eq!(mode(&path), 0o1777);
        assert!(outside.exists(), "no link leads out of the directory");
    }

    #[test]
    fn the_directory_of_a_map_is_the_agents_to_write_and_loses_the_map_of_another_pod() {
        let run = tempfile::tempdir().unwrap();
        let pins = PinDir::new(run.path().join("pins"));
        let directories = Directories::new(&run.path().join("agent.sock"), &pins);
        assert!(directories.maps().is_empty());
        let path = directories.of_map("podnet.dev/blue", "7");
        ensure_map(&path).unwrap();
        assert_eq!(path, run.path().join("pins/devices/blue/7"));
        assert_eq!(mode(&path), 0o755);
        fs::write(path.join("xsks_map"), "").unwrap();
        ensure_map(&path).unwrap();
        assert!(path.join("xsks_map").exists());
        directories.renew_map("podnet.dev/blue", "7").unwrap();
        assert!(!path.join("xsks_map").exists());
        assert_eq!(directories.maps(), [path]);
    }
}
