//! Test that a cluster takes the objects of `deploy`.

use std::path::Path;

use serde_json::Value;

use super::agent_scene::AgentScene;

fn path(below: &str) -> String {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    deploy.join(below).display().to_string()
}

fn files(folder: &str, kind: &str) -> Vec<String> {
    let entries = std::fs::read_dir(path(folder)).expect("a folder of deploy");
    let paths = entries.map(|entry| entry.expect("a folder can be listed").path());
    let mut files: Vec<String> = paths
        .filter(|path| path.extension().is_some_and(|found| found == kind))
        .map(|path| path.display().to_string())
        .collect();
    files.sort();
    files
}

/// `kubectl apply -f deploy/install.yaml`, and in the end `deploy/uninstall.yaml`
#[test]
fn every_object_of_the_installation_is_taken() {
    let Some(s) = AgentScene::prepare(testbed::test_name!(), "agent-manifests", &[]) else {
        return;
    };
    let all = files(".", "yaml");
    let files: Vec<&String> = all
        .iter()
        .filter(|file| file.ends_with("install.yaml"))
        .collect();
    assert_eq!(files.len(), 2, "{files:?}");
    for file in files {
        // Nothing is made, but everything is checked; fields that are not known are an error.
        s.kubectl(&[
            "apply",
            "--server-side",
            "--force-conflicts",
            "--dry-run=server",
            "--validate=strict",
            "--filename",
            file,
        ]);
    }
}

/// KEP-3698, user stories; applied by one command, as docs/quick-start.md has it.
///
/// The controller has made the default network by then, and its `spec` cannot change: an example with
/// another one is in a folder below, which `kubectl apply` does not enter.
#[test]
fn the_networks_of_every_example_are_taken() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "agent-examples") else {
        return;
    };
    let examples = files("examples", "yaml");
    assert!(examples.len() >= 8, "{examples:?}");
    for file in &examples {
        let text = std::fs::read_to_string(file).expect("a file of the repository");
        let networks = text
            .split("---")
            .filter(|it| it.contains("kind: PodNetwork\n"));
        let of_controller = networks
            .filter(|it| it.contains("  name: default\n"))
            .count();
        assert_eq!(of_controller, 0, "{file} changes what the controller made");
    }
    let folders = [path("examples"), path("examples/default-network")];
    for folder in &folders {
        s.kubectl(&["apply", "--validate=strict", "--filename", folder]);
    }
    let networks = [
        "downward-data",
        "story-1-data",
        "story-2-afxdp",
        "story-2-memif",
        "story-3-red",
        "story-3-blue",
        "story-4-tenant",
        "story-5-office",
        "story-5-storage",
        "story-6",
        "story-7-lab",
        "story-8",
    ];
    for (number, network) in (0x00c0_0000..).zip(networks) {
        s.number(network, number);
    }
    let known = || s.node.get("networks");
    // This node has no address for tunnels, and else nothing is missing.
    let is_taken =
        |network: &Value| network["ready"] == true || network["reason"] == "NoTunnelAddress";
    testbed::wait::until_true("the networks of the examples", || {
        let known = known();
        networks.iter().all(|name| {
            known
                .iter()
                .any(|network| network["name"] == *name && is_taken(network))
        })
    });
    for folder in &folders {
        s.kubectl(&[
            "delete",
            "--wait=false",
            "--grace-period=0",
            "--force",
            "--filename",
            folder,
        ]);
    }
}
