//! Prepares the node's own stack for the network that the node routes for.
//!
//! That is done once for the node, and (in [`port`]) for each attachment.
//!
//! Packets of that network go through the node's routes and its connection tracking, because there
//! the Services of a cluster are translated. So the node forwards, knows where each pod and the pods
//! of other nodes are, and hides pods from the outside behind an address of its own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{Network, Prefix};
use book::ledger::Wanted;
use book::record::{Attachment, HostEnd};
use book::{AddressError, Book, BookError};
use host::{Host, HostError};
use ipam::IpamError;
use netdev::{Family, Masquerade, Netfilter, Sysctl, TableWrite, sysctl};
use telemetry::chain;
use tokio::sync::watch;
use world::Current;

mod direct;
mod plan;
mod port;

use direct::direct;
pub use direct::remove;
use plan::RoutingPlan;
pub use plan::{Nodes, Peer};

/// Name of the table of nf_tables that masquerades its pods.
pub const TABLE: &str = netdev::TABLE;
/// Longest time between two looks at routes, table and settings.
///
/// A look does not wait for a known change.
const ROUND: Duration = Duration::from_secs(30);

/// State of node routing.
#[derive(Debug)]
pub struct NodeRouting {
    host: Arc<Host>,
    book: Arc<Book>,
    world: Arc<Current>,
    /// Nodes of the cluster; none without a cluster, or before it has named any.
    nodes: watch::Sender<Option<Nodes>>,
    clustered: bool,
    state: Mutex<State>,
    /// One at a time makes changes.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Plan as made, but for `trouble`.
    plan: Option<RoutingPlan>,
    /// Why the network cannot be served, if so.
    trouble: Option<String>,
    /// Nodes whose pods are not reached, and why.
    unrouted: BTreeMap<String, String>,
    /// State of the table of nf_tables, as far as it is known.
    table: Table,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Table {
    /// An earlier agent may have left one.
    #[default]
    Unknown,
    Written,
    Absent,
}

/// Why the node does not route for a network, or not yet.
#[derive(Debug, thiserror::Error)]
#[error("network {network} is routed by the node, which is not ready for it: {why}")]
pub struct NotRouting {
    /// The network.
    network: String,
    /// Missing part and the remedy.
    why: String,
}

impl NotRouting {
    /// Names the network, and what is missing.
    pub fn new(network: &str, why: String) -> Self {
        Self {
            network: network.to_owned(),
            why,
        }
    }
}

/// A step that failed, with its reason.
struct Step(&'static str, netdev::Error);

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0, chain(&self.1))
    }
}

impl NodeRouting {
    /// Hold what is needed; nothing is made yet.
    ///
    /// With `clustered`, the nodes are those that the cluster names.
    pub fn new(host: Arc<Host>, book: Arc<Book>, world: Arc<Current>, clustered: bool) -> Self {
        Self {
            host,
            book,
            world,
            nodes: watch::Sender::new(None),
            clustered,
            state: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cluster has these nodes now.
    pub fn set_nodes(&self, nodes: Nodes) {
        self.nodes.send_if_modified(|known| {
            let changed = known.as_ref() != Some(&nodes);
            *known = Some(nodes);
            changed
        });
    }

    /// The table of nf_tables was written.
    pub fn has_table(&self) -> bool {
        self.state().table == Table::Written
    }

    /// How many nodes there are whose pods are not reached.
    pub fn unrouted(&self) -> usize {
        self.state().unrouted.len()
    }

    /// The prefixes from which pods of this node get their addresses, in a cluster.
    fn own_prefixes(&self, network: &Network) -> Vec<Prefix> {
        let nodes = self.nodes.borrow();
        let own = nodes.as_ref().map(|nodes| nodes.own.as_slice());
        plan::within(own.unwrap_or_default(), network)
    }

    /// Prefixes of pods and Services of the cluster; `None` before it has named any.
    pub(crate) fn cluster_prefixes(&self) -> Option<Vec<Prefix>> {
        let nodes = self.nodes.borrow();
        match &*nodes {
            Some(nodes) => Some(nodes.prefixes()),
            None if self.clustered => None,
            None => Some(Vec::new()),
        }
    }

    /// Tells of each change of the nodes.
    pub fn changes(&self) -> watch::Receiver<Option<Nodes>> {
        self.nodes.subscribe()
    }

    fn plan(&self, network: &Network) -> Result<RoutingPlan, String> {
        if !self.clustered {
            return Ok(RoutingPlan::alone(network));
        }
        match &*self.nodes.borrow() {
            Some(nodes) => RoutingPlan::in_cluster(network, nodes),
            None => Err("the nodes of the cluster were not read yet".to_owned()),
        }
    }

    /// Prepares the node to route for this network, unless it is prepared.
    ///
    /// # Errors
    /// When it cannot.
    pub async fn admit(&self, network: &Network) -> Result<(), NotRouting> {
        let wanted = self.plan(network);
        let is_made = |state: &State| state.trouble.is_none() && state.plan == wanted.clone().ok();
        if wanted.is_err() || !is_made(&self.state()) {
            self.settle(Some(network)).await;
        }
        match self.state().trouble.clone() {
            None => Ok(()),
            Some(why) => Err(NotRouting::new(&network.name, why)),
        }
    }

    /// Books an attachment to the network that the node routes for, in a cluster.
    ///
    /// Its addresses are of the node's own prefixes: other nodes have routes to these and to no single
    /// pod.
    ///
    /// # Errors
    /// When there is none, or one is asked for that other nodes would not find here.
    pub fn reserve(
        &self,
        wanted: Wanted,
        network: &Network,
        host: HostEnd,
    ) -> Result<Attachment, BookError> {
        if let Some(claim) = &wanted.claim {
            return Err(AddressError::ClaimOnNode {
                claim: claim.clone(),
                network: network.name.clone(),
            }
            .into());
        }
        let own = self.own_prefixes(network);
        for ip in wanted.ips.0.iter().map(|request| request.address) {
            if !own.iter().any(|prefix| prefix.contains(&ip)) {
                return Err(BookError::Address {
                    network: network.name.clone(),
                    source: IpamError::OutOfSubnets { ip, subnets: own },
                });
            }
        }
        let mut ledger = self.book.ledger();
        ledger.set_own(&network.name, own.iter().flat_map(plan::inner).collect());
        ledger.reserve(wanted, network, host)
    }

    /// Keeps what the node needs for it, for ever.
    pub async fn keep(&self) {
        let mut networks = self.world.changes();
        let mut nodes = self.changes();
        loop {
            let world = self.world.get();
            if world.check_read().is_ok() {
                self.settle(world.resolved.routed_by_node()).await;
            }
            tokio::select! {
                // Both senders live as long as the node.
                _ = networks.changed() => {}
                _ = nodes.changed() => {}
                () = tokio::time::sleep(ROUND) => {}
            }
        }
    }

    async fn settle(&self, network: Option<&Network>) {
        let _turn = self.turn.lock().await;
        let Some(network) = network else {
            return self.stop().await;
        };
        let world = self.world.get();
        let (network, held) = match self.other_pods(&network.name) {
            None => (network, None),
            Some((other, why)) => match world.resolved.definition(&other) {
                Some(definition) => (definition, Some(why)),
                // What is there serves those who are attached.
                None => return self.note_trouble(Some(why)),
            },
        };
        let plan = match self.plan(network) {
            Ok(plan) => plan,
            Err(why) => {
                // The same.
                self.note_trouble(held.or(Some(why)));
                return;
            }
        };
        let trouble = match self.make(&plan).await {
            Ok(()) => None,
            Err(step) => Some(step.to_string()),
        };
        self.state().plan = Some(plan);
        self.note_trouble(held.or(trouble));
    }

    /// Finds a routed network other than `wanted` that pods still have.
    ///
    /// The reason to wait comes with it.
    ///
    /// Routes and masquerading are those of one network. They stay with the pods that have them.
    fn other_pods(&self, wanted: &str) -> Option<(String, String)> {
        let ledger = self.book.ledger();
        let mut routed = ledger.networks().filter(|it| it.by_node);
        let other = routed.find(|it| it.name != wanted)?;
        let other = ledger
            .entries_on(other.id)
            .find(|it| it.network == *other)?;
        let holder = match &other.pod {
            Some(pod) => format!("{}/{}", pod.namespace, pod.name),
            None => other.key.to_string(),
        };
        let name = other.network.name.clone();
        let why = format!(
            "the node routes for one network at a time, and {holder} is attached to network {name}; \
             drain the node of its pods first"
        );
        Some((name, why))
    }

    fn note_trouble(&self, trouble: Option<String>) {
        let mut state = self.state();
        if let Some(why) = trouble.as_ref().filter(|_| trouble != state.trouble) {
            tracing::error!(why, "the node cannot route for its network yet");
        }
        state.trouble = trouble;
    }

    /// The last pod of such a network is gone, and so is the network.
    async fn stop(&self) {
        let in_use = self.book.ledger().networks().any(|facts| facts.by_node);
        let done = self.state().plan == Some(RoutingPlan::default());
        if in_use || done {
            return;
        }
        let nothing = RoutingPlan::default();
        match self.make_routes(&nothing).await {
            Ok(()) => {}
            Err(step) => {
                return tracing::warn!(error = %step, "the routes to other nodes could not be removed");
            }
        }
        // Where none was written, nf_tables is not touched: that alone would load its modules.
        if self.state().table == Table::Written {
            match self.host.netlink.with_netfilter(Netfilter::remove).await {
                Ok(_) => self.state().table = Table::Absent,
                Err(error) => {
                    return tracing::warn!(
                        error = chain(&error),
                        "masquerading of pods could not be removed"
                    );
                }
            }
        }
        let mut state = self.state();
        state.plan = Some(nothing);
        state.trouble = None;
    }

    async fn make(&self, plan: &RoutingPlan) -> Result<(), Step> {
        let (v4, v6) = (plan.v4, plan.v6);
        let forward = self.host.netlink.with(move |_| {
            for (family, wanted) in [(Family::V4, v4), (Family::V6, v6)] {
                if wanted {
                    forward(family)?;
                }
            }
            Ok(())
        });
        forward.await.map_err(|error| Step("forwarding", error))?;
        self.make_routes(plan).await?;
        self.make_masquerade(plan)
            .await
            .map_err(|error| Step("masquerading (spec.masquerade)", error))
    }

    /// Writes the table again where it was written and somebody changed it; true then.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn restore_masquerade(&self) -> Result<TableWrite, HostError> {
        let _turn = self.turn.lock().await;
        let wanted = {
            let state = self.state();
            let is_there = state.table == Table::Written;
            let plan = state.plan.as_ref().filter(|_| is_there);
            plan.and_then(|plan| plan.masquerade.clone())
        };
        match wanted {
            Some(wanted) => Ok(self.write_masquerade(wanted).await?),
            None => Ok(TableWrite::Unneeded),
        }
    }

    async fn write_masquerade(&self, wanted: Masquerade) -> Result<TableWrite, netdev::Error> {
        let write = move |netfilter: &mut Netfilter| netfilter.ensure(&(&wanted).into());
        self.host.netlink.with_netfilter(write).await
    }

    async fn make_masquerade(&self, plan: &RoutingPlan) -> Result<(), netdev::Error> {
        let Some(wanted) = plan.masquerade.clone() else {
            if self.state().table == Table::Absent {
                return Ok(());
            }
            match self.host.netlink.with_netfilter(Netfilter::remove).await {
                Ok(true) => tracing::info!("masquerading stopped"),
                Ok(false) => {}
                // A kernel without nf_tables masquerades nobody.
                Err(error) => tracing::debug!(error = chain(&error), "no masquerading to stop"),
            }
            self.state().table = Table::Absent;
            return Ok(());
        };
        if self.write_masquerade(wanted).await?.is_change() {
            tracing::info!("masquerading of pods is set up, in the nf_tables table inet podnet");
        }
        self.state().table = Table::Written;
        Ok(())
    }

    /// Routes to the pods of other nodes.
    async fn make_routes(&self, plan: &RoutingPlan) -> Result<(), Step> {
        let routes = plan.routes.clone();
        let mut unrouted = plan.unrouted.clone();
        let missed = self
            .host
            .netlink
            .with(move |connection| direct(connection, &routes));
        let missed = missed
            .await
            .map_err(|error| Step("routes to other nodes", error))?;
        unrouted.extend(missed);
        let mut state = self.state();
        for (node, why) in &unrouted {
            if state.unrouted.get(node) != Some(why) {
                tracing::warn!(
                    node,
                    why,
                    "the node has no route to the pods of another node"
                );
            }
        }
        state.unrouted = unrouted;
        Ok(())
    }
}

/// Makes the node forward packets of a family, which stays.
pub(crate) fn forward(family: Family) -> Result<(), netdev::Error> {
    if sysctl::read("all", family, "forwarding")? == "1" {
        return Ok(());
    }
    let setting = match family {
        Family::V4 => Sysctl::v4("forwarding", "1"),
        Family::V6 => Sysctl::v6("forwarding", "1"),
    };
    sysctl::write("all", &[setting])?;
    tracing::info!(
        %family,
        "net.{family}.conf.all.forwarding is 1 now, and stays so: the node routes for a network. \
         An IPv6 interface that lives on router advertisements needs accept_ra = 2 from now on",
    );
    Ok(())
}
