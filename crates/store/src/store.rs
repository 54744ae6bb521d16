//! The handle callers hold.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use redb::{Database, ReadableDatabase as _, ReadableTable as _};
use tokio::sync::oneshot;

use crate::{
    batch::{Batch, Table},
    databases::Databases,
    error::StoreError,
    place::{Files, Opened, Place},
    writer::{self, Pending, Submission},
};

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// An open store.
///
/// Dropping it waits until everything submitted is durable, and closes the file.
#[derive(Debug)]
pub struct Store {
    shared: Arc<Shared>,
    /// None only while being dropped.
    submissions: Option<mpsc::Sender<Submission>>,
    writer: Option<JoinHandle<()>>,
    repaired: bool,
}

/// State that the handle and the writer share.
#[derive(Debug)]
pub(crate) struct Shared {
    place: Box<dyn Place>,
    /// None from the attempt to open it again until that succeeds.
    databases: RwLock<Option<Databases>>,
    failure: Mutex<Option<Failure>>,
    failures: AtomicU64,
}

/// Why nothing is written, and since when.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The last error there was.
    pub error: StoreError,
    /// Time of the first failed commit since the last successful [`Store::reopen`].
    pub since: Instant,
}

/// Rows of a store that was opened again, before anything is written to it.
#[derive(Debug)]
pub struct Contents<'a>(&'a Databases);

impl Contents<'_> {
    /// Every record of a table, in the order of the keys.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn rows(&self, table: Table) -> Result<Vec<Row>, StoreError> {
        self.0.rows(table)
    }
}

impl Store {
    /// Opens a store with the records that end with the boot in a second file.
    ///
    /// Files that are not there are created; their directories must exist. The second one is meant for a file system
    /// in memory, where nothing waits for a disk. Records of this boot that are in the first one, or in the file that
    /// was the second one at the last time, are moved.
    ///
    /// # Errors
    /// As for [`Self::open`], for either file.
    pub fn open_apart(
        lasting: impl AsRef<Path>,
        of_boot: impl AsRef<Path>,
    ) -> Result<Self, StoreError> {
        Self::at(Files {
            lasting: lasting.as_ref().to_owned(),
            of_boot: Some(of_boot.as_ref().to_owned()),
        })
    }

    /// Opens the store in the file `path` alone, and creates it if there is none.
    ///
    /// Its directory must exist.
    ///
    /// Every page's checksum is verified, and after a crash the last complete commit is found.
    ///
    /// # Errors
    /// Another process has it open, it is no store or damaged, or the file cannot be used.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::at(Files {
            lasting: path.as_ref().to_owned(),
            of_boot: None,
        })
    }

    pub(crate) fn at(place: impl Place + 'static) -> Result<Self, StoreError> {
        let Opened {
            databases,
            repaired,
        } = place.open()?;
        let shared = Arc::new(Shared {
            place: Box::new(place),
            databases: RwLock::new(Some(databases)),
            failure: Mutex::default(),
            failures: AtomicU64::new(0),
        });
        let (sender, receiver) = mpsc::channel();
        let writer = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || writer::run(&shared, &receiver)
            })
            .map_err(|error| StoreError::Thread {
                source: Arc::new(error),
            })?;
        Ok(Self {
            shared,
            submissions: Some(sender),
            writer: Some(writer),
            repaired,
        })
    }

    /// Queues a batch.
    ///
    /// Batches take effect in the order of submission, each whole or not at all.
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

    /// Writes a batch and blocks until it is durable.
    ///
    /// Async code awaits [`submit`](Self::submit).
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
        self.read(|databases| {
            let transaction = databases.of(table).begin_read().map_err(StoreError::read)?;
            let table = transaction
                .open_table(table.definition())
                .map_err(StoreError::read)?;
            let value = table.get(key).map_err(StoreError::read)?;
            Ok(value.map(|value| value.value().to_vec()))
        })
    }

    /// Every record of a table, as of the last commit, in the order of the keys.
    ///
    /// # Errors
    /// The file cannot be read, or a commit has failed.
    pub fn rows(&self, table: Table) -> Result<Vec<Row>, StoreError> {
        self.read(|databases| databases.rows(table))
    }

    fn read<T>(
        &self,
        read: impl FnOnce(&Databases) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &*self.shared.databases() {
            Some(databases) => read(databases),
            None => Err(self.shared.error().unwrap_or(StoreError::Stopped)),
        }
    }

    /// Opens the store again if it has failed, and goes on with it; true if it had.
    ///
    /// Whether batches of the failed commit are in it is not known, so `mend` says what to change before
    /// anything else is written: with that, and not before, submissions are taken again. The commits
    /// that are made here need as much room as several records.
    ///
    /// Blocks.
    ///
    /// # Errors
    /// It cannot be opened or written yet. Nothing but the reason of [`Self::failure`] has changed then.
    pub fn reopen(
        &self,
        mend: impl FnOnce(&Contents<'_>) -> Result<Batch, StoreError>,
    ) -> Result<bool, StoreError> {
        let mut databases = self
            .shared
            .databases
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if self.shared.error().is_none() {
            return Ok(false);
        }
        // Closed first: a store is open once.
        *databases = None;
        match self.shared.open_again(mend) {
            Ok(opened) => {
                *databases = Some(opened);
                *self.shared.failure() = None;
                Ok(true)
            }
            Err(error) => {
                self.shared.fail(error.clone());
                Err(error)
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn shared_for_tests(&self) -> &Shared {
        &self.shared
    }

    /// True when opening repaired damage that no crash explains.
    ///
    /// The newest commits may be gone, so compare with the kernel before trusting the records.
    #[must_use]
    pub const fn was_repaired(&self) -> bool {
        self.repaired
    }

    /// Returns why nothing is written at the moment, if so.
    ///
    /// [`Self::reopen`] may end it.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.shared.failure().clone()
    }

    /// Counts how often writing has failed since the store was opened.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.shared.failures.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn failure(&self) -> MutexGuard<'_, Option<Failure>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error that keeps the store from writing.
    pub(crate) fn error(&self) -> Option<StoreError> {
        self.failure().as_ref().map(|failure| failure.error.clone())
    }

    /// Takes note of an error; one that follows another is of the same failure.
    pub(crate) fn fail(&self, error: StoreError) {
        let mut failure = self.failure();
        let since = match &*failure {
            Some(failure) => failure.since,
            None => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                Instant::now()
            }
        };
        *failure = Some(Failure { error, since });
    }

    fn databases(&self) -> RwLockReadGuard<'_, Option<Databases>> {
        self.databases
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the changes of batches durable, all of them or none.
    pub(crate) fn write<'a>(
        &self,
        batches: impl Iterator<Item = &'a Batch> + Clone,
    ) -> Result<(), StoreError> {
        match &*self.databases() {
            Some(databases) => self.write_to(databases, batches),
            None => Err(self.error().unwrap_or(StoreError::Stopped)),
        }
    }

    fn write_to<'a>(
        &self,
        databases: &Databases,
        batches: impl Iterator<Item = &'a Batch> + Clone,
    ) -> Result<(), StoreError> {
        let written = databases.write(batches);
        written.map_err(|error| self.place.commit_failed(error))
    }

    fn open_again(
        &self,
        mend: impl FnOnce(&Contents<'_>) -> Result<Batch, StoreError>,
    ) -> Result<Databases, StoreError> {
        self.place.write_back()?;
        let Opened { databases, .. } = self.place.open()?;
        let batch = mend(&Contents(&databases))?;
        batch.check()?;
        // Opening needs no room, and mending may need none: a disk that is still full is found out here.
        let probed = databases.probe();
        probed.map_err(|error| self.place.commit_failed(error))?;
        self.write_to(&databases, std::iter::once(&batch))?;
        Ok(databases)
    }
}

/// Reads every record of a table, in the order of the keys.
pub(crate) fn rows(database: &Database, table: Table) -> Result<Vec<Row>, StoreError> {
    let transaction = database.begin_read().map_err(StoreError::read)?;
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
