//! Write Events about Services of networks that are not obeyed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::brief;
use cluster::copied::Key;
use cluster::events::{EventWriter, Note};
use cluster::facts::Facts;
use election::Fence;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;

use crate::facts::{Followed, ServiceFacts};
use crate::wanted::{SELECTING_MAX, too_many};

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(5);
/// Events that are written in one look.
const MOST: usize = 32;
/// How long the API server may take for one.
const PATIENCE: Duration = Duration::from_secs(10);
/// Name of the reporting controller in Events.
const REPORTER: &str = "podnet.dev/controller";

/// Writes the Events, as long as the fence holds.
pub(super) struct Teller {
    pub(super) client: Client,
    pub(super) fence: Arc<Fence>,
    /// Name of this controller in Events.
    pub(super) instance: String,
    pub(super) services: Arc<Facts<Arc<ServiceFacts>>>,
    pub(super) slices: Arc<Facts<Followed>>,
}

impl Teller {
    /// Looks and writes, for ever.
    pub(super) async fn work(&self) {
        let mut events = EventWriter::new(self.client.clone(), REPORTER, self.instance.clone());
        let mut last = Key::default();
        loop {
            let problems = self.problems();
            let later = problems
                .range(last.clone()..)
                .filter(|(key, _)| **key != last);
            let earlier = problems.range(..=last.clone());
            let mut written = 0;
            let mut reached = last.clone();
            for (key, (uid, text)) in later.chain(earlier) {
                if written == MOST || !self.fence.holds() {
                    break;
                }
                let note = note(key, uid, text.clone());
                match tokio::time::timeout(PATIENCE, events.say(&note)).await {
                    Ok(Ok(is_new)) => written += usize::from(is_new),
                    Ok(Err(error)) => {
                        tracing::debug!(error = %brief(&error), "an Event about a Service could not be written");
                        break;
                    }
                    Err(_) => break,
                }
                reached.clone_from(key);
            }
            last = reached;
            tokio::time::sleep(EVERY).await;
        }
    }

    /// UID and problems of each Service that has some.
    fn problems(&self) -> BTreeMap<Key, (String, String)> {
        let services = self.services.known().clone();
        let too_many = too_many(&services);
        let mut left: BTreeSet<Key> = BTreeSet::new();
        for ((namespace, _), slice) in &*self.slices.known() {
            if let Followed::OfCluster(slice) = slice {
                left.insert((namespace.clone(), slice.content.service.clone()));
            }
        }
        let mut found = BTreeMap::new();
        for (key, facts) in &services {
            let mut problems = facts.problems.clone();
            if too_many.contains(key) {
                problems.push(format!(
                    "the namespace has more than {SELECTING_MAX} Services that select pods by an annotation, and this one has no endpoints; remove some"
                ));
            }
            if facts.selects_pods() && facts.is_headless && left.contains(key) {
                problems.push(
                    "Kubernetes has left EndpointSlices of a selector that it had before, and DNS tells these addresses; delete them".to_owned(),
                );
            }
            if !problems.is_empty() {
                found.insert(key.clone(), (facts.uid.clone(), problems.join("; ")));
            }
        }
        found
    }
}

fn note((namespace, name): &Key, uid: &str, text: String) -> Note {
    Note {
        about: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            namespace: Some(namespace.clone()),
            name: Some(name.clone()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        },
        reason: "NotObeyed",
        action: "Serve",
        is_warning: true,
        varies: false,
        text,
    }
}
