//! Reads the cluster from the API server, and writes this node's part of it.
//!
//! - [`watch`] follows all objects of a kind, [`copied`] keeps copies of them; `objects` makes a
//!   [`world::World`] of the copies.
//! - [`lookup`] answers which pod a request is for.
//! - [`status`] writes annotations of pods, [`events`] writes Events.
//! - `policies` follows network policies, and what they select by while they name networks.
//! - `services` follows Services of networks, and their endpoints.
//! - `access` asks whether a pod may use its networks.
//! - `nodes` knows where the pods of other nodes are.
//! - `holdings` hears which addresses other nodes hold.
//! - `slices` says which members of networks that span nodes are here, and hears of the others.
//! - [`scheduling`] says what the scheduler can count on here.
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
mod home;
pub mod lookup;
mod nodes;
mod objects;
mod policies;
pub mod report;
pub mod scheduling;
mod slices;
pub mod status;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::access::{AccessControl, Used};
use cluster::{ConnectError, Source, Work};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, select_all};
use world::World;

use self::access::Access;
pub(crate) use self::access::everybodys;
use self::addresses::Addresses;
pub use self::error::{AccessError, ClusterError};
use self::events::EventWriter;
use self::holdings::Blocks;
pub use self::home::Home;
pub use self::lookup::Pod;
use self::lookup::Pods;
pub use ::addresses::LookupError;
use book::ledger::Wanted;
use book::pods::{FollowedAlready, PodNetworks};
use book::record::{Attachment, HostEnd, PodIdentity};
use reach::Reach;

use crate::service_objects::{Named, OfNetworks};

use self::nodes::Nodes;
use self::objects::Objects;
use self::policies::Policies;
use self::scheduling::{Scheduling, SchedulingOptions};
use self::slices::{Followed, Slices};
use self::status::StatusWriter;

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
    policies: Policies,
    services: OfNetworks,
    named: Named,
    scheduling: Scheduling,
    home: Home,
    /// Tunnels end at the addresses of the `Node`.
    node_tunnels: bool,
    /// None where all pods may use all networks.
    access: Option<Access>,
    /// Work that has to be done all the time; [`Cluster::run`] takes it.
    work: std::sync::Mutex<Vec<Work>>,
}

/// How a node deals with its cluster.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long a block of addresses is kept that is not needed.
    pub keep_blocks: Duration,
    /// Whether a network is for all pods.
    pub access_control: AccessControl,
    /// Tunnels end at the addresses of the `Node`: nobody gave others.
    pub node_tunnels: bool,
    /// The scheduler's view of this node.
    pub scheduling: SchedulingOptions,
}

impl Cluster {
    /// Prepares to follow the cluster as node `node`, without a request.
    ///
    /// [`Cluster::run`] asks first.
    ///
    /// # Errors
    /// When it is not known where the API server is, or as whom to ask.
    pub async fn connect(
        source: &Source,
        node: &str,
        settings: Settings,
        home: Home,
    ) -> Result<Arc<Self>, ConnectError> {
        let client = source.connect().await?;
        let (pods, pods_work) = Pods::new(&client, node);
        let (objects, objects_work) = Objects::new(&client);
        let (events, events_work) =
            EventWriter::new(client.clone(), node, Arc::clone(&home.metrics));
        let (nodes, nodes_work) = Nodes::new(&client, node);
        let (slices, slices_work) = Slices::new(&client, node, nodes.own(), home.clone());
        let slices = Arc::new(slices);
        let followed = Followed::new(&client, home.clone());
        let blocks = Blocks::new(&client, home.clone());
        let policies = Policies::new(&client, home.clone());
        let services = OfNetworks::new(
            &client,
            nodes.placed(),
            Arc::clone(&home.services),
            Arc::clone(&home.world),
            Arc::clone(&home.book),
        );
        let named = Named::new(&client, Arc::clone(&home.world));
        let scheduling = Scheduling::new(&client, node, settings.scheduling, home.clone());
        let (addresses, addresses_work) = Addresses::new(
            &client,
            node,
            pods.clone(),
            Arc::clone(&slices),
            home.clone(),
            settings.keep_blocks,
        );
        let access = match settings.access_control {
            AccessControl::Off => None,
            AccessControl::ServiceAccount => {
                Some(Access::new(client.clone(), pods.clone(), home.clone()))
            }
            AccessControl::User | AccessControl::Either => {
                tracing::warn!(
                    "access to networks is not checked at ADD: only the webhook knows the user who made a pod"
                );
                None
            }
        };
        let status = StatusWriter::new(client, pods.clone(), Arc::clone(&home.metrics));
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
            policies,
            services,
            named,
            scheduling,
            home,
            node_tunnels: settings.node_tunnels,
            access,
            work: std::sync::Mutex::new(work),
        }))
    }

    /// Follows the cluster for ever, for the node's world and its pods.
    ///
    /// `attached` tells of the pods that have networks when start-up is over.
    ///
    /// # Errors
    /// When another does that already.
    pub async fn run(
        &self,
        reach: &Reach,
        attached: impl FnOnce() -> Vec<PodNetworks> + Send,
    ) -> Result<(), FollowedAlready> {
        let changes = self.home.book.pods().follow()?;
        let mut work: Vec<BoxFuture<'_, ()>> = Vec::new();
        if let Ok(mut copies) = self.work.lock() {
            work.extend(copies.drain(..));
        }
        work.push(self.keep_world().boxed());
        work.push(self.status.work().boxed());
        work.push(self.addresses.work().boxed());
        let nodes = self
            .nodes
            .work(reach, &self.home.remotes, self.node_tunnels);
        work.push(nodes.boxed());
        work.push(self.named.work(reach).boxed());
        work.push(self.slices.work().boxed());
        work.push(self.followed.work().boxed());
        work.push(self.blocks.work().boxed());
        work.push(self.policies.work().boxed());
        work.push(self.services.work().boxed());
        work.push(self.scheduling.work(reach).boxed());
        if let Some(access) = &self.access {
            work.push(access.work().boxed());
        }
        let pods = async {
            // What a crash left half-made is no pod's status.
            self.home.until_recovered().await;
            report::follow((&self.status, &self.events), attached(), changes).await;
        };
        work.push(pods.boxed());
        // None of them ends.
        select_all(work).await;
        Ok(())
    }

    /// Returns the cluster as it is known now.
    pub fn world(&self) -> World {
        // The node says which network its pods have first, and whether it can be among those that a network
        // spans.
        if let Some(why) = self.nodes.unread() {
            return World::unread(vec![why]);
        }
        let world = self
            .objects
            .world(self.nodes.default_network(), &self.home.lists);
        world.on_node(!self.home.remotes.vteps().is_empty())
    }

    async fn keep_world(&self) {
        let current = &self.home.world;
        let (mut own, mut vteps) = (self.nodes.own(), self.home.remotes.vtep_changes());
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

    /// Books an attachment with addresses that no other node gives.
    ///
    /// See [`Book::ledger`].
    ///
    /// # Errors
    /// When something wanted cannot be had, or not now. Nothing is booked then.
    pub async fn book(
        &self,
        wanted: Wanted,
        network: &api::Network,
        host: HostEnd,
    ) -> Result<Attachment, ClusterError> {
        self.addresses.book(wanted, network, host).await
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
