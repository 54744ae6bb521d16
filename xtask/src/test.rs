//! `cargo xtask test`: every check and test, cheapest first, with one summary line.

mod disk;
pub(crate) mod programs;
mod report;
mod skips;
mod summary;

use std::fs;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

pub use self::programs::release_tests;
pub(crate) use self::report::Report;
pub(crate) use self::skips::Place;
pub(crate) use self::summary::Rest;
pub use self::summary::{Reader, Tally};
use crate::build::{self, Built};
use crate::conformance;
use crate::matrix::Recorder;
use crate::step::{capture, execute, is_root, say, show};
use crate::{bench, build_ebpf, cluster, demo, interop, kubernetes, tidy, vm, workspace};

/// Where tests find kubectl's plugin.
const PLUGIN: &str = "PODNET_KUBECTL_PLUGIN";

/// Reason of tests that need Helm, when there is no time to build it.
const LEFT_OUT: &str = "left out by --helm-before";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// unit: no root needed; netns: as root on this kernel; kubernetes: with a real
    /// API server; vm: on Debian's kernels; cluster: in a cluster of two nodes
    #[arg(long, value_enum, default_value = "all")]
    tier: Tier,
    /// Leave the kubernetes tier out of all, saying so, when this much time is over
    /// after the build: its server takes minutes to build
    #[arg(long, value_name = "MINUTES")]
    kubernetes_before: Option<u64>,
    /// Leave the tests of the Helm chart out of all, saying so, when this much time is
    /// over after the build: Helm takes minutes to build
    #[arg(long, value_name = "MINUTES")]
    helm_before: Option<u64>,
    /// Leave the cluster tier out of all, saying so, when this much time is over
    /// after the build: its programs take minutes to build, too
    #[arg(long, value_name = "MINUTES")]
    cluster_before: Option<u64>,
    /// Leave the cluster tier out of all, saying so, when this much time is over
    /// before itself
    #[arg(long, value_name = "MINUTES")]
    cluster_start_by: Option<u64>,
    /// End the machines of all when this much time is over, and with --tier vm each
    /// after this much time; tests that have not run by then are left out, and said
    #[arg(long, value_name = "MINUTES")]
    vm_end: Option<u64>,
    /// Record what ran in docs/kernels.json and the table of docs/compatibility.md;
    /// --kernels all does
    #[arg(long)]
    record: bool,
    /// Kernels of the vm tier, as many at a time as there are processors; all: each
    /// of them
    #[arg(
        long = "kernels",
        visible_alias = "kernel",
        value_name = "VERSION",
        default_value = "5.10"
    )]
    kernels: Vec<String>,
    /// Only tests whose name contains this (static checks are left out then)
    #[arg(last = true)]
    filter: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Tier {
    Unit,
    Netns,
    Kubernetes,
    Vm,
    Cluster,
    All,
}

impl Tier {
    fn includes(self, tier: Tier) -> bool {
        self == Tier::All || self == tier
    }
}

impl Options {
    /// Whether the tests with an API server are to run, when this much time has passed.
    fn tests_api(&self, passed: Duration) -> bool {
        let limit = ("--kubernetes-before", self.kubernetes_before);
        self.tier.includes(Tier::Kubernetes) && is_early("kubernetes", limit, passed)
    }

    /// Whether the tests with Helm are to run, when those with an API server do.
    fn tests_chart(&self, passed: Duration) -> bool {
        is_early(
            "kubernetes, with Helm,",
            ("--helm-before", self.helm_before),
            passed,
        )
    }

    /// Whether the tests with a cluster are to be prepared for.
    fn prepares_cluster(&self, passed: Duration) -> bool {
        let limit = ("--cluster-before", self.cluster_before);
        self.tier.includes(Tier::Cluster) && is_early("cluster", limit, passed)
    }

    /// Returns when machines end, in a run that began at `started`.
    fn machines_end(&self, started: Instant) -> vm::End {
        match self.vm_end.map(|it| Duration::from_secs(it * 60)) {
            None => vm::End::Never,
            Some(time) if self.tier == Tier::All => vm::End::At(started + time),
            Some(time) => vm::End::After(time),
        }
    }

    /// Returns the recorder of a run that is to be recorded.
    ///
    /// # Errors
    /// The run would not be a whole one, or the checkout has changes.
    fn recorder(&self) -> Result<Option<Recorder>> {
        if !self.record && !self.kernels.iter().any(|version| version == vm::ALL) {
            return Ok(None);
        }
        if !self.filter.is_empty() {
            bail!(
                "--record and --kernels all record what ran of all tests: remove the part of a test's name, \
                 or name the kernels without --record"
            );
        }
        Recorder::new().map(Some)
    }

    /// Whether they are to run, after all others.
    fn starts_cluster(&self, passed: Duration) -> bool {
        is_early(
            "cluster",
            ("--cluster-start-by", self.cluster_start_by),
            passed,
        )
    }
}

/// Whether less than so many minutes have passed; if not, that is said.
fn is_early(tier: &str, (option, limit): (&str, Option<u64>), passed: Duration) -> bool {
    let late = limit.filter(|minutes| passed > Duration::from_secs(minutes * 60));
    if let Some(minutes) = late {
        say(format!(
            "tier {tier} is left out: more than {minutes} minutes have passed ({option})"
        ));
    }
    late.is_none()
}

/// Runs the chosen tiers to their end, whatever fails on the way.
pub(crate) fn run(options: &Options) -> crate::Done {
    let started = Instant::now();
    let kernels = vm::kernels(&options.kernels)?;
    let recorder = options.recorder()?;
    if options.tier == Tier::All {
        disk::check()?;
    }
    let mut report = Report::new()?;
    let check_ins = conformance::directory();
    fs::create_dir_all(&check_ins).with_context(|| format!("making {}", check_ins.display()))?;
    let filter = options.filter.as_slice();
    if options.tier.includes(Tier::Unit) {
        say("tier unit: static checks and tests that need neither root nor the BPF toolchain");
        if filter.is_empty() {
            static_checks(&mut report);
        }
        let done = report.stage("unit tests", &Place::Unit, |tally| unit(filter, tally));
        report.here().ended(conformance::Tier::Unit, done);
    }
    if options.tier != Tier::Unit {
        let built = report.stage("build", &Place::Host, |_| programs::build());
        let end = options.machines_end(started);
        let binaries = built.as_ref().filter(|_| options.tier.includes(Tier::Vm));
        let binaries = binaries.filter(|_| vm::is_worth_it(end)).and_then(|built| {
            report.stage("build (vm)", &Place::Host, |_| {
                vm::tools().and_then(|()| vm::test_binaries(built))
            })
        });
        let plan = built.as_ref().zip(binaries.as_ref());
        let plan = plan.map(|(built, binaries)| vm::Plan {
            versions: &kernels,
            built,
            binaries,
            filter,
            end,
            recorder: recorder.as_ref(),
        });
        let here = Here {
            options,
            built: built.as_ref(),
            recorder: recorder.as_ref(),
            started,
        };
        // Tests on this machine wait half of the time: machines and builds of others' programs use it.
        thread::scope(|scope| {
            let machines = plan.as_ref().map(|plan| scope.spawn(|| plan.run()));
            here.run(&mut report);
            let ended = machines.map(|it| it.join().unwrap_or_else(|panic| resume_unwind(panic)));
            for kernel in ended.into_iter().flatten() {
                kernel.report(&mut report);
            }
        });
    }
    let run = std::mem::take(report.here());
    if filter.is_empty() {
        report.stage("conformance", &Place::Host, |_| conformance::compare(&run));
    } else {
        // A part of the tests proves a part of the page.
        let _ = fs::remove_dir_all(check_ins);
    }
    Ok(report.close())
}

/// The tiers that need root, on this machine.
struct Here<'a> {
    options: &'a Options,
    built: Option<&'a Built>,
    recorder: Option<&'a Recorder>,
    /// When the run began.
    started: Instant,
}

impl Here<'_> {
    /// Runs them, and builds programs of later ones while the first runs.
    fn run(&self, report: &mut Report) {
        let (options, host) = (self.options, Place::Host);
        let (api, nodes) = (
            options.tests_api(self.started.elapsed()),
            options.prepares_cluster(self.started.elapsed()),
        );
        let nodes = nodes.then(|| cluster::check().and_then(|()| kubernetes::packages()));
        let build = match &nodes {
            Some(Ok(())) => Some(kubernetes::for_cluster as fn() -> _),
            _ => api.then_some(kubernetes::for_tests as fn() -> _),
        };
        let chart = api && options.tests_chart(self.started.elapsed());
        let helm = move || match chart {
            true => kubernetes::helm(),
            false => Err(anyhow!("{LEFT_OUT}")),
        };
        let programs = build.map(|build| thread::spawn(move || (build(), helm())));
        if options.tier.includes(Tier::Netns) {
            self.namespaces(report);
        }
        let programs =
            programs.map(|built| built.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let filter = options.filter.as_slice();
        if let Some(programs) = programs.as_ref().filter(|_| api) {
            say("tier kubernetes: tests with a real API server");
            let done = report.stage("API tests", &host, |tally| {
                api_server(self.built()?, programs, filter, tally)
            });
            report.here().ended(conformance::Tier::Kubernetes, done);
        }
        let can = match (&nodes, &programs) {
            (Some(Err(why)), _) | (_, Some((Err(why), _))) => Err(why),
            _ => Ok(()),
        };
        if nodes.is_some() && options.starts_cluster(self.started.elapsed()) {
            say("tier cluster: podnet in a cluster of two nodes");
            report.stage("e2e tests", &host, |tally| {
                nodes_and_pods(self.built()?, can, filter, tally)
            });
        }
    }

    fn namespaces(&self, report: &mut Report) {
        say("tier netns: privileged tests in network namespaces of this machine");
        let (filter, host) = (self.options.filter.as_slice(), Place::Host);
        if filter.is_empty() {
            report.stage("clippy (eBPF)", &host, |_| build_ebpf::clippy());
        }
        let done = report.stage("privileged tests", &host, |tally| {
            let done = privileged(self.built()?, filter, tally);
            if let Some(recorder) = self.recorder {
                let release = capture(Command::new("uname").arg("-r"))?;
                recorder.record("host", release.trim(), tally)?;
            }
            done
        });
        report.here().ended(conformance::Tier::Netns, done);
        if filter.is_empty()
            && let Some(built) = self.built
        {
            report.stage("demo", &host, |_| demo::with(built));
            // For function: no figure fails it.
            report.stage("bench --quick", &host, |_| bench::quick(built));
        }
    }

    fn built(&self) -> Result<&Built> {
        self.built.context("there is nothing to test")
    }
}

fn static_checks(report: &mut Report) {
    let host = Place::Unit;
    report.stage("fmt", &host, |_| {
        execute(&mut workspace::cargo([
            "fmt", "--all", "--", "--check", "-l",
        ]))
    });
    report.stage("clippy", &host, |_| {
        // The kernel programs have another target, and a stage of their own.
        execute(
            workspace::cargo(["clippy", "--workspace", "--exclude", "agent-ebpf"]).args([
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ]),
        )
    });
    report.stage("tidy", &host, |_| tidy::check());
}

fn unit(filter: &[String], tally: &mut Tally) -> Result<()> {
    // All at once: libraries would be built again for another choice of packages.
    let mut command = workspace::cargo(["test", "--no-fail-fast", "--workspace"]);
    command.args(["--exclude", "agent-ebpf", "--exclude", "tests"]);
    cargo_test(&mut command, &[], filter, tally)
}

fn privileged(built: &Built, filter: &[String], tally: &mut Tally) -> Result<()> {
    if !is_root() {
        bail!("network namespaces and BPF need root: run as root, or choose `--tier unit`");
    }
    let others = interop::install()?;
    let plugin = build::kubectl_plugin(None)?;
    let mut command = release_tests();
    command.arg("--no-fail-fast");
    programs::privileged(&mut command)?;
    built.describe_to(&mut command);
    others.describe_to(&mut command);
    command
        .env(PLUGIN, plugin)
        .env_remove("PODNET_KUBERNETES")
        .env("PODNET_NO_KUBERNETES", "see the tier kubernetes")
        .env_remove("PODNET_HELM")
        .env("PODNET_NO_HELM", "see the tier kubernetes");
    // Each test starts an agent of its own: more at a time only makes them wait for each other.
    let threads = thread::available_parallelism().map_or(2, |cores| cores.get().min(8));
    cargo_test(
        &mut command,
        &[format!("--test-threads={threads}")],
        filter,
        tally,
    )
}

fn api_server(
    built: &Built,
    (programs, helm): &(Result<PathBuf>, Result<PathBuf>),
    filter: &[String],
    tally: &mut Tally,
) -> Result<()> {
    let mut command = release_tests();
    built.describe_to(&mut command);
    command.env(PLUGIN, build::kubectl_plugin(None)?);
    command.args(["--no-fail-fast", "--test", programs::API]);
    match programs {
        Ok(programs) => command.env("PODNET_KUBERNETES", programs),
        Err(why) => command.env("PODNET_NO_KUBERNETES", format!("{why:#}")),
    };
    match helm {
        Ok(helm) => command.env("PODNET_HELM", helm),
        Err(why) => command
            .env_remove("PODNET_HELM")
            .env("PODNET_NO_HELM", format!("{why:#}")),
    };
    cargo_test(&mut command, &[], filter, tally)
}

/// A machine that cannot have a cluster skips all of its tests.
fn nodes_and_pods(
    built: &Built,
    can: Result<(), &anyhow::Error>,
    filter: &[String],
    tally: &mut Tally,
) -> Result<()> {
    if let Err(why) = can {
        let reason = format!("needs a cluster: {why:#}");
        tally.skipped.insert("e2e".to_owned(), reason);
        return Ok(());
    }
    cluster::tier(built, filter, tally)
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
    command
        .env("PODNET_SKIP_LOG", &log)
        .env(conformance::VARIABLE, conformance::directory());
    command
        .args(["--", "--show-output"])
        .args(arguments)
        .args(filter);
    say(show(command));
    let mut reader = Reader::default();
    let status = reader.follow(command)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_is_left_out_as_soon_as_its_time_is_over() {
        let passed = Duration::from_secs(1800);
        assert!(is_early("vm", ("--before", None), passed));
        assert!(is_early("vm", ("--before", Some(30)), passed));
        let passed = passed + Duration::from_secs(1);
        assert!(!is_early("vm", ("--before", Some(30)), passed));
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(words: &[&str]) -> Options {
        let line = ["test"].iter().chain(words);
        <Line as clap::Parser>::parse_from(line).options
    }

    #[test]
    fn machines_of_all_tiers_end_in_time_and_those_of_their_own_tier_run_to_the_end() {
        let now = Instant::now();
        let end = |words: &[&str]| options(words).machines_end(now);
        let time = Duration::from_secs(44 * 60);
        assert_eq!(end(&["--vm-end", "44"]), vm::End::At(now + time));
        assert_eq!(end(&[]), vm::End::Never);
        let each = end(&["--vm-end", "44", "--tier", "vm"]);
        assert_eq!(each, vm::End::After(time));
    }

    #[test]
    fn a_recorded_run_is_of_all_tests() {
        let recorder = |words: &[&str]| options(words).recorder();
        assert!(recorder(&["--kernel", "5.10"]).unwrap().is_none());
        for recorded in [&["--kernels", "all"][..], &["--record"]] {
            let words = [recorded, &["--", "cni"]].concat();
            let error = recorder(&words).unwrap_err().to_string();
            assert!(error.contains("of all tests"), "{error}");
        }
    }

    #[test]
    fn the_cluster_is_part_of_all_and_of_no_other_tier() {
        assert!(Tier::All.includes(Tier::Cluster));
        assert!(Tier::Cluster.includes(Tier::Cluster));
        assert!(!Tier::Kubernetes.includes(Tier::Cluster));
    }
}
