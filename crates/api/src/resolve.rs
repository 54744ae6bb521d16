//! Resolves objects to networks: follows references, gives reasons for refusals.
//!
//! A network that cannot be used has one reason.

mod error;
mod index;
mod numbers;
mod routing;
mod several;
#[cfg(test)]
mod tests;
mod transports;
mod tunnels;
mod vpcs;
mod wires;

pub use error::ResolveError;
pub use several::{Outcome, Told};
pub use transports::decided_transport;
pub use vpcs::{PeerState, RouteTo, VpcPeer, VpcState};

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use crate::{
    listed::PROBLEMS_MAX,
    manifest::{Object, Origin},
    meta::Kind,
    nad::DefinitionParameters,
    validate::{AttachmentRequest, Network, NetworkId},
};
use index::Index;
use vpcs::Vpcs;

/// A parameterised attachment: the network, and what is asked of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// Name of the `PodNetwork`; [`Resolved::network`] tells whether it can be used.
    pub network: String,
    /// Everything the attachment's parameters ask for.
    pub request: AttachmentRequest,
}

/// Whether a network can be attached to, in the form of a Kubernetes condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// Name of the network.
    pub name: String,
    /// True when new attachments are accepted.
    pub ready: bool,
    /// One CamelCase word for programs; `Ready` when ready.
    pub reason: &'static str,
    /// A sentence for people; empty when ready.
    pub message: String,
}

/// An error of an object, apart from any reference to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where the object was read.
    pub origin: Origin,
    /// The object's kind.
    pub kind: Kind,
    /// The object's name, with its namespace where it has one.
    pub name: String,
    /// The error.
    pub error: ResolveError,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} {}: {}",
            self.origin, self.kind, self.name, self.error
        )
    }
}

/// All objects with their references followed.
///
/// Plain data; a change of any object makes a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    networks: BTreeMap<String, NetworkEntry>,
    attachments: BTreeMap<(String, String), Result<Attachment, ResolveError>>,
    problems: Vec<Problem>,
    vpcs: Vpcs,
    /// Network that this node routes for by its own annotation.
    router: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NetworkEntry {
    /// Known also for networks that take no new attachments.
    definition: Option<Network>,
    /// Why new attachments are refused.
    refusal: Option<ResolveError>,
}

impl Resolved {
    /// The network, if new attachments may be made to it.
    ///
    /// # Errors
    /// It does not exist, is disabled, belongs to another provider, is defined twice, shares its
    /// id, or its parameters are missing or invalid.
    pub fn network(&self, name: &str) -> Result<&Network, ResolveError> {
        let Some(entry) = self.networks.get(name) else {
            return Err(ResolveError::NetworkNotFound {
                name: name.to_owned(),
            });
        };
        match (&entry.refusal, &entry.definition) {
            (None, Some(network)) => Ok(network),
            (Some(refusal), _) => Err(refusal.clone()),
            // `network_entry` builds no such pair.
            (None, None) => Err(ResolveError::NetworkNotFound {
                name: name.to_owned(),
            }),
        }
    }

    /// Returns the definition of the network, even if it takes no new attachments.
    ///
    /// It takes none when it is disabled, or its id is another's too. Existing ports keep running on it.
    #[must_use]
    pub fn definition(&self, name: &str) -> Option<&Network> {
        self.networks.get(name)?.definition.as_ref()
    }

    /// Returns all networks as [`Self::definition`] does.
    pub fn definitions(&self) -> impl Iterator<Item = &Network> {
        let all = self.networks.values();
        all.filter_map(|it| it.definition.as_ref())
    }

    /// Returns the network that the node routes for, if there is one.
    ///
    /// It may be one that takes no new attachments.
    #[must_use]
    pub fn routed_by_node(&self) -> Option<&Network> {
        let router = self.router.as_ref();
        self.definition(router.or_else(|| routing::holder(&self.networks))?)
    }

    /// Names of all `PodNetwork` objects, in order.
    pub fn network_names(&self) -> impl Iterator<Item = &str> {
        self.networks.keys().map(String::as_str)
    }

    /// The networks that take new attachments, by name.
    pub fn ready_networks(&self) -> impl Iterator<Item = &Network> {
        self.networks
            .values()
            .filter(|entry| entry.refusal.is_none())
            .filter_map(|entry| entry.definition.as_ref())
    }

    /// One status for each `PodNetwork`, by name.
    pub fn statuses(&self) -> impl Iterator<Item = NetworkStatus> {
        self.networks.iter().map(|(name, entry)| NetworkStatus {
            name: name.clone(),
            ready: entry.refusal.is_none(),
            reason: entry.refusal.as_ref().map_or("Ready", ResolveError::reason),
            message: entry
                .refusal
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
        })
    }

    /// Returns the valid parameterised attachments.
    ///
    /// Their networks may be unusable.
    pub fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        self.attachments
            .values()
            .filter_map(|found| found.as_ref().ok())
    }

    /// The parameterised attachment of this name.
    ///
    /// # Errors
    /// It does not exist, is defined twice, or its parameters are missing, invalid or contradict
    /// each other. A network that cannot be used is no error here.
    pub fn attachment(&self, namespace: &str, name: &str) -> Result<&Attachment, ResolveError> {
        match self
            .attachments
            .get(&(namespace.to_owned(), name.to_owned()))
        {
            Some(Ok(attachment)) => Ok(attachment),
            Some(Err(error)) => Err(error.clone()),
            None => Err(ResolveError::AttachmentNotFound {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
        }
    }

    /// Returns objects that are wrong by themselves: double, or invalid parameters.
    ///
    /// They may be unused.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

/// Follows every reference between `objects`, where no definitions are.
#[must_use]
pub fn resolve(objects: impl IntoIterator<Item = Object>) -> Resolved {
    resolve_with(objects, |_, _| None)
}

/// Follows every reference between `objects`, and from networks to definitions.
///
/// `definition` reads the `NetworkAttachmentDefinition` with a namespace and a name, if there is one; only
/// those are asked for that a network names.
#[must_use]
pub fn resolve_with(
    objects: impl IntoIterator<Item = Object>,
    definition: impl Fn(&str, &str) -> Option<DefinitionParameters>,
) -> Resolved {
    let (mut index, problems) = Index::build(objects);
    index.read_definitions(definition);
    let mut networks: BTreeMap<_, _> = index
        .networks
        .iter()
        .map(|(key, slot)| (key.name.clone(), index.network_entry(&key.name, slot)))
        .collect();
    refuse_shared_ids(&mut networks);
    routing::refuse_second(&mut networks);
    wires::refuse_second_owners(&mut networks);
    let vpcs = Vpcs::of(&index.vpcs, &index.ages, &mut networks);
    let attachments = index
        .attachments
        .iter()
        .map(|(key, slot)| {
            let attachment = index.attachment(key, slot, &networks);
            ((key.namespace.clone(), key.name.clone()), attachment)
        })
        .collect();
    Resolved {
        networks,
        attachments,
        problems,
        vpcs,
        router: None,
    }
}

/// Refuses networks that share an id.
///
/// Two networks with one id would be one network to the datapath. A disabled one counts: its ports are
/// still there.
fn refuse_shared_ids(networks: &mut BTreeMap<String, NetworkEntry>) {
    let mut holders: BTreeMap<NetworkId, Vec<String>> = BTreeMap::new();
    for (name, entry) in networks.iter() {
        if let Some(id) = entry.definition.as_ref().and_then(|network| network.id) {
            holders.entry(id).or_default().push(name.clone());
        }
    }
    for (id, names) in holders.iter().filter(|(_, names)| names.len() > 1) {
        for name in names {
            let Some(entry) = networks.get_mut(name) else {
                continue;
            };
            let others = names.iter().filter(|other| *other != name);
            let others: Vec<String> = others.take(PROBLEMS_MAX).cloned().collect();
            let more = names.len() - 1 - others.len();
            entry
                .refusal
                .get_or_insert_with(|| ResolveError::NetworkIdConflict {
                    name: name.clone(),
                    id: *id,
                    others,
                    more,
                });
        }
    }
}
