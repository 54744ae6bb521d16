//! Making and unmaking attachments. Record before effect, one way to take apart, and that one can
//! be taken from any state.

use std::sync::Arc;
use std::time::Instant;

use cluster::access::Used;
use cni_spec::AttachmentKey;
use netdev::Netns;
use store::Pending;
use telemetry::failpoint::reached;

use crate::error::AgentError;
use crate::host::host_name;
use crate::ledger::Wanted;
use crate::node::Node;
use crate::ports::{Ends, PortError};
use crate::record::{Attachment, HostEnd, PodIdentity, State};

mod check;

impl Node {
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
    pub async fn attach(
        self: &Arc<Self>,
        mut wanted: Wanted,
        network: &api::Network,
        netns: &Netns,
    ) -> Result<Attachment, AgentError> {
        if let Some(record) = self.same(&wanted)? {
            match self.check(&record.key, netns, &record.result()?).await {
                Ok(()) => return Ok(record),
                Err(AgentError::Damaged { faults, .. }) => {
                    tracing::warn!(attachment = %record.key, ?faults, "asked for again, made anew");
                    self.take_apart(&record.key).await?;
                }
                Err(error) => return Err(error),
            }
        } else {
            let used = Used::Network(network.name.clone());
            Box::pin(self.check_access(wanted.pod.as_ref(), [used])).await?;
        }
        // Nothing is begun that could not be recorded.
        self.book.require_store()?;
        self.ports.admit(&mut wanted, network)?;
        Box::pin(self.reach.admit(network)).await?;
        let _busy = self.ports.busy();
        let host = HostEnd {
            name: host_name(&wanted.key),
            ifindex: 0,
        };
        let record = match &self.cluster {
            Some(_) if network.routing == api::Routing::Node => {
                self.reach.reserve(wanted, network, host)?
            }
            Some(cluster) => {
                self.book.ledger().forget_own(&network.name);
                cluster.book(self, wanted, network, host).await?
            }
            None => self.book.ledger().reserve(wanted, network, host)?,
        };
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

    /// Checks that a pod may use all of these (KEP-P2-1). The default network is everybody's, and
    /// without a cluster every network is.
    ///
    /// # Errors
    /// When the pod may not use one, when nobody says that it may, or when there is no pod.
    pub(crate) async fn check_access(
        &self,
        pod: Option<&PodIdentity>,
        used: impl IntoIterator<Item = Used>,
    ) -> Result<(), AgentError> {
        let Some(cluster) = &self.cluster else {
            return Ok(());
        };
        let default = Used::Network(self.rules.lists.default_network.name().to_owned());
        let used = used.into_iter().filter(|used| *used != default).collect();
        Ok(cluster.check_access(pod, &used).await?)
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

    /// Most of it on one thread, which waits for nothing but the kernel and, before a pod can use
    /// anything, for the record.
    async fn make(
        self: &Arc<Self>,
        record: &Attachment,
        netns: &Netns,
    ) -> Result<Attachment, AgentError> {
        Box::pin(self.reach.ensure(&record.network)).await?;
        self.tables.reset_port_counters(record.port_id)?;
        // The disk and the kernel at once.
        let recorded = self.book.submit(record)?;
        let (node, booked) = (Arc::clone(self), record.clone());
        let live = move |ends: Result<Ends, PortError>| {
            recorded.wait()?;
            reached("add.recorded");
            node.go_live(booked, &ends?)
        };
        let (added, saved) = self.ports.make(record, netns, live).await?;
        self.ports.activate(&added, netns).await?;
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

    /// Puts an attachment that has its links into the tables. The pod's end is still down: what it
    /// announces when it is up reaches its network. The record as it will be, on its way to the disk.
    fn go_live(
        &self,
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
        self.book.ledger().set_live(&added);
        self.tables.reconcile(added.network.id)?;
        reached("add.live");
        let saved = self.book.submit(&added)?;
        Ok((added, saved))
    }

    /// Takes apart what a failed `ADD` has made. What cannot be removed now stays recorded, and the
    /// audit goes on with it.
    pub async fn undo(&self, key: &AttachmentKey) {
        if let Err(error) = self.take_apart(key).await {
            tracing::error!(attachment = %key, %error, "roll-back incomplete, will be finished later");
        }
    }

    /// Removes an attachment; one that is not there is removed already. The caller holds the
    /// container's lock.
    ///
    /// # Errors
    /// When something of it is left; calling again goes on.
    pub async fn detach(&self, key: &AttachmentKey) -> Result<(), AgentError> {
        let _busy = self.ports.busy();
        let Some(record) = self
            .book
            .ledger()
            .get(key)
            .map(|entry| entry.record.clone())
        else {
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

    /// Tables, link, record, in this order: a port stops sending before it goes, and is forgotten
    /// when nothing is left of it. Every step succeeds when its work is done already.
    async fn take_apart(&self, key: &AttachmentKey) -> Result<(), AgentError> {
        let record = {
            let mut ledger = self.book.ledger();
            ledger.set_state(key, State::Deleting, false);
            match ledger.get(key) {
                Some(entry) => entry.record.clone(),
                None => return Ok(()),
            }
        };
        self.tables.reconcile(record.network.id)?;
        self.ports.unmake(&record).await?;
        reached("del.torn-down");
        self.book.erase(key).await?;
        self.book.ledger().release(key);
        Box::pin(self.reach.release(&record.network)).await;
        if let Some(cluster) = &self.cluster {
            cluster.released();
        }
        reached("del.forgotten");
        Ok(())
    }

    /// Removes the attachments of a CNI network that `keep` does not want and that were there
    /// before the request came.
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
            tracing::info!(attachment = %key, "removing a stale attachment");
            match self.detach(&key).await {
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

async fn note_saved(saved: Pending, key: AttachmentKey) {
    // The book has it as made, and the store will when it can be written again.
    if let Err(error) = saved.await {
        tracing::error!(attachment = %key, %error, "not recorded as made");
    }
    reached("add.saved");
}
