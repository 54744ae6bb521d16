//! End processes with the test binary, however that ends.
//!
//! Statics are never dropped and a killed process runs nothing, so a shell waits at the other end of a
//! pipe until it closes.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// The shell's script: `$1` is a directory to remove at the end, or empty.
///
/// The rest is the command. The script also ends when the command does, so that a command that failed is
/// seen.
const GUARD: &str = r#"
dir=$1; shift
"$@" </dev/null & child=$!
exec 3<&0
{ cat >/dev/null; kill -KILL "$child"; } <&3 2>/dev/null &
wait "$child"
[ -z "$dir" ] || rm -rf "$dir"
"#;

/// A process that is killed when this value is dropped or this process ends.
#[derive(Debug)]
pub struct Guarded {
    shell: Child,
    pipe: Option<ChildStdin>,
}

impl Guarded {
    /// Starts `command` with its output in `log`. At its end, `directory` is removed.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn spawn(command: &Command, log: &Path, directory: Option<&Path>) -> Self {
        let log = File::create(log).expect("a log file");
        let mut shell = Command::new("sh");
        shell
            .args(["-c", GUARD, "guard"])
            .arg(directory.unwrap_or(Path::new("")))
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::piped())
            .stdout(log.try_clone().expect("a log file"))
            .stderr(log)
            // Ctrl-C is for the tests; the pipe then tells the shell.
            .process_group(0);
        let mut shell = shell.spawn().expect("a shell");
        let pipe = shell.stdin.take();
        Self { shell, pipe }
    }

    /// Tells the process to end, and guards it no more.
    ///
    /// # Panics
    /// If it has ended.
    pub fn terminate(&self) {
        let group = rustix::process::Pid::from_child(&self.shell);
        let told = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        told.expect("the process lives");
    }

    /// Whether the process has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.shell.try_wait(), Ok(None))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // It has been told to; if it cannot be waited for, it is gone.
        let _ = self.shell.wait();
    }
}
