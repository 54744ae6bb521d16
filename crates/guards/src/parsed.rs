//! Policies by network, read once for each change of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::nad::{Definition, Meaning, NetworkRef, read_definition};
use api::{PolicyKind, PolicyNetworks, PolicyObject};
use book::record::NetworkFacts;
use policy::{Kind, Namespaces, Pods, Policy, PolicyId, Read, Tier};
use world::World;
use world::policies::PolicyWorld;

/// All policies, as they are compiled.
#[derive(Debug)]
pub(crate) struct Parsed {
    policies: Arc<PolicyWorld>,
    world: Arc<World>,
    read: Vec<Arc<Read>>,
    by_network: BTreeMap<String, Vec<Policy>>,
    /// Policies that name no network.
    by_default: Vec<Policy>,
    /// Networks of each policy, and problems with finding them.
    pub(crate) places: Vec<Place>,
}

/// The networks that a policy is for.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// Names of PodNetworks, sorted.
    pub(crate) networks: Vec<String>,
    /// Reasons for which it is not in force somewhere.
    pub(crate) problems: Vec<String>,
}

impl Parsed {
    /// Reads all policies; those of `before` are not read again.
    pub(crate) fn new(
        policies: &Arc<PolicyWorld>,
        world: &Arc<World>,
        before: Option<&Self>,
    ) -> Self {
        let known: BTreeMap<_, _> = before
            .into_iter()
            .flat_map(|it| it.policies.policies.iter().zip(&it.read))
            .map(|(object, read)| (object.key(), (object, read)))
            .collect();
        let (mut read, mut places) = (Vec::new(), Vec::new());
        let mut by_network: BTreeMap<String, Vec<Policy>> = BTreeMap::new();
        let mut by_default = Vec::new();
        for object in &policies.policies {
            let again = known.get(&object.key());
            let one = match again.filter(|(before, _)| *before == object) {
                Some((_, read)) => Arc::clone(read),
                None => Arc::new(read_policy(object)),
            };
            let place = place(object, world);
            if object.networks == PolicyNetworks::Default {
                by_default.push(one.policy.clone());
            }
            for network in &place.networks {
                let list = by_network.entry(network.clone()).or_default();
                list.push(one.policy.clone());
            }
            read.push(one);
            places.push(place);
        }
        Self {
            policies: Arc::clone(policies),
            world: Arc::clone(world),
            read,
            by_network,
            by_default,
            places,
        }
    }

    /// Reports whether it was made of these.
    pub(crate) fn is_of(&self, policies: &Arc<PolicyWorld>, world: &Arc<World>) -> bool {
        let same =
            Arc::ptr_eq(&self.policies, policies) || self.policies.policies == policies.policies;
        let networks = Arc::ptr_eq(&self.world, world)
            || self.world.definitions == world.definitions && self.world.resolved == world.resolved;
        same && networks
    }

    /// The policies of a network.
    ///
    /// One that the node routes for keeps them when its object is gone and pods of it are there still.
    pub(crate) fn of(&self, network: &NetworkFacts) -> &[Policy] {
        match self.by_network.get(&network.name) {
            Some(policies) => policies,
            None if network.by_node => &self.by_default,
            None => &[],
        }
    }

    /// Reports whether no policy is for any network of podnet.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_network.is_empty()
    }

    /// All policies as they are written and as they are read, with their networks.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&PolicyObject, &Read, &Place)> {
        let objects = self.policies.policies.iter().map(|object| &**object);
        let read = self.read.iter().map(|read| &**read);
        let both = objects.zip(read).zip(&self.places);
        both.map(|((object, read), place)| (object, read, place))
    }
}

fn kind(kind: PolicyKind) -> Kind {
    match kind {
        PolicyKind::NetworkPolicy => Kind::NetworkPolicy,
        PolicyKind::MultiNetworkPolicy => Kind::MultiNetworkPolicy,
        PolicyKind::ClusterNetworkPolicy => Kind::ClusterNetworkPolicy,
    }
}

/// Reads a policy; one that cannot be read isolates all pods that it may be for.
fn read_policy(object: &PolicyObject) -> Read {
    let kind = kind(object.kind);
    let read = match kind {
        Kind::ClusterNetworkPolicy => policy::cluster(&object.name, &object.spec),
        Kind::NetworkPolicy | Kind::MultiNetworkPolicy => {
            policy::network(kind, &object.namespace, &object.name, &object.spec)
        }
    };
    read.unwrap_or_else(|problem| Read {
        policy: Policy {
            id: PolicyId {
                kind,
                namespace: object.namespace.clone(),
                name: object.name.clone(),
            },
            tier: Tier::Network,
            priority: 0,
            subject: Pods {
                namespaces: match kind {
                    Kind::ClusterNetworkPolicy => Namespaces::Matching(policy::Selector::default()),
                    Kind::NetworkPolicy | Kind::MultiNetworkPolicy => {
                        Namespaces::Named(object.namespace.clone())
                    }
                },
                pods: policy::Selector::default(),
            },
            isolates_ingress: true,
            isolates_egress: true,
            ingress: Vec::new(),
            egress: Vec::new(),
        },
        problems: vec![problem],
    })
}

/// Finds the networks that a policy is for.
fn place(object: &PolicyObject, world: &World) -> Place {
    let mut place = Place::default();
    match &object.networks {
        PolicyNetworks::Default => match world.resolved.routed_by_node() {
            Some(network) => place.networks.push(network.name.clone()),
            None => place.problems.push(
                "podnet does not enforce it on the default network, which is not one of routing: Node: name the \
                 networks that it is for in the annotation podnet.dev/networks"
                    .to_owned(),
            ),
        },
        PolicyNetworks::PodNetworks(names) => place.networks.clone_from(names),
        PolicyNetworks::Definitions(names) => {
            for (namespace, name) in names {
                match network_of(world, namespace, name) {
                    Ok(network) => place.networks.push(network),
                    Err(problem) => place.problems.push(problem),
                }
            }
        }
    }
    place.networks.sort();
    place.networks.dedup();
    place
}

/// Returns the PodNetwork that a definition leads to.
///
/// # Errors
/// The reason for which it leads to none, and the remedy.
fn network_of(world: &World, namespace: &str, name: &str) -> Result<String, String> {
    let known = world
        .definitions
        .get(&(namespace.to_owned(), name.to_owned()));
    let Some(found) = known else {
        return Err(format!(
            "there is no NetworkAttachmentDefinition {namespace}/{name}: create it, or correct the annotation"
        ));
    };
    let definition = Definition {
        namespace,
        name,
        annotations: &found.annotations,
        config: &found.config,
    };
    let meaning = read_definition(&definition)
        .map_err(|error| error.to_string())?
        .meaning;
    let (by_attachment, network) = match meaning {
        Meaning::ByName(network) => (None, network),
        Meaning::Own(own) => match own.network {
            NetworkRef::PodNetwork(network) => (None, network),
            NetworkRef::Attachment { namespace, name } => (Some((namespace, name)), String::new()),
        },
        Meaning::Delegate(_) => {
            return Err(format!(
                "NetworkAttachmentDefinition {namespace}/{name} is of another plugin, whose networks podnet \
                 does not judge: name one of podnet's"
            ));
        }
    };
    let Some((namespace, name)) = by_attachment else {
        return Ok(network);
    };
    let attachment = world.resolved.attachment(&namespace, &name);
    attachment
        .map(|it| it.network.clone())
        .map_err(|error| error.to_string())
}
