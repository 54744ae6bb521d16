//! Test the status of `PodNetworkParameters` and `AttachmentParameters`.

use serde_json::{Value, json};

use super::super::objects::kubectl;
use super::super::scene::namespace;
use super::objects::{Cluster, Name, condition, until};
use super::set;

/// Waits until so many objects name this one.
async fn wait_used(cluster: &Cluster, name: Name<'_>, count: u64) {
    until(&format!("{name:?} to be used by {count}"), async || {
        let found = cluster.get(name).await?;
        (found["status"]["usedBy"] == count).then_some(())
    })
    .await;
}

#[test]
fn parameters_of_a_network_tell_which_field_is_wrong_and_how_many_use_them() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        let name = "status-network";
        let parameters: Name<'_> = ("PodNetworkParameters", "", name);
        // A server with the policies would refuse it.
        let wrong = json!({"subnets": ["10.10.0.0/24"], "gateway": "10.11.0.1"});
        cluster.parameters(name, wrong).await;
        let found = cluster
            .wait_condition(parameters, "Valid", "False", "FieldsInvalid")
            .await;
        let message = found["message"].as_str().expect("a message");
        assert!(
            message.contains("spec.gateway[0]: 10.11.0.1") && message.contains("10.10.0.0/24"),
            "{message}"
        );
        wait_used(&cluster, parameters, 0).await;
        cluster.network(name).await;
        wait_used(&cluster, parameters, 1).await;
        let mended = json!({"spec": {"gateway": "10.10.0.1"}});
        cluster.patch(parameters, mended).await;
        let found = cluster
            .wait_condition(parameters, "Valid", "True", "Valid")
            .await;
        assert_eq!(
            found["observedGeneration"], 2,
            "a status is no new generation"
        );
        let output = kubectl(server, &["get", "podnetworkparameters", name]);
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        let cells: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            cells[0][..5],
            ["NAME", "MODE", "SUBNETS", "VALID", "USED"],
            "{table}"
        );
        assert_eq!(cells[1][3..5], ["True", "1"], "{table}");
        let network = ("PodNetwork", "", name);
        cluster.delete(network).await;
        wait_used(&cluster, parameters, 0).await;
    });
}

#[test]
fn parameters_of_attachments_have_a_status_each_in_its_namespace() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "status-attachment").await;
        let other = namespace(&client, "status-attachment-other").await;
        let cluster = Cluster::new(client);
        for space in [&space, &other] {
            let name = ("AttachmentParameters", space.as_str(), "slow");
            cluster
                .create(name, json!({"spec": {"egressRate": 9000}}))
                .await;
        }
        let reference =
            json!({"group": "podnet.dev", "kind": "AttachmentParameters", "name": "slow"});
        let spec = json!({"podNetworkName": "nowhere", "parametersRefs": [reference]});
        for name in ["one", "two"] {
            let name = ("PodNetworkAttachment", space.as_str(), name);
            cluster.create(name, json!({ "spec": spec })).await;
        }
        for (space, used) in [(&space, 2), (&other, 0)] {
            let name: Name<'_> = ("AttachmentParameters", space, "slow");
            cluster.wait_condition(name, "Valid", "True", "Valid").await;
            wait_used(&cluster, name, used).await;
        }
    });
}

/// More than one pass writes, and what nobody changes is written once.
#[test]
fn all_of_many_parameters_get_their_status_and_are_written_once() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "status-many").await;
        let cluster = Cluster::new(client);
        for number in 0..300 {
            let name = format!("p{number}");
            let name = ("AttachmentParameters", space.as_str(), name.as_str());
            cluster.create(name, json!({"spec": {}})).await;
        }
        let versions = |objects: &[Value]| -> Vec<Value> {
            let metadata = objects.iter().map(|it| &it["metadata"]);
            metadata
                .map(|it| json!([it["name"], it["resourceVersion"]]))
                .collect()
        };
        let all = until("all to have a status", async || {
            let all = cluster.list("AttachmentParameters", &space).await;
            let told = all.iter().all(|it| condition(it, "Valid").is_some());
            (all.len() == 300 && told).then_some(all)
        })
        .await;
        // A pass later.
        cluster.ready_network("status-many").await;
        let later = cluster.list("AttachmentParameters", &space).await;
        assert_eq!(versions(&later), versions(&all));
    });
}
