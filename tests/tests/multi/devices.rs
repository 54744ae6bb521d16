//! Devices that the kubelet has given to a pod, and the attachments that have them.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;

use memif::Address;
use serde_json::json;
use testbed::kubelet::Kubelet;
use testbed::{MemifApp, Network, Node, Setup, manifest, traffic};

use super::delegated::{host_root, install};
use super::scene::{K8sPod, definition, setup};

/// A node with a network of memif ports, and who can have devices there.
fn with(kubelet: &Kubelet) -> Setup {
    let dir = kubelet.dir().to_str().expect("a path in UTF-8");
    setup()
        .network(&Network::l2("fast", &["10.10.0.0/24"]).interface("Memif"))
        .file(
            "plain.yaml",
            &manifest::attachment("plain", "fast", "{interface: {type: Veth}}"),
        )
        .file("fast.json", &definition("fast", &json!(null)))
        .args(&["--kubelet-dir", dir, "--devices-per-network", "16"])
}

/// Where the attachments of a container have their sockets, by their interfaces.
fn sockets(node: &Node, container: &str) -> Vec<(String, PathBuf)> {
    let rows = node.get("attachments").into_iter();
    let mut found: Vec<(String, PathBuf)> = rows
        .filter(|row| row["container"] == container && !row["socket"].is_null())
        .map(|row| {
            let text = |key: &str| row[key].as_str().expect("text").to_owned();
            (text("ifname"), text("socket").into())
        })
        .collect();
    found.sort();
    found
}

/// S003-09, DP-1, DP-3: the first attachment has the first device.
///
/// Its socket is where a container has the device mounted.
#[test]
fn s003_09_each_attachment_has_the_directory_of_its_own_device() {
    let kubelet = Kubelet::new();
    let node = testbed::node!(with(&kubelet));
    let plugin = kubelet.registered();
    assert_eq!(plugin.0, "podnet.dev/fast");
    let given = kubelet.allocate(&plugin, "a", &["10", "2"]);
    assert_eq!(given.envs["PODNET_DEVICE_FAST"], "2,10");
    let mounted = |id: &str| {
        let path = format!("/run/podnet/fast/{id}");
        let mount = given
            .mounts
            .iter()
            .find(|mount| mount.container_path == path);
        PathBuf::from(&mount.expect("a mount of that device").host_path)
    };
    let pod = K8sPod::new(&node, "a").npwg(&json!("fast, fast"));
    pod.attach();
    let expected = [("net1", "2"), ("net2", "10")]
        .map(|(ifname, id)| (ifname.to_owned(), mounted(id).join("memif.sock")));
    assert_eq!(sockets(&node, pod.pod.container()), expected);
    for (_, socket) in &expected {
        assert!(socket.exists(), "{}", socket.display());
    }
    // Who has no device is attached all the same.
    let other = K8sPod::new(&node, "b").npwg(&json!("fast"));
    other.attach();
    let own = sockets(&node, other.pod.container());
    assert!(
        own.len() == 1 && !own[0].1.starts_with(node.path("run/devices")),
        "{own:?}"
    );

    node.restart();
    assert_eq!(sockets(&node, pod.pod.container()), expected);
    assert_eq!(kubelet.registered().0, "podnet.dev/fast");
    other.detach();
    pod.detach();
    for (_, socket) in &expected {
        assert!(!socket.exists(), "{}", socket.display());
    }
    node.assert_empty();
    proof::of!("S003-09", "DP-1", "DP-3");
}

/// A container with a device may fill the directory of its own device only.
///
/// It cannot take the room that the node or others need.
#[test]
fn a_container_fills_the_directory_of_its_own_device_only() {
    let kubelet = Kubelet::new();
    let node = testbed::node!(with(&kubelet));
    let plugin = kubelet.registered();
    let first = kubelet.allocate(&plugin, "a", &["0"]);
    let directory = PathBuf::from(&first.mounts[0].host_path);
    let full = fs::write(directory.join("large"), vec![1; 4 << 20]).expect_err("no room");
    assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
    let many = (0..1000).find_map(|number| File::create(directory.join(number.to_string())).err());
    let many = many.expect("no room for so many files");
    assert_eq!(many.kind(), ErrorKind::StorageFull, "{many}");

    // Its own port has no place for its files then, which is said; that of another one has.
    let pod = K8sPod::new(&node, "a").npwg(&json!("fast"));
    let refused = pod.add().error();
    refused.names(&["devices/fast/0", "No space left on device"]);
    kubelet.allocate(&plugin, "b", &["1"]);
    let other = K8sPod::new(&node, "b").npwg(&json!("fast"));
    other.attach();
    other.detach();

    // Given again, the device is empty, whoever looks at what was there before.
    let open = File::open(directory.join("0")).expect("a file of the container");
    let again = kubelet.allocate(&plugin, "a", &["0"]);
    assert_eq!(again.mounts[0].host_path, first.mounts[0].host_path);
    assert_eq!(fs::read_dir(&directory).expect("the directory").count(), 0);
    pod.attach();
    pod.detach();
    drop(open);
    node.assert_empty();
}

/// S003-09: Multus calls podnet for each network, and may say the device.
#[test]
fn s003_09_a_device_that_is_named_counts_if_it_is_the_pods() {
    let kubelet = Kubelet::new();
    let node = testbed::node!(with(&kubelet));
    let plugin = kubelet.registered();
    kubelet.allocate(&plugin, "a", &["3", "4", "5"]);
    kubelet.allocate(&plugin, "b", &["6"]);
    let pod = node.pod("a");
    let add = |ifname: &str, device: Option<&str>| {
        let mut conf = node.conf("fast");
        if let Some(device) = device {
            conf["runtimeConfig"] = json!({"deviceID": device});
        }
        let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=a";
        pod.call("ADD", ifname)
            .env("CNI_ARGS", args)
            .conf(&conf)
            .run()
    };
    add("net0", Some("6"))
        .error()
        .names(&["deviceID 6", "podnet.dev/fast"]);
    add("net0", Some("../../x"))
        .error()
        .names(&["deviceID ../../x"]);
    let socket = |result: &serde_json::Value| {
        let path = result["interfaces"][0]["socketPath"].as_str();
        PathBuf::from(path.expect("a socket"))
    };
    let in_device = |id: &str| {
        node.path("run/devices/fast")
            .join(id)
            .join("files/memif.sock")
    };
    let named = add("net1", Some("4")).result();
    assert_eq!(socket(&named), in_device("4"));
    let first = add("net2", None).result();
    assert_eq!(socket(&first), in_device("3"));
    let last = add("net3", None).result();
    assert_eq!(
        socket(&last),
        in_device("5"),
        "the fourth is another port's"
    );

    // And it is a port like any other.
    let kernel = node.pod("plain");
    let plain = node.attachment_conf("fast", "default/plain");
    let kernel = kernel.attach_conf(&plain, "net1");
    let port = pod.port("fast", "net1", named.clone());
    let app = MemifApp::start_at(&port, Address::Path(socket(&named)));
    traffic::assert_reaches(&port, &kernel);
    drop(app);
    proof::of!("S003-09");
}

/// NPWG-DI-5, NPWG-X2: plugins of others are told the pod's devices of Kubernetes.
#[test]
fn npwg_di_5_a_plugin_is_told_the_device_of_its_network() {
    let Some(root) = host_root(testbed::test_name!()) else {
        return;
    };
    let script = r#"#!/bin/sh
        conf=$(while read -r line; do echo "$line"; done; echo "$line")
        if [ "$CNI_COMMAND" = ADD ]; then echo "$conf" > /log/"$CNI_IFNAME"; fi
        echo '{"cniVersion": "1.0.0"}'
    "#;
    install(&root, script);
    let config = json!({"cniVersion": "1.0.0", "name": "vf", "plugins": [
        {"type": "alpha", "capabilities": {"deviceID": true}}]});
    let object = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "vf", "namespace": "default",
            "annotations": {"k8s.v1.cni.cncf.io/resourceName": "example.com/vf"}},
        "spec": {"config": config.to_string()},
    });
    let kubelet = Kubelet::new();
    kubelet.has("a", "example.com/vf", &["0000:04:02.10", "0000:04:02.2"]);
    let dir = kubelet.dir().to_str().expect("a path in UTF-8");
    let path = root.path().to_str().expect("a path in UTF-8");
    let setup = setup().file("vf.json", &object.to_string());
    let node = testbed::node!(setup.args(&["--kubelet-dir", dir, "--host-root", path]));
    let pod = K8sPod::new(&node, "a")
        .path("/plugins")
        .npwg(&json!("vf, vf"));
    pod.attach();
    for (ifname, device) in [("net1", "0000:04:02.2"), ("net2", "0000:04:02.10")] {
        let text = fs::read_to_string(root.path().join("log").join(ifname));
        let told: serde_json::Value =
            serde_json::from_str(&text.expect("the plugin was called")).expect("JSON");
        assert_eq!(told["deviceID"], device);
        assert_eq!(told["pciBusID"], device);
        assert_eq!(told["runtimeConfig"]["deviceID"], device);
    }
    pod.detach();
    node.assert_empty();
    proof::of!("NPWG-DI-5", "NPWG-X2", "PAIN-DEV-1");
}

/// S003-09: a container's mounted directory stays while the agent restarts.
#[test]
fn s003_09_a_control_socket_comes_back_into_the_directory_of_its_device() {
    let kubelet = Kubelet::new();
    let dir = kubelet.dir().to_str().expect("a path in UTF-8");
    let setup = setup()
        .network(&Network::l2("xdp", &["10.10.0.0/24"]).interface("AFXDP"))
        .file("xdp.json", &definition("xdp", &json!(null)))
        .args(&["--kubelet-dir", dir]);
    let node = testbed::node!(setup);
    let given = kubelet.allocate(&kubelet.registered(), "a", &["7"]);
    let mounted = PathBuf::from(&given.mounts[0].host_path);
    let held = File::open(&mounted).expect("the directory");
    let pod = K8sPod::new(&node, "a").npwg(&json!("xdp"));
    pod.attach();
    let socket = mounted.join("afxdp.sock");
    assert_eq!(
        sockets(&node, pod.pod.container()),
        [("net1".to_owned(), socket.clone())]
    );
    node.restart();
    let same = std::os::unix::fs::MetadataExt::ino;
    let found = fs::metadata(&mounted).expect("the directory");
    assert_eq!(same(&found), same(&held.metadata().expect("metadata")));
    assert!(socket.exists());
    pod.detach();
    assert!(!socket.exists());
    node.assert_empty();
    proof::of!("S003-09");
}
