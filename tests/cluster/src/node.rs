//! A node: namespaces of every kind but the user's, and their processes.
//!
//! The first process is this program; there are containerd, the kubelet and kube-proxy.

pub(super) mod config;
pub(super) mod init;

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::binaries::Binaries;
use super::{cgroup, control, launch, network, place};
use xtask::step::{say, succeeds};
use xtask::workspace;

/// How long containerd and the images may take, and how long the kubelet.
const PATIENCE: Duration = Duration::from_secs(120);

/// Everything the first process of a node has to know, as a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Spec {
    /// Name of the Node object, and of the part.
    pub(super) name: String,
    /// IPv4 and IPv6.
    pub(super) addresses: [IpAddr; 2],
    /// The directory that survives its reboot.
    pub(super) dir: PathBuf,
    /// The directory that node and machine share: programs, certificates, logs.
    ///
    /// It has the same path on both.
    pub(super) shared: PathBuf,
    /// Certificates.
    pub(super) pki: PathBuf,
    /// Logs.
    pub(super) logs: PathBuf,
    /// Archives to import before the kubelet starts.
    pub(super) images: PathBuf,
    /// Programs.
    pub(super) kubernetes: PathBuf,
    /// Programs.
    pub(super) containerd: PathBuf,
    /// CNI plugins that the node has from the beginning.
    pub(super) plugins: PathBuf,
}

impl Spec {
    fn path(dir: &Path) -> PathBuf {
        dir.join("node.json")
    }

    /// Reads the file of a node's directory.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read(dir: &Path) -> Result<Self> {
        let path = Self::path(dir);
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// Written last by the first process: containerd runs and has its images.
    pub(super) fn ready(&self) -> PathBuf {
        self.dir.join("ready")
    }
}

/// Makes a node's namespaces and files and starts it.
///
/// # Errors
/// The kernel refuses, or a file cannot be written.
pub(super) fn create(binaries: &Binaries, name: &str, addresses: [IpAddr; 2]) -> Result<()> {
    let dir = place::node(name);
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let spec = Spec {
        name: name.to_owned(),
        addresses,
        dir: dir.clone(),
        shared: super::binaries::dir(),
        pki: place::pki(),
        logs: place::dir().join("log"),
        images: place::dir().join("images"),
        kubernetes: binaries.kubernetes.clone(),
        containerd: binaries.containerd.clone(),
        plugins: binaries.plugins.clone(),
    };
    let path = Spec::path(&dir);
    fs::write(&path, serde_json::to_string_pretty(&spec)?)
        .with_context(|| format!("writing {}", path.display()))?;
    network::connect(name, addresses).with_context(|| format!("the network of {name}"))?;
    boot(name)
}

/// Starts a node that was created.
///
/// # Errors
/// It runs already, or cannot be started.
pub(super) fn boot(name: &str) -> Result<()> {
    if place::init_of(name).is_ok() {
        bail!("{name} runs already");
    }
    let spec = Spec::read(&place::node(name))?;
    // Left by the last run.
    let _ = fs::remove_file(spec.ready());
    cgroup::create(&place::part(name))?;
    let own = workspace::own_program()?;
    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "--uts",
            "--ipc",
            "--pid",
            "--cgroup",
            "--fork",
            "--kill-child",
        ])
        .args(["--propagation", "private", "--"])
        .arg(own)
        .arg("node-init")
        .arg(&spec.dir);
    launch::spawn(name, "init", &command)?;
    Ok(())
}

/// Ends a node as a power cut does: everything at once, and its network with it.
///
/// What it wrote to disk stays.
///
/// # Errors
/// Something does not end.
pub(super) fn cut(name: &str) -> Result<()> {
    let wanted = place::part(name);
    let groups: Vec<PathBuf> = cgroup::find(&wanted)
        .into_iter()
        .filter(|path| path.ends_with(&wanted))
        .collect();
    cgroup::remove(&groups)?;
    netdev::NamedNetns::remove(&place::netns_path(name))?;
    Ok(())
}

/// Ends a node and starts it again.
///
/// # Errors
/// There is no such node, or it cannot be started.
pub(super) fn reboot(name: &str) -> Result<()> {
    let spec = Spec::read(&place::node(name)).with_context(|| format!("no node {name}"))?;
    cut(name)?;
    network::connect(name, spec.addresses)?;
    boot(name)?;
    wait_for_runtime(name)
}

/// Waits for containerd.
///
/// # Errors
/// The node ended, or the time is over.
pub(super) fn wait_for_runtime(name: &str) -> Result<()> {
    let spec = Spec::read(&place::node(name))?;
    let mut was_seen = false;
    control::wait_for(&format!("containerd on {name}"), PATIENCE, || {
        let runs = place::init_of(name).is_ok();
        if was_seen && !runs {
            let log = place::log(name, "init");
            bail!("{name} ended:\n{}", control::tail(&log));
        }
        was_seen |= runs;
        Ok(spec.ready().is_file())
    })
}

/// Waits for the kubelet to make the Node object.
///
/// # Errors
/// The time is over.
pub(super) fn wait_for_object(name: &str, kubectl: impl Fn() -> Result<Command>) -> Result<()> {
    control::wait_for(&format!("the kubelet of {name}"), PATIENCE, || {
        Ok(succeeds(kubectl()?.args(["get", "node", name])))
    })
}

/// Puts an image on a node.
///
/// # Errors
/// containerd refuses it.
pub(super) fn import(name: &str, archive: &Path) -> Result<()> {
    let spec = Spec::read(&place::node(name)).with_context(|| format!("no node {name}"))?;
    let file = fs::File::open(archive).with_context(|| format!("opening {}", archive.display()))?;
    say(format!("importing {} on {name}", archive.display()));
    let mut command = place::enter(name)?;
    command
        .arg(spec.containerd.join("ctr"))
        .args(["--namespace", "k8s.io", "images", "import", "-"])
        .stdin(file);
    let status = command.status().context("cannot start nsenter")?;
    if !status.success() {
        bail!("{name} refused {}: {status}", archive.display());
    }
    Ok(())
}
