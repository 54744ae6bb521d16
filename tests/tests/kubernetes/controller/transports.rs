//! The transports of networks: `status.transport`, and the condition `Split`.

use serde_json::{Value, json};

use super::super::scene::namespace;
use super::objects::{Cluster, Name, condition, until};
use super::set;

async fn transport(cluster: &Cluster, name: &str) -> String {
    until(&format!("the transport of {name}"), async || {
        let network = cluster.get(("PodNetwork", "", name)).await?;
        network["status"]["transport"].as_str().map(str::to_owned)
    })
    .await
}

async fn event(cluster: &Cluster, network: Name<'_>, words: &[&str]) -> Value {
    let object = cluster.get(network).await.expect("the network");
    let uid = &object["metadata"]["uid"];
    until(&format!("an Event of {network:?}"), async || {
        // Events of objects without a namespace are in this one.
        let events = cluster.list("Event", "default").await;
        events.into_iter().find(|event| {
            let note = event["note"].as_str().unwrap_or_default();
            event["reason"] == "Split"
                && event["regarding"]["uid"] == *uid
                && words.iter().all(|word| note.contains(word))
        })
    })
    .await
}

/// Issue 17: networks span the cluster, unless told otherwise.
#[test]
fn a_network_is_vxlan_unless_another_transport_is_written_or_the_nodes_route() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        let routed = json!({"mode": "L3", "subnets": ["10.3.0.0/24"], "routing": "Node"});
        let vlan = json!({"transport": {"type": "VLAN", "uplink": "eth1", "id": 5}});
        for (name, more, expected) in [
            ("carried-open", json!({}), "VXLAN"),
            (
                "carried-local",
                json!({"transport": {"type": "Local"}}),
                "Local",
            ),
            ("carried-vlan", vlan, "VLAN"),
            ("carried-node", routed, "Local"),
        ] {
            cluster.parameters(name, more).await;
            cluster.network(name).await;
            assert_eq!(transport(&cluster, name).await, expected, "{name}");
            let network = ("PodNetwork", "", name);
            cluster
                .wait_condition(network, "Ready", "True", "Ready")
                .await;
            let object = cluster.get(network).await.expect("the network");
            let is_split = condition(&object, "Split").is_some();
            assert_eq!(is_split, name == "carried-local", "{name}");
        }
        // The decision may be written, and nothing else.
        let parameters = ("PodNetworkParameters", "", "carried-open");
        let written = json!({"spec": {"transport": {"type": "VXLAN"}}});
        cluster.patch(parameters, written).await;
        cluster.delete(parameters).await;
        let other = json!({"transport": {"type": "Local"}});
        cluster.parameters("carried-open", other).await;
        let network = ("PodNetwork", "", "carried-open");
        let refused = cluster
            .wait_condition(network, "ParamsReady", "False", "TransportConflict")
            .await;
        let message = refused["message"].as_str().expect("a message");
        assert!(message.contains("write VXLAN there"), "{message}");
        assert_eq!(transport(&cluster, "carried-open").await, "VXLAN");
    });
}

/// Issue 17: nothing fails where pods are apart, so it has to be said.
#[test]
fn a_local_network_with_pods_on_two_nodes_says_so_until_they_are_on_one() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "split").await;
        let cluster = Cluster::new(client);
        let local = json!({"transport": {"type": "Local"}});
        cluster.parameters("split", local).await;
        cluster.network("split").await;
        let network = ("PodNetwork", "", "split");
        cluster
            .wait_condition(network, "Split", "False", "OneNode")
            .await;
        let list = || json!([{"name": "split"}]);
        cluster.pod(&space, "a", list(), Some("split-1")).await;
        cluster.pod(&space, "b", list(), Some("split-2")).await;
        let split = cluster
            .wait_condition(network, "Split", "True", "SeveralNodes")
            .await;
        let message = split["message"].as_str().expect("a message");
        let words = ["split-1 and split-2", "PodNetwork with transport VXLAN"];
        for word in words {
            assert!(message.contains(word), "{message}");
        }
        let event = event(&cluster, network, &words).await;
        assert_eq!(event["type"], "Warning");
        // Pods that do not need each other run on.
        cluster
            .wait_condition(network, "Ready", "True", "Ready")
            .await;
        cluster.delete_now(&space, "b").await;
        cluster
            .wait_condition(network, "Split", "False", "OneNode")
            .await;
    });
}
