//! Test blocks and reservations of missing nodes and pods.
//!
//! The controller of these tests waits one second.

use serde_json::{Value, json};

use super::super::scene::namespace;
use super::objects::{Cluster, until};
use super::set;

async fn node(cluster: &Cluster, name: &str) -> String {
    let node = cluster.create(("Node", "", name), json!({})).await;
    node["metadata"]["uid"].as_str().expect("a UID").to_owned()
}

async fn block(cluster: &Cluster, network: &str, node: &str, uid: &str) -> String {
    let name = format!("{network}.10-0-0-16");
    let spec = json!({"network": network, "cidr": "10.0.0.16/28", "node": node, "nodeUID": uid});
    cluster
        .create(("IPBlock", "", &name), json!({ "spec": spec }))
        .await;
    name
}

async fn marked(cluster: &Cluster, name: &str) -> bool {
    let block = cluster.get(("IPBlock", "", name)).await.expect("the block");
    !block["status"]["reclaimAfter"].is_null()
}

/// Waits for the end of a later pass of the controller, by a network made now.
async fn after_a_pass(cluster: &Cluster, name: &str) {
    cluster.ready_network(name).await;
}

#[test]
fn the_blocks_of_a_node_that_is_gone_are_taken_back() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        let uid = node(&cluster, "reclaim-gone").await;
        let name = block(&cluster, "reclaim-gone", "reclaim-gone", &uid).await;
        after_a_pass(&cluster, "reclaim-gone-pass").await;
        assert!(!marked(&cluster, &name).await);
        cluster.delete(("Node", "", "reclaim-gone")).await;
        cluster.wait_gone(("IPBlock", "", &name)).await;
    });
}

#[test]
fn a_pod_on_a_node_that_is_gone_keeps_its_blocks() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "reclaim-pod").await;
        let cluster = Cluster::new(client);
        cluster
            .pod(&space, "web", Value::Null, Some("reclaim-pod"))
            .await;
        let name = block(&cluster, "reclaim-pod", "reclaim-pod", "never-there").await;
        after_a_pass(&cluster, "reclaim-pod-pass").await;
        assert!(!marked(&cluster, &name).await);
        // Somebody else's mark does not change that, and goes.
        let long_ago = json!({"reclaimAfter": "2020-01-01T00:00:00Z"});
        cluster.patch_status(("IPBlock", "", &name), long_ago).await;
        until("the mark to go", async || {
            (!marked(&cluster, &name).await).then_some(())
        })
        .await;
        cluster.delete_now(&space, "web").await;
        cluster.wait_gone(("IPBlock", "", &name)).await;
    });
}

#[test]
fn a_node_that_comes_back_under_its_uid_keeps_its_blocks() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        let uid = node(&cluster, "reclaim-back").await;
        let name = block(&cluster, "reclaim-back", "reclaim-back", &uid).await;
        let soon = json!({"reclaimAfter": "2020-01-01T00:00:00Z"});
        cluster.patch_status(("IPBlock", "", &name), soon).await;
        until("the mark to go", async || {
            (!marked(&cluster, &name).await).then_some(())
        })
        .await;
    });
}

#[test]
fn the_reservation_of_a_pod_goes_with_the_pod() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "reserve-pod").await;
        let cluster = Cluster::new(client);
        cluster
            .pod(&space, "web", Value::Null, Some("no-node"))
            .await;
        let pod = cluster.get(("Pod", &space, "web")).await.expect("the pod");
        let holder =
            |uid: &Value| json!({"namespace": space, "name": "web", "uid": uid, "node": "no-node"});
        let kept = ("IPReservation", "", "reserve-pod.10-0-0-7");
        let spec = json!({"network": "reserve-pod", "address": "10.0.0.7",
            "pod": holder(&pod["metadata"]["uid"])});
        cluster.create(kept, json!({ "spec": spec })).await;
        let orphan = ("IPReservation", "", "reserve-pod.10-0-0-8");
        let spec = json!({"network": "reserve-pod", "address": "10.0.0.8",
            "pod": holder(&"an-earlier-pod".into())});
        cluster.create(orphan, json!({ "spec": spec })).await;
        cluster.wait_gone(orphan).await;
        assert!(cluster.get(kept).await.is_some());
        cluster.delete_now(&space, "web").await;
        cluster.wait_gone(kept).await;
    });
}

/// NPWG-8-T4
#[test]
fn the_reservation_of_a_claim_goes_with_the_claim_and_its_pods() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "reserve-claim").await;
        let cluster = Cluster::new(client);
        let claim = ("IPAMClaim", space.as_str(), "vm-a");
        let spec = json!({"network": "reserve-claim", "interface": "net1"});
        let made = cluster.create(claim, json!({ "spec": spec })).await;
        let holder = json!({"namespace": space, "name": "vm-a", "uid": made["metadata"]["uid"]});
        let reservation = ("IPReservation", "", "reserve-claim.10-0-0-7");
        let spec = json!({"network": "reserve-claim", "address": "10.0.0.7", "claim": holder});
        cluster.create(reservation, json!({ "spec": spec })).await;
        cluster
            .pod(&space, "vm", Value::Null, Some("no-node"))
            .await;
        let list = json!([{"name": "nad", "ipam-claim-reference": "vm-a"}]).to_string();
        let annotations = json!({"k8s.v1.cni.cncf.io/networks": list});
        cluster
            .patch(
                ("Pod", &space, "vm"),
                json!({"metadata": {"annotations": annotations}}),
            )
            .await;
        cluster.delete(claim).await;
        after_a_pass(&cluster, "reserve-claim-pass").await;
        assert!(cluster.get(reservation).await.is_some());
        cluster.delete_now(&space, "vm").await;
        cluster.wait_gone(reservation).await;
    });
    proof::of!("NPWG-8-T4");
}
