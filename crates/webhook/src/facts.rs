//! Collect the objects that a pod names, as the cluster has them, for one review.
//!
//! The API server is asked in each review, so nothing is out of date; copies answer where it does not.

use std::collections::{BTreeMap, BTreeSet};

use api::nad::{Definition, Meaning, NetworkRef, PLUGIN_TYPE, PluginChain, read_definition};
use api::selection::{PodSelection, Target};

use super::lookup::{Asked, Lookup, all};
use super::review::named;

const ABSENT: &str = "does not exist";

/// Where a reference leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reached {
    /// To the `PodNetwork` of this name, which may not exist.
    Network(String),
    /// To plugins of others.
    Others,
    /// The reason for which it cannot be known.
    Unknown(String),
}

/// A reference, followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// Where it leads.
    pub reached: Reached,
    /// Object on the way that is being deleted.
    pub deleted: Option<Target>,
    /// The plugins of others that it leads to.
    pub chain: Option<PluginChain>,
    /// Namespace of the `PodNetworkAttachment` that a definition leads to.
    pub attachment_in: Option<String>,
}

/// Ways of a pod's references, by the object that each names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts(BTreeMap<Target, Way>);

impl FromIterator<(Target, Way)> for Facts {
    fn from_iter<I: IntoIterator<Item = (Target, Way)>>(ways: I) -> Self {
        Self(ways.into_iter().collect())
    }
}

impl Facts {
    /// Where a reference leads.
    pub fn reached(&self, target: &Target) -> Reached {
        let unknown = || Reached::Unknown("was not looked for".to_owned());
        self.0
            .get(target)
            .map_or_else(unknown, |way| way.reached.clone())
    }

    /// Returns the object that is being deleted, of the target and its network.
    pub fn being_deleted(&self, target: &Target) -> Option<Target> {
        self.0.get(target)?.deleted.clone()
    }

    /// The plugins of others that a reference leads to.
    pub fn chain(&self, target: &Target) -> Option<&PluginChain> {
        self.0.get(target)?.chain.as_ref()
    }

    /// Namespace of the `PodNetworkAttachment` that a definition leads to.
    pub fn attachment_in(&self, target: &Target) -> Option<&str> {
        self.0.get(target)?.attachment_in.as_deref()
    }

    /// Asks the API server for all objects a pod names, each once.
    ///
    /// # Errors
    /// When it does not answer, or too much would have to be asked.
    pub async fn read(lookup: &Lookup, selection: &PodSelection) -> Asked<Self> {
        let targets: BTreeSet<&Target> = named(selection).map(|named| &named.target).collect();
        let ways = targets.into_iter().map(|target| follow(lookup, target));
        Ok(all(ways.collect()).await?.into_iter().collect())
    }
}

async fn follow(lookup: &Lookup, target: &Target) -> Asked<(Target, Way)> {
    let mut way = match target {
        Target::PodNetwork(name) => Way::to(Reached::Network(name.clone())),
        Target::Attachment { namespace, name } => attachment(lookup, namespace, name).await?,
        Target::Definition { namespace, name } => definition(lookup, namespace, name).await?,
    };
    if let (Reached::Network(name), None) = (&way.reached, &way.deleted)
        && is_being_deleted(lookup, name).await?
    {
        way.deleted = Some(Target::PodNetwork(name.clone()));
    }
    Ok((target.clone(), way))
}

impl Way {
    /// A way on which nothing is being deleted.
    pub fn to(reached: Reached) -> Self {
        Self {
            reached,
            deleted: None,
            chain: None,
            attachment_in: None,
        }
    }

    /// Makes a way to plugins of others.
    ///
    /// One that comes back to podnet by one of them leads nowhere that could be asked about.
    pub fn to_others(chain: PluginChain) -> Self {
        if chain.leads_to(PLUGIN_TYPE) {
            return Self::unknown("has podnet among other plugins");
        }
        Self {
            chain: Some(chain),
            ..Self::to(Reached::Others)
        }
    }

    fn unknown(why: impl Into<String>) -> Self {
        Self::to(Reached::Unknown(why.into()))
    }
}

async fn is_being_deleted(lookup: &Lookup, network: &str) -> Asked<bool> {
    let found = lookup.network_metadata(network).await?;
    Ok(found.is_some_and(|found| found.deletion_timestamp.is_some()))
}

async fn attachment(lookup: &Lookup, namespace: &str, name: &str) -> Asked<Way> {
    Ok(match lookup.attachments(namespace, name).await? {
        Ok(Some(found)) => Way {
            reached: Reached::Network(found.spec.pod_network_name.clone()),
            deleted: found
                .metadata
                .deletion_timestamp
                .is_some()
                .then(|| Target::Attachment {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                }),
            chain: None,
            attachment_in: None,
        },
        Ok(None) => Way::unknown(ABSENT),
        Err(why) => Way::unknown(why),
    })
}

async fn definition(lookup: &Lookup, namespace: &str, name: &str) -> Asked<Way> {
    let found = match lookup.definitions(namespace, name).await? {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(Way::unknown(ABSENT)),
        Err(why) => return Ok(Way::unknown(why)),
    };
    let none = BTreeMap::new();
    let read = read_definition(&Definition {
        namespace,
        name,
        annotations: found.metadata.annotations.as_ref().unwrap_or(&none),
        config: &found.spec.config,
    });
    let own = match read.map(|read| read.meaning) {
        Ok(Meaning::ByName(network)) => return Ok(Way::to(Reached::Network(network))),
        Ok(Meaning::Delegate(chain)) => return Ok(Way::to_others(chain)),
        Err(error) => return Ok(Way::unknown(error.problem.to_string())),
        Ok(Meaning::Own(own)) => own.network,
    };
    match own {
        NetworkRef::PodNetwork(network) => Ok(Way::to(Reached::Network(network))),
        NetworkRef::Attachment { namespace, name } => Ok(Way {
            attachment_in: Some(namespace.clone()),
            ..attachment(lookup, &namespace, &name).await?
        }),
    }
}
