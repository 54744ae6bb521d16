//! The plugin and its configuration on the node.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::Value;
use testbed::wait;

use super::agent_scene::AgentScene;

/// Directories of a runtime.
struct Runtime {
    dir: tempfile::TempDir,
}

impl Runtime {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["bin", "net.d"] {
            fs::create_dir(dir.path().join(name)).expect("a directory of the runtime");
        }
        Self { dir }
    }

    /// The options that make the agent use them.
    fn args(&self) -> [String; 2] {
        [
            format!("--cni-bin-dir={}", self.dir.path().join("bin").display()),
            format!("--cni-conf-dir={}", self.dir.path().join("net.d").display()),
        ]
    }

    fn plugin(&self) -> PathBuf {
        self.dir.path().join("bin/podnet")
    }

    fn conf(&self) -> PathBuf {
        self.dir.path().join("net.d/05-podnet.conflist")
    }

    fn files(&self) -> Vec<String> {
        let mut names = Vec::new();
        for folder in ["bin", "net.d"] {
            let entries = fs::read_dir(self.dir.path().join(folder)).expect("a directory");
            names.extend(entries.map(|entry| {
                let name = entry.expect("a directory can be listed").file_name();
                format!("{folder}/{}", name.to_string_lossy())
            }));
        }
        names.sort();
        names
    }
}

/// NPWG-6.1, RT-CD-03, PAIN-BOOT-2, PAIN-CONF-2
#[test]
fn plugin_and_configuration_are_put_in_their_places_and_stay_there() {
    let runtime = Runtime::new();
    let [bin, conf] = runtime.args();
    let args = ["--install-cni", bin.as_str(), conf.as_str()];
    let Some(mut s) = AgentScene::prepare(testbed::test_name!(), "agent-install", &args) else {
        return;
    };
    s.door.close();
    s.node.launch_agent();
    wait::until_true("the plugin", || runtime.plugin().exists());
    // The agent answers, and an ADD would fail: so there must be no configuration.
    wait::until_true("the agent to answer", || {
        let status = s.node.cni("STATUS").conf(&s.conf()).run();
        status.stdout.contains("does not know")
    });
    assert_eq!(runtime.files(), ["bin/podnet"]);
    s.door.open_again();
    wait::until_true("the configuration", || runtime.conf().exists());
    let text = fs::read_to_string(runtime.conf()).expect("the configuration");
    let list: Value = serde_json::from_str(&text).expect("the configuration is JSON");
    assert_eq!(list["plugins"][0]["type"], "podnet");
    assert_eq!(list["plugins"][0]["fromPod"], true);
    let mode = fs::metadata(runtime.plugin())
        .expect("the plugin")
        .permissions();
    assert_eq!(mode.mode() & 0o7777, 0o755);

    // What others do to it.
    fs::remove_file(runtime.conf()).expect("the configuration");
    wait::until_true("the configuration again", || runtime.conf().exists());
    let hidden = runtime.conf().with_extension("conflist.cilium_bak");
    fs::rename(runtime.conf(), &hidden).expect("the configuration");
    wait::until_true("the configuration again", || runtime.conf().exists());
    fs::remove_file(hidden).expect("a copy");
    fs::write(runtime.conf(), "{}").expect("the configuration");
    wait::until_true("the right configuration", || {
        fs::read_to_string(runtime.conf()).is_ok_and(|found| found == text)
    });
    fs::remove_file(runtime.plugin()).expect("the plugin");
    wait::until_true("the plugin again", || runtime.plugin().exists());

    // However the agent ends, both stay: without them pods would start without their networks.
    s.node.kill_9();
    assert_eq!(runtime.files(), ["bin/podnet", "net.d/05-podnet.conflist"]);
    s.node.start_agent();
    s.node.terminate();
    assert_eq!(runtime.files(), ["bin/podnet", "net.d/05-podnet.conflist"]);

    // Until somebody says that podnet goes.
    let output = s.node.cleanup(&["--dry-run", &bin, &conf]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("would remove") && said.contains("05-podnet.conflist"),
        "{said}"
    );
    assert_eq!(runtime.files().len(), 2);
    let output = s.node.cleanup(&[&bin, &conf]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(runtime.files(), [""; 0]);
    proof::of!(
        "NPWG-6.1",
        "RT-CD-01",
        "RT-CD-03",
        "PAIN-BOOT-2",
        "PAIN-CONF-2"
    );
}

/// PAIN-BOOT-3: another agent's plugin is not ours to remove.
#[test]
fn cleanup_leaves_the_plugin_of_another_agent() {
    let runtime = Runtime::new();
    let [bin, conf] = runtime.args();
    let Some(s) = AgentScene::start(testbed::test_name!(), "agent-leaves") else {
        return;
    };
    fs::write(runtime.plugin(), "").expect("a plugin");
    fs::write(runtime.conf(), r#"{"plugins": [{"type": "podnet"}]}"#).expect("a configuration");
    s.node.terminate();
    assert!(s.node.cleanup(&[&bin, &conf]).status.success());
    assert_eq!(runtime.files(), ["bin/podnet", "net.d/05-podnet.conflist"]);
    proof::of!("PAIN-BOOT-3");
}
