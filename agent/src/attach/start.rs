//! Start: reconciles the kernel with the store, and follows links from then on.

use std::collections::BTreeSet;

use book::record::{Attachment, State};
use datapath::PinDir;
use ports::{Survey, links_of};
use telemetry::chain;

use super::Attachments;
use super::doors::{Authority, Ports, Reach, Tables};
use crate::error::AgentError;

impl<P: Ports, R: Reach, T: Tables, A: Authority> Attachments<P, R, T, A> {
    /// Reconciles everything at start, before any request is served.
    ///
    /// Unfinished attachments are undone, dead ones removed, links adopted or removed, tables filled,
    /// programs activated.
    ///
    /// # Errors
    /// When the kernel or the store refuses.
    pub async fn recover(&self, pins: &PinDir) -> Result<(), AgentError> {
        let survey = self.ports.survey().await?;
        self.finish(&survey).await?;
        let mut known = BTreeSet::new();
        let (mut remove, mut broken) = (Vec::new(), Vec::new());
        for entry in self.book.ledger().entries() {
            let record = &entry.record;
            known.extend(links_of(record));
            if record.state != State::Added || survey.is_dead(record) {
                remove.push(record.key.clone());
            } else if !survey.has(&record.host) {
                broken.push(record.key.clone());
            }
        }
        let records: Vec<Attachment> = {
            let mut ledger = self.book.ledger();
            for key in &remove {
                ledger.set_state(key, State::Deleting, false);
            }
            for key in &broken {
                // The pod is there and its link is not: CHECK says so, and DEL is still to come.
                ledger.set_state(key, State::Added, false);
            }
            ledger
                .entries()
                .filter(|entry| entry.live)
                .map(|entry| entry.record.clone())
                .collect()
        };
        let records = self.recover_limits(records).await;
        self.reach.recover().await;
        self.tables.reconcile_everything()?;
        for record in &records {
            // One port must not keep the others from being served; the audit comes back to it.
            if let Err(error) = self.repair(record, &survey).await {
                tracing::warn!(attachment = %record.key, %error, "the attachment could not be repaired at start, the audit tries again");
            }
        }
        // Packets run through the new programs only now that the tables are complete.
        self.tables.activate()?;
        for key in remove {
            tracing::info!(attachment = %key, "an attachment that is unfinished or has lost its pod is removed");
            self.undo(&key).await;
        }
        self.ports.remove_strays(&survey, &known).await?;
        self.reach.mend_ways_out().await;
        let kept = |ifindex| self.reach.has_program(ifindex);
        Ok(self.ports.drop_stale_pins(pins, kept).await?)
    }

    /// Finishes attachments that were made whole and are recorded as unfinished.
    ///
    /// Their runtime may have been told, but their second record did not get to the disk.
    async fn finish(&self, survey: &Survey) -> Result<(), AgentError> {
        let whole: Vec<Attachment> = self
            .book
            .ledger()
            .entries()
            .filter_map(|entry| survey.whole(&entry.record))
            .collect();
        for record in whole {
            tracing::info!(attachment = %record.key, "an attachment whose end was not recorded is found made");
            if let Err(error) = self.book.save(&record).await {
                // The book has it, and the store will.
                tracing::error!(attachment = %record.key, error = %chain(&error), "the attachment is not recorded as made yet: the store could not be written");
            }
            let mut ledger = self.book.ledger();
            ledger.set_live(&record);
            ledger.set_added(&record.key);
        }
        Ok(())
    }

    /// Makes queues and shapers as recorded, before the tables lead packets there.
    ///
    /// Returns the records as they are then.
    async fn recover_limits(&self, mut records: Vec<Attachment>) -> Vec<Attachment> {
        for record in &mut records {
            // Nobody is let past a limit for this: without its shaper a limited port sends nothing.
            if let Err(error) = self.ports.limit(record, record.limits).await {
                tracing::error!(attachment = %record.key, %error, "the limits of the attachment are not restored yet; the audit tries again");
            }
            if let Some(entry) = self.book.ledger().get(&record.key) {
                record.clone_from(&entry.record);
            }
        }
        records
    }

    /// Mends the node's end of an attachment that has its link.
    ///
    /// Program, sockets, routes and queues are as recorded then. Returns the record as it is after that.
    ///
    /// # Errors
    /// When the kernel refuses, or another program's queue is in the way.
    pub(super) async fn mend(&self, record: &Attachment) -> Result<Attachment, AgentError> {
        self.ports.repair(record).await?;
        self.reach.mend(record).await?;
        let limits = self.ports.limits_now(record);
        self.ports.limit(record, limits).await?;
        let now = self.book.record(&record.key);
        Ok(now.unwrap_or_else(|| record.clone()))
    }

    /// Attaches the dispatcher where somebody took it away.
    ///
    /// The port gets its TCX link, too.
    async fn repair(&self, record: &Attachment, survey: &Survey) -> Result<(), AgentError> {
        if survey.has(&record.host) {
            self.ports.repair(record).await?;
            self.reach.mend(record).await?;
        }
        Ok(())
    }

    /// Attaches the program again at the port with this interface.
    ///
    /// Without its filter the host end of a port hands packets to the node's own stack, so this cannot wait
    /// for the audit.
    pub async fn hook_removed(&self, ifindex: u32) {
        let Some(key) = self.book.ledger().on_link(ifindex) else {
            return;
        };
        let guard = self.book.turn(&key.container).await;
        // A request that was under way may have removed it.
        let record = self.book.record(&key);
        let Some(record) = record.filter(|record| record.host.ifindex == ifindex) else {
            drop(guard);
            return self.ports.queue_changed(ifindex).await;
        };
        match self.ports.mend_hook(&record).await {
            Ok(true) => {
                tracing::warn!(attachment = %key, "the port's program had been removed, and is attached again");
            }
            Ok(false) => {}
            Err(error) => {
                tracing::error!(attachment = %key, %error, "the program could not be attached to the port again; the audit tries again");
            }
        }
    }

    /// Takes the port whose host end has gone out of the tables.
    pub fn link_removed(&self, ifindex: u32) {
        self.ports.lost(ifindex);
        let Some(record) = self.book.ledger().lose_link(ifindex) else {
            return;
        };
        tracing::info!(attachment = %record.key, interface = %record.host.name, "the link of the attachment is gone: its port leaves the tables");
        if let Err(error) = self.tables.reconcile_port(&record) {
            tracing::error!(%error, "the tables could not be updated after a link had gone; the audit tries again");
        }
    }
}
