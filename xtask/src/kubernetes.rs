//! Provide others' programs that a cluster is made of.

pub mod golang;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::step::{execute, say, succeeds};
use crate::{install, workspace};

/// Debian packages that the machine must have, of the machine's own release.
const PACKAGES: [&str; 5] = ["iproute2", "iptables", "nftables", "runc", "util-linux"];
/// A package that is unpacked, not installed.
///
/// It would replace the machine's own busybox.
const BUSYBOX: &str = "busybox-static";

/// Programs of the control plane and of nodes.
const NEEDED: [&str; 7] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
];

/// Programs that tests of the API need.
const NEEDED_BY_API_TESTS: [&str; 4] = ["etcd", "kube-apiserver", "kube-scheduler", "kubectl"];

/// Where everything is.
#[derive(Debug, Clone)]
pub struct Binaries {
    /// Directory of Kubernetes' programs and etcd.
    pub kubernetes: PathBuf,
    /// Directory of containerd's.
    pub containerd: PathBuf,
    /// Directory of the reference CNI plugins.
    pub plugins: PathBuf,
    /// A static busybox.
    pub busybox: PathBuf,
    /// The program of the pause container, static.
    pub pause: PathBuf,
}

impl Binaries {
    /// Builds, downloads and installs what is missing, and says so.
    ///
    /// # Errors
    /// No root, no Go, or a download or compiler that refuses.
    pub fn install() -> Result<Self> {
        packages()?;
        let dir = dir();
        let kubernetes = kubernetes(&NEEDED, golang::kubernetes)?;
        Ok(Self {
            kubernetes,
            containerd: golang::containerd(&dir)?,
            plugins: golang::plugins(&dir)?,
            busybox: busybox(&dir)?,
            pause: pause(&dir)?,
        })
    }

    /// `kubectl`.
    pub fn kubectl(&self) -> PathBuf {
        self.kubernetes.join("kubectl")
    }
}

/// The directory of files that are kept between clusters.
pub fn dir() -> PathBuf {
    workspace::target().join("cluster")
}

/// A directory with the programs of Kubernetes that tests of the API need.
///
/// # Errors
/// There is none, and none can be built.
pub fn for_tests() -> Result<PathBuf> {
    kubernetes(&NEEDED_BY_API_TESTS, golang::kubernetes_api)
}

/// As [`for_tests`], for tests with nodes.
///
/// Everything that they need is built or there afterwards.
///
/// # Errors
/// As [`Binaries::install`].
pub fn for_cluster() -> Result<PathBuf> {
    Ok(Binaries::install()?.kubernetes)
}

/// Returns Helm's path: named by `PODNET_HELM`, in `PATH`, or built.
///
/// # Errors
/// There is none, and none can be built.
pub fn helm() -> Result<PathBuf> {
    let named = env::var_os("PODNET_HELM").map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let mut candidates = named
        .into_iter()
        .chain(env::split_paths(&path).map(|dir| dir.join("helm")));
    match candidates.find(|program| program.is_file()) {
        Some(program) => Ok(program),
        None => golang::helm(&dir()).context("or let PODNET_HELM name a Helm"),
    }
}

/// Installs packages by apt, ahead of users that would run apt at one time.
///
/// # Errors
/// apt refuses.
pub fn packages() -> Result<()> {
    install::apt(&PACKAGES.map(String::from))?;
    busybox(&dir()).map(|_| ())
}

/// Returns a directory with all these programs: a named one, of `PATH`, or built.
fn kubernetes(needed: &[&str], build: impl Fn(&Path) -> Result<PathBuf>) -> Result<PathBuf> {
    let named = ["PODNET_KUBERNETES", "KUBEBUILDER_ASSETS"]
        .into_iter()
        .filter_map(|variable| env::var_os(variable).map(PathBuf::from));
    let path = env::var_os("PATH").unwrap_or_default();
    let mut candidates = named.chain(env::split_paths(&path));
    if let Some(dir) = candidates.find(|dir| has_all(dir, needed)) {
        return Ok(dir);
    }
    build(&dir()).with_context(|| {
        format!(
            "or let KUBEBUILDER_ASSETS name a directory with {}",
            needed.join(", ")
        )
    })
}

fn has_all(dir: &Path, programs: &[&str]) -> bool {
    programs.iter().all(|program| dir.join(program).is_file())
}

/// A static busybox, which the machine itself may not have.
///
/// # Errors
/// apt refuses.
pub fn busybox(dir: &Path) -> Result<PathBuf> {
    let root = dir.join("busybox");
    let places = ["bin/busybox", "usr/bin/busybox"];
    let find = || {
        let mut all = places.iter().map(|place| root.join(place));
        all.find(|path| path.is_file())
    };
    if let Some(found) = find() {
        return Ok(found);
    }
    say(format!("unpacking {BUSYBOX} into {}", root.display()));
    let archives = root.join("archives");
    fs::create_dir_all(&archives).with_context(|| format!("creating {}", archives.display()))?;
    let mut download = Command::new("apt-get");
    download
        .args([
            "download",
            "--quiet",
            "-o",
            "APT::Sandbox::User=root",
            BUSYBOX,
        ])
        .current_dir(&archives);
    if !succeeds(&mut download) {
        say("updating apt's package lists");
        execute(Command::new("apt-get").args(["update", "--quiet"]))?;
        execute(&mut download)?;
    }
    for entry in fs::read_dir(&archives)? {
        let archive = entry?.path();
        execute(Command::new("dpkg-deb").arg("-x").arg(archive).arg(&root))?;
    }
    find().with_context(|| format!("{BUSYBOX} has no busybox"))
}

/// Builds the container that holds a pod's namespaces, from Kubernetes' source.
///
/// # Errors
/// No Go, no C compiler.
pub fn pause(dir: &Path) -> Result<PathBuf> {
    let program = dir.join("pause");
    if program.is_file() {
        return Ok(program);
    }
    let source = golang::source()?.join("build/pause/linux/pause.c");
    if !succeeds(Command::new("cc").arg("--version")) {
        bail!("no C compiler in PATH, which the pause program needs: install gcc and libc6-dev");
    }
    say("compiling the pause program");
    let mut compile = Command::new("cc");
    compile
        .args(["-Os", "-static", "-s", "-DVERSION=podnet", "-o"])
        .arg(&program)
        .arg(source);
    execute(&mut compile)?;
    Ok(program)
}
