//! CNI CONVENTIONS: runtimeConfig, args and what is refused (CNI-CAP-…).

use serde_json::json;
use testbed::manifest::attachment;
use testbed::{Setup, traffic};

/// CNI-CAP-03: containerd writes the keys of Go structs.
#[test]
fn add_caps_uppercase_keys() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let mut conf = node.conf("blue");
    conf["runtimeConfig"] = json!({"IPs": ["10.10.0.42/24"], "MAC": "02:00:00:00:00:2A"});
    let port = pod.attach_conf(&conf, "net1");
    assert_eq!(port.v4().to_string(), "10.10.0.42");
    assert_eq!(port.mac.to_string(), "02:00:00:00:00:2a");
    pod.detach("blue", "net1");
    conf["runtimeConfig"] = json!({
        "PortMappings": [{"HostPort": 8080, "ContainerPort": 80, "Protocol": "tcp", "HostIP": ""}],
    });
    let failure = pod.add_conf(&conf, "net1").fails_with(2);
    failure.names(&["portMappings", "8080"]);
    conf["runtimeConfig"] = json!({
        "bandwidth": {"IngressRate": 1000000, "IngressBurst": 4294967295_u64,
                      "EgressRate": 0, "EgressBurst": 0},
    });
    if !testbed::skip::without_shaping(testbed::test_name!()) {
        pod.attach_conf(&conf, "net1");
        let limits = node.get("attachments").remove(0)["bandwidth"].clone();
        assert_eq!(limits["ingress"]["rate"], 1_000_000);
        assert!(limits["egress"].is_null(), "{limits}");
        pod.detach("blue", "net1");
    }
    node.assert_empty();
    proof::of!("CNI-CAP-03", "RT-CD-05");
}

/// CNI-CAP-02: `capabilities` alone, or false ones, have no effect.
///
/// libcni leaves the key in the request.
#[test]
fn add_caps_false_not_honoured() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let mut conf = node.conf("blue");
    conf["capabilities"] = json!({"ips": true, "mac": false, "portMappings": false});
    pod.attach_conf(&conf, "net1");
    pod.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-CAP-02");
}

/// Static addresses of both families and a MAC.
#[test]
fn ips_and_mac_are_given_as_asked() {
    let node = testbed::node!();
    let (pod, peer) = (node.pod("a"), node.pod("b"));
    let mut conf = node.conf("blue");
    conf["runtimeConfig"] = json!({
        "ips": ["10.10.0.42", "fd10:10::42/64"], "mac": "02:00:00:00:00:2a",
    });
    let port = pod.attach_conf(&conf, "net1");
    assert_eq!(port.v4().to_string(), "10.10.0.42");
    assert_eq!(port.v6().to_string(), "fd10:10::42");
    assert_eq!(port.mac.to_string(), "02:00:00:00:00:2a");
    assert_eq!(port.link().and_then(|link| link.mac), Some(port.mac.0));
    let other = peer.attach("blue", "net1");
    traffic::assert_reaches(&port, &other);
    pod.detach("blue", "net1");
    peer.detach("blue", "net1");
}

/// CNI-CAP-05, CNI-ENV-09: the older ways to ask, and who wins.
#[test]
fn older_ways_to_ask_for_an_address_work() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let conf = node.conf("blue");
    let call = pod.call("ADD", "net1").conf(&conf);
    let call = call.env("CNI_ARGS", "IgnoreUnknown=1;IP=10.10.0.60");
    let result = call.run().result().to_string();
    assert!(result.contains("10.10.0.60/24"), "{result}");
    pod.detach("blue", "net1");
    let mut conf = node.conf("blue");
    conf["args"] = json!({"cni": {"ips": ["10.10.0.61"]}});
    let call = pod.call("ADD", "net1").conf(&conf);
    let call = call.env("CNI_ARGS", "IP=10.10.0.60");
    let result = call.run().result().to_string();
    assert!(
        result.contains("10.10.0.61/24"),
        "args beat CNI_ARGS: {result}"
    );
    pod.detach("blue", "net1");
    node.assert_empty();
    proof::of!("CNI-CAP-05", "CNI-ENV-09");
}

/// MEAS-01: zero is unlimited, so there is nothing to refuse.
#[test]
fn a_bandwidth_of_zero_is_no_limit() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let mut conf = node.conf("blue");
    conf["runtimeConfig"] = json!({
        "bandwidth": {"ingressRate": 0, "ingressBurst": 0, "egressRate": 0, "egressBurst": 0},
    });
    pod.attach_conf(&conf, "net1");
    let limits = node.get("attachments").remove(0)["bandwidth"].clone();
    assert_eq!(limits, json!({"ingress": null, "egress": null}));
    pod.detach("blue", "net1");
    proof::of!("CNI-CAP-06");
}

/// CNI-CAP-07: port mappings are refused, and nothing is left.
#[test]
fn port_mappings_are_refused_with_a_clear_error() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let mut conf = node.conf("blue");
    conf["runtimeConfig"] = json!({"portMappings": []});
    pod.attach_conf(&conf, "net1");
    pod.detach("blue", "net1");
    conf["runtimeConfig"] =
        json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]});
    let failure = pod.add_conf(&conf, "net1").fails_with(2);
    failure.names(&["portMappings", "8080", "80"]);
    assert!(pod.links().is_empty());
    node.assert_empty();
    proof::of!("CNI-CAP-07");
}

/// A MAC that no interface may have, or that is held, is refused.
#[test]
fn a_mac_that_cannot_be_had_is_refused() {
    let node = testbed::node!();
    let (pod, other) = (node.pod("a"), node.pod("b"));
    let mut conf = node.conf("blue");
    for mac in [
        "01:00:5e:00:00:01",
        "00:00:00:00:00:00",
        "ff:ff:ff:ff:ff:ff",
        "x",
    ] {
        conf["runtimeConfig"] = json!({"mac": mac});
        pod.add_conf(&conf, "net1").fails_with(7).names(&["mac"]);
    }
    conf["runtimeConfig"] = json!({"mac": "02:00:00:00:00:2a"});
    pod.attach_conf(&conf, "net1");
    let failure = other.add_conf(&conf, "net1").fails_with(103);
    failure.names(&["02:00:00:00:00:2a"]);
    let mut red = node.conf("red");
    red["runtimeConfig"] = json!({"mac": "02:00:00:00:00:2a"});
    other.attach_conf(&red, "net1");
    other.detach("red", "net1");
    pod.detach("blue", "net1");
    node.assert_empty();
}

/// A `PodNetworkAttachment` with its own address and MAC.
#[test]
fn a_parameterised_attachment_gets_what_it_asks_for() {
    let spec = "{macRequest: \"02:00:00:00:00:2b\", ipRequests: [10.10.0.43]}";
    let fixed = attachment("fixed", "blue", spec);
    let address = attachment("address", "blue", "{ipRequests: [10.10.0.43]}");
    let setup = Setup::default().file("fixed.yaml", &fixed);
    let node = testbed::node!(setup.file("address.yaml", &address));
    let (pod, other) = (node.pod("a"), node.pod("b"));
    let port = pod.attach_conf(&node.attachment_conf("fixed", "fixed"), "net1");
    assert_eq!(port.v4().to_string(), "10.10.0.43");
    assert_eq!(port.mac.to_string(), "02:00:00:00:00:2b");
    let plain = other.attach("blue", "net1");
    traffic::assert_reaches(&port, &plain);
    let named = node.attachment_conf("fixed", "default/address");
    other
        .add_conf(&named, "net2")
        .fails_with(101)
        .names(&["10.10.0.43"]);
    let missing = node.attachment_conf("fixed", "nowhere/fixed");
    other
        .add_conf(&missing, "net2")
        .fails_with(7)
        .names(&["nowhere"]);
    pod.detach("fixed", "net1");
    other.detach("blue", "net1");
    node.assert_empty();
}
