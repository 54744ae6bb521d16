//! Requests of tests.

use k8s_openapi::api::core::v1::Pod;
use kube::core::admission::{AdmissionRequest, AdmissionReview};
use serde_json::{Value, json};

/// Returns the API server's request when `alice` makes a pod in namespace `shop`.
pub(super) fn create(pod: &Value) -> AdmissionRequest<Pod> {
    request("CREATE", pod, &Value::Null)
}

/// Returns the API server's request when `alice` changes a pod.
pub(super) fn update(old: &Value, new: &Value) -> AdmissionRequest<Pod> {
    request("UPDATE", new, old)
}

fn request(operation: &str, object: &Value, old: &Value) -> AdmissionRequest<Pod> {
    let review: AdmissionReview<Pod> = serde_json::from_value(json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "7c3a",
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "resource": { "group": "", "version": "v1", "resource": "pods" },
            "name": "web",
            "namespace": "shop",
            "operation": operation,
            "userInfo": { "username": "alice", "groups": ["system:authenticated"] },
            "object": object,
            "oldObject": old,
        },
    }))
    .expect("a review");
    review.try_into().expect("a request")
}

/// A pod with these annotations and this spec; the request says its namespace.
pub(super) fn pod(annotations: &Value, spec: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "web", "annotations": annotations },
        "spec": spec,
    })
}

/// A pod with KEP-3698's list.
pub(super) fn listing(list: &str) -> Value {
    pod(&json!({ "podnet.dev/networks": list }), &plain())
}

/// A pod with NPWG's list.
pub(super) fn npwg(list: &str) -> Value {
    pod(&json!({ "k8s.v1.cni.cncf.io/networks": list }), &plain())
}

/// Nothing but a container.
pub(super) fn plain() -> Value {
    json!({ "containers": [{ "name": "c", "image": "i" }] })
}
