//! `cargo xtask vm <version>…`: the privileged tests on Debian's kernels, in QEMU.
//!
//! No disk image, no network, no ssh: kernel and modules come from a Debian package, the test
//! binaries ride in an initramfs, and results leave by the serial console. Emulation (TCG) is
//! used even where /dev/kvm exists, so that every machine runs the same thing.

mod boot;
mod cluster;
mod cpio;
mod initramfs;
mod kernel;
mod modules;
mod parts;
mod session;
mod side;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use self::parts::Shares;
use crate::build::Built;
use crate::install;
use crate::step::{capture, say};
use crate::test::{Report, Tally, programs, release_tests};

pub(crate) use self::initramfs::shared_libraries;
pub use self::kernel::version as kernel_version;
pub(crate) use self::side::{End, Plan, is_worth_it};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Kernel versions: 5.10, 6.1, 6.12, sid for Debian's newest, or all
    #[arg(required = true, value_name = "VERSION")]
    versions: Vec<String>,
    /// Start a cluster in the machine, podnet in it as a DaemonSet, and run
    /// tests of tests/tests/e2e whose names contain the arguments
    #[arg(long, conflicts_with = "end")]
    cluster: bool,
    /// End the machines after so many minutes, whatever runs; tests that have not
    /// run by then are left out, and that is said
    #[arg(long, value_name = "MINUTES")]
    end: Option<u64>,
    /// Arguments for every test binary, first of all a part of a test's name
    #[arg(last = true)]
    filter: Vec<String>,
}

/// Builds, then boots one kernel after the other.
pub(crate) fn run(options: &Options) -> crate::Done {
    let versions = kernels(&options.versions)?;
    if options.cluster {
        return cluster::run(&versions, &options.filter);
    }
    let built = programs::build()?;
    tools()?;
    let binaries = test_binaries(&built)?;
    let end = match options.end {
        Some(minutes) => End::At(Instant::now() + Duration::from_secs(minutes * 60)),
        None => End::Never,
    };
    let mut report = Report::new()?;
    let plan = Plan {
        versions: &versions,
        built: &built,
        binaries: &binaries,
        filter: &options.filter,
        end,
        recorder: None,
    };
    for ended in plan.run() {
        ended.report(&mut report);
    }
    Ok(report.close())
}

/// The word for all kernels.
pub(crate) const ALL: &str = "all";

/// Most starts of a machine for programs left where it stops half-way.
///
/// Its kernel or emulator may stop. A program that has ended is not run again, whatever it said.
const BOOTS: u32 = 4;

/// The least time of a machine: it is packed and booted in half of it.
const LEAST: Duration = Duration::from_secs(120);

/// Time by which the machine itself cuts its programs short before its end.
///
/// It knows more of them than is known after it was ended, and its clock begins when it is packed and
/// booted.
const EARLIER: Duration = Duration::from_secs(60);

/// Whether there is time for a machine until `end`.
fn is_time(end: Option<Instant>) -> bool {
    end.is_none_or(|end| Instant::now() + LEAST < end)
}

/// Replaces the word `all` by the versions of all kernels.
///
/// # Errors
/// No Debian release has such a kernel.
pub(crate) fn kernels(chosen: &[String]) -> Result<Vec<String>> {
    if chosen.iter().any(|version| version == ALL) {
        return Ok(kernel::all().map(str::to_owned).collect());
    }
    for version in chosen {
        kernel::suite(version)?;
    }
    Ok(chosen.to_vec())
}

/// Returns `uname -r` of a kernel, which is downloaded if it is not there.
///
/// # Errors
/// It cannot be had.
fn release(version: &str) -> Result<String> {
    Ok(kernel::fetch(version)?.release)
}

/// Runs the privileged tests on one kernel and counts them.
///
/// `shares` are of what runs first where there is an `end`. No machine runs after it: what is cut short or not begun then is left out, and that is said.
fn test_kernel(
    version: &str,
    built: &Built,
    binaries: &[TestBinary],
    (filter, end): (&[String], Option<Instant>),
    shares: Shares,
    tally: &mut Tally,
) -> Result<()> {
    let parts = parts::plan(binaries, filter, end.map(|_| shares))?;
    let mut session = session::Session::new();
    if !is_time(end) {
        session.leave(&parts);
        return session.finish(&parts, tally);
    }
    let kernel = kernel::fetch(version)?;
    say(format!(
        "packing {} test binaries for Linux {}",
        binaries.len(),
        kernel.release
    ));
    let mut boots = 1;
    loop {
        // A second machine goes on where the first one stopped.
        let left = &parts[session.ended()..];
        let limit = end.map(|it| it.saturating_duration_since(Instant::now() + EARLIER));
        let initramfs = initramfs::build(&kernel, built, binaries, left, limit)?;
        let machine = boot::Machine::default();
        let ended = boot::boot(&kernel, &initramfs, &machine, end, |line| {
            if session.line(line, Instant::now()) {
                println!("[{version}] {line}");
            }
        });
        if matches!(ended, Ok(boot::End::Cut)) {
            say("the time of the machine is over");
            session.cut(&parts, Instant::now());
        }
        if session.is_done() {
            return ended.and(session.finish(&parts, tally));
        }
        boot::show_kernel_log(&kernel);
        if boots == BOOTS || !is_time(end) {
            return ended.and(session.finish(&parts, tally));
        }
        say("the machine stopped before the end; software emulation does that at times: once more");
        boots += 1;
    }
}

/// Installs what machines need: before they run side by side, as apt does not.
///
/// # Errors
/// apt refuses.
pub(crate) fn tools() -> Result<()> {
    install::apt(&["qemu-system-x86".to_owned(), "busybox-static".to_owned()])
}

/// A test program and the name it gets in the virtual machine.
pub(crate) struct TestBinary {
    name: String,
    path: PathBuf,
}

/// Builds the privileged tests and returns where cargo put them.
pub(crate) fn test_binaries(built: &Built) -> Result<Vec<TestBinary>> {
    say("building the privileged tests");
    let mut command = release_tests();
    command.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let wanted = programs::privileged(&mut command)?;
    built.describe_to(&mut command);
    let mut found = Vec::new();
    for line in capture(&mut command)?.lines() {
        let message: Value = serde_json::from_str(line).context("cargo's JSON messages")?;
        found.extend(test_artifact(&message));
    }
    if found.len() < wanted {
        bail!("cargo built {} of {wanted} test binaries", found.len());
    }
    Ok(found)
}

fn test_artifact(message: &Value) -> Option<TestBinary> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = PathBuf::from(message["executable"].as_str()?);
    let target = message["target"]["name"].as_str()?;
    // `path+file:///…/crates/netdev#0.1.0`: the package's folder has its name.
    let id = message["package_id"].as_str()?;
    let package = id.split('#').next()?.rsplit('/').next()?;
    Some(TestBinary {
        name: format!("{package}-{target}"),
        path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn test_binaries_are_found_in_cargo_messages() {
        let message = json!({
            "reason": "compiler-artifact",
            "package_id": "path+file:///repo/crates/netdev#0.1.0",
            "target": {"name": "kernel", "kind": ["test"]},
            "profile": {"test": true},
            "executable": "/repo/target/release/deps/kernel-0011",
        });
        let binary = test_artifact(&message).unwrap();
        assert_eq!(binary.name, "netdev-kernel");
        assert_eq!(
            binary.path,
            PathBuf::from("/repo/target/release/deps/kernel-0011")
        );
    }

    #[test]
    fn libraries_built_on_the_way_are_no_test_binaries() {
        let message = json!({
            "reason": "compiler-artifact",
            "package_id": "path+file:///repo/crates/netdev#0.1.0",
            "target": {"name": "netdev", "kind": ["lib"]},
            "profile": {"test": false},
            "executable": null,
        });
        assert!(test_artifact(&message).is_none());
    }
}
