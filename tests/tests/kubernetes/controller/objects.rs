//! Objects of all kinds the controller meets, as JSON.

use std::time::{Duration, Instant};

use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Client, Error};
use serde_json::{Value, json};
use testbed::wait::PATIENCE;

const STEP: Duration = Duration::from_millis(20);

/// A cluster as its administrator sees it.
#[derive(Clone)]
pub(super) struct Cluster {
    client: Client,
}

/// Kind, namespace (empty for cluster-wide kinds) and name.
pub(super) type Name<'a> = (&'a str, &'a str, &'a str);

/// Looks again and again until `probe` returns something.
pub(super) async fn until<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        tokio::time::sleep(STEP).await;
    }
}

impl Cluster {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    fn api(&self, kind: &str, namespace: &str) -> (Api<DynamicObject>, ApiResource) {
        let (group, version, plural) = match kind {
            "Pod" | "Node" | "Service" => ("", "v1", format!("{}s", kind.to_lowercase())),
            "EndpointSlice" => ("discovery.k8s.io", "v1", "endpointslices".to_owned()),
            "Lease" => ("coordination.k8s.io", "v1", "leases".to_owned()),
            "Event" => ("events.k8s.io", "v1", "events".to_owned()),
            "NetworkAttachmentDefinition" => (
                "k8s.cni.cncf.io",
                "v1",
                "network-attachment-definitions".to_owned(),
            ),
            "NetworkPolicy" => ("networking.k8s.io", "v1", "networkpolicies".to_owned()),
            "MultiNetworkPolicy" => (
                "k8s.cni.cncf.io",
                "v1beta1",
                "multi-networkpolicies".to_owned(),
            ),
            "IPAMClaim" => ("k8s.cni.cncf.io", "v1alpha1", "ipamclaims".to_owned()),
            "PodNetworkParameters" | "AttachmentParameters" => {
                ("podnet.dev", "v1alpha1", kind.to_lowercase())
            }
            _ => (
                "podnet.dev",
                "v1alpha1",
                format!("{}s", kind.to_lowercase()),
            ),
        };
        let api_version = format!("{group}/{version}");
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.trim_start_matches('/').to_owned(),
            kind: kind.to_owned(),
            plural,
        };
        let client = self.client.clone();
        let api = if namespace.is_empty() {
            Api::all_with(client, &resource)
        } else {
            Api::namespaced_with(client, namespace, &resource)
        };
        (api, resource)
    }

    /// Makes an object with these fields besides its name.
    pub(super) async fn create(&self, (kind, namespace, name): Name<'_>, fields: Value) -> Value {
        let (api, resource) = self.api(kind, namespace);
        let mut object = json!({
            "apiVersion": resource.api_version,
            "kind": kind,
            "metadata": {"name": name},
        });
        merge(&mut object, fields);
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let made = api.create(&PostParams::default(), &object).await;
        value(made.expect("the server takes the object"))
    }

    pub(super) async fn get(&self, (kind, namespace, name): Name<'_>) -> Option<Value> {
        let (api, _) = self.api(kind, namespace);
        let object = api.get_opt(name).await.expect("the server answers");
        object.map(value)
    }

    pub(super) async fn list(&self, kind: &str, namespace: &str) -> Vec<Value> {
        let (api, _) = self.api(kind, namespace);
        let list = api
            .list(&ListParams::default())
            .await
            .expect("the server answers");
        list.items.into_iter().map(value).collect()
    }

    pub(super) async fn patch(&self, (kind, namespace, name): Name<'_>, patch: Value) {
        let (api, _) = self.api(kind, namespace);
        let patch = Patch::Merge(patch);
        let patched = api.patch(name, &PatchParams::default(), &patch).await;
        patched.expect("the server takes the patch");
    }

    pub(super) async fn patch_status(&self, (kind, namespace, name): Name<'_>, status: Value) {
        let (api, _) = self.api(kind, namespace);
        let patch = Patch::Merge(json!({ "status": status }));
        let patched = api
            .patch_status(name, &PatchParams::default(), &patch)
            .await;
        patched.expect("the server takes the patch");
    }

    pub(super) async fn delete(&self, (kind, namespace, name): Name<'_>) {
        let (api, _) = self.api(kind, namespace);
        match api.delete(name, &DeleteParams::default()).await {
            Err(Error::Api(status)) if status.code == 404 => {}
            deleted => {
                deleted.expect("the server deletes the object");
            }
        }
    }

    /// Deletes a pod whose kubelet never answers.
    pub(super) async fn delete_now(&self, namespace: &str, name: &str) {
        let (api, _) = self.api("Pod", namespace);
        let params = DeleteParams::default().grace_period(0);
        api.delete(name, &params)
            .await
            .expect("the pod can be deleted");
    }

    /// Waits until the object is gone.
    pub(super) async fn wait_gone(&self, name: Name<'_>) {
        until(&format!("{name:?} to be gone"), async || {
            self.get(name).await.is_none().then_some(())
        })
        .await;
    }

    /// Waits for the object's condition, with this status and reason.
    ///
    /// It is the condition of what the object is now.
    pub(super) async fn wait_condition(
        &self,
        name: Name<'_>,
        type_: &str,
        status: &str,
        reason: &str,
    ) -> Value {
        until(
            &format!("{name:?} to have {type_}={status} ({reason})"),
            async || {
                let object = self.get(name).await?;
                let found = condition(&object, type_)?.clone();
                let is_new = found["observedGeneration"] == object["metadata"]["generation"]
                    || name.0 == "Pod";
                let is_it = is_new && found["status"] == status && found["reason"] == reason;
                is_it.then_some(found)
            },
        )
        .await
    }

    /// Makes a network with parameters of its own name; none are made.
    pub(super) async fn network(&self, name: &str) {
        let reference =
            json!({"group": "podnet.dev", "kind": "PodNetworkParameters", "name": name});
        let spec = json!({"provider": "podnet.dev/ebpf", "parametersRefs": [reference]});
        self.create(("PodNetwork", "", name), json!({ "spec": spec }))
            .await;
    }

    /// Makes valid parameters of a network, with these further fields.
    pub(super) async fn parameters(&self, name: &str, more: Value) {
        let mut spec = json!({"mode": "L2"});
        merge(&mut spec, more);
        self.create(("PodNetworkParameters", "", name), json!({ "spec": spec }))
            .await;
    }

    /// Makes a network that gets ready, and waits for that.
    pub(super) async fn ready_network(&self, name: &str) {
        self.parameters(name, json!({})).await;
        self.network(name).await;
        self.wait_condition(("PodNetwork", "", name), "Ready", "True", "Ready")
            .await;
    }

    /// Makes an attachment without parameters.
    pub(super) async fn attachment(&self, namespace: &str, name: &str, network: &str) {
        let spec = json!({"podNetworkName": network});
        let name = ("PodNetworkAttachment", namespace, name);
        self.create(name, json!({ "spec": spec })).await;
    }

    /// Makes a pod with a list of KEP-3698, on a node or behind the gate.
    pub(super) async fn pod(&self, namespace: &str, name: &str, list: Value, node: Option<&str>) {
        let mut fields = pod_fields(&list);
        match node {
            Some(node) => fields["spec"]["nodeName"] = node.into(),
            None => {
                fields["spec"]["schedulingGates"] =
                    json!([{"name": "acme.io/quota"}, {"name": "podnet.dev/pod-networks"}]);
            }
        }
        self.create(("Pod", namespace, name), fields).await;
    }

    /// The gates of a pod.
    pub(super) async fn gates(&self, namespace: &str, name: &str) -> Vec<String> {
        let pod = self.get(("Pod", namespace, name)).await.expect("the pod");
        let gates = pod["spec"]["schedulingGates"].as_array().cloned();
        let name = |gate: Value| gate["name"].as_str().map(str::to_owned);
        gates
            .unwrap_or_default()
            .into_iter()
            .filter_map(name)
            .collect()
    }

    /// Waits until the pod is let go, by our gate alone.
    pub(super) async fn wait_released(&self, namespace: &str, name: &str) {
        until(&format!("pod {name} to be released"), async || {
            let gates = self.gates(namespace, name).await;
            (gates == ["acme.io/quota"]).then_some(())
        })
        .await;
    }
}

fn pod_fields(list: &Value) -> Value {
    let mut annotations = json!({});
    if !list.is_null() {
        annotations["podnet.dev/networks"] = list.to_string().into();
    }
    let containers = json!([{"name": "c", "image": "registry.k8s.io/pause:3.10"}]);
    json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}})
}

/// The condition of this type.
pub(super) fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == type_)
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn value(object: DynamicObject) -> Value {
    serde_json::to_value(object).expect("an object is JSON")
}
