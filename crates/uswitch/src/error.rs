//! Errors of the switch and of its clients.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;

use crate::control::Refusal;

/// Something did not work.
#[derive(Debug, Error)]
pub enum Error {
    /// The socket of the switch cannot be bound or connected to.
    #[error("the socket of the switch cannot be used: {0}")]
    Address(#[source] memif::Error),
    /// Its file cannot be given its owner and mode.
    #[error("cannot give {} to the user of the switch alone: {source}", path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The process cannot become another user.
    #[error("cannot become user {uid} and group {gid}: {source}")]
    User {
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{operation}: {}", io::Error::from(*errno))]
    System {
        /// Name of the system call.
        operation: &'static str,
        /// The kernel's reason.
        errno: Errno,
    },
    /// The other side closed the connection.
    #[error("the switch closed the connection")]
    Hangup,
    /// The other side did not answer in time.
    #[error("the switch did not answer in time")]
    Timeout,
    /// A reply of another kind than the request has.
    #[error("the switch answered {0}, which does not answer the request")]
    Unexpected(String),
    /// A message that cannot be written or read.
    #[error("a message of the switch cannot be read or written: {0}")]
    Message(#[from] serde_json::Error),
    /// A message longer than any is.
    #[error("a message of the switch has {0} bytes, {max} are allowed", max = crate::control::MESSAGE_MAX)]
    TooLong(usize),
    /// A device with headers for a switch that knows none.
    #[error(
        "the switch speaks version {0} of its protocol and reads no headers of devices, open the device without"
    )]
    Headers(u32),
    /// The switch said no.
    #[error("the switch refused: {0}")]
    Refused(#[from] Refusal),
    /// A part of memif failed.
    #[error(transparent)]
    Memif(#[from] memif::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread of the switch: {0}")]
    Thread(#[source] io::Error),
    /// A worker does not answer its control thread, or has ended.
    #[error("worker {0} of the switch does not answer")]
    Worker(usize),
    /// The one before did not give all that it announced.
    #[error("the switch before this one handed over {got} of {announced} ports")]
    Incomplete {
        /// Ports that came.
        got: usize,
        /// Ports that were announced.
        announced: usize,
    },
}

impl Error {
    /// Returns true when the socket has no listener: no switch runs there.
    pub fn is_nobody_there(&self) -> bool {
        match self {
            Self::Address(memif::Error::Socket { source, .. }) => matches!(
                source.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ),
            _ => false,
        }
    }

    pub(crate) fn system(operation: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::System { operation, errno }
    }
}
