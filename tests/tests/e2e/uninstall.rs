//! Remove podnet from a cluster.
//!
//! `cargo xtask cluster test` runs this by itself, at the end.

use std::{env, fs};

use serde_json::Value;
use tempfile::NamedTempFile;
use testbed::documented;

use super::commands::{SYSTEM, kubectl, listing, on_node, shell};
use super::corner::{Corner, is_native};
use super::objects::{DAEMON_SET, POD, condition, until};

const NODES: [&str; 2] = ["n1", "n2"];

/// Manifest that replaces the agents, from the root of the repository.
const MANIFEST: &str = "deploy/uninstall.yaml";

/// The image that the manifests name.
const IMAGE: &str = "localhost/podnet:dev";

/// The manifest with the image that was installed, as who uses another one has it.
fn with_image_of(agents: &Value) -> NamedTempFile {
    let image = &agents["spec"]["template"]["spec"]["containers"][0]["image"];
    let image = image.as_str().expect("the agents have an image");
    let text = fs::read_to_string(documented::root().join(MANIFEST)).expect("a manifest");
    let file = NamedTempFile::new().expect("a file");
    fs::write(file.path(), text.replace(IMAGE, image)).expect("a file");
    file
}

/// Command that prints podnet's files, links, pins and routes on a node.
const LEFT: &str = "find /run/podnet /var/lib/podnet /sys/fs/bpf/podnet /etc/cni/net.d/*podnet* /opt/cni/bin/podnet 2>/dev/null; \
    ip -details link | grep -i podnet; \
    ip route show proto 112; ip -6 route show proto 112; true";

/// PAIN-BOOT-3: the node is as it was, and the old network serves pods again.
#[test]
fn nothing_of_podnet_is_left_and_pods_start_without_it() {
    let corner = Corner::new("uninstall");
    let objects = &corner.objects;
    let native = is_native(objects);
    let agents = objects.get(DAEMON_SET, (SYSTEM, "podnet-agent"));
    let file = with_image_of(&agents.expect("podnet is installed"));
    let file = file.path().to_str().expect("a path in UTF-8");
    let manifest = env::var("PODNET_MANIFEST").expect("`cargo xtask cluster test` sets it");
    // docs/operations.md, as it is written but for the names of the two files.
    let commands = documented::commands("docs/operations.md", "uninstall")
        .replace(MANIFEST, file)
        .replace("deploy/install.yaml", &manifest);
    let (first, last) = commands
        .split_once("# 5.")
        .expect("the commands end with a step 5");
    let done = shell(first);
    assert!(done.is_ok(), "{done:?}");
    for pod in objects.list(POD, SYSTEM) {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let said = kubectl(&["logs", "--namespace", SYSTEM, "--container=cleanup", name]);
        eprintln!("{name}: {}", said.as_deref().unwrap_or_default());
        let said = said.expect("what it has removed");
        assert!(said.contains("/opt/cni/bin/podnet"), "{said}");
    }
    let deleted = shell(&format!("# 5.{last}"));
    assert!(deleted.is_ok(), "{deleted:?}");

    for node in NODES {
        assert_eq!(on_node(node, LEFT), "", "{node}");
        if native {
            // The cluster's network was podnet's: there is none now.
            assert_eq!(listing(node, "/etc/cni/net.d"), [""; 0]);
            continue;
        }
        assert_eq!(listing(node, "/etc/cni/net.d"), ["10-reference.conflist"]);
        corner.pod(node, node, &[]);
    }
    for node in NODES.into_iter().filter(|_| !native) {
        let pod = until(&format!("pod {node} to be ready"), || {
            let pod = objects.get(POD, (&corner.name, node))?;
            (condition(&pod, "Ready")? == "True").then_some(pod)
        });
        assert!(pod["metadata"].get("annotations").is_none(), "{pod}");
    }
    proof::of!("PAIN-BOOT-3");
}
