//! Run Open vSwitch with its userspace datapath, in a namespace of its own.
//!
//! Its files are in a directory of its own. It is the one of its datapaths that needs no kernel module.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use netdev::Netns;

use super::provided;
use crate::machine::said;
use crate::traffic::process::Process;

const BRIDGE: &str = "br0";
const SWITCH: &str = "usr/lib/openvswitch-switch/ovs-vswitchd";
/// How long its programs may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the command of an unpacked program, with the libraries of the package.
fn of(root: &Path, program: &str) -> Command {
    let mut command = Command::new(root.join(program));
    let libraries = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    command.env("LD_LIBRARY_PATH", root.join(libraries));
    command
}

/// Returns the version that the switch prints.
pub(crate) fn version() -> Option<String> {
    let root = provided("PODNET_OVS").ok()?;
    let line = said(of(&root, SWITCH).arg("--version"))?;
    line.rsplit(' ').next().map(ToOwned::to_owned)
}

/// A running switch. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Ovs {
    // The switch ends before its database.
    switch: Option<Process>,
    database: Option<Process>,
    root: PathBuf,
    dir: PathBuf,
    netns: Netns,
}

impl Ovs {
    /// Starts both programs in a namespace, their files in `dir`, and makes a bridge.
    pub(super) fn start(netns: &Netns, dir: &Path) -> Result<Self> {
        let root = provided("PODNET_OVS")?;
        std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let mut ovs = Self {
            switch: None,
            database: None,
            root,
            dir: dir.to_owned(),
            netns: netns.clone(),
        };
        let schema = ovs.root.join("usr/share/openvswitch/vswitch.ovsschema");
        let data = dir.join("conf.db");
        let mut create = ovs.command("usr/bin/ovsdb-tool");
        create.arg("create").args([&data, &schema]);
        Process::start(create, netns)?.finish(PATIENCE)?;

        let socket = ovs.socket();
        let mut database = ovs.command("usr/sbin/ovsdb-server");
        database
            .arg(&data)
            .arg(format!("--remote=p{socket}"))
            .args(["--no-chdir", "-vconsole:off"])
            .arg(ovs.option("log-file", "ovsdb-server.log"))
            .arg(ovs.option("unixctl", "ovsdb-server.ctl"));
        ovs.database = Some(Process::start(database, netns)?);
        ovs.wait_for(&dir.join("db.sock"))?;
        ovs.control(&["--no-wait", "init"])?;
        // Without it no TCP passes: a veth leaves checksums to be made by whoever is next.
        let tso = "other_config:userspace-tso-enable=true";
        ovs.control(&["--no-wait", "set", "Open_vSwitch", ".", tso])?;
        let mut switch = ovs.command(SWITCH);
        switch
            .arg(&socket)
            .args(["--no-chdir", "-vconsole:off"])
            .arg(ovs.option("log-file", "ovs-vswitchd.log"))
            .arg(ovs.option("unixctl", "ovs-vswitchd.ctl"));
        ovs.switch = Some(Process::start(switch, netns)?);
        let kind = "datapath_type=netdev";
        ovs.control(&["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, kind])?;
        Ok(ovs)
    }

    /// Makes an interface of the namespace a port of the bridge.
    pub(super) fn add_port(&self, name: &str) -> Result<()> {
        self.control(&["add-port", BRIDGE, name])
    }

    fn control(&self, words: &[&str]) -> Result<()> {
        let mut command = self.command("usr/bin/ovs-vsctl");
        command
            .arg(format!("--db={}", self.socket()))
            .arg(format!("--timeout={}", PATIENCE.as_secs()))
            .args(words);
        let done = Process::start(command, &self.netns)?.finish(PATIENCE * 2);
        done.map(|_| ())
            .with_context(|| format!("ovs-vsctl {}", words.join(" ")))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = of(&self.root, program);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, &self.dir);
        }
        command
    }

    fn option(&self, name: &str, file: &str) -> String {
        format!("--{name}={}", self.dir.join(file).display())
    }

    fn socket(&self) -> String {
        format!("unix:{}", self.dir.join("db.sock").display())
    }

    fn wait_for(&mut self, path: &Path) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if path.exists() {
                return Ok(());
            }
            if let Some(database) = &mut self.database
                && !database.runs()?
            {
                bail!("ovsdb-server ended: {}", database.complaint().trim());
            }
            thread::sleep(Duration::from_millis(10));
        }
        bail!("{} does not appear", path.display())
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        for process in [self.switch.take(), self.database.take()] {
            if let Some(Err(error)) = process.map(Process::terminate) {
                eprintln!("bench: Open vSwitch: {error}");
            }
        }
    }
}
