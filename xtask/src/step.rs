//! Run other programs: commands are printed, and failures name the command.

use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Prints one progress line.
pub fn say(line: impl Display) {
    println!("podnet: {line}");
}

/// Whether this process may install packages and create network namespaces.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs to the end with inherited output.
///
/// # Errors
/// The program cannot be started, or exits with anything but 0.
pub fn execute(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start `{}`", show(command)))?;
    check(command, status)
}

/// Runs to the end and returns its standard output.
///
/// # Errors
/// As [`execute`], and when the output is not UTF-8.
pub fn capture(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{}`", show(command)))?;
    check(command, output.status)?;
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{}` did not print UTF-8", show(command)))
}

/// Runs to the end, giving each line of standard output to `on_line`.
///
/// Standard error is inherited.
///
/// # Errors
/// The program cannot be started or waited for. An exit code other than 0 is the caller's to judge.
pub fn stream(command: &mut Command, mut on_line: impl FnMut(&str)) -> Result<ExitStatus> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", show(command)))?;
    if let Some(stdout) = child.stdout.take() {
        // Test output may hold any bytes: a line that is not UTF-8 must not end the run.
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.context("reading standard output")?;
            on_line(&String::from_utf8_lossy(&line));
        }
    }
    child
        .wait()
        .with_context(|| format!("waiting for `{}`", show(command)))
}

/// Whether the program runs and exits with 0; nothing is printed.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The command as a person would type it (without its environment).
pub fn show(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(|word| word.to_string_lossy()));
    words.join(" ")
}

/// Leaves Ctrl-C to child programs, and waits for them to clean up.
///
/// # Errors
/// The kernel refuses.
pub fn leave_signals_to_children() -> Result<()> {
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::clone(&ignored)).context("taking over Ctrl-C")?;
    }
    Ok(())
}

fn check(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("`{}` failed: {status}", show(command));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_is_named_in_the_error() {
        let error = execute(Command::new("false").arg("--because")).unwrap_err();
        assert!(
            format!("{error:#}").contains("`false --because` failed"),
            "{error:#}"
        );
    }

    #[test]
    fn lines_are_streamed_even_when_they_are_not_utf8() {
        let mut lines = Vec::new();
        let status = stream(Command::new("printf").arg(r"one\n\377two\nlast"), |line| {
            lines.push(line.to_owned());
        })
        .unwrap();
        assert!(status.success());
        assert_eq!(lines, ["one", "\u{fffd}two", "last"]);
    }
}
