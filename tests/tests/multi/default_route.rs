//! Test default routes of pods with several networks (NPWG §4.1.2.1.9, KEP-POD-20).

use serde_json::{Value, json};
use testbed::{Network, Setup};

use super::scene::{K8sPod, definition};

/// Networks with a gateway of their own; `flat` has none.
fn networks() -> Setup {
    let setup = Setup::default()
        .network(&Network::l2("gate", &["10.30.0.0/24", "fd10:30::/64"]).gateway("First"))
        .network(&Network::l2("four", &["10.40.0.0/24"]).gateway("First"))
        .network(&Network::l2("flat", &["10.50.0.0/24"]))
        .args(&["--default-network", "podnetwork:green"]);
    ["gate", "four", "flat", "lime"]
        .iter()
        .fold(setup, |setup, name| {
            setup.file(&format!("{name}-nad.json"), &definition(name, &Value::Null))
        })
}

/// PAIN-DGW-1: the default network has default routes when no element asks.
#[test]
fn pain_dgw_1_the_default_network_has_the_default_routes() {
    let node = testbed::node!(networks());
    let pod = K8sPod::new(&node, "a").npwg(&json!("gate,lime"));
    let result = pod.attach();
    assert_eq!(pod.default_routes(true), ["eth0 10.20.0.1"]);
    assert_eq!(pod.default_routes(false), ["eth0 fe80::1"]);
    pod.check(&result).silent();
    pod.detach();
    node.assert_empty();
    proof::of!("PAIN-DGW-1");
}

/// NPWG-4.1.2.1.9: default routes go by the gateways in the list, by preference.
///
/// They go per family: the one that is not asked for stays.
#[test]
fn npwg_4_1_2_1_9_default_routes_go_by_the_gateways_in_the_list() {
    let node = testbed::node!(networks());
    let pod = K8sPod::new(&node, "a").npwg(&json!([
        {"name": "gate", "default-route": ["10.30.0.9", "10.30.0.1"]},
    ]));
    let result = pod.attach();
    assert_eq!(
        pod.default_routes(true),
        ["net1 10.30.0.9", "net1 10.30.0.1"]
    );
    assert_eq!(pod.default_routes(false), ["eth0 fe80::1"]);
    // What the runtime is told is how it came out.
    let routes = result["routes"].to_string();
    assert!(
        !routes.contains("\"0.0.0.0/0\"") && routes.contains("\"::/0\""),
        "{routes}"
    );
    pod.check(&result).silent();
    node.restart();
    pod.check(&result).silent();
    pod.detach();
    node.assert_empty();
    proof::of!("NPWG-4.1.2.1.9");
}

/// NPWG-4.1.2.1.9 `[D]`, PAIN-DGW-1: an empty list takes the network's gateways.
///
/// A family it has none for stays where it is, and so does everything for a network without a gateway.
#[test]
fn npwg_4_1_2_1_9_an_empty_list_takes_what_the_network_has_to_give() {
    let node = testbed::node!(networks());
    for (name, v4, v6) in [
        ("gate", "net1 10.30.0.1", "net1 fd10:30::1"),
        ("four", "net1 10.40.0.1", "eth0 fe80::1"),
        ("flat", "eth0 10.20.0.1", "eth0 fe80::1"),
    ] {
        let pod = K8sPod::new(&node, name).npwg(&json!([{"name": name, "default-route": []}]));
        let result = pod.attach();
        assert_eq!(pod.default_routes(true), [v4], "{name}");
        assert_eq!(pod.default_routes(false), [v6], "{name}");
        pod.check(&result).silent();
        pod.detach();
    }
    node.assert_empty();
    proof::of!("NPWG-4.1.2.1.9", "PAIN-DGW-1");
}

/// NPWG-4.1.2.1.9: a gateway that is no neighbour could never be used.
#[test]
fn npwg_4_1_2_1_9_a_gateway_outside_the_network_fails_the_pod() {
    let node = testbed::node!(networks());
    let list = json!([{"name": "gate", "default-route": ["10.31.0.1"]}]);
    let pod = K8sPod::new(&node, "a").npwg(&list);
    pod.add()
        .fails_with(7)
        .names(&["attachment 2", "10.31.0.1", "gate"]);
    assert_eq!(pod.links(), Vec::<String>::new());
    node.assert_empty();
    proof::of!("NPWG-4.1.2.1.9");
}

/// KEP-POD-20, KEP-POD-21
#[test]
fn kep_pod_20_is_default_gw_moves_the_default_routes_and_needs_a_gateway() {
    let node = testbed::node!(networks());
    let list = |gateway: &str| {
        let element = |name: &str| json!({"name": name, "isDefaultGW": name == gateway});
        json!(["flat", "gate", "lime"].map(element))
    };
    let pod = K8sPod::new(&node, "a").kep(&list("gate"));
    // The one with the default route has eth0 (KEP-X1).
    let result = pod.attach();
    assert_eq!(pod.default_routes(true), ["eth0 10.30.0.1"]);
    assert_eq!(pod.default_routes(false), ["eth0 fd10:30::1"]);
    pod.check(&result).silent();
    pod.detach();
    let pod = K8sPod::new(&node, "b").kep(&list("flat"));
    pod.add().fails_with(7).names(&["flat", "gateway"]);
    // Nobody asks: the first one, which has none to give.
    let pod = K8sPod::new(&node, "c").kep(&list(""));
    pod.attach();
    assert_eq!(pod.default_routes(true), Vec::<String>::new());
    pod.detach();
    node.assert_empty();
    proof::of!("KEP-POD-20", "KEP-POD-21", "KEP-X1");
}
