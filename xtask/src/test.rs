//! `cargo xtask test`: every check and test, cheapest first, with one summary line.

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

pub(crate) use self::report::Report;
pub(crate) use self::skips::Place;
pub(crate) use self::summary::Rest;
pub use self::summary::{Reader, Tally};
use crate::build::{self, Built};
use crate::conformance;
use crate::matrix::Recorder;
use crate::step::{capture, execute, is_root, say, show};
use crate::{bench, build_ebpf, cluster, demo, interop, kubernetes, tidy, vm, workspace};

/// Packages whose tests need root and the eBPF object.
pub(crate) const PRIVILEGED: [&str; 2] = ["tests", "datapath"];

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
    /// before the vm tier: its server takes minutes to build
    #[arg(long, value_name = "MINUTES")]
    kubernetes_before: Option<u64>,
    /// Leave the tests of the Helm chart out of all, saying so, when this much time is
    /// over before the vm tier: Helm takes minutes to build
    #[arg(long, value_name = "MINUTES")]
    helm_before: Option<u64>,
    /// Leave the cluster tier out of all, saying so, when this much time is over
    /// before the vm tier, with which its programs are built
    #[arg(long, value_name = "MINUTES")]
    cluster_before: Option<u64>,
    /// Leave the cluster tier out of all, saying so, when this much time is over
    /// before itself
    #[arg(long, value_name = "MINUTES")]
    cluster_start_by: Option<u64>,
    /// End the vm tier of all when this much time is over, whatever runs; tests that
    /// have not run by then are left out, and that is said
    #[arg(long, value_name = "MINUTES")]
    vm_end: Option<u64>,
    /// The same, where the kubernetes or the cluster tier runs after it
    #[arg(long, value_name = "MINUTES")]
    vm_end_before_others: Option<u64>,
    /// Kernels of the vm tier; all: each of them, and what ran is recorded in
    /// docs/kernels.json and the table of docs/compatibility.md
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

    /// Returns the time from the beginning to the end of the machines.
    ///
    /// `others`: other tiers follow.
    fn machines_end(&self, others: bool) -> Option<Duration> {
        let before_others = self.vm_end_before_others.filter(|_| others);
        let minutes = self.vm_end.into_iter().chain(before_others).min()?;
        (self.tier == Tier::All).then(|| Duration::from_secs(minutes * 60))
    }

    /// Returns the recorder of a run on all kernels; none for another run.
    ///
    /// # Errors
    /// The run would not be a whole one, or the checkout has changes.
    fn recorder(&self) -> Result<Option<Recorder>> {
        if !self.kernels.iter().any(|version| version == vm::ALL) {
            return Ok(None);
        }
        if !self.filter.is_empty() || self.vm_end.is_some() || self.vm_end_before_others.is_some() {
            bail!(
                "--kernels all records what ran, and records whole runs only: remove --vm-end, \
                 --vm-end-before-others and the part of a test's name, or name the kernels"
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
    let mut report = Report::new()?;
    let check_ins = conformance::directory();
    fs::create_dir_all(&check_ins).with_context(|| format!("making {}", check_ins.display()))?;
    let filter = options.filter.as_slice();
    let host = Place::Host;
    if options.tier.includes(Tier::Unit) {
        say("tier unit: static checks and tests that need neither root nor the BPF toolchain");
        if filter.is_empty() {
            static_checks(&mut report);
        }
        let done = report.stage("unit tests", &Place::Unit, |tally| unit(filter, tally));
        report.here().ended(conformance::Tier::Unit, done);
    }
    if [Tier::Kubernetes, Tier::Netns, Tier::Vm, Tier::Cluster]
        .into_iter()
        .any(|tier| options.tier.includes(tier))
    {
        let built = report.stage("build", &host, |_| build::everything(true));
        if options.tier.includes(Tier::Netns) {
            say("tier netns: privileged tests in network namespaces of this machine");
            if filter.is_empty() {
                report.stage("clippy (eBPF)", &host, |_| build_ebpf::clippy());
            }
            let done = report.stage("privileged tests", &host, |tally| {
                let built = built.as_ref().context("there is nothing to test")?;
                let done = privileged(built, filter, tally);
                if let Some(recorder) = &recorder {
                    let release = capture(Command::new("uname").arg("-r"))?;
                    recorder.record("host", release.trim(), tally)?;
                }
                done
            });
            report.here().ended(conformance::Tier::Netns, done);
            if filter.is_empty()
                && let Some(built) = &built
            {
                report.stage("demo", &host, |_| demo::with(built));
                // For function: no figure fails it.
                report.stage("bench --quick", &host, |_| bench::quick(built));
            }
        }
        let (api, nodes) = (
            options.tests_api(started.elapsed()),
            options.prepares_cluster(started.elapsed()),
        );
        let nodes = nodes.then(|| cluster::check().and_then(|()| kubernetes::packages()));
        // While machines run, which keep one processor busy, the others can build the programs.
        let build = match &nodes {
            Some(Ok(())) => Some(kubernetes::for_cluster as fn() -> _),
            _ => api.then_some(kubernetes::for_tests as fn() -> _),
        };
        let chart = api && options.tests_chart(started.elapsed());
        let helm = move || match chart {
            true => kubernetes::helm(),
            false => Err(anyhow!("{LEFT_OUT}")),
        };
        let programs = build.map(|build| thread::spawn(move || (build(), helm())));
        if options.tier.includes(Tier::Vm) {
            let end = options.machines_end(build.is_some());
            virtual_machines(
                &mut report,
                built.as_ref(),
                (&kernels, filter),
                recorder.as_ref(),
                end.map(|it| started + it),
            );
        }
        let programs =
            programs.map(|built| built.join().unwrap_or_else(|panic| resume_unwind(panic)));
        if let Some(programs) = programs.as_ref().filter(|_| api) {
            say("tier kubernetes: tests with a real API server");
            let done = report.stage("API tests", &host, |tally| {
                let built = built.as_ref().context("there is nothing to test")?;
                api_server(built, programs, filter, tally)
            });
            report.here().ended(conformance::Tier::Kubernetes, done);
        }
        let can = match (&nodes, &programs) {
            (Some(Err(why)), _) | (_, Some((Err(why), _))) => Err(why),
            _ => Ok(()),
        };
        if nodes.is_some() && options.starts_cluster(started.elapsed()) {
            say("tier cluster: podnet in a cluster of two nodes");
            report.stage("e2e tests", &host, |tally| {
                nodes_and_pods(can, filter, tally)
            });
        }
    }
    let run = std::mem::take(report.here());
    if filter.is_empty() {
        report.stage("conformance", &host, |_| conformance::compare(&run));
    } else {
        // A part of the tests proves a part of the page.
        let _ = fs::remove_dir_all(check_ins);
    }
    Ok(report.close())
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

fn virtual_machines(
    report: &mut Report,
    built: Option<&Built>,
    (kernels, filter): (&[String], &[String]),
    recorder: Option<&Recorder>,
    end: Option<Instant>,
) {
    if !vm::is_time(end) {
        say("tier vm is left out: its time is over (--vm-end)");
        return;
    }
    let host = Place::Host;
    let nothing = "there is nothing to test";
    let binaries = report.stage("build (vm)", &host, |_| {
        vm::test_binaries(built.context(nothing)?)
    });
    for version in kernels {
        say(format!(
            "tier vm: privileged tests on Debian's kernel {version}"
        ));
        let name = format!("kernel {version}");
        report.stage(&name, &Place::Kernel(version.clone()), |tally| {
            let (built, binaries) = built.zip(binaries.as_ref()).context(nothing)?;
            let done = vm::test_kernel(version, built, binaries, (filter, end), tally);
            if let Some(recorder) = recorder {
                recorder.record(version, &vm::release(version)?, tally)?;
            }
            done
        });
    }
}

fn unit(filter: &[String], tally: &mut Tally) -> Result<()> {
    // Of these packages no more than what needs no root.
    let bench = ["--package", "bench", "--lib"];
    let programs = ["--package", "demo", "--package", "test-cluster"];
    let fixtures = ["--package", "testbed", "--lib"];
    let mut first = Ok(());
    for which in [&[][..], &bench, &programs, &fixtures] {
        let mut command = workspace::cargo(["test", "--no-fail-fast"]);
        let done = cargo_test(command.args(which), &[], filter, tally);
        first = first.and(done);
    }
    first
}

fn privileged(built: &Built, filter: &[String], tally: &mut Tally) -> Result<()> {
    if !is_root() {
        bail!("network namespaces and BPF need root: run as root, or choose `--tier unit`");
    }
    let others = interop::install()?;
    let plugin = build::kubectl_plugin(None)?;
    let mut command = release_tests();
    command.arg("--no-fail-fast");
    for package in PRIVILEGED {
        command.args(["--package", package]);
    }
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
    command.args([
        "--no-fail-fast",
        "--package",
        "tests",
        "--test",
        "kubernetes",
    ]);
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
    can: Result<(), &anyhow::Error>,
    filter: &[String],
    tally: &mut Tally,
) -> Result<()> {
    if let Err(why) = can {
        let reason = format!("needs a cluster: {why:#}");
        tally.skipped.insert("e2e".to_owned(), reason);
        return Ok(());
    }
    cluster::tier(filter, tally)
}

/// Returns `cargo test --release` as the privileged tests are built.
///
/// It is so here and for the VMs: without the link-time optimisation the shipped binaries get, which
/// costs minutes and finds nothing.
pub fn release_tests() -> Command {
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

    /// The minute of the machines' end, without and with other tiers after theirs.
    fn ends(words: &[&str]) -> [Option<u64>; 2] {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: Options,
        }
        let line = ["test"].iter().chain(words);
        let line = <Line as clap::Parser>::parse_from(line);
        [false, true].map(|others| Some(line.options.machines_end(others)?.as_secs() / 60))
    }

    #[test]
    fn machines_end_earlier_where_other_tiers_follow() {
        let both = ["--vm-end", "54", "--vm-end-before-others", "44"];
        assert_eq!(ends(&both), [Some(54), Some(44)]);
        assert_eq!(ends(&both[..2]), [Some(54), Some(54)]);
        assert_eq!(ends(&both[2..]), [None, Some(44)]);
        assert_eq!(ends(&[]), [None, None]);
        let mut alone = both.to_vec();
        alone.extend(["--tier", "vm"]);
        assert_eq!(ends(&alone), [None, None]);
    }

    #[test]
    fn a_recorded_run_is_a_whole_one() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: Options,
        }
        let recorder = |words: &[&str]| {
            let line = ["test"].iter().chain(words);
            <Line as clap::Parser>::parse_from(line).options.recorder()
        };
        assert!(recorder(&["--kernel", "5.10"]).unwrap().is_none());
        for partial in [&["--vm-end", "54"][..], &["--", "cni"]] {
            let words = [&["--kernels", "all"], partial].concat();
            let error = recorder(&words).unwrap_err().to_string();
            assert!(error.contains("whole runs only"), "{error}");
        }
    }

    #[test]
    fn the_cluster_is_part_of_all_and_of_no_other_tier() {
        assert!(Tier::All.includes(Tier::Cluster));
        assert!(Tier::Cluster.includes(Tier::Cluster));
        assert!(!Tier::Kubernetes.includes(Tier::Cluster));
    }
}
