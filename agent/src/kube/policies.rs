//! Policies of the cluster, and what they select by.
//!
//! The three kinds are followed always. Pods, namespaces and nodes are followed for as long as a policy is for a
//! network of podnet: the copy of all pods is the largest that an agent has, and most clusters need none. See
//! [0098](../../../docs/adr/0098-inputs-of-policies-come-with-the-first-policy.md).

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::PolicyObject;
use cluster::Work;
use cluster::copied::unread;
use cluster::facts::{Facts, Follow};
use cluster::policies::{self, PolicyFacts};
use futures_util::future::select_all;
use kube::Client;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Notify;
use world::policies::{Labels, NodeFacts, PodFacts, PolicyWorld};

use super::home::Home;

mod of;

/// Least time between two looks at the copies.
///
/// What is applied together comes in one after the other.
const SETTLE: Duration = Duration::from_millis(20);
/// Time between two looks, as a multiple of the processor's time for one.
///
/// All pods are looked at for the change of one: no more of a processor than a tenth goes there.
const REST: u32 = 9;
/// Time for which pods are followed after the last policy that needs them.
///
/// Who replaces a policy deletes it first.
const LINGER: Duration = Duration::from_secs(60);

/// Follows policies.
pub(super) struct Policies {
    client: Client,
    home: Home,
}

/// The copies of what policies select by.
struct Inputs {
    pods: Facts<Arc<PodFacts>>,
    namespaces: Facts<Labels>,
    nodes: Facts<NodeFacts>,
    /// All of them were read once, and the log says so.
    told: bool,
    work: Vec<Work>,
}

impl Policies {
    pub(super) fn new(client: &Client, home: Home) -> Self {
        Self {
            client: client.clone(),
            home,
        }
    }

    /// Keeps the node's policies as those of the cluster, for ever.
    pub(super) async fn work(&self) {
        let changed = Arc::new(Notify::new());
        let mut follow = Follow::new(&self.client, &changed);
        let copies = PolicyFacts::follow(&mut follow, |_, policy| policy);
        let mut policies = follow.work();
        let mut inputs: Option<Inputs> = None;
        let mut unneeded: Option<Instant> = None;
        let mut networks = self.home.world.changes();
        loop {
            let (begun, spent) = (Instant::now(), processor_time());
            let mut world = policy_world(&copies);
            let known = self.home.world.get();
            if world.is_for_default() {
                // Until then nothing tells whether the default network is one of podnet.
                world.unread.extend(known.unread.iter().cloned());
            }
            let routes = known.resolved.routed_by_node().is_some();
            if world.names_networks() || routes && world.is_for_default() {
                unneeded = None;
                let inputs = inputs.get_or_insert_with(|| {
                    tracing::info!(
                        "a policy is for networks of podnet: pods, namespaces and nodes are followed"
                    );
                    Inputs::new(&self.client, &changed)
                });
                inputs.add_to(&mut world);
            } else if inputs.is_some() {
                let since = *unneeded.get_or_insert(begun);
                if begun.saturating_duration_since(since) >= LINGER {
                    inputs = None;
                    unneeded = None;
                }
            }
            if self.home.policies.set(world.sorted()) {
                self.home.policies.get().complain();
            }
            let spent = processor_time().saturating_sub(spent);
            let rested = Instant::now() + spent.saturating_mul(REST);
            tokio::select! {
                () = changed.notified() => {}
                // The sender lives as long as the node.
                _ = networks.changed() => {}
                () = tokio::time::sleep(LINGER), if unneeded.is_some() => {}
                () = follow_all(&mut policies, &mut inputs) => {}
            }
            let next = rested.max(Instant::now() + SETTLE);
            tokio::select! {
                () = tokio::time::sleep_until(next.into()) => {}
                () = follow_all(&mut policies, &mut inputs) => {}
            }
        }
    }
}

/// Time that this thread has had a processor.
///
/// A look waits for nothing: on a machine that has much to do it takes longer than it costs.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Returns all policies, without what they select by.
fn policy_world(copies: &PolicyFacts<PolicyObject>) -> PolicyWorld {
    let unread = unread(copies.kinds());
    if !unread.is_empty() {
        return PolicyWorld::unread(unread);
    }
    PolicyWorld {
        policies: copies.all(),
        ..PolicyWorld::default()
    }
}

impl Inputs {
    fn new(client: &Client, changed: &Arc<Notify>) -> Self {
        let mut follow = Follow::new(client, changed);
        Self {
            pods: follow.copy_some("pods", false, of::pod),
            namespaces: follow.copy("namespaces", false, policies::namespace),
            nodes: follow.copy("nodes", false, of::node),
            told: false,
            work: follow.work(),
        }
    }

    fn add_to(&mut self, world: &mut PolicyWorld) {
        let kinds = [&self.pods.kind, &self.namespaces.kind, &self.nodes.kind];
        let unread = unread(kinds);
        if unread.is_empty() && !self.told {
            let pods = self.pods.known().len();
            tracing::info!(
                pods,
                "the pods, namespaces and nodes that policies select by are known"
            );
            self.told = true;
        }
        world.unread.extend(unread);
        world.pods.clone_from(&self.pods.known());
        let namespaces = self.namespaces.known();
        let namespaces = namespaces.iter();
        world.namespaces = namespaces
            .map(|((_, name), labels)| (name.clone(), labels.clone()))
            .collect();
        world.nodes = self.nodes.known().values().cloned().collect();
    }
}

/// Goes on with all watches; none of them ends.
async fn follow_all(policies: &mut [Work], inputs: &mut Option<Inputs>) {
    let inputs = inputs.as_mut().map(|inputs| inputs.work.iter_mut());
    select_all(policies.iter_mut().chain(inputs.into_iter().flatten())).await;
}
