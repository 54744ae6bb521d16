//! Failures of ports of type Memif.

use std::io;
use std::path::PathBuf;

/// Why a port of type Memif cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// No process serves such ports.
    #[error(
        "no switch for ports of type Memif answers at {}: start `podnet-agent switch`", socket.display()
    )]
    Absent {
        /// Its socket.
        socket: PathBuf,
        /// Why not.
        source: uswitch::Error,
    },
    /// It could not be started.
    #[error("cannot start {} as the switch for ports of type Memif", program.display())]
    Start {
        /// This program.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It ended at once, or does not answer.
    #[error("the switch for ports of type Memif was started and does not answer at {}: its messages are among the agent's", socket.display())]
    Silent {
        /// Its socket.
        socket: PathBuf,
    },
    /// It says no, or has gone.
    #[error("the switch does not serve the port of type Memif")]
    Port {
        /// Its words.
        source: uswitch::Error,
    },
    /// A socket that clients connect to could not be made.
    #[error("cannot make the socket of a port of type Memif")]
    Listen {
        /// Why not.
        source: memif::Error,
    },
}

impl SwitchError {
    /// No switch runs there.
    pub(super) fn is_nobody_there(&self) -> bool {
        matches!(self, Self::Absent { source, .. } if source.is_nobody_there())
    }
}
