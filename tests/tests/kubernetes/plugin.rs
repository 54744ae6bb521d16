//! Run `kubectl podnet` with a real kubectl, where no kubelet runs the agents.

use std::path::PathBuf;
use std::process::Command;

use serde_json::json;
use testbed::apiserver;
use testbed::kubectl_plugin::{self, Answer};

use super::objects::{self, kubectl};
use super::scene::Scene;

/// A namespace for agents of its own.
const NAMESPACE: &str = "plugin-agents";

struct Plugin {
    program: PathBuf,
    scene: Scene,
    dir: tempfile::TempDir,
}

impl Plugin {
    fn run(&self, arguments: &[&str]) -> Answer {
        let programs = apiserver::programs().expect("there is a server");
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .arg(format!("--podnet-namespace={NAMESPACE}"))
            .current_dir(self.dir.path())
            .env("KUBECTL", programs.join("kubectl"))
            .env("KUBECONFIG", self.scene.server.kubeconfig())
            .env("KUBECACHEDIR", self.dir.path());
        kubectl_plugin::run(&mut command)
    }

    fn apply(&self, object: &serde_json::Value) {
        let file = self.dir.path().join("object.json");
        std::fs::write(&file, object.to_string()).expect("a file");
        let file = file.display().to_string();
        let done = kubectl(self.scene.server, &["create", "--filename", &file]);
        assert!(done.status.success(), "{done:?}");
    }
}

fn pod(name: &str, node: Option<&str>, app: &str) -> serde_json::Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/name": app, "app.kubernetes.io/part-of": "podnet"},
        },
        "spec": {"containers": [{"name": "agent", "image": "none.example/none:0"}]},
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

#[test]
fn pods_without_a_node_and_nodes_that_do_not_answer_are_named() {
    let test = testbed::test_name!();
    let Some(scene) = objects::set(test) else {
        return;
    };
    let Some(program) = kubectl_plugin::find(test) else {
        return;
    };
    let plugin = Plugin {
        program,
        scene,
        dir: tempfile::tempdir().expect("a directory"),
    };
    plugin
        .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}));

    let none = plugin.run(&["get", "networks"]);
    assert_eq!(none.code, 1);
    assert!(
        none.complaint
            .contains("no pod of podnet-agent is in namespace plugin-agents"),
        "{none:?}"
    );

    plugin.apply(&pod("agent-1", Some("plugin-node"), "podnet-agent"));
    let patch = r#"--patch={"status":{"phase":"Running"}}"#;
    let namespace = format!("--namespace={NAMESPACE}");
    let words = [
        "patch",
        "pod",
        "agent-1",
        &namespace,
        "--subresource=status",
        patch,
    ];
    let done = kubectl(plugin.scene.server, &words);
    assert!(done.status.success(), "{done:?}");
    let silent = plugin.run(&["get", "networks", "--timeout=20"]);
    assert_eq!((silent.code, silent.text.as_str()), (1, ""));
    assert!(
        silent
            .complaint
            .contains("kubectl podnet: node plugin-node: "),
        "{silent:?}"
    );
    let other = plugin.run(&["get", "networks", "--node=elsewhere"]);
    assert!(
        other
            .complaint
            .contains("node elsewhere has no running agent; nodes with one: plugin-node"),
        "{other:?}"
    );

    plugin.apply(&pod("waits", None, "waits"));
    let waits = plugin.run(&["explain", "plugin-agents/waits"]);
    assert!(
        waits
            .complaint
            .contains("pod plugin-agents/waits has no node"),
        "{waits:?}"
    );
    let missing = plugin.run(&["trace", "nobody", "waits", "-n", NAMESPACE]);
    assert!(
        missing.complaint.contains("pods \"nobody\" not found"),
        "{missing:?}"
    );
    let wrong = plugin.run(&["capture", "--", "x"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");

    let dump = plugin.run(&["sysdump", "--output=dump.tar.gz", "--timeout=20"]);
    assert_eq!(dump.code, 0, "{dump:?}");
    assert!(dump.text.contains("parts are missing or cut"), "{dump:?}");
    let read = |name: &str| {
        let output = Command::new("tar")
            .args(["-xzOf", "dump.tar.gz", "--wildcards", name])
            .current_dir(plugin.dir.path())
            .output()
            .expect("tar starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(read("*/cluster/podnetworks.yaml").contains("kind: List"));
    assert!(read("*/cluster/pods.json").contains("\"agent-1\""));
    let errors = read("*/errors.txt");
    assert!(
        errors.contains("nodes/plugin-node/networks.json: missing: "),
        "{errors}"
    );
}
