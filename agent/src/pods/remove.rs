//! Removes pods by their records alone (NPWG §4.2.1): `DEL`, `GC`, restarts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use book::pods::PodChange;
use book::pods::record::{Maker, PodRecord};
use book::record::{Sandbox, State};
use cni_spec::{AttachmentKey, TraceContext};
use delegate::Delegation;
use delegate::error::DelegateError;
use delegate::{self, device_info};
use futures_util::future::join_all;
use telemetry::chain;
use telemetry::failpoint::reached;
use tokio::task::JoinSet;

use crate::error::AgentError;
use crate::node::Node;

mod end;

pub(crate) use end::ATTEMPTS;

/// Time that start-up waits for plugins of others to clean up.
///
/// A longer removal goes on during requests.
const START_PATIENCE: Duration = Duration::from_secs(10);

impl Node {
    /// Removes the attachment under this key, or the pod with all of its attachments.
    ///
    /// The caller holds the container's lock.
    ///
    /// # Errors
    /// When something of it is left; calling again goes on.
    pub async fn remove(&self, key: &AttachmentKey) -> Result<(), AgentError> {
        match self.book.pods().get(key) {
            Some(record) => self.take_pod_apart(&record).await,
            None => {
                self.attachments.remove(key).await?;
                Ok(self.book.forget_set_aside(key).await?)
            }
        }
    }

    /// Removes as [`Self::remove`] after a lost answer; keeps the record on failure.
    pub async fn undo_any(&self, key: &AttachmentKey) {
        if let Err(error) = self.remove(key).await {
            tracing::error!(attachment = %key, %error, "the pod's attachments could not be undone completely; the audit goes on with them");
        }
    }

    async fn take_pod_apart(&self, record: &PodRecord) -> Result<(), AgentError> {
        self.take_members_apart(record, record.members.len()).await
    }

    /// Removes a pod's members, last to first; only the first `begun` were begun.
    ///
    /// A failure does not stop the rest (NPWG §6.2, §7.2).
    ///
    /// # Errors
    /// The last failure there was. The pod stays recorded then, with what is done already.
    pub(super) async fn take_members_apart(
        &self,
        record: &PodRecord,
        begun: usize,
    ) -> Result<(), AgentError> {
        let mut record = record.clone();
        if record.state != State::Deleting {
            let was = std::mem::replace(&mut record.state, State::Deleting);
            if was == State::Adding {
                // A start undoes it either way, and the audit does if this cannot be written.
                self.book.pods().update(&record);
            }
            self.book.save_pod(&record).await?;
            self.book.pods().update(&record);
        }
        reached("pod.deleting");
        let netns = living(&record.sandbox).to_owned();
        let before = record.clone();
        let mut errors = Vec::new();
        // The last that was made.
        if let Err(error) = self.unmap_ports(&mut record, &netns).await {
            self.tell_left(&record, &error);
            errors.push(error);
        }
        for index in (0..begun.min(record.members.len())).rev() {
            if let Err(error) = self.take_member_apart(&mut record, index, &netns).await {
                self.tell_left(&record, &error);
                errors.push(error);
            }
            reached("pod.member-gone");
        }
        if let Some(last) = errors.pop() {
            for error in errors {
                tracing::warn!(pod = %record.key, %error, "an attachment of the pod could not be removed; the others are");
            }
            if record != before {
                // Who is done is not asked again, by no attempt and by no later agent.
                self.book.save_pod(&record).await?;
                self.book.pods().update(&record);
            }
            return Err(last);
        }
        self.book.erase_pod(&record.key).await?;
        self.book.pods().remove(&record.key);
        reached("pod.forgotten");
        if let Some(pod) = record.pod {
            self.book.pods().tell(PodChange::Detached {
                key: record.key,
                pod,
            });
        }
        Ok(())
    }

    /// Removes one member, and notes in the record which of its plugins are done.
    async fn take_member_apart(
        &self,
        record: &mut PodRecord,
        index: usize,
        netns: &str,
    ) -> Result<(), AgentError> {
        let Some(member) = record.members.get(index) else {
            return Ok(());
        };
        let (key, named) = (record.key_of(member), member.to_string());
        let gone = match record.members.get_mut(index).map(|it| &mut it.maker) {
            None => Ok(()),
            Some(Maker::Podnet) => match self.attachments.remove(&key).await {
                Ok(()) => {
                    let forgotten = self.book.forget_set_aside(&key).await;
                    forgotten.map_err(AgentError::from)
                }
                failed => failed,
            },
            Some(Maker::Plugins(delegation)) => {
                let attachment = delegate::Attachment {
                    key: &key,
                    netns,
                    trace: &TraceContext::default(),
                };
                let done = delegate::del(&self.delegates, delegation, &attachment).await;
                self.forget_device(delegation);
                done.map_err(Into::into)
            }
        };
        gone.map_err(|source| AgentError::Member {
            number: index + 1,
            member: named,
            source: Box::new(source),
        })
    }

    /// Reports to a pod that an attachment of it is left.
    ///
    /// It stays until a removal succeeds.
    fn tell_left(&self, record: &PodRecord, error: &AgentError) {
        if let Some(pod) = &record.pod {
            self.book.pods().tell(PodChange::Left {
                pod: pod.clone(),
                reason: chain(error),
            });
        }
    }

    /// Removes the device-info file of a device that is gone.
    ///
    /// A file that stays does no harm: the next user of its name removes it first.
    pub(super) fn forget_device(&self, delegation: &Delegation) {
        if let Some(file) = &delegation.device_info_file
            && let Err(error) = device_info::remove(&self.delegates, file)
        {
            tracing::warn!(path = %file.display(), %error, "the device-info file could not be removed");
        }
    }

    /// Removes pods of a CNI network that `keep` rejects, if older than the request.
    ///
    /// Afterwards the plugins of others get the list of their valid attachments. It comes from the
    /// records: the runtime knows only the first interface of a pod (CNI-GC-03).
    ///
    /// # Errors
    /// All failures together; what can be removed is removed.
    pub async fn collect_pods(
        &self,
        cni_network: &str,
        before: Instant,
        keep: impl Fn(&AttachmentKey) -> bool,
    ) -> Result<usize, AgentError> {
        let known: Vec<PodRecord> = self.book.pods().records();
        let known = known
            .into_iter()
            .filter(|record| record.cni_network == cni_network);
        let (mut removed, mut errors) = (0, Vec::new());
        let mut chains = BTreeMap::new();
        for record in known {
            let key = &record.key;
            let delegations = record.members.iter().filter_map(|m| m.delegation());
            for delegation in delegations {
                chains.insert(delegation.network.clone(), delegation.clone());
            }
            if keep(key) || !self.book.pods().is_older(key, before) {
                continue;
            }
            let _guard = self.book.turn(&key.container).await;
            // While this waited, it may have been removed and made again.
            if !self.book.pods().is_older(key, before) {
                continue;
            }
            tracing::info!(pod = %key, "the attachments of a stale pod are removed");
            match self.remove(key).await {
                Ok(()) => removed += 1,
                Err(error) => errors.push(error),
            }
            reached("gc.one");
        }
        for delegation in chains.into_values() {
            let failures = self.collect_delegated(&delegation).await;
            errors.extend(failures.into_iter().map(AgentError::from));
        }
        if errors.is_empty() {
            Ok(removed)
        } else {
            Err(AgentError::Collect { errors })
        }
    }

    /// Tells plugins which of their attachments are valid; returns each failure.
    async fn collect_delegated(&self, delegation: &Delegation) -> Vec<DelegateError> {
        let records = self.book.pods().records();
        let valid: Vec<AttachmentKey> = records
            .iter()
            .flat_map(|record| {
                let members = record.members.iter().filter(|member| {
                    let of_network = member.delegation();
                    of_network.is_some_and(|other| other.network == delegation.network)
                });
                members.map(|member| record.key_of(member))
            })
            .collect();
        delegate::gc(&self.delegates, delegation, &valid).await
    }

    /// Removes half-made and half-removed pods, and pods whose namespace is gone.
    ///
    /// The last agent has left them.
    pub async fn recover_pods(self: &Arc<Self>) {
        let mut work = JoinSet::new();
        for record in self.book.pods().records() {
            if record.state == State::Added && !record.sandbox.is_gone() {
                continue;
            }
            let node = Arc::clone(self);
            work.spawn(async move { node.remove_pod_later(&record).await });
        }
        let all = async { while work.join_next().await.is_some() {} };
        if tokio::time::timeout(START_PATIENCE, all).await.is_err() {
            tracing::warn!("other plugins are still removing attachments of pods that are gone");
        }
        work.detach_all();
    }

    /// Tries again to remove deleted pods and pods whose namespace is gone.
    ///
    /// The tries become less and less frequent. A pod without its namespace has no use for its
    /// attachments.
    ///
    /// # Errors
    /// All failures together.
    pub(crate) async fn audit_pods(&self) -> Result<(), AgentError> {
        let mut over = self.book.pods().records();
        over.retain(|record| match record.state {
            State::Adding => false,
            State::Added => record.sandbox.is_gone(),
            State::Deleting => true,
        });
        over.retain(|record| self.book.pods().is_due(&record.key));
        // One whose plugins hang must not keep the others waiting.
        let done = join_all(over.iter().map(|record| self.try_remove_pod(record))).await;
        let errors: Vec<AgentError> = done.into_iter().filter_map(Result::err).collect();
        self.give_up_surplus().await;
        if errors.is_empty() {
            Ok(())
        } else {
            Err(AgentError::Collect { errors })
        }
    }

    async fn remove_pod_later(&self, record: &PodRecord) {
        if let Err(error) = self.try_remove_pod(record).await {
            tracing::warn!(pod = %record.key, %error, "the pod's attachments are not removed yet; the audit tries again");
        }
    }

    async fn try_remove_pod(&self, record: &PodRecord) -> Result<(), AgentError> {
        let _guard = self.book.turn(&record.key.container).await;
        // A request that was under way has changed it.
        if self.book.pods().get(&record.key).as_ref() != Some(record) {
            return Ok(());
        }
        tracing::info!(pod = %record.key, "attachments that are unfinished or have lost their pod are removed");
        match self.remove(&record.key).await {
            Ok(()) => Ok(()),
            Err(error) => self.postpone(&record.key, error).await,
        }
    }
}

/// `CNI_NETNS` for plugins: the path while the same namespace is there (RT-CD-08).
///
/// It is empty otherwise, as runtimes have it.
fn living(sandbox: &Sandbox) -> &str {
    match sandbox.open() {
        Ok(Some(_)) => &sandbox.path,
        Ok(None) | Err(_) => "",
    }
}
