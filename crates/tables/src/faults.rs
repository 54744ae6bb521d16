//! Find what the maps do not have as the records need it.

use std::collections::{BTreeMap, BTreeSet};

use book::record::Attachment;
use datapath::DatapathError;

use super::{Inner, Others, Reconciler, desired};

impl Reconciler {
    /// Lists the faults in the tables of this attachment, in words; reads the maps.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn faults(&self, attachment: &Attachment) -> Result<Vec<String>, DatapathError> {
        let others = self.others_of(attachment.network.id);
        self.lock().faults(attachment, &others)
    }

    /// Finds attachments with faults in the tables, by their places; reads the maps.
    ///
    /// The places are those in the list.
    ///
    /// The lock of the tables is given back after each, so that no other writer waits for all of them.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn suspects(&self, attachments: &[Attachment]) -> Result<BTreeSet<usize>, DatapathError> {
        let mut suspects = BTreeSet::new();
        let mut known: BTreeMap<u32, Others> = BTreeMap::new();
        for (place, attachment) in attachments.iter().enumerate() {
            let network = attachment.network.id;
            let others = known
                .entry(network)
                .or_insert_with(|| self.others_of(network));
            if !self.lock().faults(attachment, others)?.is_empty() {
                suspects.insert(place);
            }
        }
        Ok(suspects)
    }

    /// The surroundings of an attachment's own entries.
    fn others_of(&self, network: u32) -> Others {
        Others {
            unsteered: self.surroundings.unsteered(),
            marks: self.surroundings.marks(network),
            services: self.surroundings.services(network),
            routes: self.surroundings.routes(network),
            ..Others::default()
        }
    }
}

impl Inner {
    /// [`Reconciler::faults`].
    fn faults(
        &mut self,
        attachment: &Attachment,
        others: &Others,
    ) -> Result<Vec<String>, DatapathError> {
        let only = std::iter::once(attachment);
        let (mut wanted, _) = desired::own(attachment.network.id, only, others);
        desired::guard_tunnels(&mut wanted, self.tunnel_port);
        let tables = self.datapath.tables();
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
}
