//! Write Events about network policies.
//!
//! They tell of what is not obeyed, selects nothing, or allows everything. It is apart from the plan: nothing waits for it, and the plan needs no policy. Policies are followed by the
//! controller that leads alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::copied::unread;
use cluster::facts::{Facts, Follow};
use cluster::policies::{self as objects, Cluster, Multi, Namespaced, Of, Written};
use futures_util::future::{select, select_all};
use kube::{Client, Resource as _};
use tokio::sync::Notify;

use super::leader::Leader;
use super::policies::{Followed, Found, Policies};
use overview::view::View;

/// Least time between two looks.
const REST: Duration = Duration::from_secs(5);
/// Longest time between two looks: a change of pods or networks ends no rest.
const AGAIN: Duration = Duration::from_secs(10);
/// Events of one look; others come in the next ones.
const MOST: usize = 32;

/// Copies of policies and namespaces.
struct Copies {
    networks: Facts<Followed>,
    multi: Facts<Followed>,
    cluster: Facts<Followed>,
    namespaces: Facts<policy::Labels>,
}

impl Leader {
    /// Writes Events about policies, for ever.
    pub async fn advise(&self, client: &Client) {
        let changed = Arc::new(Notify::new());
        let mut follow = Follow::new(client, &changed);
        let copies = Copies {
            networks: follow.copy("networkpolicies", false, followed::<Namespaced>),
            multi: follow.copy("multi-networkpolicies", true, followed::<Multi>),
            cluster: follow.copy("clusternetworkpolicies", true, followed::<Cluster>),
            namespaces: follow.copy("namespaces", false, objects::namespace),
        };
        let look = async {
            let mut selecting_none = BTreeSet::new();
            loop {
                let policies = copies.policies();
                if let Some(policies) = policies.filter(|_| self.copies.unread().is_empty()) {
                    selecting_none = self.look(policies, selecting_none).await;
                }
                tokio::time::sleep(REST).await;
                // Either way it is time to look again.
                let _ = tokio::time::timeout(AGAIN, changed.notified()).await;
            }
        };
        // Neither of them ends.
        select(Box::pin(look), select_all(follow.work())).await;
    }

    /// Looks once; returns the policies that select no pod.
    async fn look(&self, policies: Policies, before: BTreeSet<String>) -> BTreeSet<String> {
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
        let found = found.unwrap_or_default();
        let mut written = 0;
        for note in &found.notes {
            written += usize::from(self.executor.say(note).await);
            if written >= MOST {
                break;
            }
        }
        found.selecting_none
    }
}

impl Copies {
    /// Returns all policies, unless some kind was never read.
    fn policies(&self) -> Option<Policies> {
        let all = [&self.networks, &self.multi, &self.cluster];
        let kinds = all.iter().map(|facts| &facts.kind);
        if !unread(kinds.chain([&self.namespaces.kind])).is_empty() {
            return None;
        }
        let all = all.into_iter();
        let all = all.flat_map(|facts| facts.known().values().cloned().collect::<Vec<_>>());
        let namespaces = self.namespaces.known();
        let namespaces = namespaces.iter();
        Some(Policies {
            all: all.collect(),
            namespaces: namespaces
                .map(|((_, name), labels)| (name.clone(), labels.clone()))
                .collect(),
        })
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "some objects of other kinds have no facts"
)]
fn followed<M: Of>(object: &Written<M>) -> Option<Followed>
where
    Written<M>: kube::Resource,
{
    Some(Followed {
        uid: object.meta().uid.clone().unwrap_or_default(),
        policy: objects::policy(object),
    })
}
