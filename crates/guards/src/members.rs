//! Members of a network, with what policies select them by.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::NAMESPACE_NAME_LABEL;
use book::record::{Attachment, NetworkFacts};
use policy::{
    Direction, Labels, Member, NamedPort, Node, Policy, Protocol, Workload, Workloads, World,
};
use world::policies::PolicyWorld;

use crate::Inputs;

/// Namespace of pods without one, where there is no cluster.
const DEFAULT_NAMESPACE: &str = "default";
/// No namespace has this name: pods of which nothing is known have it.
const UNKNOWN: &str = "";

/// Facts that members share.
#[derive(Debug)]
pub(crate) struct Members {
    workloads: Option<Workloads>,
}

/// A network at one moment; its first members are the ports of this node.
#[derive(Debug)]
pub(crate) struct Here {
    pub(crate) world: World,
    /// Port ids of the first members.
    pub(crate) ports: Vec<u16>,
}

impl Here {
    /// The ports that any of these policies select, and in which directions.
    pub(crate) fn selected(&self, policies: &[Policy]) -> Vec<(u16, bool, bool)> {
        let members = self.ports.iter().zip(&self.world.members);
        let found = members.filter_map(|(port, member)| {
            let is = |direction: Direction| {
                !self.world.knows(member)
                    || policies.iter().any(|policy| {
                        let speaks =
                            policy.isolates(direction) || !policy.rules(direction).is_empty();
                        speaks && self.world.selects(&policy.subject, member)
                    })
            };
            let (ingress, egress) = (is(Direction::Ingress), is(Direction::Egress));
            (ingress || egress).then_some((*port, ingress, egress))
        });
        found.collect()
    }
}

impl Members {
    pub(crate) const fn new() -> Self {
        Self { workloads: None }
    }

    /// Forgets what no member has any more.
    pub(crate) fn sweep(&mut self) {
        if let Some(workloads) = &mut self.workloads {
            workloads.sweep();
        }
    }

    /// Collects the members of a network, on this node and on others.
    pub(crate) fn world(&mut self, inputs: &Inputs, facts: &NetworkFacts) -> Here {
        let policies = inputs.policies.get();
        let workloads = self.workloads.get_or_insert_default();
        let mut namespaces = policies.namespaces.clone();
        let (mut members, mut ports) = (Vec::new(), Vec::new());
        {
            let ledger = inputs.book.ledger();
            for record in ledger.entries_on(facts.id) {
                let Some(workload) = of_record(record, &policies, inputs.clustered) else {
                    continue;
                };
                if !inputs.clustered {
                    know(&mut namespaces, &workload.namespace);
                }
                ports.push(record.port_id);
                members.push(Member {
                    workload: workloads.share(workload),
                    addresses: addresses(record),
                });
            }
        }
        for endpoint in inputs.remotes.endpoints(facts.id) {
            let pod = endpoint.pod.as_ref();
            let key = pod.and_then(|pod| pod.key());
            let workload = if inputs.clustered {
                let node = Some(endpoint.peer.node.as_str());
                key.map(|(namespace, name)| of_pod(&policies, namespace, name, node))
            } else {
                // The pod's own node says so.
                pod.map(|pod| {
                    let namespace = key.map_or(DEFAULT_NAMESPACE, |(namespace, _)| namespace);
                    know(&mut namespaces, namespace);
                    of_labels(namespace, pod.labels())
                })
            };
            members.push(Member {
                workload: workloads.share(workload.flatten_known()),
                addresses: endpoint.ips.clone(),
            });
        }
        Here {
            world: World {
                namespaces,
                members,
                nodes: policies
                    .nodes
                    .iter()
                    .map(|node| Node {
                        labels: node.labels.clone(),
                        addresses: node.addresses.clone(),
                    })
                    .collect(),
            },
            ports,
        }
    }
}

/// A workload that may not be known.
trait Known {
    /// The workload, or one of which nothing is known.
    fn flatten_known(self) -> Workload;
}

impl Known for Option<Workload> {
    fn flatten_known(self) -> Workload {
        self.unwrap_or_else(|| Workload {
            namespace: UNKNOWN.to_owned(),
            ..Workload::default()
        })
    }
}

/// Addresses of a port, with that of its link on L2.
fn addresses(record: &Attachment) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = record.leases.iter().map(|lease| lease.address).collect();
    if !record.network.routed && !record.network.addressless() {
        addresses.push(record.mac.link_local().into());
    }
    addresses
}

/// Facts about the pod of a record; `None` for one that has ended, whose port is no member any more.
fn of_record(record: &Attachment, policies: &PolicyWorld, clustered: bool) -> Option<Workload> {
    let pod = record.pod.as_ref();
    if clustered {
        let pod = pod.map(|pod| of_pod(policies, &pod.namespace, &pod.name, None));
        return Some(pod.flatten_known());
    }
    let namespace = pod.map_or(DEFAULT_NAMESPACE, |pod| pod.namespace.as_str());
    Some(of_labels(namespace, &record.labels))
}

/// Facts about a pod of the cluster; one that has ended or is not there yet is not known.
///
/// `on`: the node that says so, which speaks for its own pods only.
fn of_pod(policies: &PolicyWorld, namespace: &str, name: &str, on: Option<&str>) -> Workload {
    let key = (namespace.to_owned(), name.to_owned());
    let pod = policies.pods.get(&key).filter(|pod| !pod.ended);
    let pod = pod.filter(|pod| on.is_none_or(|node| pod.node == node));
    let known = pod.map(|pod| Workload {
        namespace: namespace.to_owned(),
        labels: pod.labels.clone(),
        ports: pod.ports.iter().filter_map(named_port).collect(),
    });
    known.flatten_known()
}

fn named_port(port: &world::policies::PodPort) -> Option<NamedPort> {
    let protocol = match port.protocol.as_str() {
        "TCP" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        "SCTP" => Protocol::Sctp,
        _ => return None,
    };
    Some(NamedPort {
        name: port.name.clone(),
        protocol,
        number: port.number,
    })
}

fn of_labels(namespace: &str, labels: &Labels) -> Workload {
    Workload {
        namespace: namespace.to_owned(),
        labels: labels.clone(),
        ports: Vec::new(),
    }
}

/// Has a namespace known by its name where no object tells of it.
fn know(namespaces: &mut BTreeMap<String, Labels>, name: &str) {
    if !namespaces.contains_key(name) {
        let own = (NAMESPACE_NAME_LABEL.to_owned(), name.to_owned());
        namespaces.insert(name.to_owned(), Labels::from([own]));
    }
}
