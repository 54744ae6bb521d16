//! Book of the node: attachments, addresses, numbers and pods, also on disk.
//!
//! [`ledger`] and [`pods`] are what is known, [`record`] is what of it is written down. The store has the
//! same as the two but for the moment between a change and its commit, and while no record can be
//! written ([`Book::mend`]). A start reads it with [`read`]; a record that cannot be used is kept apart
//! ([`aside`]).
//!
//! Two kinds of locks are here. [`Book::turn`] lasts as long as a request works on a container; the
//! ledger's is never held across an await, and is taken after the tables' ([`locks`]).

use std::collections::BTreeMap;
use std::time::Duration;

use cni_spec::{AttachmentKey, ContainerId};
use locks::{Guard, Rank, Ranked};
use store::{Batch, Failure, Pending, Store, Table};

pub mod access;
pub mod aside;
pub mod bandwidth;
mod boot;
mod durable;
pub mod error;
pub mod host_ports;
pub mod ledger;
mod pod_end;
pub mod pods;
mod read;
pub mod record;
mod refusal;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
mod sandbox;
mod stack;
mod turns;

use aside::SetAside;
pub use boot::BOOT_FILE;
pub use error::BookError;
use ledger::Ledger;
use pods::Pods;
use pods::record::PodRecord;
pub use read::{Records, read};
use record::Attachment;
pub use refusal::AddressError;
pub use turns::Turn;
use turns::Turns;

/// The name of a file of records.
pub const DATABASE: &str = "attachments.redb";

/// Everything that the node remembers.
#[derive(Debug)]
pub struct Book {
    ledger: Ranked<Ledger>,
    pods: Pods,
    set_aside: Ranked<Vec<SetAside>>,
    store: Store,
    /// Numbers of networks that are in the store, or were submitted to it.
    numbered: Ranked<BTreeMap<String, u32>>,
    patience: Duration,
    turns: Turns,
}

impl Book {
    /// Makes a book of the records that a start found in the store.
    ///
    /// Failures of the store that last longer than `patience` are lasting ones.
    pub fn new(found: Records, store: Store, patience: Duration) -> Self {
        Self {
            ledger: Ranked::new(Rank::Book, found.ledger),
            pods: found.pods,
            set_aside: Ranked::new(Rank::Feature, found.set_aside),
            store,
            numbered: Ranked::new(Rank::Feature, found.numbered),
            patience,
            turns: Turns::default(),
        }
    }

    /// Takes the ledger's lock, which is never held across an await.
    pub fn ledger(&self) -> Guard<'_, Ledger> {
        self.ledger.lock()
    }

    /// Copies the record of an attachment.
    pub fn record(&self, key: &AttachmentKey) -> Option<Attachment> {
        let ledger = self.ledger();
        ledger.get(key).map(|entry| entry.record.clone())
    }

    /// Copies the records of all attachments, in order of container and interface.
    pub fn records(&self) -> Vec<Attachment> {
        let ledger = self.ledger();
        let entries = ledger.entries();
        entries.map(|entry| entry.record.clone()).collect()
    }

    /// The pods that list their networks.
    pub const fn pods(&self) -> &Pods {
        &self.pods
    }

    /// The records that cannot be used; their lock is never held across an await.
    pub fn set_aside(&self) -> Guard<'_, Vec<SetAside>> {
        self.set_aside.lock()
    }

    /// Waits until no other request works on this container.
    pub async fn turn(&self, container: &ContainerId) -> Turn {
        self.turns.take(container).await
    }

    /// The failure that keeps the store from writing, if there is one.
    pub fn failure(&self) -> Option<Failure> {
        self.store.failure()
    }

    /// Number of the store's failures since the agent started.
    pub fn failures(&self) -> u64 {
        self.store.failures()
    }

    /// Writes a record, and the number of its network, so that they survive.
    ///
    /// # Errors
    /// When they do not.
    pub async fn save(&self, record: &Attachment) -> Result<(), BookError> {
        Ok(self.submit(record)?.await?)
    }

    /// Hands a record to the store; it survives when the promise says so.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn submit(&self, record: &Attachment) -> Result<Pending, BookError> {
        let value = encode(record)?;
        let key = record.key.to_string();
        let mut batch = Batch::new().put(Table::Attachments, key.as_bytes(), &value);
        let network = &record.network;
        // Held over the submission: what is submitted after a number fails where the number does.
        let mut numbered = self.numbered.lock();
        if numbered.get(&network.name) != Some(&network.id) {
            // The number stays the network's own, also when this attachment is gone.
            let name = network.name.as_bytes();
            batch = batch.put(Table::Networks, name, &network.id.to_le_bytes());
            numbered.insert(network.name.clone(), network.id);
        }
        Ok(self.store.submit(batch))
    }

    /// Writes a pod's record so that it survives.
    ///
    /// # Errors
    /// When it does not.
    pub async fn save_pod(&self, record: &PodRecord) -> Result<(), BookError> {
        let key = record.key.to_string();
        let value = serde_json::to_vec(record).map_err(|source| BookError::Record {
            key: key.clone(),
            source,
        })?;
        let batch = Batch::new().put(table_of(record), key.as_bytes(), &value);
        Ok(self.store.submit(batch).await?)
    }

    /// Removes a pod's record.
    ///
    /// # Errors
    /// When it may still be there.
    pub async fn erase_pod(&self, key: &AttachmentKey) -> Result<(), BookError> {
        let recorded = self.pods.get(key);
        let key = key.to_string();
        let mut batch = Batch::new().delete(Table::PodsOfBoot, key.as_bytes());
        // A change of the lasting file has to wait for a disk.
        if recorded.is_none_or(|record| record.outlives_boot()) {
            batch = batch.delete(Table::Pods, key.as_bytes());
        }
        Ok(self.store.submit(batch).await?)
    }

    /// Removes a record.
    ///
    /// # Errors
    /// When it may still be there.
    pub async fn erase(&self, key: &AttachmentKey) -> Result<(), BookError> {
        let batch = Batch::new().delete(Table::Attachments, key.to_string().as_bytes());
        Ok(self.store.submit(batch).await?)
    }

    /// Forgets the set-aside records of a key whose pod is gone.
    ///
    /// # Errors
    /// When they cannot be erased.
    pub async fn forget_set_aside(&self, key: &AttachmentKey) -> Result<(), BookError> {
        let of_key = aside::of_key(&self.set_aside(), key);
        if of_key.is_empty() {
            return Ok(());
        }
        self.store.submit(aside::erased(&of_key)).await?;
        self.set_aside().retain(|it| !of_key.contains(it));
        Ok(())
    }
}

/// The table that a pod's record is in.
///
/// One that gets a plugin of another has a row in both, and that of [`Table::Pods`] counts.
fn table_of(record: &PodRecord) -> Table {
    if record.outlives_boot() {
        Table::Pods
    } else {
        Table::PodsOfBoot
    }
}

fn encode(record: &Attachment) -> Result<Vec<u8>, BookError> {
    serde_json::to_vec(record).map_err(|source| BookError::Record {
        key: record.key.to_string(),
        source,
    })
}

#[cfg(test)]
mod tests;
