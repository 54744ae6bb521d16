//! Networks of a device that a device plugin has described.

use std::fs;

use serde_json::json;
use testbed::Setup;

use super::delegated::{host_root, install};
use super::scene::{K8sPod, setup};

/// A definition as an operator of a device plugin writes it.
fn with_resource() -> Setup {
    let config = json!({"cniVersion": "1.0.0", "name": "fast", "plugins": [
        {"type": "alpha", "deviceID": "0000:04:00.5", "capabilities": {"CNIDeviceInfoFile": true}}]});
    let object = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "fast", "namespace": "default",
            "annotations": {"k8s.v1.cni.cncf.io/resourceName": "example.com/fast"}},
        "spec": {"config": config.to_string()},
    });
    setup().file("fast.json", &object.to_string())
}

/// NPWG-DI-1, NPWG-DI-3, PAIN-DEV-2: a plugin finds the device's description.
///
/// So it does with a list of plugins too, in the file it is given. The device plugin wrote it; the file goes, and the device plugin's
/// stays.
#[test]
fn npwg_di_3_a_plugin_finds_what_the_device_plugin_has_written() {
    let Some(root) = host_root(testbed::test_name!()) else {
        return;
    };
    let script = r#"#!/bin/sh
        conf=$(while read -r line; do echo "$line"; done; echo "$line")
        file=${conf##*CNIDeviceInfoFile\":\"}; file=${file%%\"*}
        if [ "$CNI_COMMAND" = ADD ]; then read -r found < "$file"; echo "$found" > /log/found; fi
    "#;
    install(&root, script);
    let devices = root.path().join("var/run/k8s.cni.cncf.io/devinfo");
    fs::create_dir_all(devices.join("dp")).expect("a directory");
    let described = devices.join("dp/example.com-fast-0000:04:00.5-device.json");
    let text = r#"{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:04:00.5"}}"#;
    fs::write(&described, format!("{text}\n")).expect("a description");
    let path = root.path().to_str().expect("a path in UTF-8");
    let node = testbed::node!(with_resource().args(&["--host-root", path]));
    let pod = K8sPod::new(&node, "a")
        .path("/plugins")
        .npwg(&json!("fast"));
    pod.attach();
    let found = fs::read_to_string(root.path().join("log/found")).expect("the plugin has read it");
    assert_eq!(found.trim(), text);
    assert!(devices.join("cni/fast-a_net1").exists());
    pod.detach();
    assert!(!devices.join("cni/fast-a_net1").exists());
    assert!(described.exists());
    node.assert_empty();
    proof::of!("NPWG-DI-1", "NPWG-DI-3", "PAIN-DEV-2");
}
