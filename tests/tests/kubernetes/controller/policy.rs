//! Test `deploy/base/controller-policy.yaml`.
//!
//! An attacker with a controller's rights lets pods through its own gate and writes its own condition,
//! and does nothing else to any pod.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::super::scene::{Scene, namespace};
use super::super::webhook_scene::{act_as, words};
use super::objects::{Cluster, until};
use super::{ACCOUNT, set};

const GROUPS: [&str; 1] = ["system:serviceaccounts"];
const GATE: &str = "podnet.dev/pod-networks";

/// Makes pods with our gate and an unready list, which no controller changes.
async fn pods(scene: &Scene, cluster: &Cluster, space: &str) -> Api<Pod> {
    let fields = json!({
        "metadata": {
            "labels": {"app": "web"},
            "annotations": {"podnet.dev/networks": "[{\"name\": \"nowhere\"}]"},
        },
        "spec": {
            "schedulingGates": [{"name": GATE}, {"name": "acme.io/quota"}],
            "containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}],
            "activeDeadlineSeconds": 3600,
        },
    });
    cluster.create(("Pod", space, "web"), fields).await;
    let status = json!({"conditions": [
        {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z"},
    ]});
    cluster.patch_status(("Pod", space, "web"), status).await;
    let client = act_as(scene.server, ACCOUNT, &GROUPS).await;
    let pods: Api<Pod> = Api::namespaced(client, space);
    // The server compiles policies some time after they are made.
    let probe = Patch::Merge(json!({"metadata": {"labels": {"probe": "x"}}}));
    let dry = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    until("the policy to be in force", async || {
        pods.patch("web", &dry, &probe).await.is_err().then_some(())
    })
    .await;
    pods
}

/// ATT-15a: everything of a pod that the API server lets change at all.
#[test]
fn a_controller_that_was_taken_over_changes_nothing_else_of_a_pod() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "controller-policy").await;
        let cluster = Cluster::new(client);
        let pods = pods(&scene, &cluster, &space).await;
        let params = PatchParams::default();
        let metadata = "may not change the metadata of a pod";
        let spec = "may remove its scheduling gate from the spec of a pod";
        let gates = "may remove the scheduling gate podnet.dev/pod-networks only";
        let evil = "registry.example.com/evil:1";
        let refused: [(Value, &str); 10] = [
            (json!({"metadata": {"labels": {"app": "x"}}}), metadata),
            (json!({"metadata": {"annotations": {"a": "b"}}}), metadata),
            (json!({"metadata": {"annotations": {"podnet.dev/networks": null}}}), metadata),
            (json!({"metadata": {"finalizers": ["example.com/x"]}}), metadata),
            (json!({"spec": {"containers": [{"name": "c", "image": evil}]}}), spec),
            (json!({"spec": {"activeDeadlineSeconds": 1}}), spec),
            (json!({"spec": {"affinity": {"nodeAffinity": {}}}}), spec),
            (json!({"spec": {"nodeSelector": {"disk": "ssd"}}}), spec),
            (
                json!({"spec": {"schedulingGates": [{"$patch": "delete", "name": "acme.io/quota"}]}}),
                gates,
            ),
            (json!({"spec": {"schedulingGates": [{"$patch": "replace"}]}}), gates),
        ];
        for (patch, reason) in refused {
            let done = pods.patch("web", &params, &Patch::Strategic(&patch)).await;
            let answer = words(done.expect_err(&format!("{patch} was taken")));
            assert!(answer.contains(reason), "{patch}: {answer}");
        }
        let condition = "may write the condition podnet.dev/NetworksReady of a pod only";
        for (status, reason) in [
            (json!({"status": {"phase": "Succeeded"}}), condition),
            (json!({"status": {"podIP": "192.0.2.66", "podIPs": [{"ip": "192.0.2.66"}]}}), condition),
            (json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}), condition),
            (json!({"status": {"conditions": [{"type": "acme.io/x", "status": "True"}]}}), condition),
            (
                json!({"status": {"conditions": [{"$patch": "delete", "type": "Ready"}]}}),
                condition,
            ),
            (json!({"metadata": {"annotations": {"a": "b"}}}), metadata),
            (json!({"metadata": {"labels": {"app": "x"}}}), metadata),
        ] {
            let patch = Patch::Strategic(&status);
            let done = pods.patch_status("web", &params, &patch).await;
            let answer = words(done.expect_err(&format!("{status} was taken")));
            assert!(answer.contains(reason), "{status}: {answer}");
        }
        // What it has no right to in the first place.
        let deleted = pods.delete("web", &DeleteParams::default()).await;
        assert!(words(deleted.expect_err("no deletion")).contains("(403)"));
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "another"}, "spec": {"containers": []},
        }))
        .expect("a pod");
        let made = pods.create(&PostParams::default(), &pod).await;
        assert!(words(made.expect_err("no creation")).contains("(403)"));
    });
    proof::of!("ATT-15a");
}

/// ATT-15a: and what it is there for works with the policy in force.
#[test]
fn a_controller_removes_its_gate_and_writes_its_condition() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "controller-own").await;
        let cluster = Cluster::new(client);
        let pods = pods(&scene, &cluster, &space).await;
        let params = PatchParams::default();
        for status in ["False", "True"] {
            let condition = json!({
                "type": "podnet.dev/NetworksReady", "status": status, "reason": "Said",
                "message": "words", "lastTransitionTime": "2026-01-02T03:04:05Z",
            });
            let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
            let done = pods.patch_status("web", &params, &patch).await;
            done.expect("its own condition");
        }
        let gone = json!({"$patch": "delete", "type": "podnet.dev/NetworksReady"});
        let patch = Patch::Strategic(json!({"status": {"conditions": [gone]}}));
        let done = pods.patch_status("web", &params, &patch).await;
        done.expect("its own condition");
        let gone = json!({"$patch": "delete", "name": GATE});
        let patch = Patch::Strategic(json!({"spec": {"schedulingGates": [gone]}}));
        let pod = pods
            .patch("web", &params, &patch)
            .await
            .expect("its own gate");
        let gates = pod.spec.and_then(|spec| spec.scheduling_gates);
        let gates: Vec<String> = gates.into_iter().flatten().map(|gate| gate.name).collect();
        assert_eq!(gates, ["acme.io/quota"]);
        // A gate that is gone is not put back.
        let back = json!({"spec": {"schedulingGates": [{"name": GATE}]}});
        let done = pods.patch("web", &params, &Patch::Strategic(back)).await;
        words(done.expect_err("no gate"));
    });
    proof::of!("ATT-15a");
}
