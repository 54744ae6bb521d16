//! `cargo xtask demo`: builds podnet and `podnet-demo`, and starts that.

use std::process::{Command, ExitCode};

use anyhow::{Result, bail};

use crate::Done;
use crate::build::{self, Built, Profile};
use crate::step::{execute, is_root, say};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Leave everything up at the end, and say what can be typed
    #[arg(long, conflicts_with = "teardown")]
    keep: bool,
    /// Only remove what demos have left
    #[arg(long)]
    teardown: bool,
}

/// Builds, and shows; fails if anything was not as it must be.
pub(crate) fn run(options: &Options) -> Done {
    if !is_root() {
        bail!("the demo makes network namespaces and loads eBPF programs: run it as root");
    }
    let mut command = if options.teardown {
        Command::new(build::demo(Profile::Demo)?)
    } else if let Some(built) = build::named() {
        let mut command = Command::new(build::demo(Profile::Demo)?);
        built.describe_to(&mut command);
        command
    } else {
        say("building podnet and the demo: some minutes for the first time, and quick ever after");
        let built = build::with_demo()?;
        let mut command = Command::new(Profile::Demo.binary("podnet-demo"));
        built.describe_to(&mut command);
        command
    };
    for (flag, is_set) in [("--keep", options.keep), ("--teardown", options.teardown)] {
        if is_set {
            command.arg(flag);
        }
    }
    // It gets Ctrl-C, too, and takes down what it has put up: this process waits for it.
    crate::step::leave_signals_to_children()?;
    let status = command.status()?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The demo as a test, with binaries that were built before as it was itself.
pub(crate) fn with(built: &Built) -> Result<()> {
    let mut command = Command::new(Profile::Release.binary("podnet-demo"));
    built.describe_to(&mut command);
    execute(&mut command)
}
