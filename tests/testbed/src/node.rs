//! A scratch node: a namespace, directories of its own, and a real `podnet-agent`.

mod agent;
mod binaries;
mod conf;
mod drops;
mod explain;
mod switch;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use netdev::{Link, LinkFilter, Netns};
use serde_json::{Value, json};
use tempfile::TempDir;

pub use self::binaries::Binaries;
pub use self::drops::Drops;
pub use self::explain::Explained;
use crate::cni::{Call, Outcome};
use crate::host::{Host, connection};
use crate::manifest::Network;
use crate::pod::{Pod, Port};
use crate::residue;
use crate::wait;

/// The agent's admin address; each node has a loopback interface of its own.
const ADMIN: &str = "127.0.0.1:9464";
/// Lines of the agent's log shown when a test fails.
const LOG_LINES: usize = 60;

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Settings of a node's start.
#[derive(Debug, Clone)]
pub struct Setup {
    files: Vec<(String, String)>,
    args: Vec<String>,
    env: Vec<(String, String)>,
    name: String,
    kubeconfig: Option<PathBuf>,
    stopped: bool,
}

impl Default for Setup {
    fn default() -> Self {
        let mut setup = Self::empty();
        for network in Network::standard() {
            setup = setup.network(&network);
        }
        setup
    }
}

impl Setup {
    /// No networks.
    pub fn empty() -> Self {
        Self {
            files: Vec::new(),
            args: Vec::new(),
            env: Vec::new(),
            name: "scratch".to_owned(),
            kubeconfig: None,
            stopped: false,
        }
    }

    /// Adds a network in a file of its own.
    #[must_use]
    pub fn network(self, network: &Network) -> Self {
        let name = format!("{}.yaml", network.name);
        self.file(&name, &network.yaml())
    }

    /// Adds a manifest file.
    #[must_use]
    pub fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Adds arguments of `podnet-agent run`.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// Adds a variable to the agent's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Has the agent log what audits find: [`Node::assert_audit_finds_nothing`].
    #[must_use]
    pub fn with_audits_logged(self) -> Self {
        self.env("PODNET_LOG", "info,agent::attach=debug")
    }

    /// Makes the agent this node of a kubeconfig's cluster; it reads no files.
    #[must_use]
    pub fn cluster(mut self, name: &str, kubeconfig: &Path) -> Self {
        name.clone_into(&mut self.name);
        self.kubeconfig = Some(kubeconfig.to_owned());
        self
    }

    /// The node's name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// The agent is not started.
    #[must_use]
    pub fn stopped(mut self) -> Self {
        self.stopped = true;
        self
    }
}

/// A running node; dropping it fails the test if anything is left.
///
/// It stops the agent and runs `podnet-agent cleanup`.
#[derive(Debug)]
pub struct Node {
    host: Host,
    dir: TempDir,
    bpffs: PathBuf,
    binaries: Binaries,
    setup: Setup,
    agent: Mutex<Option<Child>>,
}

impl Node {
    /// Makes a node and waits until its agent is ready.
    ///
    /// # Panics
    /// If any of that fails.
    pub fn start(setup: Setup) -> Self {
        Self::start_on(setup, Host::create())
    }

    /// The same on a network that is there already.
    ///
    /// # Panics
    /// If any of that fails.
    pub fn start_on(setup: Setup, host: Host) -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("podnet-test-{}-{number}", std::process::id());
        let prefix = format!("{name}-");
        let node = Self {
            host,
            dir: tempfile::Builder::new()
                .prefix(&prefix)
                .tempdir()
                .expect("a directory for the node"),
            bpffs: residue::bpffs().join(name),
            binaries: Binaries::find(),
            agent: Mutex::new(None),
            setup,
        };
        for dir in ["manifests", "run", "state", "netns"] {
            fs::create_dir(node.path(dir)).expect("a directory of the node");
        }
        for (name, text) in &node.setup.files {
            node.write_manifest(name, text);
        }
        if !node.setup.stopped {
            node.start_agent();
        }
        node
    }

    /// Name of the node.
    pub fn name(&self) -> &str {
        &self.setup.name
    }

    /// A path in the node's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where the agent listens.
    pub fn socket(&self) -> PathBuf {
        self.path("run").join("agent.sock")
    }

    /// Where the agent pins.
    pub fn bpffs(&self) -> &Path {
        &self.bpffs
    }

    /// Where the agent lives.
    pub fn netns(&self) -> &Netns {
        self.host.netns()
    }

    /// The node's network.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The binaries under test.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// Puts a manifest into the agent's directory at once, as an editor does.
    pub fn write_manifest(&self, name: &str, text: &str) {
        let draft = self.path(name);
        fs::write(&draft, text).expect("a manifest can be written");
        fs::rename(draft, self.path("manifests").join(name)).expect("a manifest can be moved");
    }

    /// Removes a manifest.
    pub fn remove_manifest(&self, name: &str) {
        fs::remove_file(self.path("manifests").join(name)).expect("a manifest can be removed");
    }

    /// A CNI call to be completed.
    pub fn cni(&self, command: &str) -> Call<'_> {
        Call::new(self, command)
    }

    /// `GC` of a network; `valid` is what the runtime still knows (CNI-GC-01).
    pub fn gc(&self, network: &str, valid: &[(&str, &str)]) -> Outcome {
        let list: Vec<_> = valid
            .iter()
            .map(|(id, ifname)| json!({"containerID": id, "ifname": ifname}))
            .collect();
        let mut conf = self.conf(network);
        conf["cni.dev/valid-attachments"] = list.into();
        self.cni("GC").conf(&conf).run()
    }

    /// Fails the test unless an audit finds every attachment as recorded, at a glance.
    ///
    /// The agent logs as [`Setup::with_audits_logged`] has it.
    ///
    /// # Panics
    /// As said.
    #[track_caller]
    pub fn assert_audit_finds_nothing(&self, network: &str) {
        // A GC without a list asks for an audit, and is answered after it.
        self.cni("GC").conf(&self.conf(network)).run().silent();
        let log = self.log();
        let word = log.lines().rfind(|line| line.contains("suspects="));
        let is_clean = word.is_some_and(|word| word.contains("suspects=0"));
        assert!(is_clean, "{word:?}");
    }

    /// A pod with this container ID.
    pub fn pod(&self, container: &str) -> Pod<'_> {
        Pod::create(self, container)
    }

    /// Runs a command of `podnet-agent` on this node.
    pub fn agent_command(&self, args: &[&str]) -> Output {
        let mut command = Command::new(&self.binaries.agent);
        command.args(args).stdin(Stdio::null());
        self.netns()
            .run_in(|| command.output())
            .expect("the node's namespace can be entered")
            .expect("podnet-agent can be executed")
    }

    /// `podnet-agent get WHAT -o json`.
    ///
    /// # Panics
    /// If it fails or does not print a list.
    pub fn get(&self, what: &str) -> Vec<Value> {
        let socket = self.socket();
        let socket = socket.to_str().expect("a path in UTF-8");
        let output = self.agent_command(&["get", what, "-o", "json", "--socket", socket]);
        assert!(output.status.success(), "get {what}: {output:?}");
        serde_json::from_slice(&output.stdout).expect("get prints a JSON list")
    }

    /// The (container, ifname) pairs the agent holds, sorted.
    ///
    /// # Panics
    /// As [`Self::get`].
    pub fn attachments(&self) -> Vec<(String, String)> {
        let text = |value: &Value, key: &str| {
            let text = value[key].as_str();
            text.unwrap_or_else(|| {
                assert!(text.is_some(), "{value} has no `{key}`");
                ""
            })
            .to_owned()
        };
        let list = self.get("attachments");
        let mut keys: Vec<_> = list
            .iter()
            .map(|entry| (text(entry, "container"), text(entry, "ifname")))
            .collect();
        keys.sort();
        keys
    }

    /// Returns the drops since the node started.
    pub fn drops(&self) -> Drops {
        Drops::read(self.get("drops"))
    }

    /// Asks the admin address; returns status and body, `None` without an answer.
    pub fn http(&self, path: &str) -> Option<(u16, String)> {
        let stream = self.netns().run_in(|| TcpStream::connect(ADMIN));
        let mut stream = stream.expect("the node's namespace can be entered").ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, body.to_owned()))
    }

    /// Waits until a port has its TCX link, and returns where that is pinned.
    ///
    /// # Panics
    /// If it does not get one.
    pub fn wait_tcx(&self, port: &Port) -> PathBuf {
        let pin = self.link_pin(port.host_ifindex());
        wait::until_true("the port's TCX link", || pin.exists());
        pin
    }

    /// Where the TCX link of an interface is pinned, if it has one.
    pub fn link_pin(&self, ifindex: u32) -> PathBuf {
        self.bpffs.join("links").join(ifindex.to_string())
    }

    /// Names of the DELs that wait for the agent (CNI-DEL-05).
    pub fn tombstones(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path("run").join("pending-del")) else {
            return Vec::new();
        };
        let names = entries.flatten().map(|entry| entry.file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    }

    /// All links in the node's namespace.
    pub fn links(&self) -> Vec<Link> {
        connection(self.netns())
            .list(&LinkFilter::default())
            .expect("links can be read")
    }

    /// The last lines of the agent's log.
    pub fn log(&self) -> String {
        let mut text = String::new();
        // A log that cannot be read is an empty one: this is only for people.
        let _ =
            File::open(self.path("agent.log")).and_then(|mut file| file.read_to_string(&mut text));
        let lines: Vec<_> = text.lines().collect();
        let first = lines.len().saturating_sub(LOG_LINES);
        lines.get(first..).unwrap_or_default().join("\n")
    }

    /// `podnet-agent cleanup`, which needs no agent.
    pub fn cleanup(&self, more: &[&str]) -> Output {
        let places = self.places();
        let mut args: Vec<&str> = vec!["cleanup"];
        args.extend(places.iter().filter_map(|path| path.to_str()));
        args.extend(more);
        self.agent_command(&args)
    }

    /// Fails the test unless the agent has no attachment, no endpoint but gateways.
    ///
    /// # Panics
    /// Then.
    #[track_caller]
    pub fn assert_empty(&self) {
        let held = self.attachments();
        assert!(held.is_empty(), "attachments are left: {held:?}");
        let endpoints = residue::endpoints_of_pods(self.get("endpoints"));
        assert!(endpoints.is_empty(), "endpoints are left: {endpoints:?}");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the agent's log:\n{}\n---", self.log());
            if let Some(mut child) = self.take_agent() {
                // Whatever fails here, the test has failed already.
                let _ = child.kill();
                let _ = child.wait();
            }
            let _ = self.cleanup(&[]);
            let _ = fs::remove_dir_all(&self.bpffs);
            return;
        }
        self.stop();
        let output = self.cleanup(&[]);
        assert!(output.status.success(), "cleanup failed: {output:?}");
        residue::assert_none(self);
    }
}
