//! Services of networks, and their endpoints, as the API server has them.
//!
//! The label of their network selects them there: what other Services a cluster has costs this node nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{CLUSTER_SLICE_MANAGER, MANAGED_BY_LABEL, NETWORK_LABEL, ServiceObject, ServiceSlice};
use cluster::copied::unread;
use cluster::facts::Follow;
use futures_util::future::select_all;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use tokio::sync::{Notify, watch};
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

/// Follows Services.
pub(crate) struct OfNetworks {
    client: Client,
    /// None before the node's object was looked for.
    node: watch::Receiver<Option<Placed>>,
    services: Arc<ServiceCurrent>,
}

impl OfNetworks {
    /// One for a node at this place, whose Services are these.
    pub(crate) fn new(
        client: &Client,
        node: watch::Receiver<Option<Placed>>,
        services: Arc<ServiceCurrent>,
    ) -> Self {
        Self {
            client: client.clone(),
            node,
            services,
        }
    }

    /// Keeps the node's Services as those of the cluster, for ever.
    pub(crate) async fn work(&self) {
        let changed = Arc::new(Notify::new());
        let mut follow = Follow::new(&self.client, &changed);
        let services = follow.copy_labelled("services", NETWORK_LABEL, |object: &Service| {
            ServiceObject::read(object).map(Arc::new)
        });
        let slices =
            follow.copy_labelled("endpointslices", &of_network(), |object: &EndpointSlice| {
                ServiceSlice::read(object).map(Arc::new)
            });
        let mut work = follow.work();
        let mut node = self.node.clone();
        loop {
            let own = node.borrow_and_update().clone();
            let begun = Instant::now();
            let mut unread = unread([&services.kind, &slices.kind]);
            // Without the zone, endpoints of all zones would be in force for a moment.
            if own.is_none() {
                unread.push("nodes are not read yet".to_owned());
            }
            let world = if unread.is_empty() {
                let services = services.known().values().cloned().collect();
                let slices = slices.known().values().cloned().collect();
                ServiceWorld {
                    zone: own.and_then(|it| it.zone),
                    ..ServiceWorld::of(services, slices, Vec::new())
                }
            } else {
                ServiceWorld::unread(unread)
            };
            self.services.set(world);
            let rested = begun + begun.elapsed() * REST;
            tokio::select! {
                () = changed.notified() => {}
                // The sender lives as long as the agent.
                _ = node.changed() => {}
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
