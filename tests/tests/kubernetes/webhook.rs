//! Test pods that the API server takes or refuses, with the webhook and without.

use api::PodNetwork;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::objects::Objects;
use super::webhook_scene::{Webhook, listing, npwg, pod, set, words};

const GATE: &str = "podnet.dev/pod-networks";

fn gates(pod: &Pod) -> Vec<&str> {
    let spec = pod.spec.as_ref().expect("a spec");
    let gates = spec.scheduling_gates.iter().flatten();
    gates.map(|gate| gate.name.as_str()).collect()
}

async fn annotate(
    client: &Client,
    webhook: &str,
    pod: &str,
    annotations: Value,
    status: bool,
) -> Result<Pod, String> {
    let api = Api::<Pod>::namespaced(client.clone(), webhook);
    let params = PatchParams::default();
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    let patched = if status {
        api.patch_status(pod, &params, &patch).await
    } else {
        api.patch(pod, &params, &patch).await
    };
    patched.map_err(words)
}

/// KEP-POD-01..06, NPWG-4.1: a wrong list is refused, and its place named.
///
/// `pod_name_xor_attachment`, `pod_same_pn_twice`, `pod_two_default_gw`, `pod_dup_ifname`,
/// `pod_bad_ifname`, `pod_hostnetwork_denied`.
#[test]
fn a_pod_with_a_wrong_list_is_refused_and_the_place_is_named() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let mut host = listing("host", r#"[{"name": "a"}]"#);
    host["spec"]["hostNetwork"] = json!(true);
    let table = [
        (
            listing("xor", r#"[{"name": "a", "attachmentName": "b"}]"#),
            "podnet.dev/networks[0]: name and attachmentName exclude each other",
        ),
        (
            listing("none", "[{}]"),
            "podnet.dev/networks[0]: a name is required",
        ),
        (
            listing("twice", r#"[{"name": "a"}, {"name": "a"}]"#),
            "podnet.dev/networks[1].name: network \"a\" is there already",
        ),
        (
            listing(
                "gateways",
                r#"[{"name": "a", "isDefaultGW": true}, {"name": "b", "isDefaultGW": true}]"#,
            ),
            "podnet.dev/networks[1].isDefaultGW: only one element may have isDefaultGW",
        ),
        (
            listing(
                "names",
                r#"[{"name": "a"}, {"name": "b", "interfaceName": "x"}, {"name": "c", "interfaceName": "x"}]"#,
            ),
            "podnet.dev/networks[2].interfaceName: interface x is used by",
        ),
        (
            listing(
                "long",
                r#"[{"name": "a"}, {"name": "b", "interfaceName": "sixteen-letters-"}]"#,
            ),
            "podnet.dev/networks[1].interfaceName: \"sixteen-letters-\"",
        ),
        (
            host,
            "podnet.dev/networks: a pod with hostNetwork: true has the node's network",
        ),
        (
            pod(
                "nics",
                &json!({ "podnet.dev/nics": r#"[{"subnetName": "a"}]"# }),
            ),
            "podnet.dev/nics: the NICs of a pod are in one VPC",
        ),
        (
            pod("vpc", &json!({ "podnet.dev/vpc": "demo" })),
            "podnet.dev/nics: a pod in a VPC has at least one NIC",
        ),
        (
            npwg("comma", "a,,b"),
            "k8s.v1.cni.cncf.io/networks, item 2 at character 3: a name is missing here",
        ),
        (
            npwg("mac", r#"[{"name": "a", "mac": "1"}]"#),
            "k8s.v1.cni.cncf.io/networks[0].mac: ",
        ),
        (
            pod("other", &json!({ "v1.multus-cni.io/default-network": "a" })),
            "v1.multus-cni.io/default-network: a pod may not choose its default network",
        ),
    ];
    let server = scene.server;
    scene.run(|client| async move {
        let webhook = Webhook::start(server, &client, "webhook-lists", &[]).await;
        for (pod, expected) in &table {
            let refusal = webhook.refusal(&client, pod).await;
            assert!(
                refusal.contains(expected),
                "{expected:?} is not in {refusal:?}"
            );
            assert!(
                refusal.contains("pod-networks.podnet.dev") && refusal.ends_with("(422)"),
                "{refusal}"
            );
        }
        let refused = "podnet_webhook_reviews_total{hook=\"validate-pods\",outcome=\"invalid\"}";
        assert_eq!(webhook.metric(refused), table.len() as u64);
    });
    proof::of!(
        "KEP-POD-01",
        "KEP-POD-02",
        "KEP-POD-03",
        "KEP-POD-04",
        "KEP-POD-05",
        "KEP-POD-06",
        "NPWG-4.1",
        "ARK-08"
    );
}

/// KEP-POD-10..12: who lists networks waits for them.
#[test]
fn a_pod_that_lists_networks_waits_behind_the_gate() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let webhook = Webhook::start(server, &client, "webhook-gate", &[]).await;
        for pod in [
            listing("kep", r#"[{"name": "a"}]"#),
            npwg("npwg", "a, b/c@net7"),
        ] {
            let made = webhook.create(&client, &pod, false).await.expect("taken");
            assert_eq!(gates(&made), [GATE]);
        }
        let mut with_gate = npwg("with-gate", "a");
        with_gate["spec"]["schedulingGates"] = json!([{ "name": "other.example/gate" }]);
        let made = webhook
            .create(&client, &with_gate, false)
            .await
            .expect("taken");
        assert_eq!(gates(&made), ["other.example/gate", GATE]);
        let mut bound = npwg("bound", "a");
        bound["spec"]["nodeName"] = json!("n1");
        let made = webhook.create(&client, &bound, false).await.expect("taken");
        assert_eq!(gates(&made), [""; 0], "a pod with a node cannot wait");
    });
    proof::of!("KEP-POD-10", "KEP-POD-11", "KEP-POD-12");
}

/// KEP-P1-01: pods that say nothing of networks are none of podnet's business.
#[test]
fn a_pod_without_a_list_is_as_it_was_written_and_nobody_is_asked() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let webhook = Webhook::start(server, &client, "webhook-silent", &[]).await;
        let plain = pod("plain", &json!({ "other.example/networks": "[{" }));
        let made = webhook.create(&client, &plain, false).await.expect("taken");
        assert_eq!(gates(&made), [""; 0]);
        let mut host = npwg("host", "");
        host["spec"]["hostNetwork"] = json!(true);
        let made = webhook.create(&client, &host, false).await.expect("taken");
        assert_eq!(gates(&made), [""; 0]);
        let labelled = annotate(
            &client,
            "webhook-silent",
            "plain",
            json!({ "a": "b" }),
            false,
        )
        .await;
        labelled.expect("other annotations are free");
        for (hook, outcome) in [("validate-pods", "allowed"), ("mutate-pods", "gated")] {
            let metric =
                format!("podnet_webhook_reviews_total{{hook=\"{hook}\",outcome=\"{outcome}\"}}");
            assert_eq!(webhook.metric(&metric), 0, "{metric}");
        }
    });
    proof::of!("KEP-P1-01");
}

/// NPWG-4.1: also by way of `pods/status`, which changes annotations as well.
#[test]
fn a_change_of_npwgs_list_is_looked_at() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let name = "webhook-change";
        let webhook = Webhook::start(server, &client, name, &[]).await;
        webhook
            .create(&client, &npwg("web", "a"), false)
            .await
            .expect("taken");
        let list = |list: &str| json!({ "k8s.v1.cni.cncf.io/networks": list });
        for status in [false, true] {
            let refused = annotate(&client, name, "web", list("a,,b"), status).await;
            let words = refused.expect_err("a wrong list");
            assert!(words.contains("a name is missing here"), "{words}");
            let changed = annotate(
                &client,
                name,
                "web",
                list(if status { "a,b" } else { "b" }),
                status,
            )
            .await;
            changed.expect("a right list");
        }
    });
    proof::of!("NPWG-4.1");
}

/// KEP-PN-U3: what is being deleted takes no new references.
#[test]
fn a_network_that_is_being_deleted_takes_no_new_pods() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let name = "webhook-deleted";
        let webhook = Webhook::start(server, &client, name, &[]).await;
        let networks = Objects::all::<PodNetwork>(&client);
        networks
            .create(name, json!({ "spec": {} }))
            .await
            .expect("a network");
        let held = json!({ "metadata": { "finalizers": ["test.podnet.dev/held"] } });
        networks.merge(name, held).await.expect("a finalizer");
        let attachments = Objects::of::<api::PodNetworkAttachment>(&client, name);
        let spec = json!({ "spec": { "podNetworkName": name } });
        attachments
            .create("fast", spec)
            .await
            .expect("an attachment");
        let lists = [
            listing("kep", r#"[{"name": "webhook-deleted"}]"#),
            listing("pna", r#"[{"attachmentName": "fast"}]"#),
        ];
        for pod in &lists {
            webhook.create(&client, pod, true).await.expect("taken");
        }
        let api = Api::<PodNetwork>::all(client.clone());
        api.delete(name, &DeleteParams::default())
            .await
            .expect("a deletion");
        for pod in &lists {
            let refusal = webhook.refusal(&client, pod).await;
            assert!(
                refusal.contains("PodNetwork webhook-deleted is being deleted"),
                "{refusal}"
            );
        }
        let free = json!({ "metadata": { "finalizers": [] } });
        networks.merge(name, free).await.expect("no finalizer");
        for pod in &lists {
            webhook
                .create(&client, pod, true)
                .await
                .expect("one that is not there is waited for");
        }
    });
    proof::of!("KEP-PN-U3");
}

/// KEP-P1-01, `failurePolicy`: no pod waits for a webhook that is not there.
#[test]
fn pods_are_made_while_no_webhook_answers() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let mut webhook = Webhook::start(server, &client, "webhook-away", &[]).await;
        webhook.refusal(&client, &npwg("wrong", "a,,b")).await;
        webhook.kill();
        for pod in [npwg("right", "a"), npwg("wrong", "a,,b")] {
            let made = webhook
                .create(&client, &pod, false)
                .await
                .expect("taken without a check");
            assert_eq!(gates(&made), [""; 0]);
        }
        // The next one goes on with the certificates the API server trusts already.
        let before = webhook.bundle(&client).await;
        webhook.spawn(&server.kubeconfig(), &[]);
        webhook.wait_ready();
        webhook.refusal(&client, &npwg("wrong-2", "a,,b")).await;
        assert_eq!(webhook.bundle(&client).await, before);
    });
    proof::of!("KEP-P1-01");
}

/// KEP-CTL-4: without the feature lists mean nothing, and no pod waits.
#[test]
fn with_the_feature_off_every_pod_is_taken_as_it_is() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let off = ["--feature-gates=MultiNetwork=false"];
        let webhook = Webhook::start(server, &client, "webhook-off", &off).await;
        for pod in [npwg("right", "a"), npwg("wrong", "a,,b")] {
            let made = webhook.create(&client, &pod, true).await.expect("taken");
            assert_eq!(gates(&made), [""; 0]);
        }
        let asked = "podnet_webhook_reviews_total{hook=\"validate-pods\",outcome=\"allowed\"}";
        assert_eq!(webhook.metric(asked), 2);
    });
    proof::of!("KEP-CTL-4");
}
