//! The end of podnet in a cluster. `cargo xtask cluster test` runs this by itself, at the end.

use std::env;

use serde_json::{Value, json};

use super::commands::{SYSTEM, kubectl, listing, on_node};
use super::corner::Corner;
use super::objects::{DAEMON_SET, DEPLOYMENT, Objects, POD, condition, until};

const NODES: [&str; 2] = ["n1", "n2"];

/// Where podnet has anything on a node. With their parents, where that is podnet's own directory: it
/// could not be removed if it were a mount point.
const PLACES: [&str; 5] = [
    "/etc/cni/net.d",
    "/opt/cni/bin",
    "/run",
    "/sys/fs/bpf",
    "/var/lib",
];

/// A pod for `podnet-agent cleanup` on a node, with the image and the rights of the agents.
fn cleanup_pod(agents: &Value, node: &str) -> Value {
    let agent = &agents["spec"]["template"]["spec"]["containers"][0];
    let volumes: Vec<Value> = (0..)
        .zip(PLACES)
        .map(|(number, path)| json!({"name": format!("v{number}"), "hostPath": {"path": path}}))
        .collect();
    let mounts: Vec<Value> = (0..)
        .zip(PLACES)
        .map(|(number, path)| json!({"name": format!("v{number}"), "mountPath": path}))
        .collect();
    json!({"spec": {
        "nodeName": node,
        "hostNetwork": true,
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{
            "name": "cleanup",
            "image": agent["image"],
            "imagePullPolicy": agent["imagePullPolicy"],
            "securityContext": agent["securityContext"],
            "args": ["cleanup"],
            "volumeMounts": mounts,
        }],
        "volumes": volumes,
    }})
}

fn wait_until_none(objects: &Objects, app: &str) {
    until(&format!("the pods of {app} to be gone"), || {
        let pods = objects.list(POD, SYSTEM);
        let left = pods
            .iter()
            .any(|pod| pod["metadata"]["labels"]["app.kubernetes.io/name"] == app);
        (!left).then_some(())
    });
}

/// What is left of podnet on a node: files of any kind, links, pins. The kubelet has made a directory
/// for the socket, which stays, empty.
const LEFT: &str = "find /run/podnet -mindepth 1; \
    find /var/lib/podnet /sys/fs/bpf/podnet /etc/cni/net.d/*podnet* /opt/cni/bin/podnet 2>/dev/null; \
    ip -details link | grep -i podnet; true";

/// PAIN-BOOT-3: the node is as it was, and the network that was there before serves pods again.
#[test]
fn nothing_of_podnet_is_left_and_pods_start_without_it() {
    let corner = Corner::new("uninstall");
    let objects = &corner.objects;
    let agents = objects.get(DAEMON_SET, (SYSTEM, "podnet-agent"));
    let agents = agents.expect("podnet is installed");
    // Those that have pod networks first, while there is an agent to take them away.
    for name in ["podnet-controller", "podnet-webhook"] {
        objects.delete_wait(DEPLOYMENT, (SYSTEM, name));
        wait_until_none(objects, name);
    }
    objects.delete_wait(DAEMON_SET, (SYSTEM, "podnet-agent"));
    wait_until_none(objects, "podnet-agent");
    for node in NODES {
        let name = format!("cleanup-{node}");
        let place = (SYSTEM, name.as_str());
        objects.make(POD, place, cleanup_pod(&agents, node));
        let phase = until(&format!("the end of {name}"), || {
            let pod = objects.get(POD, place)?;
            let phase = pod["status"]["phase"].as_str()?.to_owned();
            ["Succeeded", "Failed"]
                .contains(&phase.as_str())
                .then_some(phase)
        });
        let said = kubectl(&["logs", "--namespace", SYSTEM, &name]);
        eprintln!("{node}: {}", said.as_deref().unwrap_or_default());
        assert_eq!(phase, "Succeeded", "{said:?}");
        objects.delete_wait(POD, place);
    }
    let manifest = env::var("PODNET_MANIFEST").expect("`cargo xtask cluster test` sets it");
    let deleted = kubectl(&[
        "delete",
        "--ignore-not-found",
        "--timeout=120s",
        "-f",
        &manifest,
    ]);
    assert!(deleted.is_ok(), "{deleted:?}");

    for node in NODES {
        assert_eq!(on_node(node, LEFT), "", "{node}");
        assert_eq!(listing(node, "/etc/cni/net.d"), ["10-reference.conflist"]);
        corner.pod(node, node, &[]);
    }
    for node in NODES {
        let pod = until(&format!("pod {node} to be ready"), || {
            let pod = objects.get(POD, (&corner.name, node))?;
            (condition(&pod, "Ready")? == "True").then_some(pod)
        });
        assert!(pod["metadata"].get("annotations").is_none(), "{pod}");
    }
}
