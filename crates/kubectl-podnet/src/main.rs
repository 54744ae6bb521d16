//! Run `kubectl podnet`, which asks podnet's agents of a cluster.
//!
//! An agent answers root of its own node only, so every question is a command of the agent in the agent's
//! pod, run by `kubectl exec`. The plugin opens no connection of its own: whatever kubectl needs to reach
//! the cluster, it has. It knows pods and nodes, and refuses to know how the agent prints.

mod agents;
mod capture;
mod cli;
mod error;
mod explain;
mod get;
mod kubectl;
mod pod;
mod sysdump;
mod trace;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use self::cli::{Cli, Command};
use self::error::PluginError;
use self::kubectl::Kubectl;

/// Exit code of a trace of a packet that does not arrive, 1 being that of errors.
const NOT_DELIVERED: u8 = 3;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let kubectl = Kubectl::new(&cli.connection);
    let done = match &cli.command {
        Command::Get(options) => get::run(&kubectl, options),
        Command::Explain(options) => explain::run(&kubectl, options),
        Command::Trace(options) => trace::run(&kubectl, options).map(|arrives| match arrives {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(NOT_DELIVERED),
        }),
        Command::Capture(options) => capture::run(&kubectl, options),
        Command::Sysdump(options) => sysdump::run(&kubectl, options),
    };
    done.unwrap_or_else(|error| {
        // With stderr closed there is nobody to tell.
        let _ = writeln!(io::stderr(), "kubectl podnet: {error}");
        ExitCode::FAILURE
    })
}

/// Prints a text; a reader that has seen enough is no error.
fn print(text: &str) -> Result<(), PluginError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|source| PluginError::File {
            operation: "write",
            path: "standard output".to_owned(),
            source,
        }),
    }
}
