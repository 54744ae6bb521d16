//! What the cluster has of the objects a pod names, read for one review. Nothing is kept between
//! reviews, so nothing is out of date.

use std::collections::{BTreeMap, BTreeSet};

use api::nad::{Definition, Meaning, NetworkRef, read_definition};
use api::selection::{PodSelection, Target};
use api::{NetworkAttachmentDefinition, PodNetwork, PodNetworkAttachment};
use futures_util::future::try_join_all;
use kube::{Api, Client};

use super::review::named;

const ABSENT: &str = "does not exist";

/// Where a reference leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reached {
    /// To the `PodNetwork` of this name, which may not exist.
    Network(String),
    /// To plugins of others.
    Others,
    /// Nobody knows, and why.
    Unknown(String),
}

/// A reference, followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// Where it leads.
    pub reached: Reached,
    /// What on the way there is being deleted.
    pub deleted: Option<Target>,
}

/// What is known of a pod's networks.
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

    /// What is being deleted of the object and the network it leads to.
    pub fn being_deleted(&self, target: &Target) -> Option<Target> {
        self.0.get(target)?.deleted.clone()
    }

    /// Asks the API server for all objects a pod names.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn read(client: &Client, selection: &PodSelection) -> kube::Result<Self> {
        let targets: BTreeSet<&Target> = named(selection).map(|named| &named.target).collect();
        let ways = targets.into_iter().map(|target| follow(client, target));
        Ok(try_join_all(ways).await?.into_iter().collect())
    }
}

async fn follow(client: &Client, target: &Target) -> kube::Result<(Target, Way)> {
    let mut way = match target {
        Target::PodNetwork(name) => Way::to(Reached::Network(name.clone())),
        Target::Attachment { namespace, name } => attachment(client, namespace, name).await?,
        Target::Definition { namespace, name } => definition(client, namespace, name).await?,
    };
    if let (Reached::Network(name), None) = (&way.reached, &way.deleted)
        && is_being_deleted(client, name).await?
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
        }
    }

    fn unknown(why: impl Into<String>) -> Self {
        Self::to(Reached::Unknown(why.into()))
    }
}

/// Only the metadata is asked for, so that a network of a newer version is no error.
async fn is_being_deleted(client: &Client, network: &str) -> kube::Result<bool> {
    let networks: Api<PodNetwork> = Api::all(client.clone());
    let found = networks.get_metadata_opt(network).await?;
    Ok(found.is_some_and(|found| found.metadata.deletion_timestamp.is_some()))
}

async fn attachment(client: &Client, namespace: &str, name: &str) -> kube::Result<Way> {
    let attachments: Api<PodNetworkAttachment> = Api::namespaced(client.clone(), namespace);
    Ok(match readable(attachments.get_opt(name).await)? {
        Ok(Some(found)) => Way {
            reached: Reached::Network(found.spec.pod_network_name),
            deleted: found
                .metadata
                .deletion_timestamp
                .is_some()
                .then(|| Target::Attachment {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                }),
        },
        Ok(None) => Way::unknown(ABSENT),
        Err(why) => Way::unknown(why),
    })
}

async fn definition(client: &Client, namespace: &str, name: &str) -> kube::Result<Way> {
    let definitions: Api<NetworkAttachmentDefinition> = Api::namespaced(client.clone(), namespace);
    let found = match readable(definitions.get_opt(name).await)? {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(Way::unknown(ABSENT)),
        Err(why) => return Ok(Way::unknown(why)),
    };
    let annotations = found.metadata.annotations.unwrap_or_default();
    let read = read_definition(&Definition {
        namespace,
        name,
        annotations: &annotations,
        config: &found.spec.config,
    });
    let own = match read.map(|read| read.meaning) {
        Ok(Meaning::ByName(network)) => return Ok(Way::to(Reached::Network(network))),
        Ok(Meaning::Delegate(_)) => return Ok(Way::to(Reached::Others)),
        Err(error) => return Ok(Way::unknown(error.problem.to_string())),
        Ok(Meaning::Own(own)) => own.network,
    };
    match own {
        NetworkRef::PodNetwork(network) => Ok(Way::to(Reached::Network(network))),
        NetworkRef::Attachment { namespace, name } => attachment(client, &namespace, &name).await,
    }
}

/// An object that is there and cannot be understood is no failure of the API server.
pub(super) fn readable<T>(answer: kube::Result<T>) -> kube::Result<Result<T, String>> {
    match answer {
        Ok(object) => Ok(Ok(object)),
        Err(kube::Error::SerdeError(error)) => Ok(Err(format!("cannot be read: {error}"))),
        Err(error) => Err(error),
    }
}
