//! Namespaces that a file keeps alive, as `ip netns` makes them.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, mount_bind, unmount};

use super::{Netns, OWN, on_thread, unshare_net};
use crate::error::Error;

/// A namespace bound to a file; dropping it removes the file.
///
/// The namespace ends with it unless others hold it.
#[derive(Debug)]
pub struct NamedNetns {
    netns: Netns,
    path: PathBuf,
    keep: bool,
}

impl NamedNetns {
    /// Makes a namespace and binds it to a new file at `path`.
    ///
    /// Missing directories are made.
    ///
    /// # Errors
    /// [`Error::CreateNetns`] (needs `CAP_SYS_ADMIN`); [`Error::NameNetns`],
    /// [`Error::is_exists`] if the file is there.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let failed = |action| {
            move |source: io::Error| Error::NameNetns {
                action,
                path: path.to_owned(),
                source,
            }
        };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed("make the directory of"))?;
        }
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o444)
            .open(path)
            .map_err(failed("create"))?;
        let bound = on_thread(|| {
            unshare_net()?;
            mount_bind(OWN, path)
                .map_err(|source| failed("bind a network namespace to")(source.into()))?;
            Netns::current()
        });
        match bound.flatten() {
            Ok(netns) => Ok(Self {
                netns,
                path: path.to_owned(),
                keep: false,
            }),
            Err(error) => {
                // The first error is the one to tell.
                let _ = Self::remove(path);
                Err(error)
            }
        }
    }

    /// The namespace.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the file in place.
    pub fn keep(mut self) -> Netns {
        self.keep = true;
        self.netns.clone()
    }

    /// Removes the file, telling whether that worked.
    ///
    /// # Errors
    /// [`Error::NameNetns`].
    pub fn delete(mut self) -> Result<(), Error> {
        self.keep = true;
        Self::remove(&self.path)
    }

    /// Removes a file that an earlier [`NamedNetns`] (or `ip netns`) left.
    ///
    /// # Errors
    /// [`Error::NameNetns`], [`Error::is_gone`] if there is none.
    pub fn remove(path: &Path) -> Result<(), Error> {
        let failed = |action| {
            move |source: io::Error| Error::NameNetns {
                action,
                path: path.to_owned(),
                source,
            }
        };
        match unmount(path, UnmountFlags::DETACH) {
            // EINVAL: nothing is mounted there, just the file is left.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(source) => return Err(failed("unmount")(source.into())),
        }
        fs::remove_file(path).map_err(failed("remove"))
    }
}

impl Drop for NamedNetns {
    fn drop(&mut self) {
        if !self.keep {
            // Nobody to tell; `delete` is there for those who want to know.
            let _ = Self::remove(&self.path);
        }
    }
}
