//! Events of pods, as `kubectl describe pod` shows them (`events.k8s.io/v1`).
//!
//! Their reasons are those that people know from multus (NPWG-X4). Best effort: an event that cannot be
//! written in time is dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Work, brief};
use futures_util::FutureExt as _;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use metrics::Metrics;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::home::MANAGER;

/// Events that wait for the API server.
const WAITING_MAX: usize = 256;
/// Attempts to write one.
const ATTEMPTS: u32 = 4;
/// Time from the first failed attempt to the second; doubled with each.
const RETRY: Duration = Duration::from_secs(1);
/// How long the API server may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same again within this time is counted and makes no event of its own.
const SERIES: Duration = Duration::from_secs(360);
/// The longest `note` of an Event, bytes.
const NOTE_MAX: usize = 1024;
/// Longest name of a pod in an Event's name, bytes.
///
/// A time in hexadecimal follows it.
const NAME_MAX: usize = 230;

/// Reasons of the events of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// An interface was added.
    AddedInterface,
    /// An interface could not be added.
    FailedAddingInterface,
    /// A network that the pod names does not exist.
    NoNetworkFound,
    /// The default network is not at the pod's first interface.
    DefaultNetworkMoved,
    /// An interface could not be removed.
    FailedRemovingInterface,
}

impl Reason {
    /// The word in the Event.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AddedInterface => "AddedInterface",
            Self::FailedAddingInterface => "FailedAddingInterface",
            Self::NoNetworkFound => "NoNetworkFound",
            Self::DefaultNetworkMoved => "DefaultNetworkMoved",
            Self::FailedRemovingInterface => "FailedRemovingInterface",
        }
    }

    /// Names the action that was under way.
    const fn action(self) -> &'static str {
        match self {
            Self::AddedInterface
            | Self::FailedAddingInterface
            | Self::NoNetworkFound
            | Self::DefaultNetworkMoved => "Attach",
            Self::FailedRemovingInterface => "Detach",
        }
    }

    const fn severity(self) -> &'static str {
        match self {
            Self::AddedInterface => "Normal",
            Self::FailedAddingInterface
            | Self::NoNetworkFound
            | Self::DefaultNetworkMoved
            | Self::FailedRemovingInterface => "Warning",
        }
    }
}

/// Something to be said about a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Note {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// UID of the pod, as the runtime gave it.
    ///
    /// For a static pod `kubectl` looks for that one.
    pub uid: Option<String>,
    /// Reason of the event.
    pub reason: Reason,
    /// A sentence for people.
    pub text: String,
}

/// Where Events are handed in.
#[derive(Debug)]
pub struct EventWriter {
    notes: mpsc::Sender<Note>,
    metrics: Arc<Metrics>,
}

impl EventWriter {
    /// The place to hand in, and the work that writes.
    pub(super) fn new(client: Client, node: &str, metrics: Arc<Metrics>) -> (Self, Work) {
        let (notes, waiting) = mpsc::channel(WAITING_MAX);
        let worker = Worker {
            client,
            node: node.to_owned(),
            metrics: Arc::clone(&metrics),
            recent: HashMap::new(),
        };
        (Self { notes, metrics }, worker.work(waiting).boxed())
    }

    /// Hands one in. When too many wait already, it is dropped, and counted.
    pub fn say(&self, note: Note) {
        if let Err(error) = self.notes.try_send(note) {
            tracing::debug!(%error, "an Event of the pod is dropped");
            self.metrics.api_write("event", "dropped");
        }
    }
}

struct Worker {
    client: Client,
    node: String,
    metrics: Arc<Metrics>,
    /// Events that were written lately: their objects, how often, and when last.
    recent: HashMap<Note, Written>,
}

struct Written {
    name: String,
    count: i32,
    last: Instant,
}

impl Worker {
    async fn work(mut self, mut waiting: mpsc::Receiver<Note>) {
        while let Some(note) = waiting.recv().await {
            self.recent
                .retain(|_, written| written.last.elapsed() < SERIES);
            let mut pause = RETRY;
            for attempt in 1..=ATTEMPTS {
                let tried = tokio::time::timeout(PATIENCE, self.write(&note)).await;
                let why = match tried {
                    Ok(Ok(())) => {
                        self.metrics.api_write("event", "written");
                        break;
                    }
                    // The namespace is being deleted, and the pod with it.
                    Ok(Err(kube::Error::Api(status))) if matches!(status.code, 403 | 404) => {
                        tracing::debug!(status.message, "the API server refused an Event");
                        self.metrics.api_write("event", "gone");
                        break;
                    }
                    Ok(Err(error)) => brief(&error),
                    Err(_) => "no answer from the API server".to_owned(),
                };
                if attempt == ATTEMPTS {
                    tracing::warn!(
                        namespace = note.namespace,
                        pod = note.pod,
                        error = why,
                        "an Event of the pod is dropped"
                    );
                    self.metrics.api_write("event", "failed");
                } else {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
            }
        }
        // The sender lives as long as the agent follows the cluster.
        std::future::pending::<()>().await;
    }

    async fn write(&mut self, note: &Note) -> Result<(), kube::Error> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &note.namespace);
        let now = Timestamp::now();
        if let Some(written) = self.recent.get_mut(note) {
            let count = written.count.saturating_add(1);
            let series = json!({"series": {"count": count, "lastObservedTime": MicroTime(now)}});
            let params = PatchParams {
                field_manager: Some(MANAGER.to_owned()),
                ..PatchParams::default()
            };
            match api
                .patch(&written.name, &params, &Patch::Merge(series))
                .await
            {
                Ok(_) => {
                    written.count = count;
                    written.last = Instant::now();
                    return Ok(());
                }
                // It has expired, or somebody has removed it.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        let event = event(note, &self.node, now);
        let name = event.metadata.name.clone().unwrap_or_default();
        api.create(&PostParams::default(), &event).await?;
        let written = Written {
            name,
            count: 1,
            last: Instant::now(),
        };
        self.recent.insert(note.clone(), written);
        Ok(())
    }
}

fn event(note: &Note, node: &str, now: Timestamp) -> Event {
    let name = format!(
        "{}.{:x}",
        beginning(&note.pod, NAME_MAX).trim_end_matches(['.', '-']),
        now.as_nanosecond()
    );
    Event {
        metadata: ObjectMeta {
            namespace: Some(note.namespace.clone()),
            name: Some(name),
            ..ObjectMeta::default()
        },
        action: Some(note.reason.action().to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(beginning(&note.text, NOTE_MAX).to_owned()),
        reason: Some(note.reason.as_str().to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(note.namespace.clone()),
            name: Some(note.pod.clone()),
            uid: note.uid.clone(),
            ..ObjectReference::default()
        }),
        reporting_controller: Some("podnet.dev/agent".to_owned()),
        reporting_instance: Some(node.to_owned()),
        type_: Some(note.reason.severity().to_owned()),
        ..Event::default()
    }
}

/// As much of a text as fits in so many bytes.
fn beginning(text: &str, max: usize) -> &str {
    let end = text.floor_char_boundary(max);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(pod: &str, text: &str) -> Note {
        Note {
            namespace: "shop".to_owned(),
            pod: pod.to_owned(),
            uid: Some("u".to_owned()),
            reason: Reason::AddedInterface,
            text: text.to_owned(),
        }
    }

    /// Kubernetes API, `events.k8s.io/v1`: what its validation asks for.
    #[test]
    fn an_event_of_a_pod_with_long_words_is_still_valid() {
        let pod = format!("{}.{}", "a".repeat(229), "b".repeat(23));
        let event = event(&note(&pod, &"ä".repeat(2000)), "node-1", Timestamp::now());
        let name = event.metadata.name.unwrap();
        assert!(name.len() <= 253 && !name.contains(".."), "{name}");
        let text = event.note.unwrap();
        assert!(text.len() <= NOTE_MAX && text.len() > NOTE_MAX - 4);
        assert_eq!(event.regarding.unwrap().name.unwrap(), pod);
        assert_eq!(event.type_.unwrap(), "Normal");
        assert_eq!(event.action.unwrap(), "Attach");
    }

    /// NPWG-X4
    #[test]
    fn an_interface_that_is_left_is_a_warning_about_a_removal() {
        let mut left = note("web", "attachment 2, …");
        left.reason = Reason::FailedRemovingInterface;
        let event = event(&left, "node-1", Timestamp::now());
        assert_eq!(event.reason.unwrap(), "FailedRemovingInterface");
        assert_eq!(event.action.unwrap(), "Detach");
        assert_eq!(event.type_.unwrap(), "Warning");
        proof::of!("NPWG-X4");
    }
}
