//! Label Services of networks, so that kube-proxy leaves them alone.

use api::{NETWORK_LABEL, PROBLEM_BYTES, SERVICE_PROXY, SERVICE_PROXY_LABEL, Shortened};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use kube::core::admission::AdmissionRequest;
use serde_json::{Value, json};

/// Returns operations (RFC 6902) that label a Service, and a warning.
///
/// kube-proxy would translate the Service's address to endpoints on the cluster's network.
pub(super) fn labelled(request: &AdmissionRequest<Service>) -> (Vec<Value>, Option<String>) {
    let Some(service) = &request.object else {
        return (Vec::new(), None);
    };
    let labels = service.labels();
    let is_of_network = labels.get(NETWORK_LABEL).is_some_and(|it| !it.is_empty());
    let path = SERVICE_PROXY_LABEL.replace('/', "~1");
    let path = format!("/metadata/labels/{path}");
    match labels.get(SERVICE_PROXY_LABEL).map(String::as_str) {
        // One that leaves its network is kube-proxy's again.
        Some(SERVICE_PROXY) if !is_of_network && was_of_network(request) => {
            (vec![json!({"op": "remove", "path": path})], None)
        }
        _ if !is_of_network => (Vec::new(), None),
        Some(SERVICE_PROXY) => (Vec::new(), None),
        Some(other) => {
            let warning = format!(
                "{SERVICE_PROXY_LABEL}={} says that another proxy has this Service; podnet serves it on its network all the same",
                Shortened(other, PROBLEM_BYTES)
            );
            (Vec::new(), Some(warning))
        }
        None => {
            // There are labels: that of the network.
            let add = json!({"op": "add", "path": path, "value": SERVICE_PROXY});
            (vec![add], None)
        }
    }
}

/// True for a Service that was of a network before this request.
fn was_of_network(request: &AdmissionRequest<Service>) -> bool {
    let before = request.old_object.as_ref();
    before.is_some_and(|it| it.labels().contains_key(NETWORK_LABEL))
}

#[cfg(test)]
mod tests {
    use kube::core::admission::AdmissionReview;

    use super::*;

    fn labelled_by(labels: &Value) -> (Vec<Value>, Option<String>) {
        labelled_after(&Value::Null, labels)
    }

    /// Of a Service that had the labels `before`.
    fn labelled_after(before: &Value, labels: &Value) -> (Vec<Value>, Option<String>) {
        let old = if before.is_null() {
            Value::Null
        } else {
            json!({"metadata": {"name": "web", "labels": before}})
        };
        let review: AdmissionReview<Service> = serde_json::from_value(json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "7c3a",
                "kind": {"group": "", "version": "v1", "kind": "Service"},
                "resource": {"group": "", "version": "v1", "resource": "services"},
                "operation": "CREATE",
                "userInfo": {},
                "object": {"metadata": {"name": "web", "labels": labels}},
                "oldObject": old,
            },
        }))
        .expect("a review");
        labelled(&review.try_into().expect("a request"))
    }

    /// D-SVC-07, D-EPS-7.
    #[test]
    fn a_service_of_a_network_gets_the_label_that_keeps_kube_proxy_away() {
        let (changes, warning) = labelled_by(&json!({"podnet.dev/network": "blue"}));
        assert_eq!(
            changes,
            [json!({
                "op": "add",
                "path": "/metadata/labels/service.kubernetes.io~1service-proxy-name",
                "value": "podnet.dev",
            })]
        );
        assert_eq!(warning, None);
        let untouched = [
            json!({}),
            json!({"podnet.dev/network": ""}),
            json!({
                "podnet.dev/network": "blue",
                "service.kubernetes.io/service-proxy-name": "podnet.dev",
            }),
        ];
        for labels in untouched {
            assert_eq!(labelled_by(&labels), (Vec::new(), None), "{labels}");
        }
        let (changes, warning) = labelled_by(&json!({
            "podnet.dev/network": "blue",
            "service.kubernetes.io/service-proxy-name": "mine",
        }));
        assert!(changes.is_empty() && warning.expect("a warning").contains("=mine says"));
        let own = "service.kubernetes.io/service-proxy-name";
        let leaving = labelled_after(
            &json!({"podnet.dev/network": "blue", own: "podnet.dev"}),
            &json!({own: "podnet.dev"}),
        );
        let path = "/metadata/labels/service.kubernetes.io~1service-proxy-name";
        assert_eq!(leaving, (vec![json!({"op": "remove", "path": path})], None));
        proof::of!("KEP-P3-4");
    }
}
