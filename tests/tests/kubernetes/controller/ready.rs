//! `Ready` and `ParamsReady` (KEP-3698 "Conditions").

use serde_json::json;

use super::super::scene::namespace;
use super::objects::{Cluster, condition};
use super::set;

/// KEP-PN-R2, KEP-PN-R4
#[test]
fn pn_ready_params_missing() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        let network = ("PodNetwork", "", "ready-missing");
        cluster.network("ready-missing").await;
        let ready = cluster
            .wait_condition(network, "Ready", "False", "ParamsNotReady")
            .await;
        let params = cluster
            .wait_condition(network, "ParamsReady", "False", "ParamsNotFound")
            .await;
        for found in [&ready, &params] {
            let message = found["message"].as_str().expect("a message");
            assert!(
                message.contains("PodNetworkParameters ready-missing"),
                "{message}"
            );
            assert_eq!(found["observedGeneration"], 1);
        }
    });
    proof::of!("KEP-PN-R2", "KEP-PN-R4");
}

/// KEP-PN-R3
#[test]
fn pn_ready_disabled() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        let network = ("PodNetwork", "", "ready-disabled");
        cluster.ready_network("ready-disabled").await;
        cluster
            .patch(network, json!({"spec": {"enabled": false}}))
            .await;
        let reason = "AdministrativelyDisabled";
        let ready = cluster
            .wait_condition(network, "Ready", "False", reason)
            .await;
        assert_eq!(ready["observedGeneration"], 2);
        cluster
            .wait_condition(network, "ParamsReady", "True", "Resolved")
            .await;
        cluster
            .patch(network, json!({"spec": {"enabled": true}}))
            .await;
        cluster
            .wait_condition(network, "Ready", "True", "Ready")
            .await;
    });
    proof::of!("KEP-PN-R3");
}

/// KEP-PN-R6, KEP-PNA-06
#[test]
fn pn_ready_flip_back() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "ready-flip").await;
        let cluster = Cluster::new(client);
        let network = ("PodNetwork", "", "ready-flip");
        let attachment = ("PodNetworkAttachment", space.as_str(), "fast");
        cluster.ready_network("ready-flip").await;
        cluster.attachment(&space, "fast", "ready-flip").await;
        cluster
            .wait_condition(attachment, "Ready", "True", "Ready")
            .await;

        cluster
            .delete(("PodNetworkParameters", "", "ready-flip"))
            .await;
        cluster
            .wait_condition(network, "ParamsReady", "False", "ParamsNotFound")
            .await;
        let gone = cluster
            .wait_condition(network, "Ready", "False", "ParamsNotReady")
            .await;
        cluster
            .wait_condition(attachment, "Ready", "False", "PodNetworkNotReady")
            .await;

        // Another reason and another generation, and the time of the change stays.
        cluster
            .patch(network, json!({"spec": {"enabled": false}}))
            .await;
        let reason = "AdministrativelyDisabled";
        let off = cluster
            .wait_condition(network, "Ready", "False", reason)
            .await;
        assert_eq!(off["lastTransitionTime"], gone["lastTransitionTime"]);
        cluster
            .patch(network, json!({"spec": {"enabled": true}}))
            .await;
        cluster.parameters("ready-flip", json!({})).await;
        cluster
            .wait_condition(network, "Ready", "True", "Ready")
            .await;
        cluster
            .wait_condition(attachment, "Ready", "True", "Ready")
            .await;
    });
    proof::of!("KEP-PN-R6", "KEP-PNA-06");
}

/// KEP-PNA-02, KEP-PNA-03
#[test]
fn pna_ready_pn_missing() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "pna-missing").await;
        let cluster = Cluster::new(client);
        let attachment = ("PodNetworkAttachment", space.as_str(), "fast");
        cluster.attachment(&space, "fast", "pna-missing").await;
        let reason = "PodNetworkNotReady";
        let ready = cluster
            .wait_condition(attachment, "Ready", "False", reason)
            .await;
        let message = ready["message"].as_str().expect("a message");
        assert!(
            message.contains("PodNetwork pna-missing does not exist"),
            "{message}"
        );
        cluster.ready_network("pna-missing").await;
        cluster
            .wait_condition(attachment, "Ready", "True", "Ready")
            .await;
    });
    proof::of!("KEP-PNA-02", "KEP-PNA-03");
}

/// KEP-PNA-03, KEP-PNA-06
#[test]
fn pna_ready_pn_notready() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "pna-notready").await;
        let cluster = Cluster::new(client);
        let attachment = ("PodNetworkAttachment", space.as_str(), "fast");
        cluster.ready_network("pna-notready").await;
        cluster.attachment(&space, "fast", "pna-notready").await;
        cluster
            .wait_condition(attachment, "Ready", "True", "Ready")
            .await;
        let network = ("PodNetwork", "", "pna-notready");
        cluster
            .patch(network, json!({"spec": {"enabled": false}}))
            .await;
        cluster
            .wait_condition(attachment, "Ready", "False", "PodNetworkNotReady")
            .await;
    });
    proof::of!("KEP-PNA-03", "KEP-PNA-06");
}

/// KEP-PNA-03, KEP-PNA-09
#[test]
fn pna_ready_params() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "pna-params").await;
        let cluster = Cluster::new(client);
        cluster.ready_network("pna-params").await;
        let reference = json!({"group": "podnet.dev", "kind": "AttachmentParameters", "name": "p"});
        let make = async |name: &str, reference| {
            let spec = json!({"podNetworkName": "pna-params", "parametersRefs": [reference]});
            let name = ("PodNetworkAttachment", space.as_str(), name);
            cluster.create(name, json!({ "spec": spec })).await;
        };
        make("fast", reference.clone()).await;
        let fast = ("PodNetworkAttachment", space.as_str(), "fast");
        cluster
            .wait_condition(fast, "ParamsReady", "False", "ParamsNotFound")
            .await;
        cluster
            .wait_condition(fast, "Ready", "False", "ParamsNotReady")
            .await;
        let parameters = ("AttachmentParameters", space.as_str(), "p");
        cluster
            .create(parameters, json!({"spec": {"ingressRate": 1_000_000}}))
            .await;
        cluster
            .wait_condition(fast, "ParamsReady", "True", "Resolved")
            .await;
        cluster.wait_condition(fast, "Ready", "True", "Ready").await;

        let mut elsewhere = reference;
        elsewhere["namespace"] = "another".into();
        make("leak", elsewhere).await;
        let leak = ("PodNetworkAttachment", space.as_str(), "leak");
        cluster
            .wait_condition(leak, "ParamsReady", "False", "RefNotPermitted")
            .await;
    });
    proof::of!("KEP-PNA-03", "KEP-PNA-09");
}

/// KEP-PN-06: conditions and finalizers of others' networks are theirs.
#[test]
fn networks_of_other_providers_are_left_alone() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        for (name, spec) in [
            ("ready-foreign", json!({"provider": "acme.io/x"})),
            ("ready-nobodys", json!({"enabled": true})),
        ] {
            cluster
                .create(("PodNetwork", "", name), json!({ "spec": spec }))
                .await;
        }
        // Made later, so when it is ready the others have been looked at.
        cluster.ready_network("ready-after-foreign").await;
        for name in ["ready-foreign", "ready-nobodys"] {
            let network = cluster
                .get(("PodNetwork", "", name))
                .await
                .expect("the network");
            assert!(condition(&network, "Ready").is_none(), "{network}");
            assert!(network["metadata"]["finalizers"].is_null(), "{network}");
        }
    });
    proof::of!("KEP-PN-06");
}

/// KEP-PN-02, KEP-PN-R4: several objects are read as one, in the order of the list.
#[test]
fn each_of_several_parameters_is_told_and_a_contradiction_is_a_reason_of_its_own() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        let network = ("PodNetwork", "", "ready-several");
        let names = ["ready-several-b", "ready-several-a"];
        let references = names.map(
            |name| json!({"group": "podnet.dev", "kind": "PodNetworkParameters", "name": name}),
        );
        let spec = json!({"provider": "podnet.dev/ebpf", "parametersRefs": references});
        cluster.create(network, json!({ "spec": spec })).await;
        cluster.parameters(names[0], json!({"mtu": 1400})).await;
        let missing = cluster
            .wait_condition(network, "ParamsReady", "False", "ParamsNotFound")
            .await;
        let text = missing["message"].as_str().expect("a message");
        assert!(
            text.contains("[1] ") && text.contains("ready-several-a, which does not exist"),
            "{text}"
        );

        cluster.parameters(names[1], json!({"mtu": 1300})).await;
        let conflict = cluster
            .wait_condition(network, "ParamsReady", "False", "ParamsConflict")
            .await;
        let text = conflict["message"].as_str().expect("a message");
        let told = "ready-several-a contradicts an object before it in spec.mtu";
        assert!(
            text.contains(told) && text.contains("ready-several-b is read"),
            "{text}"
        );
        cluster
            .wait_condition(network, "Ready", "False", "ParamsNotReady")
            .await;

        let parameters = ("PodNetworkParameters", "", names[1]);
        cluster
            .patch(parameters, json!({"spec": {"mtu": null}}))
            .await;
        cluster
            .wait_condition(network, "Ready", "True", "Ready")
            .await;
        let read = cluster
            .wait_condition(network, "ParamsReady", "True", "Resolved")
            .await;
        let text = read["message"].as_str().expect("a message");
        let order = [text.find(names[0]), text.find(names[1])];
        assert!(order[0].is_some() && order[0] < order[1], "{text}");
    });
    proof::of!("KEP-PN-02", "KEP-PN-R4");
}
