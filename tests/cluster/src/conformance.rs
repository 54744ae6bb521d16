//! `cargo xtask cluster conformance`: Kubernetes' own tests of a cluster's network.
//!
//! That network is podnet, or another plugin's that podnet delegates to.

mod dns;
mod images;
mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use testbed::pki::Pki;

use self::report::{Outcome, Results};
use super::golang::suite::{COREDNS, RUNNER, TESTS};
use super::golang::{self, CONTAINERD, KUBERNETES};
use super::place::{self, CONTROL};
use super::{binaries, kubectl, kubernetes, native, node};
use xtask::step::{capture, say, show};
use xtask::workspace;

/// Tests of networking that every conformant cluster must pass.
const FOCUS: &str = r"\[sig-network\].*\[Conformance\]";
/// Where results are, below `target`.
const RESULTS: &str = "sig-network";
const JSON: &str = "report.json";
const JUNIT: &str = "junit.xml";

#[derive(clap::Args)]
pub(super) struct Options {
    /// Specs whose name matches this
    #[arg(long, value_name = "REGEX", default_value = FOCUS)]
    focus: String,
    /// But not those whose name matches this
    #[arg(long, value_name = "REGEX")]
    skip: Option<String>,
    /// How many specs at a time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..))]
    procs: u8,
    /// Write the result as a page, too
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// Runs the tests in the cluster that is up.
///
/// # Errors
/// There is no cluster, or something cannot be built or started.
pub(super) fn run(options: &Options) -> xtask::Done {
    let nodes = place::nodes();
    if nodes.is_empty() {
        bail!("there is no cluster; `cargo xtask cluster up --default native` starts one");
    }
    let network = Network::find()?;
    let suite = golang::suite::tests(&binaries::dir())?;
    for archive in images::write(&suite, &place::dir().join("e2e-images"))? {
        for name in &nodes {
            node::import(name, &archive)?;
        }
    }
    dns::install()?;

    let dir = workspace::target().join(RESULTS);
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let json = dir.join(JSON);
    // One of an earlier run must not be taken for this one's.
    let _ = fs::remove_file(&json);
    let mut command = runner(options, &suite, &dir, nodes.len())?;
    say(show(&command));
    // Its exit code is not for us: the report says more.
    command
        .status()
        .with_context(|| format!("cannot start `{}`", show(&command)))?;
    let results = Results::read(&json).context("the tests did not run to their end")?;
    tell(&results, &dir);
    if let Some(path) = &options.page {
        let page = page(&results, options, network, nodes.len())?;
        fs::write(path, page).with_context(|| format!("writing {}", path.display()))?;
        say(format!("wrote {}", path.display()));
    }
    println!("{}", results.sum());
    if results.passed() == 0 {
        bail!("no spec matches `{}`", options.focus);
    }
    Ok(if results.failed() == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The runner with the tests, next to the control plane.
fn runner(options: &Options, suite: &Path, dir: &Path, nodes: usize) -> Result<Command> {
    place::netns(CONTROL)?;
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", place::netns_path(CONTROL).display()))
        .arg("--")
        .arg(suite.join(RUNNER))
        .args(["--no-color", "--timeout=1h"])
        .arg(format!("--procs={}", options.procs))
        .arg(format!("--focus={}", options.focus))
        .args(options.skip.iter().map(|regex| format!("--skip={regex}")))
        .arg(format!("--output-dir={}", dir.display()))
        .arg(format!("--json-report={JSON}"))
        .arg(format!("--junit-report={JUNIT}"))
        .arg(suite.join(TESTS))
        .arg("--")
        // No cloud: nodes and volumes are what they are.
        .args(["--provider=skeleton", "--disable-log-dump"])
        // Some specs skip themselves where they have to count.
        .arg(format!("--num-nodes={nodes}"))
        .arg(format!(
            "--kubeconfig={}",
            Pki::open(&place::pki()).kubeconfig("admin").display()
        ))
        .arg(format!(
            "--kubectl-path={}",
            kubernetes()?.join("kubectl").display()
        ))
        .current_dir(dir);
    Ok(command)
}

/// Everything that did not pass, with its reason.
fn tell(results: &Results, dir: &Path) {
    for spec in &results.specs {
        match &spec.outcome {
            Outcome::Passed => {}
            Outcome::Failed(why) => say(format!("failed: {}: {why}", spec.name)),
            Outcome::Skipped(why) => say(format!("skipped: {}: {why}", spec.name)),
        }
    }
    say(format!(
        "{} s; {} and {} are in {}",
        results.seconds,
        JSON,
        JUNIT,
        dir.display()
    ));
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

    /// The page of its results, below docs.
    const fn page(self) -> &'static str {
        match self {
            Self::Native => "sig-network.md",
            Self::Delegate => "sig-network-delegate.md",
        }
    }

    /// Heading and introduction of its page.
    const fn introduction(self) -> &'static str {
        match self {
            Self::Native => {
                "# Kubernetes' tests of networking

What the conformance tests of Kubernetes ask of a cluster's network, run with podnet as that network
([default-network.md](default-network.md)); with podnet in front of another plugin:
[sig-network-delegate.md](sig-network-delegate.md)."
            }
            Self::Delegate => {
                "# Kubernetes' tests of networking, in front of another plugin

What the conformance tests of Kubernetes ask of a cluster's network, run with podnet in front of the reference
bridge plugin, which has the default network of all pods; with podnet as that network:
[sig-network.md](sig-network.md)."
            }
        }
    }
}

/// The page for docs.
fn page(results: &Results, options: &Options, network: Network, nodes: usize) -> Result<String> {
    let kernel = rustix::system::uname();
    let kernel = kernel.release().to_str().context("the kernel's release")?;
    let (sum, seconds, date, procs) =
        (results.sum(), results.seconds, &results.date, options.procs);
    let but = options.skip.iter();
    let but: String = but.map(|regex| format!(" without `{regex}`")).collect();
    Ok(format!(
        "{} These commands write this page:

```sh
cargo xtask cluster up --nodes {nodes} --default {}
cargo xtask cluster conformance --page docs/{}
cargo xtask cluster down
```

**{sum}**, on {date}, in {seconds} s, {procs} at a time. podnet {}, Kubernetes {KUBERNETES} with
kube-proxy in nftables mode, containerd {CONTAINERD}, CoreDNS {COREDNS}, Linux {kernel}; {nodes} nodes in
network namespaces of one machine. The specs are all that match `{}`{but}.

{}",
        network.introduction(),
        network.word(),
        network.page(),
        env!("CARGO_PKG_VERSION"),
        options.focus,
        results.table(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_of_a_cluster_is_what_its_agents_were_told() {
        let ours = r#"["--cluster","--default-network=podnetwork:default"]"#;
        let others = r#"["--cluster","--default-network=delegate"]"#;
        assert_eq!(Network::of(ours), Network::Native);
        assert_eq!(Network::of(others), Network::Delegate);
    }
}
