//! Test the options of a list's elements (NPWG §4.1.2.1).
//!
//! Each reaches the attachment, or is refused by its name.

use serde_json::{Value, json};
use testbed::{limit, traffic};

use super::scene::{K8sPod, definition, held, ips, setup};

fn red() -> testbed::Setup {
    setup().file("red-nad.json", &definition("red", &Value::Null))
}

fn row(node: &testbed::Node, ifname: &str) -> Value {
    let rows = node.get("attachments");
    let found = rows.iter().find(|row| row["ifname"] == ifname).cloned();
    found.expect("the attachment is there")
}

/// NPWG-4.1.2.1.3, NPWG-4.1.2.1.4
#[test]
fn npwg_4_1_2_1_3_addresses_and_mac_are_those_asked_for() {
    let node = testbed::node!(red());
    let pod = K8sPod::new(&node, "a").npwg(&json!([{
        "name": "red", "ips": ["10.10.0.42/24", "fd10:10::42"], "mac": "02:00:00:00:00:2A",
    }]));
    let result = pod.attach();
    let net1 = row(&node, "net1");
    assert_eq!(net1["ips"], json!(["10.10.0.42/24", "fd10:10::42/64"]));
    assert_eq!(net1["mac"], "02:00:00:00:00:2a");
    // The runtime is told nothing of them (KEP-CNI-1).
    assert!(
        !ips(&result).iter().any(|ip| ip.contains("10.10.0.42")),
        "{result}"
    );
    let other = K8sPod::new(&node, "b").npwg(&json!([{"name": "red", "ips": ["10.10.0.42"]}]));
    other
        .add()
        .fails_with(101)
        .names(&["attachment 2", "10.10.0.42"]);
    pod.detach();
    node.assert_empty();
    proof::of!("NPWG-4.1.2.1.3", "NPWG-4.1.2.1.4", "KEP-CNI-1");
}

/// NPWG-7.5: what the runtime asks for is for its own interface.
#[test]
fn npwg_7_5_requests_of_the_runtime_are_for_the_first_interface() {
    let node = testbed::node!(red());
    let pod = K8sPod::new(&node, "a")
        .npwg(&json!("red"))
        .args("IP=10.10.0.99;MAC=02:00:00:00:00:63");
    pod.attach();
    let (eth0, net1) = (row(&node, "eth0"), row(&node, "net1"));
    assert!(eth0["ips"].to_string().contains("10.10.0.99/24"), "{eth0}");
    assert_eq!(eth0["mac"], "02:00:00:00:00:63");
    assert!(!net1["ips"].to_string().contains("10.10.0.99"), "{net1}");
    assert_ne!(net1["mac"], "02:00:00:00:00:63");
    pod.detach();
    node.assert_empty();
    proof::of!("NPWG-7.5", "RT-CO-01", "RT-CO-02");
}

/// NPWG-4.1.2.1.8
#[test]
fn npwg_4_1_2_1_8_bandwidth_is_kept_and_is_not_that_of_the_runtime() {
    if testbed::skip::without_shaping(testbed::test_name!()) {
        return;
    }
    let node = testbed::node!(red());
    let pod = K8sPod::new(&node, "a")
        .npwg(&json!([{"name": "red", "bandwidth": {"ingressRate": 10_000_000}}]))
        .runtime(
            "bandwidth",
            &json!({"ingressRate": 90_000_000, "ingressBurst": 100_000}),
        );
    pod.attach();
    let rate = |ifname: &str| row(&node, ifname)["bandwidth"]["ingress"].clone();
    assert_eq!(rate("eth0")["rate"], 90_000_000);
    assert_eq!(rate("net1")["rate"], 10_000_000);
    assert_eq!(
        rate("net1")["source"],
        "bandwidth.ingressRate in the pod's list"
    );
    assert!(limit::discipline().is_some() && rate("net1")["mechanism"].is_string());
    pod.detach();
    node.assert_empty();
    proof::of!("NPWG-4.1.2.1.8");
}

/// NPWG-4.1.2.1.7, NPWG-4.1.2.1.10: what podnet does not do fails the attachment.
#[test]
fn npwg_4_1_2_1_7_what_podnet_does_not_do_is_refused_by_its_key() {
    let node = testbed::node!(red());
    for (options, key) in [
        (
            json!({"portMappings": [{"hostPort": 8080, "containerPort": 80}]}),
            "portMappings",
        ),
        (
            json!({"infiniband-guid": "24:8a:07:03:00:8d:ae:2f"}),
            "infiniband-guid",
        ),
    ] {
        let mut element = options;
        element["name"] = "red".into();
        let pod = K8sPod::new(&node, "a").npwg(&json!([element]));
        pod.add().fails_with(2).names(&["attachment 2", key]);
        assert_eq!(pod.links(), Vec::<String>::new());
    }
    node.assert_empty();
    proof::of!("NPWG-4.1.2.1.7", "NPWG-4.1.2.1.10");
}

/// Two pods on their second networks reach each other.
///
/// The rest of the machinery is as ever.
#[test]
fn secondary_networks_carry_traffic() {
    let node = testbed::node!(red());
    let pods = ["a", "b"].map(|name| K8sPod::new(&node, name).npwg(&json!("red")));
    let results = pods.each_ref().map(K8sPod::attach);
    let ports = pods.each_ref().map(|pod| {
        // What an ADD of it alone would have said.
        let row = node
            .get("attachments")
            .into_iter()
            .find(|row| row["container"] == pod.pod.container() && row["ifname"] == "net1")
            .expect("the attachment is there");
        let ips = row["ips"].as_array().cloned().unwrap_or_default();
        let ips: Vec<Value> = ips
            .iter()
            .map(|ip| json!({"address": ip, "interface": 0}))
            .collect();
        let result = json!({
            "interfaces": [{"name": "net1", "mac": row["mac"], "sandbox": pod.pod.path()}],
            "ips": ips,
        });
        pod.pod.port("red", "net1", result)
    });
    traffic::assert_reaches(&ports[0], &ports[1]);
    for (pod, result) in pods.iter().zip(&results) {
        pod.check(result).silent();
    }
    assert_eq!(held(&node).len(), 4);
    pods.iter().for_each(K8sPod::detach);
    node.assert_empty();
}
