//! Copies of everything the controller decides by.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use api::{
    AttachmentParameters, IpBlock, IpReservation, IpamClaim, NODE_DEFAULT_ANNOTATION,
    NODE_DEFAULT_MAX, NetworkAttachmentDefinition, PodNetwork, PodNetworkAttachment,
    PodNetworkEndpointSlice, PodNetworkParameters, Port, Vpc,
};
use cluster::Work;
use cluster::copied::{self, Copied, Copier, Guarded, Key, settled, trim, trim_all};
use cluster::watch::Progress;
use k8s_openapi::api::core::v1::Node;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Config;
use kube::{Client, Resource, ResourceExt as _};
use tokio::sync::Notify;

use super::pod::Pod;
use super::view::{self, View};

/// The copies.
#[derive(Debug)]
pub struct Copies {
    networks: Guarded<PodNetwork>,
    attachments: Guarded<PodNetworkAttachment>,
    network_parameters: Guarded<PodNetworkParameters>,
    attachment_parameters: Guarded<AttachmentParameters>,
    definitions: Guarded<NetworkAttachmentDefinition>,
    claims: Guarded<IpamClaim>,
    vpcs: Guarded<Vpc>,
    ports: Guarded<Port>,
    blocks: Guarded<IpBlock>,
    reservations: Guarded<IpReservation>,
    slices: Copied<PartialObjectMeta<PodNetworkEndpointSlice>>,
    pods: Copied<Pod>,
    nodes: Copied<PartialObjectMeta<Node>>,
    changed: Arc<Notify>,
}

impl Copies {
    /// The copies, and the work that fills them.
    pub fn new(client: &Client) -> (Self, Vec<Work>) {
        let changed = Arc::new(Notify::new());
        let mut make = Copier::new(client, &changed);
        let this = Self {
            networks: make.needed("podnetworks"),
            attachments: make.needed("podnetworkattachments"),
            network_parameters: make.needed("podnetworkparameters"),
            attachment_parameters: make.needed("attachmentparameters"),
            definitions: make.optional("network-attachment-definitions"),
            claims: make.optional("ipamclaims"),
            // Not there in a cluster whose definitions are of before.
            vpcs: make.kept("vpcs"),
            ports: make.kept("ports"),
            blocks: make.needed("ipblocks"),
            reservations: make.needed("ipreservations"),
            // Most of a slice are members, and nobody here reads them.
            slices: make.copy("podnetworkendpointslices", true, Config::default(), labels),
            pods: make.copy("pods", false, Config::default(), trim_pod),
            nodes: make.copy("nodes", false, Config::default(), trim_node),
            changed,
        };
        (this, make.work())
    }

    /// Waits for a change, and until what belongs to it has come too.
    pub async fn changed(&self) {
        settled(&self.changed).await;
    }

    /// Returns the kinds that were never read, each with the reason.
    ///
    /// Nothing can be decided by a part of the copies.
    pub fn unread(&self) -> Vec<String> {
        let kinds = [
            &self.networks.kind,
            &self.attachments.kind,
            &self.network_parameters.kind,
            &self.attachment_parameters.kind,
            &self.definitions.kind,
            &self.claims.kind,
            &self.vpcs.kind,
            &self.ports.kind,
            &self.blocks.kind,
            &self.reservations.kind,
            &self.slices.kind,
            &self.pods.kind,
            &self.nodes.kind,
        ];
        copied::unread(kinds)
    }

    /// Reads the copies into a view of the cluster.
    pub fn view(&self) -> View {
        let mut unreadable = Vec::new();
        let mut view = View {
            attachments: by_key(&self.attachments, &mut unreadable),
            network_parameters: list(&self.network_parameters, &mut unreadable),
            attachment_parameters: list(&self.attachment_parameters, &mut unreadable),
            vpcs: list(&self.vpcs, &mut unreadable),
            ports: by_key(&self.ports, &mut unreadable),
            blocks: list(&self.blocks, &mut unreadable),
            reservations: list(&self.reservations, &mut unreadable),
            slices: self.slices.store.state(),
            ..View::default()
        };
        let networks = by_key(&self.networks, &mut unreadable).into_iter();
        view.networks = networks.map(|((_, name), it)| (name, it)).collect();
        let definitions = by_key(&self.definitions, &mut unreadable);
        let named = view::named_definitions(&view.networks).into_iter();
        let named = named.filter_map(|key| definitions.get(&key).map(|it| (key, it)));
        view.definition_parameters = named.map(|(key, it)| (key, view::parameters(it))).collect();
        let definitions = definitions.into_iter();
        view.definitions = definitions
            .map(|(key, it)| (key, view::meaning(&it)))
            .collect();
        let pods = self.pods.store.state().into_iter();
        let key = |pod: &Pod| (pod.namespace().to_owned(), pod.name().to_owned());
        view.pods = pods.map(|pod| (key(&pod), pod)).collect();
        for node in self.nodes.store.state() {
            view.add_node(&node);
        }
        if *self.claims.kind.progress() == Progress::Read {
            // One that cannot be read is there all the same.
            let claims = self.claims.store.state().into_iter();
            let claims = claims.filter_map(|claim| {
                let ips = claim.0.as_ref().map(view::addresses_of);
                Some((claim.uid()?, ips.unwrap_or_default()))
            });
            view.claims = Some(claims.collect());
        }
        view.unreadable = unreadable;
        view
    }
}

/// Leaves the labels, by which policies select pods.
fn trim_pod(pod: &mut Pod) {
    let labels = pod.metadata.labels.take();
    trim(pod);
    pod.metadata.labels = labels;
}

/// Leaves the annotation about the default network.
fn trim_node(node: &mut PartialObjectMeta<Node>) {
    let annotations = node.metadata.annotations.take();
    trim_all(node);
    node.metadata.annotations = annotations.map(|mut all| {
        all.retain(|key, text| {
            text.truncate(text.floor_char_boundary(NODE_DEFAULT_MAX));
            key == NODE_DEFAULT_ANNOTATION
        });
        all
    });
}

/// Leaves the labels, which name the node.
fn labels(slice: &mut PartialObjectMeta<PodNetworkEndpointSlice>) {
    let labels = slice.metadata.labels.take();
    trim_all(slice);
    slice.metadata.labels = labels;
}

fn by_key<K>(copied: &Guarded<K>, unreadable: &mut Vec<String>) -> BTreeMap<Key, Arc<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
{
    copied.map(unreadable, |object| Arc::new(object.clone()))
}

fn list<K>(copied: &Guarded<K>, unreadable: &mut Vec<String>) -> Vec<Arc<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
{
    by_key(copied, unreadable).into_values().collect()
}
