//! Services of networks, and their endpoints, as the API server has them.
//!
//! The label of their network selects them there: what other Services a cluster has costs this node nothing, unless a
//! network that the nodes route for has those.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{
    CLUSTER_SLICE_MANAGER, MANAGED_BY_LABEL, NETWORK_LABEL, Routing, ServiceObject, ServiceSlice,
};
use book::Book;
use cluster::copied::unread;
use cluster::facts::Follow;
use futures_util::future::select_all;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use tokio::sync::{Notify, watch};
use world::Current;
use world::services::{ServiceCurrent, ServiceWorld};

/// Selects slices of networks, without those that Kubernetes makes of selectors.
///
/// These have the labels of their Service, and addresses of the cluster's network.
fn of_network() -> String {
    format!(
        "{NETWORK_LABEL},{MANAGED_BY_LABEL} notin ({CLUSTER_SLICE_MANAGER},endpointslicemirroring-controller.k8s.io)"
    )
}

/// Least time between two looks at the copies.
const SETTLE: Duration = Duration::from_millis(2);
/// Time between two looks, as a multiple of the time of one.
const REST: u32 = 4;

/// Place of the node in its cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Placed {
    /// The zone that the label of its object names.
    pub(crate) zone: Option<String>,
}

/// Services that networks have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Services with the label of a network.
    Labelled,
    /// The cluster's own Services, too.
    All,
}

/// Follows Services.
pub(crate) struct OfNetworks {
    client: Client,
    /// None before the node's object was looked for.
    node: watch::Receiver<Option<Placed>>,
    services: Arc<ServiceCurrent>,
    world: Arc<Current>,
    book: Arc<Book>,
}

impl OfNetworks {
    /// One for a node at this place, whose Services and networks are these.
    pub(crate) fn new(
        client: &Client,
        node: watch::Receiver<Option<Placed>>,
        services: Arc<ServiceCurrent>,
        world: Arc<Current>,
        book: Arc<Book>,
    ) -> Self {
        Self {
            client: client.clone(),
            node,
            services,
            world,
            book,
        }
    }

    /// Which Services some network has; `None` while networks are not known.
    ///
    /// A network that cannot be read, or is made once more, has those that it had: `before`, or by its pods' records.
    fn asked(&self, before: Option<Asked>) -> Option<Asked> {
        let world = self.world.get();
        if !world.unread.is_empty() {
            return None;
        }
        let by_node = |it: &&api::Network| it.routing == Routing::Node;
        let mut networks = world.resolved.definitions().filter(by_node).peekable();
        let all = if networks.peek().is_some() {
            networks.any(|it| !it.service_cidrs.is_empty())
        } else {
            let ledger = self.book.ledger();
            let mut here = ledger.networks().filter(|it| it.by_node);
            here.any(|it| before == Some(Asked::All) || !it.service_cidrs.is_empty())
        };
        Some(if all { Asked::All } else { Asked::Labelled })
    }

    /// Keeps the node's Services as those of the cluster, for ever.
    ///
    /// Before the networks are known, some would seem to be gone.
    pub(crate) async fn work(&self) {
        let mut world = self.world.changes();
        let mut before = None;
        loop {
            world.mark_unchanged();
            match self.asked(before) {
                Some(asked) => {
                    before = Some(asked);
                    self.follow(asked, &mut world).await;
                }
                // The sender lives as long as the agent.
                None => {
                    let _ = world.changed().await;
                }
            }
        }
    }

    /// Follows Services until networks have others.
    async fn follow(&self, asked: Asked, world: &mut watch::Receiver<u64>) {
        let changed = Arc::new(Notify::new());
        let mut follow = Follow::new(&self.client, &changed);
        let service = |object: &Service| ServiceObject::read(object).map(Arc::new);
        let slice = |object: &EndpointSlice| ServiceSlice::read(object).map(Arc::new);
        let (services, slices) = match asked {
            Asked::Labelled => (
                follow.copy_labelled("services", NETWORK_LABEL, service),
                follow.copy_labelled("endpointslices", &of_network(), slice),
            ),
            Asked::All => (
                follow.copy_some("services", false, service),
                follow.copy_some("endpointslices", false, slice),
            ),
        };
        let mut work = follow.work();
        let mut node = self.node.clone();
        loop {
            world.mark_unchanged();
            if self.asked(Some(asked)).is_some_and(|now| now != asked) {
                return;
            }
            let own = node.borrow_and_update().clone();
            let begun = Instant::now();
            let mut unread = unread([&services.kind, &slices.kind]);
            // Without the zone, endpoints of all zones would be in force for a moment.
            if own.is_none() {
                unread.push("nodes are not read yet".to_owned());
            }
            let known = if unread.is_empty() {
                let services = services.known().values().cloned().collect();
                let slices = slices.known().values().cloned().collect();
                ServiceWorld {
                    zone: own.and_then(|it| it.zone),
                    ..ServiceWorld::of(services, slices, Vec::new())
                }
            } else {
                ServiceWorld::unread(unread)
            };
            self.services.set(known);
            let rested = begun + begun.elapsed() * REST;
            tokio::select! {
                () = changed.notified() => {}
                // The senders live as long as the agent.
                _ = node.changed() => {}
                _ = world.changed() => {}
                // None of them ends.
                _ = select_all(work.iter_mut()) => {}
            }
            let next = rested.max(Instant::now() + SETTLE);
            tokio::select! {
                () = tokio::time::sleep_until(next.into()) => {}
                _ = select_all(work.iter_mut()) => {}
            }
        }
    }
}
