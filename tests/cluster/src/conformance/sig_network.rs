//! Kubernetes' own tests: of networking, and of network policies.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::super::golang::suite::{COREDNS, RUNNER, TESTS};
use super::super::{binaries, golang, kubernetes, node, place};
use super::page::{Page, quoted};
use super::report::Results;
use super::{
    NO_SCTP, Network, Ran, directory, dns, images, kernel_has_sctp, kubeconfig, next_to_control,
    nodes,
};
use xtask::step::{say, show};

/// Tests of networking that every conformant cluster must pass.
const FOCUS: &str = r"\[sig-network\].*\[Conformance\]";
/// Tests of network policies: those of the API, and those that connect.
const NETPOL: &str = r"\[sig-network\] Netpol";
/// A label of tests that connect by SCTP.
const SCTP: &str = "SCTPConnectivity";
const JSON: &str = "report.json";
const JUNIT: &str = "junit.xml";
/// How many specs at a time, where nothing else is said.
const PROCS: u8 = 4;

#[derive(clap::Args)]
pub(super) struct Networking {
    /// Specs whose name matches this
    #[arg(long, value_name = "REGEX", default_value = FOCUS)]
    focus: String,
    /// But not those whose name matches this
    #[arg(long, value_name = "REGEX")]
    skip: Option<String>,
    /// How many specs at a time
    #[arg(long, default_value_t = PROCS, value_parser = clap::value_parser!(u8).range(1..))]
    procs: u8,
    /// Write the result as a page, too
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(super) struct Netpol {
    /// Not the specs whose name matches this
    #[arg(long, value_name = "REGEX")]
    skip: Option<String>,
    /// How many specs at a time
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..))]
    procs: u8,
    /// Write the result as a page, too
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// Specs, and how they run.
struct Chosen<'a> {
    /// Directory of the results, below `target`.
    results: &'a str,
    focus: &'a str,
    skip: Vec<&'a str>,
    procs: u8,
}

/// Runs the tests of networking.
///
/// # Errors
/// There is no cluster, something cannot be built or started, or a spec fails.
pub(super) fn run(options: &Networking) -> xtask::Done {
    let nodes = nodes()?;
    let network = Network::find()?;
    let chosen = Chosen {
        results: "sig-network",
        focus: &options.focus,
        skip: options.skip.iter().map(String::as_str).collect(),
        procs: options.procs,
    };
    let (results, dir) = chosen.run(&nodes, |_| None)?;
    let ran = Ran {
        suite: "the conformance tests of networking",
        dir: &dir,
        results: &results,
    };
    ran.finish(options.page.as_ref(), |path| {
        let page = Page {
            introduction: introduction(network),
            network: network.word(),
            nodes: nodes.len(),
            arguments: &arguments(options, path),
            with: &format!("CoreDNS {COREDNS}"),
            what: &chosen.sentence(),
        };
        page.text(&results)
    })
}

/// Runs the tests of network policies.
///
/// # Errors
/// As [`run`].
pub(super) fn netpol(options: &Netpol) -> xtask::Done {
    let nodes = nodes()?;
    Network::must_be_native()?;
    let without_sctp = !kernel_has_sctp();
    let chosen = Chosen {
        results: "netpol",
        focus: NETPOL,
        skip: options
            .skip
            .as_deref()
            .into_iter()
            .chain(without_sctp.then_some(SCTP))
            .collect(),
        procs: options.procs,
    };
    let (results, dir) = chosen.run(&nodes, |name| {
        let is_left_out = without_sctp && is_netpol(name) && name.contains(SCTP);
        is_left_out.then(|| NO_SCTP.to_owned())
    })?;
    let ran = Ran {
        suite: "netpol",
        dir: &dir,
        results: &results,
    };
    ran.finish(options.page.as_ref(), |path| {
        let skip = options.skip.iter();
        let skip: String = skip
            .map(|regex| format!(" --skip {}", quoted(regex)))
            .collect();
        let page = Page {
            introduction: NETPOL_INTRODUCTION,
            network: Network::Native.word(),
            nodes: nodes.len(),
            arguments: &format!("netpol{skip} --page {}", path.display()),
            with: &format!("CoreDNS {COREDNS}"),
            what: &format!("{} {CLUSTER_IPS}", chosen.sentence()),
        };
        page.text(&results)
    })
}

impl Chosen<'_> {
    /// Runs the specs, and returns their results and the directory of the reports.
    ///
    /// `left_out` says why a spec is not among the chosen, if that is to be told.
    fn run(
        &self,
        nodes: &[String],
        left_out: impl Fn(&str) -> Option<String>,
    ) -> Result<(Results, PathBuf)> {
        let suite = golang::suite::tests(&binaries::dir())?;
        for archive in images::write(&suite, &place::dir().join("e2e-images"))? {
            for name in nodes {
                node::import(name, &archive)?;
            }
        }
        dns::install()?;
        let dir = directory(self.results)?;
        let json = dir.join(JSON);
        // One of an earlier run must not be taken for this one's.
        let _ = fs::remove_file(&json);
        let mut command = self.runner(&suite, &dir, nodes.len())?;
        say(show(&command));
        // Its exit code is not for us: the report says more.
        command
            .status()
            .with_context(|| format!("cannot start `{}`", show(&command)))?;
        let results =
            Results::read(&json, left_out).context("the tests did not run to their end")?;
        Ok((results, dir))
    }

    /// The runner with the tests, next to the control plane.
    fn runner(&self, suite: &Path, dir: &Path, nodes: usize) -> Result<Command> {
        let mut command = next_to_control(&suite.join(RUNNER))?;
        command
            .args(["--no-color", "--timeout=1h"])
            .arg(format!("--procs={}", self.procs))
            .arg(format!("--focus={}", self.focus))
            .args(self.skip.iter().map(|regex| format!("--skip={regex}")))
            .arg(format!("--output-dir={}", dir.display()))
            .arg(format!("--json-report={JSON}"))
            .arg(format!("--junit-report={JUNIT}"))
            .arg(suite.join(TESTS))
            .arg("--")
            // No cloud: nodes and volumes are what they are.
            .args(["--provider=skeleton", "--disable-log-dump"])
            // Some specs skip themselves where they have to count.
            .arg(format!("--num-nodes={nodes}"))
            .arg(format!("--kubeconfig={}", kubeconfig().display()))
            .arg(format!(
                "--kubectl-path={}",
                kubernetes()?.join("kubectl").display()
            ))
            .current_dir(dir);
        Ok(command)
    }

    /// Says which specs these are.
    fn sentence(&self) -> String {
        let but = self.skip.iter().map(|regex| format!(" without `{regex}`"));
        let but: String = but.collect();
        format!(
            "The specs are all that match `{}`{but}, {} at a time.",
            self.focus, self.procs
        )
    }
}

fn is_netpol(name: &str) -> bool {
    name.starts_with("[sig-network] Netpol")
}

/// Says how these specs connect.
///
/// See test/e2e/network/netpol/kubemanager.go, `probeConnectivity`.
const CLUSTER_IPS: &str = "Those with the label NetworkPolicy connect to the ClusterIP of a Service for each pod, never to the pod's own \
     address: podnet translates it, and judges the endpoint.";

/// The options of a run as somebody would type them.
fn arguments(options: &Networking, page: &Path) -> String {
    let mut words = Vec::new();
    if options.focus != FOCUS {
        words.push(format!("--focus {}", quoted(&options.focus)));
    }
    if let Some(skip) = &options.skip {
        words.push(format!("--skip {}", quoted(skip)));
    }
    if options.procs != PROCS {
        words.push(format!("--procs {}", options.procs));
    }
    words.push(format!("--page {}", page.display()));
    words.join(" ")
}

const NETPOL_INTRODUCTION: &str = "# Kubernetes' tests of network policies

What the end-to-end tests of Kubernetes ask of network policies, run with podnet as the cluster's network
([default-network.md](default-network.md)). Others that connect to pods by their own addresses:
[cyclonus.md](cyclonus.md), [network-policy-api.md](network-policy-api.md).";

/// Heading and introduction of the page of a network.
const fn introduction(network: Network) -> &'static str {
    match network {
        Network::Native => {
            "# Kubernetes' tests of networking

What the conformance tests of Kubernetes ask of a cluster's network, run with podnet as that network
([default-network.md](default-network.md)); with podnet in front of another plugin:
[sig-network-delegate.md](sig-network-delegate.md)."
        }
        Network::Delegate => {
            "# Kubernetes' tests of networking, in front of another plugin

What the conformance tests of Kubernetes ask of a cluster's network, run with podnet in front of the reference
bridge plugin, which has the default network of all pods; with podnet as that network:
[sig-network.md](sig-network.md)."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_the_command_with_all_that_was_chosen() {
        let mut options = Networking {
            focus: FOCUS.to_owned(),
            skip: None,
            procs: PROCS,
            page: None,
        };
        let page = Path::new("docs/sig-network.md");
        assert_eq!(arguments(&options, page), "--page docs/sig-network.md");
        options.focus = "Netpol".to_owned();
        options.skip = Some(r"\[Slow\]".to_owned());
        options.procs = 1;
        assert_eq!(
            arguments(&options, page),
            r"--focus Netpol --skip '\[Slow\]' --procs 1 --page docs/sig-network.md"
        );
    }
}
