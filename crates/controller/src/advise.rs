//! Write Events about network policies.
//!
//! They tell of what is not obeyed, selects nothing, or allows everything. It is apart from the plan: nothing waits for
//! it, and the plan needs no policy. Policies are followed by the controller that leads alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::copied::unread;
use cluster::events::{EventWriter, Note};
use cluster::facts::{Facts, Follow};
use cluster::policies::{self as objects, PolicyFacts};
use cluster::turns::by_turns;
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
                    let namespace = |note: &Note| note.about.namespace.clone().unwrap_or_default();
                    let notes = by_turns(found.notes, turn, namespace);
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
