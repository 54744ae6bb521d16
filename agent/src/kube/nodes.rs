//! Nodes of the cluster: addresses of their pods, and ways to reach them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::{NODE_DEFAULT_ANNOTATION, NODE_DEFAULT_MAX, Prefix, VTEPS_ANNOTATION};
use cluster::Work;
use cluster::copied::{Copied, Copier, settled, trim as trim_meta};
use cluster::watch::Progress;
use k8s_openapi::api::core::v1::{Node as ApiNode, NodeStatus};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::runtime::watcher::Config;
use kube::{Client, ResourceExt as _};
use node_stack::routing::{Nodes as Known, Peer};
use reach::Reach;
use remotes::{NodeFacts, Remotes};
use tokio::sync::{Notify, watch};

use crate::service_objects::Placed;

/// Label of a `Node`: its zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// A copy of all nodes, less what nobody here reads.
#[derive(Debug)]
pub(super) struct Nodes {
    /// Name of this node.
    node: String,
    nodes: Copied<ApiNode>,
    /// Where Services are; from Kubernetes 1.33.
    services: Copied<ServiceCIDR>,
    changed: Arc<Notify>,
    /// The object of this node; none before it was looked for.
    own: watch::Sender<Option<OwnNode>>,
    /// Its place; none before it was looked for.
    placed: watch::Sender<Option<Placed>>,
}

/// State of this node's object at the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OwnNode {
    /// There is a `Node` of its name.
    pub(super) exists: bool,
    /// Its addresses.
    addresses: Vec<IpAddr>,
    /// Its annotation about the default network.
    pub(super) default_network: Option<String>,
}

impl OwnNode {
    /// Replaces what was known; true when that is a change.
    ///
    /// A node that is gone for a moment has the default network that it had.
    fn replace(mut self, known: &mut Option<Self>) -> bool {
        let before = known.as_ref().and_then(|it| it.default_network.as_ref());
        if !self.exists {
            self.default_network = before.cloned();
        }
        if self.default_network.as_ref() != before {
            tracing::info!(
                annotation = self.default_network,
                "pods without a list have another first network from now on: the annotation \
                 podnet.dev/default-network of the Node has changed"
            );
        }
        let own = Some(self);
        let differs = *known != own;
        *known = own;
        differs
    }
}

impl Nodes {
    /// Prepares to follow the nodes, and the work that does.
    pub(super) fn new(client: &Client, node: &str) -> (Self, Vec<Work>) {
        let changed = Arc::new(Notify::new());
        let mut copier = Copier::new(client, &changed);
        let this = Self {
            node: node.to_owned(),
            nodes: copier.copy("nodes", false, Config::default(), trim),
            services: copier.optional("servicecidrs"),
            changed,
            own: watch::Sender::new(None),
            placed: watch::Sender::new(None),
        };
        (this, copier.work())
    }

    /// Follows the object of this node, with each change of it.
    pub(super) fn own(&self) -> watch::Receiver<Option<OwnNode>> {
        self.own.subscribe()
    }

    /// Follows the place of this node.
    pub(super) fn placed(&self) -> watch::Receiver<Option<Placed>> {
        self.placed.subscribe()
    }

    /// Returns this node's annotation about the default network.
    pub(super) fn default_network(&self) -> Option<String> {
        let own = self.own.borrow();
        own.as_ref().and_then(|own| own.default_network.clone())
    }

    /// Why it is not known what the API server says of this node, if so.
    pub(super) fn unread(&self) -> Option<String> {
        let why = || {
            let kind = &self.nodes.kind;
            kind.unread()
                .unwrap_or_else(|| format!("{} are not read yet", kind.name))
        };
        self.own.borrow().is_none().then(why)
    }

    /// Tells of every change, for ever.
    ///
    /// With `tunnels`, this node's own addresses are where tunnels end.
    pub(super) async fn work(&self, reach: &Reach, remotes: &Remotes, tunnels: bool) {
        loop {
            // What an agent may not read, or no cluster has, is never known: --service-cidr says it then.
            let asked = *self.services.kind.progress() != Progress::Unread(None);
            if self.nodes.kind.unread().is_none() && asked {
                let nodes = self.nodes.store.state();
                reach.set_nodes(Known {
                    services: services(&self.services.store.state()),
                    ..known(&nodes, &self.node)
                });
                remotes.set_nodes(facts(&nodes));
                let own = own(&nodes, &self.node);
                // One that is gone for a moment is where it was.
                if tunnels && own.exists {
                    remotes.set_vteps(&own.addresses);
                }
                // One that is gone for a moment is where it was.
                if own.exists || self.placed.borrow().is_none() {
                    let placed = Some(placed(&nodes, &self.node));
                    self.placed.send_if_modified(|known| {
                        std::mem::replace(known, placed.clone()) != placed
                    });
                }
                self.own.send_if_modified(|known| own.replace(known));
            }
            settled(&self.changed).await;
        }
    }
}

/// Images and conditions are most of a node, and change all the time.
fn trim(node: &mut ApiNode) {
    let zone = node.labels().get(ZONE_LABEL).cloned();
    trim_meta(node);
    node.metadata.labels = zone.map(|zone| [(ZONE_LABEL.to_owned(), zone)].into());
    if let Some(annotations) = &mut node.metadata.annotations {
        annotations.retain(|key, _| key == VTEPS_ANNOTATION || key == NODE_DEFAULT_ANNOTATION);
        if let Some(text) = annotations.get_mut(NODE_DEFAULT_ANNOTATION) {
            text.truncate(text.floor_char_boundary(NODE_DEFAULT_MAX));
        }
    }
    let status = node.status.take();
    node.status = Some(NodeStatus {
        addresses: status.and_then(|status| status.addresses),
        ..NodeStatus::default()
    });
}

fn own(nodes: &[Arc<ApiNode>], name: &str) -> OwnNode {
    let own = nodes.iter().find(|node| node.name_any() == name);
    own.map_or_else(OwnNode::default, |node| OwnNode {
        exists: true,
        addresses: addresses(node),
        default_network: node.annotations().get(NODE_DEFAULT_ANNOTATION).cloned(),
    })
}

fn placed(nodes: &[Arc<ApiNode>], name: &str) -> Placed {
    let own = nodes.iter().find(|node| node.name_any() == name);
    Placed {
        zone: own.and_then(|node| node.labels().get(ZONE_LABEL).cloned()),
    }
}

fn known(nodes: &[Arc<ApiNode>], own: &str) -> Known {
    let mut known = Known::default();
    for node in nodes {
        if node.name_any() == own {
            known.own = pods(node);
        } else {
            let peer = Peer {
                pods: pods(node),
                addresses: addresses(node),
            };
            known.others.insert(node.name_any(), peer);
        }
    }
    known
}

/// `spec.podCIDRs`, or `spec.podCIDR` where only that is set.
fn pods(node: &ApiNode) -> Vec<Prefix> {
    let spec = node.spec.as_ref();
    let all = spec.and_then(|spec| spec.pod_cidrs.clone());
    let one = spec.and_then(|spec| spec.pod_cidr.clone());
    let texts = all.unwrap_or_else(|| one.into_iter().collect());
    let prefixes = texts.iter().filter_map(|text| text.parse::<Prefix>().ok());
    prefixes.map(|prefix| prefix.trunc()).collect()
}

/// `spec.cidrs`.
fn services(all: &[Arc<ServiceCIDR>]) -> Vec<Prefix> {
    let specs = all.iter().filter_map(|it| it.spec.as_ref());
    let texts = specs.filter_map(|spec| spec.cidrs.as_ref()).flatten();
    let prefixes = texts.filter_map(|text| text.parse::<Prefix>().ok());
    prefixes.map(|prefix| prefix.trunc()).collect()
}

fn addresses(node: &ApiNode) -> Vec<IpAddr> {
    of_types(node, &["InternalIP"]).collect()
}

fn of_types(node: &ApiNode, types: &[&str]) -> impl Iterator<Item = IpAddr> {
    let all = node.status.as_ref().and_then(|it| it.addresses.as_ref());
    let all = all.into_iter().flatten();
    all.filter(|address| types.contains(&address.type_.as_str()))
        .filter_map(|address| address.address.parse().ok())
}

/// Collects the addresses by which tunnels may reach each node.
///
/// They are the node's own, and those that an administrator has set.
fn facts(nodes: &[Arc<ApiNode>]) -> BTreeMap<String, NodeFacts> {
    let of_node = |node: &Arc<ApiNode>| {
        let said = node.annotations().get(VTEPS_ANNOTATION);
        let said = said.into_iter().flat_map(|said| said.split(','));
        let said = said.filter_map(|address| address.trim().parse().ok());
        let own = of_types(node, &["InternalIP", "ExternalIP"]);
        let addresses: BTreeSet<IpAddr> = own.chain(said).collect();
        let made = node.creation_timestamp().map(|it| it.0).unwrap_or_default();
        (node.name_any(), NodeFacts { made, addresses })
    };
    nodes.iter().map(of_node).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, spec: &serde_json::Value) -> Arc<ApiNode> {
        let object = json!({
            "metadata": {"name": name},
            "spec": spec,
            "status": {
                "addresses": [
                    {"type": "Hostname", "address": name},
                    {"type": "InternalIP", "address": "172.16.0.2"},
                    {"type": "InternalIP", "address": "fd16::2"},
                    {"type": "ExternalIP", "address": "192.0.2.2"},
                ],
                "images": [{"names": ["a"], "sizeBytes": 1}],
            },
        });
        let mut node: ApiNode = serde_json::from_value(object).unwrap();
        trim(&mut node);
        assert_eq!(node.status.as_ref().unwrap().images, None);
        Arc::new(node)
    }

    #[test]
    fn pods_of_a_node_are_where_its_pod_cidrs_say_and_are_reached_by_its_internal_addresses() {
        let both = json!({"podCIDR": "10.1.1.0/24", "podCIDRs": ["10.1.1.0/24", "fd01::/64"]});
        let known = known(
            &[
                node("n1", &both),
                node("n2", &json!({"podCIDR": "10.1.2.0/24"})),
                node("n3", &json!({})),
            ],
            "n1",
        );
        let text = |prefixes: &[Prefix]| -> Vec<String> {
            prefixes.iter().map(ToString::to_string).collect()
        };
        assert_eq!(text(&known.own), ["10.1.1.0/24", "fd01::/64"]);
        let names: Vec<&String> = known.others.keys().collect();
        assert_eq!(names, ["n2", "n3"]);
        let peer = known.others.get("n2").unwrap();
        assert_eq!(text(&peer.pods), ["10.1.2.0/24"]);
        let addresses: Vec<String> = peer.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["172.16.0.2", "fd16::2"]);
        assert!(known.others.get("n3").unwrap().pods.is_empty());
    }

    /// ATT-06a: what else a node says of its tunnels is not taken.
    #[test]
    fn a_node_may_have_tunnels_at_its_own_addresses_and_where_its_annotation_says() {
        let plain = node("n1", &json!({}));
        let mut said: ApiNode = (*node("n2", &json!({}))).clone();
        let text = "198.51.100.7, fd16::7,nonsense".to_owned();
        said.metadata.annotations = Some(
            [
                (VTEPS_ANNOTATION.to_owned(), text),
                ("other".to_owned(), "x".to_owned()),
            ]
            .into(),
        );
        trim(&mut said);
        assert_eq!(said.annotations().len(), 1, "nobody reads the others");
        let facts = facts(&[plain, Arc::new(said)]);
        let of = |name: &str| -> Vec<String> {
            let addresses = facts.get(name).unwrap().addresses.iter();
            addresses.map(ToString::to_string).collect()
        };
        assert_eq!(of("n1"), ["172.16.0.2", "192.0.2.2", "fd16::2"]);
        assert_eq!(
            of("n2"),
            [
                "172.16.0.2",
                "192.0.2.2",
                "198.51.100.7",
                "fd16::2",
                "fd16::7"
            ]
        );
        proof::of!("ATT-06a");
    }

    /// KEP-DEF-6: a Node that registers again in the middle does not lead pods back.
    #[test]
    fn a_node_that_is_gone_for_a_moment_keeps_its_default_network() {
        let mut led: ApiNode = (*node("n1", &json!({}))).clone();
        let long = "x".repeat(1000);
        let annotate = |led: &mut ApiNode, text: &str| {
            led.metadata.annotations =
                Some([(NODE_DEFAULT_ANNOTATION.to_owned(), text.to_owned())].into());
            trim(led);
        };
        annotate(&mut led, &long);
        let of = |led: &ApiNode| own(&[Arc::new(led.clone())], "n1");
        assert_eq!(
            of(&led).default_network.map(|it| it.len()),
            Some(NODE_DEFAULT_MAX)
        );
        annotate(&mut led, "podnetwork:green");
        let mut known = None;
        assert!(of(&led).replace(&mut known));
        assert!(!of(&led).replace(&mut known));
        assert!(OwnNode::default().replace(&mut known));
        let default = |known: &Option<OwnNode>| known.clone().unwrap().default_network;
        assert_eq!(default(&known).as_deref(), Some("podnetwork:green"));
        // Taken away by somebody, it is away.
        assert!(own(&[node("n1", &json!({}))], "n1").replace(&mut known));
        assert_eq!(default(&known), None);
        proof::of!("KEP-DEF-6");
    }

    #[test]
    fn tunnels_end_at_the_internal_addresses_of_a_node_that_is_there() {
        let nodes = [node("n1", &json!({}))];
        let here = own(&nodes, "n1");
        let addresses: Vec<String> = here.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(
            (here.exists, addresses.join(" ")),
            (true, "172.16.0.2 fd16::2".to_owned())
        );
        assert_eq!(own(&nodes, "n2"), OwnNode::default());
    }
}
