//! Write Events about network policies.
//!
//! They tell of what is not obeyed, selects nothing, or allows everything. It is apart from the plan: nothing waits for
//! it, and the plan needs no policy. Policies are followed by the controller that leads alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::copied::unread;
use cluster::events::{EventWriter, Note};
use cluster::facts::{Facts, Follow};
use cluster::policies::{self as objects, PolicyFacts};
use futures_util::future::{select, select_all};
use kube::Client;
use overview::view::View;
use tokio::sync::Notify;

use super::apply::Said;
use super::leader::Leader;
use super::policies::{Followed, Found, Policies};

/// Least time between two looks.
const REST: Duration = Duration::from_secs(5);
/// The same as a multiple of the time of a look.
///
/// A policy that selects nothing is compared with all pods.
const PAUSE: u32 = 9;
/// Longest wait for a change after a rest.
///
/// Changes of pods and networks are not waited for.
const AGAIN: Duration = Duration::from_secs(10);
/// Events that are tried in one look; others come in the next ones.
const MOST: usize = 32;
/// Events in a row that the API server does not take, after which a look ends.
const FAILURES: usize = 3;

/// Copies of policies and namespaces.
struct Copies {
    policies: PolicyFacts<Followed>,
    namespaces: Facts<policy::Labels>,
}

impl Leader {
    /// Writes Events about policies, for ever.
    pub async fn advise(&self, client: &Client) {
        let changed = Arc::new(Notify::new());
        let mut follow = Follow::new(client, &changed);
        let copies = Copies {
            policies: PolicyFacts::follow(&mut follow, |meta, policy| {
                Followed::new(meta.uid.clone().unwrap_or_default(), &policy)
            }),
            namespaces: follow.copy("namespaces", false, objects::namespace),
        };
        let look = async {
            let mut selecting_none = BTreeSet::new();
            let mut events = self.executor.writer();
            let (mut turn, mut rest) = (0, REST);
            loop {
                let begun = Instant::now();
                let policies = copies.policies();
                if let Some(policies) = policies.filter(|_| self.copies.unread().is_empty()) {
                    let found = self.look(policies, selecting_none).await;
                    rest = REST.max(begun.elapsed().saturating_mul(PAUSE));
                    let notes = by_turns(found.notes, turn);
                    self.tell(&mut events, notes.iter()).await;
                    selecting_none = found.selecting_none;
                    turn = turn.wrapping_add(1);
                }
                tokio::time::sleep(rest).await;
                // Either way it is time to look again.
                let _ = tokio::time::timeout(AGAIN, changed.notified()).await;
            }
        };
        // Neither of them ends.
        select(Box::pin(look), select_all(follow.work())).await;
    }

    /// Looks once.
    async fn look(&self, policies: Policies, before: BTreeSet<String>) -> Found {
        let (copies, rules) = (Arc::clone(&self.copies), self.rules.clone());
        let looking = tokio::task::spawn_blocking(move || {
            // A view of the cluster costs as much as a look at all of its pods.
            if policies.all.is_empty() {
                return Found::default();
            }
            let view = View {
                rules,
                ..copies.view()
            };
            policies.look(&view, &before)
        });
        let found = looking.await.inspect_err(
            |error| tracing::error!(%error, "policies could not be looked at: their Events come later"),
        );
        found.unwrap_or_default()
    }

    async fn tell(&self, events: &mut EventWriter, notes: impl Iterator<Item = &Note>) {
        let (mut tried, mut failed) = (0, 0);
        for note in notes {
            match self.executor.say_by(events, note).await {
                Said::Known => {}
                Said::Written => (tried, failed) = (tried + 1, 0),
                Said::Failed => (tried, failed) = (tried + 1, failed + 1),
            }
            if tried >= MOST || failed >= FAILURES {
                return;
            }
        }
    }
}

/// Puts notes in the order in which each namespace has one in turn.
///
/// So none keeps the others' from being written, however many policies it has. Another one is the first each `turn`.
fn by_turns(notes: Vec<Note>, turn: usize) -> Vec<Note> {
    let mut by_namespace: BTreeMap<Option<String>, VecDeque<Note>> = BTreeMap::new();
    for note in notes {
        let namespace = note.about.namespace.clone();
        by_namespace.entry(namespace).or_default().push_back(note);
    }
    let mut queues: Vec<VecDeque<Note>> = by_namespace.into_values().collect();
    let first = turn.checked_rem(queues.len()).unwrap_or(0);
    queues.rotate_left(first);
    let mut ordered = Vec::new();
    while !queues.is_empty() {
        ordered.extend(queues.iter_mut().filter_map(VecDeque::pop_front));
        queues.retain(|queue| !queue.is_empty());
    }
    ordered
}

impl Copies {
    /// Returns all policies, unless some kind was never read.
    fn policies(&self) -> Option<Policies> {
        let kinds = self.policies.kinds();
        if !unread(kinds.chain([&self.namespaces.kind])).is_empty() {
            return None;
        }
        let namespaces = self.namespaces.known();
        let namespaces = namespaces.iter();
        Some(Policies {
            all: self.policies.all(),
            namespaces: namespaces
                .map(|((_, name), labels)| (name.clone(), labels.clone()))
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;

    #[test]
    fn a_namespace_with_many_events_keeps_none_from_the_others() {
        let note = |(namespace, name): &(&str, &str)| Note {
            about: ObjectReference {
                namespace: (!namespace.is_empty()).then(|| (*namespace).to_owned()),
                name: Some((*name).to_owned()),
                ..ObjectReference::default()
            },
            reason: "NotObeyed",
            action: "Obey",
            is_warning: true,
            varies: false,
            text: String::new(),
        };
        let all = [("a", "1"), ("a", "2"), ("a", "3"), ("b", "4"), ("", "5")];
        let names = |turn| -> Vec<String> {
            let notes = by_turns(all.iter().map(note).collect(), turn);
            notes.into_iter().filter_map(|it| it.about.name).collect()
        };
        assert_eq!(names(0), ["5", "1", "4", "2", "3"]);
        assert_eq!(names(1), ["1", "4", "5", "2", "3"]);
        assert_eq!(by_turns(Vec::new(), 7), []);
    }
}
