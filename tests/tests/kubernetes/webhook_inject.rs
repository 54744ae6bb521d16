//! Test the additions to pods for their networks, in the API server.

use api::{NetworkAttachmentDefinition, PodNetwork, PodNetworkAttachment, PodNetworkParameters};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use serde_json::{Value, json};

use super::objects::Objects;
use super::webhook_scene::{Webhook, npwg, pod, set};

const CONTEXT: &str = "k8s.v1.cni.cncf.io/contextUID";

/// A network of memif ports.
pub(crate) async fn memif(client: &Client, name: &str) {
    let parameters = Objects::all::<PodNetworkParameters>(client);
    let spec = json!({"spec": {"mode": "L2", "interface": {"type": "Memif"}}});
    parameters.create(name, spec).await.expect("parameters");
    let reference = json!({"group": "podnet.dev", "kind": "PodNetworkParameters", "name": name});
    let spec = json!({"provider": "podnet.dev/ebpf", "parametersRefs": [reference]});
    let networks = Objects::all::<PodNetwork>(client);
    let made = networks.create(name, json!({ "spec": spec })).await;
    made.expect("a network");
}

/// A network of memif ports whose parameters are in a definition.
async fn memif_by_definition(client: &Client, name: &str, namespace: &str) {
    let config =
        r#"{"type": "podnet", "parameters": {"mode": "L2", "interface": {"type": "Memif"}}}"#;
    let definitions = Objects::of::<NetworkAttachmentDefinition>(client, namespace);
    let spec = json!({"spec": {"config": config}});
    definitions
        .create("memif", spec)
        .await
        .expect("a definition");
    let reference = json!({
        "group": "k8s.cni.cncf.io", "kind": "NetworkAttachmentDefinition", "name": "memif",
        "namespace": namespace,
    });
    let spec = json!({"provider": "podnet.dev/ebpf", "parametersRefs": [reference]});
    let networks = Objects::all::<PodNetwork>(client);
    let made = networks.create(name, json!({ "spec": spec })).await;
    made.expect("a network");
}

/// A definition of another plugin, with a resource and nodes of its own.
async fn vf(client: &Client, namespace: &str, node: &str) {
    let annotations = json!({
        "k8s.v1.cni.cncf.io/resourceName": "vendor.example/vf",
        "k8s.v1.cni.cncf.io/nodeSelector": node,
    });
    let definitions = Objects::of::<NetworkAttachmentDefinition>(client, namespace);
    let config = r#"{"cniVersion": "1.0.0", "type": "sriov"}"#;
    let made = definitions
        .create("vf", json!({"spec": {"config": config}}))
        .await;
    made.expect("a definition");
    let merged = definitions
        .merge("vf", json!({"metadata": {"annotations": annotations}}))
        .await;
    merged.expect("annotations");
}

/// Returns the limits of a pod's containers, by their names.
pub(crate) fn limits(pod: &Pod) -> Value {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers
        .map(|container| {
            let resources = container.resources.as_ref();
            let limits = resources.and_then(|all| all.limits.as_ref());
            let requests = resources.and_then(|all| all.requests.as_ref());
            assert_eq!(limits, requests, "the scheduler counts requests");
            (container.name.clone(), json!(limits))
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn context(pod: &Pod) -> Option<&String> {
    pod.metadata.annotations.as_ref()?.get(CONTEXT)
}

/// S003-05 to 07, NRI-06 to 08: what is added is what the API server takes.
#[test]
fn a_pod_asks_for_its_devices_and_goes_to_the_nodes_that_have_them() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let name = "webhook-inject";
        let all = ["--inject=resources,node-selector,podnetinfo,context-uid"];
        let webhook = Webhook::start(server, &client, name, &all).await;
        memif(&client, name).await;
        vf(&client, name, "rack=a").await;
        let attachments = Objects::of::<PodNetworkAttachment>(&client, name);
        let spec = json!({ "spec": { "podNetworkName": name } });
        attachments
            .create("one", spec)
            .await
            .expect("an attachment");

        let defined = "webhook-inject-defined";
        memif_by_definition(&client, defined, name).await;
        let kep = json!([{"name": "default"}, {"attachmentName": "one"}, {"name": defined}]);
        let kep = kep.to_string();
        let lists = json!({
            "podnet.dev/networks": kep, "k8s.v1.cni.cncf.io/networks": "vf, vf@net8",
            CONTEXT: "of-its-author",
        });
        let mut asks = pod("asks", &lists);
        asks["spec"]["containers"][0]["resources"] =
            json!({"limits": {"cpu": "1", "hugepages-2Mi": "2Mi"}});
        asks["spec"]["containers"]
            .as_array_mut()
            .expect("a list")
            .push(json!({"name": "d", "image": "none.example/none:0"}));
        let made = webhook.create(&client, &asks, false).await.expect("taken");
        let own = format!("podnet.dev/{name}");
        let first = json!({
            "cpu": "1", "hugepages-2Mi": "2Mi", own.as_str(): "1", "vendor.example/vf": "2",
            "podnet.dev/webhook-inject-defined": "1",
        });
        assert_eq!(limits(&made), json!({"c": first, "d": null}));
        let spec = made.spec.as_ref().expect("a spec");
        assert_eq!(json!(spec.node_selector), json!({"rack": "a"}));
        let environment = json!(spec.containers[0].env);
        assert_eq!(
            environment,
            json!([{"name": "CONTAINER_NAME", "value": "c"}])
        );
        let volumes = json!(spec.volumes).to_string();
        for file in ["labels", "hugepages_2M_request_c", "hugepages_2M_limit_c"] {
            assert!(
                volumes.contains(&format!("\"path\":\"{file}\"")),
                "{file}: {volumes}"
            );
        }
        let uid = context(&made).expect("a context").clone();
        assert_eq!(uid.len(), 36, "{uid}");

        let other = webhook
            .create(&client, &npwg("other", "vf"), false)
            .await
            .expect("taken");
        assert_ne!(context(&other), Some(&uid));
        let mut elsewhere = npwg("elsewhere", "vf");
        elsewhere["spec"]["nodeSelector"] = json!({"rack": "b"});
        let refusal = webhook.refusal(&client, &elsewhere).await;
        assert!(
            refusal
                .contains("NetworkAttachmentDefinition webhook-inject/vf: wants nodes with rack=a"),
            "{refusal}"
        );
    });
    proof::of!("S003-05", "S003-06", "NRI-06", "NRI-07", "NRI-08");
}

/// NRI-04, S003-04: without the option a pod waits, as KEP-POD-10 wants it.
#[test]
fn a_pod_that_names_what_does_not_exist_is_refused_only_where_that_is_wanted() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(|client| async move {
        let name = "webhook-absent";
        let inject = "--inject=resources";
        let strict = Webhook::start(server, &client, name, &[inject, "--require-networks"]).await;
        let refusal = strict.refusal(&client, &npwg("early", "later")).await;
        let expected = "NetworkAttachmentDefinition webhook-absent/later does not exist; make it before the pod";
        assert!(refusal.contains(expected), "{refusal}");
        let other = "webhook-patient";
        let patient = Webhook::start(server, &client, other, &[inject]).await;
        let made = patient.create(&client, &npwg("early", "later"), false).await;
        assert_eq!(limits(&made.expect("taken")), json!({"c": null}));
        // And where nothing is switched on, nothing is added.
        let plain = "webhook-plain";
        let plain = Webhook::start(server, &client, plain, &[]).await;
        vf(&client, "webhook-plain", "rack=a").await;
        let made = plain.create(&client, &npwg("web", "vf"), false).await.expect("taken");
        assert_eq!(limits(&made), json!({"c": null}));
        assert_eq!(made.spec.and_then(|spec| spec.node_selector), None);
    });
    proof::of!("NRI-04", "S003-04", "KEP-POD-10");
}
