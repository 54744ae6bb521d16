//! `cargo xtask cluster conformance`: suites of others, in the cluster that is up.
//!
//! The network of its pods is podnet, or another plugin's that podnet delegates to.

mod cyclonus;
mod dns;
mod images;
mod network_policy_api;
mod page;
mod report;
mod sig_network;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use testbed::pki::Pki;

use self::report::{Outcome, Results};
use super::place::{self, CONTROL};
use super::{kubectl, native};
use xtask::step::{capture, execute, say};
use xtask::workspace;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Options {
    #[command(subcommand)]
    suite: Option<Suite>,
    #[command(flatten)]
    sig_network: sig_network::Networking,
}

/// Without one: Kubernetes' conformance tests of networking.
#[derive(clap::Subcommand)]
enum Suite {
    /// Kubernetes' tests of network policies, which connect to Services
    Netpol(sig_network::Netpol),
    /// The tests of ClusterNetworkPolicy, by those who define it
    NetworkPolicyApi(network_policy_api::Options),
    /// Network policies that cyclonus makes, and what it says of them
    Cyclonus(cyclonus::Options),
}

/// Runs a suite in the cluster that is up.
///
/// # Errors
/// There is no cluster, something cannot be built or started, or a test fails.
pub(super) fn run(options: &Options) -> xtask::Done {
    match &options.suite {
        None => sig_network::run(&options.sig_network),
        Some(Suite::Netpol(options)) => sig_network::netpol(options),
        Some(Suite::NetworkPolicyApi(options)) => network_policy_api::run(options),
        Some(Suite::Cyclonus(options)) => cyclonus::run(options),
    }
}

/// A suite that has run.
struct Ran<'a> {
    /// Its word at the command line, for messages.
    suite: &'a str,
    /// Directory of all that it said.
    dir: &'a Path,
    results: &'a Results,
}

impl Ran<'_> {
    /// Tells the results, writes the page if one is wanted, and judges.
    ///
    /// # Errors
    /// A test failed, none ran, or the page cannot be written.
    fn finish(
        &self,
        page: Option<&PathBuf>,
        text: impl FnOnce(&PathBuf) -> Result<String>,
    ) -> xtask::Done {
        let results = self.results;
        for spec in &results.specs {
            match &spec.outcome {
                Outcome::Passed => {}
                Outcome::Failed(why) => say(format!("failed: {}: {why}", spec.name)),
                Outcome::Skipped(why) => say(format!("skipped: {}: {why}", spec.name)),
            }
        }
        say(format!(
            "{} s; all that {} said is in {}",
            results.seconds,
            self.suite,
            self.dir.display()
        ));
        if let Some(path) = page {
            fs::write(path, text(path)?).with_context(|| format!("writing {}", path.display()))?;
            say(format!("wrote {}", path.display()));
        }
        println!("{}", results.sum());
        let (passed, failed) = (results.passed(), results.failed());
        if failed > 0 {
            bail!(
                "{failed} of {} tests of {} failed; they are named above",
                passed + failed,
                self.suite
            );
        }
        if passed == 0 {
            bail!("no test of {} ran", self.suite);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The nodes of the cluster.
///
/// # Errors
/// There is no cluster.
fn nodes() -> Result<Vec<String>> {
    let nodes = place::nodes();
    if nodes.is_empty() {
        bail!("there is no cluster; `cargo xtask cluster up --default native` starts one");
    }
    Ok(nodes)
}

/// The directory of a suite's results, below `target`.
///
/// # Errors
/// It cannot be made.
fn directory(name: &str) -> Result<PathBuf> {
    let dir = workspace::target().join(name);
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    Ok(dir)
}

/// A program next to the control plane, an administrator of the cluster.
///
/// # Errors
/// There is no control plane.
fn next_to_control(program: &Path) -> Result<Command> {
    place::netns(CONTROL)?;
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", place::netns_path(CONTROL).display()))
        .arg("--")
        .arg(program)
        .env("KUBECONFIG", kubeconfig());
    Ok(command)
}

fn kubeconfig() -> PathBuf {
    Pki::open(&place::pki()).kubeconfig("admin")
}

/// Removes objects that a suite may have left, and waits until they are gone.
///
/// # Errors
/// The API server refuses.
fn delete(what: &[&str]) -> Result<()> {
    let mut command = kubectl()?;
    command
        .args(["delete", "--ignore-not-found", "--wait", "--timeout=300s"])
        .args(what);
    execute(&mut command)
}

/// The network of the pods of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Network {
    /// That of podnet.
    Native,
    /// That of another plugin, to which podnet delegates.
    Delegate,
}

impl Network {
    /// Asks the cluster for what its agents were told.
    ///
    /// # Errors
    /// There is no podnet in it.
    fn find() -> Result<Self> {
        let agents = ["-n", "podnet-system", "get", "daemonset/podnet-agent"];
        let arguments = "jsonpath={.spec.template.spec.containers[0].args}";
        let found = capture(kubectl()?.args(agents).args(["-o", arguments])).context(
            "the cluster has no podnet; start one with `--default native` or `delegate`",
        )?;
        Ok(Self::of(&found))
    }

    /// Checks that podnet itself has the network, whose policies are tested.
    ///
    /// # Errors
    /// There is no podnet, or it delegates to another plugin.
    fn must_be_native() -> Result<()> {
        match Self::find()? {
            Self::Native => Ok(()),
            Self::Delegate => bail!(
                "policies of the default network are for the plugin that podnet delegates to here; start a \
                 cluster with `--default native`"
            ),
        }
    }

    fn of(arguments: &str) -> Self {
        if arguments.contains(native::OURS) {
            Self::Native
        } else {
            Self::Delegate
        }
    }

    /// The word of `cluster up --default`.
    const fn word(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Delegate => "delegate",
        }
    }
}

/// Whether the kernel of this machine has SCTP.
///
/// The nodes have the same.
fn kernel_has_sctp() -> bool {
    use rustix::net::{AddressFamily, SocketType, ipproto, socket};
    socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::SCTP)).is_ok()
}

/// Why a test of SCTP is skipped.
const NO_SCTP: &str = "it connects by SCTP, which this kernel does not have";

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn a_suite_has_options_of_its_own_and_none_is_that_of_networking() {
        Line::command().debug_assert();
        let suite = |words: &[&str]| {
            let words = ["conformance"].iter().chain(words);
            Line::try_parse_from(words).map(|line| line.options.suite)
        };
        assert!(suite(&["--focus", "DNS"]).unwrap().is_none());
        let found = suite(&["cyclonus", "--include", "conflict"]).unwrap();
        assert!(matches!(found, Some(Suite::Cyclonus(_))));
        assert!(suite(&["cyclonus", "--focus", "DNS"]).is_err());
        assert!(suite(&["--focus", "DNS", "cyclonus"]).is_err());
    }

    #[test]
    fn the_network_of_a_cluster_is_what_its_agents_were_told() {
        let ours = r#"["--cluster","--default-network=podnetwork:default"]"#;
        let others = r#"["--cluster","--default-network=delegate"]"#;
        assert_eq!(Network::of(ours), Network::Native);
        assert_eq!(Network::of(others), Network::Delegate);
    }
}
