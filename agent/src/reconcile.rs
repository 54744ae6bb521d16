//! From records to map entries. The only writer of the datapath's tables.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_common::addr::Ip16;
use agent_common::counter::PortCounters;
use datapath::{Datapath, DatapathError, DropCount, Entries, Retired};

use crate::record::Attachment;

mod desired;
pub use desired::desired;

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
}

impl Reconciler {
    /// Takes the datapath over.
    pub fn new(datapath: Datapath) -> Self {
        Self {
            inner: Mutex::new(Inner {
                datapath,
                current: None,
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
    ) -> Result<(), DatapathError> {
        let wanted = desired(network, attachments);
        self.lock().apply(network, wanted)
    }

    /// Makes the tables of all networks say what `attachments` need, and nothing else.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn everything(&self, attachments: &[Attachment]) -> Result<(), DatapathError> {
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
            let wanted = desired(network, attachments.into_iter());
            inner.apply(network, wanted)?;
        }
        Ok(())
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
        let wanted = desired(attachment.network.id, std::iter::once(attachment));
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
        ]))
    }
}

impl Inner {
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
fn mapped(ip: std::net::IpAddr) -> Ip16 {
    Ip16::from(ip)
}
