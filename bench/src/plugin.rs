//! Executing CNI plugins as a runtime does, and how long that takes.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use netdev::Netns;
use serde_json::{Value, json};

use crate::interrupt;
use crate::sandbox::Sandbox;

/// Where distributions put the reference plugins.
const DIRECTORIES: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// A reference plugin.
///
/// # Errors
/// It is not installed.
pub fn reference(name: &str) -> Result<PathBuf> {
    let own = std::env::var_os("CNI_PLUGINS").map(PathBuf::from);
    let mut paths = own
        .into_iter()
        .chain(DIRECTORIES.map(PathBuf::from))
        .map(|dir| dir.join(name));
    paths.find(|path| path.is_file()).with_context(|| {
        format!(
            "the reference plugin `{name}` is missing: install containernetworking-plugins, \
             or let CNI_PLUGINS name its directory"
        )
    })
}

/// A plugin with its configuration, run in a node's namespace.
#[derive(Debug, Clone)]
pub struct Plugin {
    /// For tables.
    pub label: String,
    binary: PathBuf,
    conf: Value,
    node: Netns,
}

impl Plugin {
    /// Any plugin.
    pub fn new(label: &str, binary: &Path, conf: Value, node: &Netns) -> Self {
        Self {
            label: label.to_owned(),
            binary: binary.to_owned(),
            conf,
            node: node.clone(),
        }
    }

    /// The reference `bridge` with `host-local` for these subnets, its leases under `dir`.
    ///
    /// # Errors
    /// They are not installed.
    pub fn bridge(label: &str, node: &Netns, dir: &Path, subnets: &[&str]) -> Result<Self> {
        let binary = reference("bridge")?;
        reference("host-local")?;
        let ranges: Vec<_> = subnets.iter().map(|net| json!([{"subnet": net}])).collect();
        let conf = json!({
            "cniVersion": "1.0.0",
            "name": label.replace(' ', "-"),
            "type": "bridge",
            "bridge": "cni0",
            "ipam": {"type": "host-local", "dataDir": dir.join("leases"), "ranges": ranges},
        });
        Ok(Self::new(label, &binary, conf, node))
    }

    /// Runs the plugin for `net1` of a pod; returns the time from its start to its end, and its
    /// result.
    ///
    /// # Errors
    /// It fails.
    pub fn call(&self, command: &str, pod: Option<&Sandbox>) -> Result<(Duration, Value)> {
        self.execute(command, pod.map(|pod| (pod, "net1")))
    }

    /// As [`Self::call`] for any interface.
    ///
    /// # Errors
    /// It fails.
    pub fn call_as(&self, command: &str, pod: &Sandbox, ifname: &str) -> Result<(Duration, Value)> {
        self.execute(command, Some((pod, ifname)))
    }

    fn execute(&self, command: &str, pod: Option<(&Sandbox, &str)>) -> Result<(Duration, Value)> {
        interrupt::check()?;
        let mut stdin = tempfile::tempfile().context("a file for stdin")?;
        stdin.write_all(self.conf.to_string().as_bytes())?;
        stdin.rewind()?;
        let mut stdout = tempfile::tempfile().context("a file for stdout")?;
        let mut process = Command::new(&self.binary);
        process
            .env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_PATH", self.binary.parent().unwrap_or(&self.binary))
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(stdin)
            .stdout(stdout.try_clone()?)
            .stderr(Stdio::null());
        if let Some((pod, ifname)) = pod {
            process
                .env("CNI_CONTAINERID", pod.name())
                .env("CNI_NETNS", pod.path())
                .env("CNI_IFNAME", ifname);
        }
        let (elapsed, status) = self.node.run_in(|| {
            let started = Instant::now();
            let status = process.status();
            (started.elapsed(), status)
        })?;
        let text = read_back(&mut stdout)?;
        let status = status.with_context(|| format!("starting {}", self.binary.display()))?;
        if !status.success() {
            bail!("{} of {}: {status}: {}", command, self.label, text.trim());
        }
        Ok((elapsed, serde_json::from_str(&text).unwrap_or_default()))
    }
}

fn read_back(file: &mut File) -> Result<String> {
    file.rewind()?;
    std::io::read_to_string(file).context("reading stdout")
}
