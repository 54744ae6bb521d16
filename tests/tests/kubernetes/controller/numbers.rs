//! The numbers of networks: `status.networkID`.

use std::collections::BTreeSet;

use serde_json::json;

use super::super::scene::namespace;
use super::objects::{Cluster, until};
use super::set;

async fn number(cluster: &Cluster, name: &str) -> u64 {
    until(&format!("the number of {name}"), async || {
        let network = cluster.get(("PodNetwork", "", name)).await?;
        network["status"]["networkID"].as_u64()
    })
    .await
}

#[test]
fn networks_made_at_once_get_different_numbers() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        let names: Vec<String> = (0..20)
            .map(|index| format!("number-many-{index}"))
            .collect();
        for name in &names {
            cluster.parameters(name, json!({})).await;
            cluster.network(name).await;
        }
        let mut numbers = BTreeSet::new();
        for name in &names {
            let number = number(&cluster, name).await;
            assert!((0x80_0000..=0xff_ffff).contains(&number), "{number}");
            numbers.insert(number);
        }
        assert_eq!(numbers.len(), names.len());
    });
}

#[test]
fn a_number_comes_with_ready_and_a_status_that_is_lost_comes_back() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        let network = ("PodNetwork", "", "number-lost");
        cluster.ready_network("number-lost").await;
        let found = cluster.get(network).await.expect("the network");
        let given = found["status"]["networkID"]
            .as_u64()
            .expect("Ready has a number");
        let nothing = json!({"conditions": null, "networkID": null});
        cluster.patch_status(network, nothing).await;
        assert_eq!(number(&cluster, "number-lost").await, given);
    });
}

#[test]
fn the_number_a_user_asks_for_is_the_networks() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        cluster
            .parameters("number-asked", json!({"networkID": 4711}))
            .await;
        cluster.network("number-asked").await;
        assert_eq!(number(&cluster, "number-asked").await, 4711);
    });
}

#[test]
fn a_number_that_pods_use_is_refused_and_an_idle_one_is_handed_over() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "number-taken").await;
        let cluster = Cluster::new(client);
        cluster.ready_network("number-holder").await;
        let given = number(&cluster, "number-holder").await;
        cluster
            .pod(
                &space,
                "web",
                json!([{"name": "number-holder"}]),
                Some("no-node"),
            )
            .await;
        cluster
            .parameters("number-wants", json!({"networkID": given}))
            .await;
        cluster.network("number-wants").await;
        let wants = ("PodNetwork", "", "number-wants");
        let reason = "NetworkIDConflict";
        let refused = cluster
            .wait_condition(wants, "ParamsReady", "False", reason)
            .await;
        let message = refused["message"].as_str().expect("a message");
        assert!(message.contains("PodNetwork number-holder"), "{message}");
        cluster
            .wait_condition(wants, "Ready", "False", "ParamsNotReady")
            .await;
        assert_eq!(number(&cluster, "number-holder").await, given);

        cluster.delete_now(&space, "web").await;
        cluster
            .wait_condition(wants, "Ready", "True", "Ready")
            .await;
        assert_eq!(number(&cluster, "number-wants").await, given);
        assert_ne!(number(&cluster, "number-holder").await, given);
    });
}

#[test]
fn two_networks_that_ask_for_one_number_are_both_refused() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        for name in ["number-rival-a", "number-rival-b"] {
            cluster.parameters(name, json!({"networkID": 815})).await;
            cluster.network(name).await;
        }
        for name in ["number-rival-a", "number-rival-b"] {
            let network = ("PodNetwork", "", name);
            cluster
                .wait_condition(network, "ParamsReady", "False", "NetworkIDConflict")
                .await;
        }
    });
}
