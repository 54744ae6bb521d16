//! The parts of objects by which policies are obeyed.

use std::net::IpAddr;
use std::sync::Arc;

use cluster::pods::named_ports;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use world::policies::{NodeFacts, PodFacts, PodPort};

/// Most addresses of one pod that are kept: one of each family.
const ADDRESSES_MAX: usize = 2;
/// Most named ports of one pod that are kept.
const PORTS_MAX: usize = 1024;

/// Reads a pod; one of the host's network is none.
pub(super) fn pod(object: &Pod) -> Option<Arc<PodFacts>> {
    let spec = object.spec.as_ref()?;
    if spec.host_network == Some(true) {
        return None;
    }
    let ports = named_ports(spec).map(|(name, protocol, number)| PodPort {
        name: name.to_owned(),
        protocol: protocol.to_owned(),
        number,
    });
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

/// Reads a node with all of its addresses.
pub(super) fn node(object: &Node) -> NodeFacts {
    let status = object.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_ref());
    let addresses = addresses.into_iter().flatten();
    let mut addresses: Vec<IpAddr> = addresses
        .filter_map(|address| address.address.parse().ok())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    NodeFacts {
        name: object.name_any(),
        labels: object.labels().clone(),
        addresses,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
    fn a_node_has_all_of_its_addresses() {
        let object = json!({
            "metadata": {"name": "n1", "labels": {"zone": "a"}},
            "status": {"addresses": [
                {"type": "Hostname", "address": "n1"},
                {"type": "InternalIP", "address": "fd16::2"},
                {"type": "ExternalIP", "address": "192.0.2.2"},
                {"type": "InternalIP", "address": "172.16.0.2"},
            ]},
        });
        let node = node(&serde_json::from_value(object).unwrap());
        let addresses: Vec<String> = node.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["172.16.0.2", "192.0.2.2", "fd16::2"]);
        assert_eq!(
            (node.name.as_str(), node.labels["zone"].as_str()),
            ("n1", "a")
        );
    }
}
