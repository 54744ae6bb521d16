//! `cargo xtask test`: every check and every test, cheapest first, with one summary line.

mod skips;
mod summary;

use std::fs;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};

pub(crate) use self::skips::{Expected, Place};
pub(crate) use self::summary::{Reader, Tally};
use crate::build::{self, Built};
use crate::step::{execute, is_root, say, show, stream};
use crate::{build_ebpf, tidy, vm, workspace};

/// Packages whose tests need root and the eBPF object.
const PRIVILEGED: [&str; 2] = ["tests", "datapath"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// unit: no root needed; netns: as root on this kernel; vm: on Debian's kernels
    #[arg(long, value_enum, default_value = "all")]
    tier: Tier,
    /// Kernels of the vm tier
    #[arg(long = "kernel", value_name = "VERSION", default_value = "5.10")]
    kernels: Vec<String>,
    /// Only tests whose name contains this (static checks are left out then)
    #[arg(last = true)]
    filter: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Tier {
    Unit,
    Netns,
    Vm,
    All,
}

impl Tier {
    fn includes(self, tier: Tier) -> bool {
        self == Tier::All || self == tier
    }
}

/// Runs the chosen tiers to their end, whatever fails on the way.
pub(crate) fn run(options: &Options) -> crate::Done {
    let mut report = Report::new()?;
    let filter = options.filter.as_slice();
    let host = Place::Host { root: is_root() };
    if options.tier.includes(Tier::Unit) {
        say("tier unit: static checks and tests that need neither root nor the BPF toolchain");
        if filter.is_empty() {
            static_checks(&mut report);
        }
        report.stage("unit tests", &host, |tally| unit(filter, tally));
    }
    if options.tier.includes(Tier::Netns) || options.tier.includes(Tier::Vm) {
        let built = report.stage("build", &host, |_| build::everything(true));
        if options.tier.includes(Tier::Netns) {
            say("tier netns: privileged tests in network namespaces of this machine");
            if filter.is_empty() {
                report.stage("clippy (eBPF)", &host, |_| build_ebpf::clippy());
            }
            report.stage("privileged tests", &host, |tally| {
                privileged(
                    built.as_ref().context("there is nothing to test")?,
                    filter,
                    tally,
                )
            });
        }
        if options.tier.includes(Tier::Vm) {
            for version in &options.kernels {
                say(format!(
                    "tier vm: privileged tests on Debian's kernel {version}"
                ));
                let name = format!("kernel {version}");
                report.stage(&name, &Place::Kernel(version.clone()), |tally| {
                    let built = built.as_ref().context("there is nothing to test")?;
                    vm::test_kernel(version, built, filter, tally)
                });
            }
        }
    }
    Ok(report.close())
}

fn static_checks(report: &mut Report) {
    let host = Place::Host { root: is_root() };
    report.stage("fmt", &host, |_| {
        execute(&mut workspace::cargo(["fmt", "--all", "--check"]))
    });
    report.stage("clippy", &host, |_| {
        execute(&mut workspace::cargo([
            "clippy",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]))?;
        execute(
            workspace::cargo(["clippy", "--package", "tests", "--all-targets"])
                .args(["--", "-D", "warnings"]),
        )
    });
    report.stage("tidy", &host, |_| tidy::check());
}

fn unit(filter: &[String], tally: &mut Tally) -> Result<()> {
    cargo_test(
        &mut workspace::cargo(["test", "--no-fail-fast"]),
        &[],
        filter,
        tally,
    )
}

fn privileged(built: &Built, filter: &[String], tally: &mut Tally) -> Result<()> {
    if !is_root() {
        bail!("network namespaces and BPF need root: run as root, or choose `--tier unit`");
    }
    let mut command = release_tests();
    command.arg("--no-fail-fast");
    for package in PRIVILEGED {
        command.args(["--package", package]);
    }
    built.describe_to(&mut command);
    // Each test starts an agent of its own: more at a time only makes them wait for each other.
    let threads = std::thread::available_parallelism().map_or(2, |cores| cores.get().min(8));
    cargo_test(
        &mut command,
        &[format!("--test-threads={threads}")],
        filter,
        tally,
    )
}

/// `cargo test --release` as the privileged tests are built, here and for the VMs: without the
/// link-time optimisation the shipped binaries get, which costs minutes and finds nothing.
pub(crate) fn release_tests() -> Command {
    let mut command = workspace::cargo(["test", "--release"]);
    command
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    command
}

/// Runs a `cargo test` command and counts what it prints.
fn cargo_test(
    command: &mut Command,
    arguments: &[String],
    filter: &[String],
    tally: &mut Tally,
) -> Result<()> {
    let log = workspace::target().join(format!("skips-{}.log", std::process::id()));
    // The fixture appends here: libtest shows nothing of a test that passed.
    command.env("PODNET_SKIP_LOG", &log);
    command
        .args(["--", "--show-output"])
        .args(arguments)
        .args(filter);
    say(show(command));
    let mut reader = Reader::default();
    let status = stream(command, |line| {
        if reader.line(line) {
            println!("{line}");
        }
    })?;
    for line in fs::read_to_string(&log).unwrap_or_default().lines() {
        reader.line(line);
    }
    // Absent when nothing was skipped.
    let _ = fs::remove_file(&log);
    tally.add(reader.finish());
    if !status.success() {
        bail!("`{}` failed: {status}", show(command));
    }
    Ok(())
}

/// What happened so far.
pub(crate) struct Report {
    expected: Expected,
    stages: Vec<(String, bool, u64)>,
    tally: Tally,
}

impl Report {
    /// An empty report with this repository's list of expected skips.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            expected: Expected::load()?,
            stages: Vec::new(),
            tally: Tally::default(),
        })
    }

    /// Runs one stage; a failure is printed and remembered, and the next stage still runs.
    pub(crate) fn stage<T>(
        &mut self,
        name: &str,
        place: &Place,
        body: impl FnOnce(&mut Tally) -> Result<T>,
    ) -> Option<T> {
        say(format!("--- {name}"));
        let started = Instant::now();
        let mut tally = Tally::default();
        let result = body(&mut tally);
        if let Err(error) = &result {
            say(format!("{name}: FAILED: {error:#}"));
            // A check, or a test binary that died before it could count.
            tally.failed = tally.failed.max(1);
        }
        let unexpected: Vec<String> = tally
            .skipped
            .iter()
            .filter(|(test, reason)| !self.expected.allows(place, test, reason))
            .map(|(test, _)| test.clone())
            .collect();
        for test in &unexpected {
            let reason = tally.skipped.remove(test).unwrap_or_default();
            say(format!("{name}: unexpected skip of {test}: {reason}"));
            tally.failed += 1;
        }
        let passed = tally.failed == 0;
        self.stages
            .push((name.to_owned(), passed, started.elapsed().as_secs()));
        self.tally.add(tally);
        result.ok()
    }

    /// Prints the table and, as the last line, the sum.
    pub(crate) fn close(self) -> ExitCode {
        say("--- summary");
        for (name, passed, seconds) in &self.stages {
            let word = if *passed { "ok" } else { "FAILED" };
            say(format!("{word:<7} {seconds:>5} s  {name}"));
        }
        for (test, reason) in &self.tally.skipped {
            say(format!("skipped {test}: {reason}"));
        }
        println!("{}", self.tally);
        if self.tally.failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place::Host { root: true };

    fn report() -> Report {
        Report {
            expected: Expected::default(),
            stages: Vec::new(),
            tally: Tally::default(),
        }
    }

    #[test]
    fn a_stage_that_dies_without_a_count_is_one_failure() {
        let mut report = report();
        let none: Option<()> = report.stage("clippy", &PLACE, |_| bail!("warnings"));
        assert!(none.is_none());
        assert_eq!(report.tally.failed, 1);
        assert!(!report.stages[0].1);
    }

    #[test]
    fn a_stage_that_counted_its_failures_is_not_counted_again() {
        let mut report = report();
        report.stage("unit", &PLACE, |tally| -> Result<()> {
            tally.failed = 3;
            bail!("cargo test failed")
        });
        assert_eq!(report.tally.failed, 3);
    }

    #[test]
    fn an_unexpected_skip_is_a_failure() {
        let mut report = report();
        report.stage("privileged", &PLACE, |tally| {
            tally
                .skipped
                .insert("a::b".into(), "no reason that holds".into());
            Ok(())
        });
        assert_eq!(report.tally.to_string(), "0 passed, 1 failed, 0 skipped");
        assert!(!report.stages[0].1);
    }
}
