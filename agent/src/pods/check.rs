//! `CHECK` and `STATUS` for pods that say themselves what they are attached to.

use std::sync::Arc;
use std::time::Duration;

use book::pods::record::{Maker, PodRecord};
use book::record::State;
use cni_spec::{AttachmentKey, CniResult, Invocation};
use delegate::prepare::{Wishes, prepare};
use netdev::Netns;
use world::DefaultNetwork;

use crate::error::AgentError;
use crate::node::Node;

/// Time for plugins of the default network to say that they are ready.
///
/// Runtimes ask every few seconds, and the plugin that asks this agent gives up after two.
const STATUS_PATIENCE: Duration = Duration::from_millis(1500);

impl Node {
    /// Checks every attachment of a pod, as it is recorded (CNI-CHK-06).
    ///
    /// # Errors
    /// Of the first one that is not as it was made.
    pub(crate) async fn check_pod(
        self: &Arc<Self>,
        record: &PodRecord,
        netns: &Netns,
        previous: &CniResult,
        invocation: &Invocation,
    ) -> Result<(), AgentError> {
        if record.state != State::Added {
            return Err(AgentError::Damaged {
                key: record.key.clone(),
                faults: vec!["it is being removed".to_owned()],
            });
        }
        for (index, member) in record.members.iter().enumerate() {
            let key = record.key_of(member);
            let is_primary = key == record.key;
            let checked = match &member.maker {
                Maker::Podnet if is_primary => self.attachments.check(&key, netns, previous).await,
                Maker::Podnet => match self.own_result(&key) {
                    Ok(result) => self.attachments.check(&key, netns, &result).await,
                    Err(error) => Err(error),
                },
                Maker::Plugins(delegation) => {
                    let attachment = delegate::Attachment {
                        key: &key,
                        netns: &record.sandbox.path,
                        trace: &invocation.trace,
                    };
                    let done = delegate::check(&self.delegates, delegation, &attachment).await;
                    done.map_err(Into::into)
                }
            };
            checked.map_err(|error| AgentError::Member {
                number: index + 1,
                member: member.to_string(),
                source: Box::new(error),
            })?;
        }
        self.check_ports(record, &invocation.trace).await
    }

    fn own_result(&self, key: &AttachmentKey) -> Result<CniResult, AgentError> {
        let ledger = self.book.ledger();
        let entry = ledger.get(key);
        let entry = entry.ok_or_else(|| AgentError::NotAttached { key: key.clone() })?;
        Ok(entry.record.result()?)
    }

    /// Whether pods can be attached to their default network now.
    ///
    /// A network whose addresses are all held still is one: a full pool is no failure of the node.
    ///
    /// # Errors
    /// When they cannot.
    pub(crate) async fn default_network_status(&self, path: &str) -> Result<(), AgentError> {
        let world = self.world.get();
        world.check_read()?;
        match world.default_network(&self.rules.lists)? {
            DefaultNetwork::None => Ok(()),
            DefaultNetwork::PodNetwork(name) => {
                world.network(&name)?;
                Ok(())
            }
            DefaultNetwork::Delegate => {
                let chain = self.default_chain()?;
                let mut delegation = prepare(&chain, &Wishes::default())?;
                path.clone_into(&mut delegation.path);
                let asked = delegate::status(&self.delegates, &delegation);
                match tokio::time::timeout(STATUS_PATIENCE, asked).await {
                    Ok(answered) => Ok(answered?),
                    Err(_) => Err(AgentError::DefaultNetworkWaits),
                }
            }
        }
    }
}
