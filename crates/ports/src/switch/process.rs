//! Starting the switch where nobody else does: a process that outlives this one.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use uswitch::control::Client;

use super::error::SwitchError;
use uswitch::SwitchUser;

/// How long a switch may take until it answers.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks whether it does.
const LOOK: Duration = Duration::from_millis(5);

/// Starts it and waits until it answers.
pub(super) fn start(
    program: &Path,
    socket: &Path,
    user: SwitchUser,
) -> Result<Client, SwitchError> {
    let failed = |source| SwitchError::Start {
        program: program.to_owned(),
        source,
    };
    let mut child = Command::new(program)
        .arg("switch")
        .arg("--socket")
        .arg(socket)
        .arg("--user")
        .arg(user.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // What ends the agent at a terminal does not end it.
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    tracing::info!(pid = child.id(), socket = %socket.display(), "the switch is started");
    let started = Instant::now();
    loop {
        match Client::connect(socket) {
            Ok(client) => {
                // Somebody has to take note of its end, or it stays as a zombie.
                let reaper = thread::Builder::new().name("podnet-reaper".to_owned());
                let reaped = reaper.spawn(move || {
                    let status = child.wait();
                    tracing::warn!(?status, "the switch has ended");
                });
                reaped.map_err(failed)?;
                return Ok(client);
            }
            Err(error) if !error.is_nobody_there() => {
                tracing::debug!(%error, "the switch does not answer yet");
            }
            Err(_) => {}
        }
        if started.elapsed() > PATIENCE || !matches!(child.try_wait(), Ok(None)) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(SwitchError::Silent {
                socket: socket.to_owned(),
            });
        }
        thread::sleep(LOOK);
    }
}
