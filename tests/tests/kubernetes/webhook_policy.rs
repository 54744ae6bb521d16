//! Test the policies of `deploy/base/admission-policy.yaml`, without a webhook.
//!
//! They are about all pods and the one network `default`, so they have a server of their own.

use std::sync::OnceLock;

use api::{NetworkAttachmentDefinition, PodNetwork, PodNetworkParameters};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use serde_json::{Value, json};
use testbed::apiserver::{self, ApiServer};

use super::objects::{Objects, kubectl};
use super::scene;
use super::webhook_scene::{act_as, deployed, listing, npwg, pod, words};

const BREAK_GLASS: &str = "podnet.dev:break-glass";
const ADMINS: &str = "system:masters";

/// The server with podnet's definitions and policies.
pub(crate) fn server(test: &str) -> Option<&'static ApiServer> {
    static SERVER: OnceLock<Option<ApiServer>> = OnceLock::new();
    // It says why there is none.
    apiserver::shared(test)?;
    let server = SERVER.get_or_init(|| {
        let server = ApiServer::start(&apiserver::programs()?, &[]);
        server.install_definitions();
        apply(&server, &deployed("admission-policy.yaml"));
        Some(server)
    });
    server.as_ref()
}

fn apply(server: &ApiServer, path: &str) {
    let output = kubectl(server, &["apply", "--server-side", "--filename", path]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && !complaint.contains("Warning"),
        "{complaint}"
    );
}

/// Runs a test's steps as an administrator, once the policies are in force.
pub(crate) fn run<F: Future<Output = ()>>(
    server: &'static ApiServer,
    steps: impl FnOnce(Client) -> F,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let client = scene::client(server, "admin").await;
        in_force(&client).await;
        steps(client).await;
    });
}

/// The server compiles each policy some time after it is made.
async fn in_force(client: &Client) {
    let held = network(&json!({ "name": "default", "finalizers": ["test.podnet.dev/held"] }));
    refused(&Api::all(client.clone()), &held).await;
    let parameters = json!({
        "apiVersion": "podnet.dev/v1alpha1", "kind": "PodNetworkParameters",
        "metadata": {"name": "in-force"}, "spec": {"mode": "L2", "gateway": "first"},
    });
    let parameters: PodNetworkParameters =
        serde_json::from_value(parameters).expect("parameters without a gateway of podnet's");
    refused(&Api::all(client.clone()), &parameters).await;
}

/// Waits until the server would refuse an object.
async fn refused<K>(objects: &Api<K>, object: &K)
where
    K: kube::Resource + serde::de::DeserializeOwned + serde::Serialize + Clone + std::fmt::Debug,
{
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let end = std::time::Instant::now() + testbed::wait::PATIENCE;
    while !matches!(objects.create(&params, object).await, Err(kube::Error::Api(refused)) if refused.code == 422)
    {
        assert!(
            std::time::Instant::now() < end,
            "the policies are not in force"
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

fn network(metadata: &Value) -> PodNetwork {
    let object = json!({
        "apiVersion": "podnet.dev/v1alpha1", "kind": "PodNetwork", "metadata": metadata, "spec": {},
    });
    serde_json::from_value(object).expect("a network")
}

/// KEP-DEF-2: `pn_default_delete_denied`, `pn_default_never_terminating`.
#[test]
fn the_network_default_stays_and_is_never_seen_terminating() {
    let Some(server) = server(testbed::test_name!()) else {
        return;
    };
    run(server, |client| async move {
        let networks = Api::<PodNetwork>::all(client.clone());
        let params = PostParams::default();
        for name in ["default", "other"] {
            let made = networks
                .create(&params, &network(&json!({ "name": name })))
                .await;
            made.expect("a network");
        }
        // An administrator's rights are not enough, with or without a finalizer.
        let refused = networks.delete("default", &DeleteParams::default()).await;
        let message = words(refused.expect_err("default stays"));
        assert!(
            message.contains("podnet-controller has not said yet")
                && message.contains("as a member of the group podnet.dev:break-glass"),
            "{message}"
        );
        for finalizer in ["test.podnet.dev/held", "foregroundDeletion"] {
            let patch = Patch::Merge(json!({ "metadata": { "finalizers": [finalizer] } }));
            let refused = networks
                .patch("default", &PatchParams::default(), &patch)
                .await;
            let message = words(refused.expect_err("no finalizers"));
            assert!(message.contains("remove metadata.finalizers"), "{message}");
        }
        // All at once is all but this one.
        let refused = networks
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await;
        words(refused.expect_err("default stays"));
        let default = networks.get("default").await.expect("default stays");
        assert_eq!(default.metadata.deletion_timestamp, None);
        let kubectl = kubectl(server, &["delete", "podnetworks", "--all"]);
        assert!(!kubectl.status.success(), "kubectl says that one stays");
        let left = networks.list(&ListParams::default()).await.expect("a list");
        let left: Vec<_> = left
            .items
            .iter()
            .filter_map(|network| network.metadata.name.as_deref())
            .collect();
        assert_eq!(left, ["default"]);

        let enabled = Patch::Merge(json!({ "spec": { "enabled": false } }));
        let disabled = networks
            .patch("default", &PatchParams::default(), &enabled)
            .await;
        disabled.expect("everything else of it is free");
        // In an emergency it goes, and at once.
        let glass = act_as(server, "eve", &[BREAK_GLASS, ADMINS]).await;
        let networks = Api::<PodNetwork>::all(glass);
        for policy in [PropagationPolicy::Foreground, PropagationPolicy::Orphan] {
            let params = DeleteParams {
                propagation_policy: Some(policy),
                ..DeleteParams::default()
            };
            let message = words(
                networks
                    .delete("default", &params)
                    .await
                    .expect_err("too slow"),
            );
            assert!(
                message.contains("delete it with --cascade=background"),
                "{message}"
            );
        }
        networks
            .delete("default", &DeleteParams::background())
            .await
            .expect("broken glass");
        assert!(
            networks
                .get_opt("default")
                .await
                .expect("an answer")
                .is_none()
        );
    });
    proof::of!("KEP-DEF-2", "KEP-P1-09");
}

/// KEP-POD-07: the list is a part of the pod's spec, which does not change.
#[test]
fn the_list_of_a_pod_cannot_change() {
    let Some(server) = server(testbed::test_name!()) else {
        return;
    };
    run(server, |client| async move {
        let namespace = scene::namespace(&client, "policy-list").await;
        let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
        for pod in [
            listing("with", r#"[{"name": "a"}]"#),
            pod("without", &json!({})),
        ] {
            let pod = serde_json::from_value(pod).expect("a pod");
            pods.create(&PostParams::default(), &pod)
                .await
                .expect("a pod");
        }
        let list = |list: Value| {
            Patch::Merge(json!({ "metadata": { "annotations": { "podnet.dev/networks": list } } }))
        };
        let params = PatchParams::default();
        for (pod, value) in [
            ("with", json!(r#"[{"name": "b"}]"#)),
            ("with", Value::Null),
            ("without", json!(r#"[{"name": "b"}]"#)),
            ("without", json!("")),
        ] {
            for refused in [
                pods.patch(pod, &params, &list(value.clone())).await,
                pods.patch_status(pod, &params, &list(value.clone())).await,
            ] {
                let message = words(refused.expect_err("the list stays"));
                assert!(
                    message.contains("podnet.dev/networks cannot change after the pod is made"),
                    "{message}"
                );
            }
        }
        let mark = json!({ "podnet.dev/networks-populated": "a" });
        let mark = Patch::Merge(json!({ "metadata": { "annotations": mark } }));
        let refused = pods.patch("with", &params, &mark).await;
        let message = words(refused.expect_err("the list would mean another network"));
        assert!(
            message.contains("networks-populated cannot change"),
            "{message}"
        );
        for key in ["podnet.dev/vpc", "podnet.dev/nics"] {
            let nics = Patch::Merge(json!({ "metadata": { "annotations": { key: "a" } } }));
            for refused in [
                pods.patch("without", &params, &nics).await,
                pods.patch_status("without", &params, &nics).await,
            ] {
                let message = words(refused.expect_err("it has no NICs"));
                assert!(
                    message.contains("podnet.dev/nics cannot change after the pod is made"),
                    "{message}"
                );
            }
        }
        let same = list(json!(r#"[{"name": "a"}]"#));
        pods.patch("with", &params, &same)
            .await
            .expect("the same list");
        let others = Patch::Merge(json!({ "metadata": { "annotations": { "a": "b" } } }));
        for pod in ["with", "without"] {
            pods.patch(pod, &params, &others)
                .await
                .expect("other annotations are free");
            pods.patch_status(pod, &params, &others)
                .await
                .expect("other annotations are free");
        }
    });
    proof::of!("KEP-POD-07");
}

/// KEP-POD-07: the scheduler's binding is one more way to write annotations.
#[test]
fn a_binding_brings_no_list() {
    let Some(server) = server(testbed::test_name!()) else {
        return;
    };
    run(server, |client| async move {
        let namespace = scene::namespace(&client, "policy-binding").await;
        let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
        let pod = serde_json::from_value(npwg("web", "a")).expect("a pod");
        pods.create(&PostParams::default(), &pod)
            .await
            .expect("a pod");
        let mut node = Node::default();
        node.metadata.name = Some("policy-node".to_owned());
        let nodes = Api::<Node>::all(client.clone());
        nodes
            .create(&PostParams::default(), &node)
            .await
            .expect("a node");
        let binding = |annotations: Value| {
            json!({
                "apiVersion": "v1", "kind": "Binding",
                "metadata": { "name": "web", "annotations": annotations },
                "target": { "apiVersion": "v1", "kind": "Node", "name": "policy-node" },
            })
        };
        let bind = async |annotations: Value| {
            let params = PostParams::default();
            let bound: kube::Result<Value> = pods
                .create_subresource("binding", "web", &params, &binding(annotations))
                .await;
            bound.map_err(words)
        };
        for key in [
            "podnet.dev/networks",
            "podnet.dev/vpc",
            "podnet.dev/nics",
            "k8s.v1.cni.cncf.io/networks",
            "v1.multus-cni.io/default-network",
        ] {
            let message = bind(json!({ key: "b" })).await.expect_err("no list");
            assert!(
                message.contains("annotate the pod when it is made"),
                "{message}"
            );
        }
        bind(json!({ "a": "b" })).await.expect("a binding");
        let bound = pods.get("web").await.expect("the pod");
        assert_eq!(
            bound.spec.and_then(|spec| spec.node_name).as_deref(),
            Some("policy-node")
        );
    });
    proof::of!("KEP-POD-07");
}

/// The policies let a Kubernetes namespace end, which deletes its pods.
#[test]
fn a_namespace_with_pods_of_podnet_can_be_deleted() {
    let Some(server) = server(testbed::test_name!()) else {
        return;
    };
    run(server, |client| async move {
        let namespace = scene::namespace(&client, "policy-end").await;
        let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
        let pod = serde_json::from_value(listing("web", r#"[{"name": "a"}]"#)).expect("a pod");
        pods.create(&PostParams::default(), &pod)
            .await
            .expect("a pod");
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            ..DeleteParams::default()
        };
        pods.delete("web", &params).await.expect("a deletion");
        assert!(pods.get_opt("web").await.expect("an answer").is_none());
        let namespaces = Api::<Namespace>::all(client);
        namespaces
            .delete(&namespace, &DeleteParams::default())
            .await
            .expect("a deletion");
    });
}

/// KEP-P1-06, ADR 0080: nodes read the parameters at different times.
#[test]
fn parameters_in_a_definition_stay_what_they_are() {
    let Some(server) = server(testbed::test_name!()) else {
        return;
    };
    run(server, |client| async move {
        let definitions = Objects::of::<NetworkAttachmentDefinition>(&client, "default");
        let spec = |config: &str| json!({ "spec": {"config": config} });
        let config =
            |mode: &str| format!(r#"{{"type":"podnet","parameters":{{"mode":"{mode}"}}}}"#);
        let made = definitions.create("kept-ours", spec(&config("L2"))).await;
        made.expect("a definition");
        for changed in [json!(config("L3")), json!(""), Value::Null] {
            let patch = json!({ "spec": {"config": changed} });
            let refused = definitions.merge("kept-ours", patch).await;
            let message = refused.expect_err("the parameters stay");
            let remedy = "make another NetworkAttachmentDefinition";
            assert!(message.contains(remedy), "{message}");
        }
        let labelled = json!({"metadata": {"labels": {"a": "b"}}});
        let labelled = definitions.merge("kept-ours", labelled).await;
        labelled.expect("a label is no parameter");
        // Others change as they like, and a definition can get its first parameters.
        let theirs = r#"{"type":"macvlan","parameters":1}"#;
        for (name, before) in [
            ("kept-theirs", theirs),
            ("kept-none", r#"{"type":"podnet"}"#),
        ] {
            let made = definitions.create(name, spec(before)).await;
            made.expect("a definition");
            let changed = definitions.merge(name, spec(&config("L2"))).await;
            changed.expect("it has no parameters of podnet");
        }
    });
    proof::of!("KEP-P1-06");
}
