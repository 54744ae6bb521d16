//! Read the needs of a new pod's networks, from the objects that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::nad::{self, Meaning, NetworkRef, read_definition};
use api::selection::{PodSelection, Target};
use api::{Kind, Object, Origin, ParametersRef, Resource};
use world::{Definition, World};

use super::lookup::{Asked, Lookup, all};
use super::review::named;

/// The annotation of a network that says on which nodes it is (NRI-07).
pub const NODE_SELECTOR_ANNOTATION: &str = "k8s.v1.cni.cncf.io/nodeSelector";

/// A wish of a network for the nodes of its pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeWish {
    /// The object that has it.
    pub object: Target,
    /// [`NODE_SELECTOR_ANNOTATION`].
    pub text: String,
}

/// Objects, nodes and missing references of a pod's networks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// The objects, as the agents will see them.
    pub world: World,
    /// On which nodes they are; each object once.
    pub nodes: Vec<NodeWish>,
    /// Referenced objects that do not exist.
    pub absent: BTreeSet<Target>,
}

/// Objects that one reference leads to.
#[derive(Debug, Default)]
struct Found {
    resources: Vec<Resource>,
    definitions: Vec<((String, String), Definition)>,
    nodes: Vec<NodeWish>,
    absent: Vec<Target>,
}

impl Wants {
    /// Asks the API server for all objects a pod names, and those they name, each once.
    ///
    /// # Errors
    /// When it does not answer, or too much would have to be asked.
    pub async fn read(lookup: &Lookup, selection: &PodSelection) -> Asked<Self> {
        let targets: BTreeSet<&Target> = named(selection).map(|named| &named.target).collect();
        let found = targets.into_iter().map(|target| follow(lookup, target));
        Ok(Self::of(all(found.collect()).await?))
    }

    fn of(all: Vec<Found>) -> Self {
        let mut wants = Self::default();
        // Several references can lead to the same.
        let mut objects: BTreeMap<(Kind, Option<String>, String), Resource> = BTreeMap::new();
        for found in all {
            for resource in found.resources {
                let metadata = resource.metadata();
                let key = (
                    resource.kind(),
                    metadata.namespace.clone(),
                    metadata.name.clone(),
                );
                objects.insert(key, resource);
            }
            wants.world.definitions.extend(found.definitions);
            for wish in found.nodes {
                if !wants.nodes.contains(&wish) {
                    wants.nodes.push(wish);
                }
            }
            wants.absent.extend(found.absent);
        }
        let objects = objects.into_values().map(|resource| Object {
            origin: Origin::api_server(),
            resource,
        });
        wants.world.resolved = world::resolve(objects, &wants.world.definitions);
        wants
    }
}

async fn follow(lookup: &Lookup, target: &Target) -> Asked<Found> {
    let mut found = Found::default();
    let network = match target {
        Target::PodNetwork(name) => Some(name.clone()),
        Target::Attachment { namespace, name } => found.attachment(lookup, namespace, name).await?,
        Target::Definition { namespace, name } => found.definition(lookup, namespace, name).await?,
    };
    if let Some(network) = network {
        found.network(lookup, network).await?;
    }
    Ok(found)
}

impl Found {
    fn wish(&mut self, object: &Target, annotations: Option<&BTreeMap<String, String>>) {
        let text = annotations.and_then(|annotations| annotations.get(NODE_SELECTOR_ANNOTATION));
        self.nodes.extend(text.map(|text| NodeWish {
            object: object.clone(),
            text: text.clone(),
        }));
    }

    async fn network(&mut self, lookup: &Lookup, name: String) -> Asked<()> {
        let read = lookup.networks("", &name).await?;
        let target = Target::PodNetwork(name);
        // What cannot be read is told to the pod when it is attached.
        let Ok(network) = read else {
            return Ok(());
        };
        let Some(network) = network else {
            self.absent.push(target);
            return Ok(());
        };
        self.wish(&target, network.metadata.annotations.as_ref());
        for reference in of_kind(&network.spec.parameters_refs, Kind::PodNetworkParameters) {
            let read = lookup.network_parameters("", &reference.name).await?;
            self.resources
                .extend(read.ok().flatten().as_deref().map(Resource::from));
        }
        for reference in &network.spec.parameters_refs {
            let Some(namespace) = reference.namespace.as_ref() else {
                continue;
            };
            if reference.names_definition() {
                let read = lookup.definitions(namespace, &reference.name).await?;
                let found = read.ok().flatten().map(Arc::unwrap_or_clone);
                self.definitions.extend(found.map(Definition::of));
            }
        }
        self.resources.push(Resource::from(&*network));
        Ok(())
    }

    /// The network of an attachment.
    async fn attachment(
        &mut self,
        lookup: &Lookup,
        namespace: &str,
        name: &str,
    ) -> Asked<Option<String>> {
        let target = Target::Attachment {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let Ok(found) = lookup.attachments(namespace, name).await? else {
            return Ok(None);
        };
        let Some(found) = found else {
            self.absent.push(target);
            return Ok(None);
        };
        self.wish(&target, found.metadata.annotations.as_ref());
        for reference in of_kind(&found.spec.parameters_refs, Kind::AttachmentParameters) {
            let namespace = reference.namespace.as_deref().unwrap_or(namespace);
            let read = lookup
                .attachment_parameters(namespace, &reference.name)
                .await?;
            self.resources
                .extend(read.ok().flatten().as_deref().map(Resource::from));
        }
        self.resources.push(Resource::from(&*found));
        Ok(Some(found.spec.pod_network_name.clone()))
    }

    /// The network of a definition, if it is one of ours.
    async fn definition(
        &mut self,
        lookup: &Lookup,
        namespace: &str,
        name: &str,
    ) -> Asked<Option<String>> {
        let target = Target::Definition {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let Ok(found) = lookup.definitions(namespace, name).await? else {
            return Ok(None);
        };
        let Some(found) = found else {
            self.absent.push(target);
            return Ok(None);
        };
        self.wish(&target, found.metadata.annotations.as_ref());
        let (key, definition) = Definition::of(Arc::unwrap_or_clone(found));
        let read = read_definition(&nad::Definition {
            namespace,
            name,
            annotations: &definition.annotations,
            config: &definition.config,
        });
        let meaning = read.map(|read| read.meaning);
        self.definitions.push((key, definition));
        match meaning {
            Ok(Meaning::ByName(network)) => Ok(Some(network)),
            Ok(Meaning::Own(own)) => match own.network {
                NetworkRef::PodNetwork(network) => Ok(Some(network)),
                NetworkRef::Attachment { namespace, name } => {
                    self.attachment(lookup, &namespace, &name).await
                }
            },
            Ok(Meaning::Delegate(_)) | Err(_) => Ok(None),
        }
    }
}

/// References to parameters of ours.
fn of_kind(references: &[ParametersRef], kind: Kind) -> impl Iterator<Item = &ParametersRef> {
    let is_ours = move |reference: &&ParametersRef| {
        reference.group == api::GROUP && reference.kind == kind.as_str()
    };
    references.iter().filter(is_ours)
}

#[cfg(test)]
impl Wants {
    /// Of objects as they are written.
    pub(super) fn of_manifests(text: &str) -> Self {
        let objects = api::parse_manifests("objects", text).into_iter();
        let definitions = api::parse_definitions("objects", text).into_iter();
        let resources = objects.map(|object| object.expect("a manifest").resource);
        let mut all = vec![Found {
            resources: resources.collect(),
            ..Found::default()
        }];
        all.extend(definitions.map(|definition| {
            let definition = definition.expect("a manifest");
            let mut found = Found::default();
            let (namespace, name) = (
                definition.metadata.namespace.clone(),
                definition.metadata.name.clone(),
            );
            let target = Target::Definition {
                namespace: namespace.expect("a namespace"),
                name: name.expect("a name"),
            };
            found.wish(&target, definition.metadata.annotations.as_ref());
            found.definitions.push(Definition::of(definition));
            found
        }));
        Self::of(all)
    }
}
