//! `service-slices`: EndpointSlices of Services on networks.
//!
//! The controller that leads writes them.
//!
//! Kubernetes makes slices of a Service's selector, with the pods' addresses on the cluster's network. For a Service with the label
//! `podnet.dev/network` there is a second slice for each of them, with the pods' addresses on that network, as the nodes say
//! them in `PodNetworkEndpointSlice`s. Conditions, ports, zones and hints are those of the first one. A Service with the annotation
//! `podnet.dev/selector` in place of a selector has slices of the network only, which DNS tells by its name.
//!
//! - [`facts`] reads objects; [`wanted`] says which slices there should be, and is pure.
//! - [`Mirror`] follows the objects, and writes.

pub mod facts;
#[cfg(test)]
mod tests;
pub mod wanted;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{NETWORK_LABEL, PodNetworkEndpointSlice};
use cluster::Work;
use cluster::brief;
use cluster::copied::{Key, unread};
use cluster::events::{EventWriter, Note};
use cluster::facts::{Facts, Follow};
use election::Fence;
use futures_util::future::select_all;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::Status;
use kube::{Api, Client};
use telemetry::Sparing;
use tokio::sync::Notify;

use self::facts::{Followed, MemberFacts, Origin, PodFacts, ServiceFacts};
use self::wanted::{Known, Step, steps};

/// Least time between two looks at the copies.
const SETTLE: Duration = Duration::from_millis(5);
/// Time between two looks, as a multiple of the time of one.
const REST: u32 = 4;
/// The longest time between two looks while something changes.
const REST_MAX: Duration = Duration::from_secs(1);
/// Time to the next look though nothing changes.
const AGAIN: Duration = Duration::from_secs(300);
/// Time to the next attempt after a write that has failed.
const RETRY: Duration = Duration::from_secs(2);
/// Slices that are written at the same time.
const AT_ONCE: usize = 8;
/// Writes after which the copies are looked at again.
const MOST: usize = 512;
/// Events that are written in one look.
const EVENTS: usize = 32;
/// Name of the reporting controller in Events.
const REPORTER: &str = "podnet.dev/controller";
/// How long the API server may take for a write.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two lines about the same slice.
const LINES_EVERY: Duration = Duration::from_secs(60);

/// Writes the slices of networks, as long as the fence holds.
#[derive(Clone)]
pub struct Mirror {
    client: Client,
    fence: Arc<Fence>,
    /// Name of this controller in Events.
    instance: String,
}

impl std::fmt::Debug for Mirror {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Mirror")
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

/// Copies of what slices are made of.
struct Copies {
    services: Facts<Arc<ServiceFacts>>,
    slices: Facts<Followed>,
    members: Facts<Arc<MemberFacts>>,
    /// From the first Service on that selects pods by its annotation.
    pods: Option<Facts<Arc<PodFacts>>>,
}

impl Mirror {
    /// One that writes with this client, and Events as `instance`.
    pub fn new(client: Client, fence: Arc<Fence>, instance: String) -> Self {
        Self {
            client,
            fence,
            instance,
        }
    }

    /// Keeps the slices as they should be, for ever.
    pub async fn work(&self) {
        let changed = Arc::new(Notify::new());
        let mut follow = Follow::new(&self.client, &changed);
        let mut copies = Copies {
            services: follow.copy_labelled("services", NETWORK_LABEL, ServiceFacts::read),
            slices: follow.copy_labelled(
                "endpointslices",
                NETWORK_LABEL,
                |object: &EndpointSlice| Followed::read(object),
            ),
            members: follow.copy_some(
                "podnetworkendpointslices",
                true,
                |object: &PodNetworkEndpointSlice| MemberFacts::read(object),
            ),
            pods: None,
        };
        let mut work = follow.work();
        let mut events = EventWriter::new(self.client.clone(), REPORTER, self.instance.clone());
        loop {
            work.extend(copies.follow_pods(&self.client, &changed));
            let begun = Instant::now();
            let round =
                async { self.round(&copies).await && self.tell(&copies, &mut events).await };
            let is_done = tokio::select! {
                done = round => done,
                // None of them ends.
                _ = select_all(work.iter_mut()) => false,
            };
            let rest = async {
                tokio::time::sleep((begun.elapsed() * REST).clamp(SETTLE, REST_MAX)).await;
                let again = if is_done { AGAIN } else { RETRY };
                // Either way it is time to look again.
                let _ = tokio::time::timeout(again, changed.notified()).await;
            };
            tokio::select! {
                () = rest => {}
                _ = select_all(work.iter_mut()) => {}
            }
        }
    }

    /// Makes the slices what they should be.
    ///
    /// False when it has to be tried again though nothing changes.
    async fn round(&self, copies: &Copies) -> bool {
        let Some(known) = copies.known() else {
            return true;
        };
        // The larger the cluster, the longer it takes, and nothing else waits on that thread.
        let planned = tokio::task::spawn_blocking(move || steps(&known)).await;
        let steps = match planned {
            Ok(steps) => steps,
            Err(error) => {
                tracing::error!(%error, "the EndpointSlices of networks could not be planned; they are tried again");
                return false;
            }
        };
        let is_all = steps.len() <= MOST;
        let written: Vec<bool> = stream::iter(steps.into_iter().take(MOST))
            .map(|step| self.write(step))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        is_all && written.into_iter().all(|done| done)
    }

    /// Writes Events about Services that are not obeyed; false when there are more.
    ///
    /// They are best effort: one that the API server does not take ends a look.
    async fn tell(&self, copies: &Copies, events: &mut EventWriter) -> bool {
        let services = copies.services.known().clone();
        let mut written = 0;
        for ((namespace, name), facts) in services {
            if facts.problems.is_empty() {
                continue;
            }
            if written == EVENTS {
                return false;
            }
            if !self.fence.holds() {
                return true;
            }
            let note = Note {
                about: ObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Service".to_owned()),
                    namespace: Some(namespace),
                    name: Some(name),
                    uid: Some(facts.uid.clone()),
                    ..ObjectReference::default()
                },
                reason: "NotObeyed",
                action: "Serve",
                is_warning: true,
                varies: false,
                text: facts.problems.join("; "),
            };
            match events.say(&note).await {
                Ok(is_new) => written += usize::from(is_new),
                Err(error) => {
                    tracing::debug!(error = %brief(&error), "an Event about a Service could not be written");
                    return true;
                }
            }
        }
        true
    }

    /// Does a write; false when it has to be tried again.
    async fn write(&self, step: Step) -> bool {
        if !self.fence.holds() {
            return true;
        }
        let (Step::Create(key, _) | Step::Replace(key, ..) | Step::Delete(key, _)) = &step;
        let key = key.clone();
        let (namespace, name) = (key.0.as_str(), key.1.as_str());
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), namespace);
        let post = PostParams::default();
        let writing = async {
            match &step {
                Step::Create(_, content) => {
                    let object = content.write((namespace, name), None);
                    api.create(&post, &object).await.map(|_| ())
                }
                Step::Replace(_, content, own) => {
                    let object = content.write((namespace, name), Some(own));
                    api.replace(name, &post, &object).await.map(|_| ())
                }
                Step::Delete(_, own) => {
                    let only = DeleteParams::default().preconditions(Preconditions {
                        uid: Some(own.uid.clone()),
                        resource_version: None,
                    });
                    api.delete(name, &only).await.map(|_| ())
                }
            }
        };
        let why = match tokio::time::timeout(PATIENCE, writing).await {
            Ok(Ok(())) => return true,
            // It has changed since, and the copies will say how; or its namespace ends.
            Ok(Err(kube::Error::Api(status))) if is_stale(&step, &status) => return true,
            Ok(Err(error)) => brief(&error),
            Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
        };
        static FAILURES: Sparing = Sparing::new(LINES_EVERY);
        if let Some(unsaid) = FAILURES.admit(&(namespace, name)) {
            tracing::warn!(
                namespace, slice = name, error = %why, unsaid,
                "the EndpointSlice of a Service on a network cannot be written, and its endpoints stay as they are; it is tried again"
            );
        }
        false
    }
}

/// True when a write needs no other attempt.
///
/// The copies will say what is there now.
fn is_stale(step: &Step, status: &Status) -> bool {
    let has_changed = status.code == 409 && !matches!(step, Step::Create(..));
    has_changed || status.code == 404
}

impl Copies {
    /// Adds the copy of pods when the first Service selects some by its annotation.
    fn follow_pods(&mut self, client: &Client, changed: &Arc<Notify>) -> Vec<Work> {
        if self.pods.is_some() || !selects_pods(&self.services.known()) {
            return Vec::new();
        }
        let mut follow = Follow::new(client, changed);
        self.pods = Some(follow.copy_some("pods", false, |object: &Pod| PodFacts::read(object)));
        follow.work()
    }

    /// Returns what is known; `None` while some kind was never read.
    ///
    /// Slices out of a part of it would take endpoints away.
    fn known(&self) -> Option<Known> {
        let pods = self.pods.as_ref();
        let kinds = [&self.services.kind, &self.slices.kind, &self.members.kind];
        if !unread(kinds.into_iter().chain(pods.map(|it| &it.kind))).is_empty() {
            return None;
        }
        let mut known = Known {
            services: self.services.known().clone(),
            members: self.members.known().values().cloned().collect(),
            pods: pods.map(|it| it.known().clone()).unwrap_or_default(),
            ..Known::default()
        };
        if pods.is_none() && selects_pods(&known.services) {
            return None;
        }
        for (key, slice) in &*self.slices.known() {
            match slice {
                Followed::OfCluster(slice) => {
                    known.of_cluster.insert(key.clone(), Arc::clone(slice))
                }
                Followed::Own(slice) => known.own.insert(key.clone(), Arc::clone(slice)),
            };
        }
        Some(known)
    }
}

/// True while some Service selects pods by its annotation.
fn selects_pods(services: &BTreeMap<Key, Arc<ServiceFacts>>) -> bool {
    let mut all = services.values();
    all.any(|it| matches!(it.endpoints, Origin::Pods(_)))
}
