//! Test `Vpc` in the API server, which refuses what podnet would.

use api::{PodNetworkParameters, Vpc};
use serde_json::{Value, json};

use super::objects::{self, Objects, check_specs};

/// Whether podnet itself takes the spec, by the rules it reads manifests with.
fn podnet_takes(spec: &Value) -> bool {
    let text = json!({"apiVersion": api::API_VERSION, "kind": "Vpc", "metadata": {"name": "a"}, "spec": spec});
    let parsed: Result<Vec<_>, _> = api::parse_manifests("table", &text.to_string())
        .into_iter()
        .collect();
    parsed.is_ok_and(|objects| api::resolve(objects).problems().is_empty())
}

fn vpcs() -> Vec<(Value, Option<[&'static str; 2]>)> {
    let refused = |what| Some(["spec.cidrs", what]);
    let with = |cidrs: Value| json!({ "cidrs": cidrs });
    let peers = |names: &[&str]| {
        let peers: Vec<Value> = names.iter().map(|it| json!({"vpc": it})).collect();
        json!({"cidrs": ["10.0.0.0/8"], "peers": peers})
    };
    vec![
        (with(json!(["10.0.0.0/8", "fd10::/48"])), None),
        (with(json!([])), refused("at least 1")),
        (with(json!(["10.0.0.1/8"])), refused("host bits")),
        (with(json!(["0.0.0.0/0"])), refused("host bits zero")),
        (with(json!(["224.0.0.0/8"])), refused("unicast prefixes")),
        (
            with(json!(["10.0.0.0/8", "10.1.0.0/16"])),
            refused("overlap"),
        ),
        (peers(&["red", "green"]), None),
        (
            peers(&["red", "red"]),
            Some(["spec.peers", "Duplicate value"]),
        ),
        (peers(&["Red"]), Some(["spec.peers", "should match"])),
    ]
}

#[test]
fn the_server_refuses_vpcs_that_podnet_would() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    let table = vpcs();
    for (spec, refusal) in &table {
        assert_eq!(podnet_takes(spec), refusal.is_none(), "{spec}");
    }
    scene.run(|client| async move {
        check_specs(&Objects::all::<Vpc>(&client), "vpc", &table).await;
    });
}

/// Nodes with pods of the network would route otherwise than others.
#[test]
fn a_network_keeps_its_vpc_for_as_long_as_it_exists() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let parameters = Objects::all::<PodNetworkParameters>(&client);
        let spec = json!({"mode": "L3", "subnets": ["10.10.0.0/24"], "vpc": "one"});
        let made = parameters.create("kept-vpc", json!({ "spec": spec })).await;
        made.unwrap();
        for vpc in [json!("two"), Value::Null] {
            let patch = json!({"spec": {"vpc": vpc}});
            let refused = parameters.merge("kept-vpc", patch).await.unwrap_err();
            assert!(
                refused.contains("spec.vpc") && refused.contains("immutable"),
                "{refused}"
            );
        }
        for spec in [
            json!({"mode": "L2", "vpc": "one"}),
            json!({"mode": "L2", "subnets": [], "vpc": "one"}),
            json!({"mode": "L3", "subnets": ["10.10.0.0/24"], "routing": "Node", "vpc": "one"}),
            json!({"mode": "L3", "subnets": ["10.10.0.0/24"], "vpc": "one",
                "transport": {"type": "Native", "uplink": "eth1"}}),
        ] {
            let refused = parameters.try_spec("wrong-vpc", &spec).await.unwrap_err();
            assert!(
                refused.contains("spec.vpc") && refused.contains("routing Isolated"),
                "{refused}"
            );
        }
    });
}
