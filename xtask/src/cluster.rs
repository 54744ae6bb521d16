//! `cargo xtask cluster`: builds and executes `podnet-cluster`.
//!
//! That is a real Kubernetes on this machine.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Result, bail};

use crate::build::Built;
use crate::conformance;
use crate::step::{capture, execute, show};
use crate::test::{Reader, Tally};
use crate::workspace;

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// up, down, status, kubectl, exec, load-image, test, bench, conformance or
    /// reboot, and its arguments: `cargo xtask cluster --help` shows all
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "VERB"
    )]
    rest: Vec<OsString>,
}

/// Becomes the program: its exit code and its terminal are the user's.
pub(crate) fn run(options: &Options) -> crate::Done {
    let mut command = program(&[])?;
    let error = command.args(&options.rest).exec();
    bail!("cannot start `{}`: {error}", show(&command))
}

/// Whether this machine can have nodes.
///
/// # Errors
/// It cannot, and why.
pub(crate) fn check() -> Result<()> {
    let why = capture(program(RELEASE)?.arg("check"))?;
    if !why.is_empty() {
        bail!("{}", why.trim_end());
    }
    Ok(())
}

/// Runs the tests in tests/tests/e2e, in a cluster of their own.
///
/// Nothing is left of it.
///
/// # Errors
/// Something cannot be started, a test fails, or something is left.
pub(crate) fn tier(built: &Built, filter: &[String], tally: &mut Tally) -> Result<()> {
    let mut command = program(RELEASE)?;
    // They are what its image has.
    built.describe_to(&mut command);
    command
        .args(["tier", "--"])
        .args(filter)
        .env(conformance::VARIABLE, conformance::directory());
    let mut reader = Reader::default();
    let status = reader.follow(&mut command)?;
    tally.add(reader.finish());
    if !status.success() {
        bail!("`{}` failed: {status}", show(&command));
    }
    Ok(())
}

/// The profile of the other tests, in which nearly all of this is built already.
pub(crate) const RELEASE: &[&str] = &["--release"];

/// Builds the program.
///
/// # Errors
/// The compiler refuses.
pub(crate) fn program(profile: &[&str]) -> Result<Command> {
    let build = [
        "build",
        "--package",
        "test-cluster",
        "--bin",
        "podnet-cluster",
    ];
    execute(workspace::cargo(build).args(profile))?;
    let place = if profile.is_empty() {
        "debug"
    } else {
        "release"
    };
    let program = workspace::target().join(place).join("podnet-cluster");
    Ok(Command::new(program))
}
