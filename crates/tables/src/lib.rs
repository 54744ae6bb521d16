//! Write the maps of the datapath from records; nothing else does.
//!
//! Inputs are the book, `remotes` and [`surroundings`]: what other rooms know and set. All are read under the
//! lock of the tables.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use agent_common::addr::Ip16;
use agent_common::counter::PortCounters;
use agent_common::drop::DropReason;
use agent_common::uplink::Uplink;
use book::Book;
use book::record::Attachment;
use datapath::{Datapath, DatapathError, DropCount, Entries, Retired, Tables, Vteps};
use locks::{Rank, Ranked};
use telemetry::chain;
use telemetry::failpoint::{passed, pause};

use remotes::Remotes;

mod beyond;
mod delta;
mod desired;
mod faults;
pub mod guards;
mod known;
mod layers;
pub mod routes;
pub mod services;
mod storms;
pub mod surroundings;
mod vteps;
mod wires;

use beyond::{Beyond, Members, Source};
pub use beyond::{Others, Reach};
use delta::Basis;
pub use desired::port_of;
use guards::Guards;
use known::Known;
use layers::Layers;
use services::Services;
pub use storms::StormOptions;
use storms::Storms;
use surroundings::{Surroundings, UnderlayPaths};
use vteps::Numbers;

/// The tables, and what is known to be in them.
#[derive(Debug)]
pub struct Reconciler {
    inner: Ranked<Inner>,
    book: Arc<Book>,
    surroundings: Surroundings,
    guards: Guards,
    services: Services,
}

#[derive(Debug)]
struct Inner {
    datapath: Datapath,
    /// UDP port of the nodes' tunnels.
    tunnel_port: u16,
    known: Known,
    /// Numbers of other nodes, once they were read.
    numbers: Option<Numbers>,
    storms: Storms,
}

impl Reconciler {
    /// Take over the datapath.
    ///
    /// `tunnel_port` is the UDP port of the node's tunnels, `storms` limits what the programs replicate.
    /// Ports of this node are those of `book`, members on other nodes those of `remotes`.
    ///
    /// # Errors
    /// When the maps of policies were taken before, or cannot be read.
    pub fn new(
        mut datapath: Datapath,
        book: Arc<Book>,
        tunnel_port: u16,
        storms: StormOptions,
        remotes: Arc<Remotes>,
    ) -> Result<Self, DatapathError> {
        let guards = Guards::new(datapath.guards()?);
        let services = Services::new(datapath.services()?)?;
        let surroundings = Surroundings::new(remotes);
        services.announce(&surroundings);
        let routes = routes::in_force(datapath.tables().routes.dump()?);
        surroundings.set_routes(routes);
        if guards.inherit(&book, &datapath.guards_before()?)? {
            datapath.serve_guards()?;
        }
        // What an agent before has put in force stays so until the policies are known.
        for (network, marks) in guards.marks_in_force(&book)? {
            surroundings.set_marks(network, marks);
        }
        Ok(Self {
            book,
            guards,
            services,
            surroundings,
            inner: Ranked::new(
                Rank::Tables,
                Inner {
                    datapath,
                    tunnel_port,
                    known: Known::default(),
                    numbers: None,
                    storms: Storms::new(storms),
                },
            ),
        })
    }

    fn lock(&self) -> locks::Guard<'_, Inner> {
        self.inner.lock()
    }

    /// The inputs that are no records, for their owners to set.
    pub const fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    /// Brings the tables of a network up to the book and to the surroundings.
    ///
    /// Book and surroundings are read under the tables' lock: what was read before may be older than what
    /// another thread has written meanwhile.
    ///
    /// # Errors
    /// When the kernel refuses; the tables are then read anew by the next call.
    pub fn reconcile(&self, network: u32) -> Result<(), DatapathError> {
        // What takes long of it is done before, so that others do not wait for it.
        self.surroundings.prepare(network);
        let mut inner = self.lock();
        let others = self.others(&inner, network);
        pause("tables.read");
        inner.update(network, self.book.ledger().live_on(network), &others)?;
        passed("tables.written");
        Ok(())
    }

    /// Brings the entries of one attachment up to its state in the book.
    ///
    /// Those of other attachments are not looked at, so that the costs do not grow with their number. Where
    /// anything else of the network may be new, this is [`Self::reconcile`].
    ///
    /// # Errors
    /// As for [`Self::reconcile`].
    pub fn reconcile_port(&self, record: &Attachment) -> Result<(), DatapathError> {
        let network = record.network.id;
        self.surroundings.prepare(network);
        let mut inner = self.lock();
        let others = self.others(&inner, network);
        pause("tables.read");
        let wanted = {
            let ledger = self.book.ledger();
            let entry = ledger.get(&record.key).filter(|entry| entry.live);
            let now = entry.map(|entry| &entry.record);
            // The key may be another attachment's by now, which says so itself.
            now.filter(|it| it.network.id == network && it.port_id == record.port_id)
                .cloned()
        };
        if !inner.update_port(network, record.port_id, wanted.as_ref(), &others)? {
            inner.update(network, self.book.ledger().live_on(network), &others)?;
        }
        passed("tables.written");
        Ok(())
    }

    /// Has XDP give a port of a network no frames, or do so again.
    ///
    /// # Errors
    /// As for [`Self::reconcile`].
    pub fn set_unsteered(
        &self,
        network: u32,
        port_id: u16,
        unsteered: bool,
    ) -> Result<(), DatapathError> {
        self.surroundings.prepare(network);
        let mut inner = self.lock();
        // Under the lock: no fault is seen in an entry that is about to be written.
        self.surroundings.set_unsteered(port_id, unsteered);
        let others = self.others(&inner, network);
        inner.update(network, self.book.ledger().live_on(network), &others)
    }

    /// Makes the tables of all networks as wanted, whatever was in them.
    ///
    /// # Errors
    /// As for [`Self::reconcile`].
    pub fn reconcile_everything(&self) -> Result<(), DatapathError> {
        let mut inner = self.lock();
        inner.known.forget();
        let mut networks: BTreeSet<u32> = inner.current()?.keys().copied().collect();
        networks.extend(self.book.ledger().live_networks());
        for network in networks {
            let others = self.others(&inner, network);
            inner.update(network, self.book.ledger().live_on(network), &others)?;
        }
        Ok(())
    }

    /// Reconcile networks on a thread of their own; return those that failed.
    ///
    /// A network may have thousands of members, and the threads that serve requests do not wait for it.
    pub async fn reconcile_all(self: &Arc<Self>, networks: BTreeSet<u32>) -> BTreeSet<u32> {
        let (tables, all) = (Arc::clone(self), networks.clone());
        let work = move || {
            all.into_iter()
                .filter(|network| match tables.reconcile(*network) {
                    Ok(()) => false,
                    Err(error) => {
                        let error = chain(&error);
                        tracing::error!(
                            network,
                            error,
                            "the tables of the network are not up to date, trying again"
                        );
                        true
                    }
                })
                .collect()
        };
        tokio::task::spawn_blocking(work).await.unwrap_or(networks)
    }

    /// Collects the state of a network beyond this node.
    ///
    /// The caller holds the tables' lock, as it shows: what was read before may be old when it is written.
    fn others(&self, _locked: &Inner, network: u32) -> Others {
        let facts = {
            let ledger = self.book.ledger();
            let mut records = ledger.entries_on(network);
            records.next().map(|record| record.network.clone())
        };
        self.surroundings.of(network, facts.as_ref())
    }

    /// Forgets the numbers of nodes that no table mentions any more.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn forget_nodes(&self) -> Result<(), DatapathError> {
        let mut inner = self.lock();
        let networks = inner.current()?.values();
        let mentioned = networks.flat_map(|it| &it.beyond.nodes).copied().collect();
        inner.with_numbers(|numbers, vteps| numbers.retain(&mentioned, vteps))
    }

    /// Addresses of the nodes in the tables.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn nodes(&self) -> Result<BTreeSet<IpAddr>, DatapathError> {
        self.lock()
            .with_numbers(|numbers, _| Ok(numbers.addresses()))
    }

    /// Sets the paths to other nodes, and writes those to the nodes in the tables.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_underlay(&self, paths: UnderlayPaths) -> Result<(), DatapathError> {
        let mut inner = self.lock();
        let paths = self.surroundings.set_underlay(paths);
        inner.with_numbers(|numbers, vteps| numbers.set_underlay(&paths, vteps))
    }

    /// Reads the interfaces of the node that are taken as uplinks, by index.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn uplinks(&self) -> Result<BTreeMap<u32, Uplink>, DatapathError> {
        self.lock().datapath.tables().uplinks.dump()
    }

    /// Makes these the interfaces by which networks with egress leave the node.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_outlets(&self, wanted: &BTreeSet<u32>) -> Result<(), DatapathError> {
        let mut inner = self.lock();
        let outlets = &mut inner.datapath.tables().outlets;
        let there = outlets.dump()?;
        for ifindex in wanted.iter().filter(|it| !there.contains_key(it)) {
            outlets.insert(*ifindex, 1)?;
        }
        for ifindex in there.keys().filter(|it| !wanted.contains(it)) {
            outlets.remove(ifindex)?;
        }
        Ok(())
    }

    /// Says what is taken from an interface, if anything.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_uplink(&self, ifindex: u32, uplink: Option<Uplink>) -> Result<(), DatapathError> {
        let mut inner = self.lock();
        let uplinks = &mut inner.datapath.tables().uplinks;
        match uplink {
            Some(uplink) => uplinks.insert(ifindex, uplink),
            None => uplinks.remove(&ifindex),
        }
    }

    /// Sends packets through the tables.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn activate(&self) -> Result<Retired, DatapathError> {
        self.lock().datapath.activate()
    }

    /// Looks into the tables as packets meet them, whatever was written there.
    ///
    /// # Errors
    /// Those of `look`.
    pub fn look<T>(
        &self,
        look: impl FnOnce(&Tables) -> Result<T, DatapathError>,
    ) -> Result<T, DatapathError> {
        look(self.lock().datapath.tables())
    }

    /// Traffic of a port.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn port_counters(&self, port_id: u16) -> Result<PortCounters, DatapathError> {
        self.lock().datapath.counters().port(port_id)
    }

    /// Lists packets of a port that were dropped, by reason, without zeroes.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn port_drops(&self, port_id: u16) -> Result<Vec<(DropReason, u64)>, DatapathError> {
        self.lock().datapath.counters().port_drops(port_id)
    }

    /// Zeroes the counters of a port before it is used.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn reset_port_counters(&self, port_id: u16) -> Result<(), DatapathError> {
        self.lock().datapath.counters().reset_port(port_id)
    }

    /// Ports and other nodes that get a copy of a frame for all, by network.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn receivers(&self) -> Result<BTreeMap<u32, usize>, DatapathError> {
        let mut inner = self.lock();
        let networks = inner.current()?.iter();
        let receivers = networks.map(|(network, layers)| {
            let (ports, nodes) = storms::receivers(*network, layers);
            (*network, ports + nodes)
        });
        Ok(receivers.filter(|(_, count)| *count > 0).collect())
    }

    /// Receivers that one frame for all can have.
    pub fn receivers_max(&self) -> u64 {
        self.lock().storms.receivers_max()
    }

    /// Drops by network and reason.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn drops(&self) -> Result<Vec<DropCount>, DatapathError> {
        self.lock().datapath.counters().drops()
    }

    /// Returns name, entries and limit of each table, without reading maps.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn fill(&self) -> Result<Vec<(&'static str, usize, u32)>, DatapathError> {
        let mut inner = self.lock();
        let mut counts = [0; 10];
        for layers in inner.current()?.values() {
            for (sum, count) in counts.iter_mut().zip(layers.counts()) {
                *sum += count;
            }
        }
        let limits = inner.datapath.tables().limits();
        drop(inner);
        let filled = limits.into_iter().zip(counts);
        Ok(filled
            .map(|((name, limit), count)| (name, count, limit))
            .chain(self.guards.fill())
            .chain(self.services.fill())
            .collect())
    }

    /// Number of entries in each table, for `/debug/state`.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn sizes(&self) -> Result<BTreeMap<&'static str, usize>, DatapathError> {
        let mut inner = self.lock();
        let all = inner.datapath.tables().dump()?;
        Ok(BTreeMap::from([
            ("PORTS", all.ports.len()),
            ("PORT_ADDRESSES", all.port_addresses.len()),
            ("FDB", all.fdb.len()),
            ("ENDPOINTS", all.endpoints.len()),
            ("FLOOD", all.flood.len()),
            ("NETWORKS", all.networks.len()),
            ("FLOOD_VTEPS", all.flood_vteps.len()),
            ("WIRES", all.wires.len()),
            ("NEXT_HOPS", all.next_hops.len()),
            ("ROUTES", all.routes.len()),
        ]))
    }
}

impl Inner {
    fn update<'a>(
        &mut self,
        network: u32,
        attachments: impl Iterator<Item = &'a Attachment>,
        others: &Others,
    ) -> Result<(), DatapathError> {
        let attachments: Vec<&Attachment> = attachments.collect();
        let (mut own, facts) = desired::own(network, attachments.iter().copied(), others);
        desired::guard_tunnels(&mut own, self.tunnel_port);
        desired::add_services(&mut own, network, others);
        let basis = Basis::of(&attachments, others, &own);
        let known = self.current()?.get(&network);
        let known = known.map_or_else(Arc::default, |it| Arc::clone(&it.beyond));
        let members = match facts {
            Some(facts) => Some(Members::of(facts)),
            // Nobody here is on it, and packets of other networks are routed there.
            None => (own.ports.is_empty() && others.reached).then(|| Members::routed(network)),
        };
        let beyond = match members {
            Some(members) => self.beyond(&members, others, &known)?,
            None => Arc::default(),
        };
        let wanted = Layers { own, beyond, basis };
        let maps = self.datapath.tables();
        self.known.write(maps, network, wanted)?;
        self.settle(network)
    }

    /// Writes the entries of one port; false when the whole network has to be.
    fn update_port(
        &mut self,
        network: u32,
        port_id: u16,
        wanted: Option<&Attachment>,
        others: &Others,
    ) -> Result<bool, DatapathError> {
        let change =
            |layers: &mut Layers| delta::of_port(layers, port_id, wanted, others, self.tunnel_port);
        let maps = self.datapath.tables();
        if !self.known.write_change(maps, network, change)? {
            return Ok(false);
        }
        self.settle(network).map(|()| true)
    }

    /// Returns the entries of members on other nodes; `known` ones if nothing is new.
    fn beyond(
        &mut self,
        members: &Members,
        others: &Others,
        known: &Arc<Beyond>,
    ) -> Result<Arc<Beyond>, DatapathError> {
        let source = Source::new(members, others);
        if known.is_of(&source) {
            return Ok(Arc::clone(known));
        }
        let mut entries = match (&others.said, &others.reach) {
            (None, _) | (_, Reach::Nowhere) => Entries::default(),
            (Some(said), Reach::Tunnels { device, own }) => {
                let to = (*device, own.as_slice(), &*others.paths);
                let numbers =
                    self.with_numbers(|numbers, vteps| numbers.give(&said.peers, to, vteps))?;
                desired::tunnelled(members, &said.endpoints, &numbers)
            }
            (Some(said), Reach::Wire { uplink, hops, .. }) => {
                wires::beyond(members, &said.endpoints, *uplink, hops)
            }
        };
        if !others.complete {
            beyond::keep(&mut entries, &known.entries);
        }
        Ok(Arc::new(Beyond::new(entries, Some(source))))
    }

    /// The numbers of other nodes, and the tables they are in.
    fn with_numbers<T>(
        &mut self,
        work: impl FnOnce(&mut Numbers, &mut Vteps) -> Result<T, DatapathError>,
    ) -> Result<T, DatapathError> {
        let vteps = &mut self.datapath.tables().vteps;
        // What was half done is read anew.
        let mut numbers = match self.numbers.take() {
            Some(numbers) => numbers,
            None => Numbers::read(vteps)?,
        };
        let done = work(&mut numbers, vteps)?;
        self.numbers = Some(numbers);
        Ok(done)
    }

    /// Brings storm control up to the tables of a network, which were written.
    fn settle(&mut self, network: u32) -> Result<(), DatapathError> {
        let tables = self.datapath.tables();
        let current = self.known.networks(tables)?;
        let nothing = Layers::default();
        self.storms
            .look_at(network, current.get(&network).unwrap_or(&nothing));
        let settled = self.storms.settle(current, &mut tables.storm);
        if settled.is_err() {
            self.known.forget();
        }
        settled
    }

    fn current(&mut self) -> Result<&BTreeMap<u32, Layers>, DatapathError> {
        self.known.networks(self.datapath.tables())
    }
}

/// The mapped form of an address, as the maps have it.
fn mapped(ip: IpAddr) -> Ip16 {
    Ip16::from(ip)
}
