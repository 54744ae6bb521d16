//! Checks the records from the store before they come into the book.

use super::{LAST_ID, Ledger};
use crate::record::Attachment;

impl Ledger {
    /// Says why a record contradicts those that are in the book.
    ///
    /// # Errors
    /// The reason.
    pub fn admits(&self, record: &Attachment) -> Result<(), String> {
        let network = &record.network;
        if !(1..=LAST_ID).contains(&network.id) {
            return Err(format!("its network has the number {}", network.id));
        }
        let mut records = self.networks();
        if let Some(other) =
            records.find(|other| (other.id == network.id) != (other.name == network.name))
        {
            let (name, id) = (&network.name, network.id);
            return Err(format!(
                "its network {name} has the number {id}, and {} has {}",
                other.name, other.id
            ));
        }
        if self.ports.contains(&record.port_id) {
            return Err(format!("its port {} is another's", record.port_id));
        }
        if let Err(error) = self.check_host_ports(network.id, &record.host_ports, &record.leases) {
            return Err(error.to_string());
        }
        let Some(usage) = self.usage.get(&network.id) else {
            return Ok(());
        };
        if usage.macs.contains(&record.mac) {
            return Err(format!("its MAC address {} is another's", record.mac));
        }
        let mut leases = record.leases.iter().map(|lease| lease.address);
        match leases.find(|address| usage.ips.contains(address)) {
            Some(address) => Err(format!("its address {address} is another's")),
            None => Ok(()),
        }
    }

    /// The first port that no attachment has.
    pub fn free_port(&self) -> Option<u16> {
        self.free_ports.first().copied()
    }
}
