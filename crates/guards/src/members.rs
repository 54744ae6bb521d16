//! Members of a network, with what policies select them by.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::NAMESPACE_NAME_LABEL;
use book::record::{Attachment, NetworkFacts};
use policy::{
    Direction, Labels, Member, NamedPort, Node, Policy, Protocol, Workload, Workloads, World,
};
use remotes::{RemoteEndpoint, Resolved};
use world::policies::{PodFacts, PolicyWorld};

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

/// Sources of what is known of a network's members beyond this node.
#[derive(Debug, Clone)]
struct Sources {
    policies: Arc<PolicyWorld>,
    said: Option<Arc<Resolved>>,
}

impl Sources {
    fn of(inputs: &Inputs, network: u32) -> Self {
        Self {
            policies: inputs.policies.get(),
            said: inputs.remotes.resolved(network),
        }
    }

    fn are(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.policies, &other.policies) && self.say_the_same(other)
    }

    /// Reports whether both have the same members beyond this node.
    ///
    /// Ten thousand take longer to collect than to compile for, and policies and namespaces change without them.
    fn have_members_of(&self, other: &Self) -> bool {
        let pods = Arc::ptr_eq(&self.policies, &other.policies)
            || self.policies.pods == other.policies.pods;
        pods && self.say_the_same(other)
    }

    fn say_the_same(&self, other: &Self) -> bool {
        match (&self.said, &other.said) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

/// A network at one moment; its first members are the ports of this node.
#[derive(Debug)]
pub(crate) struct Here {
    sources: Sources,
    pub(crate) world: World,
    /// Port ids of the first members, ascending.
    pub(crate) ports: Vec<u16>,
    /// Addresses of ports that other nodes themselves have.
    pub(crate) of_nodes: Vec<IpAddr>,
}

impl Here {
    /// The ports that any of these policies select, and in which directions.
    pub(crate) fn selected(&self, policies: &[Policy]) -> Vec<(u16, bool, bool)> {
        let found = self.local().filter_map(|(port, member)| {
            let is = |direction: Direction| {
                !self.world.knows(member)
                    || policies.iter().any(|policy| {
                        let speaks =
                            policy.isolates(direction) || !policy.rules(direction).is_empty();
                        speaks && self.world.selects(&policy.subject, member)
                    })
            };
            let (ingress, egress) = (is(Direction::Ingress), is(Direction::Egress));
            (ingress || egress).then_some((port, ingress, egress))
        });
        found.collect()
    }

    /// Ports of this node, with their members.
    pub(crate) fn local(&self) -> impl Iterator<Item = (u16, &Member)> {
        self.ports.iter().copied().zip(&self.world.members)
    }

    /// Reports whether nothing is known otherwise by now.
    pub(crate) fn is_current(&self, inputs: &Inputs, facts: &NetworkFacts) -> bool {
        self.sources.are(&Sources::of(inputs, facts.id))
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

    /// Collects the ports of this node on a network, in order of their ids.
    pub(crate) fn local(&mut self, inputs: &Inputs, facts: &NetworkFacts) -> BTreeMap<u16, Member> {
        let policies = inputs.policies.get();
        let ledger = inputs.book.ledger();
        let records = ledger.entries_on(facts.id);
        records
            .filter(|record| !record.is_of_node())
            .map(|record| (record.port_id, self.member(inputs, &policies, record)))
            .collect()
    }

    /// A port of this node as a member.
    pub(crate) fn member(
        &mut self,
        inputs: &Inputs,
        policies: &PolicyWorld,
        record: &Attachment,
    ) -> Member {
        let workload = of_record(record, policies, inputs.clustered);
        Member {
            workload: self.workloads.get_or_insert_default().share(workload),
            addresses: addresses(record),
        }
    }

    /// Collects the members of a network: these of this node, and those of others.
    ///
    /// Those of others that `before` has are not collected again while nothing is said otherwise.
    pub(crate) fn world(
        &mut self,
        inputs: &Inputs,
        facts: &NetworkFacts,
        local: BTreeMap<u16, Member>,
        before: Option<Here>,
    ) -> Here {
        let sources = Sources::of(inputs, facts.id);
        let (ports, mut members): (Vec<u16>, Vec<Member>) = local.into_iter().unzip();
        let mut before = before.filter(|before| before.sources.have_members_of(&sources));
        match &mut before {
            Some(before) => members.extend(before.world.members.drain(before.ports.len()..)),
            None if facts.by_node => members.extend(self.routed(inputs, &sources, facts)),
            None => members.extend(self.far(inputs, &sources)),
        }
        let of_nodes = match &mut before {
            Some(before) => std::mem::take(&mut before.of_nodes),
            None => of_nodes(&sources),
        };
        let before = before.filter(|before| before.sources.are(&sources));
        let (mut namespaces, nodes) = before.map_or_else(
            || {
                let policies = &sources.policies;
                let nodes = policies.nodes.iter().map(|node| Node {
                    labels: node.labels.clone(),
                    addresses: node.addresses.clone(),
                });
                (policies.namespaces.clone(), nodes.collect())
            },
            |before| (before.world.namespaces, before.world.nodes),
        );
        if facts.by_node {
            leave_out(&mut members, ports.len());
        }
        if !inputs.clustered {
            for member in &members {
                if member.workload.namespace != UNKNOWN {
                    know(&mut namespaces, &member.workload.namespace);
                }
            }
        }
        Here {
            sources,
            world: World {
                namespaces,
                members,
                nodes,
            },
            ports,
            of_nodes,
        }
    }

    /// Collects the pods of a network that nodes route for.
    ///
    /// Those with a port here are left out. No slice tells of them. Their addresses are those that Kubernetes has of them.
    fn routed(&mut self, inputs: &Inputs, sources: &Sources, facts: &NetworkFacts) -> Vec<Member> {
        let here: BTreeSet<(String, String)> = {
            let ledger = inputs.book.ledger();
            let pods = ledger.entries_on(facts.id).filter_map(|it| it.pod.as_ref());
            pods.map(|pod| (pod.namespace.clone(), pod.name.clone()))
                .collect()
        };
        let workloads = self.workloads.get_or_insert_default();
        let pods = sources.policies.pods.iter();
        let pods = pods.filter(|(key, pod)| !pod.ended && !here.contains(*key));
        pods.filter_map(|((namespace, _), pod)| {
            let mut addresses = pod.addresses.clone();
            addresses.retain(|address| {
                let mut subnets = facts.subnets.iter();
                subnets.any(|subnet| subnet.prefix.contains(address))
            });
            (!addresses.is_empty()).then(|| Member {
                workload: workloads.share(of_facts(namespace, pod)),
                addresses,
            })
        })
        .collect()
    }

    /// Collects the members on other nodes.
    fn far(&mut self, inputs: &Inputs, sources: &Sources) -> Vec<Member> {
        let workloads = self.workloads.get_or_insert_default();
        let said = sources.said.iter().flat_map(|said| &said.endpoints);
        let said = said.filter(|endpoint| !is_of_node(endpoint));
        said.map(|endpoint| {
            let pod = endpoint.pod.as_ref();
            let key = pod.and_then(|pod| pod.key());
            let workload = if inputs.clustered {
                let node = Some(endpoint.peer.node.as_str());
                key.map(|(namespace, name)| of_pod(&sources.policies, namespace, name, node))
            } else {
                // The pod's own node says so.
                pod.map(|pod| {
                    let namespace = key.map_or(DEFAULT_NAMESPACE, |(namespace, _)| namespace);
                    of_labels(namespace, pod.labels())
                })
            };
            Member {
                workload: workloads.share(workload.flatten_known()),
                addresses: endpoint.ips.clone(),
            }
        })
        .collect()
    }
}

/// Reports whether an endpoint is the port of a node.
///
/// It is no pod's: its address is one of those that blocks of rules have.
fn is_of_node(endpoint: &RemoteEndpoint) -> bool {
    endpoint.pod.as_ref().is_some_and(|pod| pod.is_of_node())
}

fn of_nodes(sources: &Sources) -> Vec<IpAddr> {
    let said = sources.said.iter().flat_map(|said| &said.endpoints);
    let ports = said.filter(|endpoint| is_of_node(endpoint));
    ports
        .flat_map(|endpoint| endpoint.ips.iter().copied())
        .collect()
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

/// Facts about the pod of a record.
fn of_record(record: &Attachment, policies: &PolicyWorld, clustered: bool) -> Workload {
    let pod = record.pod.as_ref();
    if clustered {
        let pod = pod.map(|pod| of_pod(policies, &pod.namespace, &pod.name, None));
        return pod.flatten_known();
    }
    let namespace = pod.map_or(DEFAULT_NAMESPACE, |pod| pod.namespace.as_str());
    of_labels(namespace, &record.labels)
}

/// Facts about a pod of the cluster.
///
/// A pod that has ended or is not there yet is not known.
/// `on`: the node that says so, which speaks for its own pods only.
fn of_pod(policies: &PolicyWorld, namespace: &str, name: &str, on: Option<&str>) -> Workload {
    let key = (namespace.to_owned(), name.to_owned());
    let pod = policies.pods.get(&key).filter(|pod| !pod.ended);
    let pod = pod.filter(|pod| on.is_none_or(|node| pod.node == node));
    pod.map(|pod| of_facts(namespace, pod)).flatten_known()
}

fn of_facts(namespace: &str, pod: &PodFacts) -> Workload {
    Workload {
        namespace: namespace.to_owned(),
        labels: pod.labels.clone(),
        ports: pod.ports.iter().filter_map(named_port).collect(),
    }
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

/// Leaves addresses of the first members out of others.
///
/// A port here is what it is, whatever is said elsewhere.
fn leave_out(members: &mut [Member], first: usize) {
    let (here, others) = members.split_at_mut(first.min(members.len()));
    let taken: BTreeSet<IpAddr> = here.iter().flat_map(|it| it.addresses.clone()).collect();
    for other in others {
        other.addresses.retain(|address| !taken.contains(address));
    }
}

/// Has a namespace known by its name where no object tells of it.
fn know(namespaces: &mut BTreeMap<String, Labels>, name: &str) {
    if !namespaces.contains_key(name) {
        let own = (NAMESPACE_NAME_LABEL.to_owned(), name.to_owned());
        namespaces.insert(name.to_owned(), Labels::from([own]));
    }
}
