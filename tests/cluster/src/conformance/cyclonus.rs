//! cyclonus: network policies made of a grammar, and the answers of its engine.
//!
//! For each case it makes policies, and lets 9 pods connect to all of them, at two ports by TCP and UDP.

mod output;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use self::output::Output;
use super::super::golang::oracle::CYCLONUS;
use super::super::{binaries, golang, node, place};
use super::page::{self, Page};
use super::report::Results;
use super::{Network, Ran, delete, directory, images, next_to_control, nodes};
use xtask::step::{leave_signals_to_children, say, show, stream};

const SUITE: &str = "cyclonus";
/// The image of its pods: agnhost, and the program that connects to the others.
const IMAGE: &str = "docker.io/mfenwick100/cyclonus-worker:latest";
const WORKER: &str = "worker";
/// Namespaces that it makes.
const NAMESPACES: [&str; 3] = ["x", "y", "z"];
/// Cases of SCTP, which its pods do not serve here.
const EXCLUDE: &str = "sctp";
const LOG: &str = "output.log";

#[derive(clap::Args)]
pub(super) struct Options {
    /// Only cases with one of these tags; `--list` shows tags
    #[arg(long, value_name = "TAGS")]
    include: Option<String>,
    /// Not the cases with one of these tags
    #[arg(long, value_name = "TAGS", default_value = EXCLUDE)]
    exclude: String,
    /// How long a connection may take before it counts as denied, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..))]
    timeout: u8,
    /// How long a change of policies may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    wait: u8,
    /// Show the cases that would run, with their tags, and run none
    #[arg(long)]
    list: bool,
    /// Write the result as a page, too
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// Runs the cases.
///
/// # Errors
/// There is no cluster, something cannot be built or started, or a case fails.
pub(super) fn run(options: &Options) -> xtask::Done {
    let programs = golang::suite::cyclonus(&binaries::dir())?;
    let program = programs.join(SUITE);
    if options.list {
        return list(options, &program);
    }
    let nodes = nodes()?;
    Network::must_be_native()?;
    let worker = (&*format!("/{WORKER}"), &*programs.join(WORKER));
    let places = place::dir().join("suite-images");
    let agnhost = golang::suite::agnhost_connect(&binaries::dir())?;
    let archive =
        images::write_agnhost(IMAGE, (&agnhost, images::Sctp::Kernel), &[worker], &places)?;
    for name in &nodes {
        node::import(name, &archive)?;
    }
    let dir = directory(SUITE)?;
    // A run that was killed has left them, and its pods may be old ones.
    clean()?;
    leave_signals_to_children()?;
    let ran = cases(options, &program, &dir);
    clean()?;
    let results = ran?;
    let ran = Ran {
        suite: SUITE,
        dir: &dir,
        results: &results,
    };
    ran.finish(options.page.as_ref(), |path| {
        page(&results, options, path, nodes.len())
    })
}

/// Removes the namespaces, with pods and policies.
fn clean() -> Result<()> {
    let mut what = vec!["namespaces"];
    what.extend(NAMESPACES);
    delete(&what)
}

/// Shows the cases of the options.
fn list(options: &Options, program: &Path) -> xtask::Done {
    let mut command = Command::new(program);
    generate(&mut command, options).args(["--mock", "--dry-run"]);
    let mut inside = false;
    let status = stream(&mut command, |line| {
        inside |= line.starts_with("test cases to run");
        if inside {
            println!("{line}");
        }
    })?;
    if !status.success() {
        bail!("`{}` failed: {status}", show(&command));
    }
    Ok(std::process::ExitCode::SUCCESS)
}

fn generate<'a>(command: &'a mut Command, options: &Options) -> &'a mut Command {
    command
        .args([
            "generate",
            "--destination-type=pod-ip",
            "--server-protocol=TCP,UDP",
        ])
        .args(
            options
                .include
                .iter()
                .map(|tags| format!("--include={tags}")),
        )
        .arg(format!("--exclude={}", options.exclude))
        .arg(format!("--job-timeout-seconds={}", options.timeout))
        .arg(format!("--perturbation-wait-seconds={}", options.wait))
        // A pod that connects to its own address does not leave it.
        .arg("--ignore-loopback")
        .arg("--pod-creation-timeout-seconds=300")
}

/// Runs the cases; what the program prints goes to a file.
fn cases(options: &Options, program: &Path, dir: &Path) -> Result<Results> {
    let date = page::today()?;
    let begin = Instant::now();
    let mut command = next_to_control(program)?;
    generate(&mut command, options);
    say(show(&command));
    let path = dir.join(LOG);
    let mut log = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    command.stderr(log.try_clone().context("the log")?);
    let mut output = Output::default();
    let mut written = Ok(());
    let status = stream(&mut command, |line| {
        if written.is_ok() {
            written = writeln!(log, "{line}");
        }
        if let Some(news) = output.line(line, begin.elapsed().as_secs()) {
            say(news);
        }
    })?;
    written.with_context(|| format!("writing {}", path.display()))?;
    let specs = output.specs();
    if specs.is_empty() {
        bail!(
            "cyclonus has not begun: {status}; {} says why",
            path.display()
        );
    }
    Ok(Results {
        specs,
        date,
        seconds: begin.elapsed().as_secs(),
    })
}

fn page(results: &Results, options: &Options, path: &Path, nodes: usize) -> Result<String> {
    let mut arguments = SUITE.to_owned();
    if let Some(tags) = &options.include {
        arguments.push_str(&format!(" --include {}", page::quoted(tags)));
    }
    if options.exclude != EXCLUDE {
        arguments.push_str(&format!(" --exclude {}", page::quoted(&options.exclude)));
    }
    arguments.push_str(&format!(" --page {}", path.display()));
    let page = Page {
        introduction: INTRODUCTION,
        network: Network::Native.word(),
        nodes,
        arguments: &arguments,
        with: &format!("cyclonus {CYCLONUS}"),
        what: &format!(
            "Pods connect to the addresses of pods, by TCP and UDP. Cases of SCTP, which the kernel of this machine \
             need not have, are left out by their tag. A pod is asked once for all its connections of a step: cyclonus can do \
             so, though its command has no option for it. A connection counts as denied after {} s, and the cluster has \
             {} s for each change of policies. In a step each of 9 pods connects to each other at each port; where an \
             answer is wrong the step is tried again once. What is wrong is counted in pairs of pods. A case has its tags in parentheses.",
            options.timeout, options.wait
        ),
    };
    page.text(results)
}

const INTRODUCTION: &str = "# Network policies of cyclonus

cyclonus makes network policies of a grammar, works out with an engine of its own which pod may then reach which, and
tries all of it. It ran with podnet as the cluster's network ([default-network.md](default-network.md)). Others' tests
of ClusterNetworkPolicy: [network-policy-api.md](network-policy-api.md).";
