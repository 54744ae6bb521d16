//! The parts of objects by which policies are obeyed.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;

use api::{NAMESPACE_NAME_LABEL, PolicyKind, PolicyObject};
use k8s_openapi::api::core::v1::{Container, Namespace, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Resource, ResourceExt as _};
use serde::Deserialize;
use serde_json::Value;
use world::policies::{Labels, NodeFacts, PodFacts, PodPort};

/// Most addresses of one pod that are kept: one of each family.
const ADDRESSES_MAX: usize = 2;
/// Most named ports of one pod that are kept.
const PORTS_MAX: usize = 1024;

/// A policy, or why it is not obeyed.
pub(super) type Read = Result<Arc<PolicyObject>, String>;

/// A policy as the API server has it, its spec not interpreted.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound = "")]
pub(super) struct Written<M> {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(skip)]
    of: PhantomData<M>,
}

/// A kind of policies.
pub(super) trait Of: Clone + std::fmt::Debug + Send + Sync + 'static {
    type Scope;
    const KIND: PolicyKind;
    const PLURAL: &'static str;
}

/// NetworkPolicy.
#[derive(Debug, Clone)]
pub(super) struct Namespaced;

impl Of for Namespaced {
    type Scope = NamespaceResourceScope;
    const KIND: PolicyKind = PolicyKind::NetworkPolicy;
    const PLURAL: &'static str = "networkpolicies";
}

/// MultiNetworkPolicy.
#[derive(Debug, Clone)]
pub(super) struct Multi;

impl Of for Multi {
    type Scope = NamespaceResourceScope;
    const KIND: PolicyKind = PolicyKind::MultiNetworkPolicy;
    const PLURAL: &'static str = "multi-networkpolicies";
}

/// ClusterNetworkPolicy.
#[derive(Debug, Clone)]
pub(super) struct Cluster;

impl Of for Cluster {
    type Scope = ClusterResourceScope;
    const KIND: PolicyKind = PolicyKind::ClusterNetworkPolicy;
    const PLURAL: &'static str = "clusternetworkpolicies";
}

impl<M: Of> Resource for Written<M> {
    type DynamicType = ();
    type Scope = M::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        M::KIND.as_str().into()
    }

    fn group((): &()) -> Cow<'_, str> {
        M::KIND.group().into()
    }

    fn version((): &()) -> Cow<'_, str> {
        M::KIND
            .versions()
            .first()
            .copied()
            .unwrap_or_default()
            .into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        M::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Reads a policy.
pub(super) fn policy<M: Of>(object: &Written<M>) -> Option<Read> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let annotations = object.annotations();
    let spec = object.spec.clone();
    let read = PolicyObject::read(M::KIND, (&namespace, &name), annotations, spec);
    Some(Ok(Arc::new(read)))
}

/// Reads a pod; one of the host's network is none.
pub(super) fn pod(object: &Pod) -> Option<Arc<PodFacts>> {
    let spec = object.spec.as_ref()?;
    if spec.host_network == Some(true) {
        return None;
    }
    let init = spec.init_containers.iter().flatten();
    let init = init.filter(|it| it.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(init).flat_map(ports);
    let status = object.status.as_ref();
    let phase = status.and_then(|it| it.phase.as_deref());
    let addresses = status
        .and_then(|it| it.pod_ips.as_ref())
        .into_iter()
        .flatten();
    let addresses = addresses.filter_map(|it| it.ip.parse().ok());
    Some(Arc::new(PodFacts {
        labels: object.labels().clone(),
        ports: ports.take(PORTS_MAX).collect(),
        node: spec.node_name.clone().unwrap_or_default(),
        addresses: addresses.take(ADDRESSES_MAX).collect(),
        ended: matches!(phase, Some("Succeeded" | "Failed")),
    }))
}

fn ports(container: &Container) -> impl Iterator<Item = PodPort> {
    let ports = container.ports.iter().flatten();
    ports.filter_map(|port| {
        Some(PodPort {
            name: port.name.clone()?,
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            number: u16::try_from(port.container_port).ok()?,
        })
    })
}

/// Reads the labels of a namespace.
#[expect(
    clippy::unnecessary_wraps,
    reason = "some objects of other kinds have no facts"
)]
pub(super) fn namespace(object: &Namespace) -> Option<Labels> {
    let mut labels = object.labels().clone();
    labels
        .entry(NAMESPACE_NAME_LABEL.to_owned())
        .or_insert_with(|| object.name_any());
    Some(labels)
}

/// Reads a node with all of its addresses.
#[expect(
    clippy::unnecessary_wraps,
    reason = "some objects of other kinds have no facts"
)]
pub(super) fn node(object: &Node) -> Option<NodeFacts> {
    let status = object.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_ref());
    let addresses = addresses.into_iter().flatten();
    let mut addresses: Vec<IpAddr> = addresses
        .filter_map(|address| address.address.parse().ok())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    Some(NodeFacts {
        name: object.name_any(),
        labels: object.labels().clone(),
        addresses,
    })
}

#[cfg(test)]
mod tests {
    use api::PolicyNetworks;
    use serde_json::json;

    use super::*;

    fn read<M: Of>(object: Value) -> Read {
        policy::<M>(&serde_json::from_value(object).unwrap()).unwrap()
    }

    #[test]
    fn a_policy_is_kept_as_it_is_written_with_the_networks_it_names() {
        let policy = read::<Namespaced>(json!({
            "metadata": {
                "name": "web", "namespace": "ops",
                "annotations": {"podnet.dev/networks": "blue"}, "managedFields": [],
            },
            "spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]},
        }));
        let policy = policy.unwrap();
        assert_eq!(policy.to_string(), "NetworkPolicy ops/web");
        let blue = PolicyNetworks::PodNetworks(vec!["blue".to_owned()]);
        assert_eq!(policy.networks, blue);
        assert_eq!(policy.spec["ingress"][0]["ports"][0]["port"], 80);
        let bare = read::<Multi>(json!({"metadata": {"name": "web", "namespace": "ops"}}));
        assert_eq!(bare.unwrap().spec, json!({}));
        let large = read::<Cluster>(json!({
            "metadata": {"name": "all"}, "spec": {"x": "y".repeat(api::POLICY_SPEC_MAX)},
        }));
        // It isolates, and says so.
        let problem = &large.unwrap().problems[0];
        assert!(problem.starts_with("the spec has "), "{problem}");
        assert_eq!(
            Written::<Cluster>::url_path(&(), None),
            "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies"
        );
        assert_eq!(
            Written::<Multi>::url_path(&(), None),
            "/apis/k8s.cni.cncf.io/v1beta1/multi-networkpolicies"
        );
        assert_eq!(
            Written::<Namespaced>::url_path(&(), None),
            "/apis/networking.k8s.io/v1/networkpolicies"
        );
    }

    fn a_pod(spec: &Value, phase: &str) -> Option<Arc<PodFacts>> {
        let object = json!({
            "metadata": {"name": "a", "namespace": "b", "labels": {"app": "web"}},
            "spec": spec,
            "status": {"phase": phase},
        });
        pod(&serde_json::from_value(object).unwrap())
    }

    /// A-NP-18, A-NP-26, A-NP-39.
    #[test]
    fn a_pod_has_labels_and_named_ports_and_ends() {
        let spec = json!({
            "nodeName": "n1",
            "containers": [
                {"name": "a", "ports": [{"name": "http", "containerPort": 80}, {"containerPort": 81}]},
                {"name": "b", "ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"}]},
            ],
            "initContainers": [
                {"name": "c", "ports": [{"name": "once", "containerPort": 1}]},
                {"name": "d", "restartPolicy": "Always", "ports": [{"name": "side", "containerPort": 2}]},
            ],
        });
        let facts = a_pod(&spec, "Running").unwrap();
        let ports: Vec<String> = facts
            .ports
            .iter()
            .map(|port| format!("{} {} {}", port.name, port.protocol, port.number))
            .collect();
        assert_eq!(ports, ["http TCP 80", "dns UDP 53", "side TCP 2"]);
        assert_eq!(
            (facts.labels["app"].as_str(), facts.node.as_str()),
            ("web", "n1")
        );
        assert!(!facts.ended && !a_pod(&spec, "Pending").unwrap().ended);
        assert!(a_pod(&spec, "Succeeded").unwrap().ended && a_pod(&spec, "Failed").unwrap().ended);
        let host = json!({"containers": [], "hostNetwork": true});
        assert_eq!(a_pod(&host, "Running"), None);
    }

    #[test]
    fn a_namespace_has_its_name_as_a_label_and_a_node_all_of_its_addresses() {
        let object = json!({"metadata": {"name": "ops", "labels": {"team": "a"}}});
        let labels = namespace(&serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!(
            serde_json::to_value(labels).unwrap(),
            json!({"kubernetes.io/metadata.name": "ops", "team": "a"})
        );
        let object = json!({
            "metadata": {"name": "n1", "labels": {"zone": "a"}},
            "status": {"addresses": [
                {"type": "Hostname", "address": "n1"},
                {"type": "InternalIP", "address": "fd16::2"},
                {"type": "ExternalIP", "address": "192.0.2.2"},
                {"type": "InternalIP", "address": "172.16.0.2"},
            ]},
        });
        let node = node(&serde_json::from_value(object).unwrap()).unwrap();
        let addresses: Vec<String> = node.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["172.16.0.2", "192.0.2.2", "fd16::2"]);
        assert_eq!(
            (node.name.as_str(), node.labels["zone"].as_str()),
            ("n1", "a")
        );
    }
}
