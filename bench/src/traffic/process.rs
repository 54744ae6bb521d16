//! Run a program in a namespace until it is done, late, interrupted or dropped.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use netdev::Netns;
use rustix::process::{Pid, Signal, kill_process};

use crate::interrupt;

/// Between two looks at a program that should end.
const STEP: Duration = Duration::from_millis(5);
/// How long a program may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(10);

/// A running program. Dropping it ends it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdout: File,
    stderr: File,
}

impl Process {
    /// Starts a command in a namespace.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: Command, netns: &Netns) -> Result<Self> {
        Self::with(command, |command| Ok(netns.run_in(|| command.spawn())??))
    }

    /// Starts a command in the namespace of this process.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_here(command: Command) -> Result<Self> {
        Self::with(command, |command| Ok(command.spawn()?))
    }

    /// Output is kept in files, so that a full pipe never stops the program.
    fn with(
        mut command: Command,
        spawn: impl FnOnce(&mut Command) -> Result<Child>,
    ) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let stdout = tempfile::tempfile().context("a file for stdout")?;
        let stderr = tempfile::tempfile().context("a file for stderr")?;
        command
            .stdin(Stdio::null())
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?);
        let child = spawn(&mut command).with_context(|| format!("starting {name}"))?;
        Ok(Self {
            name,
            child,
            stdout,
            stderr,
        })
    }

    /// Waits until it ends; returns what it printed.
    ///
    /// # Errors
    /// It fails, takes longer than `patience`, or the run is interrupted.
    pub fn finish(mut self, patience: Duration) -> Result<String> {
        let end = Instant::now() + patience;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            interrupt::check()?;
            if Instant::now() >= end {
                bail!("{} did not end in {} s", self.name, patience.as_secs());
            }
            thread::sleep(STEP);
        };
        let text = read_back(&self.stdout)?;
        if !status.success() {
            let error = read_back(&self.stderr)?;
            // iperf3 tells its errors in its JSON, too.
            let said = [error.trim(), text.trim()].join(" ");
            let said: String = said.chars().take(300).collect();
            bail!("{}: {status}: {}", self.name, said.trim());
        }
        Ok(text)
    }

    /// Asks it to end and waits for that.
    ///
    /// # Errors
    /// It does not end.
    pub fn terminate(mut self) -> Result<()> {
        self.end(Signal::TERM).map(drop)
    }

    /// Asks it to end as Ctrl-C does, and returns what it printed.
    ///
    /// # Errors
    /// It does not end, or it failed: what it says is told.
    pub fn interrupt(mut self) -> Result<String> {
        let status = self.end(Signal::INT)?;
        // Some are ended by the signal that they have asked for.
        if status.code().is_some_and(|code| code != 0) {
            bail!("{}: {status}: {}", self.name, self.complaint().trim());
        }
        read_back(&self.stdout)
    }

    fn end(&mut self, signal: Signal) -> Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("ending {}", self.name))?;
        let end = Instant::now() + GRACE;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(STEP);
        }
        bail!("{} does not end", self.name)
    }

    /// Waits until it has printed this.
    ///
    /// # Errors
    /// It ends, does not print it in time, or the run is interrupted.
    pub fn wait_for(&mut self, words: &str, patience: Duration) -> Result<()> {
        let end = Instant::now() + patience;
        while !read_back(&self.stdout)?.contains(words) {
            interrupt::check()?;
            if let Some(status) = self.child.try_wait()? {
                let said = self.complaint();
                bail!("{} ended: {status}: {}", self.name, said.trim());
            }
            if Instant::now() >= end {
                bail!("{} is not ready after {} s", self.name, patience.as_secs());
            }
            thread::sleep(STEP);
        }
        Ok(())
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// True while it runs.
    ///
    /// # Errors
    /// The kernel's.
    pub fn runs(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Returns its output to stderr.
    pub fn complaint(&self) -> String {
        read_back(&self.stderr).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended long ago.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a file from its start, without moving its position.
fn read_back(file: &File) -> Result<String> {
    let length = file.metadata().context("reading its output")?.len();
    let mut bytes = vec![0; usize::try_from(length)?];
    file.read_exact_at(&mut bytes, 0)
        .context("reading its output")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The command on one of the processors.
pub fn pinned(cpu: usize, program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string(), program]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failing_program_is_told_with_its_last_words() {
        let process = Process::start_here(shell("echo broken >&2; exit 3")).unwrap();
        let error = process.finish(Duration::from_secs(10)).unwrap_err();
        assert!(error.to_string().contains("broken"), "{error}");
        let process = Process::start_here(shell("echo well")).unwrap();
        assert_eq!(process.finish(Duration::from_secs(10)).unwrap(), "well\n");
    }

    #[test]
    fn what_a_program_says_can_be_read_while_it_goes_on() {
        // A shell cannot trap what was ignored before it began, as in a job in the background.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", "sh", "-c"]);
        command.arg("trap 'echo last; exit' INT; echo first; while :; do sleep 0.01; done");
        let mut process = Process::start_here(command).unwrap();
        process
            .wait_for("first\n", Duration::from_secs(10))
            .unwrap();
        assert_eq!(process.interrupt().unwrap(), "first\nlast\n");
        let mut process = Process::start_here(shell("echo broken >&2")).unwrap();
        let error = process.wait_for("first", Duration::from_secs(10));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("broken"), "{error}");
    }

    #[test]
    fn a_program_that_is_not_wanted_any_more_is_ended() {
        let mut process = Process::start_here(shell("exec sleep 1000")).unwrap();
        assert!(process.runs().unwrap());
        let pid = process.child.id();
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
