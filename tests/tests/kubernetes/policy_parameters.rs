//! Test the policy about gateways of `deploy/base/admission-policy.yaml`.
//!
//! A server with the policies refuses what podnet would, and nothing else.

use api::PodNetworkParameters;
use serde_json::{Value, json};

use super::crds_parameters::podnet_takes;
use super::objects::{Objects, check_specs};
use super::webhook_policy::{run, server};

const GATEWAY: &str = "spec.gateway";

fn spec(mode: &str, subnets: &[&str], more: &Value) -> Value {
    let mut spec = json!({"mode": mode, "subnets": subnets});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    spec
}

fn table() -> Vec<(Value, Option<[&'static str; 2]>)> {
    let both = ["10.10.0.0/24", "fd10:10::/64"];
    let gateway = |gateway: Value| spec("L2", &both, &json!({ "gateway": gateway }));
    let routes = |mode: &str, gateway: Value, routes: Value| {
        spec(mode, &both, &json!({"gateway": gateway, "routes": routes}))
    };
    let plain = json!([{"dst": "192.0.2.0/24"}]);
    let over = json!([{"dst": "192.0.2.0/24", "gw": "10.10.0.9"}]);
    vec![
        (json!({"mode": "L2"}), None),
        (json!({"mode": "L2", "gateway": "None"}), None),
        (gateway(json!("First")), None),
        (gateway(json!("10.10.0.254")), None),
        (gateway(json!(["10.10.0.254", "fd10:10::1"])), None),
        (gateway(json!([])), None),
        (gateway(json!("first")), Some([GATEWAY, "is not a gateway"])),
        (
            gateway(json!(["First"])),
            Some([GATEWAY, "is not a gateway"]),
        ),
        (gateway(json!([7])), Some([GATEWAY, "is not a gateway"])),
        (gateway(json!(7)), Some([GATEWAY, "is not a gateway"])),
        (
            gateway(json!("10.10.0.1/24")),
            Some([GATEWAY, "is not a gateway"]),
        ),
        (
            json!({"mode": "L2", "gateway": "First"}),
            Some([GATEWAY, "needs spec.subnets"]),
        ),
        (
            json!({"mode": "L2", "gateway": "10.10.0.1"}),
            Some([GATEWAY, "needs spec.subnets"]),
        ),
        (gateway(json!("10.11.0.1")), Some([GATEWAY, "not inside"])),
        (
            gateway(json!(["10.10.0.1", "fd10:11::1"])),
            Some([GATEWAY, "not inside"]),
        ),
        (gateway(json!("10.10.0.0")), Some([GATEWAY, "is reserved"])),
        (gateway(json!("fd10:10::")), Some([GATEWAY, "is reserved"])),
        (
            spec("L2", &["10.10.0.0/31"], &json!({"gateway": "10.10.0.0"})),
            None,
        ),
        (
            gateway(json!(["10.10.0.1", "10.10.0.2"])),
            Some([GATEWAY, "two addresses of one subnet"]),
        ),
        (
            spec("L2", &["10.10.0.0/32"], &json!({"gateway": "First"})),
            Some([GATEWAY, "leave no address"]),
        ),
        (
            spec("L2", &["fd10::1/128"], &json!({"gateway": "First"})),
            Some([GATEWAY, "leave no address"]),
        ),
        (routes("L2", json!("First"), plain.clone()), None),
        (routes("L2", json!("10.10.0.1"), plain.clone()), None),
        (routes("L3", json!("None"), plain.clone()), None),
        (routes("L2", json!("None"), over.clone()), None),
        (
            routes("L2", json!("None"), plain.clone()),
            Some(["spec.routes", "no next hop"]),
        ),
        (
            routes("L2", json!("fd10:10::1"), plain),
            Some(["spec.routes", "no next hop"]),
        ),
        (routes("L3", json!("10.10.0.9"), over.clone()), None),
        (
            routes("L3", json!("10.10.0.1"), over.clone()),
            Some(["spec.routes", "only next hop in mode L3"]),
        ),
        (
            routes("L3", json!("None"), over),
            Some(["spec.routes", "only next hop in mode L3"]),
        ),
    ]
}

/// A gateway has no type in the definition, so its rules are in a policy.
#[test]
fn the_server_refuses_gateways_that_podnet_would() {
    let Some(server) = server(testbed::test_name!()) else {
        return;
    };
    let table = table();
    for (spec, refusal) in &table {
        let takes = podnet_takes("PodNetworkParameters", spec);
        assert_eq!(takes, refusal.is_none(), "{spec}");
    }
    run(server, |client| async move {
        let parameters = Objects::all::<PodNetworkParameters>(&client);
        check_specs(&parameters, "gateways", &table).await;
        // A change of the spec is looked at, and one of labels is not.
        let good = json!({"spec": spec("L2", &["10.10.0.0/24"], &json!({"gateway": "10.10.0.1"}))});
        parameters.create("gateways", good).await.expect("taken");
        let labels = json!({"metadata": {"labels": {"a": "b"}}});
        parameters.merge("gateways", labels).await.expect("taken");
        let moved = json!({"spec": {"subnets": ["10.11.0.0/24"]}});
        let refused = parameters.merge("gateways", moved).await;
        let message = refused.expect_err("the gateway is outside");
        assert!(message.contains("not inside"), "{message}");
    });
}
