//! Test `parametersRefs` that name definitions, and those of attachments.

use serde_json::{Value, json};

use super::super::scene::namespace;
use super::objects::{Cluster, Name, until};
use super::set;

fn definition(namespace: &str, name: &str) -> Value {
    json!({
        "group": "k8s.cni.cncf.io", "kind": "network-attachment-definitions", "name": name,
        "namespace": namespace,
    })
}

async fn network(cluster: &Cluster, name: &str, references: Value) {
    let spec = json!({"provider": "podnet.dev/ebpf", "parametersRefs": references});
    let network = ("PodNetwork", "", name);
    cluster.create(network, json!({ "spec": spec })).await;
}

async fn configure(cluster: &Cluster, space: &str, name: &str, config: &Value) {
    let name = ("NetworkAttachmentDefinition", space, name);
    let spec = json!({"config": config.to_string()});
    cluster.create(name, json!({ "spec": spec })).await;
}

fn message(condition: &Value) -> &str {
    condition["message"].as_str().expect("a message")
}

/// KEP-P1-06: the example of the KEP, and a network ready by a definition alone.
#[test]
fn a_network_is_ready_by_the_parameters_of_a_definition_of_podnet() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "references-own").await;
        let cluster = Cluster::new(client);
        let blue: Name<'_> = ("PodNetwork", "", "references-own");
        network(&cluster, blue.2, json!([definition(&space, "a")])).await;
        let missing = cluster
            .wait_condition(blue, "ParamsReady", "False", "ParamsNotFound")
            .await;
        let named = "k8s.cni.cncf.io/network-attachment-definitions references-own/a";
        assert!(message(&missing).contains(named), "{missing}");
        let config = json!({
            "cniVersion": "1.0.0", "type": "podnet",
            "parameters": {"mode": "L2", "networkID": 7_000_123, "transport": {"type": "Local"}},
        });
        configure(&cluster, &space, "a", &config).await;
        for (kind, reason) in [("Ready", "Ready"), ("ParamsReady", "Resolved")] {
            cluster.wait_condition(blue, kind, "True", reason).await;
        }
        let found = cluster.get(blue).await.expect("the network");
        assert_eq!(found["status"]["networkID"], 7_000_123, "{found}");
        assert_eq!(found["status"]["transport"], "Local", "{found}");
        // It goes as an object of podnet would.
        let definition = ("NetworkAttachmentDefinition", space.as_str(), "a");
        cluster.delete(definition).await;
        cluster
            .wait_condition(blue, "Ready", "False", "ParamsNotReady")
            .await;
    });
    proof::of!("KEP-P1-06");
}

/// KEP-PN-R4: which reference, why, and the remedy; nothing is written twice.
#[test]
fn a_definition_of_another_plugin_has_a_clear_end() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "references-others").await;
        let cluster = Cluster::new(client);
        let blue: Name<'_> = ("PodNetwork", "", "references-others");
        let config = json!({"type": "macvlan", "master": "eth1", "ipam": {"type": "host-local"}});
        configure(&cluster, &space, "theirs", &config).await;
        network(&cluster, blue.2, json!([definition(&space, "theirs")])).await;
        let found = cluster
            .wait_condition(blue, "ParamsReady", "False", "ForeignPlugin")
            .await;
        for part in [
            "references-others/theirs",
            "of macvlan",
            "write a configuration of that type",
        ] {
            assert!(message(&found).contains(part), "{part}: {found}");
        }
        let ready = cluster
            .wait_condition(blue, "Ready", "False", "ParamsNotReady")
            .await;
        assert_eq!(message(&ready), message(&found));
        // Passes that others cause write nothing more about it.
        let version =
            cluster.get(blue).await.expect("the network")["metadata"]["resourceVersion"].clone();
        cluster.ready_network("references-marker").await;
        let after = cluster.get(blue).await.expect("the network");
        assert_eq!(after["metadata"]["resourceVersion"], version);
        // The remedy.
        let config = json!({"type": "podnet", "parameters": {"mode": "L2"}});
        let spec = json!({"config": config.to_string()});
        let theirs = ("NetworkAttachmentDefinition", space.as_str(), "theirs");
        cluster.patch(theirs, json!({ "spec": spec })).await;
        cluster.wait_condition(blue, "Ready", "True", "Ready").await;
    });
    proof::of!("KEP-PN-R4");
}

/// KEP-PN-R4
#[test]
fn an_attachment_tells_of_each_of_its_references() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "references-attachment").await;
        let cluster = Cluster::new(client);
        cluster.ready_network("references-attachment").await;
        let reference =
            |name: &str| json!({"group": "podnet.dev", "kind": "AttachmentParameters", "name": name});
        let references = ["slow", "absent", "slower", "gone"].map(reference);
        let spec = json!({"podNetworkName": "references-attachment", "parametersRefs": references});
        let fast: Name<'_> = ("PodNetworkAttachment", &space, "fast");
        cluster.create(fast, json!({ "spec": spec })).await;
        let make = async |name: &str, spec: Value| {
            let name = ("AttachmentParameters", space.as_str(), name);
            cluster.create(name, json!({ "spec": spec })).await;
        };
        make("slow", json!({"egressRate": 9000})).await;
        make("slower", json!({"egressRate": 8000})).await;
        let wanted = [
            "[1] spec.parametersRefs names podnet.dev/AttachmentParameters absent, which does not exist",
            "[2] spec.parametersRefs: podnet.dev/AttachmentParameters slower sets spec.egressRate again",
            "[3] spec.parametersRefs names podnet.dev/AttachmentParameters gone, which does not exist",
            "[0] podnet.dev/AttachmentParameters slow is read",
        ];
        until("all references to be told", async || {
            let found = cluster
                .wait_condition(fast, "ParamsReady", "False", "ParamsNotFound")
                .await;
            wanted.iter().all(|part| message(&found).contains(part)).then_some(())
        })
        .await;
        make("absent", json!({"ingressRate": 9000})).await;
        make("gone", json!({})).await;
        let slower = ("AttachmentParameters", space.as_str(), "slower");
        cluster.patch(slower, json!({"spec": {"egressRate": null}})).await;
        let read = cluster
            .wait_condition(fast, "ParamsReady", "True", "Resolved")
            .await;
        assert!(message(&read).starts_with("4 objects are read as one: "), "{read}");
        cluster.wait_condition(fast, "Ready", "True", "Ready").await;
    });
    proof::of!("KEP-PN-R4");
}
