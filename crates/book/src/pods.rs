//! The pods of this node that say themselves what they are attached to.
//!
//! Here the CNI path and whoever tells Kubernetes meet, and neither knows the other:
//! [`Pods::follow`] says which pod has which attachments now, in order, with what they came to, at
//! every change; `Node::pod_networks` says it of all pods there are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use api::RawJson;
use api::selection::{Source, Target};
use cni_spec::{AttachmentKey, Dns, IpPrefix};
use tokio::sync::mpsc;

use crate::record::{PodIdentity, State};

pub mod record;
#[cfg(test)]
mod tests;

use record::PodRecord;

/// An attachment of a pod as it came out, for the pod's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedNetwork {
    /// Which list asked for it.
    pub source: Source,
    /// Object or configuration that the list named.
    pub target: Target,
    /// Name of the PodNetwork, or `name` of the configuration other plugins were given.
    pub network: String,
    /// Made by other plugins.
    pub delegated: bool,
    /// Interface in the pod.
    pub interface: String,
    /// Its MAC address, where it has one.
    pub mac: Option<String>,
    /// Its addresses; none on a network without any.
    pub addresses: Vec<IpPrefix>,
    /// The next hops of the pod's default routes that go through it.
    pub gateways: Vec<IpAddr>,
    /// `default-route` of its element, where it had the key (NPWG §5.3.6.4).
    pub default_route: Option<Vec<IpAddr>>,
    /// A default route of the pod goes through it.
    pub is_default_gateway: bool,
    /// It has the interface the runtime asked for, whose addresses are the pod's own.
    pub is_primary: bool,
    /// Largest packet, bytes, where it is known.
    pub mtu: Option<u32>,
    /// Resolver settings.
    pub dns: Dns,
    /// `device-info`, where a plugin wrote one (NPWG §5.3.7).
    pub device_info: Option<RawJson>,
}

/// A pod and everything it is attached to, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodNetworks {
    /// Container and first interface.
    pub key: AttachmentKey,
    /// Identity of the pod.
    pub pod: PodIdentity,
    /// Its attachments, first to last.
    pub attachments: Vec<AttachedNetwork>,
}

/// Changes of a pod's attachments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodChange {
    /// It has these, all of them; `new` when they were made just now.
    Attached {
        /// Attachments that the pod has.
        networks: PodNetworks,
        /// False for one that was there before this agent.
        new: bool,
    },
    /// Its `ADD` failed and nothing is left of it.
    Refused {
        /// Identity of the pod.
        pod: PodIdentity,
        /// Why, as the runtime is told.
        reason: String,
        /// It names a network that does not exist.
        missing: bool,
    },
    /// Its list of networks is valid, and has an effect that is likely not meant.
    Warned {
        /// Identity of the pod.
        pod: PodIdentity,
        /// The effect and its remedy, a sentence.
        text: String,
    },
    /// An attachment of it could not be removed.
    Left {
        /// Identity of the pod.
        pod: PodIdentity,
        /// Which, and why, as the runtime is told.
        reason: String,
    },
    /// It has none any more.
    Detached {
        /// Container and first interface.
        key: AttachmentKey,
        /// Identity of the pod.
        pod: PodIdentity,
    },
}

/// A pod in the book, and what is not worth writing down.
#[derive(Debug, Clone)]
pub struct PodEntry {
    /// The record.
    pub record: PodRecord,
    /// Different for every pod this process has known.
    pub generation: u64,
    /// Its runtime has the result, or had it before this process started.
    pub acknowledged: bool,
    /// Answers that are on their way.
    pub answers: usize,
    /// When it came into the book; `GC` spares what is younger than its request.
    pub since: Instant,
    /// Attempts of the audit to remove it that have failed.
    failures: u32,
    /// Audits that pass before the next attempt.
    pause: u32,
}

/// Most audits between two attempts to remove a pod.
const PAUSE_MAX: u32 = 16;

#[derive(Debug, Default)]
struct Known {
    entries: BTreeMap<AttachmentKey, PodEntry>,
    generations: u64,
}

/// The book of pods, and the channel to who follows it.
#[derive(Debug, Default)]
pub struct Pods {
    known: Mutex<Known>,
    changes: OnceLock<mpsc::UnboundedSender<PodChange>>,
}

impl Pods {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows every change from now on; one follower may ask, once.
    ///
    /// Pods that are there already come from `Node::pod_networks`: ask for them afterwards, and nothing is
    /// missed.
    ///
    /// # Errors
    /// Somebody follows already.
    pub fn follow(&self) -> Result<mpsc::UnboundedReceiver<PodChange>, FollowedAlready> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.changes.set(sender).map_err(|_| FollowedAlready)?;
        Ok(receiver)
    }

    /// Tells the follower, if there is one.
    pub fn tell(&self, change: PodChange) {
        if let Some(changes) = self.changes.get() {
            // A follower that is gone needs to know nothing.
            let _ = changes.send(change);
        }
    }

    /// Takes a record into the book, over any other with its key.
    pub fn insert(&self, record: PodRecord) {
        let mut known = self.known();
        known.generations += 1;
        let entry = PodEntry {
            generation: known.generations,
            // One that is complete when it comes into the book comes from the store.
            acknowledged: record.state == State::Added,
            answers: 0,
            since: Instant::now(),
            failures: 0,
            pause: 0,
            record,
        };
        known.entries.insert(entry.record.key.clone(), entry);
    }

    /// Replaces the record of a pod that is in the book.
    pub fn update(&self, record: &PodRecord) {
        if let Some(entry) = self.known().entries.get_mut(&record.key) {
            entry.record.clone_from(record);
        }
    }

    /// The pod with this key.
    pub fn get(&self, key: &AttachmentKey) -> Option<PodRecord> {
        let known = self.known();
        known.entries.get(key).map(|entry| entry.record.clone())
    }

    /// True when it was in the book before this moment and is there still.
    pub fn is_older(&self, key: &AttachmentKey, than: Instant) -> bool {
        let known = self.known();
        known
            .entries
            .get(key)
            .is_some_and(|entry| entry.since < than)
    }

    /// Every pod, in order of container and interface.
    pub fn records(&self) -> Vec<PodRecord> {
        let known = self.known();
        known
            .entries
            .values()
            .map(|entry| entry.record.clone())
            .collect()
    }

    /// Notes that an attempt to remove a pod has failed.
    ///
    /// The next pause is twice as long.
    pub fn postpone(&self, key: &AttachmentKey) {
        if let Some(entry) = self.known().entries.get_mut(key) {
            entry.pause = 1_u32
                .checked_shl(entry.failures)
                .map_or(PAUSE_MAX, |pause| pause.min(PAUSE_MAX));
            entry.failures = entry.failures.saturating_add(1);
        }
    }

    /// True when the audit shall try again to remove a pod.
    ///
    /// It is false as often as the pause is long.
    pub fn is_due(&self, key: &AttachmentKey) -> bool {
        let mut known = self.known();
        let Some(entry) = known.entries.get_mut(key) else {
            return false;
        };
        let is_due = entry.pause == 0;
        entry.pause = entry.pause.saturating_sub(1);
        is_due
    }

    /// Forgets a pod.
    pub fn remove(&self, key: &AttachmentKey) {
        self.known().entries.remove(key);
    }

    /// Attachments of ours that belong to pods in the book.
    pub fn owned(&self) -> BTreeSet<AttachmentKey> {
        let known = self.known();
        let records = known.entries.values().map(|entry| &entry.record);
        records
            .flat_map(|record| {
                let own = record.members.iter().filter(|m| m.delegation().is_none());
                own.map(|member| record.key_of(member))
            })
            .collect()
    }

    /// Notes that an answer with this pod's result goes out; returns its generation.
    ///
    /// [`Self::heard`] or [`Self::unheard`] ends it.
    pub fn answer(&self, key: &AttachmentKey) -> Option<u64> {
        let mut known = self.known();
        let entry = known.entries.get_mut(key)?;
        entry.answers += 1;
        Some(entry.generation)
    }

    /// The runtime has the result.
    pub fn heard(&self, key: &AttachmentKey, generation: u64) {
        self.answered(key, generation, |entry| entry.acknowledged = true);
    }

    /// The answer did not arrive. True when no other one did, and none is on its way.
    pub fn unheard(&self, key: &AttachmentKey, generation: u64) -> bool {
        self.answered(key, generation, |entry| {
            entry.answers == 0 && !entry.acknowledged
        })
        .unwrap_or(false)
    }

    fn answered<T>(
        &self,
        key: &AttachmentKey,
        generation: u64,
        then: impl FnOnce(&mut PodEntry) -> T,
    ) -> Option<T> {
        let mut known = self.known();
        let entry = known.entries.get_mut(key)?;
        if entry.generation != generation {
            return None;
        }
        entry.answers = entry.answers.saturating_sub(1);
        Some(then(entry))
    }
}

/// There is one follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the pods have a follower already: start the task that follows them once")]
pub struct FollowedAlready;
