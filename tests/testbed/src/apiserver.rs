//! A real `kube-apiserver` with an etcd of its own, on free ports of loopback.
//!
//! It validates, stores and watches objects as in any cluster. No kubelet and no controller: nothing runs
//! pods.
//!
//! ```no_run
//! let Some(server) = testbed::apiserver::shared(testbed::test_name!()) else { return };
//! // A client reads `server.kubeconfig()`; each test makes a namespace of its own.
//! ```

mod door;
mod flags;
mod guard;

use std::env;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

pub use self::door::Door;
pub use self::flags::{ApiServerFlags, etcd};
pub use self::guard::Guarded;
use crate::pki::Pki;
use crate::skip;

/// Directory with the programs; `cargo xtask test` sets it.
const PROGRAMS: &str = "PODNET_KUBERNETES";
/// Why there is none, if `cargo xtask test` knows.
const NO_PROGRAMS: &str = "PODNET_NO_KUBERNETES";
/// Variable with a directory of programs, named as by others' envtest.
const ASSETS: &str = "KUBEBUILDER_ASSETS";
/// Programs a server consists of; kubectl asks whether it is ready.
pub const NEEDED: [&str; 3] = ["etcd", "kube-apiserver", "kubectl"];

/// Cluster IPs of Services, as most clusters have them.
const SERVICES: &str = "10.96.0.0/16";
/// A port that was free may be taken before it is bound.
const ATTEMPTS: u32 = 3;
/// Longest start of a server; alone on an idle machine it is a few seconds.
const PATIENCE: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(50);

/// Returns the one server of this test binary, started by the first test that asks.
///
/// It ends with the process, however that ends. `None`, and said, when it cannot be had here.
///
/// # Panics
/// If it does not get ready.
pub fn shared(test: &str) -> Option<&'static ApiServer> {
    static SERVER: OnceLock<ApiServer> = OnceLock::new();
    let programs = programs_for(test)?;
    Some(SERVER.get_or_init(|| ApiServer::start(&programs, &[])))
}

/// Returns the programs' directory, for a test that starts a server of its own.
///
/// `None`, and said, when they cannot be had here.
pub fn programs_for(test: &str) -> Option<PathBuf> {
    let programs = programs();
    if programs.is_none() {
        let why = env::var(NO_PROGRAMS).map_or(String::new(), |why| format!(": {why}"));
        skip::skip(test, &format!("needs kube-apiserver{why}"));
    }
    programs
}

/// Where the programs are, if they are all there.
pub fn programs() -> Option<PathBuf> {
    let named = [PROGRAMS, ASSETS]
        .into_iter()
        .filter_map(|variable| env::var_os(variable).map(PathBuf::from));
    named.into_iter().find(|dir| {
        let mut all = NEEDED.iter().map(|name| dir.join(name));
        all.all(|program| program.is_file())
    })
}

/// A running server. Dropping it ends its processes and removes its files.
#[derive(Debug)]
pub struct ApiServer {
    pki: Pki,
    port: u16,
    // Ends first.
    process: Guarded,
    _etcd: Guarded,
}

impl ApiServer {
    /// Starts a server with further flags and waits until it is ready.
    ///
    /// # Panics
    /// If it does not get ready, with the end of its log.
    pub fn start(programs: &Path, flags: &[&str]) -> Self {
        let mut attempts = (0..ATTEMPTS).filter_map(|_| {
            let server = Self::try_start(programs, flags);
            server
                .inspect_err(|why| eprintln!("kube-apiserver {why}"))
                .ok()
        });
        attempts
            .next()
            .expect("kube-apiserver gets ready; its log is above")
    }

    fn try_start(programs: &Path, flags: &[&str]) -> Result<Self, String> {
        let dir = tempfile::Builder::new()
            .prefix("podnet-apiserver-")
            .tempdir()
            .expect("a directory for the server")
            // Removed by the guard of etcd, which outlives this process.
            .keep();
        let [port, etcd_port, peer_port] = free_ports();
        let localhost = Ipv4Addr::LOCALHOST;
        let url = format!("https://{localhost}:{port}");
        let names = [localhost.to_string(), "localhost".to_owned()];
        let pki = Pki::create(&dir, &url, &names, &[]).expect("certificates can be written");

        let mut etcd_command = Command::new(programs.join("etcd"));
        etcd_command.args(etcd(&dir.join("etcd"), etcd_port, peer_port));
        let etcd = Guarded::spawn(&etcd_command, &dir.join("etcd.log"), Some(&dir));
        let mut command = Command::new(programs.join("kube-apiserver"));
        let own = ApiServerFlags {
            pki: &pki,
            bind: IpAddr::V4(localhost),
            port,
            // Not loopback, which it refuses; nobody goes there.
            advertise: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))),
            etcd_port,
            services: SERVICES,
        };
        command
            .args(own.to_args())
            .arg(format!("--cert-dir={}", dir.display()))
            // Nobody here makes the service accounts that it would ask for.
            .arg("--disable-admission-plugins=ServiceAccount")
            .args(flags);
        let log = dir.join("kube-apiserver.log");
        let server = Guarded::spawn(&command, &log, None);
        let mut this = Self {
            pki,
            port,
            process: server,
            _etcd: etcd,
        };
        this.wait_ready(&programs.join("kubectl"))
            .map_err(|why| format!("{why}:\n{}", tail(&log)))?;
        Ok(this)
    }

    /// Kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.pki.kubeconfig("admin")
    }

    /// Runs kubectl as the administrator.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn kubectl(&self, arguments: &[&str]) -> Output {
        let programs = programs().expect("there is a server, so there are its programs");
        Command::new(programs.join("kubectl"))
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(arguments)
            // Where it keeps what it learned of the server.
            .env("KUBECACHEDIR", self.kubeconfig().with_extension("cache"))
            .output()
            .expect("kubectl starts")
    }

    /// Installs the definitions of `deploy/crds`.
    ///
    /// # Panics
    /// If the server does not take one, or warns of it.
    pub fn install_definitions(&self) {
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
        let files = files.to_str().expect("a path that is text");
        for arguments in [
            &["apply", "--server-side", "--filename", files][..],
            &[
                "wait",
                "--for=condition=Established",
                "--timeout=60s",
                "--filename",
                files,
            ],
        ] {
            let output = self.kubectl(arguments);
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success(),
                "kubectl {arguments:?}: {complaint}"
            );
            // The server warns of what it takes and does not understand, a format for example.
            assert!(!complaint.contains("Warning"), "{complaint}");
        }
    }

    /// Its certificates, for users other than the administrator.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    fn wait_ready(&mut self, kubectl: &Path) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if self.process.has_ended() {
                return Err("ended at once".to_owned());
            }
            if is_ready(kubectl, &self.kubeconfig()) {
                return Ok(());
            }
            thread::sleep(STEP);
        }
        Err(format!("is not ready after {} s", PATIENCE.as_secs()))
    }
}

/// Whether the API server of this kubeconfig answers that it is ready.
pub fn is_ready(kubectl: &Path, kubeconfig: &Path) -> bool {
    Command::new(kubectl)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["get", "--raw", "/readyz", "--request-timeout=2s"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Returns free ports, all different.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N]
        .map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on loopback"));
    listeners.map(|listener| listener.local_addr().expect("a bound socket").port())
}

/// The last lines of a log.
fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
