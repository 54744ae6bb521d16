//! Pods without a runtime: network namespaces bound to files.

use std::io::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use netdev::{LinkChange, NamedNetns, Netns};
use serde_json::Value;
use tempfile::TempDir;
use testbed::Port;
use testbed::host::connection;

/// A directory of namespaces; all go when it is dropped.
#[derive(Debug)]
pub struct Sandbox {
    name: String,
    named: NamedNetns,
}

impl Sandbox {
    /// A namespace whose loopback is up.
    ///
    /// # Errors
    /// It cannot be made (needs root), or there is one of this name.
    pub fn create(dir: &TempDir, name: &str) -> Result<Self> {
        let named = NamedNetns::create(&dir.path().join(name))
            .with_context(|| format!("a namespace for {name}"))?;
        connection(named.netns()).reconfigure(1, &LinkChange::updown(true))?;
        Ok(Self {
            name: name.to_owned(),
            named,
        })
    }

    /// Its name, also its container ID.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        self.named.path()
    }

    /// The namespace.
    pub fn netns(&self) -> &Netns {
        self.named.netns()
    }
}

/// One end of a measurement.
#[derive(Debug, Clone)]
pub struct Side {
    /// Where it is.
    pub netns: Netns,
    /// Its address.
    pub ip: IpAddr,
}

impl Side {
    /// A port of a test pod, by its IPv4 address.
    pub fn of_port(port: &Port) -> Self {
        Self {
            netns: port.netns.clone(),
            ip: port.v4().into(),
        }
    }

    /// The first IPv4 address of a CNI result.
    ///
    /// # Errors
    /// There is none.
    pub fn of_result(sandbox: &Sandbox, result: &Value) -> Result<Self> {
        let ips = result["ips"].as_array().into_iter().flatten();
        let ip = ips
            .filter_map(|ip| ip["address"].as_str()?.split('/').next()?.parse().ok())
            .find(IpAddr::is_ipv4)
            .with_context(|| format!("no IPv4 address in {result}"))?;
        Ok(Self {
            netns: sandbox.netns().clone(),
            ip,
        })
    }
}

/// Has a program load rules in a namespace.
///
/// # Errors
/// It cannot be started, or does not take them.
pub fn load(netns: &Netns, (program, arguments): (&str, &[&str]), rules: &str) -> Result<()> {
    let loaded = netns.run_in(|| -> Result<bool> {
        let mut command = Command::new(program);
        let mut child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .spawn()
            .with_context(|| {
                format!("{program} cannot be started: install the packages iptables and nftables")
            })?;
        let stdin = child.stdin.as_mut().context("a pipe")?;
        stdin.write_all(rules.as_bytes())?;
        drop(child.stdin.take());
        Ok(child.wait()?.success())
    });
    if !loaded?? {
        bail!("{program} does not take the rules");
    }
    Ok(())
}
