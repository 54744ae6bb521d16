//! The lists of networks that pods have, in both formats.

use serde_json::json;

use super::corner::{Corner, KEP, NPWG, pairs};

/// KEP-P1-01, KEP-P1-08, NPWG §6: pods without annotations have the same as before.
///
/// That is the network of the cluster and no other.
#[test]
fn a_pod_without_annotations_has_the_network_of_the_cluster_and_no_other() {
    let corner = Corner::new("plain");
    corner.pod("web", "n1", &[]);
    let interfaces = corner.ready("web");
    assert_eq!(pairs(&interfaces), [("eth0", corner.default_network())]);
    assert!(interfaces[0].default);
    let object = corner.object("web");
    assert_eq!(object["status"]["podIP"], interfaces[0].ips[0].as_str());
    assert!(object["spec"].get("schedulingGates").is_none());
    // The API server as a Service: kube-proxy, routes and the network of the node play along.
    corner.run("web", &["nc", "-w", "10", "10.96.0.1", "443", "-e", "true"]);
    proof::of!("KEP-P1-01", "KEP-P1-08", "NPWG-6");
}

/// NPWG-4.1.1a, NPWG-4.1.2: networks of both formats follow the default network.
#[test]
fn networks_of_the_npwg_list_come_beside_the_default_network() {
    let corner = Corner::new("npwg");
    corner.defined_network("blue", "10.101.0.0/24");
    corner.defined_network("red", "10.102.0.0/24");
    corner.pod("short", "n1", &[(NPWG, "blue, red@mgmt0".to_owned())]);
    let list = json!([{"name": "blue"}, {"name": "red", "interface": "mgmt0"}]);
    corner.pod("long", "n2", &[(NPWG, list.to_string())]);
    for pod in ["short", "long"] {
        let interfaces = corner.ready(pod);
        let expected = [
            ("eth0", corner.default_network()),
            ("net1", "e2e-npwg/blue"),
            ("mgmt0", "e2e-npwg/red"),
        ];
        assert_eq!(pairs(&interfaces), expected, "{pod}");
        assert!(
            interfaces[1].ips[0].starts_with("10.101.0."),
            "{interfaces:?}"
        );
        assert!(
            interfaces[2].ips[0].starts_with("10.102.0."),
            "{interfaces:?}"
        );
    }
    proof::of!("NPWG-4.1.2", "NPWG-4.1.1a", "NPWG-4.1.1b");
}

/// KEP-3698 `networks`.
#[test]
fn networks_of_the_kep_list_are_attached_in_its_order() {
    let corner = Corner::new("kep");
    let blue = corner.network("blue", "10.101.0.0/24");
    let red = corner.network("red", "10.102.0.0/24");
    let list = json!([
        {"name": "default", "isDefaultGW": true},
        {"name": red, "interfaceName": "mgmt0"},
        {"name": blue},
    ]);
    corner.pod("web", "n1", &[(KEP, list.to_string())]);
    let interfaces = corner.ready("web");
    let expected = [
        ("eth0", corner.default_network()),
        ("mgmt0", red.as_str()),
        ("net2", blue.as_str()),
    ];
    assert_eq!(pairs(&interfaces), expected);
    let routes = corner.run("web", &["ip", "route", "show", "default"]);
    assert!(routes.contains("dev eth0"), "{routes}");
}

/// KEP-X1: the list names all networks of the pod.
#[test]
fn a_list_of_the_kep_can_leave_the_default_network_out() {
    let corner = Corner::new("without-default");
    let blue = corner.network("blue", "10.101.0.0/24");
    let list = json!([{"name": blue, "interfaceName": "eth0"}]);
    corner.pod("web", "n1", &[(KEP, list.to_string())]);
    let interfaces = corner.ready("web");
    assert_eq!(pairs(&interfaces), [("eth0", blue.as_str())]);
    assert_eq!(
        corner.object("web")["status"]["podIP"],
        interfaces[0].ips[0].as_str()
    );
    proof::of!("KEP-X1", "KEP-P1-10", "RT-CD-09");
}
