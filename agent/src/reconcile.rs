//! From records to map entries. The only writer of the datapath's tables.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_common::addr::{Ip16, MacAddr};
use agent_common::counter::PortCounters;
use agent_common::uplink::Uplink;
use datapath::{Datapath, DatapathError, DropCount, Entries, Retired, Tables, Vteps};

use crate::egress::WayOut;
use crate::record::Attachment;
use crate::ways::Known;

mod desired;
mod vteps;
mod wires;

pub use desired::{desired, port_of};
use vteps::Numbers;
pub use wires::{OnWire, WireMember};

/// What other nodes have of a network, as they said it.
#[derive(Debug, Default)]
pub struct Others {
    /// Their members.
    pub endpoints: Vec<Other>,
    /// Addresses of the nodes that have any, on the underlay.
    pub nodes: Vec<IpAddr>,
    /// The device that tunnels to them.
    pub device: u32,
    /// Where the programs do without it.
    pub ways: Arc<Known>,
    /// In place of tunnels: the network's uplink, if that is there.
    pub wire: Option<OnWire>,
    /// All nodes have been heard since this agent started: what is not here is gone.
    pub complete: bool,
    /// The way out that the network has on this node.
    pub way_out: Option<WayOut>,
}

/// A member of a network on another node.
#[derive(Debug)]
pub struct Other {
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// Address of its node on the underlay.
    pub node: IpAddr,
}

/// The same with the numbers that nodes have in the tables.
#[derive(Debug, Default)]
pub struct Elsewhere {
    /// Members.
    pub endpoints: Vec<Far>,
    /// Nodes, in order.
    pub nodes: Vec<u16>,
    /// The way out.
    pub way_out: Option<WayOut>,
    /// In place of them: the network's uplink, and who is beyond it.
    pub wire: Option<OnWire>,
}

/// A member of a network on another node.
#[derive(Debug)]
pub struct Far {
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// Its node, a key of `VTEPS`.
    pub vtep: u32,
}

/// The tables, and what is known to be in them.
#[derive(Debug)]
pub struct Reconciler {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    datapath: Datapath,
    /// By network; an error leaves none, and the next call reads the maps anew.
    current: Option<BTreeMap<u32, Entries>>,
    /// Numbers of other nodes, once they were read.
    numbers: Option<Numbers>,
}

impl Reconciler {
    /// Takes the datapath over.
    pub fn new(datapath: Datapath) -> Self {
        Self {
            inner: Mutex::new(Inner {
                datapath,
                current: None,
                numbers: None,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the tables of one network say what `attachments`, all that are live on it, need.
    ///
    /// # Errors
    /// When the kernel refuses; the tables are then read anew by the next call.
    pub fn network<'a>(
        &self,
        network: u32,
        attachments: impl Iterator<Item = &'a Attachment>,
        others: &Others,
    ) -> Result<(), DatapathError> {
        self.lock().update(network, attachments, others)
    }

    /// Makes the tables of all networks say what `attachments` need, and nothing else.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn everything(
        &self,
        attachments: &[Attachment],
        others: impl Fn(u32) -> Others,
    ) -> Result<(), DatapathError> {
        let mut inner = self.lock();
        inner.current = None;
        let mut networks: BTreeMap<u32, Vec<&Attachment>> = inner
            .current()?
            .keys()
            .map(|network| (*network, Vec::new()))
            .collect();
        for attachment in attachments {
            networks
                .entry(attachment.network.id)
                .or_default()
                .push(attachment);
        }
        for (network, attachments) in networks {
            inner.update(network, attachments.into_iter(), &others(network))?;
        }
        Ok(())
    }

    /// Forgets the numbers of nodes that no table mentions any more.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn forget_nodes(&self) -> Result<(), DatapathError> {
        let mut inner = self.lock();
        let mentioned = vteps::mentioned(inner.current()?.values());
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

    /// Has the tables say these ways to the nodes in them, and no others.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_ways(&self, ways: &Known) -> Result<(), DatapathError> {
        self.lock()
            .with_numbers(|numbers, vteps| numbers.set_ways(ways, vteps))
    }

    /// What is taken from interfaces of the node, by index.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn uplinks(&self) -> Result<BTreeMap<u32, Uplink>, DatapathError> {
        self.lock().datapath.tables().uplinks.dump()
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

    /// What is wrong with the tables of this attachment, in words; reads the maps.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn faults(&self, attachment: &Attachment) -> Result<Vec<String>, DatapathError> {
        let only = std::iter::once(attachment);
        let wanted = desired(attachment.network.id, only, &Elsewhere::default());
        let mut inner = self.lock();
        let tables = inner.datapath.tables();
        let mut faults = Vec::new();
        for (ifindex, port) in &wanted.ports {
            if tables.ports.get(ifindex)? != Some(*port) {
                faults.push(format!("PORTS has no right entry for interface {ifindex}"));
            }
        }
        for (key, endpoint) in &wanted.fdb {
            if tables.fdb.get(key)? != Some(*endpoint) {
                faults.push(format!("FDB has no right entry for {}", key.mac));
            }
        }
        for (key, endpoint) in &wanted.endpoints {
            if tables.endpoints.get(key)? != Some(*endpoint) {
                faults.push(format!("ENDPOINTS has no right entry for {}", key.ip));
            }
        }
        Ok(faults)
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

    /// Zeroes the counters of a port before it is used.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn reset_port_counters(&self, port_id: u16) -> Result<(), DatapathError> {
        self.lock().datapath.counters().reset_port(port_id)
    }

    /// Drops by network and reason.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn drops(&self) -> Result<Vec<DropCount>, DatapathError> {
        self.lock().datapath.counters().drops()
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
        let mut elsewhere = if others.wire.is_some() {
            Elsewhere {
                wire: others.wire.clone(),
                ..Elsewhere::default()
            }
        } else if others.nodes.is_empty() {
            Elsewhere::default()
        } else {
            self.with_numbers(|numbers, vteps| numbers.give(others, vteps))?
        };
        elsewhere.way_out = others.way_out;
        let mut wanted = desired(network, attachments, &elsewhere);
        if !others.complete && wanted.networks.contains_key(&network) {
            let old = self.current()?.get(&network);
            vteps::keep_far(&mut wanted, old);
        }
        self.apply(network, wanted)
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

    fn apply(&mut self, network: u32, wanted: Entries) -> Result<(), DatapathError> {
        let mut current = match self.current.take() {
            Some(current) => current,
            None => by_network(self.datapath.tables().dump()?),
        };
        let old = current.remove(&network).unwrap_or_default();
        // `current` is put back only when the maps are known to be as they should.
        self.datapath.tables().apply(&old, &wanted)?;
        if wanted != Entries::default() {
            current.insert(network, wanted);
        }
        self.current = Some(current);
        Ok(())
    }

    fn current(&mut self) -> Result<&BTreeMap<u32, Entries>, DatapathError> {
        if self.current.is_none() {
            self.current = Some(by_network(self.datapath.tables().dump()?));
        }
        Ok(self.current.get_or_insert_default())
    }
}

/// Splits what the maps hold by network. Addresses of interfaces that are no port go to network 0,
/// which has none, and so are removed.
fn by_network(all: Entries) -> BTreeMap<u32, Entries> {
    let mut networks: BTreeMap<u32, Entries> = BTreeMap::new();
    let owner: BTreeMap<u32, u32> = all
        .ports
        .iter()
        .map(|(ifindex, port)| (*ifindex, port.network))
        .collect();
    for (ifindex, port) in all.ports {
        networks
            .entry(port.network)
            .or_default()
            .ports
            .insert(ifindex, port);
    }
    for (key, value) in all.port_addresses {
        let network = owner.get(&key.ifindex).copied().unwrap_or(0);
        networks
            .entry(network)
            .or_default()
            .port_addresses
            .insert(key, value);
    }
    for (key, value) in all.fdb {
        networks
            .entry(key.network)
            .or_default()
            .fdb
            .insert(key, value);
    }
    for (key, value) in all.endpoints {
        networks
            .entry(key.network)
            .or_default()
            .endpoints
            .insert(key, value);
    }
    for (network, value) in all.networks {
        networks
            .entry(network)
            .or_default()
            .networks
            .insert(network, value);
    }
    for (key, network) in all.wires {
        networks
            .entry(network)
            .or_default()
            .wires
            .insert(key, network);
    }
    for (key, value) in all.next_hops {
        networks
            .entry(key.network)
            .or_default()
            .next_hops
            .insert(key, value);
    }
    for (key, value) in all.flood_vteps {
        networks
            .entry(key.network)
            .or_default()
            .flood_vteps
            .insert(key, value);
    }
    for (key, value) in all.flood {
        networks
            .entry(key.network)
            .or_default()
            .flood
            .insert(key, value);
    }
    networks
}

/// The mapped form of an address, as the maps have it.
fn mapped(ip: IpAddr) -> Ip16 {
    Ip16::from(ip)
}
