//! The tables, with the policies of each port in force before it is live.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use book::Book;
use book::record::Attachment;
use datapath::DatapathError;
use guards::Guards;
use serving::Serving;
use tables::Reconciler;

use super::doors::Tables;

/// The tables and the policies of the node.
#[derive(Debug)]
pub struct Judged {
    /// The tables.
    pub tables: Arc<Reconciler>,
    /// Policies in force.
    pub guards: Arc<Guards>,
    /// Services in force.
    pub serving: Arc<Serving>,
    /// Attachments.
    pub book: Arc<Book>,
}

impl Tables for Judged {
    fn prepare(&self, record: &Attachment) -> Result<(), DatapathError> {
        self.tables.reset_port_counters(record.port_id)?;
        self.admit(record)
    }

    fn admit(&self, record: &Attachment) -> Result<(), DatapathError> {
        self.serving.admit(&record.network)?;
        self.guards.admit(record)
    }

    fn reconcile_port(&self, record: &Attachment) -> Result<(), DatapathError> {
        let key = &record.key;
        let is_live = {
            let ledger = self.book.ledger();
            let entry = ledger.get(key).filter(|entry| entry.live);
            entry.is_some_and(|entry| entry.record.port_id == record.port_id)
        };
        self.tables.reconcile_port(record)?;
        match is_live {
            true => Ok(()),
            false => self.guards.gone(record),
        }
    }

    fn reconcile_everything(&self) -> Result<(), DatapathError> {
        self.tables.reconcile_everything()
    }

    fn activate(&self) -> Result<(), DatapathError> {
        let retired = self.tables.activate()?;
        tokio::spawn(async move {
            // Programs that ran at the flip are long done by then.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let removed = tokio::task::spawn_blocking(move || retired.remove()).await;
            if let Ok(Err(error)) = removed {
                tracing::warn!(%error, "the programs and maps of the older layout could not be removed, the next start tries again");
            }
        });
        Ok(())
    }

    fn faults(&self, record: &Attachment) -> Result<Vec<String>, DatapathError> {
        self.tables.faults(record)
    }

    fn suspects(&self, records: &[Attachment]) -> Result<BTreeSet<usize>, DatapathError> {
        self.tables.suspects(records)
    }
}
