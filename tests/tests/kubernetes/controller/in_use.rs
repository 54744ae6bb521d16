//! Test that objects in use are not deleted (KEP-3698 "InUse").

use serde_json::{Value, json};

use super::super::scene::namespace;
use super::objects::{Cluster, until};
use super::set;

/// Waits until the deletion of an object is held up, and for its Event.
///
/// The Event names the user.
async fn assert_held(cluster: &Cluster, name: (&str, &str, &str), user: &str) {
    let object = cluster.get(name).await.expect("it is held");
    assert!(
        !object["metadata"]["deletionTimestamp"].is_null(),
        "{object}"
    );
    let ready = cluster.wait_condition(name, "Ready", "False", "Terminating");
    let message = ready.await["message"].to_string();
    assert!(message.contains(user), "{message}");
    // Those of objects without a namespace are in this one.
    let namespace = if name.1.is_empty() { "default" } else { name.1 };
    until(
        &format!("the Event that {user} uses {name:?}"),
        async || {
            let events = cluster.list("Event", namespace).await;
            let said = |event: &&Value| {
                let note = event["note"].as_str().unwrap_or_default();
                event["reason"] == "InUse"
                    && event["regarding"]["uid"] == object["metadata"]["uid"]
                    && note.contains(user)
            };
            events.iter().find(said).map(drop)
        },
    )
    .await;
    assert!(
        cluster.get(name).await.is_some(),
        "{name:?} went in spite of its user"
    );
}

/// KEP-PN-U1
#[test]
fn pn_inuse_pod_blocks_delete() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "inuse-pod").await;
        let cluster = Cluster::new(client);
        let network = ("PodNetwork", "", "inuse-pod");
        cluster.ready_network("inuse-pod").await;
        cluster
            .pod(
                &space,
                "web",
                json!([{"name": "inuse-pod"}]),
                Some("no-node"),
            )
            .await;
        cluster.delete(network).await;
        assert_held(&cluster, network, "pod inuse-pod/web").await;
        cluster.delete_now(&space, "web").await;
        cluster.wait_gone(network).await;
    });
    proof::of!("KEP-PN-U1");
}

/// KEP-PN-U1: an attachment counts by itself, without any pod.
#[test]
fn pn_inuse_pna_blocks_delete() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "inuse-pna").await;
        let cluster = Cluster::new(client);
        let network = ("PodNetwork", "", "inuse-pna");
        cluster.ready_network("inuse-pna").await;
        cluster.attachment(&space, "fast", "inuse-pna").await;
        cluster.delete(network).await;
        assert_held(&cluster, network, "PodNetworkAttachment inuse-pna/fast").await;
        cluster
            .delete(("PodNetworkAttachment", &space, "fast"))
            .await;
        cluster.wait_gone(network).await;
    });
    proof::of!("KEP-PN-U1");
}

/// KEP-PN-U1
#[test]
fn pn_succeeded_pod_does_not_block() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "inuse-ended").await;
        let cluster = Cluster::new(client);
        cluster.ready_network("inuse-ended").await;
        for (name, phase) in [("job", "Succeeded"), ("crashed", "Failed")] {
            cluster
                .pod(
                    &space,
                    name,
                    json!([{"name": "inuse-ended"}]),
                    Some("no-node"),
                )
                .await;
            cluster
                .patch_status(("Pod", &space, name), json!({"phase": phase}))
                .await;
        }
        cluster.delete(("PodNetwork", "", "inuse-ended")).await;
        cluster.wait_gone(("PodNetwork", "", "inuse-ended")).await;
    });
    proof::of!("KEP-PN-U1");
}

/// KEP-PN-U2
#[test]
fn pn_terminating_pod_blocks() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "inuse-terminating").await;
        let cluster = Cluster::new(client);
        let network = ("PodNetwork", "", "inuse-terminating");
        cluster.ready_network("inuse-terminating").await;
        let list = json!([{"name": "inuse-terminating"}]);
        cluster.pod(&space, "web", list, Some("no-node")).await;
        // It stays until its kubelet answers, and there is none.
        cluster.delete(("Pod", &space, "web")).await;
        let pod = cluster.get(("Pod", &space, "web")).await.expect("the pod");
        assert!(!pod["metadata"]["deletionTimestamp"].is_null());
        cluster.delete(network).await;
        assert_held(&cluster, network, "pod inuse-terminating/web").await;
        cluster.delete_now(&space, "web").await;
        cluster.wait_gone(network).await;
    });
    proof::of!("KEP-PN-U2");
}

/// KEP-PN-U1: by the pods that name it, a definition counts, too.
#[test]
fn pn_inuse_through_a_definition() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "inuse-nad").await;
        let cluster = Cluster::new(client);
        let network = ("PodNetwork", "", "inuse-nad");
        cluster.ready_network("inuse-nad").await;
        let config = json!({"type": "podnet", "podNetwork": "inuse-nad"}).to_string();
        let definition = ("NetworkAttachmentDefinition", space.as_str(), "nad");
        cluster
            .create(definition, json!({"spec": {"config": config}}))
            .await;
        cluster
            .pod(&space, "web", Value::Null, Some("no-node"))
            .await;
        let annotations = json!({"k8s.v1.cni.cncf.io/networks": "nad"});
        let patch = json!({"metadata": {"annotations": annotations}});
        cluster.patch(("Pod", &space, "web"), patch).await;
        cluster.delete(network).await;
        assert_held(&cluster, network, "pod inuse-nad/web").await;
        cluster.delete_now(&space, "web").await;
        cluster.wait_gone(network).await;
    });
    proof::of!("KEP-PN-U1");
}

/// KEP-PNA-05, KEP-PN-U2
#[test]
fn pna_inuse() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "inuse-of-pna").await;
        let cluster = Cluster::new(client);
        let attachment = ("PodNetworkAttachment", space.as_str(), "fast");
        cluster.ready_network("inuse-of-pna").await;
        cluster.attachment(&space, "fast", "inuse-of-pna").await;
        cluster
            .wait_condition(attachment, "Ready", "True", "Ready")
            .await;
        cluster
            .pod(
                &space,
                "web",
                json!([{"attachmentName": "fast"}]),
                Some("no-node"),
            )
            .await;
        cluster.delete(attachment).await;
        cluster.delete(("PodNetwork", "", "inuse-of-pna")).await;
        assert_held(&cluster, attachment, "pod inuse-of-pna/web").await;
        assert_held(
            &cluster,
            ("PodNetwork", "", "inuse-of-pna"),
            "pod inuse-of-pna/web",
        )
        .await;
        cluster.delete_now(&space, "web").await;
        cluster.wait_gone(attachment).await;
        cluster.wait_gone(("PodNetwork", "", "inuse-of-pna")).await;
    });
    proof::of!("KEP-PNA-05", "KEP-PN-U2");
}
