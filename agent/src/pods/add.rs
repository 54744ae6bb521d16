//! `ADD` of a pod that says itself what it is attached to.

use std::sync::Arc;

use book::ledger::Wanted;
use book::pods::PodChange;
use book::pods::record::{Maker, PodRecord};
use book::record::{PodIdentity, Sandbox, State};
use cni_spec::AttachmentKey;
use delegate::{self, device_info};
use netdev::Netns;
use telemetry::chain;
use telemetry::failpoint::reached;
use world::WorldError;

use super::plan::Planned;
use crate::error::AgentError;
use crate::node::Node;
use crate::request::Asked;

impl Node {
    /// Makes every attachment of a pod, in order.
    ///
    /// The caller holds the container's lock. A repeated request gets the answer of the first.
    ///
    /// # Errors
    /// When one of them cannot be made; nothing of any is left then (NPWG §7.2).
    pub(crate) async fn add_pod(
        self: &Arc<Self>,
        key: &AttachmentKey,
        asked: Asked<'_>,
    ) -> Result<PodRecord, AgentError> {
        if let Some(record) = self.same_pod(key, asked)? {
            return Ok(record);
        }
        let pod: Option<PodIdentity> = asked.invocation.args.pod().map(Into::into);
        let made = Box::pin(self.make_pod(key, asked, pod.clone())).await;
        match (&made, pod) {
            (Ok(record), _) => self.tell_attached(record, true),
            (Err(error), Some(pod)) => self.book.pods().tell(PodChange::Refused {
                pod,
                reason: chain(error),
                missing: is_missing(error),
            }),
            (Err(_), None) => {}
        }
        made
    }

    /// The record of the same request, if it was served already.
    fn same_pod(
        &self,
        key: &AttachmentKey,
        asked: Asked<'_>,
    ) -> Result<Option<PodRecord>, AgentError> {
        let Some(record) = self.book.pods().get(key) else {
            return Ok(None);
        };
        if !record.sandbox.is(asked.netns) {
            return Err(AgentError::OtherNamespace { key: key.clone() });
        }
        if record.request_digest != asked.digest {
            return Err(AgentError::OtherConfiguration { key: key.clone() });
        }
        if record.state != State::Added {
            // It goes by itself when that can be recorded.
            self.book.require_store()?;
            return Err(AgentError::BeingRemoved { key: key.clone() });
        }
        Ok(Some(record))
    }

    async fn make_pod(
        self: &Arc<Self>,
        key: &AttachmentKey,
        asked: Asked<'_>,
        pod: Option<PodIdentity>,
    ) -> Result<PodRecord, AgentError> {
        // Nothing is begun that could not be recorded.
        self.book.require_store()?;
        let planned = self.plan(asked).await?;
        let (members, natives): (Vec<_>, Vec<_>) = planned
            .into_iter()
            .map(|Planned { member, native }| (member, native))
            .unzip();
        let mut record = PodRecord {
            key: key.clone(),
            state: State::Adding,
            cni_network: asked.conf.head.name.clone(),
            request_digest: asked.digest.to_owned(),
            pod,
            sandbox: Sandbox::of(&asked.request.netns, asked.netns),
            members,
            host_ports: None,
            attempts: 0,
        };
        self.book.pods().insert(record.clone());
        let mut begun = 0;
        let done = self.make_members(&mut record, natives, asked, &mut begun);
        let Err(error) = done.await else {
            return Ok(record);
        };
        // In the record, too: what was never executed is never told DEL.
        for member in record.members.iter_mut().skip(begun) {
            if let Maker::Plugins(delegation) = &mut member.maker {
                delegation.settle_from(0);
            }
        }
        if let Err(left) = self.take_members_apart(&record, begun).await {
            tracing::error!(pod = %key, error = %left, "the pod's attachments could not be undone completely; the audit goes on with them");
        }
        Err(error)
    }

    /// In `begun` is how many members something may be left of, also when it fails.
    async fn make_members(
        self: &Arc<Self>,
        record: &mut PodRecord,
        natives: Vec<Option<(Wanted, api::Network)>>,
        asked: Asked<'_>,
        begun: &mut usize,
    ) -> Result<(), AgentError> {
        // All of them are in it: from here on, whatever was begun is undone by the next start.
        self.book.save_pod(record).await?;
        reached("pod.recorded");
        for (index, native) in natives.into_iter().enumerate() {
            let made = match native {
                Some((wanted, network)) => {
                    *begun = index + 1;
                    Box::pin(self.attachments.add(wanted, &network, asked.netns))
                        .await
                        .map(|_| ())
                }
                None => self.delegate(record, index, asked, begun).await,
            };
            if let Err(error) = made {
                let named = record.members.get(index).map(ToString::to_string);
                return Err(AgentError::Member {
                    number: index + 1,
                    member: named.unwrap_or_default(),
                    source: Box::new(error),
                });
            }
            reached("pod.member");
        }
        // A rare guest, and a large future.
        Box::pin(self.map_ports(record, asked)).await?;
        record.state = State::Added;
        self.book.save_pod(record).await?;
        self.book.pods().update(record);
        reached("pod.committed");
        Ok(())
    }

    async fn delegate(
        self: &Arc<Self>,
        record: &mut PodRecord,
        index: usize,
        asked: Asked<'_>,
        begun: &mut usize,
    ) -> Result<(), AgentError> {
        let key = record.members.get(index).map(|it| record.key_of(it));
        let maker = record.members.get_mut(index).map(|it| &mut it.maker);
        let (Some(key), Some(Maker::Plugins(delegation))) = (key, maker) else {
            return Ok(());
        };
        // A plugin that fails because of it would remove it when it is told to clean up (PAIN-DEL-2).
        refuse_taken(asked.netns, &key).await?;
        let attachment = delegate::Attachment {
            key: &key,
            netns: &asked.request.netns,
            trace: &asked.invocation.trace,
        };
        if let Some(file) = &delegation.device_info_file {
            let from = delegation.device_plugin_file.as_deref();
            let prepared = device_info::prepare(&self.delegates, file, from);
            prepared.map_err(|source| AgentError::DeviceInfo { source })?;
        }
        let added = delegate::add(&self.delegates, delegation, &attachment).await;
        if matches!(&added, Err(failure) if failure.clean) {
            self.forget_device(delegation);
        } else {
            *begun = index + 1;
        }
        delegation.result = added.map_err(|failure| failure.error)?;
        let file = delegation.device_info_file.as_deref();
        delegation.device_info = file.and_then(|file| device_info::read(&self.delegates, file));
        self.book.pods().update(record);
        reached("pod.delegated");
        self.settle_defaults(record, index, asked.netns).await
    }
}

async fn refuse_taken(netns: &Netns, key: &AttachmentKey) -> Result<(), AgentError> {
    let name = key.ifname.to_string();
    let pod = netdev::Netlink::in_netns(netns)?;
    let free = pod.with(move |connection| connection.name_is_free(&name));
    if free.await? {
        Ok(())
    } else {
        Err(AgentError::NameTaken {
            ifname: key.ifname.to_string(),
        })
    }
}

/// True when a network that the pod names does not exist.
fn is_missing(error: &AgentError) -> bool {
    match error {
        AgentError::Member { source, .. } => is_missing(source),
        AgentError::NoDefinition { .. } => true,
        AgentError::World(WorldError::Resolve { source, .. }) => source.reason() == "NotFound",
        _ => false,
    }
}
