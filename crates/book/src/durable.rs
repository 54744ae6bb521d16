//! Keeps the node served while no record can be written, and ends that state.
//!
//! A disk may be full for a moment. Then the store is opened again and gets the book's records: the fate of
//! the commits that failed is not known.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use store::{Batch, Contents, StoreError, Table};
use telemetry::chain;

use super::{Book, BookError, table_of};

impl Book {
    /// Refuses what would need a record while none can be written.
    ///
    /// # Errors
    /// [`BookError::Store`] with the file, its disk and the system's answer.
    pub fn require_store(&self) -> Result<(), BookError> {
        match self.store.failure() {
            Some(failure) => Err(failure.error.into()),
            None => Ok(()),
        }
    }

    /// The failure of the store once it has lasted too long, for `/livez`.
    pub fn lasting_failure(&self) -> Option<StoreError> {
        let failure = self.store.failure()?;
        lasts(failure.since.elapsed(), self.patience).then_some(failure.error)
    }

    /// Opens the store again if it has failed; true when records can be written.
    pub async fn mend(self: &Arc<Self>) -> bool {
        if self.store.failure().is_none() {
            return true;
        }
        let book = Arc::clone(self);
        let mend = move || book.store.reopen(|contents| book.unwritten(contents));
        match tokio::task::spawn_blocking(mend).await {
            Ok(Ok(_)) => {
                tracing::info!("the store is open again, with every record there is");
                true
            }
            Ok(Err(error)) => {
                let error = chain(&error);
                tracing::error!(error, "records cannot be written yet");
                false
            }
            Err(error) => {
                tracing::error!(%error, "an attempt to open the store again died");
                false
            }
        }
    }

    /// Builds the batch that gives the store the book's records and no others.
    ///
    /// Nothing is submitted successfully meanwhile, and a record leaves the book only after it was
    /// erased: what is in the book now is what may be there.
    fn unwritten(&self, contents: &Contents<'_>) -> Result<Batch, StoreError> {
        let (attachments, ids) = {
            let ledger = self.ledger();
            let records = ledger.entries().map(|entry| &entry.record);
            let attachments: Vec<_> = records
                .filter_map(|record| encoded(&record.key.to_string(), record))
                .collect();
            let ids: Vec<_> = ledger
                .ids()
                .map(|(name, id)| (name.as_bytes().to_vec(), id.to_le_bytes().to_vec()))
                .collect();
            (attachments, ids)
        };
        let pods = self.pods.records();
        let pods = |table| {
            let records = pods.iter().filter(|record| table_of(record) == table);
            records
                .filter_map(|record| encoded(&record.key.to_string(), record))
                .collect()
        };
        let mut batch = Batch::new();
        for (table, wanted) in [
            (Table::Attachments, attachments),
            (Table::Networks, ids),
            (Table::Pods, pods(Table::Pods)),
            (Table::PodsOfBoot, pods(Table::PodsOfBoot)),
        ] {
            batch = batch.and(difference(table, wanted, contents.rows(table)?));
        }
        Ok(batch)
    }
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn encoded(key: &str, record: &impl Serialize) -> Option<(Vec<u8>, Vec<u8>)> {
    // It was encoded when it was first written.
    let value = serde_json::to_vec(record).ok()?;
    Some((key.as_bytes().to_vec(), value))
}

/// Computes the changes that make `found` into `wanted`.
///
/// Numbers stay with their networks, also with those that have gone.
fn difference(table: Table, wanted: Rows, found: Rows) -> Batch {
    let keys: BTreeSet<Vec<u8>> = wanted.iter().map(|(key, _)| key.clone()).collect();
    let mut batch = Batch::new();
    for (key, value) in wanted {
        if !found.iter().any(|row| (&row.0, &row.1) == (&key, &value)) {
            batch = batch.put(table, &key, &value);
        }
    }
    for (key, _) in found {
        if table != Table::Networks && !keys.contains(&key) {
            batch = batch.delete(table, &key);
        }
    }
    batch
}

/// True for a failure that has lasted too long to be waited for.
fn lasts(since: Duration, patience: Duration) -> bool {
    since >= patience
}

#[cfg(test)]
mod tests {
    use api::Mode;
    use store::fake::{Disk, Fault, Survivors};

    use super::*;
    use crate::record::State;
    use crate::{Records, read, samples};

    /// A book whose store has failed, on a disk that works again.
    ///
    /// `write` is what could not be written.
    async fn failed(write: impl AsyncFnOnce(&Book) -> Result<(), BookError>) -> (Disk, Arc<Book>) {
        let disk = Disk::with_store().unwrap();
        let book = Book::new(next(&disk).await, disk.open().unwrap(), Duration::ZERO);
        disk.set_fault(Fault::FailFrom(disk.steps()));
        write(&book).await.unwrap_err();
        disk.set_fault(Fault::None);
        (disk, Arc::new(book))
    }

    /// The records that the next start finds.
    async fn next(disk: &Disk) -> Records {
        let (disk, state) = (
            disk.after_crash(Survivors::None),
            tempfile::tempdir().unwrap(),
        );
        read(&disk.open().unwrap(), state.path(), 16).await.unwrap()
    }

    /// ATT-05
    #[tokio::test]
    async fn a_store_that_is_opened_again_gets_the_pods_back() {
        let record = samples::pod("c1", State::Added);
        let write = async |book: &Book| {
            book.pods().insert(record.clone());
            book.save_pod(&record).await
        };
        let (disk, book) = failed(write).await;
        assert_eq!(next(&disk).await.pods.records(), []);
        assert!(book.mend().await);
        assert_eq!(next(&disk).await.pods.records(), [record]);
        // And the other way round: what the book has erased by then goes.
        let gone = samples::key("c1", "eth0");
        disk.set_fault(Fault::FailFrom(disk.steps()));
        book.erase_pod(&gone).await.unwrap_err();
        disk.set_fault(Fault::None);
        book.pods().remove(&gone);
        assert!(book.mend().await);
        assert_eq!(next(&disk).await.pods.records(), []);
        proof::of!("ATT-05");
    }

    /// ATT-05: a network keeps its number, also when its attachment has gone meanwhile.
    #[tokio::test]
    async fn a_store_that_is_opened_again_gets_the_numbers_of_networks_back() {
        let mut id = 0;
        let write = async |book: &Book| {
            let blue = samples::network("blue", Mode::L2, &[("10.10.0.0/24", "")]);
            let wanted = samples::wanted("c1");
            let host = samples::host(&wanted, 7);
            let record = book.ledger().reserve(wanted, &blue, host).unwrap();
            id = record.network.id;
            let saved = book.save(&record).await;
            book.ledger().release(&record.key);
            saved
        };
        let (disk, book) = failed(write).await;
        assert_eq!(next(&disk).await.ledger.id_of("blue"), None);
        assert!(book.mend().await);
        let found = next(&disk).await;
        assert!(found.ledger.is_empty());
        assert_eq!(found.ledger.id_of("blue"), Some(id));
        proof::of!("ATT-05");
    }

    fn rows(rows: &[(&str, &str)]) -> Rows {
        rows.iter()
            .map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect()
    }

    /// ATT-05
    #[test]
    fn a_failure_lasts_from_the_time_that_was_given_on() {
        let minute = Duration::from_secs(60);
        assert!(!lasts(Duration::ZERO, minute) && !lasts(minute / 2, minute));
        assert!(lasts(minute, minute) && lasts(Duration::ZERO, Duration::ZERO));
        proof::of!("ATT-05");
    }

    /// ATT-05
    #[test]
    fn only_what_differs_from_the_book_is_written_again() {
        let found = rows(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let wanted = rows(&[("a", "1"), ("b", "9"), ("d", "4")]);
        let batch = difference(Table::Pods, wanted.clone(), found.clone());
        let expected = Batch::new()
            .put(Table::Pods, b"b", b"9")
            .put(Table::Pods, b"d", b"4")
            .delete(Table::Pods, b"c");
        assert_eq!(batch, expected);
        let of_networks = difference(Table::Networks, wanted, found);
        let expected =
            Batch::new()
                .put(Table::Networks, b"b", b"9")
                .put(Table::Networks, b"d", b"4");
        assert_eq!(of_networks, expected);
        proof::of!("ATT-05");
    }
}
