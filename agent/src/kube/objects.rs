//! The objects of the cluster that say which networks there are.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use api::{
    AttachmentParameters, IpamClaim, NetworkAttachmentDefinition, Object, Origin, PodNetwork,
    PodNetworkAttachment, PodNetworkParameters, Resource as ApiResource,
};
use futures_util::FutureExt as _;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use super::Work;
use super::watch::{Kind, follow};
use crate::world::{Claim, Definition, World};

/// Objects that are applied together come in one after the other.
const SETTLE: Duration = Duration::from_millis(20);

/// Copies of all objects of the kinds that matter.
#[derive(Debug)]
pub(super) struct Objects {
    networks: Copied<PodNetwork>,
    attachments: Copied<PodNetworkAttachment>,
    network_parameters: Copied<PodNetworkParameters>,
    attachment_parameters: Copied<AttachmentParameters>,
    definitions: Copied<NetworkAttachmentDefinition>,
    claims: Copied<IpamClaim>,
    changed: Arc<Notify>,
}

/// All objects of one kind. One that this version cannot read is kept as the reason why.
#[derive(Debug)]
struct Copied<K: Resource<DynamicType = ()> + 'static> {
    kind: Arc<Kind>,
    store: Store<DeserializeGuard<K>>,
}

impl Objects {
    /// The copies, and the work that fills them.
    pub(super) fn new(client: &Client) -> (Self, Vec<Work>) {
        let changed = Arc::new(Notify::new());
        let mut work = Vec::new();
        let this = Self {
            networks: copy(client, "podnetworks", false, &changed, &mut work),
            attachments: copy(client, "podnetworkattachments", false, &changed, &mut work),
            network_parameters: copy(client, "podnetworkparameters", false, &changed, &mut work),
            attachment_parameters: copy(client, "attachmentparameters", false, &changed, &mut work),
            definitions: copy(
                client,
                "network-attachment-definitions",
                true,
                &changed,
                &mut work,
            ),
            claims: copy(client, "ipamclaims", true, &changed, &mut work),
            changed,
        };
        (this, work)
    }

    /// Waits for a change, and until what belongs to it has come too.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
        tokio::time::sleep(SETTLE).await;
    }

    /// What the copies say. Half of them say nothing: a network whose parameters were not read yet
    /// would look like one without.
    pub(super) fn world(&self) -> World {
        let kinds = [
            &self.networks.kind,
            &self.attachments.kind,
            &self.network_parameters.kind,
            &self.attachment_parameters.kind,
            &self.definitions.kind,
            &self.claims.kind,
        ];
        let unread: Vec<String> = kinds.into_iter().filter_map(|kind| kind.unread()).collect();
        if !unread.is_empty() {
            return World::unread(unread);
        }
        let (mut objects, mut broken) = (Vec::new(), Vec::new());
        self.networks.collect(&mut objects, &mut broken);
        self.attachments.collect(&mut objects, &mut broken);
        self.network_parameters.collect(&mut objects, &mut broken);
        self.attachment_parameters
            .collect(&mut objects, &mut broken);
        let definitions = self.definitions.map(&mut broken, |object| Definition {
            annotations: object.metadata.annotations.clone().unwrap_or_default(),
            config: object.spec.config.clone(),
        });
        let claims = self.claims.map(&mut broken, |object| Claim {
            network: object.spec.network.clone(),
            interface: object.spec.interface.clone(),
            ips: object
                .status
                .as_ref()
                .map(|status| status.ips.clone())
                .unwrap_or_default(),
        });
        broken.sort();
        World {
            resolved: api::resolve(objects),
            definitions,
            claims,
            broken,
            unread,
        }
    }
}

impl<K> Copied<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
{
    fn collect(&self, objects: &mut Vec<Object>, broken: &mut Vec<String>)
    where
        for<'a> ApiResource: From<&'a K>,
    {
        let readable = self.map(broken, |object| ApiResource::from(object));
        objects.extend(readable.into_values().map(|resource| Object {
            origin: Origin::api_server(),
            resource,
        }));
    }

    /// What `f` makes of every object that can be read, by namespace and name.
    fn map<T>(
        &self,
        broken: &mut Vec<String>,
        f: impl Fn(&K) -> T,
    ) -> BTreeMap<(String, String), T> {
        let mut found = BTreeMap::new();
        for object in self.store.state() {
            let name = (object.namespace().unwrap_or_default(), object.name_any());
            match &object.0 {
                Ok(object) => {
                    found.insert(name, f(object));
                }
                Err(invalid) => {
                    let (namespace, name) = name;
                    let separator = if namespace.is_empty() { "" } else { "/" };
                    let kind = K::kind(&());
                    broken.push(format!("{kind} {namespace}{separator}{name}: {invalid}"));
                }
            }
        }
        found
    }
}

fn copy<K>(
    client: &Client,
    name: &'static str,
    optional: bool,
    changed: &Arc<Notify>,
    work: &mut Vec<Work>,
) -> Copied<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    let kind = Kind::new(name, optional, changed);
    let writer = Writer::<DeserializeGuard<K>>::default();
    let store = writer.as_reader();
    let api: Api<DeserializeGuard<K>> = Api::all(client.clone());
    let follow = follow(
        Arc::clone(&kind),
        writer,
        api,
        watcher::Config::default(),
        trim,
    );
    work.push(follow.boxed());
    Copied { kind, store }
}

/// Who wrote which field is most of a small object.
fn trim<K: Resource>(object: &mut K) {
    let meta = object.meta_mut();
    meta.managed_fields = None;
    meta.owner_references = None;
    meta.finalizers = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}
