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
mod tell;
#[cfg(test)]
mod tests;
pub mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{NETWORK_LABEL, PodNetworkEndpointSlice};
use cluster::Work;
use cluster::brief;
use cluster::copied::{Key, unread};
use cluster::facts::{Facts, Follow};
use cluster::turns::by_turns;
use election::Fence;
use futures_util::future::select_all;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::Status;
use kube::{Api, Client};
use telemetry::Sparing;
use tokio::sync::Notify;

use self::facts::{Followed, MemberFacts, PodFacts, ServiceFacts};
use self::tell::Teller;
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
///
/// It is doubled each time, up to [`RETRY_MAX`].
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Slices that are written at the same time.
const AT_ONCE: usize = 8;
/// Writes after which the copies are looked at again.
const MOST: usize = 512;
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
    services: Arc<Facts<Arc<ServiceFacts>>>,
    slices: Arc<Facts<Followed>>,
    members: Facts<Arc<MemberFacts>>,
    /// From the first Service on that selects pods by its annotation.
    pods: Option<Facts<Arc<PodFacts>>>,
}

/// Writes that the API server did not take, by namespace and name of the slice.
#[derive(Debug, Default)]
struct Setbacks(BTreeMap<Key, (u32, Instant)>);

impl Setbacks {
    /// True while a slice is not tried again.
    fn holds(&self, key: &Key) -> bool {
        self.0
            .get(key)
            .is_some_and(|(_, until)| Instant::now() < *until)
    }

    /// Services of which a write that gives endpoints is due and not tried now.
    fn waiting(&self, due: &[Step]) -> BTreeSet<Key> {
        let held = due
            .iter()
            .filter(|step| !step.takes_away() && self.holds(step.key()));
        held.map(Step::service).collect()
    }

    /// Notes how a write went.
    fn note(&mut self, key: Key, done: bool) {
        if done {
            self.0.remove(&key);
            return;
        }
        let (failures, until) = self.0.entry(key).or_insert((0, Instant::now()));
        let wait = RETRY.saturating_mul(2_u32.saturating_pow(*failures));
        *failures = failures.saturating_add(1);
        *until = Instant::now() + wait.min(RETRY_MAX);
    }

    /// Forgets slices of which no write is due.
    fn keep(&mut self, due: &[Step]) {
        let due: BTreeSet<&Key> = due.iter().map(Step::key).collect();
        self.0.retain(|key, _| due.contains(key));
    }

    /// Time until the first of them is tried again.
    fn next(&self) -> Option<Duration> {
        let first = self.0.values().map(|(_, until)| *until).min()?;
        Some(first.saturating_duration_since(Instant::now()))
    }
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
            services: Arc::new(follow.copy_labelled("services", NETWORK_LABEL, ServiceFacts::read)),
            slices: Arc::new(follow.copy_labelled(
                "endpointslices",
                NETWORK_LABEL,
                |object: &EndpointSlice| Followed::read(object),
            )),
            members: follow.copy_some(
                "podnetworkendpointslices",
                false,
                |object: &PodNetworkEndpointSlice| MemberFacts::read(object),
            ),
            pods: None,
        };
        let mut work = follow.work();
        // Events wait for nothing here, and nothing waits for them.
        let teller = Teller {
            client: self.client.clone(),
            fence: Arc::clone(&self.fence),
            instance: self.instance.clone(),
            services: Arc::clone(&copies.services),
            slices: Arc::clone(&copies.slices),
        };
        work.push(async move { teller.work().await }.boxed());
        let mut setbacks = Setbacks::default();
        let mut turn = 0_usize;
        loop {
            work.extend(copies.follow_pods(&self.client, &changed));
            let begun = Instant::now();
            turn = turn.wrapping_add(1);
            let round = async {
                let is_all = self.round(&copies, turn, &mut setbacks).await;
                tokio::time::sleep((begun.elapsed() * REST).clamp(SETTLE, REST_MAX)).await;
                let again = if is_all { AGAIN } else { Duration::ZERO };
                let again = setbacks.next().map_or(again, |next| again.min(next));
                // Either way it is time to look again.
                let _ = tokio::time::timeout(again, changed.notified()).await;
            };
            tokio::select! {
                () = round => {}
                // None of them ends.
                _ = select_all(work.iter_mut()) => {}
            }
        }
    }

    /// Makes the slices what they should be; false when there is more to do at once.
    async fn round(&self, copies: &Copies, turn: usize, setbacks: &mut Setbacks) -> bool {
        let Some(known) = copies.known() else {
            return true;
        };
        // The larger the cluster, the longer it takes, and nothing else waits on that thread.
        let planned = tokio::task::spawn_blocking(move || steps(&known)).await;
        let mut due = match planned {
            Ok(due) => due,
            Err(error) => {
                tracing::error!(%error, "the EndpointSlices of networks could not be planned; they are tried again");
                return true;
            }
        };
        setbacks.keep(&due);
        let mut failed = setbacks.waiting(&due);
        due.retain(|step| !setbacks.holds(step.key()));
        let is_all = due.len() <= MOST;
        // However many are due in one namespace, they keep none of others from being written.
        let due = by_turns(due, turn, |step| step.key().0.clone());
        let (taking, giving): (Vec<Step>, Vec<Step>) =
            due.into_iter().take(MOST).partition(Step::takes_away);
        for steps in [giving, taking] {
            // What a Service's endpoints are to be is there before slices of before go.
            let steps = steps.into_iter();
            let steps: Vec<Step> = steps
                .filter(|step| !step.takes_away() || !failed.contains(&step.service()))
                .collect();
            let written: Vec<(Step, bool)> = stream::iter(steps)
                .map(|step| async move {
                    let done = self.write(&step).await;
                    (step, done)
                })
                .buffer_unordered(AT_ONCE)
                .collect()
                .await;
            for (step, done) in written {
                if !done {
                    failed.insert(step.service());
                }
                setbacks.note(step.key().clone(), done);
            }
        }
        is_all
    }

    /// Does a write; false when it has to be tried again.
    async fn write(&self, step: &Step) -> bool {
        if !self.fence.holds() {
            return true;
        }
        let (namespace, name) = step.key();
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), namespace);
        let post = PostParams::default();
        let writing = async {
            match step {
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
            // It has changed since, and the copies will say how; or its namespace is gone.
            Ok(Err(kube::Error::Api(status))) if is_stale(step, &status) => return true,
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
        let selects = || self.services.known().values().any(|it| it.selects_pods());
        if self.pods.is_some() || !selects() {
            return Vec::new();
        }
        let mut follow = Follow::new(client, changed);
        self.pods = Some(follow.copy_some("pods", false, |object: &Pod| PodFacts::read(object)));
        follow.work()
    }

    /// Returns what is known; `None` while some kind was never read.
    ///
    /// Slices out of a part of it would take endpoints away. Pods are needed for some Services only.
    fn known(&self) -> Option<Known> {
        let kinds = [&self.services.kind, &self.slices.kind, &self.members.kind];
        if !unread(kinds).is_empty() {
            return None;
        }
        let pods = self.pods.as_ref();
        let pods = pods.filter(|it| unread([&it.kind]).is_empty());
        let mut known = Known {
            services: self.services.known().clone(),
            members: self.members.known().values().cloned().collect(),
            pods: pods.map(|it| it.known().clone()),
            ..Known::default()
        };
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
