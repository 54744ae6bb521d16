//! A scratch node: a namespace, directories of its own, and a real `podnet-agent`.

mod binaries;
mod drops;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use netdev::{Link, LinkFilter, Netns};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

pub use self::binaries::Binaries;
pub use self::drops::Drops;
use crate::cni::{Call, Outcome};
use crate::host::{Host, connection};
use crate::manifest::Network;
use crate::pod::Pod;
use crate::residue;
use crate::wait;

/// The agent's admin address; each node has a loopback interface of its own.
const ADMIN: &str = "127.0.0.1:9464";
/// Lines of the agent's log shown when a test fails.
const LOG_LINES: usize = 60;

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// What a node starts with.
#[derive(Debug, Clone)]
pub struct Setup {
    files: Vec<(String, String)>,
    args: Vec<String>,
    env: Vec<(String, String)>,
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

    /// The agent is not started.
    #[must_use]
    pub fn stopped(mut self) -> Self {
        self.stopped = true;
        self
    }
}

/// A running node. Dropping it stops the agent, runs `podnet-agent cleanup`, and fails the test if
/// anything is left.
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
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("podnet-test-{}-{number}", std::process::id());
        let prefix = format!("{name}-");
        let node = Self {
            host: Host::create(),
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

    /// Puts a manifest into the agent's directory at once, as a person with an editor does.
    pub fn write_manifest(&self, name: &str, text: &str) {
        let draft = self.path(name);
        fs::write(&draft, text).expect("a manifest can be written");
        fs::rename(draft, self.path("manifests").join(name)).expect("a manifest can be moved");
    }

    /// Removes a manifest.
    pub fn remove_manifest(&self, name: &str) {
        fs::remove_file(self.path("manifests").join(name)).expect("a manifest can be removed");
    }

    /// The configuration for an attachment to `network`.
    pub fn conf(&self, network: &str) -> Value {
        json!({
            "cniVersion": "1.1.0",
            "name": network,
            "type": "podnet",
            "podNetwork": network,
            "socket": self.socket().to_str().expect("a path in UTF-8"),
        })
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

    /// A pod with this container ID.
    pub fn pod(&self, container: &str) -> Pod<'_> {
        Pod::create(self, container)
    }

    /// Starts the agent with the variables of the setup and waits until it is ready.
    ///
    /// # Panics
    /// If one is running already, or it does not get ready.
    pub fn start_agent(&self) {
        self.spawn_agent(&[], &[]);
        self.wait_ready();
    }

    /// Starts the agent with further arguments and waits until it is ready.
    ///
    /// # Panics
    /// As [`Self::start_agent`].
    pub fn start_agent_with(&self, args: &[&str]) {
        self.spawn_agent(args, &[]);
        self.wait_ready();
    }

    /// Starts an agent that aborts when it reaches a point, and waits until it is ready.
    ///
    /// # Panics
    /// As [`Self::start_agent`].
    pub fn start_agent_to_crash_at(&self, point: &str) {
        self.spawn_agent(&[], &[("PODNET_CRASH_AT", point)]);
        self.wait_ready();
    }

    fn spawn_agent(&self, args: &[&str], env: &[(&str, &str)]) {
        let mut agent = self.agent.lock().expect("no test thread panicked");
        assert!(agent.is_none(), "the agent runs already");
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("agent.log"))
            .expect("a log file");
        let mut command = Command::new(&self.binaries.agent);
        command
            .arg("run")
            .arg("--standalone")
            .arg(self.path("manifests"))
            .args(self.places())
            .args(["--admin", ADMIN, "--node-name", "scratch"])
            .args(&self.setup.args)
            .args(args)
            .env("NO_COLOR", "1")
            .envs(self.setup.env.iter().cloned())
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log file"))
            .stderr(log);
        // The child gets the namespace of the thread that makes it.
        let child = self.netns().run_in(|| command.spawn());
        let child = child.expect("the node's namespace can be entered");
        *agent = Some(child.expect("podnet-agent can be executed"));
    }

    fn places(&self) -> [PathBuf; 6] {
        [
            "--socket".into(),
            self.socket(),
            "--state-dir".into(),
            self.path("state"),
            "--bpffs".into(),
            self.bpffs.clone(),
        ]
    }

    fn wait_ready(&self) {
        wait::until_true("the agent to be ready", || {
            let ended = self.with_agent(|child| child.try_wait().expect("the agent is our child"));
            assert!(
                ended.is_none(),
                "the agent ended ({ended:?}) instead of getting ready:\n{}",
                self.log()
            );
            self.http("/readyz").is_some_and(|(status, _)| status == 200)
        });
    }

    fn with_agent<T>(&self, f: impl FnOnce(&mut Child) -> T) -> T {
        let mut agent = self.agent.lock().expect("no test thread panicked");
        f(agent.as_mut().expect("the agent was started"))
    }

    fn take_agent(&self) -> Option<Child> {
        // Also when a test thread panicked: the agent must not outlive its node.
        let mut agent = match self.agent.lock() {
            Ok(agent) => agent,
            Err(poisoned) => poisoned.into_inner(),
        };
        agent.take()
    }

    /// Kills the agent without a chance to do anything.
    ///
    /// # Panics
    /// If there is none.
    pub fn kill_9(&self) {
        let mut child = self.take_agent().expect("the agent was started");
        child.kill().expect("the agent can be killed");
        child.wait().expect("the agent is our child");
    }

    /// Ends whatever agent there is, dead or alive.
    pub fn forget_agent(&self) {
        if let Some(mut child) = self.take_agent() {
            // It may have ended by itself.
            let _ = child.kill();
            child.wait().expect("the agent is our child");
        }
    }

    /// Asks the agent to end, as a service manager does, and waits for it.
    ///
    /// # Panics
    /// If it does not end.
    pub fn terminate(&self) -> ExitStatus {
        let child = self.take_agent().expect("the agent was started");
        terminate(child)
    }

    /// Waits for an agent that dies by itself.
    ///
    /// # Panics
    /// If it does not.
    pub fn wait_dead(&self) {
        let mut child = self.take_agent().expect("the agent was started");
        let died = wait::until("the agent to die", || {
            child.try_wait().expect("the agent is our child")
        });
        assert!(!died.success(), "the agent ended in peace");
    }

    /// True while the agent's process lives.
    pub fn agent_lives(&self) -> bool {
        self.with_agent(|child| child.try_wait().expect("the agent is our child").is_none())
    }

    /// `kill -9` and a new agent.
    pub fn restart(&self) {
        self.kill_9();
        self.start_agent();
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

    /// What was dropped since the node started.
    pub fn drops(&self) -> Drops {
        Drops::read(self.get("drops"))
    }

    /// A request to the admin address: status and body, or nothing when nobody answers.
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
        let _ = File::open(self.path("agent.log")).and_then(|mut file| file.read_to_string(&mut text));
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

    /// Fails the test unless the agent holds nothing: no attachment, no endpoint but gateways.
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

    fn stop(&self) {
        if let Some(child) = self.take_agent() {
            terminate(child);
        }
    }
}

fn terminate(mut child: Child) -> ExitStatus {
    let ended = child.try_wait().expect("the agent is our child");
    if ended.is_none() {
        kill_process(Pid::from_child(&child), Signal::TERM).expect("the agent can be signalled");
    }
    wait::until("the agent to end", || {
        child.try_wait().expect("the agent is our child")
    })
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
