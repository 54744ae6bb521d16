//! The last steps on this node: links of pods and the queues on them.

use agent_common::endpoint::{ENDPOINT_NO_PEER, Endpoint};
use agent_common::flood::{FLOOD_CHUNKS, FloodKey};
use book::bandwidth::{Bits, mechanism};
use netdev::RootQueue;
use serde_json::json;

use super::directory::name_of;
use super::report::{Outcome, Story, Verdict};
use super::scene::Scene;
use crate::error::AgentError;

/// Queue at the root of a device.
pub(super) struct Queue {
    /// In words.
    pub(super) text: String,
    /// Effect on the packet.
    pub(super) verdict: String,
    /// Nothing passes.
    pub(super) blocked: bool,
}

impl Scene<'_> {
    /// Into a pod of this node.
    pub(super) async fn deliver(
        &self,
        endpoint: &Endpoint,
        story: &mut Story,
    ) -> Result<Outcome, AgentError> {
        let ifindex = endpoint.ifindex;
        let link = self.node.host.netlink.by_index(ifindex).await?;
        let Some(link) = link.filter(|link| link.up) else {
            let what = format!("interface {ifindex}");
            story.step(what, "none that is up", "lost behind the program");
            let text = format!("interface {ifindex}, where the tables lead, is gone or down");
            let advice =
                "CHECK the receiver's attachment; restart the agent to write its tables again";
            return Ok(Outcome::lost(text, advice));
        };
        let owner = self.directory.at(ifindex);
        let who = owner.map_or_else(|| "no recorded attachment".to_owned(), name_of);
        if owner.is_none() {
            story.disagree(format!(
                "the tables lead to interface {ifindex}, which no attachment has"
            ));
        }
        let what = format!("{} (interface {ifindex})", link.name);
        if endpoint.flags & ENDPOINT_NO_PEER == 0 {
            story.step(
                what,
                who.clone(),
                "bpf_redirect_peer, straight into the pod",
            );
        } else {
            story.step(what, who.clone(), "bpf_redirect, through its queue");
            let queue = self.queue(ifindex).await?;
            story.step(format!("queue of {}", link.name), queue.text, queue.verdict);
            if queue.blocked {
                let text = format!("the queue of {} is broken and drops everything", link.name);
                let advice = "wait for the audit, which mends it within 30 seconds";
                return Ok(Outcome::lost(text, advice));
            }
        }
        let details = json!({
            "container": owner.map(|it| it.key.container.to_string()),
            "ifname": owner.map(|it| it.key.ifname.to_string()),
            "interface": link.name,
            "mac": endpoint.mac.to_string(),
        });
        Ok(Outcome::new(
            Verdict::Delivered,
            format!("delivered to {who} on this node"),
            details,
        ))
    }

    /// The ports of this node that get a copy, all but the sender's own.
    pub(super) fn flood(
        &self,
        network: u32,
        sender: u32,
        story: &mut Story,
    ) -> Result<Vec<String>, AgentError> {
        let mut ports = Vec::new();
        for chunk in 0..FLOOD_CHUNKS {
            let key = FloodKey { network, chunk };
            let Some(found) = self.look(|tables| tables.flood.get(&key))? else {
                break;
            };
            let count = usize::from(found.count);
            let others = found.ifindexes.iter().take(count);
            ports.extend(others.filter(|it| **it != sender && **it != 0).map(|it| {
                self.directory.at(*it).map_or_else(
                    || format!("interface {it}, which no attachment has"),
                    name_of,
                )
            }));
        }
        let found = if ports.is_empty() {
            "none".to_owned()
        } else {
            ports.join(", ")
        };
        let what = format!("FLOOD[{network}]");
        story.step(what, found, "a copy for each port but the sender's");
        Ok(ports)
    }

    /// Finds the queue that holds packets back at an interface.
    pub(super) async fn queue(&self, ifindex: u32) -> Result<Queue, AgentError> {
        let root = self.node.host.netlink.shape_of(ifindex).await?;
        Ok(match root {
            RootQueue::Default => Queue {
                text: "none".to_owned(),
                verdict: "at once".to_owned(),
                blocked: false,
            },
            RootQueue::Foreign { kind } => Queue {
                text: format!("a {kind} that is not podnet's"),
                verdict: "as that decides".to_owned(),
                blocked: false,
            },
            RootQueue::Ours(state) => Queue {
                text: format!(
                    "{}/s, {} bytes wait, {} packets were dropped",
                    Bits(state.shape.rate.saturating_mul(8)),
                    state.backlog_bytes,
                    state.dropped_packets
                ),
                verdict: state.discipline.map_or_else(
                    || "broken: all is dropped".to_owned(),
                    |found| format!("by {}", mechanism(found)),
                ),
                blocked: state.discipline.is_none(),
            },
        })
    }
}
