//! A scratch node: a network namespace with a real agent in it, and pods.
//!
//! The real CNI binary attaches them.

use std::fs::{self, File};
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use netdev::{Address, Link, LinkChange, LinkFilter, NamedNetns, Netns};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testbed::host::connection;
use testbed::node::Binaries;
use testbed::{Network, Port};

use super::interrupt::Interrupt;
use super::place::Place;

/// Name of a pod's interface on its PodNetwork.
const IFNAME: &str = "net1";
/// Addresses of the node itself, for pods to try.
pub(crate) const NODE_V4: [u8; 4] = [192, 0, 2, 1];
/// As [`NODE_V4`].
pub(crate) const NODE_V6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
/// Time for the agent to get ready or to end.
///
/// It is generous: a check of its own says how long it took.
const PATIENCE: Duration = Duration::from_secs(20);

/// A pod with its attachment.
#[derive(Debug)]
pub(crate) struct Pod {
    /// Also its container ID.
    pub(crate) name: String,
    /// The result of `ADD`.
    pub(crate) port: Port,
}

/// The node; dropping it removes everything, [`Stage::keep`] does not.
pub(crate) struct Stage {
    place: Place,
    built: Binaries,
    interrupt: Interrupt,
    node: Netns,
    agent: Option<Child>,
    pods: Vec<Pod>,
    kept: bool,
    _lock: File,
}

impl Stage {
    /// Makes the node with these networks; the agent is not started yet.
    pub(crate) fn set(built: Binaries, interrupt: Interrupt, networks: &[Network]) -> Result<Self> {
        let place = Place::own();
        // What an unfinished stage leaves goes as well.
        let mut unfinished = Removed(Some(place.clone()));
        let lock = place.create()?;
        for network in networks {
            let file = place
                .file("manifests")
                .join(format!("{}.yaml", network.name));
            fs::write(&file, network.yaml())
                .with_context(|| format!("writing {}", file.display()))?;
        }
        testbed::residue::bpffs();
        let node = namespace(&place, "node")?;
        // A node that would forward whatever leaked into it.
        let mut netlink = connection(&node);
        let addresses = [
            Address::new(IpAddr::from(NODE_V4), 32),
            Address::new(IpAddr::from(NODE_V6), 128),
        ];
        for address in addresses {
            netlink.add_address(1, address)?;
        }
        node.run_in(|| -> std::io::Result<()> {
            fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
            fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")
        })?
        .context("switching forwarding on")?;
        unfinished.0 = None;
        Ok(Self {
            place,
            built,
            interrupt,
            node,
            agent: None,
            pods: Vec::new(),
            kept: false,
            _lock: lock,
        })
    }

    /// Adds a manifest before the agent is started.
    pub(crate) fn manifest(&self, name: &str, text: &str) -> Result<()> {
        let file = self.place.file("manifests").join(format!("{name}.yaml"));
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))
    }

    /// The names of everything.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The binaries.
    pub(crate) fn built(&self) -> &Binaries {
        &self.built
    }

    /// To be asked wherever something takes time.
    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// The node's namespace.
    pub(crate) fn node(&self) -> &Netns {
        &self.node
    }

    /// All pods.
    pub(crate) fn pods(&self) -> &[Pod] {
        &self.pods
    }

    /// The attachment of the pod of this name.
    pub(crate) fn port(&self, name: &str) -> Result<&Port> {
        let pod = self.pods.iter().find(|pod| pod.name == name);
        pod.map(|pod| &pod.port)
            .with_context(|| format!("there is no pod {name}"))
    }

    /// Starts the agent and waits until it serves; returns how long that took.
    pub(crate) fn start_agent(&mut self, max_ports: u16) -> Result<Duration> {
        let started = Instant::now();
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.place.file("agent.log"))
            .context("opening the agent's log")?;
        let mut command = Command::new(&self.built.agent);
        command
            .arg("run")
            .arg("--standalone")
            .arg(self.place.file("manifests"))
            .args(self.places())
            .args(["--node-name", "demo", "--max-ports", &max_ports.to_string()])
            // STATUS tells when this agent is ready, not that the one before was.
            .args(["--restart-lease", "0"])
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("opening the agent's log")?)
            .stderr(log)
            // Ctrl-C in the terminal is for the demo alone.
            .process_group(0);
        let child = self.node.run_in(|| command.spawn())?;
        let child = child.with_context(|| format!("starting {}", self.built.agent.display()))?;
        self.agent = Some(child);
        let interrupt = self.interrupt.clone();
        let ready = interrupt.wait(PATIENCE, || {
            if let Some(status) = self
                .agent
                .as_mut()
                .map(Child::try_wait)
                .transpose()?
                .flatten()
            {
                bail!("the agent ended ({status}):\n{}", self.log());
            }
            Ok(self.cni("STATUS", None, "blue", None)?.status.success())
        })?;
        if !ready {
            bail!("the agent does not get ready:\n{}", self.log());
        }
        Ok(started.elapsed())
    }

    /// `kill -9`, and the process is gone.
    pub(crate) fn kill_agent(&mut self) -> Result<()> {
        let mut child = self.agent.take().context("no agent runs")?;
        child.kill().context("killing the agent")?;
        child.wait().context("waiting for the agent")?;
        Ok(())
    }

    /// Asks the agent to end, as a service manager does.
    pub(crate) fn end_agent(&mut self) -> Result<bool> {
        let mut child = self.agent.take().context("no agent runs")?;
        kill_process(Pid::from_child(&child), Signal::TERM).context("ending the agent")?;
        let status = child.wait().context("waiting for the agent")?;
        Ok(status.success())
    }

    /// Makes a pod and attaches it; returns how long the CNI binary took.
    pub(crate) fn attach(&mut self, name: &str, network: &str) -> Result<Duration> {
        self.attach_as(name, network, None)
    }

    /// The same, by a PodNetworkAttachment to that network.
    pub(crate) fn attach_as(
        &mut self,
        name: &str,
        network: &str,
        object: Option<&str>,
    ) -> Result<Duration> {
        self.interrupt.check()?;
        let netns = namespace(&self.place, name)?;
        let started = Instant::now();
        let output = self.cni("ADD", Some(name), network, object)?;
        let elapsed = started.elapsed();
        if !output.status.success() {
            bail!("ADD of {name} failed: {}", said(&output));
        }
        let result = serde_json::from_slice(&output.stdout).context("ADD printed no JSON")?;
        let port = self.port_of(name, network, netns, result)?;
        self.pods.push(Pod {
            name: name.to_owned(),
            port,
        });
        Ok(elapsed)
    }

    /// `DEL` of all pods, then their namespaces go, as a runtime does it.
    pub(crate) fn detach_all(&mut self) -> Result<Vec<Duration>> {
        let pods = std::mem::take(&mut self.pods);
        pods.into_iter().map(|pod| self.take_down(&pod)).collect()
    }

    /// The same with the pod that was attached last.
    pub(crate) fn detach_last(&mut self) -> Result<Duration> {
        let pod = self.pods.pop().context("there is no pod")?;
        self.take_down(&pod)
    }

    fn take_down(&self, pod: &Pod) -> Result<Duration> {
        let started = Instant::now();
        let output = self.cni("DEL", Some(&pod.name), &pod.port.network, None)?;
        let took = started.elapsed();
        if !output.status.success() {
            bail!("DEL of {} failed: {}", pod.name, said(&output));
        }
        NamedNetns::remove(&self.place.netns(&pod.name))?;
        Ok(took)
    }

    /// `podnet-agent get WHAT -o json`.
    pub(crate) fn get(&self, what: &str) -> Result<Vec<Value>> {
        let output = Command::new(&self.built.agent)
            .args(["get", what, "-o", "json", "--socket"])
            .arg(self.place.socket())
            .stdin(Stdio::null())
            .output()
            .context("starting podnet-agent get")?;
        if !output.status.success() {
            bail!("podnet-agent get {what}: {}", said(&output));
        }
        serde_json::from_slice(&output.stdout).context("podnet-agent get printed no list")
    }

    /// `podnet-agent cleanup` in the node's namespace; returns what it printed.
    pub(crate) fn cleanup(&self) -> Result<String> {
        let mut command = Command::new(&self.built.agent);
        command
            .arg("cleanup")
            .args(self.places())
            .stdin(Stdio::null());
        let output = self.node.run_in(|| command.output())?;
        let output = output.context("starting podnet-agent cleanup")?;
        if !output.status.success() {
            bail!("podnet-agent cleanup: {}", said(&output));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Links in the node's namespace, without the loopback.
    pub(crate) fn node_links(&self) -> Result<Vec<Link>> {
        let mut links = connection(&self.node).list(&LinkFilter::default())?;
        links.retain(|link| link.name != "lo");
        Ok(links)
    }

    /// Leaves everything up.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }

    /// Removes everything, telling whether that worked.
    pub(crate) fn remove(mut self) -> Result<()> {
        self.kept = true;
        self.reap();
        self.place.remove()
    }

    fn reap(&mut self) {
        if let Some(mut child) = self.agent.take() {
            // It may have ended by itself, and there is nobody to tell.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn places(&self) -> [PathBuf; 6] {
        [
            "--socket".into(),
            self.place.socket(),
            "--state-dir".into(),
            self.place.file("state"),
            "--bpffs".into(),
            self.place.bpffs(),
        ]
    }

    fn cni(
        &self,
        command: &str,
        container: Option<&str>,
        network: &str,
        object: Option<&str>,
    ) -> Result<Output> {
        let mut conf = json!({
            "cniVersion": "1.1.0",
            "name": network,
            "type": "podnet",
            "socket": self.place.socket(),
        });
        match object {
            Some(object) => conf["podNetworkAttachment"] = object.into(),
            None => conf["podNetwork"] = network.into(),
        }
        let mut call = Command::new(&self.built.cni);
        call.env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_PATH", "/opt/cni/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(container) = container {
            call.env("CNI_CONTAINERID", container)
                .env("CNI_IFNAME", IFNAME)
                .env("CNI_NETNS", self.place.netns(container));
        }
        let child = self.node.run_in(|| call.spawn())?;
        let mut child = child.with_context(|| format!("starting {}", self.built.cni.display()))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A plugin that fails early does not read; its error says more than ours.
            let _ = stdin.write_all(conf.to_string().as_bytes());
        }
        child.wait_with_output().context("waiting for podnet")
    }

    fn port_of(&self, name: &str, network: &str, netns: Netns, result: Value) -> Result<Port> {
        let missing = || format!("the result of ADD is not complete: {result}");
        let sandbox = self.place.netns(name);
        let inside = result["interfaces"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|interface| {
                interface["sandbox"].as_str().map(PathBuf::from) == Some(sandbox.clone())
            })
            .with_context(missing)?;
        let mac = inside["mac"].as_str().and_then(|mac| mac.parse().ok());
        let ips: Option<Vec<(IpAddr, u8)>> = result["ips"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|ip| {
                let (ip, length) = ip["address"].as_str()?.split_once('/')?;
                Some((ip.parse().ok()?, length.parse().ok()?))
            })
            .collect();
        Ok(Port {
            netns,
            container: name.to_owned(),
            network: network.to_owned(),
            ifname: IFNAME.to_owned(),
            mac: mac.with_context(missing)?,
            ips: ips.with_context(missing)?,
            result,
        })
    }

    /// The end of the agent's log.
    fn log(&self) -> String {
        let text = fs::read_to_string(self.place.file("agent.log")).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        eprintln!("podnet: taking the demo down");
        self.reap();
        if let Err(error) = self.place.remove() {
            eprintln!("podnet: {error:#}; `cargo xtask demo --teardown` removes what is left");
        }
    }
}

/// Removes a place unless it is told not to.
struct Removed(Option<Place>);

impl Drop for Removed {
    fn drop(&mut self) {
        if let Some(place) = &self.0 {
            // The error that led here is the one to tell.
            let _ = place.remove();
        }
    }
}

/// A named namespace whose loopback is up. [`Place::remove`] finds it by its name.
fn namespace(place: &Place, name: &str) -> Result<Netns> {
    let netns = NamedNetns::create(&place.netns(name))?.keep();
    connection(&netns).reconfigure(1, &LinkChange::updown(true))?;
    Ok(netns)
}

/// Returns a program's output, on one line.
fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let text = String::from_utf8_lossy(&text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
