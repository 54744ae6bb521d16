//! Test `podnet-agent controller` in a cluster of its own.
//!
//! It is a real API server, and no other process writes the objects. It runs as the service account of
//! `deploy/base/controller.yaml`, so what it needs is what is deployed.

mod addresses;
mod advice;
mod default;
mod excess;
mod exchange;
mod gate;
mod in_use;
mod leader;
mod numbers;
mod objects;
mod parameters;
mod policy;
mod ports;
mod ready;
mod references;
mod services;
mod slices;
mod switches;
mod thinking;
mod transports;
mod vpcs;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};
use testbed::apiserver::{self, ApiServer, Guarded};
use testbed::node::Binaries;
use testbed::wait;

use super::objects::kubectl;
use super::scene::Scene;

/// Account of the deployed controller.
const ACCOUNT: &str = "system:serviceaccount:podnet-system:podnet-controller";

/// A controller that ends with the tests, or before.
#[derive(Debug)]
struct Controller {
    admin: u16,
    log: PathBuf,
    process: Guarded,
}

impl Controller {
    /// Starts one with the rights of the deployed one, and these further options.
    fn start(server: &ApiServer, name: &str, options: &[&str]) -> Self {
        Self::start_as(&kubeconfig(server), server, name, options)
    }

    fn start_as(kubeconfig: &Path, server: &ApiServer, name: &str, options: &[&str]) -> Self {
        let admin = free_port();
        let log = server.kubeconfig().with_file_name(format!("{name}.log"));
        let mut command = Command::new(Binaries::find().agent);
        command
            .arg("controller")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg(format!("--admin=127.0.0.1:{admin}"))
            .arg("--leader-elect-resource-namespace=podnet-system")
            .args(["--pod-name", name])
            .args(options);
        let process = Guarded::spawn(&command, &log, None);
        Self {
            admin,
            log,
            process,
        }
    }

    /// Waits until it has read the cluster.
    fn wait_ready(&mut self) {
        wait::until_true("the controller to be ready", || {
            assert!(
                !self.process.has_ended(),
                "the controller ended:\n{}",
                self.log()
            );
            self.http("/readyz")
                .is_some_and(|(status, _)| status == 200)
        });
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn http(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.admin)).ok()?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: controller\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// The value of a metric, with its labels in its name.
    fn metric(&self, name: &str) -> Option<f64> {
        let (_, body) = self.http("/metrics")?;
        let mut lines = body.lines().filter_map(|line| line.rsplit_once(' '));
        let (_, value) = lines.find(|(found, _)| *found == name)?;
        value.parse().ok()
    }

    fn leads(&self) -> bool {
        self.metric("podnet_controller_leader") == Some(1.0)
    }
}

/// Starts a cluster with podnet's definitions and the controller's rights only.
///
/// No controller runs.
fn empty_cluster(programs: &Path) -> ApiServer {
    let server = ApiServer::start(programs, &[]);
    server.install_definitions();
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/base");
    for file in [
        "namespace.yaml",
        "controller.yaml",
        "controller-policy.yaml",
    ] {
        let path = base.join(file);
        let path = path.to_str().expect("a path that is text");
        let output = kubectl(&server, &["apply", "--server-side", "--filename", path]);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{file}: {complaint}");
    }
    server
}

/// Returns the shared cluster, with a controller that runs as long as the tests.
fn set(test: &str) -> Option<Scene> {
    struct Cluster {
        server: ApiServer,
        _controller: Controller,
    }
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    let programs = apiserver::programs_for(test)?;
    let cluster = CLUSTER.get_or_init(|| {
        let server = empty_cluster(&programs);
        let mut controller = Controller::start(&server, "controller", &["--reclaim-delay=1"]);
        controller.wait_ready();
        Cluster {
            server,
            _controller: controller,
        }
    });
    Some(Scene::on(&cluster.server))
}

/// A kubeconfig by which the administrator acts as the controller.
fn kubeconfig(server: &ApiServer) -> PathBuf {
    let text = fs::read_to_string(server.kubeconfig()).expect("a kubeconfig");
    let mut config: Value = serde_json::from_str(&text).expect("written as JSON");
    let user = &mut config["users"][0]["user"];
    user["as"] = ACCOUNT.into();
    user["as-groups"] = json!(["system:serviceaccounts", "system:authenticated"]);
    let path = server.kubeconfig().with_file_name("controller.kubeconfig");
    fs::write(&path, config.to_string()).expect("a file can be written");
    path
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on loopback");
    listener.local_addr().expect("a bound socket").port()
}
