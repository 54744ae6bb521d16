//! Test a pod's annotations and Events about its networks.

use serde_json::{Value, json};

use super::corner::{Corner, KEP_STATUS, NPWG, pairs};

/// NPWG §5.3, KEP-3698 "Status", NPWG-X4.
#[test]
fn both_statuses_and_the_events_say_what_the_pod_has() {
    let corner = Corner::new("statuses");
    let network = corner.network_name("blue");
    corner.defined_network("blue", "10.104.0.0/24");
    corner.pod("web", "n2", &[(NPWG, "blue".to_owned())]);
    let interfaces = corner.ready("web");
    assert_eq!(
        pairs(&interfaces),
        [
            ("eth0", corner.default_network()),
            ("net1", "e2e-statuses/blue")
        ]
    );
    assert!(interfaces[0].default && !interfaces[1].default);
    for one in &interfaces {
        let path = format!("/sys/class/net/{}/address", one.name);
        assert_eq!(corner.run("web", &["cat", &path]).trim(), one.mac);
    }

    let object = corner.object("web");
    let text = object["metadata"]["annotations"][KEP_STATUS].as_str();
    let entries: Vec<Value> = serde_json::from_str(text.expect("a status")).expect("JSON");
    let entry = json!({"name": network, "interfaceName": "net1", "ip": interfaces[1].ips[0]});
    assert_eq!(entries.last(), Some(&entry), "{entries:?}");
    assert_eq!(entries[0]["name"], "default");
    assert_eq!(entries[0]["ip"], interfaces[0].ips[0].as_str());
    assert_eq!(entries[0]["isDefaultGW"], true);

    let added = format!(
        "Add net1 [{}/24] from e2e-statuses/blue",
        interfaces[1].ips[0]
    );
    corner.event("web", "AddedInterface", &[&added]);
    let from = format!("from {}", corner.default_network());
    corner.event("web", "AddedInterface", &["Add eth0 [", &from]);
    proof::of!(
        "NPWG-X4",
        "NPWG-5.2",
        "NPWG-5.3.1",
        "NPWG-5.3.2",
        "NPWG-5.3.4",
        "NPWG-5.3.5",
        "KEP-STS-02"
    );
}
