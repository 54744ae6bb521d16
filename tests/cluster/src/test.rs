//! `cargo xtask cluster test`: runs the tests in tests/tests/e2e.
//!
//! podnet is installed as a user installs it, in a cluster that has a network already.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use testbed::pki::Pki;

use super::place::{self, CONTROL};
use super::{Cni, Up, control, kubectl, kubernetes, name, node, up};
use xtask::kubernetes::Binaries;
use xtask::step::{capture, execute, say, stream, succeeds};
use xtask::test::{Reader, Tally, release_tests};
use xtask::workspace;

/// Nodes that the tests know.
pub(super) const NODES: u8 = 2;
/// The manifest that is applied when no other is named.
pub(super) const MANIFEST: &str = "deploy/install.yaml";
/// Definitions of a standard, for clusters without them.
const STANDARD: [&str; 2] = [
    "deploy/crds/network-attachment-definitions.yaml",
    "deploy/crds/ipamclaims.yaml",
];
/// Tests that run by themselves after all others, in this order.
const ALONE: [&str; 3] = ["e2e::rollout::", "e2e::chaos::", LAST];
/// Tests that take long: they run where the filter names them.
const NAMED: [&str; 1] = ["e2e::hostile::"];
/// The test that ends podnet, so that it is the last.
const LAST: &str = "e2e::uninstall::";
/// Everything with pods that has to run, and the words of `kubectl rollout status`.
const WORKLOADS: [&str; 4] = [
    "daemonset/podnet-agent",
    "daemonset/podnet-switch",
    "deployment/podnet-controller",
    "deployment/podnet-webhook",
];
/// How many tests run at a time: each waits for kubelets most of its time.
const THREADS: &str = "--test-threads=4";

#[derive(clap::Args)]
pub(super) struct Options {
    /// Leave the cluster running, with podnet in it
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    podnet: Install,
    /// The tests, built before; by default they are built
    #[arg(long, value_name = "FILE", hide = true)]
    binary: Option<PathBuf>,
    /// Only tests whose name contains one of these
    #[arg(last = true)]
    filter: Vec<String>,
}

/// Which podnet.
#[derive(clap::Args)]
pub(super) struct Install {
    /// Manifest to apply
    #[arg(long, value_name = "FILE", default_value = MANIFEST)]
    manifest: PathBuf,
    /// An image that was built before, by default one is built
    #[arg(long, value_name = "ARCHIVE")]
    image: Option<PathBuf>,
}

impl Install {
    /// The manifest; a relative path is one of the repository.
    pub(super) fn manifest(&self) -> PathBuf {
        workspace::root().join(&self.manifest)
    }

    /// The image, which is built if none was named.
    ///
    /// # Errors
    /// It cannot be built.
    pub(super) fn archive(&self) -> Result<PathBuf> {
        self.image.clone().map_or_else(image, Ok)
    }
}

/// Runs the suite, in a cluster of its own or in the one that is up.
///
/// # Errors
/// Something cannot be built or started, or a test fails.
pub(super) fn run(options: &Options) -> xtask::Done {
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => build(workspace::cargo(["test"]))?,
    };
    let archive = options.podnet.archive()?;
    if place::nodes().is_empty() {
        up(&Up {
            nodes: NODES,
            cni: Cni::Reference,
            image: None,
        })?;
    }
    if place::nodes().len() < usize::from(NODES) {
        bail!("the tests need {NODES} nodes; `cargo xtask cluster down` ends this cluster");
    }
    let manifest = options.podnet.manifest();
    let done = install(&archive, &manifest).and_then(|()| suite(options, &binary, &manifest));
    if options.keep {
        say("the cluster is left running; `cargo xtask cluster down` removes it");
    } else {
        place::remove()?;
    }
    done.map(|()| ExitCode::SUCCESS)
}

/// Builds image and tests, provides a cluster's programs, prints the two files.
///
/// # Errors
/// Something cannot be built.
pub(super) fn prepare() -> xtask::Done {
    Binaries::install()?;
    let (archive, binary) = (image()?, build(release_tests())?);
    println!("{}\n{}", archive.display(), binary.display());
    Ok(ExitCode::SUCCESS)
}

/// Installs podnet: image on all nodes, manifest applied; waits until all runs.
///
/// # Errors
/// It does not; then events and logs were printed.
pub(super) fn install(archive: &Path, manifest: &Path) -> Result<()> {
    for name in &place::nodes() {
        node::import(name, archive)?;
    }
    definitions()?;
    say(format!("applying {}", manifest.display()));
    let output = capture(kubectl()?.args(["apply", "-f"]).arg(manifest))?;
    if output
        .lines()
        .any(|line| line.starts_with("daemonset.apps/podnet-agent unchanged"))
    {
        // The image has the same name and may be another one.
        say("podnet was there already: its pods are started anew");
        for workload in WORKLOADS {
            execute(kubectl()?.args(["-n", "podnet-system", "rollout", "restart", workload]))?;
        }
    }
    for workload in WORKLOADS {
        let mut wait = kubectl()?;
        wait.args(["-n", "podnet-system", "rollout", "status", workload])
            .arg("--timeout=600s");
        execute(&mut wait).or_else(|error| {
            dump()?;
            Err(error).context("podnet does not get ready")
        })?;
    }
    control::wait_for("the default network", Duration::from_secs(180), || {
        let ready = [
            "wait",
            "podnetwork/default",
            "--for=condition=Ready",
            "--timeout=5s",
        ];
        Ok(succeeds(kubectl()?.args(ready)))
    })
}

/// Adds the definitions of the standard, where they are missing.
///
/// # Errors
/// The API server refuses.
pub(super) fn definitions() -> Result<()> {
    for file in STANDARD {
        let file = workspace::root().join(file);
        // Somebody else's stays.
        if !succeeds(kubectl()?.args(["get", "-f"]).arg(&file)) {
            execute(kubectl()?.args(["create", "-f"]).arg(&file))?;
        }
    }
    Ok(())
}

/// Runs all tests but those that run alone, and then these.
///
/// Those of [`NAMED`] run only by their name.
fn suite(options: &Options, binary: &Path, manifest: &Path) -> Result<()> {
    let tally = &mut Tally::default();
    together(binary, manifest, &options.filter, (tally, Show::Wanted))?;
    for alone in NAMED.into_iter().chain(ALONE) {
        let is_named = |word: &String| alone.contains(word.as_str());
        let is_wanted = if options.filter.is_empty() {
            // A cluster that is kept is kept with podnet in it.
            !NAMED.contains(&alone) && (alone != LAST || !options.keep)
        } else {
            options.filter.iter().any(is_named)
        };
        if is_wanted {
            judge(program(binary, manifest)?.arg(alone), (tally, Show::Wanted))?;
        }
    }
    Ok(())
}

/// All tests but those that run alone.
///
/// # Errors
/// One of them fails.
pub(super) fn together(
    binary: &Path,
    manifest: &Path,
    filter: &[String],
    tally: (&mut Tally, Show),
) -> Result<()> {
    let mut command = program(binary, manifest)?;
    for alone in NAMED.into_iter().chain(ALONE) {
        command.args(["--skip", alone]);
    }
    judge(command.arg(THREADS).args(filter), tally)
}

/// The last test, which ends podnet.
///
/// # Errors
/// It fails.
pub(super) fn uninstall(binary: &Path, manifest: &Path, tally: (&mut Tally, Show)) -> Result<()> {
    judge(program(binary, manifest)?.arg(LAST), tally)
}

/// The test binary, next to the control plane.
fn program(binary: &Path, manifest: &Path) -> Result<Command> {
    place::netns(CONTROL)?;
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", place::netns_path(CONTROL).display()))
        .arg("--")
        .arg(binary)
        .arg("--show-output")
        .env("KUBECONFIG", Pki::open(&place::pki()).kubeconfig("admin"))
        .env("KUBECACHEDIR", place::dir().join("kubectl"))
        .env("PODNET_KUBERNETES", kubernetes()?)
        .env("PODNET_MANIFEST", manifest)
        .env("PODNET_CLUSTER", workspace::own_program()?);
    name::describe_to(&mut command);
    Ok(command)
}

/// Which lines of the tests are printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    /// Lines for people.
    Wanted,
    /// All of them, for another program that counts.
    All,
}

fn judge(command: &mut Command, (sum, show): (&mut Tally, Show)) -> Result<()> {
    let mut reader = Reader::default();
    let status = stream(command, |line| {
        if reader.line(line) || show == Show::All {
            println!("{line}");
        }
    })?;
    let tally = reader.finish();
    let (passed, failed) = (tally.passed, tally.failed);
    sum.add(tally);
    if !status.success() {
        bail!("{failed} of {} tests failed", failed + passed);
    }
    say(format!("{passed} tests passed"));
    Ok(())
}

/// Prints the state of podnet when it does not start.
///
/// # Errors
/// There is no cluster.
pub(super) fn dump() -> Result<()> {
    for arguments in [
        &["get", "pods", "-A", "-o", "wide"][..],
        &["-n", "podnet-system", "get", "events"],
        &[
            "-n",
            "podnet-system",
            "logs",
            "-l",
            "app.kubernetes.io/part-of=podnet",
            "--prefix",
        ],
    ] {
        // One that fails has said why.
        let _ = execute(kubectl()?.args(arguments));
    }
    for name in place::nodes() {
        let log = place::log(&name, "kube-proxy");
        println!("kube-proxy of {name}:\n{}", control::tail(&log));
    }
    Ok(())
}

/// Builds podnet's image and returns where it is.
///
/// # Errors
/// It cannot be built.
pub(super) fn image() -> Result<PathBuf> {
    let archive = workspace::target().join("podnet-image.tar");
    execute(workspace::cargo(["xtask", "image", "--output"]).arg(&archive))?;
    Ok(archive)
}

/// Builds the tests with a `cargo test` command, and returns where cargo put them.
///
/// # Errors
/// The compiler refuses.
pub(super) fn build(mut command: Command) -> Result<PathBuf> {
    say("building the tests");
    command
        .args(["--no-run", "--message-format=json-render-diagnostics"])
        .args(["--test", "e2e"]);
    let messages = capture(&mut command)?;
    let found = messages.lines().find_map(executable);
    found.context("cargo built no test binary")
}

/// The program that one of cargo's messages is about.
fn executable(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_it = message["target"]["name"] == "e2e" && message["profile"]["test"] == true;
    is_it.then(|| message["executable"].as_str().map(PathBuf::from))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_binary_is_found_in_cargo_messages() {
        let of = |name: &str| {
            let target = serde_json::json!({"name": name, "kind": ["test"]});
            let message = serde_json::json!({
                "reason": "compiler-artifact",
                "target": target,
                "profile": {"test": true},
                "executable": "/repo/target/release/deps/e2e-0011",
            });
            executable(&message.to_string())
        };
        assert_eq!(of("e2e"), Some("/repo/target/release/deps/e2e-0011".into()));
        assert_eq!(of("kubernetes"), None);
        assert_eq!(executable("not a message"), None);
    }
}
