//! Why a record is not durable, or cannot be read.

use std::{io, path::PathBuf, sync::Arc};

use crate::batch::{KEY_MAX, VALUE_MAX};

/// Why a record is not durable, or cannot be read.
///
/// Cheap to clone: batches that shared a commit share its error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process, or another `Store` of this one, has the file.
    #[error("{} is in use by another process; stop the other agent first", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a store, or damaged beyond what a crash does.
    #[error(
        "{} is not a readable store; move it away and start again: the agent then detaches all \
         pods of this node, which have to be made again",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The database's error.
        source: Arc<redb::Error>,
    },
    /// The file was written by an agent of another format.
    #[error(
        "{} has store format {found}, this agent reads format {}; start the agent that wrote it",
        path.display(),
        crate::file::FORMAT
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// The file or its directory could not be used.
    #[error("cannot {operation} {}", path.display())]
    File {
        /// The operation that failed.
        operation: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's answer.
        source: Arc<io::Error>,
    },
    /// The database could not be opened, and it is none of the above.
    #[error("cannot open the store {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The database's error.
        source: Arc<redb::Error>,
    },
    /// A commit failed: the batch may be there after a restart or not.
    ///
    /// Nothing more is accepted until the store was opened again.
    #[error(
        "cannot write {}{disk}: {source}; nothing is recorded until there is room and the disk can be \
         written, which the agent tries at every audit",
        path.display()
    )]
    Commit {
        /// The file.
        path: PathBuf,
        /// The disk it is on, after a comma; empty where that is not known.
        disk: String,
        /// The database's error.
        source: Arc<redb::Error>,
    },
    /// A record could not be read.
    #[error("cannot read the store")]
    Read {
        /// The database's error.
        source: Arc<redb::Error>,
    },
    /// The thread that writes could not be started.
    #[error("cannot start the thread that writes the store")]
    Thread {
        /// The system's answer.
        source: Arc<io::Error>,
    },
    /// The thread that writes is gone.
    #[error("the store's writer has stopped; restart the agent")]
    Stopped,
    /// A key beyond the limit; nothing was written.
    #[error("a key of {size} bytes is too long; at most {KEY_MAX} are allowed")]
    KeyTooLong {
        /// Its size, bytes.
        size: usize,
    },
    /// A value beyond the limit; nothing was written.
    #[error("a value of {size} bytes is too large; at most {VALUE_MAX} are allowed")]
    ValueTooLarge {
        /// Its size, bytes.
        size: usize,
    },
}

impl StoreError {
    /// True for an error of one batch, which says nothing about the store.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::KeyTooLong { .. } | Self::ValueTooLarge { .. })
    }

    pub(crate) fn read(error: impl Into<redb::Error>) -> Self {
        Self::Read {
            source: Arc::new(error.into()),
        }
    }
}
