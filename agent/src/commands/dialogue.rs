//! Speaks with a running agent, and with the user.

use std::error::Error;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use cni_spec::{Reply, Request, read_frame, write_frame};
use serde_json::Value;
use telemetry::chain;

/// Says why a command failed.
pub type Failure = Box<dyn Error>;

/// Tells the user of a failure, on stderr.
pub fn complain(error: &Failure) {
    // With stderr closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "podnet-agent: {}", chain(error.as_ref()));
}

/// Connects to the running agent.
pub(super) fn connect(socket: &Path) -> Result<UnixStream, Failure> {
    UnixStream::connect(socket).map_err(|error| {
        let socket = socket.display();
        format!("no agent answers on {socket} ({error}): is `podnet-agent run` running?").into()
    })
}

/// Sends a request to the running agent, and returns the value that it answers.
pub(super) fn ask(socket: &Path, request: &Request) -> Result<Value, Failure> {
    let mut stream = connect(socket)?;
    write_frame(&mut stream, &request.to_body()?)?;
    match Reply::from_body(&read_frame(&mut stream)?)? {
        Reply::Ok(value) => Ok(serde_json::from_str(value.get())?),
        Reply::Error(error) => Err(error.msg.into()),
    }
}

/// Prints a text on stdout.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}") {
        // The reader has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}
