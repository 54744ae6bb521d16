//! CNI SPEC section 5: the shape of a result in each version (CNI-RES-01).

use serde_json::{Value, json};
use testbed::{Network, Node, Setup};

/// Adds a pod whose result is fixed: an address of each family, a gateway, a MAC.
fn result_in(node: &Node, version: Option<&str>) -> (Value, String) {
    let pod = node.pod("golden");
    let mut conf = node.conf("golden");
    match version {
        Some(version) => conf["cniVersion"] = version.into(),
        None => {
            conf.as_object_mut()
                .expect("an object")
                .remove("cniVersion");
        }
    }
    conf["isDefaultGateway"] = true.into();
    conf["runtimeConfig"] = json!({
        "ips": ["10.7.0.42/24", "fd10:7::42/64"],
        "mac": "02:00:00:00:00:2a",
    });
    let result = pod.add_conf(&conf, "net1").result();
    pod.call("DEL", "net1").conf(&conf).run().silent();
    let path = pod.path().to_str().expect("a path in UTF-8").to_owned();
    (result, path)
}

fn setup() -> Setup {
    let golden = Network::l2("golden", &["10.7.0.0/24", "fd10:7::/64"]);
    Setup::empty().network(&golden.gateway("First").mtu(1400))
}

fn old(version: &str) -> Value {
    json!({
        "cniVersion": version,
        "ip4": {
            "ip": "10.7.0.42/24",
            "gateway": "10.7.0.1",
            "routes": [{"dst": "0.0.0.0/0", "gw": "10.7.0.1"}],
        },
        "ip6": {
            "ip": "fd10:7::42/64",
            "gateway": "fd10:7::1",
            "routes": [{"dst": "::/0", "gw": "fd10:7::1"}],
        },
        "dns": {},
    })
}

fn middle(version: &str, sandbox: &str) -> Value {
    json!({
        "cniVersion": version,
        "interfaces": [{"name": "net1", "mac": "02:00:00:00:00:2a", "sandbox": sandbox}],
        "ips": [
            {"version": "4", "interface": 0, "address": "10.7.0.42/24", "gateway": "10.7.0.1"},
            {"version": "6", "interface": 0, "address": "fd10:7::42/64", "gateway": "fd10:7::1"},
        ],
        "routes": [
            {"dst": "0.0.0.0/0", "gw": "10.7.0.1"},
            {"dst": "::/0", "gw": "fd10:7::1"},
        ],
        "dns": {},
    })
}

fn new(version: &str, sandbox: &str) -> Value {
    let mut result = middle(version, sandbox);
    result.as_object_mut().expect("an object").remove("dns");
    for ip in result["ips"].as_array_mut().expect("a list") {
        ip.as_object_mut().expect("an object").remove("version");
    }
    if version == "1.1.0" {
        result["interfaces"][0]["mtu"] = 1400.into();
    }
    result
}

/// Removes the host's interfaces from a result; a golden one is about the pod.
fn without_host_interfaces(mut result: Value) -> Value {
    let interfaces = result.get_mut("interfaces").and_then(Value::as_array_mut);
    if let Some(interfaces) = interfaces {
        interfaces.retain(|interface| interface.get("sandbox").is_some());
    }
    result
}

macro_rules! golden {
    ($($test:ident: $version:expr => $expected:expr;)+) => {$(
        /// CNI-ADD-02, CNI-RES-01, CNI-RES-05: exactly this, in exactly this version.
        #[test]
        fn $test() {
            let node = testbed::node!(setup());
            let (result, sandbox) = result_in(&node, Some($version));
            let expected: fn(&str, &str) -> Value = $expected;
            assert_eq!(without_host_interfaces(result), expected($version, &sandbox));
            node.assert_empty();
            proof::of!("CNI-ADD-02", "CNI-RES-01", "CNI-RES-05");
        }
    )+};
}

golden! {
    add_result_golden_010: "0.1.0" => |version, _| old(version);
    add_result_golden_020: "0.2.0" => |version, _| old(version);
    add_result_golden_030: "0.3.0" => middle;
    add_result_golden_031: "0.3.1" => middle;
    add_result_golden_040: "0.4.0" => middle;
    add_result_golden_100: "1.0.0" => new;
    add_result_golden_110: "1.1.0" => new;
}

/// CNI-CONF-01: no `cniVersion` is 0.1.0.
#[test]
fn a_configuration_without_a_version_is_0_1_0() {
    let node = testbed::node!(setup());
    let (result, _) = result_in(&node, None);
    assert_eq!(result, old("0.1.0"));
    proof::of!("CNI-CONF-01");
}

/// CNI-RES-06: the interface of the sandbox comes first.
#[test]
fn the_interface_of_the_sandbox_comes_first() {
    let node = testbed::node!();
    let pod = node.pod("a");
    let port = pod.attach("blue", "net1");
    assert_eq!(port.result["interfaces"][0]["name"], "net1");
    assert!(port.result["interfaces"][0]["sandbox"].is_string());
    pod.detach("blue", "net1");
    proof::of!("CNI-RES-06");
}

/// NPWG-2.3: an attachment may have no address at all.
#[test]
fn a_network_without_subnets_attaches_without_addresses() {
    let bare = Network::new("bare", "L2");
    let node = testbed::node!(Setup::empty().network(&bare));
    let pod = node.pod("a");
    let port = pod.attach("bare", "net1");
    assert!(port.ips.is_empty());
    assert!(port.link().expect("the interface is there").up);
    pod.check("bare", "net1", &port.result).silent();
    pod.detach("bare", "net1");
    node.assert_empty();
    proof::of!("NPWG-2.3");
}

/// Without `isDefaultGateway` a secondary network takes no default route.
#[test]
fn there_is_no_default_route_unless_asked_for() {
    let node = testbed::node!();
    let pod = node.pod("a");
    for network in ["blue", "green"] {
        let port = pod.attach(network, "net1");
        let default = port
            .routes()
            .into_iter()
            .find(|route| route.prefix_len == 0);
        assert!(default.is_none(), "{network}: {default:?}");
        pod.detach(network, "net1");
    }
}
