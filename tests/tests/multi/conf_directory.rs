//! Configurations on disk that go on in a directory of their network's name.

use std::fs;

use serde_json::{Value, json};
use testbed::Setup;
use testbed::plugins::Plugins;

use super::scene::{K8sPod, definition};

fn delegated(plugins: &Plugins) -> Setup {
    let dir = plugins.conf_dir();
    let dir = dir.to_str().expect("a path in UTF-8");
    Setup::default()
        .args(&["--default-network", "delegate", "--cni-conf-dir", dir])
        .file("disk-nad.json", &definition("disk", &Value::Null))
}

fn write(plugins: &Plugins, file: &str, conf: &Value) {
    let path = plugins.conf_dir().join(file);
    let parent = path.parent().expect("a directory");
    fs::create_dir_all(parent).expect("a directory");
    fs::write(path, conf.to_string()).expect("a configuration");
}

fn list(name: &str) -> Value {
    json!({"cniVersion": "1.0.0", "name": name, "plugins": [{"type": "first"}]})
}

fn result(interface: &str) -> Value {
    json!({"cniVersion": "1.0.0", "interfaces": [{"name": interface, "sandbox": "/x"}],
        "ips": [{"address": "10.9.0.7/24", "interface": 0}]})
}

/// CNI-CONF-05: the default network has the plugins of its directory.
///
/// It has them when the runtime calls it itself, too; so has a network of a definition that is found on
/// disk (NPWG §3.4.1).
#[test]
fn cni_conf_05_plugins_of_the_networks_directory_are_called_after_those_of_the_list() {
    let plugins = Plugins::new(&["first", "second", "third"]);
    write(&plugins, "10-lan.conflist", &list("lan"));
    write(&plugins, "lan/20-third.conf", &json!({"type": "third"}));
    write(
        &plugins,
        "lan/10-second.conf",
        &json!({"type": "second", "sysctl": 1.0}),
    );
    for file in [
        "lan/30-other.json",
        "lan/40-other.conflist",
        "lan/deep/50.conf",
    ] {
        write(&plugins, file, &json!({"type": "not-called"}));
    }
    write(
        &plugins,
        "90-disk.conflist",
        &json!({"cniVersion": "1.0.0", "name": "disk"}),
    );
    write(&plugins, "disk/a.conf", &json!({"type": "second"}));
    plugins.answer("first", "ADD", &result("eth0"));
    plugins.on("second", "ADD", "echo '{}'");
    let node = testbed::node!(delegated(&plugins));
    let pod = K8sPod::new(&node, "a")
        .path(&plugins.path())
        .npwg(&json!("disk"));
    pod.attach();
    let added = [
        "first ADD eth0",
        "second ADD eth0",
        "third ADD eth0",
        "second ADD net1",
    ];
    assert_eq!(plugins.calls(), added);
    let read = plugins.stdin("third", "ADD");
    assert_eq!(read["name"], "lan");
    assert_eq!(read["cniVersion"], "1.0.0");
    assert_eq!(read["prevResult"]["ips"][0]["address"], "10.9.0.7/24");

    // What was added is removed, whatever the directory has by now.
    plugins.forget_calls();
    fs::remove_file(plugins.conf_dir().join("lan/20-third.conf")).expect("it was there");
    pod.detach();
    let removed = [
        "second DEL net1",
        "third DEL eth0",
        "second DEL eth0",
        "first DEL eth0",
    ];
    assert_eq!(plugins.calls(), removed);

    // A file that is no plugin: no pod without it.
    write(&plugins, "lan/60-broken.conf", &json!({"sysctl": 1}));
    pod.add()
        .fails_with(7)
        .names(&["lan/60-broken.conf", "type"]);
    let mut alone = list("lan");
    alone["loadOnlyInlinedPlugins"] = true.into();
    write(&plugins, "10-lan.conflist", &alone);
    plugins.forget_calls();
    pod.attach();
    assert_eq!(plugins.calls(), ["first ADD eth0", "second ADD net1"]);
    pod.detach();
    node.assert_empty();
    proof::of!("CNI-CONF-05", "NPWG-3.4.1");
}

/// CNI-DLG-03: what a plugin tells people is for who looks for the pod's trouble.
#[test]
fn cni_dlg_03_what_plugins_print_on_standard_error_is_in_the_agents_log() {
    let plugins = Plugins::new(&["first"]);
    write(&plugins, "10-lan.conflist", &list("lan"));
    plugins.on(
        "first",
        "ADD",
        &format!("echo 'the bridge is old' >&2; echo '{}'", result("eth0")),
    );
    plugins.on("first", "DEL", "echo 'no such bridge' >&2; exit 3");
    let node = testbed::node!(delegated(&plugins));
    let pod = K8sPod::new(&node, "a").path(&plugins.path());
    pod.attach();
    let log = node.log();
    let line = log.lines().find(|line| line.contains("the bridge is old"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("first") && line.contains("ADD"), "{line}");
    pod.del().fails_with(130).names(&["no such bridge"]);
    plugins.on("first", "DEL", "");
    pod.detach();
    node.assert_empty();
    proof::of!("CNI-DLG-03");
}
