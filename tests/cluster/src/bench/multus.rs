//! Install Multus on every node, as its thin plugin is installed.
//!
//! It has a configuration that comes before all others, and a kubeconfig.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use testbed::pki::Pki;

use crate::place;

/// Before that of the network it hands on to.
const CONF: &str = "00-multus.conf";

fn conf(node: &str) -> PathBuf {
    place::node(node).join("etc-cni/net.d").join(CONF)
}

/// Puts plugin and configuration on all nodes.
///
/// # Errors
/// A file cannot be written.
pub(super) fn install(plugin: &Path) -> Result<()> {
    for node in place::nodes() {
        let to = place::node(&node).join("opt-cni/bin/multus");
        fs::copy(plugin, &to).with_context(|| format!("writing {}", to.display()))?;
        let path = conf(&node);
        let reference = path.with_file_name("10-reference.conflist");
        let default = fs::read_to_string(&reference)
            .with_context(|| format!("reading {}", reference.display()))?;
        let default: Value = serde_json::from_str(&default).context("the default network")?;
        let text = json!({
            "cniVersion": "1.0.0",
            "name": "multus",
            "type": "multus",
            "kubeconfig": Pki::open(&place::pki()).kubeconfig("admin"),
            "delegates": [default],
            "logLevel": "error",
        });
        // The runtime reads a file as soon as it appears: it appears as a whole.
        let part = path.with_extension("part");
        fs::write(&part, format!("{text:#}\n"))
            .and_then(|()| fs::rename(&part, &path))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Takes the configuration away.
///
/// # Errors
/// A file cannot be removed.
pub(super) fn remove() -> Result<()> {
    for node in place::nodes() {
        let path = conf(&node);
        fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}

/// A network on a bridge of its own, with the subnet of its number.
pub(super) fn network(name: &str, number: u8) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": name,
        "type": "bridge",
        "bridge": format!("bench-{name}"),
        "ipam": {"type": "host-local", "subnet": format!("10.{}.0.0/16", 110 + number)},
    })
}
