//! Publishes this node's members of networks that span nodes.
//!
//! In a cluster [`crate::kube`] writes them as objects, elsewhere [`files`] as a file. This module
//! finds the members and divides them into slices. Pure but for the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::{
    ENDPOINT_IPS_MAX, ENDPOINTS_MAX, Endpoint, EndpointPod, EndpointSlice, MacAddr, NetworkId,
    PodNetworkEndpointSliceSpec, SliceEndpoint, Transport,
};
use book::Book;
use book::ledger::Ledger;
use book::record::{Attachment, NetworkFacts};
use k8s_openapi::jiff::Timestamp;
use remotes::{Remotes, Served};
use world::policies::PolicyCurrent;
use world::{Current, World};

use crate::vpcs;

pub mod files;
mod options;
#[cfg(test)]
mod tests;

pub use options::{SpanningError, SpanningOptions, check};

/// Members of one network, by MAC address.
pub type Members = BTreeMap<MacAddr, Member>;

/// A member that this node has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// Its pod, as far as that is known.
    pub pod: Option<Arc<EndpointPod>>,
}

/// Extent to which slices name the pods of members.
///
/// Policies select members by their pods, and so do Services. Without one that names networks they are not needed, and agents of
/// before that do not read slices with pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pods {
    /// All pods are said, as a policy or a Service names networks.
    ///
    /// Else only those that were said before.
    pub named: bool,
    /// With labels, which nobody else knows where there is no cluster.
    pub labels: bool,
}

/// Endpoints of a network by slice number, in order of their MAC addresses.
pub type Slices = BTreeMap<u32, Vec<Endpoint>>;

/// The members of one network that are on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnNetwork {
    /// Number of the network.
    pub id: NetworkId,
    /// All that are live.
    pub members: Members,
}

/// Members that this node has of networks that span nodes, by network name.
pub fn of(ledger: &Ledger, pods: Pods) -> BTreeMap<String, OnNetwork> {
    let mut networks: BTreeMap<String, OnNetwork> = BTreeMap::new();
    let numbers: BTreeSet<u32> = ledger
        .networks()
        .filter(|it| spans(it))
        .map(|it| it.id)
        .collect();
    let live = numbers
        .into_iter()
        .flat_map(|number| ledger.live_on(number));
    for record in live.filter(|it| spans(&it.network)) {
        let Some(id) = NetworkId::new(record.network.id) else {
            continue;
        };
        let of_network = || OnNetwork {
            id,
            members: Members::new(),
        };
        let on_network = networks
            .entry(record.network.name.clone())
            .or_insert_with(of_network);
        let ips = record.leases.iter().map(|lease| lease.address);
        // More than a slice takes are refused as a whole there, and would take others with them.
        let ips = ips.take(ENDPOINT_IPS_MAX).collect();
        let mac = MacAddr::new(record.mac.0);
        let pod = pod_of(record, pods);
        on_network.members.insert(mac, Member { ips, pod });
    }
    networks
}

fn pod_of(record: &Attachment, pods: Pods) -> Option<Arc<EndpointPod>> {
    if record.is_of_node() {
        return Some(Arc::new(EndpointPod::none_but_the_node()));
    }
    let name = record.pod.as_ref();
    let name = name.map(|pod| (pod.namespace.as_str(), pod.name.as_str()));
    // The runtime's words: a slice with another name is refused as a whole.
    let name = name.filter(|(namespace, name)| {
        api::check_label(namespace).is_ok() && api::check_subdomain(name).is_ok()
    });
    let labels = if pods.labels {
        record.labels.clone()
    } else {
        BTreeMap::new()
    };
    let is_known = name.is_some() || !labels.is_empty();
    is_known.then(|| Arc::new(EndpointPod::new(name, labels)))
}

/// The networks that have attachments here, in whatever state.
///
/// Those that their virtual gateways lead to are among them.
pub fn served(ledger: &Ledger, world: &World) -> BTreeMap<String, Served> {
    let mut served: BTreeMap<String, Served> = BTreeMap::new();
    for network in ledger.networks() {
        // They agree on the rest.
        let Some(facts) = served.get_mut(&network.name) else {
            served.insert(network.name.clone(), network.into());
            continue;
        };
        // Subnets are of the time when the attachment was made.
        for subnet in &network.subnets {
            if !facts.subnets.contains(subnet) {
                facts.subnets.push(subnet.clone());
            }
        }
    }
    for (name, facts) in &mut served {
        let Ok(network) = world.network(name) else {
            continue;
        };
        for subnet in NetworkFacts::of(network, facts.id).subnets {
            if !facts.subnets.contains(&subnet) {
                facts.subnets.push(subnet);
            }
        }
    }
    for (name, facts) in vpcs::reached(ledger, world) {
        served.entry(name).or_insert(facts);
    }
    served
}

/// Names of those of them that span nodes.
pub fn spanning(ledger: &Ledger, world: &World) -> BTreeSet<String> {
    let spanning = ledger.networks().filter(|it| spans(it));
    let reached = vpcs::reached(ledger, world).into_keys();
    spanning.map(|it| it.name.clone()).chain(reached).collect()
}

/// The members of this node and those that other nodes name.
#[derive(Debug)]
pub struct Membership {
    name: String,
    book: Arc<Book>,
    world: Arc<Current>,
    policies: Arc<PolicyCurrent>,
    remotes: Arc<Remotes>,
}

impl Membership {
    /// Hold what is needed, for the node of this name.
    pub fn new(
        name: String,
        book: Arc<Book>,
        (world, policies): (Arc<Current>, Arc<PolicyCurrent>),
        remotes: Arc<Remotes>,
    ) -> Self {
        Self {
            name,
            book,
            world,
            policies,
            remotes,
        }
    }

    /// Tell which networks this node serves.
    pub fn serve_now(&self) {
        let served = served(&self.book.ledger(), &self.world.get());
        self.remotes.serve(served);
    }

    /// Tell which networks this node serves, whenever that changes; for ever.
    pub async fn serve(&self) {
        let mut changes = self.book.ledger().changes();
        let mut networks = self.world.changes();
        loop {
            changes.mark_unchanged();
            networks.mark_unchanged();
            self.serve_now();
            tokio::select! {
                // Both senders live as long as the node.
                _ = changes.changed() => {}
                _ = networks.changed() => {}
            }
        }
    }
}

fn spans(network: &NetworkFacts) -> bool {
    network.transport != Transport::Local
}

/// Divides the members of a network into slices.
///
/// A member stays in its slice, so a change of one member changes one slice. A new member goes to the
/// first slice with room. Numbers in `taken` belong to slices of other nodes. A claim keeps its time when only
/// its pod is said otherwise.
pub fn divide(
    published: &Slices,
    members: &Members,
    taken: &BTreeSet<u32>,
    pods: Pods,
    mut since: impl FnMut(MacAddr, &[IpAddr]) -> Timestamp,
) -> Slices {
    let mut left: BTreeMap<MacAddr, &Member> =
        members.iter().map(|(mac, member)| (*mac, member)).collect();
    let mut slices = Slices::new();
    for (number, endpoints) in published {
        if taken.contains(number) {
            continue;
        }
        let mut kept = Vec::new();
        for endpoint in endpoints.iter().take(ENDPOINTS_MAX) {
            let Some(member) = left.remove(&endpoint.mac) else {
                continue;
            };
            let said = pods.named || endpoint.pod.is_some();
            let mut now = if member.ips == endpoint.ips {
                endpoint.clone()
            } else {
                claim(endpoint.mac, &member.ips, &mut since)
            };
            now.pod = member.pod.clone().filter(|_| said);
            kept.push(now);
        }
        if !kept.is_empty() {
            slices.insert(*number, kept);
        }
    }
    let mut number = 0;
    for (mac, member) in left {
        let full = |number: &u32| {
            taken.contains(number)
                || slices
                    .get(number)
                    .is_some_and(|it| it.len() >= ENDPOINTS_MAX)
        };
        while full(&number) {
            number += 1;
        }
        let slice = slices.entry(number).or_default();
        let mut new = claim(mac, &member.ips, &mut since);
        new.pod = member.pod.clone().filter(|_| pods.named);
        slice.push(new);
    }
    for slice in slices.values_mut() {
        slice.sort_by_key(|endpoint| endpoint.mac);
    }
    slices
}

fn claim(
    mac: MacAddr,
    ips: &[IpAddr],
    since: &mut impl FnMut(MacAddr, &[IpAddr]) -> Timestamp,
) -> Endpoint {
    Endpoint {
        mac,
        ips: ips.to_vec(),
        since: since(mac, ips),
        pod: None,
    }
}

/// Endpoints of the slices that this node has published, by slice number.
pub fn published<'a>(slices: impl Iterator<Item = (u32, &'a EndpointSlice)>) -> Slices {
    slices
        .map(|(number, slice)| (number, slice.endpoints.clone()))
        .collect()
}

/// Spec of a slice with these endpoints.
pub fn spec(
    network: &str,
    id: NetworkId,
    node: &str,
    vteps: &[IpAddr],
    endpoints: &[Endpoint],
) -> PodNetworkEndpointSliceSpec {
    PodNetworkEndpointSliceSpec {
        network: network.to_owned(),
        network_id: i64::from(id.get()),
        node: node.to_owned(),
        vteps: vteps.iter().map(ToString::to_string).collect(),
        endpoints: endpoints.iter().map(SliceEndpoint::from).collect(),
    }
}
