//! A directory of the node for each device, which the containers that have the device see as theirs.
//!
//! Only the agent makes anything in the directories around it. In its own, a container may make files as
//! any user: clients of memif refuse a directory that they cannot write.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::resource;

/// Nobody but the agent gets to the devices of others.
const AROUND: u32 = 0o700;
/// Everybody in the container may write, and nobody may remove what is another's.
const DEVICE: u32 = 0o1777;

/// Where the directories are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directories(PathBuf);

impl Directories {
    /// Beside the agent's socket.
    pub fn beside(socket: &Path) -> Self {
        Self(socket.with_file_name("devices"))
    }

    /// The directory that has them.
    pub fn all(&self) -> &Path {
        &self.0
    }

    /// The directory of a device.
    pub fn path(&self, resource: &str, device: &str) -> PathBuf {
        self.0.join(resource::short(resource)).join(device)
    }

    /// The directory of a device, made when it is not there: after a reboot no kubelet asks for it again.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn ensure(&self, resource: &str, device: &str) -> io::Result<PathBuf> {
        let path = self.path(resource, device);
        let around = path.parent().unwrap_or(&self.0);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(AROUND)
            .create(around)?;
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
        match fs::remove_dir_all(self.path(resource, device)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => self.ensure(resource, device),
        }
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
        let directories = Directories::beside(&run.path().join("agent.sock"));
        let path = directories.ensure("podnet.dev/blue", "7").unwrap();
        assert_eq!(path, run.path().join("devices/blue/7"));
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
}
