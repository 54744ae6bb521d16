//! Add the file in which a container reads its own networks (KEP-P2-2).
//!
//! A pod asks for it by an annotation, or the cluster adds it to all pods.
//!
//! It is a volume of the downward API, so the kubelet writes it and keeps it up to date. Places and
//! names are those that programs know from other webhooks (NRI-08): besides podnet's list of networks
//! there are the pod's labels, and the huge pages of each container that has some, in MiB. Such a
//! container finds its own name in its environment, to know which are its files.

use std::collections::BTreeSet;

use api::status::{NETWORK_STATUS_ANNOTATION, POD_NETWORK_STATUS_ANNOTATION};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kube::core::admission::{AdmissionRequest, Operation};
use serde_json::{Value, json};

/// The annotation by which a pod asks for the file.
pub const ANNOTATION: &str = "podnet.dev/downward";
/// Name of the volume.
const VOLUME: &str = "podnetinfo";
/// Where containers have it.
const DIRECTORY: &str = "/etc/podnetinfo";

/// The variable in which a container with huge pages finds its name.
const CONTAINER: &str = "CONTAINER_NAME";
/// Kinds of huge pages: as resources have it, and as files do.
const HUGE_PAGES: [(&str, &str); 2] = [("hugepages-1Gi", "1G"), ("hugepages-2Mi", "2M")];

/// Returns the JSON patch (RFC 6902) that mounts [`DIRECTORY`] in all containers.
///
/// `None` for pods that do not ask where not all have it, or that have a volume of the name already:
/// this may be the second time the pod comes by. A container with a mount of its own at the directory
/// keeps that.
pub fn volume(request: &AdmissionRequest<Pod>, is_for_all: bool) -> Option<Value> {
    if request.operation != Operation::Create {
        return None;
    }
    let pod = request.object.as_ref()?;
    let annotations = pod.metadata.annotations.as_ref();
    let asked = annotations.and_then(|annotations| annotations.get(ANNOTATION));
    if asked.map_or(!is_for_all, |asked| asked != "true") {
        return None;
    }
    let spec = pod.spec.as_ref()?;
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    if volumes.iter().any(|volume| volume.name == VOLUME) {
        return None;
    }
    let mut patch = vec![append(
        "/spec/volumes",
        volumes.is_empty(),
        &described(spec),
    )];
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
    for (index, container) in spec.containers.iter().enumerate() {
        let has_name = container
            .env
            .iter()
            .flatten()
            .any(|one| one.name == CONTAINER);
        if huge_pages(container).next().is_some() && !has_name {
            let path = format!("/spec/containers/{index}/env");
            let is_first = container.env.as_ref().is_none_or(Vec::is_empty);
            let name = json!({"name": CONTAINER, "value": container.name});
            patch.push(append(&path, is_first, &name));
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

/// Files about the huge pages of a container, and what each has.
fn huge_pages(container: &Container) -> impl Iterator<Item = (String, String)> {
    let has = container.resources.as_ref();
    let lists = [
        (
            "request",
            "requests",
            has.and_then(|has| has.requests.as_ref()),
        ),
        ("limit", "limits", has.and_then(|has| has.limits.as_ref())),
    ];
    let name = &container.name;
    lists.into_iter().flat_map(move |(file, list, quantities)| {
        HUGE_PAGES.into_iter().filter_map(move |(resource, kind)| {
            quantities?.get(resource)?;
            let file = format!("hugepages_{kind}_{file}_{name}");
            Some((file, format!("{list}.{resource}")))
        })
    })
}

fn described(spec: &PodSpec) -> Value {
    let item = |path: &str, field: String| json!({"path": path, "fieldRef": {"fieldPath": field}});
    let one = |annotation: &str| format!("metadata.annotations['{annotation}']");
    let mut items = vec![
        item("annotations", "metadata.annotations".to_owned()),
        item("labels", "metadata.labels".to_owned()),
        item("network-status", one(NETWORK_STATUS_ANNOTATION)),
        item("networks", one(POD_NETWORK_STATUS_ANNOTATION)),
    ];
    for container in &spec.containers {
        items.extend(huge_pages(container).map(|(path, resource)| {
            let name = &container.name;
            let field = json!({"containerName": name, "resource": resource, "divisor": "1Mi"});
            json!({"path": path, "resourceFieldRef": field})
        }));
    }
    json!({"name": VOLUME, "downwardAPI": {"items": items}})
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
        let patch = volume(&create(pod), false)?;
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
        proof::of!("KEP-P2-2");
    }

    #[test]
    fn a_pod_that_does_not_ask_is_left_alone() {
        for annotations in [
            json!({}),
            json!({ANNOTATION: "false"}),
            json!({ANNOTATION: ""}),
        ] {
            assert_eq!(volume(&create(&pod(&annotations, &plain())), false), None);
        }
        let asks = asking(&plain());
        assert_eq!(
            volume(&update(&asks, &asks), true),
            None,
            "volumes cannot change"
        );
    }

    /// NRI-08: all pods but those with `false` get the file where the cluster wants it.
    #[test]
    fn all_pods_get_the_file_where_the_cluster_says_so() {
        let says = |annotations: &Value| volume(&create(&pod(annotations, &plain())), true);
        assert!(says(&json!({})).is_some());
        assert!(says(&json!({ANNOTATION: "true"})).is_some());
        assert_eq!(says(&json!({ANNOTATION: "false"})), None);
        proof::of!("NRI-08");
    }

    /// NRI-08
    #[test]
    fn containers_with_huge_pages_read_how_many_and_who_they_are() {
        let quantities = json!({"hugepages-2Mi": "64Mi", "hugepages-1Gi": "1Gi", "cpu": "1"});
        let spec = json!({"containers": [
            {"name": "a", "image": "i", "resources": {"requests": quantities, "limits": quantities}},
            {"name": "b", "image": "i", "env": [{"name": "X", "value": "x"}],
             "resources": {"limits": {"hugepages-2Mi": "2Mi"}}},
            {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}},
            {"name": "d", "image": "i", "env": [{"name": CONTAINER, "value": "own"}],
             "resources": {"limits": {"hugepages-2Mi": "2Mi"}}},
        ]});
        let after = patched(&asking(&spec)).expect("a change");
        let items = after["spec"]["volumes"][0]["downwardAPI"]["items"].as_array();
        let files: Vec<(&str, &Value)> = items
            .expect("a list")
            .iter()
            .filter_map(|item| Some((item["path"].as_str()?, item.get("resourceFieldRef")?)))
            .collect();
        let field = |name: &str, resource: &str| json!({"containerName": name, "resource": resource, "divisor": "1Mi"});
        let expected = [
            (
                "hugepages_1G_request_a",
                &field("a", "requests.hugepages-1Gi"),
            ),
            (
                "hugepages_2M_request_a",
                &field("a", "requests.hugepages-2Mi"),
            ),
            ("hugepages_1G_limit_a", &field("a", "limits.hugepages-1Gi")),
            ("hugepages_2M_limit_a", &field("a", "limits.hugepages-2Mi")),
            ("hugepages_2M_limit_b", &field("b", "limits.hugepages-2Mi")),
            ("hugepages_2M_limit_d", &field("d", "limits.hugepages-2Mi")),
        ];
        assert_eq!(files, expected);
        let containers = &after["spec"]["containers"];
        assert_eq!(
            containers[0]["env"],
            json!([{"name": CONTAINER, "value": "a"}])
        );
        let own = json!({"name": "X", "value": "x"});
        assert_eq!(
            containers[1]["env"],
            json!([own, {"name": CONTAINER, "value": "b"}])
        );
        assert_eq!(containers[2]["env"], Value::Null);
        assert_eq!(
            containers[3]["env"],
            json!([{"name": CONTAINER, "value": "own"}])
        );
        proof::of!("NRI-08");
    }
}
