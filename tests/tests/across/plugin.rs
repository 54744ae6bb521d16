//! `kubectl podnet` between two agents: what it makes of their answers.
//!
//! A script stands in for kubectl: it knows the pods, and runs the agent's commands where `kubectl exec`
//! would. The plugin with a real kubectl is in `kubernetes::plugin`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testbed::kubectl_plugin::{self, Answer};
use testbed::{Node, Pod, Port};

use super::scene::{L2, Nodes, Underlay, introduce, wait_uplinks};

const SCRIPT: &str = r#"#!/bin/sh
case "$*" in
  "get pods --namespace=podnet-system --selector=app.kubernetes.io/name=podnet-agent --output=json")
    exec cat agents.json ;;
  "get pod "*" --output=json"*)
    exec cat "pod-$3.json" ;;
  "exec --namespace=podnet-system agent-"*" --container=agent -- podnet-agent "*)
    number=${3#agent-}
    shift 6
    PODNET_SOCKET=$(cat "socket-$number") exec "$PODNET_AGENT" "$@" ;;
esac
echo "a stand-in for kubectl knows no: $*" >&2
exit 1
"#;

/// A cluster of two nodes, as far as the plugin sees it.
struct Cluster {
    plugin: PathBuf,
    agent: PathBuf,
    dir: tempfile::TempDir,
}

impl Cluster {
    fn new(plugin: PathBuf, nodes: &Nodes, pods: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: String| {
            fs::write(dir.path().join(name), text).expect("a file");
        };
        let mut agents = Vec::new();
        for (node, number) in nodes.nodes.iter().zip(1..) {
            agents.push(json!({
                "metadata": {"name": format!("agent-{number}")},
                "spec": {"nodeName": node.name()},
                "status": {"phase": "Running"},
            }));
            let socket = node.socket().display().to_string();
            write(&format!("socket-{number}"), socket);
        }
        write("agents.json", json!({"items": agents}).to_string());
        for (pod, node) in pods {
            let object = json!({
                "metadata": {"name": pod, "namespace": "shop"},
                "spec": {"nodeName": node},
            });
            write(&format!("pod-{pod}.json"), object.to_string());
        }
        write("kubectl", SCRIPT.to_owned());
        let script = dir.path().join("kubectl");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a program");
        let agent = nodes.nodes[0].binaries().agent.clone();
        Self { plugin, agent, dir }
    }

    fn run(&self, arguments: &[&str]) -> Answer {
        let mut command = Command::new(&self.plugin);
        command
            .args(arguments)
            .current_dir(self.dir.path())
            .env("KUBECTL", self.dir.path().join("kubectl"))
            .env("PODNET_AGENT", &self.agent);
        kubectl_plugin::run(&mut command)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let answer = self.run(arguments);
        let value = serde_json::from_str(&answer.text);
        value.unwrap_or_else(|error| unreachable!("{error}: {answer:?}"))
    }
}

/// Attaches a pod of Kubernetes.
fn attach(pod: &Pod<'_>, node: &Node, name: &str, network: &str) -> Port {
    let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={name}");
    let call = pod.call("ADD", "net1").conf(&node.conf(network));
    let result = call.env("CNI_ARGS", &args).run().result();
    pod.port(network, "net1", result)
}

fn folder(path: &Path) -> Vec<String> {
    let output = Command::new("tar")
        .arg("-tzf")
        .arg(path)
        .output()
        .expect("tar starts");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_packet_is_followed_from_pod_to_pod_on_the_nodes_of_both() {
    let Some(plugin) = kubectl_plugin::find(testbed::test_name!()) else {
        return;
    };
    let nodes = Nodes::start(2, Underlay::V4);
    let [here, there] = [&nodes.nodes[0], &nodes.nodes[1]];
    let network = L2[0];
    let (one, other, alone) = (here.pod("a"), there.pod("b"), here.pod("c"));
    let a = attach(&one, here, "a", network);
    let b = attach(&other, there, "b", network);
    attach(&alone, here, "c", L2[1]);
    wait_uplinks(&nodes.nodes);
    introduce(&a, &b);
    let cluster = Cluster::new(
        plugin,
        &nodes,
        &[("a", here.name()), ("b", there.name()), ("c", here.name())],
    );

    let way = cluster.json(&["trace", "a", "b", "--proto=udp:9", "-o", "json"]);
    assert_eq!(way["arrives"], true, "{way}");
    assert_eq!(way["node"], there.name());
    let stages = way["stages"].as_array().expect("a list");
    let verdicts: Vec<&Value> = stages
        .iter()
        .map(|stage| &stage["report"]["outcome"]["verdict"])
        .collect();
    assert_eq!(verdicts, ["tunnelled", "delivered"]);
    let told = cluster.run(&["trace", "shop/a:net1", "shop/b"]);
    assert_eq!(told.code, 0, "{told:?}");
    for words in [
        "== on node-1 ==",
        "TUNNELLED",
        "== on node-2 ==",
        "DELIVERED",
    ] {
        assert!(told.text.contains(words), "{words}: {}", told.text);
    }
    assert!(
        told.text
            .ends_with("The packet arrives: delivered on node-2.\n")
    );

    // What is dropped is explained, and that is no error.
    let lost = cluster.run(&[
        "explain",
        "a",
        "--to",
        &b.v4().to_string(),
        "--source=10.10.0.250",
    ]);
    assert!(lost.text.contains("spoofed_ip"), "{lost:?}");
    let apart = cluster.run(&["trace", "a", "c"]);
    assert_eq!(apart.code, 1);
    assert!(
        apart.complaint.contains("no network in common"),
        "{apart:?}"
    );

    let explained = cluster.run(&["explain", "a:net1"]);
    assert!(
        explained.text.contains("net1 of shop/a on blue"),
        "{explained:?}"
    );
    let tables = cluster.json(&["get", "attachments", "-o", "json"]);
    let names: Vec<&String> = tables.as_object().expect("an object").keys().collect();
    assert_eq!(names, ["node-1", "node-2"]);
    let table = cluster.run(&["get", "networks", "--node=node-2"]);
    assert!(table.text.starts_with("NAME"), "{table:?}");

    // The rest of kubectl is not there: what is missing is named, and what is there is kept.
    let dump = cluster.run(&["sysdump", "--output=dump.tar.gz", "--timeout=5"]);
    assert_eq!(dump.code, 0, "{dump:?}");
    let files = folder(&cluster.dir.path().join("dump.tar.gz"));
    for name in [
        "nodes/node-1/attachments.json",
        "nodes/node-2/drops.json",
        "errors.txt",
    ] {
        assert!(
            files.iter().any(|it| it.ends_with(name)),
            "{name}: {files:?}"
        );
    }
    for (pod, network) in [(&one, network), (&other, network), (&alone, L2[1])] {
        pod.detach(network, "net1");
    }
}
