//! The tests of ClusterNetworkPolicy, by those who define it.
//!
//! They connect to pods by their own addresses, from 8 pods in 4 namespaces and 2 in the network of their
//! nodes, and each pod has servers of SCTP.

mod output;
mod source;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use self::output::Output;
use self::source::{Source, Test};
use super::super::golang::suite::NETWORK_POLICY_API;
use super::super::{binaries, golang, kubectl, node, place};
use super::page::{self, Page};
use super::report::{Outcome, Results, Spec};
use super::{
    NO_SCTP, Network, Ran, delete, directory, images, kernel_has_sctp, next_to_control, nodes,
};
use xtask::step::{capture, execute, leave_signals_to_children, say, show, stream, succeeds};

const SUITE: &str = "network-policy-api";
/// The definition, in the cluster.
const DEFINITION: &str =
    "customresourcedefinitions/clusternetworkpolicies.policy.networking.k8s.io";
const POLICIES: &str = "clusternetworkpolicies.policy.networking.k8s.io";
/// The label of the namespaces of the tests.
const NAMESPACES: &str = "conformance-house";
/// Nodes that the tests need: two of their pods have the same ports of their nodes.
const NODES: usize = 2;
const LOG: &str = "output.log";

#[derive(clap::Args)]
pub(super) struct Options {
    /// Only tests whose name has one of these in it, as Egress
    #[arg(long, value_name = "WORD", value_delimiter = ',')]
    only: Vec<String>,
    /// Features that are not in the standard channel, too: named ports, nodes
    #[arg(long)]
    experimental: bool,
    /// Write the result as a page, too
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// Runs the tests.
///
/// # Errors
/// There is no cluster, something cannot be built or started, or a test fails.
pub(super) fn run(options: &Options) -> xtask::Done {
    let nodes = nodes()?;
    if nodes.len() < NODES {
        bail!(
            "the tests of {SUITE} need {NODES} nodes, and this cluster has {}",
            nodes.len()
        );
    }
    Network::must_be_native()?;
    let module = golang::suite::network_policy_api_source()?;
    let source = Source::read(&module)?;
    let chosen = source.chosen(&options.only);
    if chosen.is_empty() {
        bail!(
            "no test of {SUITE} has {} in its name",
            options.only.join(" or ")
        );
    }
    let program = golang::suite::network_policy_api(&binaries::dir())?;
    let dir = directory(SUITE)?;
    load(&source, &nodes)?;
    let is_ours = define(&module, options.experimental)?;
    leave_signals_to_children()?;
    let plan = Plan::new(&chosen, kernel_has_sctp());
    let ran = plan.run(&program, &dir, options.experimental);
    // Also after a run that was stopped half-way.
    clean(is_ours)?;
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

/// Puts the image of the tests' pods on the nodes.
fn load(source: &Source, nodes: &[String]) -> Result<()> {
    let sctp = if kernel_has_sctp() {
        images::Sctp::Kernel
    } else {
        images::Sctp::Waits
    };
    let agnhost = golang::suite::agnhost(&binaries::dir())?;
    let places = place::dir().join("suite-images");
    for image in &source.images {
        let archive = images::write_agnhost(image, (&agnhost, sctp), &[], &places)?;
        for name in nodes {
            node::import(name, &archive)?;
        }
    }
    Ok(())
}

/// Defines ClusterNetworkPolicy where it is not, and says whether that was done.
///
/// # Errors
/// The API server refuses, or there are policies already, which would be judged with those of the tests.
fn define(module: &Path, experimental: bool) -> Result<bool> {
    if succeeds(kubectl()?.args(["get", DEFINITION])) {
        let there = capture(kubectl()?.args(["get", POLICIES, "-o", "name"]))?;
        if let Some(first) = there.lines().next() {
            bail!(
                "the cluster has policies, as {first}, and those of the tests would not be the only ones: \
                 `cargo xtask cluster kubectl delete {POLICIES} --all`"
            );
        }
        return Ok(false);
    }
    let channel = if experimental {
        "experimental"
    } else {
        "standard"
    };
    let file = module
        .join("config/crd")
        .join(channel)
        .join("policy.networking.k8s.io_clusternetworkpolicies.yaml");
    execute(kubectl()?.args(["create", "-f"]).arg(file))?;
    let wait = ["wait", "--for=condition=Established", "--timeout=60s"];
    execute(kubectl()?.args(wait).arg(DEFINITION))?;
    Ok(true)
}

/// Removes all that the tests may have left, and the definition if it is ours.
fn clean(is_ours: bool) -> Result<()> {
    say("removing what the tests have made");
    delete(&[POLICIES, "--all"])?;
    delete(&["namespaces", "-l", NAMESPACES])?;
    if is_ours {
        delete(&[DEFINITION])?;
    }
    Ok(())
}

/// The tests that run, and those that this kernel does not allow.
struct Plan {
    /// Patterns of `-test.run` and `-test.skip`; without the first none runs.
    run: Option<String>,
    skip: Option<String>,
    skipped: Vec<Spec>,
}

impl Plan {
    fn new(chosen: &[&Test], has_sctp: bool) -> Self {
        let mut run = Vec::new();
        let mut skip = Vec::new();
        let mut skipped = Vec::new();
        for test in chosen {
            let without = test.parts.iter().filter(|part| part.sctp && !has_sctp);
            let without: Vec<&str> = without.map(|part| part.name.as_str()).collect();
            skipped.extend(without.iter().map(|name| Spec {
                name: format!("{} {name}", test.name),
                outcome: Outcome::Skipped(NO_SCTP.to_owned()),
                seconds: 0,
            }));
            if without.len() == test.parts.len() {
                continue;
            }
            run.push(test.name.as_str());
            skip.extend(without.iter().map(|part| {
                let part = output::pattern(part);
                format!("^{}$/^{}$/^{part}$", output::ROOT, test.name)
            }));
        }
        Self {
            run: (!run.is_empty()).then(|| format!("^{}$/^({})$", output::ROOT, run.join("|"))),
            skip: (!skip.is_empty()).then(|| skip.join("|")),
            skipped,
        }
    }

    /// Runs the tests; what they print goes to a file.
    ///
    /// # Errors
    /// The program cannot be started.
    fn run(mut self, program: &Path, dir: &Path, experimental: bool) -> Result<Results> {
        let date = page::today()?;
        let begin = Instant::now();
        let mut output = Output::default();
        if let Some(run) = &self.run {
            let mut command = next_to_control(program)?;
            command
                .args(["-test.v", "-test.timeout=90m"])
                .arg(format!("-test.run={run}"))
                .args(self.skip.iter().map(|skip| format!("-test.skip={skip}")));
            if experimental {
                command.arg("-all-features");
            }
            say(show(&command));
            let path = dir.join(LOG);
            let mut log =
                File::create(&path).with_context(|| format!("creating {}", path.display()))?;
            let errors = log.try_clone().context("the log")?;
            let mut written = Ok(());
            let status = stream(command.stderr(errors), |line| {
                if written.is_ok() {
                    written = writeln!(log, "{line}");
                }
                if let Some(news) = output.line(line) {
                    say(news);
                }
            })?;
            written.with_context(|| format!("writing {}", path.display()))?;
            output.end(status.success());
        }
        let mut specs = output.specs();
        // Of a test that is skipped as a whole no part would have run.
        let whole: Vec<String> = specs
            .iter()
            .filter(|spec| matches!(spec.outcome, Outcome::Skipped(_)))
            .map(|spec| format!("{} ", spec.name))
            .collect();
        self.skipped
            .retain(|spec| !whole.iter().any(|test| spec.name.starts_with(test)));
        specs.append(&mut self.skipped);
        // The parts of a test stay in their order.
        specs.sort_by(|one, other| {
            one.name
                .split(' ')
                .next()
                .cmp(&other.name.split(' ').next())
        });
        Ok(Results {
            specs,
            date,
            seconds: begin.elapsed().as_secs(),
        })
    }
}

fn page(results: &Results, options: &Options, path: &Path, nodes: usize) -> Result<String> {
    let mut arguments = SUITE.to_owned();
    if !options.only.is_empty() {
        arguments.push_str(&format!(
            " --only {}",
            page::quoted(&options.only.join(","))
        ));
    }
    if options.experimental {
        arguments.push_str(" --experimental");
    }
    arguments.push_str(&format!(" --page {}", path.display()));
    let channel = if options.experimental {
        "standard and experimental"
    } else {
        "standard"
    };
    let sctp = if kernel_has_sctp() {
        ""
    } else {
        " This kernel has no SCTP: servers of SCTP in the tests' pods do nothing, and tests that connect to \
         them are skipped."
    };
    let page = Page {
        introduction: INTRODUCTION,
        network: Network::Native.word(),
        nodes,
        arguments: &arguments,
        with: &format!("network-policy-api {NETWORK_POLICY_API}"),
        what: &format!(
            "The tests are those of the {channel} features. A connection that must fail has to time out: one that \
             is refused fails the test.{sctp}"
        ),
    };
    page.text(results)
}

const INTRODUCTION: &str = "# Tests of ClusterNetworkPolicy

The conformance tests of the project that defines ClusterNetworkPolicy, `policy.networking.k8s.io/v1alpha2`, run with
podnet as the cluster's network ([default-network.md](default-network.md)). Others' tests of NetworkPolicy:
[cyclonus.md](cyclonus.md).";

#[cfg(test)]
mod tests {
    use super::source::Part;
    use super::*;

    fn test(name: &str, parts: &[(&str, bool)]) -> Test {
        let parts = parts.iter().map(|(name, sctp)| Part {
            name: (*name).to_owned(),
            sctp: *sctp,
        });
        Test {
            name: name.to_owned(),
            parts: parts.collect(),
        }
    }

    #[test]
    fn without_sctp_a_test_of_nothing_else_does_not_run_and_its_parts_are_named() {
        let sctp = test("CNPEgressSCTP", &[("one", true), ("two", true)]);
        let tcp = test("CNPEgressTCP", &[("one", false)]);
        let both = test("CNPNodes", &[("allow 'it'", false), ("deny (it)", true)]);
        let plan = Plan::new(&[&sctp, &tcp, &both], false);
        assert_eq!(
            plan.run.as_deref(),
            Some("^TestConformance$/^(CNPEgressTCP|CNPNodes)$")
        );
        assert_eq!(
            plan.skip.as_deref(),
            Some(r"^TestConformance$/^CNPNodes$/^deny_\(it\)$")
        );
        let names: Vec<&str> = plan.skipped.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "CNPEgressSCTP one",
                "CNPEgressSCTP two",
                "CNPNodes deny (it)"
            ]
        );

        assert_eq!(Plan::new(&[&sctp], false).run, None);
        let plan = Plan::new(&[&sctp, &both], true);
        assert_eq!(
            plan.run.as_deref(),
            Some("^TestConformance$/^(CNPEgressSCTP|CNPNodes)$")
        );
        assert!(plan.skip.is_none() && plan.skipped.is_empty());
    }
}
