//! One run of QEMU.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::kernel::Kernel;
use crate::step::{say, show};

/// Limits of a machine that no end is set for.
const LIMITS: Limits = Limits {
    silence: Duration::from_secs(1200),
    whole: Duration::from_secs(4 * 3600),
};

/// How long a machine may take: one that takes longer hangs.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Between two lines.
    silence: Duration,
    /// Boot and all tests.
    whole: Duration,
}

/// Command line of the kernel.
///
/// The kernel talks on the second serial line, so that it never breaks a line of the tests. A kernel
/// fault, a processor stuck for twice `watchdog_thresh` seconds, or a grace period of RCU that does not
/// end, ends QEMU instead of hanging it (`panic=-1` and `-no-reboot`). The last was seen with 5.10: a
/// processor that took its interrupts and came back to the same jump label, for minutes.
/// `mitigations=off` because emulating them is slow and tests nothing of ours.
const COMMAND_LINE: &str = "console=ttyS1 quiet loglevel=6 panic=-1 oops=panic softlockup_panic=1 \
    watchdog_thresh=30 rcupdate.rcu_cpu_stall_timeout=60 sysctl.kernel.panic_on_rcu_stall=1 \
    mitigations=off net.ifnames=0 rdinit=/init";

/// How much of the kernel's log is shown when a run fails.
const LOG_LINES: usize = 60;

/// How a run that is no failure of the machine ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The machine is off.
    Off,
    /// Its time was over, and it was ended.
    Cut,
}

/// The hardware of a machine, where it is not that of all.
#[derive(Debug, Clone, Default)]
pub(super) struct Machine {
    /// Memory in MiB, [`MEMORY`] where it is 0.
    pub(super) memory: u32,
    /// More arguments of QEMU.
    pub(super) arguments: Vec<String>,
}

/// How much a machine gives way to other programs, as `nice` counts.
///
/// It gets a tenth of a processor that others want: with less, its kernel takes itself for stuck.
const NICE: &str = "10";

/// Memory of a machine that runs tests, MiB.
const MEMORY: u32 = 2048;

/// Boots a machine and hands each line of its serial console to `on_line`.
///
/// It runs until the machine is off, at the latest until `end`.
///
/// # Errors
/// QEMU cannot be started, exits with an error, or the time limit of a machine passes.
pub(super) fn boot(
    kernel: &Kernel,
    initramfs: &Path,
    machine: &Machine,
    end: Option<Instant>,
    mut on_line: impl FnMut(&str),
) -> Result<End> {
    let memory = match machine.memory {
        0 => MEMORY,
        memory => memory,
    };
    let log = kernel_log(kernel);
    let mut command = Command::new("nice");
    command
        .args(["-n", NICE, "qemu-system-x86_64"])
        .args([
            "-machine",
            "q35,accel=tcg",
            "-cpu",
            kernel.cpu(),
            "-m",
            &memory.to_string(),
            "-smp",
            "2",
        ])
        .args(&machine.arguments)
        .args([
            "-nodefaults",
            "-display",
            "none",
            "-monitor",
            "none",
            "-serial",
            "stdio",
        ])
        .arg("-serial")
        .arg(format!("file:{}", log.display()))
        .arg("-no-reboot")
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", COMMAND_LINE]);
    say(show(&command));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start qemu-system-x86_64")?;
    let result = follow(&mut child, LIMITS, end, &mut on_line);
    if result.is_err() {
        // Already gone, or ours to end.
        let _ = child.kill();
    }
    let status = child.wait().context("waiting for QEMU")?;
    let result = result?;
    if result == End::Off && !status.success() {
        bail!("QEMU failed: {status}");
    }
    Ok(result)
}

/// Prints the end of what the kernel said.
pub(crate) fn show_kernel_log(kernel: &Kernel) {
    let log = kernel_log(kernel);
    let text = fs::read(&log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    say(format!("the kernel's last words, from {}:", log.display()));
    for line in &lines[lines.len().saturating_sub(LOG_LINES)..] {
        println!("{line}");
    }
}

fn kernel_log(kernel: &Kernel) -> PathBuf {
    kernel.dir.join("kernel.log")
}

/// Ends the machine at `end`; without an end, one that is beyond a limit hangs.
fn follow(
    child: &mut Child,
    limits: Limits,
    end: Option<Instant>,
    on_line: &mut impl FnMut(&str),
) -> Result<End> {
    let stdout = child.stdout.take().context("QEMU's standard output")?;
    let (sender, lines) = mpsc::channel();
    // Ends with QEMU: its standard output closes then.
    thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n') {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let hangs = Instant::now() + limits.whole;
    let cut = end.filter(|end| *end <= hangs);
    let mut take = |line: Vec<u8>| on_line(String::from_utf8_lossy(&line).trim_end_matches('\r'));
    // Looked at before each line: a machine that does not stop talking ends, too.
    while let Some(left) = cut.unwrap_or(hangs).checked_duration_since(Instant::now()) {
        match lines.recv_timeout(left.min(limits.silence)) {
            Ok(line) => take(line),
            Err(RecvTimeoutError::Disconnected) => return Ok(End::Off),
            Err(RecvTimeoutError::Timeout) if left > limits.silence => {
                bail!(
                    "the machine has said nothing for {} minutes",
                    limits.silence.as_secs() / 60
                );
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    if cut.is_none() {
        bail!("not finished after {} minutes", limits.whole.as_secs() / 60);
    }
    child.kill().context("ending QEMU")?;
    // What it has said of a test that runs is a line without an end.
    lines.iter().for_each(take);
    Ok(End::Cut)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn child(program: &str, argument: &str) -> Child {
        Command::new(program)
            .arg(argument)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    #[test]
    fn carriage_returns_of_the_serial_line_are_removed() {
        let mut printf = child("printf", r"one\r\ntwo\r\n");
        let mut seen = Vec::new();
        let end = follow(&mut printf, LIMITS, None, &mut |line: &str| {
            seen.push(line.to_owned());
        });
        printf.wait().unwrap();
        assert_eq!(end.unwrap(), End::Off);
        assert_eq!(seen, ["one", "two"]);
    }

    /// The verdict on a machine that never ends and never says anything.
    fn silent(limits: Limits, end: Option<Duration>) -> Result<End> {
        let mut silent = child("tail", "-f");
        let end = end.map(|it| Instant::now() + it);
        let verdict = follow(&mut silent, limits, end, &mut |_: &str| {});
        // Already gone where it was ended.
        let _ = silent.kill();
        silent.wait().unwrap();
        verdict
    }

    #[test]
    fn a_machine_that_does_not_end_is_given_up() {
        let short = Duration::from_millis(1);
        let whole = Limits {
            whole: short,
            ..LIMITS
        };
        let silence = Limits {
            silence: short,
            ..LIMITS
        };
        for (limits, word) in [(whole, "not finished"), (silence, "said nothing")] {
            for end in [None, Some(LIMITS.whole)] {
                let error = silent(limits, end).unwrap_err();
                assert!(error.to_string().contains(word), "{error}");
            }
        }
    }

    #[test]
    fn a_machine_whose_time_is_over_is_ended_without_a_failure() {
        let verdict = silent(LIMITS, Some(Duration::from_millis(1)));
        assert_eq!(verdict.unwrap(), End::Cut);
    }

    #[test]
    fn a_line_without_an_end_is_read_of_a_machine_that_is_ended() {
        // Ends its standard error when all is written.
        let script = r"printf 'one\ntest x ... '; exec tail -f /dev/null 2>&-";
        let mut tail = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut nothing = Vec::new();
        let mut stderr = tail.stderr.take().unwrap();
        stderr.read_to_end(&mut nothing).unwrap();
        let mut seen = Vec::new();
        let verdict = follow(
            &mut tail,
            LIMITS,
            Some(Instant::now()),
            &mut |line: &str| {
                seen.push(line.to_owned());
            },
        );
        tail.wait().unwrap();
        assert_eq!(verdict.unwrap(), End::Cut);
        assert_eq!(seen, ["one", "test x ... "]);
    }
}
