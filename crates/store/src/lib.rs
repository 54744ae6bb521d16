//! Durable records in an embedded transactional store.
//!
//! The job: keep small records by key so that what was reported written is there after a crash of
//! the agent or the machine, and nothing is ever half there.
//!
//! Refuses to know: what is in a record. Keys and values are bytes; the caller gives them types,
//! versions and meaning.
//!
//! One thread owns all writing. Batches that wait while it makes one commit durable share the
//! next (group commit), so fifty concurrent writers pay for two or three flushes, not fifty.
//!
//! ```
//! use store::{Batch, Store, Table};
//!
//! let dir = tempfile::tempdir()?;
//! let path = dir.path().join("state.redb");
//! let store = Store::open(&path)?;
//! store.commit(Batch::new().put(Table::Attachments, b"pod-1/net0", b"10.10.0.2"))?;
//! drop(store);
//!
//! let store = Store::open(&path)?;
//! assert_eq!(store.rows(Table::Attachments)?, [(b"pod-1/net0".to_vec(), b"10.10.0.2".to_vec())]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod databases;
mod error;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod file;
mod place;
mod store;
#[cfg(test)]
mod tests;
mod writer;

pub use batch::{Batch, KEY_MAX, Table, VALUE_MAX};
pub use error::StoreError;
pub use store::{Contents, Failure, Row, Store};
pub use writer::Pending;
