//! Install the reference plugins as the cluster's network.
//!
//! They are a bridge on each node, its part of the pods' addresses from host-local, and routes between
//! the nodes. podnet replaces them, and is measured against them.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::place::{self, CONTROL};
use super::{control, network};
use xtask::step::{capture, say};

/// A node as its object describes it; the first of each pair is IPv4.
#[derive(Debug, PartialEq, Eq)]
struct Node {
    name: String,
    pods: Vec<String>,
    addresses: Vec<String>,
}

/// Configures every node and makes the routes.
///
/// # Errors
/// A node gets no addresses for pods, or a file or route cannot be made.
pub(super) fn install(kubectl: impl Fn() -> Result<Command>) -> Result<()> {
    say("the reference bridge plugin becomes the cluster's network");
    let nodes = known(&kubectl)?;
    for node in &nodes {
        let others = nodes.iter().filter(|other| other.name != node.name);
        let machines = others.map(|other| other.name.as_str()).chain([CONTROL]);
        lead(node, machines)?;
        let dir = place::node(&node.name).join("etc-cni/net.d");
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        // The runtime reads a file as soon as it appears: it appears as a whole.
        let part = dir.join(".reference");
        fs::write(&part, format!("{:#}\n", conflist(&node.pods)))
            .and_then(|()| fs::rename(&part, dir.join("10-reference.conflist")))
            .with_context(|| format!("configuring {}", node.name))?;
    }
    Ok(())
}

/// Makes routes to the pods of all nodes on these machines.
///
/// # Errors
/// A node gets no addresses for pods, or a route cannot be made.
pub(super) fn route(kubectl: impl Fn() -> Result<Command>, machines: &[&str]) -> Result<()> {
    for node in known(&kubectl)? {
        lead(&node, machines.iter().copied())?;
    }
    Ok(())
}

fn lead<'a>(node: &Node, machines: impl Iterator<Item = &'a str>) -> Result<()> {
    let routes: String = node
        .pods
        .iter()
        .zip(&node.addresses)
        .map(|(pods, via)| format!("route replace {pods} via {via}\n"))
        .collect();
    for machine in machines {
        network::ip(machine, &routes)?;
    }
    Ok(())
}

/// All nodes, when they have addresses for pods.
fn known(kubectl: &impl Fn() -> Result<Command>) -> Result<Vec<Node>> {
    let mut nodes = Vec::new();
    control::wait_for("addresses for pods", Duration::from_secs(300), || {
        let text = capture(kubectl()?.args(["get", "nodes", "-o", "json"]))?;
        let list: Value = serde_json::from_str(&text).context("kubectl printed no JSON")?;
        nodes = list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(read)
            .collect();
        Ok(nodes.len() == place::nodes().len())
    })?;
    Ok(nodes)
}

/// `None` until the node has addresses for pods.
fn read(node: &Value) -> Option<Node> {
    let strings = |value: &Value| -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.filter_map(|one| Some(one.as_str()?.to_owned()))
            .collect()
    };
    let addresses = node["status"]["addresses"].as_array()?;
    let addresses: Vec<String> = addresses
        .iter()
        .filter(|address| address["type"] == "InternalIP")
        .filter_map(|address| Some(address["address"].as_str()?.to_owned()))
        .collect();
    let pods = strings(&node["spec"]["podCIDRs"]);
    let name = node["metadata"]["name"].as_str()?.to_owned();
    (!pods.is_empty() && pods.len() == addresses.len()).then_some(Node {
        name,
        pods,
        addresses,
    })
}

/// CNI 1.0.0: one range for each family (host-local), a default route for each.
fn conflist(pods: &[String]) -> Value {
    let ranges: Vec<Value> = pods.iter().map(|cidr| json!([{"subnet": cidr}])).collect();
    let defaults = pods.iter().map(|cidr| {
        if cidr.contains(':') {
            "::/0"
        } else {
            "0.0.0.0/0"
        }
    });
    let routes: Vec<Value> = defaults.map(|dst| json!({"dst": dst})).collect();
    json!({
        "cniVersion": "1.0.0",
        "name": "reference",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "hairpinMode": true,
                "ipam": {"type": "host-local", "ranges": ranges, "routes": routes},
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_addresses_for_pods_is_not_ready_to_be_configured() {
        let mut node = json!({
            "metadata": {"name": "n1"},
            "spec": {},
            "status": {"addresses": [
                {"type": "InternalIP", "address": "10.89.0.11"},
                {"type": "InternalIP", "address": "fd89::11"},
                {"type": "Hostname", "address": "n1"},
            ]},
        });
        assert_eq!(read(&node), None);
        node["spec"]["podCIDRs"] = json!(["10.244.1.0/24", "fd00:10:244:1::/64"]);
        let node = read(&node).unwrap();
        assert_eq!(node.addresses, ["10.89.0.11", "fd89::11"]);
        let conflist = conflist(&node.pods);
        let ipam = &conflist["plugins"][0]["ipam"];
        assert_eq!(ipam["ranges"][1][0]["subnet"], "fd00:10:244:1::/64");
        assert_eq!(
            ipam["routes"],
            json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}])
        );
    }
}
