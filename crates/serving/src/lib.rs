//! Puts Services in force for the ports of this node.
//!
//! Services and their endpoints come from elsewhere. For each network with a port here they are compiled ([`services`])
//! and written ([`tables::services`]): before its first port is live, and whenever one of them changes.
//!
//! While it is not known which Services there are, what is in force stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::{OF_CLUSTER, Prefix};
use book::Book;
use book::record::NetworkFacts;
use datapath::DatapathError;
use services::{At, Clients, Compiler, Port, Served};
use tables::Reconciler;
use tables::services::{NetworkServices, PortKey, Wanted};
use telemetry::{Sparing, chain};
use world::services::{OfNetwork, ServiceCurrent, ServiceWorld};
use world::{Current, World};

/// Time within which changes that come together are one.
const SETTLE: Duration = Duration::from_millis(2);
/// Time to the next attempt where the kernel has refused.
const RETRY: Duration = Duration::from_secs(1);
/// Time of a round that counts for the rest after it, at most.
const LONGEST: Duration = Duration::from_millis(250);

/// Least time between two lines of the log about the same network.
const SPARING: Duration = Duration::from_secs(10);
/// Lines about networks whose Services could not be put in force.
static FAILURES: Sparing = Sparing::new(SPARING);
/// Lines about Services that are not served as they are written.
static PROBLEMS: Sparing = Sparing::new(SPARING);

/// Services in force on this node.
#[derive(Debug)]
pub struct Serving {
    inputs: Inputs,
    state: Mutex<State>,
}

/// The rooms that Services are read from and written to.
#[derive(Debug)]
pub struct Inputs {
    /// Name of this node.
    pub node: String,
    /// Attachments of this node.
    pub book: Arc<Book>,
    /// The tables.
    pub tables: Arc<Reconciler>,
    /// Services and their endpoints.
    pub services: Arc<ServiceCurrent>,
    /// Networks.
    pub world: Arc<Current>,
}

#[derive(Debug, Default)]
struct State {
    /// Networks whose Services are in force as they were compiled, by number.
    networks: BTreeMap<u32, InForce>,
    /// Prefixes of Services, as they were known last, by name of the network.
    prefixes: BTreeMap<String, Vec<Prefix>>,
    /// Compilers of the networks, by number.
    compilers: BTreeMap<u32, Compiler>,
    /// Problems that the log has, by name of the network.
    told: BTreeMap<String, BTreeSet<String>>,
}

/// Services of a network that are in force, and what they were made of.
#[derive(Debug, Clone)]
pub struct InForce {
    /// Name of the network.
    pub network: String,
    /// Addresses, ports and endpoints, and what is wrong with them.
    pub served: Arc<Served>,
    objects: Arc<OfNetwork>,
    prefixes: Vec<Prefix>,
    zone: Option<String>,
    /// The same in the words of the tables.
    formed: Arc<NetworkServices>,
}

impl Serving {
    /// Nothing is in force yet but what an agent before has left.
    pub fn new(inputs: Inputs) -> Self {
        Self {
            inputs,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The Services of each network, as they are in force.
    pub fn in_force(&self) -> Vec<InForce> {
        self.state().networks.values().cloned().collect()
    }

    /// Reads the Services and the networks; none while either is not known.
    fn known(&self) -> Option<(Arc<ServiceWorld>, Arc<World>)> {
        let services = self.inputs.services.get();
        let world = self.inputs.world.get();
        (services.unread.is_empty() && world.unread.is_empty()).then_some((services, world))
    }

    /// Serves the network of a port that is about to be live.
    ///
    /// Services protect nothing: one that does not fit keeps no pod from starting.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn admit(&self, facts: &NetworkFacts) -> Result<(), DatapathError> {
        let Some((services, world)) = self.known() else {
            return Ok(());
        };
        match self.state().update(&self.inputs, facts, &services, &world) {
            Err(DatapathError::MapFull { .. }) => Ok(()),
            updated => updated,
        }
    }

    /// Puts the Services of all networks in force; false when one was refused.
    fn update_all(&self) -> bool {
        let Some((services, world)) = self.known() else {
            return true;
        };
        let mut state = self.state();
        let mut networks: BTreeMap<u32, NetworkFacts> = BTreeMap::new();
        for facts in self.inputs.book.ledger().networks() {
            networks.entry(facts.id).or_insert_with(|| facts.clone());
        }
        let mut done = true;
        for facts in networks.values() {
            if let Err(error) = state.update(&self.inputs, facts, &services, &world) {
                done = false;
                let said = FAILURES.admit(&facts.id);
                if let Some(unsaid) = said {
                    tracing::error!(
                        network = facts.name,
                        error = %chain(&error),
                        unsaid,
                        "the Services of the network could not be put in force: those that were not written stay as they were; trying again"
                    );
                }
            }
        }
        let mut gone = self.inputs.tables.served_networks();
        gone.retain(|id| !networks.contains_key(id));
        for id in gone {
            state.networks.remove(&id);
            if let Err(error) = self.inputs.tables.serve(id, &NetworkServices::default()) {
                done = false;
                tracing::error!(network = id, error = %chain(&error), "Services of a network without ports could not be removed; trying again");
            }
        }
        state.networks.retain(|id, _| networks.contains_key(id));
        state.compilers.retain(|id, _| networks.contains_key(id));
        let names: BTreeSet<&String> = networks.values().map(|it| &it.name).collect();
        state.prefixes.retain(|name, _| names.contains(name));
        state.told.retain(|name, _| names.contains(name));
        done
    }

    /// Puts each change of Services, endpoints and networks in force; returns never.
    ///
    /// `applied` hears how long it took from a change until all of it was in force.
    pub async fn follow(self: &Arc<Self>, applied: impl Fn(Duration)) {
        let mut services = self.inputs.services.changes();
        let mut attachments = self.inputs.book.ledger().changes();
        let mut networks = self.inputs.world.changes();
        let mut changed = None;
        loop {
            let begun = Instant::now();
            // All that has come by now is read below: it leads to no other round.
            services.mark_unchanged();
            attachments.mark_unchanged();
            networks.mark_unchanged();
            let this = Arc::clone(self);
            let work = tokio::task::spawn_blocking(move || {
                let done = this.update_all();
                (done, this.inputs.tables.settle_services())
            });
            let wait = match work.await {
                Ok((true, Ok(next))) => {
                    if let Some(since) = changed.take() {
                        applied(Instant::now().saturating_duration_since(since));
                    }
                    next.map(|at| at.saturating_duration_since(Instant::now()))
                }
                Ok((false, Ok(_))) => Some(RETRY),
                Ok((_, Err(error))) => {
                    tracing::error!(error = %chain(&error), "endpoints that Services do not use any more could not be removed; trying again");
                    Some(RETRY)
                }
                Err(error) => {
                    tracing::error!(%error, "the Services could not be put in force; trying again");
                    Some(RETRY)
                }
            };
            let ended = Instant::now();
            let rested = ended + ended.duration_since(begun).min(LONGEST) * 2;
            let again = async {
                match wait {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            // The senders live as long as the node.
            let is_change = tokio::select! {
                _ = services.changed() => true,
                _ = attachments.changed() => false,
                _ = networks.changed() => true,
                () = again => false,
            };
            if is_change && changed.is_none() {
                changed = Some(Instant::now());
            }
            // Others have the processor twice as long as this had, or half a second.
            let next = rested.max(Instant::now() + SETTLE);
            tokio::time::sleep_until(next.into()).await;
        }
    }
}

impl State {
    /// Compiles the Services of a network, and puts them in force.
    fn update(
        &mut self,
        inputs: &Inputs,
        facts: &NetworkFacts,
        services: &ServiceWorld,
        world: &World,
    ) -> Result<(), DatapathError> {
        let prefixes = self.prefixes_of(inputs, facts, world);
        // A network that the node routes for has those of the cluster, if it says where they are.
        let of = match facts.by_node {
            true => OF_CLUSTER,
            false => &facts.name,
        };
        let own = services.networks.get(of).cloned();
        let objects = own
            .filter(|_| !(facts.by_node && prefixes.is_empty()))
            .unwrap_or_default();
        let is_same = |it: &&InForce| {
            let same = Arc::ptr_eq(&it.objects, &objects) || it.objects == objects;
            it.network == facts.name && same && it.prefixes == prefixes && it.zone == services.zone
        };
        if self.networks.get(&facts.id).filter(is_same).is_some() {
            return Ok(());
        }
        let clients = Clients {
            network: &facts.name,
            of,
            prefixes: &prefixes,
            node: &inputs.node,
            zone: services.zone.as_deref(),
        };
        let compiler = self.compilers.entry(facts.id).or_default();
        let served = compiler.compile(&clients, &objects.services, &objects.slices);
        self.tell(&facts.name, &served.problems);
        // What is in force is known again only when all of it went well.
        let before = self.networks.remove(&facts.id);
        let formed = match before.filter(|it| it.network == facts.name) {
            Some(before) if *before.served == served => before.formed,
            before => {
                let formed = Arc::new(form(&served, before.as_ref()));
                inputs.tables.serve(facts.id, &formed)?;
                formed
            }
        };
        let in_force = InForce {
            formed,
            network: facts.name.clone(),
            served: Arc::new(served),
            objects,
            prefixes,
            zone: services.zone.clone(),
        };
        self.networks.insert(facts.id, in_force);
        Ok(())
    }

    /// The prefixes of a network's Services, as they are written now.
    ///
    /// Of a network that cannot be read they stay as they were; records have those of when their pods came.
    fn prefixes_of(&mut self, inputs: &Inputs, facts: &NetworkFacts, world: &World) -> Vec<Prefix> {
        if let Some(network) = world.resolved.definition(&facts.name) {
            let prefixes = network.service_cidrs.clone();
            self.prefixes.insert(facts.name.clone(), prefixes.clone());
            return prefixes;
        }
        let recorded = || {
            let ledger = inputs.book.ledger();
            let own = ledger.networks().filter(|it| it.id == facts.id);
            let all: BTreeSet<Prefix> = own.flat_map(|it| it.service_cidrs.clone()).collect();
            all.into_iter().collect()
        };
        let known = self.prefixes.get(&facts.name).cloned();
        known.unwrap_or_else(recorded)
    }

    /// Logs problems that it has not logged before.
    fn tell(&mut self, network: &str, problems: &[String]) {
        let told = self.told.entry(network.to_owned()).or_default();
        for problem in problems.iter().filter(|it| !told.contains(*it)) {
            if let Some(unsaid) = PROBLEMS.admit(&network.to_owned()) {
                tracing::warn!(network, %problem, unsaid, "a Service is not served as it is written: correct it; get services tells of all");
            }
        }
        *told = problems.iter().cloned().collect();
    }
}

/// Services in the words of the tables.
///
/// Ports that are the same as before are shared with these.
fn form(served: &Served, before: Option<&InForce>) -> NetworkServices {
    let same = |at: &At, port: &Arc<Port>| {
        let before = before?;
        let known = before.served.ports.get(at)?;
        let formed = before.formed.ports.get(&key(at))?;
        Arc::ptr_eq(known, port).then(|| Arc::clone(formed))
    };
    let ports = served.ports.iter().map(|(at, port)| {
        let formed = same(at, port).unwrap_or_else(|| Arc::new(wanted(port)));
        (key(at), formed)
    });
    NetworkServices {
        addresses: served.addresses.iter().map(|ip| (*ip).into()).collect(),
        ports: ports.collect(),
    }
}

fn key(at: &At) -> PortKey {
    (at.ip.into(), at.port, at.protocol.number())
}

fn wanted(port: &Port) -> Wanted {
    let backends = port.backends.iter();
    Wanted {
        backends: backends.map(|(ip, port)| ((*ip).into(), *port)).collect(),
        elsewhere: port.elsewhere,
        affinity_s: port.affinity_s,
    }
}
