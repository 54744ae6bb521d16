//! The network every pod has first (NPWG §6): ours, another plugin's, or none.

use std::fs;

use serde_json::{Value, json};
use testbed::plugins::Plugins;
use testbed::{Node, Setup};

use super::scene::{K8sPod, definition, held, interfaces, ips, setup};

fn delegated(plugins: &Plugins) -> Setup {
    let dir = plugins.conf_dir();
    let dir = dir.to_str().expect("a path in UTF-8");
    Setup::default()
        .args(&["--default-network", "delegate", "--cni-conf-dir", dir])
        .file("red-nad.json", &definition("red", &Value::Null))
}

fn write(plugins: &Plugins, file: &str, conf: &Value) {
    fs::write(plugins.conf_dir().join(file), conf.to_string()).expect("a configuration");
}

fn lan() -> Value {
    json!({"cniVersion": "1.1.0", "name": "lan", "plugins": [
        {"type": "first", "capabilities": {"portMappings": true, "bandwidth": true}},
        {"type": "second"}]})
}

fn result(ip: &str) -> Value {
    json!({"cniVersion": "1.1.0", "interfaces": [
        {"name": "host0"}, {"name": "eth0", "sandbox": "/x", "mac": "02:00:00:00:00:01"}],
        "ips": [{"address": ip, "interface": 1, "gateway": "10.9.0.1"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.9.0.1"}]})
}

fn status(node: &Node, plugins: &Plugins) -> testbed::Outcome {
    node.cni("STATUS")
        .env("CNI_PATH", &plugins.path())
        .conf(&node.disk_conf())
        .run()
}

/// NPWG-6.1, NPWG-6.1.2, CNI-ST-02, PAIN-BOOT-2: STATUS waits for a network.
///
/// With no configuration but ours a node is not ready, and no pod comes up without its networks. Then STATUS is the default network's.
#[test]
fn npwg_6_1_status_waits_for_the_default_network_and_passes_its_own_on() {
    let plugins = Plugins::new(&["first", "second"]);
    let node = testbed::node!(delegated(&plugins));
    // Ours is first by name, and is not taken.
    write(
        &plugins,
        "05-podnet.conflist",
        &json!({
        "cniVersion": "1.1.0", "name": "podnet", "plugins": [{"type": "podnet", "fromPod": true}]}),
    );
    status(&node, &plugins)
        .fails_with(50)
        .names(&["no default network yet"]);
    let pod = K8sPod::new(&node, "a").path(&plugins.path());
    pod.add().fails_with(11).names(&["no default network yet"]);
    write(&plugins, "10-lan.conflist", &lan());
    write(
        &plugins,
        "20-other.conf",
        &json!({"cniVersion": "1.1.0", "name": "o", "type": "gone"}),
    );
    status(&node, &plugins).silent();
    assert_eq!(plugins.calls(), ["first STATUS", "second STATUS"]);
    plugins.fail("second", "STATUS", 51, "uplink down");
    status(&node, &plugins)
        .fails_with(51)
        .names(&["uplink down"]);
    plugins.fail("second", "STATUS", 7, "bad");
    status(&node, &plugins).fails_with(50).names(&["bad"]);
    node.assert_empty();
    proof::of!(
        "NPWG-6.1",
        "NPWG-6.1.2",
        "CNI-ST-02",
        "PAIN-BOOT-2",
        "PAIN-READY-1",
        "PAIN-CONF-1"
    );
}

/// NPWG-X7: Multus may take podnet's configuration for its default network.
#[test]
fn a_default_network_that_is_multus_is_refused_with_its_file() {
    let plugins = Plugins::new(&["first", "second", "multus", "multus-shim", "outer"]);
    let node = testbed::node!(delegated(&plugins));
    write(&plugins, "10-lan.conflist", &lan());
    let shim = json!({"type": "multus-shim", "clusterNetwork": "/etc/cni/net.d"});
    let inner = json!({"type": "outer", "delegate": {"type": "multus"}});
    for (conf, plugin) in [
        (
            json!({"cniVersion": "1.0.0", "name": "m", "type": "multus"}),
            "multus",
        ),
        (
            json!({"cniVersion": "1.0.0", "name": "m", "plugins": [{"type": "first"}, shim]}),
            "multus-shim",
        ),
        (
            json!({"cniVersion": "1.0.0", "name": "m", "plugins": [inner]}),
            "multus",
        ),
    ] {
        write(&plugins, "00-multus.conf", &conf);
        let leads = format!("00-multus.conf in --cni-conf-dir leads to {plugin},");
        let words = [
            leads.as_str(),
            "remove the file once Multus' pod has left this node",
        ];
        status(&node, &plugins).fails_with(50).names(&words);
        let pod = K8sPod::new(&node, "a").path(&plugins.path());
        pod.add().fails_with(11).names(&words);
    }
    // Also by the directory of the network, whose plugins go on after those of the list.
    fs::remove_file(plugins.conf_dir().join("00-multus.conf")).expect("it was there");
    fs::create_dir(plugins.conf_dir().join("lan")).expect("a directory");
    write(&plugins, "lan/10-more.conf", &json!({"type": "multus"}));
    status(&node, &plugins)
        .fails_with(50)
        .names(&["10-lan.conflist in --cni-conf-dir leads to multus"]);
    assert_eq!(plugins.calls(), Vec::<String>::new(), "none was called");
    fs::remove_dir_all(plugins.conf_dir().join("lan")).expect("it was there");
    status(&node, &plugins).silent();
    node.assert_empty();
    proof::of!("NPWG-X7");
}

/// NPWG-6.2, NPWG-7.5, CNI-DLG-01: the default network is first, and last to go.
///
/// It gets all that the runtime said, and the runtime gets its result.
#[test]
fn npwg_6_2_the_default_network_is_first_and_gets_what_the_runtime_asks_for() {
    let plugins = Plugins::new(&["first", "second"]);
    let node = testbed::node!(delegated(&plugins));
    write(&plugins, "10-lan.conflist", &lan());
    plugins.answer("first", "ADD", &result("10.9.0.5/24"));
    let mapping = json!([{"HostPort": 8080, "ContainerPort": 80, "Protocol": "tcp", "HostIP": ""}]);
    let pod = K8sPod::new(&node, "a")
        .path(&plugins.path())
        .npwg(&json!("red"))
        .runtime("portMappings", &mapping)
        .runtime("dns", &json!({"Servers": ["10.96.0.10"]}))
        .args("IP=10.9.0.5");
    let answered = pod.attach();
    assert_eq!(interfaces(&answered), ["eth0"]);
    assert_eq!(ips(&answered), ["10.9.0.5/24"]);
    let first = plugins.stdin("first", "ADD");
    // Bandwidth was not supplied, DNS not declared (CNI-CAP-01).
    assert_eq!(first["runtimeConfig"], json!({"portMappings": mapping}));
    assert_eq!(plugins.stdin("second", "ADD").get("runtimeConfig"), None);
    let args = plugins.env("first", "ADD", "CNI_ARGS").unwrap_or_default();
    assert!(args.ends_with("K8S_POD_UID=uid-a;IP=10.9.0.5"), "{args}");
    assert_eq!(
        plugins.env("first", "ADD", "CNI_IFNAME").as_deref(),
        Some("eth0")
    );
    assert_eq!(held(&node), ["a/eth0 lan", "a/net1 red"]);
    pod.check(&answered).silent();
    plugins.forget_calls();
    pod.del().silent();
    assert_eq!(plugins.calls(), ["second DEL eth0", "first DEL eth0"]);
    assert_eq!(pod.pod.links(), Vec::<String>::new());
    node.assert_empty();
    proof::of!(
        "NPWG-6.2",
        "NPWG-7.5",
        "CNI-DLG-01",
        "CNI-CAP-01",
        "RT-CD-05"
    );
}

/// PAIN-CONF-1: a default network that leads back to podnet is passed over.
///
/// Podnet is a member of it, so the next one is taken; one that cannot be read is no reason to take
/// another.
#[test]
fn npwg_6_1_a_broken_first_configuration_is_not_passed_over() {
    let plugins = Plugins::new(&["first"]);
    let node = testbed::node!(delegated(&plugins));
    fs::write(plugins.conf_dir().join("00-bad.conf"), "{").expect("a configuration");
    write(
        &plugins,
        "10-lan.conf",
        &json!({"cniVersion": "1.1.0", "name": "lan", "type": "first"}),
    );
    status(&node, &plugins)
        .fails_with(50)
        .names(&["00-bad.conf"]);
    fs::remove_file(plugins.conf_dir().join("00-bad.conf")).expect("it was there");
    status(&node, &plugins).silent();
    proof::of!("NPWG-6.1", "PAIN-CONF-1");
}

/// CNI-ST-04: the default network's plugins must not keep the runtime waiting.
#[test]
fn cni_st_04_a_plugin_that_does_not_answer_status_is_not_waited_for() {
    let plugins = Plugins::new(&["first"]);
    let node = testbed::node!(delegated(&plugins));
    write(
        &plugins,
        "10-lan.conf",
        &json!({"cniVersion": "1.1.0", "name": "lan", "type": "first"}),
    );
    plugins.on("first", "STATUS", "sleep 1000");
    status(&node, &plugins).fails_with(50);
    proof::of!("CNI-ST-04");
}

/// NPWG-X1: an annotation names the default network, where this is allowed.
///
/// The operator allows it.
#[test]
fn npwg_6_x_a_pod_chooses_another_default_network_where_that_is_allowed() {
    const KEY: &str = "v1.multus-cni.io/default-network";
    let nad = definition("red", &Value::Null);
    let node = testbed::node!(setup().file("red-nad.json", &nad));
    let pod = K8sPod::new(&node, "a").annotated(KEY, &json!("red"));
    pod.add().fails_with(7).names(&[KEY]);
    node.terminate();
    node.start_agent_with(&["--default-override", "default"]);
    pod.attach();
    assert_eq!(held(&node), ["a/eth0 red"]);
    pod.detach();
    node.assert_empty();
    proof::of!("NPWG-X1", "NPWG-6-X");
}

/// KEP-P1-10: without a default network every pod says what its first one is.
#[test]
fn kep_p1_10_without_a_default_network_pods_must_list_their_first() {
    let nad = definition("red", &Value::Null);
    let setup = Setup::default().args(&["--default-network", "none"]);
    let node = testbed::node!(setup.file("red-nad.json", &nad));
    node.cni("STATUS").conf(&node.disk_conf()).run().silent();
    for pod in [
        K8sPod::new(&node, "a"),
        K8sPod::new(&node, "b").npwg(&json!("red")),
    ] {
        pod.add()
            .fails_with(7)
            .names(&["eth0", "podnet.dev/networks"]);
    }
    let pod = K8sPod::new(&node, "c")
        .kep(&json!([{"name": "blue"}]))
        .npwg(&json!("red"));
    pod.attach();
    assert_eq!(held(&node), ["c/eth0 blue", "c/net1 red"]);
    pod.detach();
    node.assert_empty();
    proof::of!("KEP-P1-10");
}

/// The PodNetwork `default` of a cluster, as `get networks` shows it.
fn shown(node: &Node) -> (bool, String, String) {
    let rows = node.get("networks");
    let row = rows.iter().find(|row| row["name"] == "default");
    let row = row.expect("a row of the network `default`");
    let text = |key: &str| row[key].as_str().expect("a text").to_owned();
    (row["ready"] == true, text("reason"), text("message"))
}

const DEFAULT: &str = "apiVersion: podnet.dev/v1alpha1\nkind: PodNetwork\n\
    metadata: {name: default}\nspec: {enabled: true}\n";

/// The object stands for another plugin's network.
#[test]
fn the_network_default_of_another_plugin_is_shown_as_that() {
    let plugins = Plugins::new(&["first", "second"]);
    let node = testbed::node!(delegated(&plugins).file("default.yaml", DEFAULT));
    let (ready, reason, message) = shown(&node);
    assert!(
        !ready && reason == "NoDefaultNetwork",
        "{reason}: {message}"
    );
    assert!(message.contains("no default network yet"), "{message}");
    write(&plugins, "10-lan.conflist", &lan());
    let (ready, reason, message) = shown(&node);
    assert!(ready && reason == "Delegated", "{reason}: {message}");
    assert!(message.contains("network lan"), "{message}");
}

/// A node whose pods have no default network says that.
#[test]
fn the_network_default_of_a_node_without_one_is_shown_as_that() {
    let setup = Setup::default().args(&["--default-network", "none"]);
    let node = testbed::node!(setup.file("default.yaml", DEFAULT));
    let (ready, reason, message) = shown(&node);
    assert!(
        !ready && reason == "NoDefaultNetwork",
        "{reason}: {message}"
    );
    assert!(
        message.contains("a pod must list its first network"),
        "{message}"
    );
}

/// CNI-ST-01: STATUS is about the default network, not its free addresses.
#[test]
fn cni_st_01_status_names_a_default_network_that_is_not_there_and_bears_a_full_one() {
    let tiny = testbed::Network::l2("tiny", &["10.3.0.0/31"]);
    let node = testbed::node!(
        Setup::default()
            .network(&tiny)
            .args(&["--default-network", "podnetwork:tiny"])
    );
    let ask = || node.cni("STATUS").conf(&node.disk_conf()).run();
    ask().silent();
    let pods = ["a", "b"].map(|name| K8sPod::new(&node, name));
    pods.iter().for_each(|pod| drop(pod.attach()));
    let late = K8sPod::new(&node, "late");
    late.add().fails_with(100).names(&["tiny"]);
    ask().silent();
    pods.iter().for_each(K8sPod::detach);
    ask().silent();
    node.remove_manifest("tiny.yaml");
    testbed::wait::until_true("the network to go", || !ask().success);
    ask()
        .fails_with(50)
        .names(&["PodNetwork tiny does not exist"]);
    proof::of!("CNI-ST-01");
}
