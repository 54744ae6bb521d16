//! Egress: the way of a network's pods to what is outside of it, and back.
//!
//! Each network with egress that has attachments on this node has a gateway here: a network
//! namespace of its own. What nobody on the network has goes there, leaves it with a transit address
//! of the gateway, and leaves the node with an address of the node. So addresses of pods are never
//! in the node's own namespace, and networks may have the same ones.
//!
//! What is in the kernel is the whole state: gateways are found by the aliases of their links.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use api::Prefix;
use book::Book;
use book::ledger::Ledger;
use book::record::NetworkFacts;
use datapath::DatapathError;
use host::{Host, HostError};
use locks::{Guard, Rank, Ranked};
use netdev::{Connection, Family, Netfilter, PortAt, TableWrite};
use tables::Reconciler;
use tables::surroundings::WayOut;
use telemetry::chain;
use telemetry::failpoint::reached;
use tokio::sync::watch as watch_channel;
use world::Current;

use crate::routing::{NodeRouting, forward};

mod connections;
mod gateway;
pub mod order;
mod plan;
mod ports;
mod watch;

pub use connections::Connections;
pub use connections::Tracked;
pub use gateway::remove;
use order::Ways;
pub use plan::GatewayPlan;
pub use plan::directory;
pub use plan::{INSIDE, OUTSIDE};
pub(crate) use plan::{LINK_PREFIX, PORT_PREFIX};
use ports::Written;
pub use ports::{PORTS, PortsWritten};
use watch::Watches;

/// Why a network has no way out on this node.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The kernel refused a step.
    #[error(
        "network {network} has egress Masquerade or clusterServices, and its way out cannot be made on this node: {source}"
    )]
    Refused {
        /// Number of the network.
        network: u32,
        /// Why.
        source: netdev::Error,
    },
    /// There are no transit addresses left.
    #[error(
        "network {network} has egress Masquerade or clusterServices, and this node has {max} networks with these already: attach the pod on another node"
    )]
    Full {
        /// Number of the network.
        network: u32,
        /// How many there can be.
        max: u16,
    },
    /// The kernel refused.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl From<netdev::Error> for EgressError {
    fn from(error: netdev::Error) -> Self {
        HostError::from(error).into()
    }
}

impl From<DatapathError> for EgressError {
    fn from(error: DatapathError) -> Self {
        HostError::from(error).into()
    }
}

/// Settings of the gateways.
#[derive(Debug)]
pub struct GatewayOptions {
    /// Directory of their namespaces.
    pub directory: PathBuf,
    /// Prefixes of the cluster that the operator names; no way out leads there.
    pub inside: Vec<Prefix>,
    /// Limits of tracked connections.
    pub connections: Connections,
    /// A cluster says which Services its network has.
    pub clustered: bool,
}

/// Ports of Services of the cluster's network, by namespace and name.
pub type ClusterServices = BTreeMap<(String, String), BTreeSet<PortAt>>;

/// A way out that is open.
#[derive(Debug)]
struct Opened {
    plan: GatewayPlan,
    way_out: WayOut,
    /// Which of the transit addresses it has.
    place: u16,
}

/// The gateways of this node.
#[derive(Debug)]
pub struct Egress {
    host: Arc<Host>,
    book: Arc<Book>,
    tables: Arc<Reconciler>,
    world: Arc<Current>,
    routing: Arc<NodeRouting>,
    /// Where their namespaces are kept.
    directory: PathBuf,
    /// Open ways out, by the number of the network.
    open: Ranked<BTreeMap<u32, Opened>>,
    /// Mapped ports as the tables say; none while that is not known.
    ports: Mutex<Option<Written>>,
    /// Where pods and Services of the cluster are, as the operator says.
    inside: Vec<Prefix>,
    /// How many connections may be tracked.
    pub connections: Arc<Connections>,
    /// The node's own guards may be there.
    fenced: AtomicBool,
    /// The table of the node was written, and podnet has not removed it.
    written: AtomicBool,
    /// The tables in the gateways' own namespaces.
    watches: Watches,
    /// Ports of Services of the cluster's network; `None` while they are not known.
    services: watch_channel::Sender<Option<Arc<ClusterServices>>>,
    /// One at a time makes changes.
    turn: tokio::sync::Mutex<()>,
}

impl Egress {
    /// Hold what is needed; no gateway is known yet.
    ///
    /// The addresses of the cluster are those that `routing` knows, and those that the operator names.
    pub fn new(
        host: Arc<Host>,
        book: Arc<Book>,
        tables: Arc<Reconciler>,
        world: Arc<Current>,
        routing: Arc<NodeRouting>,
        options: GatewayOptions,
    ) -> Self {
        Self {
            host,
            book,
            tables,
            world,
            routing,
            // Until they are known to be gone, see `mark`.
            fenced: AtomicBool::new(options.directory.exists()),
            directory: options.directory,
            inside: options.inside,
            connections: Arc::new(options.connections),
            watches: Watches::default(),
            services: watch_channel::Sender::new((!options.clustered).then(Arc::default)),
            open: Ranked::new(Rank::Feature, BTreeMap::new()),
            ports: Mutex::default(),
            written: AtomicBool::new(false),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Replaces the Services of the cluster's network, as far as networks name some.
    pub fn set_services(&self, services: ClusterServices) {
        let services = Some(Arc::new(services));
        self.services
            .send_if_modified(|known| std::mem::replace(known, services.clone()) != services);
    }

    /// Tells of changes of these Services, the first one at once.
    pub fn services(&self) -> watch_channel::Receiver<Option<Arc<ClusterServices>>> {
        let mut services = self.services.subscribe();
        services.mark_changed();
        services
    }

    /// Tells of changes of networks, which name Services.
    pub fn networks(&self) -> watch_channel::Receiver<u64> {
        self.world.changes()
    }

    /// Makes ways out that are open as their networks and Services are now.
    ///
    /// # Errors
    /// The last that failed; all others are looked after.
    pub async fn follow(&self) -> Result<(), EgressError> {
        let mut failed = None;
        let open: Vec<u32> = self.opened().keys().copied().collect();
        for network in open {
            let _turn = self.turn.lock().await;
            let plan = self.plan(network);
            if let Some(plan) = plan.filter(|plan| !self.is_open(plan)) {
                failed = self.make_way_out(plan).await.err().or(failed);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Returns ports of Services of the cluster's network that pods of a network reach.
    ///
    /// `None` while they are not known.
    fn services_of(&self, network: &str) -> Option<BTreeSet<PortAt>> {
        let world = self.world.get();
        // Of a network that cannot be read they stay as they were.
        let named = &world.resolved.definition(network)?.cluster_services;
        if named.is_empty() {
            return Some(BTreeSet::new());
        }
        let known = self.services.borrow().clone()?;
        let ports = named.iter().filter_map(|name| known.get(name));
        Some(ports.flatten().copied().collect())
    }

    fn opened(&self) -> Guard<'_, BTreeMap<u32, Opened>> {
        self.open.lock()
    }

    /// The way out of a network, if it is open.
    pub fn way_out(&self, network: u32) -> Option<WayOut> {
        self.opened().get(&network).map(|it| it.way_out)
    }

    /// The table of the node may be there.
    pub fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Acquire)
    }

    /// True from the first write of the node's table until podnet removes it.
    pub fn has_written(&self) -> bool {
        self.written.load(Ordering::Acquire)
    }

    /// True for the port of a gateway.
    pub fn has_port(&self, ifindex: u32) -> bool {
        self.opened()
            .values()
            .any(|it| it.way_out.ifindex == ifindex)
    }

    /// Opens the way out that an attachment to this network needs, unless it is open.
    ///
    /// The book has the attachment, so that no other task closes the way out meanwhile.
    ///
    /// # Errors
    /// When the kernel refuses; nothing of a way that was not there is left then.
    pub async fn open(&self, facts: &NetworkFacts) -> Result<(), EgressError> {
        if !facts.has_gateway() {
            return Ok(());
        }
        let Some(plan) = self.plan(facts.id) else {
            return Ok(());
        };
        if self.is_open(&plan) && self.has_ports_of(facts.id) {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        order::open(self, facts.id, plan).await
    }

    /// Closes the way out of a network that has no attachment any more.
    ///
    /// The audit removes the rest after a failure.
    pub async fn close(&self, facts: &NetworkFacts) {
        if !facts.has_gateway() {
            return;
        }
        let _turn = self.turn.lock().await;
        order::close(self, facts).await;
    }

    /// Makes the ways out that attachments need, before the tables lead there.
    ///
    /// Where one cannot be made, its pods do not get out, and the audit tries again.
    pub async fn recover(&self) {
        if self.planned_ways_out().is_empty() {
            return;
        }
        let _turn = self.turn.lock().await;
        order::recover(self).await;
    }

    /// Makes again what somebody removed, and removes what no attachment needs.
    ///
    /// # Errors
    /// The last that failed; all others are looked after.
    pub async fn audit(&self) -> Result<(), EgressError> {
        order::audit(self).await
    }

    /// Plans of the ways out that attachments of any state need, by network number.
    fn planned_ways_out(&self) -> BTreeMap<u32, GatewayPlan> {
        self.planned(&self.book.ledger())
    }

    fn planned(&self, ledger: &Ledger) -> BTreeMap<u32, GatewayPlan> {
        let mut plans: BTreeMap<u32, GatewayPlan> = BTreeMap::new();
        for facts in ledger.networks() {
            if facts.has_gateway() {
                let plan = plans.entry(facts.id);
                plan.or_insert_with(|| self.bare_plan(facts)).serve(facts);
            }
        }
        plans
    }

    /// Plan of a network that serves nobody yet.
    fn bare_plan(&self, facts: &NetworkFacts) -> GatewayPlan {
        GatewayPlan {
            connections: self.connections.of_pod(),
            services: self.services_of(&facts.name),
            ..GatewayPlan::of(facts.id)
        }
    }

    /// Enables forwarding of these families and writes the guards of the node.
    ///
    /// Packets leave by the node only after that.
    async fn write_fence(&self, v4: bool, v6: bool) -> Result<TableWrite, EgressError> {
        let inside = self.inside();
        let uplinks = self.host.netlink.with(|connection: &mut Connection| {
            let mut links = Vec::new();
            for ifindex in connection.default_links()? {
                links.extend(connection.by_index(ifindex)?);
            }
            Ok::<_, netdev::Error>(links)
        });
        let uplinks = uplinks.await?;
        // The programs at gateways' links first: they hold also where the table does not.
        let outlets = uplinks.iter().map(|link| link.ifindex).collect();
        self.tables.set_outlets(&outlets)?;
        let uplinks: Vec<String> = uplinks.into_iter().map(|link| link.name).collect();
        let connections = Arc::clone(&self.connections);
        let write = move |netfilter: &mut Netfilter| {
            let (uplinks, inside) = match inside {
                Some(inside) => (uplinks, inside),
                // What an agent before this one has written says more than is known yet.
                None if netfilter.has(OUTSIDE)? => return Ok(TableWrite::Unneeded),
                None => (Vec::new(), Vec::new()),
            };
            let wanted = |limit| plan::fence(&uplinks, &inside, limit);
            connections.read_room();
            let mut written = connections.write(netfilter, connections.of_network(), wanted)?;
            // The first table of a node loads what tracks connections.
            if connections.read_room() {
                let again = connections.write(netfilter, connections.of_network(), wanted)?;
                written = written.max(again);
            }
            Ok(written)
        };
        let written = self.host.netlink.with_netfilter(write).await?;
        self.written.store(true, Ordering::Release);
        if written.is_change() {
            tracing::info!("guards of egress set up, in the nf_tables table inet {OUTSIDE}");
        }
        let forwarding = self
            .host
            .netlink
            .with(move |_| -> Result<(), netdev::Error> {
                for (family, wanted) in [(Family::V4, v4), (Family::V6, v6)] {
                    if wanted {
                        forward(family)?;
                    }
                }
                Ok(())
            });
        forwarding.await?;
        Ok(written)
    }

    /// Prefixes that ways out do not lead to; `None` until the cluster has named them.
    ///
    /// They are those of pods of the network that the node routes for, and of pods and Services of the
    /// cluster.
    fn inside(&self) -> Option<Vec<(IpAddr, u8)>> {
        let world = self.world.get();
        let mut all = self.routing.cluster_prefixes()?;
        all.extend(&self.inside);
        let routed = world.resolved.routed_by_node();
        let subnets = routed.into_iter().flat_map(|network| &network.subnets);
        all.extend(subnets.map(|subnet| subnet.prefix));
        let merged = Prefix::aggregate(&all).into_iter();
        Some(merged.map(|it| (it.addr(), it.prefix_len())).collect())
    }

    /// Restores the guards of the node when they differ from the plan.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn restore_fence(&self) -> Result<TableWrite, EgressError> {
        let _turn = self.turn.lock().await;
        let planned = self.planned_ways_out();
        if planned.is_empty() {
            return Ok(TableWrite::Unneeded);
        }
        order::fence(self, &planned).await
    }

    /// True when it was not there, or not at the same place.
    async fn make_way_out(&self, plan: GatewayPlan) -> Result<bool, EgressError> {
        let (hook, directory) = (self.host.hook.clone(), self.directory.clone());
        let wanted = plan.clone();
        let known = self.opened().get(&plan.network).map(|it| it.place);
        let make = move |connection: &mut Connection| {
            gateway::ready(connection, &hook, &directory, (&wanted, known))
        };
        let (way_out, place) = self.host.netlink.with(make).await?;
        reached("egress.made");
        let network = plan.network;
        self.watches.keep(network, way_out, &self.directory);
        let opened = Opened {
            plan,
            way_out,
            place,
        };
        let before = self.opened().insert(network, opened);
        self.tables.surroundings().set_way_out(network, way_out);
        Ok(before.map(|it| it.way_out) != Some(way_out))
    }
}

impl Ways for Egress {
    type Turn<'a> = tokio::sync::MutexGuard<'a, ()>;

    async fn turn(&self) -> Self::Turn<'_> {
        self.turn.lock().await
    }

    fn plan(&self, network: u32) -> Option<GatewayPlan> {
        let ledger = self.book.ledger();
        let facts = ledger.networks().filter(|it| it.id == network);
        let mut facts = facts.filter(|it| it.has_gateway()).peekable();
        let mut plan = self.bare_plan(facts.peek()?);
        facts.for_each(|facts| plan.serve(facts));
        Some(plan)
    }

    fn planned(&self) -> BTreeMap<u32, GatewayPlan> {
        self.planned_ways_out()
    }

    fn is_open(&self, plan: &GatewayPlan) -> bool {
        self.opened().get(&plan.network).map(|it| &it.plan) == Some(plan)
    }

    fn mark(&self) {
        self.fenced.store(true, Ordering::Release);
        // Where it cannot be made, no namespace of a gateway can.
        let _ = std::fs::create_dir_all(&self.directory);
    }

    async fn fence(&self, v4: bool, v6: bool) -> Result<TableWrite, EgressError> {
        self.write_fence(v4, v6).await
    }

    async fn make(&self, plan: GatewayPlan) -> Result<bool, EgressError> {
        self.make_way_out(plan).await
    }

    async fn write_ports(&self) -> Result<PortsWritten, EgressError> {
        self.write_mapped().await
    }

    fn lead_to(&self, network: u32) -> Result<(), EgressError> {
        Ok(self.tables.reconcile(network)?)
    }

    fn forget(&self) -> BTreeSet<u32> {
        // Who is in the book by now finds its way open; who comes later does not.
        let ledger = self.book.ledger();
        let mut open = self.opened();
        let kept: BTreeSet<u32> = self.planned(&ledger).into_keys().collect();
        open.retain(|network, _| kept.contains(network));
        self.watches.end_all_but(&kept);
        drop(open);
        self.tables.surroundings().keep_ways_out(&kept);
        kept
    }

    async fn remove_all_but(&self, kept: &BTreeSet<u32>) -> Result<bool, EgressError> {
        let (directory, spare) = (self.directory.clone(), kept.clone());
        let remove = move |connection: &mut Connection| {
            gateway::remove_all_but(connection, &directory, &spare, false)
        };
        let removed = self.host.netlink.with(remove).await?;
        for what in &removed {
            tracing::info!(
                removed = what,
                "a part of an egress gateway that no network uses was removed"
            );
        }
        Ok(!removed.is_empty())
    }

    fn has_fence(&self) -> bool {
        self.is_fenced()
    }

    async fn remove_fence(&self) -> Result<(), EgressError> {
        self.written.store(false, Ordering::Release);
        let remove = |netfilter: &mut Netfilter| netfilter.remove_table(OUTSIDE);
        self.host.netlink.with_netfilter(remove).await?;
        Ok(())
    }

    fn unmark(&self) {
        self.fenced.store(false, Ordering::Release);
        // One with anything else in it stays.
        let _ = std::fs::remove_dir(&self.directory);
    }
}

/// True when these are the links of gateways.
pub fn is_link(name: &str) -> bool {
    name.starts_with(PORT_PREFIX) || name.starts_with(LINK_PREFIX)
}

/// Removes all gateways of the node; with `dry` only says which.
///
/// # Errors
/// When the kernel refuses.
pub fn clean(
    connection: &mut Connection,
    directory: &Path,
    dry: bool,
) -> Result<Vec<String>, netdev::Error> {
    let mut removed = remove(connection, directory, dry)?;
    for table in [OUTSIDE, PORTS] {
        let there = match Netfilter::open() {
            Ok(mut netfilter) if dry => netfilter.has(table),
            Ok(mut netfilter) => netfilter.remove_table(table),
            // A kernel without netfilter has no table of ours.
            Err(_) => Ok(false),
        };
        match there {
            Ok(true) => removed.push(format!("nf_tables table inet {table}")),
            Ok(false) => {}
            // One without nf_tables has none either.
            Err(error) => tracing::debug!(
                error = chain(&error),
                "nf_tables cannot be read, and no table of ways out is looked for"
            ),
        }
    }
    Ok(removed)
}
