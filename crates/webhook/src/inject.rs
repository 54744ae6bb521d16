//! Add devices, node affinity and a context to a new pod, or its list of networks.

use std::collections::BTreeMap;
use std::{fs, io};

use api::CARRIED;
use api::selection::{
    DEFAULT_NETWORK_ANNOTATION, NICS_ANNOTATION, POD_NETWORKS_ANNOTATION, POPULATED_ANNOTATION,
    PodSelection, VPC_ANNOTATION, populated_list,
};
use clap::ValueEnum;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::core::admission::{AdmissionRequest, Operation};
use serde_json::{Value, json};
use world::resource;
use world::scheduling::Needs;

use super::access;
use super::review::{Denial, named};
use super::wants::{NODE_SELECTOR_ANNOTATION, NodeWish, Wants};

#[cfg(test)]
mod tests;

/// Annotation of other device plugins of this design (S003-06), not read by podnet.
pub const CONTEXT_ANNOTATION: &str = "k8s.v1.cni.cncf.io/contextUID";
/// Where the kernel gives out identifiers.
const UUID: &str = "/proc/sys/kernel/random/uuid";

/// Something that pods which list networks get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Injection {
    /// Devices, addresses and rates of networks that count them, in the first container
    Resources,
    /// The nodes on which their networks are, by annotation or spec.scheduling
    NodeSelector,
    /// Directory /etc/podnetinfo, also for pods without annotation podnet.dev/downward
    Podnetinfo,
    /// The annotation k8s.v1.cni.cncf.io/contextUID, another one for each pod
    ContextUid,
}

/// Returns the operations (RFC 6902) that ask for the devices of the attachments.
///
/// There is a device for each attachment that is counted by a resource, in the first container, and what
/// `spec.scheduling` of its network has the scheduler count. A
/// resource that a container of the pod asks for already is the user's own business, and this may be
/// the second time the pod comes by.
pub fn resources(pod: &Pod, selection: &PodSelection, wants: &Wants) -> Vec<Value> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let mut needs = Needs::default();
    for attachment in named(selection) {
        if let Some(resource) = resource::of_target(&wants.world, &attachment.target) {
            *needs.resources.entry(resource).or_default() += 1;
        }
        needs.add(&wants.world, attachment);
    }
    let mut counts = needs.resources;
    counts.retain(|resource, _| {
        let mut containers = init.iter().chain(&spec.containers);
        !containers.any(|container| asks_for(container, resource))
    });
    let Some(first) = spec.containers.first().filter(|_| !counts.is_empty()) else {
        return Vec::new();
    };
    let path = "/spec/containers/0/resources";
    let mut patch = Vec::new();
    let has = first.resources.as_ref();
    if has.is_none() {
        patch.push(add(path, &json!({})));
    }
    for (list, is_there) in [
        ("limits", has.is_some_and(|has| has.limits.is_some())),
        ("requests", has.is_some_and(|has| has.requests.is_some())),
    ] {
        if !is_there {
            patch.push(add(&format!("{path}/{list}"), &json!({})));
        }
        for (resource, count) in &counts {
            let place = format!("{path}/{list}/{}", escaped(resource));
            patch.push(add(&place, &json!(count.to_string())));
        }
    }
    patch
}

fn asks_for(container: &Container, resource: &str) -> bool {
    container.resources.as_ref().is_some_and(|has| {
        let lists = [&has.limits, &has.requests];
        lists
            .into_iter()
            .flatten()
            .any(|list| list.contains_key(resource))
    })
}

/// The operations that keep a pod on the nodes that all its networks want.
///
/// # Errors
/// When a wish is no label, or contradicts another one or the pod's own.
pub fn node_selector(
    pod: &Pod,
    selection: &PodSelection,
    wants: &Wants,
) -> Result<Vec<Value>, Denial> {
    let none = BTreeMap::new();
    let spec = pod.spec.as_ref();
    let own = spec.and_then(|spec| spec.node_selector.as_ref());
    let mut more: BTreeMap<&str, &str> = BTreeMap::new();
    let carried = named(selection).flat_map(|attachment| {
        let mut needs = Needs::default();
        needs.add(&wants.world, attachment);
        needs.labels.into_iter().map(|label| NodeWish {
            object: attachment.target.clone(),
            text: format!("{label}={CARRIED}"),
        })
    });
    let carried: Vec<NodeWish> = carried.collect();
    for wish in wants.nodes.iter().chain(&carried) {
        let refuse = |problem: String| Denial::NodeSelector {
            object: wish.object.clone(),
            problem,
        };
        let (key, value) = label(&wish.text).map_err(refuse)?;
        let known = own.unwrap_or(&none).get(key).map(String::as_str);
        match known.or_else(|| more.get(key).copied()) {
            None => {
                more.insert(key, value);
            }
            Some(other) if other == value => {}
            Some(other) => {
                return Err(refuse(format!(
                    "wants nodes with {key}={value}, the pod or another network of it {key}={other}; \
                     there is no such node"
                )));
            }
        }
    }
    if more.is_empty() {
        return Ok(Vec::new());
    }
    let path = "/spec/nodeSelector";
    let mut patch = Vec::new();
    if own.is_none() {
        patch.push(add(path, &json!({})));
    }
    let each = more.into_iter();
    patch.extend(each.map(|(key, value)| add(&format!("{path}/{}", escaped(key)), &json!(value))));
    Ok(patch)
}

/// `key=value`, or a key whose value is empty (NRI-07).
fn label(text: &str) -> Result<(&str, &str), String> {
    let mut parts = text.split('=').map(str::trim);
    let (key, value) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    if key.is_empty() || parts.next().is_some() {
        return Err(format!(
            "annotation {NODE_SELECTOR_ANNOTATION}: {text:?} is not one label; write key=value"
        ));
    }
    Ok((key, value))
}

/// Returns the operation that gives a pod an identifier of its own.
///
/// It replaces the author's value. The second time a pod comes by it gets another one: nobody can have
/// used the first.
///
/// # Errors
/// When the kernel gives none.
pub fn context_uid(pod: &Pod) -> io::Result<Vec<Value>> {
    let uid = fs::read_to_string(UUID)?;
    let path = "/metadata/annotations";
    let mut patch = Vec::new();
    if pod.metadata.annotations.is_none() {
        patch.push(add(path, &json!({})));
    }
    let place = format!("{path}/{}", escaped(CONTEXT_ANNOTATION));
    patch.push(add(&place, &json!(uid.trim_end())));
    Ok(patch)
}

/// Returns the operations that fill in the list of a pod without one.
///
/// KEP-3698 "Auto-population".
///
/// No operations for a pod that has a list or no network of its own, or that chooses another default network.
pub fn populated(request: &AdmissionRequest<Pod>, network: &str) -> Vec<Value> {
    let Some(pod) = &request.object else {
        return Vec::new();
    };
    let is_new = request.operation == Operation::Create && !access::is_mirror(request);
    let on_host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
    let annotations = pod.metadata.annotations.as_ref();
    let has = |key: &str| annotations.is_some_and(|all| all.contains_key(key));
    if !is_new
        || on_host
        || [
            POD_NETWORKS_ANNOTATION,
            VPC_ANNOTATION,
            NICS_ANNOTATION,
            DEFAULT_NETWORK_ANNOTATION,
        ]
        .into_iter()
        .any(has)
    {
        return Vec::new();
    }
    let path = "/metadata/annotations";
    let empty = annotations.is_none().then(|| add(path, &json!({})));
    let list = populated_list(network);
    let written = [
        (POD_NETWORKS_ANNOTATION, list.as_str()),
        (POPULATED_ANNOTATION, network),
    ];
    let written =
        written.map(|(key, value)| add(&format!("{path}/{}", escaped(key)), &json!(value)));
    empty.into_iter().chain(written).collect()
}

fn add(path: &str, value: &Value) -> Value {
    json!({"op": "add", "path": path, "value": value})
}

/// A key in a path (RFC 6901 section 3).
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
