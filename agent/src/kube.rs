//! The cluster as this node sees it: what the API server says, and what is said to it.
//!
//! - [`watch`] follows all objects of a kind, [`copied`] keeps copies of them; `objects` makes a
//!   [`world::World`] of the copies.
//! - [`lookup`] answers which pod a request is for.
//! - [`status`] writes annotations of pods, [`events`] writes Events.
//! - `access` asks whether a pod may use its networks.
//! - `nodes` knows where the pods of other nodes are.
//! - `holdings` hears which addresses other nodes hold.
//! - `slices` says which members of networks that span nodes are here, and hears of the others.
//! - `addresses` sees to it that no other node gives the addresses that this one gives.
//!
//! No request of a runtime waits for any of it, but for the lookup of a pod that is not in the copy
//! yet, for an address by name, and when this node's share of addresses is used up. When the API server is away, the copies stay as they were. Types of Kubernetes' client end
//! here.

mod access;
mod addresses;
pub mod error;
pub mod events;
mod holdings;
pub mod lookup;
mod nodes;
mod objects;
pub mod report;
mod slices;
pub mod status;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::access::{AccessControl, Used};
use cluster::{ConnectError, Source, Work};
use futures_util::FutureExt as _;
use futures_util::future::select_all;
use world::{Current, World};

use self::access::Access;
pub use self::access::AccessError;
use self::addresses::{Addresses, Local};
pub use self::error::ClusterError;
use self::events::EventWriter;
use self::holdings::Blocks;
use self::lookup::Pods;
pub use self::lookup::{LookupError, Pod};
use self::nodes::Nodes;
use self::objects::Objects;
use self::slices::{Followed, Slices};
use self::status::StatusWriter;
use crate::book::Book;
use crate::ledger::Wanted;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::pods::FollowedAlready;
use crate::record::{Attachment, HostEnd, PodIdentity};
use crate::remotes::Remotes;

/// Who writes, as the API server's audit log and the fields of objects name it.
const MANAGER: &str = "podnet-agent";

/// A cluster and this node's place in it.
pub struct Cluster {
    pods: Pods,
    objects: Objects,
    status: StatusWriter,
    events: EventWriter,
    addresses: Addresses,
    nodes: Nodes,
    slices: Arc<Slices>,
    followed: Followed,
    blocks: Blocks,
    /// What is known of other nodes.
    remotes: Arc<Remotes>,
    /// Tunnels end at the addresses of the `Node`.
    node_tunnels: bool,
    /// None where all pods may use all networks.
    access: Option<Access>,
    /// What has to be done all the time, until [`Cluster::run`] does it.
    work: std::sync::Mutex<Vec<Work>>,
}

/// How a node deals with its cluster.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How long a block of addresses is kept that is not needed.
    pub keep_blocks: Duration,
    /// Whether a network is for all pods.
    pub access_control: AccessControl,
    /// Tunnels end at the addresses of the `Node`: nobody gave others.
    pub node_tunnels: bool,
}

impl Cluster {
    /// Prepares to follow the cluster as node `node`; nothing is asked before [`Cluster::run`].
    ///
    /// # Errors
    /// When it is not known where the API server is, or as whom to ask.
    pub async fn connect(
        source: &Source,
        node: &str,
        settings: Settings,
        remotes: &Arc<Remotes>,
        metrics: &Arc<Metrics>,
    ) -> Result<Arc<Self>, ConnectError> {
        let client = source.connect().await?;
        let (pods, pods_work) = Pods::new(&client, node);
        let (objects, objects_work) = Objects::new(&client);
        let (events, events_work) = EventWriter::new(client.clone(), node, Arc::clone(metrics));
        let (nodes, nodes_work) = Nodes::new(&client, node);
        let (slices, slices_work) = Slices::new(&client, node, nodes.own());
        let slices = Arc::new(slices);
        let followed = Followed::new(&client);
        let blocks = Blocks::new(&client, remotes);
        let (addresses, addresses_work) = Addresses::new(
            &client,
            node,
            pods.clone(),
            Arc::clone(&slices),
            remotes,
            Arc::clone(metrics),
            settings.keep_blocks,
        );
        let access = match settings.access_control {
            AccessControl::Off => None,
            AccessControl::ServiceAccount => Some(Access::new(client.clone(), pods.clone())),
            AccessControl::User | AccessControl::Either => {
                tracing::warn!(
                    "who made a pod is known to the webhook only: access to networks is not checked again"
                );
                None
            }
        };
        let status = StatusWriter::new(client, pods.clone(), Arc::clone(metrics));
        let mut work = objects_work;
        work.extend(nodes_work);
        work.extend(slices_work);
        work.extend(addresses_work);
        work.extend([pods_work, events_work]);
        Ok(Arc::new(Self {
            pods,
            objects,
            status,
            events,
            addresses,
            nodes,
            slices,
            followed,
            blocks,
            remotes: Arc::clone(remotes),
            node_tunnels: settings.node_tunnels,
            access,
            work: std::sync::Mutex::new(work),
        }))
    }

    /// Follows the cluster, keeps the node's world what it says, and writes about the node's pods; for
    /// ever.
    ///
    /// # Errors
    /// When another does that already.
    pub async fn run(self: Arc<Self>, node: Arc<Node>) -> Result<(), FollowedAlready> {
        let changes = node.book.pods().follow()?;
        let mut work: Vec<Work> = self
            .work
            .lock()
            .map(|mut work| work.drain(..).collect())
            .unwrap_or_default();
        let this = Arc::clone(&self);
        let current = Arc::clone(&node.world);
        work.push(async move { this.keep_world(&current).await }.boxed());
        let this = Arc::clone(&self);
        work.push(async move { this.status.work().await }.boxed());
        let (this, of_node) = (Arc::clone(&self), Arc::clone(&node));
        work.push(async move { this.addresses.work(&of_node).await }.boxed());
        let (this, of_node) = (Arc::clone(&self), Arc::clone(&node));
        work.push(async move { this.nodes.work(&of_node, this.node_tunnels).await }.boxed());
        let (this, of_node) = (Arc::clone(&self), Arc::clone(&node));
        work.push(async move { this.slices.work(&of_node).await }.boxed());
        let (this, of_node) = (Arc::clone(&self), Arc::clone(&node));
        work.push(async move { this.followed.work(&of_node).await }.boxed());
        let (this, of_node) = (Arc::clone(&self), Arc::clone(&node));
        work.push(async move { this.blocks.work(&of_node).await }.boxed());
        if self.access.is_some() {
            let (this, of_node) = (Arc::clone(&self), Arc::clone(&node));
            work.push(async move { this.ask_ahead(&of_node).await }.boxed());
        }
        let this = Arc::clone(&self);
        let pods = async move {
            // What a crash left half-made is no pod's status.
            node.until_recovered().await;
            report::follow(&this, node.pod_networks(), changes).await;
        };
        work.push(pods.boxed());
        // None of them ends.
        select_all(work).await;
        Ok(())
    }

    /// What is known of the cluster now.
    pub fn world(&self) -> World {
        let world = self.objects.world();
        match self.nodes.unread() {
            // Whether this node can be among those that a network spans is not known yet.
            Some(why) if self.node_tunnels && world.resolved.spans_nodes() => {
                World::unread(vec![why])
            }
            _ => world.on_node(!self.remotes.vteps().is_empty()),
        }
    }

    async fn keep_world(&self, current: &Current) {
        let (mut own, mut vteps) = (self.nodes.own(), self.remotes.vtep_changes());
        loop {
            tokio::select! {
                () = self.objects.changed() => {}
                // Both senders live as long as the agent.
                _ = own.changed() => {}
                _ = vteps.changed() => {}
            }
            let before = current.get();
            if current.set(self.world()) {
                let now = current.get();
                if !before.unread.is_empty() && now.unread.is_empty() {
                    tracing::info!("the cluster's networks are known");
                }
                now.complain();
            }
        }
    }

    /// Books an attachment with addresses that no other node gives; see [`Node`]'s ledger.
    ///
    /// # Errors
    /// When something wanted cannot be had, or not now. Nothing is booked then.
    pub async fn book(
        &self,
        book: &Book,
        world: &Current,
        wanted: Wanted,
        network: &api::Network,
        host: HostEnd,
    ) -> Result<Attachment, ClusterError> {
        let local = Local { book, world };
        self.addresses.book(local, wanted, network, host).await
    }

    async fn ask_ahead(&self, node: &Node) {
        if let Some(access) = &self.access {
            access.work(node).await;
        }
    }

    /// Succeeds when a pod may use all of these (KEP-P2-1).
    ///
    /// # Errors
    /// When it may not use one, or when nobody says that it may.
    pub async fn check_access(
        &self,
        pod: Option<&PodIdentity>,
        used: &BTreeSet<Used>,
    ) -> Result<(), ClusterError> {
        match &self.access {
            None => Ok(()),
            Some(access) => access.check(pod, used).await,
        }
    }

    /// Addresses are free again: others may need them.
    pub fn released(&self) {
        self.addresses.look_again();
    }

    /// The pod of this name on this node.
    ///
    /// # Errors
    /// When there is none, when it is another than `uid`, or when the API server does not tell.
    pub async fn pod(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
    ) -> Result<Pod, LookupError> {
        self.pods.find(namespace, name, uid).await
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Cluster")
            .field("pods", &self.pods)
            .finish_non_exhaustive()
    }
}
