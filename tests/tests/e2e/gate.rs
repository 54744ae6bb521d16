//! Pods that have to wait for a network.

use serde_json::json;

use super::corner::{Corner, KEP, pairs};

/// KEP-POD-10 to 12.
#[test]
fn a_pod_waits_for_a_network_that_is_not_there_and_goes_on_by_itself() {
    let corner = Corner::new("gate");
    let blue = corner.network_name("blue");
    let list = json!([{"name": "default", "isDefaultGW": true}, {"name": blue}]).to_string();
    corner.pod("web", "n1", &[(KEP, list)]);
    corner.event("web", "FailedScheduling", &[&blue]);
    let object = corner.object("web");
    assert_eq!(object["status"]["phase"], "Pending");
    assert!(object["spec"].get("nodeName").is_none(), "it has no node");
    let gates = json!([{"name": "podnet.dev/pod-networks"}]);
    assert_eq!(object["spec"]["schedulingGates"], gates);

    corner.network("blue", "10.109.0.0/24");
    let interfaces = corner.ready("web");
    assert_eq!(
        pairs(&interfaces),
        [("eth0", corner.default_network()), ("net1", blue.as_str())]
    );
    assert!(
        corner.object("web")["spec"]
            .get("schedulingGates")
            .is_none()
    );
    proof::of!("KEP-POD-10", "KEP-POD-11", "KEP-POD-12");
}
