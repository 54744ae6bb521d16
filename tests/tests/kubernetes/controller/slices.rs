//! Slices of nodes that are gone.

use serde_json::{Value, json};

use super::super::scene::namespace;
use super::objects::Cluster;
use super::set;

/// A slice as the agent of a node makes one.
async fn slice(cluster: &Cluster, network: &str, node: &str) -> String {
    let name = format!("{network}.{node}.0");
    let labels = json!({"podnet.dev/network": network, "podnet.dev/node": node});
    let endpoint = json!({"mac": "02:00:00:00:00:01", "since": "2026-01-02T03:04:05Z"});
    let spec = json!({
        "network": network, "networkID": 7, "node": node, "vteps": ["192.0.2.1"],
        "endpoints": [endpoint],
    });
    let rest = json!({"metadata": {"labels": labels}, "spec": spec});
    cluster
        .create(("PodNetworkEndpointSlice", "", &name), rest)
        .await;
    name
}

fn id(name: &str) -> (&'static str, &'static str, &str) {
    ("PodNetworkEndpointSlice", "", name)
}

/// Issue 5: node loss.
#[test]
fn what_a_node_said_is_removed_when_the_node_is_gone_and_what_others_said_stays() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        for node in ["slices-gone", "slices-here"] {
            cluster.create(("Node", "", node), json!({})).await;
        }
        let gone = [
            slice(&cluster, "slices-a", "slices-gone").await,
            slice(&cluster, "slices-b", "slices-gone").await,
        ];
        let here = slice(&cluster, "slices-a", "slices-here").await;
        // A pass that began after now.
        cluster.ready_network("slices-pass").await;
        for name in gone.iter().chain([&here]) {
            assert!(
                cluster.get(id(name)).await.is_some(),
                "{name} went too soon"
            );
        }
        cluster.delete(("Node", "", "slices-gone")).await;
        for name in &gone {
            cluster.wait_gone(id(name)).await;
        }
        assert!(cluster.get(id(&here)).await.is_some());
    });
}

/// A node may be forgotten by mistake while its pods run, as with its addresses.
#[test]
fn what_a_node_said_stays_while_pods_are_said_to_run_there() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "slices-pod").await;
        let cluster = Cluster::new(client);
        cluster
            .pod(&space, "web", Value::Null, Some("slices-pod"))
            .await;
        let name = slice(&cluster, "slices-pod", "slices-pod").await;
        cluster.ready_network("slices-pod-pass").await;
        assert!(cluster.get(id(&name)).await.is_some());
        cluster.delete_now(&space, "web").await;
        cluster.wait_gone(id(&name)).await;
    });
}
