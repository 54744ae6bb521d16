//! Networks of other plugins.

use serde_json::json;

use super::commands::listing;
use super::corner::{Corner, NPWG, pairs};
use super::objects::condition;

/// The plugins of a definition make the interface, and remove all of it.
#[test]
fn a_definition_with_plugins_of_others_is_made_and_unmade_by_them() {
    let corner = Corner::new("delegated");
    let config = json!({
        "cniVersion": "1.0.0",
        "name": "e2e-lan",
        "plugins": [{
            "type": "bridge",
            "bridge": "e2e-lan0",
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.105.0.0/24"}]]},
        }],
    });
    corner.definition("lan", &config);
    for pod in ["a", "b"] {
        corner.pod(pod, "n1", &[(NPWG, "lan@lan0".to_owned())]);
    }
    let [a, b] = ["a", "b"].map(|pod| corner.ready(pod));
    assert_eq!(
        pairs(&a),
        [
            ("eth0", corner.default_network()),
            ("lan0", "e2e-delegated/lan")
        ]
    );
    assert!(a[1].ips[0].starts_with("10.105.0."), "{a:?}");
    assert!(corner.reaches("a", &b[1].ips[0]));

    let leases = "/var/lib/cni/networks/e2e-lan";
    assert!(listing("n1", leases).contains(&a[1].ips[0]));
    corner.delete("a");
    let left = listing("n1", leases);
    assert!(!left.contains(&a[1].ips[0]), "{left:?}");
    assert!(left.contains(&b[1].ips[0]), "{left:?}");
    proof::of!("NPWG-3.2.2");
}

/// NPWG-7.2: a pod has all its networks or does not run.
#[test]
fn a_plugin_that_no_node_has_keeps_the_pod_from_running_and_an_event_says_so() {
    let corner = Corner::new("unknown-plugin");
    corner.definition(
        "odd",
        &json!({"cniVersion": "1.0.0", "name": "odd", "type": "nosuchplugin"}),
    );
    corner.pod("web", "n1", &[(NPWG, "odd".to_owned())]);
    corner.event(
        "web",
        "FailedAddingInterface",
        &["nosuchplugin", "e2e-unknown-plugin/odd"],
    );
    let object = corner.object("web");
    assert_eq!(object["status"]["phase"], "Pending");
    assert_ne!(condition(&object, "Ready"), Some("True"));
    proof::of!("NPWG-7.2", "NPWG-X4");
}
