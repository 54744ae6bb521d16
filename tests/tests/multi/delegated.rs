//! Test calls of other plugins that make networks (CNI SPEC §3, §4; NPWG §4, §7).

use serde_json::{Value, json};
use testbed::plugins::Plugins;
use testbed::{Node, Setup};

use super::scene::{K8sPod, definition, gc, held, setup};

fn list(version: &str, plugins: &[Value]) -> Value {
    json!({"cniVersion": version, "name": "lan", "plugins": plugins})
}

fn with(lan: &Value) -> Setup {
    setup().file("lan.json", &definition("lan", lan))
}

fn result(ip: &str) -> Value {
    json!({"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "/x"}],
        "ips": [{"address": ip, "interface": 0}]})
}

fn pod<'a>(node: &'a Node, name: &str, plugins: &Plugins) -> K8sPod<'a> {
    K8sPod::new(node, name)
        .path(&plugins.path())
        .npwg(&json!("lan"))
}

/// CNI-DLG-01, CNI-DLG-02, NPWG-4.1.2.1.5.1, NPWG-7.1, NPWG-7.5, CNI-RES-04
#[test]
fn cni_dlg_01_a_plugin_gets_its_own_configuration_and_the_pods_environment() {
    let plugins = Plugins::new(&["alpha"]);
    let conf = json!({"cniVersion": "0.4.0", "type": "alpha", "big": 12_345_678_901_234_567_890_u64,
        "capabilities": {"portMappings": true, "cgroupPath": true}});
    let node = testbed::node!(with(&conf));
    let pod = pod(&node, "a", &plugins)
        .npwg(&json!("lan@data0"))
        .runtime("portMappings", &json!([]))
        .runtime("cgroupPath", &json!("/pods"))
        .args("IP=10.0.0.1;MAC=02:00:00:00:00:01");
    let failure = pod.add().fails_with(102);
    failure.names(&["attachment 1", "10.0.0.1"]);
    assert_eq!(plugins.calls(), Vec::<String>::new());
    let pod = K8sPod::new(&node, "b")
        .path(&plugins.path())
        .npwg(&json!("lan@data0"))
        .runtime("portMappings", &json!([]))
        .runtime("cgroupPath", &json!("/pods"))
        .args("MAC=02:00:00:00:00:01");
    pod.attach();
    let stdin = plugins.stdin_text("alpha", "ADD");
    let wanted = r#"{"cniVersion":"0.4.0","type":"alpha","big":12345678901234567890,"name":"lan","runtimeConfig":{"cgroupPath":"/pods"}}"#;
    let sorted = |text: &str| {
        serde_json::from_str::<Value>(text)
            .expect("JSON")
            .to_string()
    };
    assert_eq!(sorted(&stdin), sorted(wanted));
    assert!(stdin.contains("12345678901234567890"), "{stdin}");
    let env = |name: &str| plugins.env("alpha", "ADD", name).unwrap_or_default();
    assert_eq!(env("CNI_IFNAME"), "data0");
    assert_eq!(env("CNI_CONTAINERID"), "b");
    assert_eq!(Some(env("CNI_NETNS").as_str()), pod.pod.path().to_str());
    assert_eq!(env("CNI_PATH"), plugins.path());
    // What the runtime wants for its own interface is not for this one.
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=b;K8S_POD_UID=uid-b";
    assert_eq!(env("CNI_ARGS"), args);
    pod.detach();
    node.assert_empty();
    proof::of!(
        "CNI-DLG-01",
        "CNI-DLG-02",
        "NPWG-4.1.2.1.5.1",
        "NPWG-7.1",
        "NPWG-7.5",
        "CNI-RES-04"
    );
}

/// NPWG-4.1.2.1.3.2, NPWG-4.1.2.1.6, PAIN-SIL-2: wishes reach a plugin, or fail.
#[test]
fn npwg_4_1_2_1_3_2_wishes_reach_a_plugin_that_takes_them_or_fail_the_pod() {
    let plugins = Plugins::new(&["alpha", "beta"]);
    let lan = list(
        "1.0.0",
        &[
            json!({"type": "alpha", "args": {"cni": {"x": 1, "y": 1}}}),
            json!({"type": "beta", "capabilities": {"ips": true, "mac": true}}),
        ],
    );
    let node = testbed::node!(with(&lan));
    let element = json!({"name": "lan", "ips": ["10.0.0.7/24"], "mac": "02:00:00:00:00:07",
        "cni-args": {"y": 2}});
    let attached = pod(&node, "a", &plugins).npwg(&json!([element]));
    attached.attach();
    let wanted = json!({"ips": ["10.0.0.7/24"], "mac": "02:00:00:00:00:07"});
    assert_eq!(plugins.stdin("beta", "ADD")["runtimeConfig"], wanted);
    assert_eq!(plugins.stdin("alpha", "ADD").get("runtimeConfig"), None);
    assert_eq!(
        plugins.stdin("alpha", "ADD")["args"]["cni"],
        json!({"x": 1, "y": 2})
    );
    attached.detach();
    plugins.forget_calls();
    let mut unserved = element;
    unserved["bandwidth"] = json!({"egressRate": 1000});
    let refused = pod(&node, "b", &plugins).npwg(&json!([unserved]));
    refused
        .add()
        .fails_with(2)
        .names(&["attachment 2", "bandwidth", "lan"]);
    assert_eq!(plugins.calls(), Vec::<String>::new());
    node.assert_empty();
    proof::of!("NPWG-4.1.2.1.3.2", "NPWG-4.1.2.1.6", "PAIN-SIL-2");
}

/// CNI-DLG-05, NPWG-7.2a, NPWG-6.2: a failing plugin takes the whole pod back.
///
/// The order is last to first, the failing plugin and all attachments before it.
#[test]
fn npwg_7_2a_a_failing_plugin_takes_the_whole_pod_back() {
    let plugins = Plugins::new(&["alpha", "beta"]);
    let lan = list(
        "1.0.0",
        &[json!({"type": "alpha"}), json!({"type": "beta"})],
    );
    let node = testbed::node!(with(&lan));
    plugins.on(
        "beta",
        "ADD",
        r#"if [ "$CNI_IFNAME" = net2 ]; then
        echo '{"code":11,"msg":"pool is locked","details":"by another"}'; exit 1; fi"#,
    );
    let pod = pod(&node, "a", &plugins).npwg(&json!("lan,lan,lan"));
    let failure = pod.add().fails_with(11);
    failure.names(&[
        "attachment 3",
        "default/lan as net2",
        "beta",
        "pool is locked",
        "by another",
    ]);
    let wanted = [
        "alpha ADD net1",
        "beta ADD net1",
        "alpha ADD net2",
        "beta ADD net2",
        "beta DEL net2",
        "alpha DEL net2",
        "beta DEL net1",
        "alpha DEL net1",
    ];
    assert_eq!(plugins.calls(), wanted);
    assert_eq!(pod.pod.links(), Vec::<String>::new());
    node.assert_empty();
    proof::of!("CNI-DLG-05", "NPWG-7.2a", "NPWG-6.2");
}

/// CNI-DEL-08, NPWG-7.2b, PAIN-DEL-1: `DEL` goes on past failures and reports them.
///
/// The next `DEL` goes on.
#[test]
fn npwg_7_2b_del_goes_on_past_failures_and_reports_the_last() {
    let plugins = Plugins::new(&["alpha", "beta"]);
    let lan = list(
        "1.0.0",
        &[json!({"type": "alpha"}), json!({"type": "beta"})],
    );
    let node = testbed::node!(with(&lan));
    let pod = pod(&node, "a", &plugins).npwg(&json!("lan,lan"));
    plugins.answer("beta", "ADD", &result("10.0.0.7/24"));
    pod.attach();
    plugins.forget_calls();
    plugins.remove("beta");
    plugins.on(
        "alpha",
        "DEL",
        r#"if [ "$CNI_IFNAME" = net2 ]; then exit 1; fi"#,
    );
    let failure = pod.del().fails_with(130);
    failure.names(&["attachment 2", "beta"]);
    // CNI-ERR-06: no runtime takes this for success.
    assert!(!failure.text().contains("not found"), "{failure:?}");
    assert_eq!(plugins.calls(), ["alpha DEL net2", "alpha DEL net1"]);
    assert_eq!(pod.pod.links(), Vec::<String>::new());
    assert_eq!(held(&node), ["a/net1 lan", "a/net2 lan"]);
    plugins.install("beta");
    plugins.on("alpha", "DEL", "");
    pod.detach();
    node.assert_empty();
    proof::of!("CNI-DEL-08", "NPWG-7.2b", "CNI-ERR-06", "PAIN-DEL-1");
}

/// CNI-GC-03: `GC` spares live secondary networks.
///
/// The runtime knows eth0 only; plugins get the valid set of our records, and what the runtime does not
/// know any more is deleted.
#[test]
fn cni_gc_03_gc_spares_live_secondary_networks() {
    let plugins = Plugins::new(&["alpha"]);
    let node = testbed::node!(with(
        &json!({"cniVersion": "1.1.0", "name": "lan", "type": "alpha"})
    ));
    let pods = ["a", "b"].map(|name| pod(&node, name, &plugins).npwg(&json!("lan,lan")));
    pods.iter().for_each(|pod| drop(pod.attach()));
    plugins.forget_calls();
    gc(&node, &["a"], &plugins.path()).silent();
    assert_eq!(held(&node), ["a/eth0 blue", "a/net1 lan", "a/net2 lan"]);
    assert_eq!(
        plugins.calls(),
        ["alpha DEL net2", "alpha DEL net1", "alpha GC"]
    );
    let valid = json!([
        {"containerID": "a", "ifname": "net1"}, {"containerID": "a", "ifname": "net2"}]);
    let conf = plugins.stdin("alpha", "GC");
    assert_eq!(conf["cni.dev/valid-attachments"], valid);
    assert_eq!(conf["cni.dev/attachments"], valid);
    // GC of another configuration is none of theirs.
    node.gc("blue", &[]).silent();
    assert_eq!(held(&node).len(), 3);
    pods[0].detach();
    assert_eq!(pods[1].pod.links(), Vec::<String>::new());
    node.assert_empty();
    proof::of!("CNI-GC-03");
}

/// CNI-GC-02, CNI-GC-04: removals and lists go on past failures, and all are told.
#[test]
fn cni_gc_04_gc_goes_on_past_plugins_that_fail() {
    let plugins = Plugins::new(&["alpha", "beta", "gamma"]);
    let lan = list(
        "1.1.0",
        &[json!({"type": "alpha"}), json!({"type": "beta"})],
    );
    let other = json!({"cniVersion": "1.1.0", "name": "other", "type": "gamma"});
    let node = testbed::node!(with(&lan).file("other.json", &definition("other", &other)));
    let pods = ["a", "b", "c"].map(|name| pod(&node, name, &plugins).npwg(&json!("lan,other")));
    pods.iter().for_each(|pod| drop(pod.attach()));
    let absent = node
        .cni("GC")
        .env("CNI_PATH", &plugins.path())
        .conf(&node.disk_conf());
    absent.run().silent();
    assert_eq!(held(&node).len(), 9, "no list is no information");
    plugins.fail("alpha", "GC", 7, "no such thing");
    plugins.fail("gamma", "GC", 7, "not that one either");
    // Of one pod only, and not of the first to be removed.
    let run =
        r#"if [ "$CNI_CONTAINERID" = b ]; then echo '{"code":7,"msg":"held fast"}'; exit 1; fi"#;
    plugins.on("gamma", "DEL", run);
    plugins.forget_calls();
    gc(&node, &["a"], &plugins.path()).fails_with(130).names(&[
        "3 attachments",
        "held fast",
        "no such thing",
        "not that one either",
    ]);
    assert_eq!(
        held(&node),
        ["a/eth0 blue", "a/net1 lan", "a/net2 other", "b/net2 other"]
    );
    let calls = plugins.calls();
    let collected = calls.iter().filter(|call| call.contains(" GC"));
    assert_eq!(
        collected.collect::<Vec<_>>(),
        ["alpha GC", "beta GC", "gamma GC"]
    );
    plugins.on("gamma", "DEL", "");
    pods[1].detach();
    pods[0].detach();
    node.assert_empty();
    proof::of!("CNI-GC-02", "CNI-GC-04");
}

/// CNI-CHK-06, CNI-CHK-04: `CHECK` reaches all attachments, each with its result.
#[test]
fn cni_chk_06_check_reaches_every_attachment() {
    let plugins = Plugins::new(&["alpha"]);
    let node = testbed::node!(with(
        &json!({"cniVersion": "1.0.0", "name": "lan", "type": "alpha"})
    ));
    plugins.answer(
        "alpha",
        "ADD",
        &json!({"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.7/24"}]}),
    );
    let pod = pod(&node, "a", &plugins);
    let result = pod.attach();
    pod.check(&result).silent();
    let previous = &plugins.stdin("alpha", "CHECK")["prevResult"];
    assert_eq!(previous["ips"][0]["address"], "10.0.0.7/24");
    plugins.fail("alpha", "CHECK", 100, "address lost");
    let failure = pod.check(&result).fails_with(130);
    failure.names(&["attachment 2", "address lost"]);
    pod.detach();
    node.assert_empty();
    proof::of!("CNI-CHK-06", "CNI-CHK-04");
}

/// CNI-DLG-07: a plugin that hangs is ended, and the pod fails.
#[test]
fn cni_dlg_07_a_plugin_that_hangs_is_killed() {
    let plugins = Plugins::new(&["alpha"]);
    let lan = json!({"cniVersion": "1.0.0", "name": "lan", "type": "alpha"});
    let node = testbed::node!(with(&lan).args(&["--delegate-timeout", "1"]));
    plugins.on("alpha", "ADD", "sleep 1000");
    let pod = pod(&node, "a", &plugins);
    pod.add().fails_with(130).names(&["alpha", "killed"]);
    assert_eq!(plugins.calls(), ["alpha ADD net1", "alpha DEL net1"]);
    node.assert_empty();
    proof::of!("CNI-DLG-07");
}

/// Attachments of other plugins are in the tables, with the reasons.
#[test]
fn delegated_attachments_are_shown_and_explained() {
    let plugins = Plugins::new(&["alpha", "beta"]);
    let lan = list(
        "1.1.0",
        &[json!({"type": "alpha"}), json!({"type": "beta"})],
    );
    let node = testbed::node!(with(&lan));
    plugins.answer("beta", "ADD", &result("10.0.0.7/24"));
    let pod = pod(&node, "a", &plugins);
    pod.attach();
    let rows = node.get("attachments");
    let row = rows
        .iter()
        .find(|row| row["ifname"] == "net1")
        .cloned()
        .unwrap_or_default();
    assert_eq!(row["network"], "lan");
    assert_eq!(row["ips"], json!(["10.0.0.7/24"]));
    assert_eq!(row["plugins"], json!(["alpha", "beta"]));
    assert_eq!(row["pod"]["name"], "a");
    let socket = node.socket();
    let args = [
        "explain",
        "--container",
        "a",
        "--socket",
        socket.to_str().expect("UTF-8"),
    ];
    let output = node.agent_command(&args);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("alpha, beta"),
        "{output:?}"
    );
    assert!(
        text.contains("eth0 of default/a on blue") && text.contains("net1 of default/a on lan"),
        "{text}"
    );
    pod.detach();
    node.assert_empty();
}

/// A directory that is the root of plugins: a shell, `/plugins` and `/log`.
pub(super) fn host_root(test: &str) -> Option<tempfile::TempDir> {
    let busybox = ["/usr/bin/busybox", "/bin/busybox"].map(std::path::Path::new);
    let Some(busybox) = busybox.into_iter().find(|path| path.is_file()) else {
        testbed::skip::skip(test, "needs busybox");
        return None;
    };
    let root = tempfile::tempdir().expect("a directory");
    for dir in ["bin", "plugins", "log"] {
        std::fs::create_dir(root.path().join(dir)).expect("a directory");
    }
    std::fs::copy(busybox, root.path().join("bin/sh")).expect("a shell");
    Some(root)
}

pub(super) fn install(root: &tempfile::TempDir, script: &str) {
    let path = root.path().join("plugins/alpha");
    std::fs::write(&path, script).expect("a plugin");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("a program");
}

/// NPWG-DI-1, NPWG-DI-3, NPWG-DI-4: a plugin gets a path for a file of its device.
///
/// It is a plugin that takes it. The file goes with the attachment, and with a failed one.
#[test]
fn npwg_di_3_a_plugin_describes_its_device_in_a_file_of_its_own() {
    let Some(root) = host_root(testbed::test_name!()) else {
        return;
    };
    // The path is the last text of the configuration with slashes in it.
    let script = r#"#!/bin/sh
        conf=$(while read -r line; do echo "$line"; done; echo "$line")
        file=${conf##*CNIDeviceInfoFile\":\"}; file=${file%%\"*}
        if [ "$CNI_COMMAND" = ADD ]; then
            if [ -e "$file" ]; then exit 9; fi
            echo '{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:04:00.5"}}' > "$file"
            if [ -e /log/fail ]; then exit 8; fi
        fi
    "#;
    install(&root, script);
    let lan = json!({"cniVersion": "1.0.0", "name": "lan", "type": "alpha",
        "capabilities": {"CNIDeviceInfoFile": true}});
    let path = root.path().to_str().expect("a path in UTF-8");
    let node = testbed::node!(with(&lan).args(&["--host-root", path]));
    let directory = root.path().join("var/run/k8s.cni.cncf.io/devinfo/cni");
    let files = || -> Vec<String> {
        let entries = std::fs::read_dir(&directory).expect("the directory is there");
        let names = entries.flatten().map(|entry| entry.file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    };
    let pod = K8sPod::new(&node, "a").path("/plugins").npwg(&json!("lan"));
    for _ in 0..2 {
        pod.attach();
        assert_eq!(files(), ["lan-a_net1"]);
        pod.detach();
        assert_eq!(files(), Vec::<String>::new());
        // Left by somebody who died.
        std::fs::write(directory.join("lan-a_net1"), "old").expect("a file");
    }
    std::fs::write(root.path().join("log/fail"), "").expect("a file");
    pod.add().fails_with(130).names(&["exit status: 8"]);
    assert_eq!(files(), Vec::<String>::new());
    node.assert_empty();
    proof::of!("NPWG-DI-1", "NPWG-DI-3", "NPWG-DI-4");
}

/// Plugins run below the node's root, which an agent in a container has elsewhere.
///
/// Here it is a directory with nothing but a shell, in which no path of this machine is right.
#[test]
fn plugins_run_below_the_host_root() {
    let Some(root) = host_root(testbed::test_name!()) else {
        return;
    };
    let at = |name: &str| root.path().join(name);
    let script = "#!/bin/sh\necho \"$CNI_COMMAND $CNI_IFNAME $PWD\" >> /log/calls\n\
        if [ -e /log/fail ]; then echo '{\"code\":100,\"msg\":\"not now\"}'; exit 1; fi\n";
    install(&root, script);
    let lan = json!({"cniVersion": "1.0.0", "name": "lan", "type": "alpha"});
    let path = root.path().to_str().expect("a path in UTF-8");
    let node = testbed::node!(with(&lan).args(&["--host-root", path]));
    let pod = K8sPod::new(&node, "a").path("/plugins").npwg(&json!("lan"));
    pod.attach();
    std::fs::write(at("log/fail"), "").expect("a file");
    pod.del().fails_with(130).names(&["not now"]);
    std::fs::remove_file(at("log/fail")).expect("it was there");
    std::fs::rename(at("bin/sh"), at("bin/no-shell")).expect("it was there");
    // The interpreter is missing below that root, wherever else there is one.
    pod.del()
        .fails_with(130)
        .names(&["cannot execute /plugins/alpha"]);
    std::fs::rename(at("bin/no-shell"), at("bin/sh")).expect("it was there");
    pod.detach();
    let calls = std::fs::read_to_string(at("log/calls")).expect("the plugin has written it");
    assert_eq!(calls, "ADD net1 /\nDEL net1 /\nDEL net1 /\n");
    node.assert_empty();
}
