//! How long a call waits for an agent that is away, and how often it asks again.

use std::path::Path;
use std::time::{Duration, Instant};

use cni_spec::Command;

use crate::lease;

/// Wait of `ADD` and `CHECK` for an agent without a lease.
///
/// It may be starting for the first time.
const START_PATIENCE: Duration = Duration::from_secs(2);

/// Attempts at a request that gets lost.
///
/// A restart loses one, when it has begun to be served. An agent that closes each connection is not
/// restarting.
const ATTEMPTS: u32 = 3;

/// Patience of one call. It begins when the agent is first found away.
#[derive(Debug)]
pub(crate) struct Patience<'a> {
    command: Command,
    socket: &'a Path,
    begun: Option<Begun>,
    lost: u32,
}

#[derive(Debug, Clone, Copy)]
struct Begun {
    end: Instant,
    /// There was a lease, so that the agent is being restarted.
    restarts: bool,
}

impl<'a> Patience<'a> {
    /// Patience of a command with the agent of a socket.
    pub(crate) const fn new(command: Command, socket: &'a Path) -> Self {
        Self {
            command,
            socket,
            begun: None,
            lost: 0,
        }
    }

    /// True while an agent that is away is waited for.
    pub(crate) fn lasts(&mut self) -> bool {
        Instant::now() < self.begin().end
    }

    /// True when a request whose answer got lost may be sent again.
    ///
    /// The agent answers a repeated `ADD` as the first one, and its start undoes what was half done.
    pub(crate) fn bears_loss(&mut self) -> bool {
        self.lost = self.lost.saturating_add(1);
        self.lost < ATTEMPTS && self.begin().restarts && self.lasts()
    }

    /// Reads the lease at the first call.
    ///
    /// Agents that come and go again do not make the wait longer.
    fn begin(&mut self) -> Begun {
        let (command, socket) = (self.command, self.socket);
        *self.begun.get_or_insert_with(|| {
            let lease = match command {
                // Runtimes ask every few seconds and want an answer at once (CNI-ST-04).
                Command::Status | Command::Version => Duration::ZERO,
                Command::Add | Command::Check | Command::Del | Command::Gc => lease::left(socket),
            };
            let least = match command {
                Command::Add | Command::Check => START_PATIENCE,
                // A DEL that has waited in vain is kept as a tombstone.
                Command::Del | Command::Gc | Command::Status | Command::Version => Duration::ZERO,
            };
            Begun {
                end: Instant::now() + lease.max(least),
                restarts: !lease.is_zero(),
            }
        })
    }
}
