//! Collect the state of podnet in a cluster.
//!
//! Whatever fails is written down and leaves the rest alone. No Secret and no environment of a container is
//! read.

mod archive;
mod pages;

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use self::archive::Archive;
use crate::agents::{self, Agent};
use crate::cli::{SysdumpOptions, Table};
use crate::error::PluginError;
use crate::get::ask;
use crate::kubectl::{Kubectl, Text};

/// Objects of podnet and of the NPWG; a cluster need not have all of these kinds.
const KINDS: [&str; 10] = [
    "podnetworks.podnet.dev",
    "podnetworkattachments.podnet.dev",
    "podnetworkparameters.podnet.dev",
    "attachmentparameters.podnet.dev",
    "podnetworkendpointslices.podnet.dev",
    "ipblocks.podnet.dev",
    "ipreservations.podnet.dev",
    "ports.podnet.dev",
    "network-attachment-definitions.k8s.cni.cncf.io",
    "ipamclaims.k8s.cni.cncf.io",
];
/// Kinds in podnet's own namespace.
const OWN: [&str; 5] = [
    "pods",
    "daemonsets.apps",
    "deployments.apps",
    "configmaps",
    "events",
];
/// Annotations that say which networks a pod wants and has.
const ANNOTATIONS: [&str; 8] = [
    "podnet.dev/networks",
    "podnet.dev/vpc",
    "podnet.dev/nics",
    "podnet.dev/networks-populated",
    "podnet.dev/network-status",
    "k8s.v1.cni.cncf.io/networks",
    "k8s.v1.cni.cncf.io/network-status",
    "v1.multus-cni.io/default-network",
];

/// A file of the archive, or the reason that it is missing.
type Item = (String, Result<Text, PluginError>);

/// Writes the archive, and says where it is and what is missing in it.
///
/// # Errors
/// The archive cannot be written, or no node can be asked because there are no agents.
pub(crate) fn run(kubectl: &Kubectl, options: &SysdumpOptions) -> Result<ExitCode, PluginError> {
    let agents = agents::of(kubectl, &options.node)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let stem = format!("podnet-sysdump-{}", now.map_or(0, |now| now.as_secs()));
    let path = options
        .output
        .clone()
        .unwrap_or_else(|| format!("{stem}.tar.gz").into());
    let mut archive = Archive::create(&path, &stem, options.total_limit << 20)?;
    let limit = options.file_limit << 20;
    for item in cluster(kubectl, limit) {
        archive.add(item)?;
    }
    for item in logs_of_others(kubectl, options) {
        archive.add(item)?;
    }
    // One node's items at a time are in memory for each that is asked at a time.
    for some in agents.chunks(4) {
        for items in ask(some, |agent| node(kubectl, agent, options)) {
            for item in items {
                archive.add(item)?;
            }
        }
    }
    let missing = archive.finish()?;
    println!("{} has the state of {} nodes", path.display(), agents.len());
    if missing > 0 {
        println!("{missing} parts are missing or cut: errors.txt in it names each");
    }
    println!("It names pods, nodes and addresses: look at it before you give it to others.");
    Ok(ExitCode::SUCCESS)
}

/// Objects of the cluster.
fn cluster(kubectl: &Kubectl, limit: u64) -> Vec<Item> {
    let mut items = Vec::new();
    let mut get = |name: &str, arguments: &[&str]| {
        items.push((name.to_owned(), kubectl.limited(arguments, limit)));
    };
    get("cluster/version.json", &["version", "--output=json"]);
    get("cluster/nodes.txt", &["get", "nodes", "--output=wide"]);
    for kind in KINDS {
        let name = kind.split('.').next().unwrap_or(kind);
        get(
            &format!("cluster/{name}.yaml"),
            &["get", kind, "--all-namespaces", "--output=yaml"],
        );
    }
    let namespace = format!("--namespace={}", kubectl.podnet);
    for kind in OWN {
        let name = kind.split('.').next().unwrap_or(kind);
        get(
            &format!("podnet/{name}.yaml"),
            &["get", kind, &namespace, "--output=yaml"],
        );
    }
    items.push(("cluster/pods.json".to_owned(), pods(kubectl)));
    items
}

/// Pods with their networks, without anything else about them.
fn pods(kubectl: &Kubectl) -> Result<Text, PluginError> {
    let all = kubectl.json(&["get", "pods", "--all-namespaces", "--output=json"])?;
    let bytes = format!("{:#}\n", of_pods(&all)).into_bytes();
    Ok(Text { bytes, cut: false })
}

fn of_pods(all: &Value) -> Value {
    let pods = all["items"].as_array().into_iter().flatten();
    pods.map(|pod| {
        let annotations = pod["metadata"]["annotations"].as_object();
        let annotations: serde_json::Map<String, Value> = annotations
            .into_iter()
            .flatten()
            .filter(|(name, _)| ANNOTATIONS.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        json!({
            "namespace": pod["metadata"]["namespace"],
            "name": pod["metadata"]["name"],
            "node": pod["spec"]["nodeName"],
            "phase": pod["status"]["phase"],
            "conditions": pod["status"]["conditions"],
            "annotations": annotations,
        })
    })
    .collect()
}

/// The state of a node: tables, log, metrics.
fn node(kubectl: &Kubectl, agent: &Agent, options: &SysdumpOptions) -> Vec<Item> {
    let limit = options.file_limit << 20;
    let path = |name: &str| format!("nodes/{}/{name}", agent.node);
    let mut items: Vec<Item> = Table::ALL
        .into_iter()
        .map(|table| {
            let words = agent.exec(kubectl, &["get", table.name(), "--output=json"]);
            let text = kubectl.limited(&agents::borrow(&words), limit);
            (path(&format!("{}.json", table.name())), text)
        })
        .collect();
    items.push((path("agent.log"), log(kubectl, &agent.pod, false, options)));
    // There is one only where the container was started again.
    if let Ok(text) = log(kubectl, &agent.pod, true, options) {
        items.push((path("agent-before.log"), Ok(text)));
    }
    for (name, page) in ["metrics.txt", "state.json"]
        .into_iter()
        .zip(pages::of(kubectl, agent, limit))
    {
        items.push((path(name), page));
    }
    items
}

/// Logs of controllers, webhooks and switches.
fn logs_of_others(kubectl: &Kubectl, options: &SysdumpOptions) -> Vec<Item> {
    let namespace = format!("--namespace={}", kubectl.podnet);
    let others = "--selector=app.kubernetes.io/part-of=podnet,app.kubernetes.io/name!=podnet-agent";
    let arguments = ["get", "pods", &namespace, others, "--output=name"];
    match kubectl.text(&arguments) {
        Err(error) => vec![("podnet/logs".to_owned(), Err(error))],
        Ok(names) => names
            .lines()
            .map(|name| name.strip_prefix("pod/").unwrap_or(name))
            .map(|pod| {
                let text = log(kubectl, pod, false, options);
                (format!("podnet/{pod}.log"), text)
            })
            .collect(),
    }
}

fn log(
    kubectl: &Kubectl,
    pod: &str,
    previous: bool,
    options: &SysdumpOptions,
) -> Result<Text, PluginError> {
    let namespace = format!("--namespace={}", kubectl.podnet);
    let lines = format!("--tail={}", options.log_lines);
    let bytes = format!("--limit-bytes={}", options.file_limit << 20);
    let mut arguments = vec!["logs", &namespace, pod, "--timestamps", &lines, &bytes];
    if previous {
        arguments.push("--previous");
    }
    kubectl.limited(&arguments, options.file_limit << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Environment, images and other annotations may be secret.
    #[test]
    fn of_a_pod_nothing_is_taken_but_its_place_its_state_and_its_networks() {
        let all = json!({"items": [{
            "metadata": {"namespace": "shop", "name": "a", "annotations": {
                "podnet.dev/networks": "[]", "token": "secret"}},
            "spec": {"nodeName": "n1", "containers": [{"env": [{"value": "secret"}]}]},
            "status": {"phase": "Running"},
        }]});
        let text = of_pods(&all).to_string();
        assert!(!text.contains("secret"), "{text}");
        assert!(text.contains(r#""podnet.dev/networks":"[]""#), "{text}");
        assert!(text.contains(r#""node":"n1""#), "{text}");
    }
}
