//! Start-up, audit and link events: passes each to the rooms that it concerns.

use std::sync::Arc;
use std::time::Duration;

use datapath::PinDir;
use host::{HOST_PREFIX, NEAR_PREFIX};
use netdev::{LinkEvent, LinkMonitor};

use crate::error::AgentError;
use crate::node::Node;
use crate::tombstone;

/// How often the audit runs.
pub const AUDIT_INTERVAL: Duration = Duration::from_secs(30);

/// Brings everything together at start, before any request is served.
///
/// # Errors
/// When the kernel or the store refuses.
pub async fn recover(node: &Arc<Node>, pins: &PinDir) -> Result<(), AgentError> {
    Box::pin(node.attachments.recover(pins)).await?;
    node.recover_pods().await;
    Ok(())
}

/// Mends half-removed attachments and pods, dead pods and detached programs.
///
/// # Errors
/// When the kernel does not tell, and all failures together.
pub async fn audit(node: &Arc<Node>) -> Result<(), AgentError> {
    // Without records nothing is removed, and what is left of it would only be said again.
    let can_remove = node.book.mend().await;
    tombstone::serve_all(node).await;
    let mut errors = Box::pin(node.attachments.audit(can_remove)).await?;
    if can_remove {
        errors.extend(node.audit_pods().await.err());
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(AgentError::Collect { errors })
    }
}

/// Follows the links of the node, from when `monitor` was opened.
///
/// A port whose link is gone leaves the tables at once, before its index can be another's.
///
/// # Errors
/// When the kernel stops telling.
pub async fn follow_links(node: &Arc<Node>, monitor: &mut LinkMonitor) -> Result<(), AgentError> {
    loop {
        let event = monitor.next().await?;
        match &event {
            LinkEvent::Removed { ifindex, name } if name.starts_with(HOST_PREFIX) => {
                node.attachments.link_removed(*ifindex);
            }
            LinkEvent::Removed { ifindex, name } if name.starts_with(NEAR_PREFIX) => {
                let (node, ifindex) = (Arc::clone(node), *ifindex);
                tokio::spawn(async move { node.ports.queue_changed(ifindex).await });
            }
            LinkEvent::Requeued { ifindex } => {
                let (node, ifindex) = (Arc::clone(node), *ifindex);
                tokio::spawn(async move { node.ports.queue_changed(ifindex).await });
            }
            event if node.reach.on_link(event) => {}
            LinkEvent::Unhooked { ifindex } => {
                let (node, ifindex) = (Arc::clone(node), *ifindex);
                tokio::spawn(async move { node.attachments.hook_removed(ifindex).await });
            }
            LinkEvent::Removed { .. } | LinkEvent::Changed(_) => {}
            // Not here: what happens meanwhile is not left waiting in the monitor, where it is lost again.
            LinkEvent::Overrun => node.audit_wanted.notify_one(),
        }
    }
}
