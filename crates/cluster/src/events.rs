//! Write Events about objects (`events.k8s.io/v1`), each once until it changes.
//!
//! They are best effort.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::Instant;

/// Time after which an unchanged Event is written again.
///
/// An API server forgets Events after an hour.
const AGAIN: Duration = Duration::from_secs(600);
/// The longest `note` of an Event, bytes.
const NOTE_MAX: usize = 1024;
/// Longest name of an object in an Event's name, bytes.
///
/// A time in hexadecimal follows it.
const NAME_MAX: usize = 230;
/// The longest `reportingInstance` of an Event, bytes.
const INSTANCE_MAX: usize = 128;

/// Something to be said about an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The object, with its UID.
    pub about: ObjectReference,
    /// One word.
    pub reason: &'static str,
    /// Action that the controller tried, one word.
    pub action: &'static str,
    /// Something is wrong.
    pub is_warning: bool,
    /// True when the text differs each time.
    ///
    /// Such an Event is written once in ten minutes, whatever its text.
    pub varies: bool,
    /// A sentence.
    pub text: String,
}

/// Writes Events, each once until it changes or is old.
pub struct EventWriter {
    client: Client,
    /// Name of the reporting controller.
    controller: &'static str,
    instance: String,
    /// By UID of the object and reason.
    said: HashMap<(String, &'static str), (String, Instant)>,
}

impl std::fmt::Debug for EventWriter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("EventWriter")
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

impl EventWriter {
    /// One that writes as `instance` of the `controller`.
    pub fn new(client: Client, controller: &'static str, instance: String) -> Self {
        Self {
            client,
            controller,
            instance,
            said: HashMap::new(),
        }
    }

    /// Writes one, unless it was written lately. True when it was written now.
    ///
    /// # Errors
    /// When the API server does not take it; it is not tried again before [`AGAIN`].
    pub async fn say(&mut self, note: &Note) -> Result<bool, kube::Error> {
        let what = (note.about.uid.clone().unwrap_or_default(), note.reason);
        let is_known = self.said.get(&what).is_some_and(|(text, when)| {
            when.elapsed() < AGAIN && (note.varies || *text == note.text)
        });
        if is_known {
            return Ok(false);
        }
        self.said.retain(|_, (_, when)| when.elapsed() < AGAIN);
        self.said.insert(what, (note.text.clone(), Instant::now()));
        // Those of objects without a namespace are kept where kubectl looks for them.
        let namespace = note.about.namespace.as_deref().unwrap_or("default");
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let event = event(
            note,
            namespace,
            (self.controller, &self.instance),
            Timestamp::now(),
        );
        api.create(&PostParams::default(), &event).await?;
        Ok(true)
    }
}

fn event(
    note: &Note,
    namespace: &str,
    (controller, instance): (&str, &str),
    now: Timestamp,
) -> Event {
    let name = note.about.name.as_deref().unwrap_or_default();
    let prefix = beginning(name, NAME_MAX).trim_end_matches(['.', '-']);
    Event {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(format!("{prefix}.{:x}", now.as_nanosecond())),
            ..ObjectMeta::default()
        },
        action: Some(note.action.to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(beginning(&note.text, NOTE_MAX).to_owned()),
        reason: Some(note.reason.to_owned()),
        regarding: Some(note.about.clone()),
        reporting_controller: Some(controller.to_owned()),
        reporting_instance: Some(beginning(instance, INSTANCE_MAX).to_owned()),
        type_: Some(if note.is_warning { "Warning" } else { "Normal" }.to_owned()),
        ..Event::default()
    }
}

/// As much of a text as fits in so many bytes.
pub fn beginning(text: &str, max: usize) -> &str {
    let end = text.floor_char_boundary(max);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kubernetes API, `events.k8s.io/v1`: what its validation asks for.
    #[test]
    fn an_event_about_an_object_with_long_words_is_still_valid() {
        let note = Note {
            about: ObjectReference {
                name: Some(format!("{}.{}", "a".repeat(229), "b".repeat(23))),
                namespace: Some("shop".to_owned()),
                ..ObjectReference::default()
            },
            reason: "FailedScheduling",
            action: "Scheduling",
            is_warning: true,
            varies: false,
            text: "ä".repeat(NOTE_MAX),
        };
        let event = event(
            &note,
            "shop",
            ("podnet.dev/controller", &"i".repeat(200)),
            Timestamp::UNIX_EPOCH,
        );
        let name = event.metadata.name.expect("a name");
        assert!(
            name.len() <= 253 && api::check_subdomain(&name).is_ok(),
            "{name}"
        );
        assert_eq!(event.note.expect("a note").len(), NOTE_MAX);
        assert_eq!(
            event.reporting_instance.expect("an instance").len(),
            INSTANCE_MAX
        );
        assert_eq!(
            event.metadata.namespace,
            event.regarding.expect("an object").namespace
        );
    }
}
