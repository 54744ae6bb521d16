//! Life of an attachment: made, checked, removed, collected, recovered at start.
//!
//! Record before effect, one way to take apart, and that one can be taken from any state. The engine knows
//! the book and four [`doors`], and neither kinds of ports nor kinds of reach: what it is tested with has
//! others ([`doors`] says which verbs they need).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use book::Book;
use book::ledger::Wanted;
use book::record::{Attachment, HostEnd, State};
use cluster::access::Used;
use cni_spec::AttachmentKey;
use host::host_name;
use metrics::Metrics;
use netdev::Netns;
use ports::{Ends, PortError};
use store::Pending;
use telemetry::failpoint::reached;

use self::doors::{Authority, Ports, Reach, Tables};
use crate::error::AgentError;

mod audit;
pub mod authority;
mod check;
pub mod doors;
pub mod judged;
mod reserved;
mod served;
mod start;

pub use reserved::ReservedPorts;

/// The attachments of this node.
#[derive(Debug)]
pub struct Attachments<P, R, T, A> {
    book: Arc<Book>,
    ports: Arc<P>,
    reach: Arc<R>,
    tables: Arc<T>,
    authority: A,
    /// Ports of the node that lead to no pod.
    reserved: ReservedPorts,
    /// Hears of the phases of an `ADD`.
    metrics: Option<Arc<Metrics>>,
    /// The last audit found this many live ports damaged.
    impaired: AtomicUsize,
}

impl<P: Ports, R: Reach, T: Tables, A: Authority> Attachments<P, R, T, A> {
    /// Takes the doors.
    pub const fn new(
        book: Arc<Book>,
        ports: Arc<P>,
        reach: Arc<R>,
        tables: Arc<T>,
        authority: A,
    ) -> Self {
        Self {
            book,
            ports,
            reach,
            tables,
            authority,
            reserved: ReservedPorts::none(),
            metrics: None,
            impaired: AtomicUsize::new(0),
        }
    }

    /// Refuses these ports of the node to pods.
    #[must_use]
    pub fn reserving(self, reserved: ReservedPorts) -> Self {
        Self { reserved, ..self }
    }

    /// Has the phases of each `ADD` counted.
    #[must_use]
    pub fn measured(self, metrics: &Arc<Metrics>) -> Self {
        Self {
            metrics: Some(Arc::clone(metrics)),
            ..self
        }
    }

    /// Counts a phase that began then; returns the begin of the next one.
    fn phase(&self, phase: &'static str, since: Instant) -> Instant {
        let now = Instant::now();
        if let Some(metrics) = &self.metrics {
            metrics.phase(phase, now.duration_since(since));
        }
        spans::phase(phase, since, now);
        now
    }

    /// Number of live ports that the last audit found damaged.
    pub fn impaired(&self) -> usize {
        self.impaired.load(Ordering::Relaxed)
    }

    /// The giver of addresses.
    pub const fn authority(&self) -> &A {
        &self.authority
    }

    /// Makes an attachment; the caller holds the container's lock.
    ///
    /// An attachment that is there already, for the same request in the same namespace, is the
    /// answer again: its runtime did not get the first one. If it is not as it should be, for
    /// example because the agent died while it was made, it is made anew.
    ///
    /// Each new attachment is asked about here, whichever way the request came: a list of the pod, or
    /// a configuration that names its network, as another plugin hands it on.
    ///
    /// # Errors
    /// When it cannot be made; nothing of it is left then.
    pub async fn add(
        &self,
        mut wanted: Wanted,
        network: &api::Network,
        netns: &Netns,
    ) -> Result<Attachment, AgentError> {
        let begun = Instant::now();
        if let Some(record) = self.same(&wanted)? {
            match self.check(&record.key, netns, &record.result()?).await {
                Ok(()) => return Ok(record),
                Err(AgentError::Damaged { faults, .. }) => {
                    tracing::warn!(attachment = %record.key, ?faults, "a damaged attachment is asked for again: it is removed and made once more");
                    self.take_apart(&record.key).await?;
                }
                Err(error) => return Err(error),
            }
        } else if !wanted.is_of_node() {
            let used = Used::Network(network.name.clone());
            Box::pin(self.authority.allow(wanted.pod.as_ref(), [used])).await?;
        }
        let begun = self.phase("access", begun);
        // Nothing is begun that could not be recorded.
        self.book.require_store()?;
        self.ports.admit(&mut wanted, network)?;
        self.reserved.refuse(&wanted.host_ports)?;
        served::refuse_services(&wanted.host_ports)?;
        served::refuse_served(&wanted.host_ports)?;
        Box::pin(self.reach.admit(network)).await?;
        let _busy = self.ports.busy();
        let host = HostEnd {
            name: host_name(&wanted.key),
            ifindex: 0,
        };
        let record = Box::pin(self.authority.grant(wanted, network, host)).await?;
        self.phase("address", begun);
        reached("add.reserved");
        match Box::pin(self.make(&record, netns)).await {
            Ok(record) => Ok(record),
            Err(error) => {
                // Also when it could not be recorded: whether it was written is not known.
                self.undo(&record.key).await;
                Err(error)
            }
        }
    }

    /// The record of the same request, if it was served already.
    fn same(&self, wanted: &Wanted) -> Result<Option<Attachment>, AgentError> {
        let ledger = self.book.ledger();
        let Some(entry) = ledger.get(&wanted.key) else {
            return Ok(None);
        };
        let record = &entry.record;
        let key = || wanted.key.clone();
        if (record.sandbox.dev, record.sandbox.ino) != (wanted.sandbox.dev, wanted.sandbox.ino) {
            return Err(AgentError::OtherNamespace { key: key() });
        }
        if record.request_digest != wanted.request_digest {
            return Err(AgentError::OtherConfiguration { key: key() });
        }
        match record.state {
            State::Added if !entry.live => Err(AgentError::LinkGone { key: key() }),
            State::Added => Ok(Some(record.clone())),
            State::Adding | State::Deleting => {
                // It goes by itself when that can be recorded.
                self.book.require_store()?;
                Err(AgentError::BeingRemoved { key: key() })
            }
        }
    }

    /// Makes the links of an attachment, and brings it into the tables.
    ///
    /// Most of it is on one thread, which waits for the kernel and, before a pod can use anything, for the
    /// record.
    async fn make(&self, record: &Attachment, netns: &Netns) -> Result<Attachment, AgentError> {
        let begun = Instant::now();
        Box::pin(self.reach.ensure(&record.network)).await?;
        let begun = self.phase("reach", begun);
        // Nothing of it, not the socket of a switch either, is there before.
        self.tables.prepare(record)?;
        // The disk and the kernel at once.
        let recorded = self.book.submit(record)?;
        let (book, tables) = (Arc::clone(&self.book), Arc::clone(&self.tables));
        let booked = record.clone();
        let live = move |ends: Result<Ends, PortError>| {
            recorded.wait()?;
            reached("add.recorded");
            go_live(&book, &*tables, booked, &ends?)
        };
        let (added, saved) = self.ports.make(record, netns, live).await?;
        let begun = self.phase("port", begun);
        self.ports.activate(&added, netns).await?;
        self.phase("open", begun);
        if added.shaper.is_some() {
            // Without this record a start would not know the shaper's ends.
            saved.await?;
            reached("add.saved");
        } else {
            // A start knows an attachment that is whole when it sees it: nobody waits for the disk.
            tokio::spawn(note_saved(saved, record.key.clone()));
        }
        self.book.ledger().set_added(&record.key);
        reached("add.committed");
        Ok(added)
    }

    /// Takes apart the remains of a failed `ADD`.
    ///
    /// A part that cannot be removed now stays recorded, and the audit goes on with it.
    pub async fn undo(&self, key: &AttachmentKey) {
        if let Err(error) = self.take_apart(key).await {
            tracing::error!(attachment = %key, %error, "the attachment could not be undone completely; the audit goes on with it");
        }
    }

    /// Removes an attachment; one that is not there is removed already.
    ///
    /// The caller holds the container's lock.
    ///
    /// # Errors
    /// When something of it is left; calling again goes on.
    pub async fn remove(&self, key: &AttachmentKey) -> Result<(), AgentError> {
        let _busy = self.ports.busy();
        let Some(record) = self.book.record(key) else {
            return Ok(());
        };
        if record.state != State::Deleting {
            self.book
                .save(&Attachment {
                    state: State::Deleting,
                    ..record
                })
                .await?;
        }
        reached("del.recorded");
        self.take_apart(key).await
    }

    /// Removes tables, link and record of an attachment, in this order.
    ///
    /// A port stops sending before it goes, and is forgotten when nothing is left of it. Every step
    /// succeeds when its work is done already.
    async fn take_apart(&self, key: &AttachmentKey) -> Result<(), AgentError> {
        let record = {
            let mut ledger = self.book.ledger();
            ledger.set_state(key, State::Deleting, false);
            match ledger.get(key) {
                Some(entry) => entry.record.clone(),
                None => return Ok(()),
            }
        };
        self.tables.reconcile_port(&record)?;
        self.ports.unmake(&record).await?;
        if !record.host_ports.is_empty() {
            // Before its addresses are free: the next pod that has one gets none of these connections.
            Box::pin(self.reach.withdraw(&record.network)).await?;
        }
        reached("del.torn-down");
        self.book.erase(key).await?;
        self.book.ledger().release(key);
        Box::pin(self.reach.release(&record.network)).await;
        self.authority.released();
        reached("del.forgotten");
        Ok(())
    }

    /// Removes the attachments of a CNI network that `keep` does not want.
    ///
    /// Attachments that came after the request stay.
    ///
    /// # Errors
    /// All failures together; what can be removed is removed.
    pub async fn collect(
        &self,
        cni_network: &str,
        before: Instant,
        keep: impl Fn(&Attachment) -> bool,
    ) -> Result<usize, AgentError> {
        // Of these the runtime knows nothing; they go and stay with their pods (CNI-GC-03).
        let owned = self.book.pods().owned();
        let stale: Vec<AttachmentKey> = self
            .book
            .ledger()
            .entries()
            .filter(|entry| !owned.contains(&entry.record.key))
            .filter(|entry| entry.record.cni_network == cni_network && entry.since < before)
            .filter(|entry| !keep(&entry.record))
            .map(|entry| entry.record.key.clone())
            .collect();
        let (mut removed, mut errors) = (0, Vec::new());
        for key in stale {
            let _guard = self.book.turn(&key.container).await;
            // While this waited, the attachment may have been removed and made again.
            let still = self
                .book
                .ledger()
                .get(&key)
                .is_some_and(|entry| entry.since < before);
            if !still {
                continue;
            }
            tracing::info!(attachment = %key, "a stale attachment is removed");
            match self.remove(&key).await {
                Ok(()) => removed += 1,
                Err(error) => errors.push(error),
            }
            reached("gc.one");
        }
        if errors.is_empty() {
            Ok(removed)
        } else {
            Err(AgentError::Collect { errors })
        }
    }
}

/// Puts an attachment that has its links into the tables.
///
/// The pod's end is still down: what it announces when it is up reaches its network. Returns the record as
/// it will be, on its way to the disk.
fn go_live(
    book: &Book,
    tables: &impl Tables,
    record: Attachment,
    links: &Ends,
) -> Result<(Attachment, Pending), AgentError> {
    let added = Attachment {
        state: State::Added,
        host: HostEnd {
            ifindex: links.host_end,
            ..record.host
        },
        shaper: links.shaper,
        ..record
    };
    // Before anybody may write it as live; and it has no connections that policies have to spare.
    tables.admit(&added)?;
    reached("add.judged");
    book.ledger().set_live(&added);
    tables.reconcile_port(&added)?;
    reached("add.live");
    let saved = book.submit(&added)?;
    Ok((added, saved))
}

async fn note_saved(saved: Pending, key: AttachmentKey) {
    // The book has it as made, and the store will when it can be written again.
    if let Err(error) = saved.await {
        tracing::error!(attachment = %key, %error, "the attachment is not recorded as made yet: the store could not be written");
    }
    reached("add.saved");
}

#[cfg(test)]
mod tests;
