//! The agent's process: its start in the node's namespace, and the ways it can end.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{ADMIN, Node};
use crate::wait;

impl Node {
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

    /// Starts the agent with this stdout, and waits until it is ready.
    ///
    /// # Panics
    /// As [`Self::start_agent`].
    pub fn start_agent_writing_to(&self, stdout: impl Into<Stdio>, args: &[&str]) {
        self.spawn_agent_writing_to(stdout.into(), args, &[]);
        self.wait_ready();
    }

    /// Starts an agent that aborts at a point, and waits until it is ready.
    ///
    /// # Panics
    /// As [`Self::start_agent`].
    pub fn start_agent_to_crash_at(&self, point: &str) {
        self.spawn_agent(&[], &[("PODNET_CRASH_AT", point)]);
        self.wait_ready();
    }

    /// Starts an agent that aborts at a point, and does not wait for it.
    ///
    /// # Panics
    /// If one is running already.
    pub fn launch_agent_to_crash_at(&self, point: &str) {
        self.spawn_agent(&[], &[("PODNET_CRASH_AT", point)]);
    }

    /// Starts the agent and does not wait for it.
    ///
    /// # Panics
    /// If one is running already.
    pub fn launch_agent(&self) {
        self.spawn_agent(&[], &[]);
    }

    fn spawn_agent(&self, args: &[&str], env: &[(&str, &str)]) {
        self.spawn_agent_writing_to(self.open_log().into(), args, env);
    }

    fn open_log(&self) -> File {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("agent.log"))
            .expect("a log file")
    }

    fn spawn_agent_writing_to(&self, stdout: Stdio, args: &[&str], env: &[(&str, &str)]) {
        let mut agent = self.agent.lock().expect("no test thread panicked");
        assert!(agent.is_none(), "the agent runs already");
        let mut command = Command::new(&self.binaries.agent);
        command
            .arg("run")
            .args(self.source())
            .args(self.places())
            .args(["--admin", ADMIN, "--node-name", &self.setup.name])
            .args(&self.setup.args)
            .args(args)
            .env("NO_COLOR", "1")
            // Ports as they are most of their lives; `Setup` can ask for another age.
            .env("PODNET_TCX_AFTER", "0")
            // A test that ends its agent wants the answers of its absence; `Setup` can ask for a lease.
            .env("PODNET_RESTART_LEASE", "0")
            .envs(self.setup.env.iter().cloned())
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(self.open_log());
        // The child gets the namespace of the thread that makes it.
        let child = self.netns().run_in(|| command.spawn());
        let child = child.expect("the node's namespace can be entered");
        *agent = Some(child.expect("podnet-agent can be executed"));
    }

    fn source(&self) -> [PathBuf; 2] {
        match &self.setup.kubeconfig {
            Some(file) => ["--kubeconfig".into(), file.clone()],
            None => ["--standalone".into(), self.path("manifests")],
        }
    }

    pub(super) fn places(&self) -> [PathBuf; 6] {
        [
            "--socket".into(),
            self.socket(),
            "--state-dir".into(),
            self.path("state"),
            "--bpffs".into(),
            self.bpffs.clone(),
        ]
    }

    /// Waits until a started agent is ready.
    ///
    /// # Panics
    /// If it ends instead.
    pub fn wait_ready(&self) {
        wait::until_within(wait::START, "the agent to be ready", || {
            let ended = self.with_agent(|child| child.try_wait().expect("the agent is our child"));
            assert!(
                ended.is_none(),
                "the agent ended ({ended:?}) instead of getting ready:\n{}",
                self.log()
            );
            self.http("/readyz").filter(|(status, _)| *status == 200)
        });
    }

    fn with_agent<T>(&self, f: impl FnOnce(&mut Child) -> T) -> T {
        let mut agent = self.agent.lock().expect("no test thread panicked");
        f(agent.as_mut().expect("the agent was started"))
    }

    pub(super) fn take_agent(&self) -> Option<Child> {
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
        // It may have to come up first, as far as to where it dies.
        let died = wait::until_within(wait::START, "the agent to die", || {
            child.try_wait().expect("the agent is our child")
        });
        assert!(!died.success(), "the agent ended in peace");
    }

    /// The agent's process.
    ///
    /// # Panics
    /// If it was not started.
    pub fn agent_pid(&self) -> Pid {
        self.with_agent(|child| Pid::from_child(child))
    }

    /// The most memory that the agent's process had, bytes.
    ///
    /// # Panics
    /// If it was not started.
    pub fn agent_peak(&self) -> usize {
        let status = format!("/proc/{}/status", self.agent_pid().as_raw_nonzero());
        let status = std::fs::read_to_string(status).expect("the agent lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
        kib.expect("a number of KiB") << 10
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

    pub(super) fn stop(&self) {
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
