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

/// A list of plugins with their configurations, run in a node's namespace.
#[derive(Debug, Clone)]
pub struct Plugin {
    /// For tables.
    pub label: String,
    /// Binaries and configurations in the order of ADD.
    chain: Vec<(PathBuf, Value)>,
    node: Netns,
    path: Option<PathBuf>,
}

impl Plugin {
    /// One plugin.
    pub fn new(label: &str, binary: &Path, conf: Value, node: &Netns) -> Self {
        Self {
            label: label.to_owned(),
            chain: vec![(binary.to_owned(), conf)],
            node: node.clone(),
            path: None,
        }
    }

    /// Sets up a reference plugin with `host-local` for these subnets.
    ///
    /// Its leases are under `dir`; `more` is put into its configuration.
    ///
    /// # Errors
    /// The plugins are not installed.
    pub fn reference(
        (label, kind): (&str, &str),
        node: &Netns,
        dir: &Path,
        subnets: &[&str],
        more: &Value,
    ) -> Result<Self> {
        let binary = reference(kind)?;
        reference("host-local")?;
        let ranges: Vec<_> = subnets.iter().map(|net| json!([{"subnet": net}])).collect();
        let mut conf = json!({
            "cniVersion": "1.0.0",
            "name": label.replace([' ', '+', ','], "-"),
            "type": kind,
            "ipam": {"type": "host-local", "dataDir": dir.join("leases"), "ranges": ranges},
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            conf[key] = value.clone();
        }
        Ok(Self::new(label, &binary, conf, node))
    }

    /// The reference `bridge`.
    ///
    /// # Errors
    /// As [`Self::reference`].
    pub fn bridge(label: &str, node: &Netns, dir: &Path, subnets: &[&str]) -> Result<Self> {
        let more = json!({"bridge": "cni0"});
        Self::reference((label, "bridge"), node, dir, subnets, &more)
    }

    /// Adds a plugin behind those that are there.
    #[must_use]
    pub fn then(mut self, binary: &Path, conf: Value) -> Self {
        self.chain.push((binary.to_owned(), conf));
        self
    }

    /// Sets a key of all configurations.
    #[must_use]
    pub fn with(mut self, key: &str, value: &Value) -> Self {
        for (_, conf) in &mut self.chain {
            conf[key] = value.clone();
        }
        self
    }

    /// Sets `CNI_PATH`, where a plugin looks for those it calls.
    #[must_use]
    pub fn looking_in(mut self, path: &Path) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// The configuration of the first plugin.
    pub fn conf(&self) -> Value {
        let first = self.chain.first();
        first.map(|(_, conf)| conf.clone()).unwrap_or_default()
    }

    /// Runs the plugins for `net1` of a pod; returns the time and the last result.
    ///
    /// The time is from the first one's start to the last one's end.
    ///
    /// # Errors
    /// One fails.
    pub fn call(&self, command: &str, pod: Option<&Sandbox>) -> Result<(Duration, Value)> {
        self.execute(command, pod.map(|pod| (pod, "net1")))
    }

    /// As [`Self::call`] for any interface.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn call_as(&self, command: &str, pod: &Sandbox, ifname: &str) -> Result<(Duration, Value)> {
        self.execute(command, Some((pod, ifname)))
    }

    fn execute(&self, command: &str, pod: Option<(&Sandbox, &str)>) -> Result<(Duration, Value)> {
        let mut order: Vec<_> = self.chain.iter().collect();
        if command == "DEL" {
            order.reverse();
        }
        let (mut total, mut result) = (Duration::ZERO, Value::Null);
        for (binary, conf) in order {
            let mut conf = conf.clone();
            if command == "ADD" && !result.is_null() {
                conf["prevResult"] = result;
            }
            let (time, next) = self.one(command, binary, &conf, pod)?;
            total += time;
            result = next;
        }
        Ok((total, result))
    }

    fn one(
        &self,
        command: &str,
        binary: &Path,
        conf: &Value,
        pod: Option<(&Sandbox, &str)>,
    ) -> Result<(Duration, Value)> {
        interrupt::check()?;
        let mut stdin = tempfile::tempfile().context("a file for stdin")?;
        stdin.write_all(conf.to_string().as_bytes())?;
        stdin.rewind()?;
        let mut stdout = tempfile::tempfile().context("a file for stdout")?;
        let path = self.path.as_deref().or(binary.parent()).unwrap_or(binary);
        let mut process = Command::new(binary);
        process
            .env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_PATH", path)
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
        let status = status.with_context(|| format!("starting {}", binary.display()))?;
        if !status.success() {
            bail!("{command} of {}: {}", self.label, refusal(&text, status));
        }
        Ok((elapsed, serde_json::from_str(&text).unwrap_or_default()))
    }
}

/// Returns the error that a plugin printed (CNI, section 5 "Error").
fn refusal(text: &str, status: std::process::ExitStatus) -> String {
    let error: Value = serde_json::from_str(text).unwrap_or_default();
    match error["msg"].as_str() {
        Some(message) => {
            let details = error["details"].as_str().unwrap_or_default();
            let colon = if details.is_empty() { "" } else { ": " };
            format!("{message}{colon}{details} (code {})", error["code"])
        }
        None => format!("{status}: {}", text.trim()),
    }
}

fn read_back(file: &mut File) -> Result<String> {
    file.rewind()?;
    std::io::read_to_string(file).context("reading stdout")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_refusal_is_told_in_the_plugins_own_words() {
        let status = std::process::ExitStatus::from_raw(256);
        let text = r#"{"code": 7, "msg": "invalid network config", "details": "rates"}"#;
        assert_eq!(
            refusal(text, status),
            "invalid network config: rates (code 7)"
        );
        assert!(refusal("oops\n", status).ends_with("oops"));
    }
}
