//! Events about network policies.

use serde_json::{Value, json};

use super::super::scene::namespace;
use super::objects::{Cluster, until};
use super::set;

/// Waits for the Event of this reason about a policy.
async fn wait_event(cluster: &Cluster, space: &str, about: &str, reason: &str) -> Value {
    until(&format!("the Event {reason} about {about}"), async || {
        let events = cluster.list("Event", space).await.into_iter();
        let mut events = events.filter(|event| event["regarding"]["name"] == about);
        events.find(|event| event["reason"] == reason)
    })
    .await
}

fn policy(network: &str, app: &str, more: Value) -> Value {
    let mut spec = json!({"podSelector": {"matchLabels": {"app": app}}});
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    json!({"metadata": {"annotations": {"podnet.dev/networks": network}}, "spec": spec})
}

/// Policies have Events about mistakes, written by the account that is deployed.
#[test]
fn events_tell_of_policies_that_are_not_obeyed_allow_everything_or_select_nothing() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "advice").await;
        let cluster = Cluster::new(client);
        cluster.ready_network("advice").await;
        let list = json!([{"name": "advice"}]);
        cluster.pod(&space, "web", list, Some("no-node")).await;
        let labels = json!({"metadata": {"labels": {"app": "web"}}});
        cluster.patch(("Pod", &space, "web"), labels).await;

        // First of all: it is in each look that the others are in.
        let fine = policy(
            "advice",
            "web",
            json!({"ingress": [{"from": [{"podSelector": {}}]}]}),
        );
        cluster
            .create(("NetworkPolicy", &space, "fine"), fine)
            .await;
        let open = policy("advice", "web", json!({"ingress": [{}]}));
        cluster
            .create(("NetworkPolicy", &space, "open"), open)
            .await;
        let lost = policy("advice", "db", json!({"policyTypes": ["Egress"]}));
        cluster
            .create(("MultiNetworkPolicy", &space, "lost"), lost)
            .await;
        let late = policy("advice-late", "web", json!({}));
        cluster
            .create(("NetworkPolicy", &space, "late"), late)
            .await;

        let event = wait_event(&cluster, &space, "lost", "SelectsNothing").await;
        assert_eq!(event["type"], "Normal");
        assert_eq!(event["regarding"]["kind"], "MultiNetworkPolicy");
        let event = wait_event(&cluster, &space, "open", "AllowsEverything").await;
        assert_eq!(event["type"], "Warning");
        let object = cluster.get(("NetworkPolicy", &space, "open")).await;
        let uid = &object.expect("the policy")["metadata"]["uid"];
        assert_eq!(event["regarding"]["uid"], *uid);
        let event = wait_event(&cluster, &space, "late", "NotObeyed").await;
        assert_eq!(event["type"], "Warning");
        let note = event["note"].as_str().expect("a note");
        assert!(
            note.starts_with("PodNetwork advice-late does not exist"),
            "{note}"
        );
        let events = cluster.list("Event", &space).await.into_iter();
        let of_fine = events.filter(|event| event["regarding"]["name"] == "fine");
        assert_eq!(of_fine.collect::<Vec<_>>(), [] as [Value; 0]);
    });
}
