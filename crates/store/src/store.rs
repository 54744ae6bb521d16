//! The handle callers hold.

use std::{
    path::Path,
    sync::{Arc, OnceLock, mpsc},
    thread::{self, JoinHandle},
};

use redb::{Database, ReadableDatabase as _, ReadableTable as _};
use tokio::sync::oneshot;

use crate::{
    batch::{Batch, Table},
    error::StoreError,
    file::{self, Opened},
    writer::{self, Pending, Submission},
};

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// An open store. Dropping it waits until everything submitted is durable, and closes the file.
#[derive(Debug)]
pub struct Store {
    database: Arc<Database>,
    /// None only while being dropped.
    submissions: Option<mpsc::Sender<Submission>>,
    writer: Option<JoinHandle<()>>,
    failure: Arc<OnceLock<StoreError>>,
    repaired: bool,
}

impl Store {
    /// Opens the store in the file `path`, made new when there is none; its directory must exist.
    ///
    /// Every page's checksum is verified, and after a crash the last complete commit is found.
    ///
    /// # Errors
    /// Another process has it open, it is no store or damaged, or the file cannot be used.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::start(file::open(path.as_ref())?)
    }

    pub(crate) fn start(Opened { database, repaired }: Opened) -> Result<Self, StoreError> {
        let database = Arc::new(database);
        let failure = Arc::new(OnceLock::new());
        let (sender, receiver) = mpsc::channel();
        let writer = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn({
                let database = Arc::clone(&database);
                let failure = Arc::clone(&failure);
                move || writer::run(&database, &receiver, &failure)
            })
            .map_err(|error| StoreError::Thread {
                source: Arc::new(error),
            })?;
        Ok(Self {
            database,
            submissions: Some(sender),
            writer: Some(writer),
            failure,
            repaired,
        })
    }

    /// Queues a batch. Batches take effect in the order of submission, each whole or not at all.
    pub fn submit(&self, batch: Batch) -> Pending {
        let (done, pending) = oneshot::channel();
        match (batch.check(), &self.submissions) {
            (Err(error), _) => drop(done.send(Err(error))),
            (Ok(()), None) => drop(done.send(Err(StoreError::Stopped))),
            // A writer that is gone drops the promise, which reads as `Stopped`.
            (Ok(()), Some(writer)) => drop(writer.send(Submission { batch, done })),
        }
        Pending(pending)
    }

    /// Writes a batch and blocks until it is durable; async code awaits [`submit`](Self::submit).
    ///
    /// # Errors
    /// The batch was refused or its commit failed.
    pub fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        self.submit(batch).wait()
    }

    /// The value of `key`, as of the last commit.
    ///
    /// # Errors
    /// The file cannot be read, or a commit has failed.
    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let transaction = self.database.begin_read().map_err(StoreError::read)?;
        let table = transaction
            .open_table(table.definition())
            .map_err(StoreError::read)?;
        let value = table.get(key).map_err(StoreError::read)?;
        Ok(value.map(|value| value.value().to_vec()))
    }

    /// Every record of a table, as of the last commit, in the order of the keys.
    ///
    /// # Errors
    /// The file cannot be read, or a commit has failed.
    pub fn rows(&self, table: Table) -> Result<Vec<Row>, StoreError> {
        let transaction = self.database.begin_read().map_err(StoreError::read)?;
        let table = transaction
            .open_table(table.definition())
            .map_err(StoreError::read)?;
        let mut rows = Vec::new();
        for row in table.iter().map_err(StoreError::read)? {
            let (key, value) = row.map_err(StoreError::read)?;
            rows.push((key.value().to_vec(), value.value().to_vec()));
        }
        Ok(rows)
    }

    /// True when opening found damage no crash explains and mended it: the newest commits may be
    /// gone, so compare with the kernel before trusting the records.
    #[must_use]
    pub const fn was_repaired(&self) -> bool {
        self.repaired
    }

    /// The error that ended all writing, if there was one: the agent is then not ready and
    /// should be restarted.
    #[must_use]
    pub fn failure(&self) -> Option<&StoreError> {
        self.failure.get()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Without a sender the writer finishes what is queued and ends.
        self.submissions = None;
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has said so already.
            drop(writer.join());
        }
    }
}
