//! Annotations of pods: their networks, for others to read (NPWG v1.3 section 5).
//!
//! What a pod's annotations must say is kept for as long as the pod is attached, and compared with
//! the copy of the pods: so a write that failed, an agent that was away and somebody who removed an
//! annotation are one and the same case. A request of a runtime never waits for a write.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::addresses::LookupError;
use cluster::brief;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod as ApiPod;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use kube::{Client, Resource as _};
use metrics::Metrics;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::home::MANAGER;
use super::lookup::Pod;
use super::lookup::Pods;

/// Writes under way at once.
const CONCURRENT: usize = 4;
/// Time from a failed write to the next attempt, doubled with each failure.
const RETRY_MIN: Duration = Duration::from_millis(500);
/// The longest such time.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Time between two writes of the same annotation.
///
/// Somebody else may write it too, and the copy of the pods is a moment late.
const REASSERT: Duration = Duration::from_secs(5);
/// How long the API server may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Annotations by their keys.
pub type Annotations = BTreeMap<&'static str, String>;

/// Writes annotations of pods, and keeps them.
pub struct StatusWriter {
    client: Client,
    pods: Pods,
    metrics: Arc<Metrics>,
    wanted: Mutex<BTreeMap<Name, Wanted>>,
    wake: Notify,
}

/// Namespace and name of a pod.
type Name = (String, String);

/// Annotations that one pod must have.
#[derive(Debug, Clone)]
struct Wanted {
    container: String,
    uid: Option<String>,
    annotations: Annotations,
    failures: u32,
    /// When to write; none when there is nothing to write.
    due: Option<Instant>,
    written: Option<Instant>,
}

/// How an attempt ended.
#[derive(Debug)]
enum Outcome {
    /// The pod says it.
    Done,
    /// The pod is gone, or another has its name.
    Gone,
    Failed(String),
}

impl StatusWriter {
    pub(super) fn new(client: Client, pods: Pods, metrics: Arc<Metrics>) -> Self {
        Self {
            client,
            pods,
            metrics,
            wanted: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Sets the annotations that the pod has from now on.
    ///
    /// `container` is the sandbox that is attached: a pod can get another.
    pub fn set(
        &self,
        (namespace, name): (&str, &str),
        uid: Option<&str>,
        container: &str,
        annotations: Annotations,
    ) {
        let key = (namespace.to_owned(), name.to_owned());
        let mut wanted = self.wanted();
        let same = wanted
            .get(&key)
            .is_some_and(|known| known.container == container && known.annotations == annotations);
        if same {
            return;
        }
        let value = Wanted {
            container: container.to_owned(),
            uid: uid.map(str::to_owned),
            annotations,
            failures: 0,
            due: Some(Instant::now()),
            written: None,
        };
        wanted.insert(key, value);
        drop(wanted);
        self.wake.notify_one();
    }

    /// Notes that the sandbox is not attached any more.
    ///
    /// Its pod keeps the annotations it has: it is about to be deleted, or to get another sandbox.
    pub fn forget(&self, (namespace, name): (&str, &str), container: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        let mut wanted = self.wanted();
        if wanted
            .get(&key)
            .is_some_and(|known| known.container == container)
        {
            wanted.remove(&key);
        }
    }

    /// How many pods do not say yet what they must.
    pub fn waiting(&self) -> usize {
        let wanted = self.wanted();
        wanted.values().filter(|one| one.due.is_some()).count()
    }

    fn wanted(&self) -> MutexGuard<'_, BTreeMap<Name, Wanted>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is to be written, for ever.
    pub(super) async fn work(&self) {
        // Most of what a restart finds to be written was written before.
        self.pods.read().await;
        let mut changes = self.pods.changes();
        loop {
            self.compare();
            self.write_due().await;
            let next = self.wanted().values().filter_map(|one| one.due).min();
            tokio::select! {
                () = self.wake.notified() => {}
                changed = changes.changed() => if changed.is_err() {
                    // The end of all following.
                    return;
                },
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
        }
    }

    /// Finds the pods that do not say what they must, and those that do after all.
    fn compare(&self) {
        for ((namespace, name), one) in &mut *self.wanted() {
            let Some(pod) = self.pods.cached(namespace, name) else {
                continue;
            };
            if !pod.is(one.uid.as_deref()) {
                continue;
            }
            if says(&pod, &one.annotations) {
                one.due = None;
                one.failures = 0;
            } else if one.due.is_none() {
                let now = Instant::now();
                let soonest = one.written.map_or(now, |written| written + REASSERT);
                one.due = Some(soonest.max(now));
            }
        }
    }

    async fn write_due(&self) {
        let now = Instant::now();
        let due: Vec<(Name, Wanted)> = self
            .wanted()
            .iter()
            .filter(|(_, one)| one.due.is_some_and(|due| due <= now))
            .map(|(name, one)| (name.clone(), one.clone()))
            .collect();
        futures_util::stream::iter(due)
            .for_each_concurrent(CONCURRENT, |(name, one)| async move {
                let outcome = self.write(&name, &one).await;
                self.settle(&name, &one, outcome);
            })
            .await;
    }

    async fn write(&self, (namespace, name): &Name, one: &Wanted) -> Outcome {
        let pod = match self.pods.find(namespace, name, one.uid.as_deref()).await {
            Ok(pod) => pod,
            Err(LookupError::NotFound { .. } | LookupError::Another { .. }) => {
                return Outcome::Gone;
            }
            Err(error @ LookupError::Unknown { .. }) => return Outcome::Failed(error.to_string()),
        };
        if says(&pod, &one.annotations) {
            return Outcome::Done;
        }
        match tokio::time::timeout(PATIENCE, self.patch(&pod, &one.annotations)).await {
            Ok(Ok(())) => Outcome::Done,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Outcome::Gone,
            Ok(Err(error)) => Outcome::Failed(brief(&error)),
            Err(_) => Outcome::Failed("no answer from the API server".to_owned()),
        }
    }

    /// Changes these annotations and nothing else.
    ///
    /// With the UID in it, the API server refuses the patch for another pod of the same name (NPWG-5-W1).
    async fn patch(&self, pod: &Pod, annotations: &Annotations) -> Result<(), kube::Error> {
        let body = json!({"metadata": {"uid": pod.uid, "annotations": annotations}});
        let request = Request::new(ApiPod::url_path(&(), Some(&pod.namespace)))
            .patch_subresource(
                "status",
                &pod.name,
                &PatchParams {
                    field_manager: Some(MANAGER.to_owned()),
                    ..PatchParams::default()
                },
                &Patch::Merge(body),
            )
            .map_err(kube::Error::BuildRequest)?;
        self.client.request::<IgnoredAny>(request).await.map(|_| ())
    }

    fn settle(&self, name: &Name, tried: &Wanted, outcome: Outcome) {
        let (namespace, pod) = name;
        let result = match &outcome {
            Outcome::Done => "written",
            Outcome::Gone => "gone",
            Outcome::Failed(_) => "failed",
        };
        self.metrics.api_write("status", result);
        let mut wanted = self.wanted();
        let Some(one) = wanted.get_mut(name) else {
            return;
        };
        if one.annotations != tried.annotations || one.container != tried.container {
            // It was set anew meanwhile.
            return;
        }
        match outcome {
            // A static pod's object can come later; then the comparison finds it.
            Outcome::Done | Outcome::Gone => {
                one.failures = 0;
                one.due = None;
                one.written = Some(Instant::now());
                tracing::debug!(
                    namespace,
                    pod,
                    result,
                    "the network status of the pod is written"
                );
            }
            Outcome::Failed(why) => {
                if one.failures == 0 {
                    tracing::warn!(
                        namespace,
                        pod,
                        error = why,
                        "the network status of the pod is not written, trying again"
                    );
                }
                one.due = Some(Instant::now() + retry(name, one.failures));
                one.failures = one.failures.saturating_add(1);
            }
        }
    }
}

impl std::fmt::Debug for StatusWriter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("StatusWriter")
            .field("wanted", &self.wanted)
            .finish_non_exhaustive()
    }
}

fn says(pod: &Pod, annotations: &Annotations) -> bool {
    annotations
        .iter()
        .all(|(key, value)| pod.annotations.get(*key) == Some(value))
}

/// Computes the time to the next attempt from the failures before the last one.
///
/// It differs a bit for each pod: all nodes find an API server that comes back at once.
fn retry(name: &Name, failures: u32) -> Duration {
    let doubled = RETRY_MIN.saturating_mul(2_u32.saturating_pow(failures.min(16)));
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let spread = u32::try_from(hasher.finish() % 512).unwrap_or(0);
    doubled.min(RETRY_MAX) * (1024 + spread) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NPWG-5-W1: only our annotations are ours.
    #[test]
    fn a_pod_says_it_when_all_its_annotations_do_and_others_do_not_matter() {
        let mut pod = Pod::default();
        let wanted: Annotations = [("a", "1".to_owned()), ("b", "2".to_owned())].into();
        assert!(!says(&pod, &wanted));
        pod.annotations.insert("a".to_owned(), "1".to_owned());
        assert!(!says(&pod, &wanted));
        pod.annotations.insert("b".to_owned(), "3".to_owned());
        assert!(!says(&pod, &wanted));
        pod.annotations.insert("b".to_owned(), "2".to_owned());
        pod.annotations.insert("c".to_owned(), "4".to_owned());
        assert!(says(&pod, &wanted));
        proof::of!("NPWG-5-W1");
    }

    #[test]
    fn attempts_get_rarer_up_to_a_limit() {
        let name = ("ns".to_owned(), "pod".to_owned());
        let times: Vec<Duration> = (0..40).map(|failures| retry(&name, failures)).collect();
        assert!(times.is_sorted());
        assert!(times[0] >= RETRY_MIN && times[0] < RETRY_MIN * 2);
        assert!(times[39] >= RETRY_MAX && times[39] <= RETRY_MAX * 3 / 2);
        assert_eq!(retry(&name, u32::MAX), times[39]);
    }
}
