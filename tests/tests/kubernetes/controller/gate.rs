//! Pods that wait for their networks (KEP-3698 "Active validations").

use serde_json::{Value, json};

use super::super::scene::namespace;
use super::objects::{Cluster, condition, until};
use super::set;

/// Waits until the pod is told that it waits for this.
async fn wait_waiting(cluster: &Cluster, namespace: &str, name: &str, why: &str) -> Value {
    until(&format!("pod {name} to wait because {why}"), async || {
        let pod = cluster.get(("Pod", namespace, name)).await?;
        let ready = condition(&pod, "podnet.dev/NetworksReady")?;
        let message = ready["message"].as_str()?;
        let waits = ready["status"] == "False" && message.contains(why);
        waits.then(|| ready.clone())
    })
    .await
}

/// KEP-POD-10
#[test]
fn pod_pending_missing_pn_heals() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "gate-missing").await;
        let cluster = Cluster::new(client);
        let list = json!([{"name": "gate-missing"}, {"attachmentName": "fast"}]);
        cluster.pod(&space, "web", list, None).await;
        let why = "PodNetwork gate-missing does not exist";
        wait_waiting(&cluster, &space, "web", why).await;
        cluster.ready_network("gate-missing").await;
        let why = "PodNetworkAttachment gate-missing/fast does not exist";
        wait_waiting(&cluster, &space, "web", why).await;
        cluster.ready_network("gate-missing-too").await;
        cluster.attachment(&space, "fast", "gate-missing-too").await;
        cluster.wait_released(&space, "web").await;
        let pod = ("Pod", space.as_str(), "web");
        cluster
            .wait_condition(pod, "podnet.dev/NetworksReady", "True", "NetworksReady")
            .await;
    });
    proof::of!("KEP-POD-10");
}

/// KEP-POD-11
#[test]
fn pod_pending_notready_pn_heals() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "gate-notready").await;
        let cluster = Cluster::new(client);
        cluster.network("gate-notready").await;
        cluster
            .pod(&space, "web", json!([{"name": "gate-notready"}]), None)
            .await;
        wait_waiting(
            &cluster,
            &space,
            "web",
            "PodNetwork gate-notready is not Ready",
        )
        .await;
        cluster.parameters("gate-notready", json!({})).await;
        cluster.wait_released(&space, "web").await;
    });
    proof::of!("KEP-POD-11");
}

/// KEP-POD-12
#[test]
fn pod_pending_pn_dup_via_pna() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "gate-dup").await;
        let cluster = Cluster::new(client);
        cluster.ready_network("gate-dup").await;
        cluster.attachment(&space, "fast", "gate-dup").await;
        let list = json!([{"name": "gate-dup"}, {"attachmentName": "fast"}]);
        cluster.pod(&space, "web", list, None).await;
        wait_waiting(
            &cluster,
            &space,
            "web",
            "PodNetwork gate-dup is named twice",
        )
        .await;
        assert_eq!(cluster.gates(&space, "web").await.len(), 2);
    });
    proof::of!("KEP-POD-12");
}

/// KEP-POD-10: the scheduler's Event and `PodScheduled` tell that the pod is gated.
#[test]
fn pod_event_and_condition() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "gate-event").await;
        let cluster = Cluster::new(client);
        cluster
            .pod(&space, "web", json!([{"name": "gate-event"}]), None)
            .await;
        let ready = wait_waiting(&cluster, &space, "web", "gate-event").await;
        assert_eq!(ready["reason"], "NetworksNotReady");
        assert!(!ready["lastTransitionTime"].is_null(), "{ready}");
        let pod = cluster.get(("Pod", &space, "web")).await.expect("the pod");
        let scheduled = condition(&pod, "PodScheduled").expect("PodScheduled");
        assert_eq!(scheduled["status"], "False");
        assert_eq!(scheduled["reason"], "SchedulingGated");
        let event = until("the Event", async || {
            let events = cluster.list("Event", &space).await;
            events
                .into_iter()
                .find(|event| event["reason"] == "FailedScheduling")
        })
        .await;
        assert_eq!(event["type"], "Warning");
        assert_eq!(event["regarding"]["uid"], pod["metadata"]["uid"]);
        assert_eq!(event["reportingController"], "podnet.dev/controller");
        let note = event["note"].as_str().expect("a note");
        let words = "nodes are available: PodNetwork gate-event does not exist";
        assert!(note.starts_with("0/") && note.contains(words), "{note}");
    });
    proof::of!("KEP-POD-10");
}

/// KEP-PN-U3
#[test]
fn a_pod_waits_for_a_network_that_is_being_deleted() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "gate-deleted").await;
        let cluster = Cluster::new(client);
        cluster.ready_network("gate-deleted").await;
        let list = json!([{"name": "gate-deleted"}]);
        cluster
            .pod(&space, "old", list.clone(), Some("no-node"))
            .await;
        cluster.delete(("PodNetwork", "", "gate-deleted")).await;
        cluster.pod(&space, "new", list, None).await;
        wait_waiting(
            &cluster,
            &space,
            "new",
            "PodNetwork gate-deleted is being deleted",
        )
        .await;
    });
    proof::of!("KEP-PN-U3");
}

#[test]
fn a_gated_pod_without_a_list_goes_on_at_once() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "gate-plain").await;
        let cluster = Cluster::new(client);
        cluster.pod(&space, "web", Value::Null, None).await;
        cluster.wait_released(&space, "web").await;
        let pod = cluster.get(("Pod", &space, "web")).await.expect("the pod");
        assert!(
            condition(&pod, "podnet.dev/NetworksReady").is_none(),
            "{pod}"
        );
    });
}

/// KEP-PN-06: the pod does not go to a node of podnet's to fail there.
#[test]
fn a_pod_of_a_network_of_another_provider_is_held_and_told_of_network_and_provider() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "gate-foreign").await;
        let cluster = Cluster::new(client);
        let network = ("PodNetwork", "", "gate-foreign");
        let spec = json!({"provider": "acme.io/x"});
        cluster.create(network, json!({ "spec": spec })).await;
        let ready = json!({"type": "Ready", "status": "True", "reason": "Ready", "message": "",
                           "lastTransitionTime": "2026-11-20T10:00:00Z"});
        let ready = json!({"conditions": [ready]});
        cluster.patch_status(network, ready.clone()).await;
        cluster.attachment(&space, "theirs", "gate-foreign").await;
        let attachment = ("PodNetworkAttachment", space.as_str(), "theirs");
        cluster.patch_status(attachment, ready).await;
        let why = "PodNetwork gate-foreign has spec.provider acme.io/x, and podnet serves podnet.dev/ebpf only";
        for (name, list) in [
            ("by-network", json!([{"name": "gate-foreign"}])),
            ("by-attachment", json!([{"attachmentName": "theirs"}])),
        ] {
            cluster.pod(&space, name, list, None).await;
            wait_waiting(&cluster, &space, name, why).await;
            let gates = cluster.gates(&space, name).await;
            assert!(gates.contains(&"podnet.dev/pod-networks".to_owned()), "{gates:?}");
        }
        until("the Event", async || {
            let events = cluster.list("Event", &space).await;
            let told = |event: &Value| event["note"].as_str().is_some_and(|it| it.contains(why));
            events
                .into_iter()
                .find(|event| event["reason"] == "FailedScheduling" && told(event))
        })
        .await;
    });
    proof::of!("KEP-PN-06");
}
