//! Containers that read which networks they are on.

use serde_json::{Value, json};

use super::corner::{Corner, IMAGE, Interface, KEP, NPWG_STATUS, pod_fields};

/// Ends when the kubelet has written the networks of this pod, and so knows them.
const WAIT: &str = "until grep -q net1 /etc/podnetinfo/network-status; do sleep 1; done";

fn interfaces(text: &str) -> Vec<(String, Vec<String>)> {
    let list: Vec<Value> = serde_json::from_str(text).expect("a JSON list");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entries = list.iter().map(|one| {
        let ips = one["ips"].as_array().into_iter().flatten();
        (text(&one["interface"]), ips.map(text).collect())
    });
    entries.collect()
}

/// KEP-P2-2: a container reads its networks from a file, by one annotation.
///
/// The downward API writes the file. A container that starts after that has the same in its
/// environment.
#[test]
fn a_container_reads_its_networks_from_a_file_and_a_later_one_from_its_environment() {
    let corner = Corner::new("downward");
    let network = corner.network("blue", "10.111.0.0/24");
    let list = json!([
        {"name": "default", "isDefaultGW": true},
        {"name": network, "interfaceName": "net1"},
    ]);
    let asks = [
        (KEP, list.to_string()),
        ("podnet.dev/downward", "true".to_owned()),
    ];
    let mut fields = pod_fields("n1", &asks);
    fields["spec"]["initContainers"] = json!([{
        "name": "wait",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", WAIT],
    }]);
    let field = format!("metadata.annotations['{NPWG_STATUS}']");
    fields["spec"]["containers"][0]["env"] = json!([
        {"name": "NETWORKS", "valueFrom": {"fieldRef": {"fieldPath": field}}},
    ]);
    corner.create("web", &fields);

    let has = corner.ready("web");
    let expected: Vec<(String, Vec<String>)> = has
        .iter()
        .map(|Interface { name, ips, .. }| (name.clone(), ips.clone()))
        .collect();
    assert_eq!(has.len(), 2, "{has:?}");
    let file = corner.run("web", &["cat", "/etc/podnetinfo/network-status"]);
    assert_eq!(interfaces(&file), expected);
    let environment = corner.run("web", &["sh", "-c", "echo \"$NETWORKS\""]);
    assert_eq!(interfaces(&environment), expected);

    let kep = corner.run("web", &["cat", "/etc/podnetinfo/networks"]);
    let kep: Vec<Value> = serde_json::from_str(&kep).expect("a JSON list");
    let entry = json!({"name": network, "interfaceName": "net1", "ip": has[1].ips[0]});
    assert_eq!(kep.last(), Some(&entry));
    let all = corner.run("web", &["cat", "/etc/podnetinfo/annotations"]);
    assert!(all.contains(NPWG_STATUS), "{all}");
    proof::of!("KEP-P2-2");
}
