//! The control plane: etcd, API server, controllers and scheduler in one namespace.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use testbed::apiserver::{ApiServerFlags, etcd};
use testbed::pki::{NodeName, Pki};

use super::binaries::Binaries;
use super::network;
use super::place::{self, CONTROL};
use super::{cgroup, launch};
use xtask::step::say;

/// Where the API server listens.
const PORT: u16 = 6443;
const ETCD_PORT: u16 = 2379;
const ETCD_PEER_PORT: u16 = 2380;
/// Cluster IPs of Services, both families.
const SERVICES: &str = "10.96.0.0/16,fd00:96::/112";
/// The first address of each: the Service `kubernetes`.
const API_SERVICE: [&str; 2] = ["10.96.0.1", "fd00:96::1"];
/// Addresses of pods, of which each node gets a part.
///
/// The reference plugin uses them; podnet has blocks of its own.
const PODS: &str = "10.244.0.0/16,fd00:10:244::/56";

/// How long a program may take to get ready.
const PATIENCE: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(100);

/// Makes the certificates and starts everything; returns when the server is ready.
///
/// # Errors
/// A program ends or does not get ready; the error names its log.
pub(super) fn start(binaries: &Binaries, nodes: &[NodeName]) -> Result<()> {
    cgroup::create(&place::part(CONTROL))?;
    network::create().context("the network of the cluster")?;
    let pki = certificates(nodes).context("certificates")?;
    let dir = &binaries.kubernetes;

    say("starting etcd and kube-apiserver");
    let mut command = Command::new(dir.join("etcd"));
    command.args(etcd(&place::dir().join("etcd"), ETCD_PORT, ETCD_PEER_PORT));
    spawn("etcd", &command)?;
    let [address, _] = network::control_plane();
    let flags = ApiServerFlags {
        pki: &pki,
        bind: address,
        port: PORT,
        advertise: None,
        etcd_port: ETCD_PORT,
        services: SERVICES,
    };
    let mut command = Command::new(dir.join("kube-apiserver"));
    command.args(flags.to_args());
    let mut server = spawn("kube-apiserver", &command)?;
    wait_for("kube-apiserver to get ready", PATIENCE, || {
        if let Some(status) = server.try_wait().context("waiting for kube-apiserver")? {
            let log = place::log(CONTROL, "kube-apiserver");
            bail!("kube-apiserver ended: {status}; see {}", log.display());
        }
        let ready = place::netns(CONTROL)?.run_in(|| {
            testbed::apiserver::is_ready(&binaries.kubectl(), &pki.kubeconfig("admin"))
        })?;
        Ok(ready)
    })?;

    say("starting kube-controller-manager and kube-scheduler");
    spawn("kube-controller-manager", &controllers(dir, &pki))?;
    spawn("kube-scheduler", &scheduler(dir, &pki))?;
    Ok(())
}

/// A `kubectl` of an administrator.
///
/// # Errors
/// There is no cluster.
pub(super) fn kubectl(binaries: &Path) -> Result<Command> {
    // It must be there, or nsenter would say so in its own words.
    place::netns(CONTROL)?;
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", place::netns_path(CONTROL).display()))
        .arg("--")
        .arg(binaries.join("kubectl"))
        .arg("--kubeconfig")
        .arg(Pki::open(&place::pki()).kubeconfig("admin"))
        .arg("--cache-dir")
        .arg(place::dir().join("kubectl"));
    Ok(command)
}

/// Looks until `probe` holds.
///
/// # Errors
/// The time is over, or the probe's own.
pub(super) fn wait_for(
    what: &str,
    patience: Duration,
    mut probe: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let end = Instant::now() + patience;
    while !probe()? {
        if Instant::now() > end {
            bail!(
                "waited {} s in vain for {what}; logs are in {}",
                patience.as_secs(),
                place::dir().join("log").display()
            );
        }
        thread::sleep(STEP);
    }
    Ok(())
}

fn certificates(nodes: &[NodeName]) -> Result<Pki> {
    let [v4, v6] = network::control_plane();
    let mut names = vec![v4.to_string(), v6.to_string(), "127.0.0.1".to_owned()];
    names.extend(API_SERVICE.map(String::from));
    let service = "kubernetes.default.svc.cluster.local";
    names.extend(["localhost".to_owned(), service.to_owned()]);
    names.extend(
        service
            .match_indices('.')
            .map(|(at, _)| service[..at].to_owned()),
    );
    let server = format!("https://{v4}:{PORT}");
    Ok(Pki::create(&place::pki(), &server, &names, nodes)?)
}

fn spawn(program: &str, command: &Command) -> Result<Child> {
    launch::spawn(CONTROL, program, command)
}

/// Returns the flags that controllers and scheduler have in common.
///
/// There is one of each, asked on loopback only.
fn component(dir: &Path, pki: &Pki, name: &str) -> Command {
    let config = pki.kubeconfig(name);
    let mut command = Command::new(dir.join(name));
    command
        .args(
            [
                "kubeconfig",
                "authentication-kubeconfig",
                "authorization-kubeconfig",
            ]
            .map(|flag| format!("--{flag}={}", config.display())),
        )
        .arg(format!(
            "--tls-cert-file={}",
            pki.certificate(name).display()
        ))
        .arg(format!(
            "--tls-private-key-file={}",
            pki.key(name).display()
        ))
        .args([
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--profiling=false",
        ]);
    command
}

fn controllers(dir: &Path, pki: &Pki) -> Command {
    let mut command = component(dir, pki, "kube-controller-manager");
    command
        .arg("--use-service-account-credentials=true")
        .arg("--allocate-node-cidrs=true")
        .arg(format!("--cluster-cidr={PODS}"))
        .arg(format!("--service-cluster-ip-range={SERVICES}"))
        .args(
            [
                ("service-account-private-key-file", pki.key("sa")),
                ("root-ca-file", pki.certificate("ca")),
                ("cluster-signing-cert-file", pki.certificate("ca")),
                ("cluster-signing-key-file", pki.key("ca")),
                (
                    "requestheader-client-ca-file",
                    pki.certificate("front-proxy-ca"),
                ),
            ]
            .map(|(flag, path)| format!("--{flag}={}", path.display())),
        );
    command
}

fn scheduler(dir: &Path, pki: &Pki) -> Command {
    component(dir, pki, "kube-scheduler")
}

/// The last lines of a log, for an error.
pub(super) fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
