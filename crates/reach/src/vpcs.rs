//! Route between the networks of VPCs.
//!
//! Which networks a virtual gateway leads to is in the objects; which of them have ports here, and their numbers, is in
//! the book. The tables get both as one input whenever either changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use agent_common::map::MAX_ROUTES;
use agent_common::route::Route;
use api::{Network, Prefix, Resolved, Transport};
use book::Book;
use book::ledger::Ledger;
use book::record::NetworkFacts;
use datapath::DatapathError;
use remotes::Served;
use tables::Reconciler;
use tables::routes::{AllRoutes, Routes};
use telemetry::chain;
use tokio::sync::Mutex;
use world::{Current, World};

/// Time until tables that could not be written are tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Routes that all networks of a node have together.
///
/// While routes of a network are replaced, old and new ones are in the map.
const ROUTES: usize = MAX_ROUTES as usize / 4 * 3;

/// The routes between networks, as this node has them.
#[derive(Debug)]
pub struct Vpcs {
    book: Arc<Book>,
    world: Arc<Current>,
    tables: Arc<Reconciler>,
    /// Held while routes are written: a port goes live behind those of its network.
    settled: Mutex<Settled>,
}

/// State of the last time that routes were set.
#[derive(Debug, Default)]
struct Settled {
    /// The objects that they are of.
    world: Option<Arc<World>>,
    /// The networks that they are of.
    networks: Networks,
    /// Networks of which the tables have not been written yet.
    unwritten: BTreeSet<u32>,
}

impl Settled {
    /// Reports whether routes are in force as these objects want them of this network.
    fn is_as(&self, world: &Arc<World>, facts: &NetworkFacts) -> bool {
        let known = self.networks.in_use.get(&facts.id);
        let is_known = known.is_some_and(|known| known.name == facts.name);
        self.is_of(world) && self.unwritten.is_empty() && is_known
    }

    fn is_of(&self, world: &Arc<World>) -> bool {
        self.world.as_ref().is_some_and(|it| Arc::ptr_eq(it, world))
    }
}

/// Networks of the book.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Networks {
    /// Networks with attachments, by number.
    in_use: BTreeMap<u32, InUse>,
    /// Their numbers, by name.
    numbers: BTreeMap<String, u32>,
    /// Names that numbers are kept for, whether they are in use or not.
    holders: BTreeMap<u32, String>,
}

/// A network with attachments.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct InUse {
    name: String,
    /// Prefixes of a VPC to which its pods have routes.
    cidrs: BTreeSet<Prefix>,
}

impl Networks {
    fn of(ledger: &Ledger) -> Self {
        let mut networks = Self::default();
        for facts in ledger.networks() {
            let known = networks.in_use.entry(facts.id).or_default();
            known.name.clone_from(&facts.name);
            known.cidrs.extend(&facts.vpc_cidrs);
        }
        for (id, network) in &networks.in_use {
            let number = networks.numbers.entry(network.name.clone());
            number.or_insert(*id);
        }
        let holders = ledger.ids().map(|(name, id)| (id, name.to_owned()));
        networks.holders = holders.collect();
        networks
    }

    /// Finds the number of a network.
    ///
    /// That of its attachments here comes before the one that it was given. One that is another's here is not its.
    fn number_of(&self, network: &Network) -> Option<u32> {
        if let Some(id) = self.numbers.get(&network.name) {
            return Some(*id);
        }
        let given = network.id.map(api::NetworkId::get)?;
        let holder = self.holders.get(&given);
        holder.is_none_or(|it| *it == network.name).then_some(given)
    }
}

impl Vpcs {
    /// Hold what is needed; no route is set yet.
    pub fn new(book: Arc<Book>, world: Arc<Current>, tables: Arc<Reconciler>) -> Self {
        Self {
            book,
            world,
            tables,
            settled: Mutex::default(),
        }
    }

    /// Brings routes up to date before the first port of a network is live.
    ///
    /// Its number may have been another network's, to which routes led.
    ///
    /// # Errors
    /// When the kernel refuses those of this network, or those that lead to it.
    pub async fn admit(&self, facts: &NetworkFacts) -> Result<(), DatapathError> {
        if self.settled.lock().await.is_as(&self.world.get(), facts) {
            return Ok(());
        }
        let Err(error) = self.settle().await else {
            return Ok(());
        };
        let unwritten = self.settled.lock().await.unwritten.clone();
        let leads_here = unwritten.contains(&facts.id) || {
            let in_force = self.tables.look(|tables| tables.routes.dump())?;
            let mut stale = in_force
                .iter()
                .filter(|(key, _)| unwritten.contains(&key.network));
            stale.any(|(_, route)| route.network == facts.id)
        };
        if leads_here { Err(error) } else { Ok(()) }
    }

    /// Sets the routes, and writes the tables of the networks that they change.
    ///
    /// # Errors
    /// When the kernel refuses; the next call writes what is left.
    pub async fn settle(&self) -> Result<(), DatapathError> {
        let mut settled = self.settled.lock().await;
        let world = self.world.get();
        let surroundings = self.tables.surroundings();
        let before = surroundings.all_routes();
        let networks = Networks::of(&self.book.ledger());
        let is_new = !settled.is_of(&world) || settled.networks != networks;
        if is_new {
            let routes = if world.unread.is_empty() {
                wanted(&networks, &world.resolved)
            } else {
                // Without objects the routes that are in force stay, and nothing of a VPC leaves.
                let mut routes = fences(&networks);
                routes.extend(before);
                routes
            };
            settled.unwritten.extend(surroundings.set_routes(routes));
            (settled.world, settled.networks) = (Some(world), networks);
        }
        if settled.unwritten.is_empty() {
            return Ok(());
        }
        let (tables, all) = (Arc::clone(&self.tables), settled.unwritten.clone());
        let write = move || {
            let failed = all.into_iter().filter_map(|network| {
                let error = tables.reconcile(network).err()?;
                Some((network, error))
            });
            failed.collect::<Vec<_>>()
        };
        // A network that cannot be written does not keep the others from that.
        let failed = tokio::task::spawn_blocking(write).await.unwrap_or_default();
        settled.unwritten = failed.iter().map(|(network, _)| *network).collect();
        failed
            .into_iter()
            .next()
            .map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Sets the routes whenever objects or the networks in use change; for ever.
    pub async fn keep(&self) {
        let mut changes = self.book.ledger().changes();
        let mut objects = self.world.changes();
        loop {
            changes.mark_unchanged();
            objects.mark_unchanged();
            let settled = self.settle().await;
            if let Err(error) = &settled {
                let error = chain(error);
                tracing::error!(
                    error,
                    "the routes between networks of VPCs are not as they should be, trying again"
                );
            }
            tokio::select! {
                // Both senders live as long as the node.
                _ = changes.changed() => {}
                _ = objects.changed() => {}
                () = tokio::time::sleep(RETRY), if settled.is_err() => {}
            }
        }
    }
}

/// Computes the routes of all networks with attachments here.
fn wanted(networks: &Networks, resolved: &Resolved) -> AllRoutes {
    let mut all = fences(networks);
    if !resolved.has_vpcs() {
        return all;
    }
    let mut room = ROUTES.saturating_sub(all.values().map(|it| it.len()).sum());
    let mut left = Vec::new();
    for (id, network) in &networks.in_use {
        let routes = routes(networks, resolved, &network.name);
        if routes.is_empty() {
            continue;
        }
        if routes.len() > room {
            left.push(network.name.as_str());
            continue;
        }
        room -= routes.len();
        let fence = all.get(id).cloned().unwrap_or_default();
        all.insert(*id, Arc::new(routes.or(&fence)));
    }
    if let Some(first) = left.first() {
        tracing::error!(
            network = first,
            networks = left.len(),
            most = ROUTES,
            "there are more routes between networks of VPCs than a node has room for: pods of these networks reach no other one; give the VPCs fewer networks, or peers"
        );
    }
    all
}

/// Computes what is reached by no network: the prefixes to which pods have routes.
///
/// With them nothing of a VPC leaves by a way out, whatever becomes of the VPC.
fn fences(networks: &Networks) -> AllRoutes {
    let fenced = networks
        .in_use
        .iter()
        .filter(|(_, it)| !it.cidrs.is_empty());
    fenced
        .map(|(id, network)| {
            let routes = network.cidrs.iter().map(|cidr| (*cidr, Route::NOWHERE));
            (*id, Arc::new(routes.collect()))
        })
        .collect()
}

/// Computes the routes of a network's virtual gateway.
///
/// A network without a number has no member, so nothing there is reached.
fn routes(networks: &Networks, resolved: &Resolved, network: &str) -> Routes {
    let routes = resolved.routes_of(network).into_iter();
    routes
        .map(|it| {
            let to = it.network.and_then(|to| {
                let network = networks.number_of(to)?;
                let mtu = u32::from(to.mtu);
                Some(Route { network, mtu })
            });
            (it.prefix, to.unwrap_or(Route::NOWHERE))
        })
        .collect()
}

/// Lists the networks across nodes to which virtual gateways here lead.
pub(crate) fn reached(ledger: &Ledger, world: &World) -> BTreeMap<String, Served> {
    if !world.resolved.has_vpcs() {
        return BTreeMap::new();
    }
    let networks = Networks::of(ledger);
    let own = networks.in_use.values().map(|it| it.name.as_str());
    let reached = world.resolved.reached_from(own).into_iter();
    let spanning = reached.filter(|it| it.transport == Transport::Vxlan);
    spanning
        .filter_map(|network| {
            let id = networks.number_of(network)?;
            let facts = NetworkFacts::of(network, id);
            let served = Served::from(&facts);
            Some((facts.name, served))
        })
        .collect()
}

#[cfg(test)]
mod tests;
