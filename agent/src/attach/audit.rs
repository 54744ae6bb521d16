//! Looks at all attachments together, and mends those that are not as recorded.
//!
//! A look at one attachment takes several system calls, and the turn of its container. So all of them are
//! compared with a few dumps first, on a thread of their own, which holds no lock and yields to all others.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use book::record::{Attachment, State};
use ports::Survey;
use rustix::process::setpriority_process;
use telemetry::chain;
use telemetry::failpoint::pause;
use tokio::sync::oneshot;

use super::Attachments;
use super::doors::{Authority, Ports, Reach, Tables};
use crate::error::AgentError;

/// Niceness of the thread that looks at all attachments.
///
/// Nobody waits for it. What it finds is mended without this: a pod may be without its network.
const NICENESS: i32 = 10;

impl<P: Ports, R: Reach, T: Tables, A: Authority> Attachments<P, R, T, A> {
    /// Mends or removes half-removed attachments, dead pods and detached programs.
    ///
    /// Attachments in which a glance at all of them finds nothing amiss are not looked at one by one. Nothing
    /// is removed where records cannot be written. Returns each failure of one attachment.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn audit(&self, can_remove: bool) -> Result<Vec<AgentError>, AgentError> {
        // The book first: what it names now and the survey does not see is gone.
        let records: Vec<Attachment> = self.book.records();
        let survey = Arc::new(self.ports.survey().await?);
        let (mut suspects, whole): (Vec<_>, Vec<_>) = records
            .into_iter()
            .partition(|record| record.state != State::Added || !is_there(&survey, record));
        suspects.extend(self.glance(&survey, whole).await);
        tracing::debug!(
            suspects = suspects.len(),
            "an audit has looked at all attachments together"
        );
        let (mut impaired, mut errors) = (0, Vec::new());
        for record in suspects {
            // One that fails must not keep the others from being looked at.
            match self.inspect(&record, &survey, can_remove).await {
                Ok(true) => {}
                Ok(false) => impaired += 1,
                Err(error) => {
                    tracing::warn!(attachment = %record.key, %error, "the attachment could not be mended; the audit tries again");
                    impaired += usize::from(record.state == State::Added);
                    errors.push(error);
                }
            }
        }
        self.impaired.store(impaired, Ordering::Relaxed);
        Ok(errors)
    }

    /// Checks one attachment, and mends or removes it; false when its port is damaged.
    async fn inspect(
        &self,
        record: &Attachment,
        survey: &Survey,
        can_remove: bool,
    ) -> Result<bool, AgentError> {
        let _guard = self.book.turn(&record.key.container).await;
        let same = self
            .book
            .ledger()
            .get(&record.key)
            .is_some_and(|entry| entry.record == *record);
        // A request that was under way has changed it.
        if !same {
            return Ok(true);
        }
        match record.state {
            State::Adding => return Ok(true),
            State::Added if !survey.is_dead(record) => {}
            State::Added | State::Deleting if !can_remove => return Ok(true),
            State::Added | State::Deleting => {
                tracing::info!(attachment = %record.key, "an attachment that has lost its pod is removed");
                return self.remove(&record.key).await.map(|()| true);
            }
        }
        if survey.has(&record.host) {
            let looked = self.look_after(record).await;
            let gone = !matches!(looked, Ok(true)) && !self.ports.has_link(&record.host).await?;
            if !gone {
                return looked;
            }
        }
        // No damage of ours: a pod can remove its own end, and must not bring the node's STATUS
        // down with that. CHECK tells.
        self.link_removed(record.host.ifindex);
        Ok(true)
    }

    async fn look_after(&self, record: &Attachment) -> Result<bool, AgentError> {
        let record = self.mend(record).await?;
        let faults = self.faults(&record).await?;
        if !faults.is_empty() {
            tracing::warn!(attachment = %record.key, ?faults, "the port of the attachment is damaged");
        }
        Ok(faults.is_empty())
    }

    /// Finds attachments that may not be as recorded, among live ones with their links.
    ///
    /// They are all, if that cannot be told.
    async fn glance(&self, survey: &Arc<Survey>, records: Vec<Attachment>) -> Vec<Attachment> {
        let records = Arc::new(records);
        let (ports, reach, tables) = (
            Arc::clone(&self.ports),
            Arc::clone(&self.reach),
            Arc::clone(&self.tables),
        );
        let (all, survey) = (Arc::clone(&records), Arc::clone(survey));
        let look = move || -> Result<BTreeSet<usize>, AgentError> {
            pause("audit.glance");
            let mut suspects = ports.suspects(&survey, &all)?;
            suspects.extend(reach.suspects(&all)?);
            suspects.extend(tables.suspects(&all)?);
            Ok(suspects)
        };
        let error = match aside(look).await {
            Ok(Ok(suspects)) => {
                let suspects = suspects.into_iter();
                return suspects
                    .filter_map(|place| records.get(place).cloned())
                    .collect();
            }
            Ok(Err(error)) => chain(&error),
            Err(error) => chain(&error),
        };
        tracing::warn!(
            error,
            "the attachments could not be looked at together, and are looked at one by one"
        );
        records.to_vec()
    }
}

/// True when a live attachment has its pod and its host end.
fn is_there(survey: &Survey, record: &Attachment) -> bool {
    survey.has(&record.host) && !survey.is_dead(record)
}

/// Does work for which nobody waits on a thread of its own, behind all others.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (done, wait) = oneshot::channel();
    let thread = std::thread::Builder::new().name("podnet-audit".to_owned());
    thread.spawn(move || {
        // Linux takes it for the calling thread alone; without it the work is done all the same.
        let _ = setpriority_process(None, NICENESS);
        // The caller may have gone away.
        let _ = done.send(work());
    })?;
    wait.await
        .map_err(|_| io::Error::other("the thread that looks at attachments died"))
}
