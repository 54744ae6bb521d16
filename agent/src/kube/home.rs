//! Name the parts of a node that its place in a cluster needs.

use std::sync::Arc;

use book::Book;
use metrics::Metrics;
use remotes::Remotes;
use tokio::sync::watch;
use world::Current;
use world::lists::ListOptions;
use world::policies::PolicyCurrent;
use world::services::ServiceCurrent;

/// Field manager of the agent's writes, as the API server's audit log has it.
pub(super) const MANAGER: &str = "podnet-agent";

/// The parts of a node by which it is in a cluster.
#[derive(Debug, Clone)]
pub struct Home {
    /// Attachments, addresses, numbers and pods.
    pub book: Arc<Book>,
    /// Networks as they are known now.
    pub world: Arc<Current>,
    /// Policies, and what they select by, as they are known now.
    pub policies: Arc<PolicyCurrent>,
    /// Services of networks as they are known now.
    pub services: Arc<ServiceCurrent>,
    /// Members on other nodes.
    pub remotes: Arc<Remotes>,
    /// How lists of pods are read.
    pub lists: ListOptions,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// True once start-up is over.
    pub ready: watch::Receiver<bool>,
}

impl Home {
    /// True when the book is complete.
    pub(super) fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Waits until the book is complete, however long that takes.
    pub(super) async fn until_recovered(&self) {
        // The sender lives as long as the node.
        let _ = self.ready.clone().wait_for(|ready| *ready).await;
    }
}
