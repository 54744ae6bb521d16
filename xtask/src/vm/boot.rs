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

/// The longest a kernel may take, boot and all tests.
const LIMIT: Duration = Duration::from_secs(2400);

/// The kernel talks on the second serial line, so that it never breaks a line of the tests.
/// A kernel fault, a processor stuck for twice `watchdog_thresh` seconds, or a grace period of RCU that
/// does not end, ends QEMU instead of hanging it (`panic=-1` and `-no-reboot`). The last was seen with
/// 5.10: a processor that took its interrupts and came back to the same jump label, for minutes.
/// `mitigations=off` because emulating them is slow and
/// tests nothing of ours.
const COMMAND_LINE: &str = "console=ttyS1 quiet loglevel=6 panic=-1 oops=panic softlockup_panic=1 \
    watchdog_thresh=30 rcupdate.rcu_cpu_stall_timeout=60 sysctl.kernel.panic_on_rcu_stall=1 \
    mitigations=off net.ifnames=0 rdinit=/init";

/// How much of the kernel's log is shown when a run fails.
const LOG_LINES: usize = 60;

/// Boots and hands each line of the serial console to `on_line` until the machine is off.
///
/// # Errors
/// QEMU cannot be started, exits with an error, or the time limit passes.
pub(crate) fn boot(kernel: &Kernel, initramfs: &Path, mut on_line: impl FnMut(&str)) -> Result<()> {
    let log = kernel_log(kernel);
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args([
            "-machine",
            "q35,accel=tcg",
            "-cpu",
            kernel.cpu(),
            "-m",
            "2048",
            "-smp",
            "2",
        ])
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
    let result = follow(&mut child, LIMIT, &mut on_line);
    if result.is_err() {
        // Already gone, or ours to end.
        let _ = child.kill();
    }
    let status = child.wait().context("waiting for QEMU")?;
    result?;
    if !status.success() {
        bail!("QEMU failed: {status}");
    }
    Ok(())
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

fn follow(child: &mut Child, limit: Duration, on_line: &mut impl FnMut(&str)) -> Result<()> {
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
    let deadline = Instant::now() + limit;
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => on_line(String::from_utf8_lossy(&line).trim_end_matches('\r')),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                bail!("not finished after {} minutes", limit.as_secs() / 60)
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
        follow(&mut printf, LIMIT, &mut |line: &str| {
            seen.push(line.to_owned());
        })
        .unwrap();
        printf.wait().unwrap();
        assert_eq!(seen, ["one", "two"]);
    }

    #[test]
    fn a_machine_that_says_nothing_is_given_up() {
        // Never ends and never prints; killed below.
        let mut silent = child("tail", "-f");
        let error = follow(&mut silent, Duration::from_millis(1), &mut |_: &str| {}).unwrap_err();
        silent.kill().unwrap();
        silent.wait().unwrap();
        assert!(error.to_string().contains("not finished"), "{error}");
    }
}
