//! Start programs that outlive this one.
//!
//! They are in the control group and the network namespace of their part from before their first
//! instruction, so that `down` finds whatever they become.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::{cgroup, name, place};
use xtask::workspace;

/// `podnet-cluster enter PART -- COMMAND`, which [`spawn`] runs.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The part of the cluster
    part: String,
    /// Command to become
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Starts a program of a part; what it prints goes to its log.
///
/// # Errors
/// It cannot be started. What it makes of its arguments is in the log.
pub(super) fn spawn(part: &str, program: &str, command: &Command) -> Result<Child> {
    let path = place::log(part, program);
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("opening {}", path.display()))?;
    let own = workspace::own_program()?;
    let mut enter = Command::new(own);
    enter
        .args(["enter", part, "--"])
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("the log")?)
        .stderr(log)
        // Ctrl-C at this terminal is not for it.
        .process_group(0);
    name::describe_to(&mut enter);
    enter.spawn().with_context(|| format!("starting {program}"))
}

/// Becomes the command, in the part.
///
/// # Errors
/// The part has no control group or namespace, or the command cannot be started.
pub(super) fn enter(options: &Options) -> xtask::Done {
    let name = place::part(&options.part);
    cgroup::join(&name)?;
    let mut command = Command::new("nsenter");
    command
        .arg(format!(
            "--net={}",
            place::netns_path(&options.part).display()
        ))
        .arg("--")
        .args(&options.command);
    let error = command.exec();
    bail!("cannot start nsenter: {error}; install util-linux")
}
