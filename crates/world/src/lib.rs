//! Read the wanted networks from the API server or from a directory of manifests.
//!
//! The objects are read again when they change.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use api::nad::{self, DefinitionParameters};
use api::{Attachment, Network, Object, Resolved};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{mpsc, watch};

use self::lists::ListOptions;
use self::policies::PolicyCurrent;
use self::services::ServiceCurrent;

pub use self::default_network::{DefaultNetwork, NoDefaultNetwork};
pub use self::error::{Unread, WorldError};
pub use self::manifests::Manifests;
pub use self::node_defaults::NodeDefaults;

pub mod blocks;
mod default_network;
mod error;
pub mod lists;
mod manifests;
mod node_defaults;
pub mod policies;
pub mod resource;
pub mod scheduling;
pub mod services;

/// Editors write in several steps: a change ends when nothing comes for this time.
const SETTLE: Duration = Duration::from_millis(20);
/// A change that does not end is read after this time.
const LONGEST: Duration = Duration::from_millis(200);

/// All objects, and what was wrong with the files.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct World {
    /// The objects that could be read, with their references followed.
    pub resolved: Resolved,
    /// `NetworkAttachmentDefinition`s by namespace and name.
    pub definitions: BTreeMap<(String, String), Definition>,
    /// `IPAMClaim`s by namespace and name.
    pub claims: BTreeMap<(String, String), Claim>,
    /// Annotation of this node about its default network, as it is written.
    pub node_default: Option<String>,
    /// One line for each document, file or object that could not be read.
    pub broken: Vec<String>,
    /// Sources that were never read yet.
    ///
    /// While there are any, nothing can be said about any network.
    pub unread: Vec<String>,
}

/// A `NetworkAttachmentDefinition` (NPWG v1.3 section 3), not interpreted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Definition {
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `spec.config`; empty for a network that goes by the object's name.
    pub config: String,
}

impl Definition {
    /// Reads it as parameters of a network that names it.
    ///
    /// # Errors
    /// The reason for which it has none.
    pub fn network_parameters(&self, namespace: &str, name: &str) -> DefinitionParameters {
        nad::network_parameters(&self.as_read(namespace, name))
    }

    /// The definition of this namespace and name, to be read.
    #[must_use]
    pub fn as_read<'a>(&'a self, namespace: &'a str, name: &'a str) -> nad::Definition<'a> {
        nad::Definition {
            namespace,
            name,
            annotations: &self.annotations,
            config: &self.config,
        }
    }

    /// Namespace and name of the object, and what it says.
    pub fn of(object: api::NetworkAttachmentDefinition) -> ((String, String), Self) {
        let metadata = object.metadata;
        let key = (
            metadata.namespace.unwrap_or_default(),
            metadata.name.unwrap_or_default(),
        );
        let definition = Self {
            annotations: metadata.annotations.unwrap_or_default(),
            config: object.spec.config,
        };
        (key, definition)
    }
}

/// An `IPAMClaim` (NPWG v1.3 section 8).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claim {
    /// `spec.network`.
    pub network: String,
    /// `spec.interface`.
    pub interface: String,
    /// `status.ips`, each with its prefix length.
    pub ips: Vec<String>,
}

/// Follows every reference between objects, also those of networks to definitions.
#[must_use]
pub fn resolve(
    objects: impl IntoIterator<Item = Object>,
    definitions: &BTreeMap<(String, String), Definition>,
) -> Resolved {
    api::resolve_with(objects, |namespace, name| {
        let key = (namespace.to_owned(), name.to_owned());
        let definition = definitions.get(&key)?;
        Some(definition.network_parameters(namespace, name))
    })
}

impl World {
    /// Reads the networks of a directory; see [`Manifests::read`].
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub fn read(directory: &Path) -> Result<Self, io::Error> {
        let read = Manifests::of(directory).read();
        read.map(|(world, ..)| world)
    }

    /// Refuses networks that span nodes where this node cannot be a member of them.
    ///
    /// That is so without an address for tunnels, and without a number that all nodes know.
    #[must_use]
    pub fn on_node(mut self, has_tunnels: bool) -> Self {
        if !has_tunnels {
            self.resolved.without_tunnels();
        }
        // In a cluster, a network without a number is refused for that already.
        self.resolved.without_shared_numbers();
        self
    }

    /// A world of which nothing is known, for these reasons.
    pub fn unread(reasons: Vec<String>) -> Self {
        Self {
            unread: reasons,
            ..Self::default()
        }
    }

    /// Succeeds when everything was read once.
    ///
    /// # Errors
    /// [`WorldError::NotSynced`] otherwise.
    pub fn check_read(&self) -> Result<(), WorldError> {
        if self.unread.is_empty() {
            return Ok(());
        }
        Err(WorldError::NotSynced {
            unread: self.unread.clone(),
        })
    }

    /// Returns the first network of pods without a list on this node.
    ///
    /// # Errors
    /// [`WorldError::NodeDefault`] when the node's annotation cannot be understood: with the network of the
    /// options pods would come up on another one than the operator meant.
    pub fn default_network(&self, lists: &ListOptions) -> Result<DefaultNetwork, WorldError> {
        match &self.node_default {
            None => Ok(lists.default_network.clone()),
            Some(text) => text
                .parse()
                .map_err(|source| WorldError::NodeDefault { source }),
        }
    }

    /// Logs what is wrong with the manifests.
    pub fn complain(&self) {
        for problem in &self.broken {
            tracing::warn!(%problem, "a manifest cannot be read: correct it");
        }
        for problem in self.resolved.problems() {
            tracing::warn!(%problem, "a manifest is not valid: correct it");
        }
    }

    /// The network of this name, if it takes attachments.
    ///
    /// # Errors
    /// When it does not, with the reason.
    pub fn network(&self, name: &str) -> Result<&Network, WorldError> {
        self.check_read()?;
        self.resolved
            .network(name)
            .map_err(|source| WorldError::Resolve {
                source: Box::new(source),
                broken: self.broken.clone(),
            })
    }

    /// The PodNetworkAttachment of this name.
    ///
    /// # Errors
    /// When there is none, or it is not valid.
    pub fn attachment(&self, namespace: &str, name: &str) -> Result<&Attachment, WorldError> {
        self.check_read()?;
        self.resolved
            .attachment(namespace, name)
            .map_err(|source| WorldError::Resolve {
                source: Box::new(source),
                broken: self.broken.clone(),
            })
    }
}

/// The current world, shared and replaced as a whole.
#[derive(Debug, Default)]
pub struct Current {
    world: RwLock<Arc<World>>,
    /// How often it was replaced by another.
    version: watch::Sender<u64>,
}

impl Current {
    /// The world as it is now.
    pub fn get(&self) -> Arc<World> {
        Arc::clone(&self.world.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces it; true when that is a change.
    pub fn set(&self, world: World) -> bool {
        let mut current = self.world.write().unwrap_or_else(PoisonError::into_inner);
        let changed = **current != world;
        if changed {
            *current = Arc::new(world);
        }
        drop(current);
        if changed {
            self.version.send_modify(|version| *version += 1);
        }
        changed
    }

    /// Waits until everything was read once, but not for ever.
    ///
    /// # Errors
    /// [`WorldError::NotSynced`] when it was not read in time.
    pub async fn until_read(&self, patience: Duration) -> Result<(), WorldError> {
        let mut changes = self.changes();
        let read = async {
            // The sender lives as long as this value.
            while !self.get().unread.is_empty() && changes.changed().await.is_ok() {}
        };
        // Too late is what the check says.
        let _ = tokio::time::timeout(patience, read).await;
        self.get().check_read()
    }

    /// Tells of each replacement by another world from now on.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }
}

/// Reads the directory whenever something in it changes, for ever.
///
/// `has_tunnels` tells whether the node has an address for tunnels at that moment.
///
/// # Errors
/// When the kernel does not let us watch.
pub async fn follow(
    mut manifests: Manifests,
    current: Arc<Current>,
    (policies, services): (Arc<PolicyCurrent>, Arc<ServiceCurrent>),
    has_tunnels: impl Fn() -> bool,
) -> Result<(), notify::Error> {
    let (changed, mut changes) = mpsc::channel(1);
    let _watcher = watched(manifests.directory(), changed)?;
    loop {
        // The first time for what changed before it was watched.
        let read = manifests.read();
        let directory = manifests.directory().display();
        match read {
            Ok((world, policy_world, service_world)) => {
                if current.set(world.on_node(has_tunnels())) {
                    tracing::info!(%directory, "the manifests are read");
                    current.get().complain();
                }
                if policies.set(policy_world) {
                    policies.get().complain();
                }
                if services.set(service_world) {
                    services.get().complain();
                }
            }
            Err(error) => {
                tracing::error!(%directory, %error, "the manifests cannot be read, and those read before are used");
            }
        }
        if changes.recv().await.is_none() {
            return Ok(());
        }
        let longest = Instant::now() + LONGEST;
        while Instant::now() < longest
            && let Ok(Some(())) = tokio::time::timeout(SETTLE, changes.recv()).await
        {}
    }
}

/// Watches a directory and sends a message after each change.
///
/// Reads do not count. The watch ends with the watcher. A channel for one message is enough: a full one
/// says "changed" already.
///
/// # Errors
/// When the kernel does not let us watch.
pub fn watched(
    directory: &Path,
    changed: mpsc::Sender<()>,
) -> Result<RecommendedWatcher, notify::Error> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| is_read(&event)) {
            return;
        }
        let _ = changed.try_send(());
    })?;
    watcher.watch(directory, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

/// Returns true for the event of a file that was only read.
///
/// Such an event must not lead to reading the file again.
fn is_read(event: &notify::Event) -> bool {
    use notify::event::{AccessKind, AccessMode, EventKind};
    let is_close_write = matches!(
        event.kind,
        EventKind::Access(AccessKind::Close(AccessMode::Write))
    );
    event.kind.is_access() && !is_close_write
}

#[cfg(test)]
mod tests;
