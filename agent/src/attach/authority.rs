//! The giver of addresses: the cluster, the node's own prefixes, or this node.

use std::sync::Arc;

use book::Book;
use book::ledger::Wanted;
use book::record::{Attachment, HostEnd, PodIdentity};
use cluster::access::Used;
use guards::Guards;
use reach::Reach;
use world::lists::ListOptions;
use world::{Current, WorldError};

use super::doors::Authority;
use crate::error::AgentError;
use crate::kube::{Cluster, everybodys};

/// The giver; see the module.
#[derive(Debug)]
pub struct Giver {
    /// Policies in force.
    pub guards: Arc<Guards>,
    /// Attachments and addresses.
    pub book: Arc<Book>,
    /// The cluster; none when networks come from files.
    pub cluster: Option<Arc<Cluster>>,
    /// Prefixes of the node's own.
    pub reach: Arc<Reach>,
    /// Networks as they are known now.
    pub world: Arc<Current>,
    /// How lists of pods are read; the default network is everybody's.
    pub lists: ListOptions,
}

impl Authority for Giver {
    async fn allow(
        &self,
        pod: Option<&PodIdentity>,
        used: impl IntoIterator<Item = Used> + Send,
    ) -> Result<(), AgentError> {
        // Without a cluster every network is everybody's.
        let Some(cluster) = &self.cluster else {
            return Ok(());
        };
        let everybodys = everybodys(&self.world.get(), &self.lists);
        let is_everybodys =
            |used: &Used| matches!(used, Used::Network(name) if everybodys.contains(name));
        let used = used.into_iter().filter(|used| !is_everybodys(used));
        let used = used.collect();
        Ok(cluster.check_access(pod, &used).await?)
    }

    async fn grant(
        &self,
        wanted: Wanted,
        network: &api::Network,
        host: HostEnd,
    ) -> Result<Attachment, AgentError> {
        if let Err(unread) = self.guards.known().await {
            return Err(WorldError::NotSynced { unread }.into());
        }
        let Some(cluster) = &self.cluster else {
            return Ok(self.book.ledger().reserve(wanted, network, host)?);
        };
        if network.routing == api::Routing::Node {
            return Ok(self.reach.reserve(wanted, network, host)?);
        }
        self.book.ledger().forget_own(&network.name);
        Ok(cluster.book(wanted, network, host).await?)
    }

    fn released(&self) {
        if let Some(cluster) = &self.cluster {
            cluster.released();
        }
    }
}
