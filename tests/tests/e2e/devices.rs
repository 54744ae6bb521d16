//! Ports that are sockets, with a kubelet that gives devices to containers.

use serde_json::{Value, json};

use super::corner::{Corner, KEP};
use super::objects::{NETWORK, NODE, POD, condition, until};

/// Returns a node's allocatable number of a resource; none for an unknown resource.
fn allocatable(corner: &Corner, node: &str, resource: &str) -> Option<String> {
    let node = corner.objects.get(NODE, ("", node))?;
    let number = node["status"]["allocatable"][resource].as_str();
    number.map(str::to_owned)
}

/// DP-1, DP-3, S003-02, S003-05 to 09: the pod says nothing but its list.
#[test]
fn a_container_finds_the_socket_of_its_port_where_its_device_is() {
    let corner = Corner::new("devices");
    let network = corner.network_of("fast", "10.118.0.0/24", "Memif");
    let resource = format!("podnet.dev/{network}");
    until("the node to have devices", || {
        (allocatable(&corner, "n1", &resource)? == "64").then_some(())
    });
    let list = json!([
        {"name": "default", "isDefaultGW": true},
        {"name": network, "interfaceName": "net1"},
    ]);
    corner.pod("web", "n1", &[(KEP, list.to_string())]);
    until("the pod to be ready", || {
        let pod = corner.objects.get(POD, (&corner.name, "web"))?;
        (condition(&pod, "Ready")? == "True").then_some(())
    });
    let limits = &corner.object("web")["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(limits[&resource], Value::from("1"), "{limits}");

    let variable = format!("PODNET_DEVICE_{}", network.to_uppercase().replace('-', "_"));
    let script =
        format!("cd /run/podnet/{network}/${variable} && test -S memif.sock && touch own && ls");
    let files = corner.run("web", &["sh", "-c", &script]);
    let files: Vec<&str> = files.split_whitespace().collect();
    assert_eq!(files, ["memif.sock", "net1.json", "own"]);
    proof::of!(
        "DP-1",
        "DP-3",
        "S003-02",
        "S003-05",
        "S003-07",
        "S003-08",
        "S003-09",
        "PAIN-SCH-1"
    );
}

/// DP-5: a node has no devices of a deleted network, also by the kubelet's count.
///
/// A resource stays at the kubelet for a while with nothing to give.
#[test]
fn a_node_has_no_devices_of_a_network_that_is_gone() {
    let corner = Corner::new("gone");
    let network = corner.network_of("fast", "10.119.0.0/24", "Memif");
    let resource = format!("podnet.dev/{network}");
    let has = |number: &str| {
        until(&format!("the node to have {number} devices"), || {
            let found = allocatable(&corner, "n1", &resource)?;
            (found == number).then_some(())
        });
    };
    has("64");
    corner.objects.delete_wait(NETWORK, ("", &network));
    has("0");
    proof::of!("DP-5");
}
