//! Views of clusters for tests, from objects as JSON.

use std::sync::Arc;

use api::GATE;
use api::NetworkAttachmentDefinition;
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::pod::Pod;
use super::view::{self, Key, View};

/// Builds a view of a cluster with these objects.
///
/// The fields that an API server adds are added: a UID `<name>-uid`, a version, a generation.
pub fn view(objects: &[Value]) -> View {
    let mut view = View {
        claims: Some(std::collections::BTreeMap::new()),
        ..View::default()
    };
    for object in objects {
        add(&mut view, object.clone());
    }
    view
}

fn add(view: &mut View, mut object: Value) {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let metadata = &mut object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default().to_owned();
    let key: Key = (
        metadata["namespace"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        name.clone(),
    );
    let uid = metadata["uid"]
        .as_str()
        .map_or_else(|| format!("{name}-uid"), str::to_owned);
    metadata["uid"] = uid.clone().into();
    metadata["resourceVersion"] = "7".into();
    metadata["generation"] = 1.into();
    match kind.as_str() {
        "PodNetwork" => {
            view.networks.insert(name, read(object));
        }
        "PodNetworkAttachment" => {
            view.attachments.insert(key, read(object));
        }
        "PodNetworkParameters" => view.network_parameters.push(read(object)),
        "AttachmentParameters" => view.attachment_parameters.push(read(object)),
        "Vpc" => view.vpcs.push(read(object)),
        "Port" => {
            view.ports.insert(key, read(object));
        }
        "NetworkAttachmentDefinition" => {
            let definition: Arc<NetworkAttachmentDefinition> = read(object);
            let parameters = view::parameters(&definition);
            view.definition_parameters.insert(key.clone(), parameters);
            view.definitions.insert(key, view::meaning(&definition));
        }
        "Pod" => {
            view.pods.insert(key, read(object));
        }
        "Node" => {
            view.add_node(&serde_json::from_value(object).expect("a node"));
        }
        "IPBlock" => view.blocks.push(read(object)),
        "IPReservation" => view.reservations.push(read(object)),
        "PodNetworkEndpointSlice" => view.slices.push(read(object)),
        "IPAMClaim" => {
            let ips = view::addresses_of(&read::<api::IpamClaim>(object));
            view.claims.get_or_insert_default().insert(uid, ips);
        }
        other => unreachable!("{other} is not an object of these tests"),
    }
}

fn read<K: DeserializeOwned>(object: Value) -> Arc<K> {
    serde_json::from_value(object)
        .map(Arc::new)
        .expect("a readable object")
}

/// A time, seconds from the beginning of the tests' time.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
}

/// An object of ours.
#[expect(
    clippy::needless_pass_by_value,
    reason = "they are made where they are passed"
)]
pub fn ours(kind: &str, metadata: Value, spec: Value) -> Value {
    json!({"apiVersion": "podnet.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
}

/// A network of ours with the parameters of its own name.
pub fn network(name: &str) -> Value {
    let reference = json!({"group": "podnet.dev", "kind": "PodNetworkParameters", "name": name});
    let spec = json!({"provider": "podnet.dev/ebpf", "parametersRefs": [reference]});
    ours("PodNetwork", json!({"name": name}), spec)
}

/// Parameters that are valid, and maybe ask for a number.
pub fn parameters(name: &str, number: Option<u32>) -> Value {
    let mut spec = json!({"mode": "L2"});
    if let Some(number) = number {
        spec["networkID"] = number.into();
    }
    ours("PodNetworkParameters", json!({"name": name}), spec)
}

/// An attachment without parameters.
pub fn attachment(namespace: &str, name: &str, network: &str) -> Value {
    let metadata = json!({"namespace": namespace, "name": name});
    ours(
        "PodNetworkAttachment",
        metadata,
        json!({"podNetworkName": network}),
    )
}

/// A definition with this configuration.
pub fn definition(namespace: &str, name: &str, config: &str) -> Value {
    json!({
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"config": config},
    })
}

/// Returns a pod in namespace `shop` with a list of KEP-3698 and one of NPWG.
///
/// Each may be empty.
pub fn pod(name: &str, kep: &Value, npwg: &str) -> Value {
    let mut annotations = json!({});
    if !kep.is_null() {
        annotations["podnet.dev/networks"] = kep.to_string().into();
    }
    if !npwg.is_empty() {
        annotations["k8s.v1.cni.cncf.io/networks"] = npwg.into();
    }
    json!({
        "kind": "Pod",
        "metadata": {"namespace": "shop", "name": name, "annotations": annotations},
        "spec": {},
        "status": {"phase": "Pending"},
    })
}

/// A node with this annotation about the default network.
pub fn node(name: &str, default: &str) -> Value {
    let annotations = json!({api::NODE_DEFAULT_ANNOTATION: default});
    json!({"kind": "Node", "metadata": {"name": name, "annotations": annotations}})
}

/// The same behind the gate.
pub fn gated(mut pod: Value) -> Value {
    pod["spec"]["schedulingGates"] = json!([{"name": "acme.io/quota"}, {"name": GATE}]);
    pod
}

/// The one pod of a view with this name.
pub fn find<'a>(view: &'a View, name: &str) -> &'a Arc<Pod> {
    &view.pods[&("shop".to_owned(), name.to_owned())]
}
