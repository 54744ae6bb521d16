//! `PodNetworkEndpointSlice` and `spec.transport`, as the API server checks them.

use api::{PodNetwork, PodNetworkEndpointSlice, PodNetworkParameters};
use serde_json::{Value, json};

use super::objects::{self, Objects, check_specs};

fn endpoint(mac: &str, ips: &[&str]) -> Value {
    json!({"mac": mac, "ips": ips, "since": "2026-01-02T03:04:05.000006Z"})
}

/// A slice that is right, and one thing about it that is changed.
fn with(field: &str, value: Value) -> Value {
    let mut spec = json!({
        "network": "blue",
        "networkID": 7,
        "node": "n1",
        "vteps": ["192.0.2.1", "2001:db8::1"],
        "endpoints": [endpoint("02:00:00:00:00:01", &["10.10.0.1", "fd10::1"])],
    });
    spec[field] = value;
    spec
}

fn of_pod(pod: Value) -> Value {
    let mut endpoint = endpoint("02:00:00:00:00:01", &[]);
    endpoint["pod"] = pod;
    json!([endpoint])
}

fn many(count: u32) -> Value {
    let of = |n: u32| {
        endpoint(
            &format!("02:00:00:00:{:02x}:{:02x}", n >> 8, n & 0xff),
            &["10.0.0.1"],
        )
    };
    (0..count).map(of).collect()
}

#[test]
fn a_slice_has_bounds_and_each_endpoint_once() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let slices = Objects::all::<PodNetworkEndpointSlice>(&client);
        let one = "02:00:00:00:00:01";
        let table = [
            (with("node", json!("n1")), None),
            (with("endpoints", many(256)), None),
            (
                with("endpoints", many(257)),
                Some(["spec.endpoints", "256"]),
            ),
            (
                with("endpoints", json!([])),
                Some(["spec.endpoints", "at least 1"]),
            ),
            (with("endpoints", json!([endpoint(one, &[])])), None),
            (
                with(
                    "endpoints",
                    json!([endpoint(one, &[]), endpoint(one, &["10.0.0.1"])]),
                ),
                Some(["spec.endpoints[1]", "Duplicate"]),
            ),
            (
                with("endpoints", json!([endpoint("03:00:00:00:00:01", &[])])),
                Some(["spec.endpoints[0].mac", "should match"]),
            ),
            (
                with("endpoints", json!([endpoint("02:00:00:00:00:0A", &[])])),
                Some(["spec.endpoints[0].mac", "should match"]),
            ),
            (
                with("endpoints", json!([endpoint(one, &["10.0.0.01"])])),
                Some(["spec.endpoints[0].ips", "canonical"]),
            ),
            (with("endpoints", of_pod(json!("ops/web-0.a"))), None),
            (
                with("endpoints", of_pod(json!("web"))),
                Some(["spec.endpoints[0].pod", "should match"]),
            ),
            (
                with("endpoints", of_pod(json!("a/".repeat(159)))),
                Some(["spec.endpoints[0].pod", "317"]),
            ),
            (
                with("endpoints", json!([{"mac": one, "since": "yesterday"}])),
                Some(["spec.endpoints[0].since", "date-time"]),
            ),
            (with("vteps", json!(["2001:db8::1"])), None),
            (with("vteps", json!([])), Some(["spec.vteps", "at least 1"])),
            (
                with("vteps", json!(["192.0.2.1", "192.0.2.2"])),
                Some(["spec.vteps", "one of IPv4"]),
            ),
            (
                with("vteps", json!(["2001:db8::1", "2001:db8::2"])),
                Some(["spec.vteps", "one of IPv4"]),
            ),
            (
                with("vteps", json!(["node-1"])),
                Some(["spec.vteps", "canonical"]),
            ),
            (with("networkID", json!(0)), Some(["spec.networkID", "1"])),
            (
                with("networkID", json!(16_777_216)),
                Some(["spec.networkID", "16777215"]),
            ),
        ];
        check_specs(&slices, "blue.n1.0", &table).await;
        let refused = slices
            .try_spec("red.n1.0", &with("networkID", json!(7)))
            .await;
        assert!(refused.unwrap_err().contains("metadata.name"));
        let long = json!("a".repeat(213));
        slices
            .try_spec("0123456789abcdef.0", &{
                let mut spec = with("network", long);
                spec["node"] = json!("b".repeat(100));
                spec
            })
            .await
            .unwrap();
    });
}

#[test]
fn a_slice_stays_that_of_its_network_and_node() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let slices = Objects::all::<PodNetworkEndpointSlice>(&client);
        // Both pairs have the same names in one.
        let mut spec = with("network", json!("crd.slices"));
        spec["node"] = json!("n1");
        let name = "crd.slices.n1.0";
        slices.create(name, json!({ "spec": spec })).await.unwrap();
        let moved = json!({"spec": {"network": "crd", "node": "slices.n1"}});
        let refused = slices.merge(name, moved).await.unwrap_err();
        assert!(refused.contains("immutable"), "{refused}");
        let less = json!({"spec": {"vteps": ["192.0.2.9"]}});
        slices.merge(name, less).await.unwrap();
        assert_eq!(
            slices.names("spec.network=crd.slices,spec.node=n1").await,
            [name]
        );
    });
}

#[test]
fn a_transport_is_chosen_once_and_not_for_a_network_that_nodes_route_for() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let parameters = Objects::all::<PodNetworkParameters>(&client);
        let vxlan = json!({"type": "VXLAN"});
        let l3 = |routing: &str, transport: &Value| {
            json!({
                "mode": "L3", "subnets": ["10.0.0.0/24"],
                "routing": routing, "transport": transport,
            })
        };
        let table = [
            (l3("Isolated", &vxlan), None),
            (l3("Isolated", &json!({"type": "Local"})), None),
            (l3("Node", &json!({"type": "Local"})), None),
            (
                l3("Node", &vxlan),
                Some(["spec.transport", "routing Isolated"]),
            ),
            (
                l3("Isolated", &json!({})),
                Some(["spec.transport.type", "Required"]),
            ),
            (
                l3("Isolated", &json!({"type": "GRE"})),
                Some(["spec.transport.type", "VXLAN"]),
            ),
        ];
        check_specs(&parameters, "transport", &table).await;
        let spec = |transport: Option<&Value>| match transport {
            Some(transport) => json!({"spec": {"mode": "L2", "transport": transport}}),
            None => json!({"spec": {"mode": "L2"}}),
        };
        let local = json!({"type": "Local"});
        for (name, transport) in [
            ("transport-vxlan", Some(&vxlan)),
            ("transport-local", Some(&local)),
            ("transport-none", None),
            ("transport-open", None),
        ] {
            parameters.create(name, spec(transport)).await.unwrap();
        }
        let vlan = json!({"type": "VLAN", "uplink": "eth1", "id": 5});
        for (name, transport) in [
            ("transport-vxlan", Value::Null),
            ("transport-vxlan", local.clone()),
            ("transport-local", Value::Null),
            ("transport-local", vxlan.clone()),
            // Nothing is decided on that has an uplink.
            ("transport-none", vlan),
        ] {
            let patch = json!({"spec": {"transport": transport}});
            let refused = parameters.merge(name, patch).await.unwrap_err();
            assert!(
                refused.contains("spec.transport") && refused.contains("immutable"),
                "{name} {transport}: {refused}"
            );
        }
        // The decision may be written, once.
        for (name, transport, other) in [
            ("transport-none", &local, &vxlan),
            ("transport-open", &vxlan, &local),
        ] {
            let patch = |transport: &Value| json!({"spec": {"transport": transport}});
            parameters.merge(name, patch(transport)).await.unwrap();
            let refused = parameters.merge(name, patch(other)).await.unwrap_err();
            assert!(refused.contains("immutable"), "{refused}");
        }
    });
}

/// Pods are attached by the transport in the status.
///
/// Where it is lost, an agent would go by another.
#[test]
fn the_transport_in_a_status_is_given_once_and_stays() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let networks = Objects::all::<PodNetwork>(&client);
        let (name, spec) = ("transport-status", json!({"spec": {"enabled": true}}));
        networks.create(name, spec).await.unwrap();
        let give = async |status: Value| networks.merge_status(name, status).await;
        give(json!({"networkID": 7})).await.unwrap();
        let refused = give(json!({"transport": "GRE"})).await.unwrap_err();
        assert!(refused.contains("status.transport"), "{refused}");
        give(json!({"transport": "VXLAN"})).await.unwrap();
        let refused = give(json!({"transport": "Local"})).await.unwrap_err();
        assert!(refused.contains("is immutable"), "{refused}");
        for lost in [json!({"transport": null}), Value::Null] {
            let refused = give(lost.clone()).await.unwrap_err();
            assert!(refused.contains("must stay"), "{lost}: {refused}");
        }
        // Everything else of it still changes.
        give(json!({"networkID": 8})).await.unwrap();
    });
}
