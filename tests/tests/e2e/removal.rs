//! Test that a deleted pod leaves nothing behind.

use serde_json::json;

use super::commands::{SYSTEM, in_pod, listing, on_node};
use super::corner::{Corner, NPWG};
use super::objects::{BLOCK, NETWORK, Objects, POD, until};

/// The names of the agents' pods, by node.
pub(crate) fn agent_of(objects: &Objects, node: &str) -> String {
    let pods = objects.list(POD, SYSTEM);
    let found = pods.iter().find(|pod| {
        let label = &pod["metadata"]["labels"]["app.kubernetes.io/name"];
        label == "podnet-agent"
            && pod["spec"]["nodeName"] == node
            && pod["metadata"].get("deletionTimestamp").is_none()
    });
    let name = found.and_then(|pod| pod["metadata"]["name"].as_str());
    name.expect("every node has an agent").to_owned()
}

/// Returns the attachments of a node, as its agent prints them.
fn attachments(corner: &Corner, node: &str) -> String {
    let agent = agent_of(&corner.objects, node);
    let program = ["/usr/bin/podnet-agent", "get", "attachments", "-o", "json"];
    let text = in_pod((SYSTEM, &agent), &program);
    text.expect("the agent answers")
}

/// The namespaces of a node that have an interface with this address.
fn namespaces_with(node: &str, ip: &str) -> Vec<String> {
    let script = format!(
        "cd /run/netns; for n in *; do \
         nsenter --net=/run/netns/$n ip -o address 2>/dev/null | grep -qF ' {ip}/' && echo $n; \
         done; true"
    );
    on_node(node, &script).lines().map(str::to_owned).collect()
}

/// Namespace, links, leases, records and blocks are removed.
#[test]
fn nothing_of_a_deleted_pod_is_left_on_its_node() {
    let corner = Corner::new("removal");
    corner.defined_network("blue", "10.106.0.0/24");
    let config = json!({
        "cniVersion": "1.0.0",
        "name": "e2e-removal",
        "type": "bridge",
        "bridge": "e2e-removal0",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.107.0.0/24"}]]},
    });
    corner.definition("lan", &config);
    corner.pod("web", "n2", &[(NPWG, "blue,lan".to_owned())]);
    let interfaces = corner.ready("web");
    let [_, blue, lan] = interfaces.as_slice() else {
        unreachable!("three interfaces, not {interfaces:?}");
    };
    let namespaces = namespaces_with("n2", &blue.ips[0]);
    assert_eq!(namespaces.len(), 1, "{namespaces:?}");
    let peers: Vec<String> = interfaces
        .iter()
        .map(|one| {
            let path = format!("/sys/class/net/{}/iflink", one.name);
            corner.run("web", &["cat", &path]).trim().to_owned()
        })
        .collect();
    let links = |peer: &str| {
        let shown = on_node("n2", "ip -o link");
        shown
            .lines()
            .any(|line| line.starts_with(&format!("{peer}: ")))
    };
    assert!(peers.iter().all(|peer| links(peer)), "{peers:?}");
    let leases = "/var/lib/cni/networks/e2e-removal";
    assert!(listing("n2", leases).contains(&lan.ips[0]));
    assert!(attachments(&corner, "n2").contains(&blue.mac));

    corner.delete("web");
    assert!(!listing("n2", "/run/netns").contains(&namespaces[0]));
    for peer in &peers {
        assert!(!links(peer), "link {peer} is left");
    }
    assert!(!listing("n2", leases).contains(&lan.ips[0]));
    assert!(!attachments(&corner, "n2").contains(&blue.mac));

    let network = corner.network_name("blue");
    corner.objects.delete_wait(NETWORK, ("", &network));
    until("the blocks of the network to be gone", || {
        let blocks = corner.objects.list(BLOCK, "");
        let left = blocks
            .iter()
            .any(|block| block["spec"]["network"] == network.as_str());
        (!left).then_some(())
    });
}
