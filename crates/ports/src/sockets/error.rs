//! Failures of files that pods connect to.

use std::io;
use std::path::{Path, PathBuf};

/// A file that a pod connects to, or that tells it how, cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The file or its directory cannot be made.
    #[error("cannot make {}, to which the pod connects", path.display())]
    Make {
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file that an earlier attempt has left cannot be removed.
    #[error("cannot remove {}, to which the pod connected", path.display())]
    Remove {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file that describes the port cannot be written.
    #[error("cannot write {}, which tells the pod where to connect", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl PlaceError {
    /// [`Self::Make`] of this path.
    pub(crate) fn make(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Make { path, source }
    }
}
