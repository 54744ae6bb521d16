//! Copies of everything the controller decides by.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use api::{
    AttachmentParameters, IpBlock, IpReservation, IpamClaim, NetworkAttachmentDefinition,
    PodNetwork, PodNetworkAttachment, PodNetworkParameters,
};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use super::pod::Pod;
use super::view::{self, Key, View};
use crate::kube::watch::{Kind, Progress, follow};

/// Objects that are applied together come in one after the other.
const SETTLE: Duration = Duration::from_millis(20);

/// Annotations that nobody here reads and that can be long.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Work that never ends.
pub type Work = BoxFuture<'static, ()>;

/// The copies.
#[derive(Debug)]
pub struct Copies {
    networks: Guarded<PodNetwork>,
    attachments: Guarded<PodNetworkAttachment>,
    network_parameters: Guarded<PodNetworkParameters>,
    attachment_parameters: Guarded<AttachmentParameters>,
    definitions: Guarded<NetworkAttachmentDefinition>,
    claims: Guarded<IpamClaim>,
    blocks: Guarded<IpBlock>,
    reservations: Guarded<IpReservation>,
    pods: Copied<Pod>,
    nodes: Copied<PartialObjectMeta<Node>>,
    changed: Arc<Notify>,
}

/// All objects of one kind.
#[derive(Debug)]
struct Copied<K: Resource<DynamicType = ()> + 'static> {
    kind: Arc<Kind>,
    store: Store<K>,
}

/// All objects of one kind. One that this version cannot read is kept as the reason why.
type Guarded<K> = Copied<DeserializeGuard<K>>;

/// Makes copies.
struct Maker<'a> {
    client: &'a Client,
    changed: Arc<Notify>,
    work: Vec<Work>,
}

impl Copies {
    /// The copies, and the work that fills them.
    pub fn new(client: &Client) -> (Self, Vec<Work>) {
        let changed = Arc::new(Notify::new());
        let mut make = Maker {
            client,
            changed: Arc::clone(&changed),
            work: Vec::new(),
        };
        let this = Self {
            networks: make.needed("podnetworks"),
            attachments: make.needed("podnetworkattachments"),
            network_parameters: make.needed("podnetworkparameters"),
            attachment_parameters: make.needed("attachmentparameters"),
            definitions: make.optional("network-attachment-definitions"),
            claims: make.optional("ipamclaims"),
            blocks: make.needed("ipblocks"),
            reservations: make.needed("ipreservations"),
            pods: make.needed("pods"),
            nodes: make.copy("nodes", false, trim_all),
            changed,
        };
        (this, make.work)
    }

    /// Waits for a change, and until what belongs to it has come too.
    pub async fn changed(&self) {
        self.changed.notified().await;
        tokio::time::sleep(SETTLE).await;
    }

    /// What was never read, and why not; half of the copies say nothing.
    pub fn unread(&self) -> Vec<String> {
        let kinds = [
            &self.networks.kind,
            &self.attachments.kind,
            &self.network_parameters.kind,
            &self.attachment_parameters.kind,
            &self.definitions.kind,
            &self.claims.kind,
            &self.blocks.kind,
            &self.reservations.kind,
            &self.pods.kind,
            &self.nodes.kind,
        ];
        kinds.into_iter().filter_map(|kind| kind.unread()).collect()
    }

    /// What the copies say.
    pub fn view(&self) -> View {
        let mut unreadable = Vec::new();
        let mut view = View {
            attachments: self.attachments.by_key(&mut unreadable),
            network_parameters: self.network_parameters.list(&mut unreadable),
            attachment_parameters: self.attachment_parameters.list(&mut unreadable),
            blocks: self.blocks.list(&mut unreadable),
            reservations: self.reservations.list(&mut unreadable),
            ..View::default()
        };
        let networks = self.networks.by_key(&mut unreadable).into_iter();
        view.networks = networks.map(|((_, name), it)| (name, it)).collect();
        let definitions = self.definitions.by_key(&mut unreadable).into_iter();
        view.definitions = definitions
            .map(|(key, it)| (key, view::meaning(&it)))
            .collect();
        let pods = self.pods.store.state().into_iter();
        let key = |pod: &Pod| (pod.namespace().to_owned(), pod.name().to_owned());
        view.pods = pods.map(|pod| (key(&pod), pod)).collect();
        let nodes = self.nodes.store.state().into_iter();
        view.nodes = nodes
            .map(|node| (node.name_any(), node.uid().unwrap_or_default()))
            .collect();
        if *self.claims.kind.progress() == Progress::Read {
            // One that cannot be read is there all the same.
            let claims = self.claims.store.state().into_iter();
            let uids: BTreeSet<String> = claims.filter_map(|claim| claim.uid()).collect();
            view.claims = Some(uids);
        }
        view.unreadable = unreadable;
        view
    }
}

impl<K> Guarded<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
{
    fn list(&self, unreadable: &mut Vec<String>) -> Vec<Arc<K>> {
        self.by_key(unreadable).into_values().collect()
    }

    /// The objects that can be read; the others as the reason why not.
    fn by_key(&self, unreadable: &mut Vec<String>) -> BTreeMap<Key, Arc<K>> {
        let mut found = BTreeMap::new();
        for object in self.store.state() {
            let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
            match &object.0 {
                Ok(object) => {
                    found.insert((namespace, name), Arc::new(object.clone()));
                }
                Err(invalid) => {
                    let separator = if namespace.is_empty() { "" } else { "/" };
                    let kind = K::kind(&());
                    unreadable.push(format!("{kind} {namespace}{separator}{name}: {invalid}"));
                }
            }
        }
        found
    }
}

impl Maker<'_> {
    fn copy<K>(&mut self, name: &'static str, optional: bool, trim: fn(&mut K)) -> Copied<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    {
        let kind = Kind::new(name, optional, &self.changed);
        let writer = Writer::<K>::default();
        let store = writer.as_reader();
        let api = Api::all(self.client.clone());
        let config = watcher::Config::default();
        let follow = follow(Arc::clone(&kind), writer, api, config, trim);
        self.work.push(follow.boxed());
        Copied { kind, store }
    }

    /// Of a kind that a cluster may do without.
    fn optional<K>(&mut self, name: &'static str) -> Copied<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    {
        self.copy(name, true, trim)
    }

    fn needed<K>(&mut self, name: &'static str) -> Copied<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    {
        self.copy(name, false, trim)
    }
}

/// Who wrote which field is most of a small object.
fn trim<K: Resource>(object: &mut K) {
    let meta = object.meta_mut();
    meta.managed_fields = None;
    meta.owner_references = None;
    meta.labels = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

/// Leaves name and UID.
fn trim_all<K: Resource>(object: &mut K) {
    trim(object);
    object.meta_mut().annotations = None;
}
