//! The file in which a container reads its own networks (KEP-P2-2), for pods that ask for it.
//!
//! It is a volume of the downward API, so the kubelet writes it and keeps it up to date. Places and
//! names are those that programs know from other webhooks (NRI-08).

use std::collections::BTreeSet;

use api::status::{NETWORK_STATUS_ANNOTATION, POD_NETWORK_STATUS_ANNOTATION};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::core::admission::{AdmissionRequest, Operation};
use serde_json::{Value, json};

/// The annotation by which a pod asks for the file.
pub const ANNOTATION: &str = "podnet.dev/downward";
/// Name of the volume.
const VOLUME: &str = "podnetinfo";
/// Where containers have it.
const DIRECTORY: &str = "/etc/podnetinfo";

/// The JSON patch (RFC 6902) that gives every container of a new pod [`DIRECTORY`]. `None` for pods
/// that do not ask, or have a volume of the name already: this may be the second time the pod comes
/// by. A container with a place of its own at the directory keeps that.
pub fn volume(request: &AdmissionRequest<Pod>) -> Option<Value> {
    if request.operation != Operation::Create {
        return None;
    }
    let pod = request.object.as_ref()?;
    let asked = pod.metadata.annotations.as_ref()?.get(ANNOTATION)?;
    if asked != "true" {
        return None;
    }
    let spec = pod.spec.as_ref()?;
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    if volumes.iter().any(|volume| volume.name == VOLUME) {
        return None;
    }
    let mut patch = vec![append("/spec/volumes", volumes.is_empty(), &described())];
    let init = spec.init_containers.as_deref().unwrap_or_default();
    for (list, containers) in [
        ("initContainers", init),
        ("containers", spec.containers.as_slice()),
    ] {
        for (index, container) in containers.iter().enumerate() {
            let mounts = mounts(container);
            if mounts.contains(DIRECTORY) {
                continue;
            }
            let path = format!("/spec/{list}/{index}/volumeMounts");
            let mount = json!({"name": VOLUME, "mountPath": DIRECTORY, "readOnly": true});
            patch.push(append(&path, mounts.is_empty(), &mount));
        }
    }
    Some(Value::Array(patch))
}

/// Adds to a list, which is not there while it has nothing.
fn append(path: &str, is_first: bool, value: &Value) -> Value {
    if is_first {
        json!({"op": "add", "path": path, "value": [value]})
    } else {
        json!({"op": "add", "path": format!("{path}/-"), "value": value})
    }
}

fn mounts(container: &Container) -> BTreeSet<&str> {
    let mounts = container.volume_mounts.iter().flatten();
    mounts
        .map(|mount| mount.mount_path.trim_end_matches('/'))
        .collect()
}

fn described() -> Value {
    let item = |path: &str, field: String| json!({"path": path, "fieldRef": {"fieldPath": field}});
    let one = |annotation: &str| format!("metadata.annotations['{annotation}']");
    json!({
        "name": VOLUME,
        "downwardAPI": {"items": [
            item("annotations", "metadata.annotations".to_owned()),
            item("network-status", one(NETWORK_STATUS_ANNOTATION)),
            item("networks", one(POD_NETWORK_STATUS_ANNOTATION)),
        ]},
    })
}

#[cfg(test)]
mod tests {
    use super::super::samples::{create, plain, pod, update};
    use super::*;

    fn asking(spec: &Value) -> Value {
        pod(&json!({ANNOTATION: "true"}), spec)
    }

    /// The pod as the API server has it after the patch, all of which adds something.
    fn patched(pod: &Value) -> Option<Value> {
        let patch = volume(&create(pod))?;
        let mut after = pod.clone();
        for operation in patch.as_array().expect("operations") {
            assert_eq!(operation["op"], "add");
            let path = operation["path"].as_str().expect("a path");
            let (parent, key) = path.rsplit_once('/').expect("a path has a slash");
            let place = after.pointer_mut(parent).expect("a place that is there");
            let value = operation["value"].clone();
            match place {
                Value::Array(list) if key == "-" => list.push(value),
                Value::Object(object) => {
                    let before = object.insert(key.to_owned(), value);
                    assert_eq!(before, None, "{path} would be replaced");
                }
                other => panic!("nothing can be added to {other}"),
            }
        }
        Some(after)
    }

    /// KEP-P2-2
    #[test]
    fn every_container_gets_the_file_and_a_pod_that_has_it_is_left_alone() {
        let spec = json!({
            "initContainers": [{"name": "wait", "image": "i"}],
            "containers": [
                {"name": "a", "image": "i", "volumeMounts": [{"name": "x", "mountPath": "/x"}]},
                {"name": "b", "image": "i", "volumeMounts": [{"name": "x", "mountPath": "/etc/podnetinfo/"}]},
            ],
            "volumes": [{"name": "x", "emptyDir": {}}],
        });
        let after = patched(&asking(&spec)).expect("a change");
        let names = |list: &Value| -> Vec<String> {
            let all = list.as_array().expect("a list").iter();
            all.map(|one| one["name"].as_str().unwrap_or_default().to_owned())
                .collect()
        };
        let spec = &after["spec"];
        assert_eq!(names(&spec["volumes"]), ["x", VOLUME]);
        let mounts = |list: &str, index: usize| names(&spec[list][index]["volumeMounts"]);
        assert_eq!(mounts("initContainers", 0), [VOLUME]);
        assert_eq!(mounts("containers", 0), ["x", VOLUME]);
        assert_eq!(mounts("containers", 1), ["x"], "it has something there");
        assert_eq!(patched(&after), None, "the webhook may be asked twice");

        let bare = patched(&asking(&plain())).expect("a change");
        let items = bare["spec"]["volumes"][0]["downwardAPI"]["items"].to_string();
        for annotation in [NETWORK_STATUS_ANNOTATION, POD_NETWORK_STATUS_ANNOTATION] {
            assert!(
                items.contains(&format!("metadata.annotations['{annotation}']")),
                "{items}"
            );
        }
    }

    #[test]
    fn a_pod_that_does_not_ask_is_left_alone() {
        for annotations in [
            json!({}),
            json!({ANNOTATION: "false"}),
            json!({ANNOTATION: ""}),
        ] {
            assert_eq!(volume(&create(&pod(&annotations, &plain()))), None);
        }
        let asks = asking(&plain());
        assert_eq!(volume(&update(&asks, &asks)), None, "volumes cannot change");
    }
}
