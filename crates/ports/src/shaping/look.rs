//! Looking at limits: what is wrong with them, what they do, what they have done.

use std::collections::BTreeMap;

use book::bandwidth::{Direction, Shown};
use book::record::Attachment;
use host::{far_name, near_name};
use netdev::{RootQueue, ShapeState};
use serde_json::{Value, json};

use super::{Shaping, is};
use crate::error::PortError;

/// Our queues by the index of their interface.
pub type Queues = BTreeMap<u32, ShapeState>;

/// Names the interface with the queue of a limited direction, and its index.
pub fn queue_of(record: &Attachment, direction: Direction) -> Option<(String, u32)> {
    record.limits.of(direction)?;
    match direction {
        Direction::Ingress => Some((record.host.name.clone(), record.host.ifindex)),
        Direction::Egress => {
            let ifindex = record.shaper.map_or(0, |shaper| shaper.near);
            Some((near_name(&record.host.name), ifindex))
        }
    }
}

/// Shows limits and queues of an attachment as `get` does.
pub fn bandwidth(record: &Attachment, queues: &Queues) -> Value {
    let shown = |direction| {
        let limit = record.limits.of(direction)?;
        let (interface, ifindex) = queue_of(record, direction)?;
        Some(Shown::new(
            &limit,
            direction,
            interface,
            queues.get(&ifindex),
        ))
    };
    json!({
        "ingress": shown(Direction::Ingress),
        "egress": shown(Direction::Egress),
    })
}

impl Shaping {
    /// Reads the queues of these attachments, and counts their drops.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn queues<'a>(
        &self,
        records: impl IntoIterator<Item = &'a Attachment>,
    ) -> Result<Queues, PortError> {
        let mut limited = Vec::new();
        for record in records {
            for direction in Direction::ALL {
                if let Some((_, ifindex)) = queue_of(record, direction).filter(|queue| queue.1 != 0)
                {
                    limited.push((record.network.name.clone(), direction, ifindex));
                }
            }
        }
        if limited.is_empty() {
            return Ok(Queues::new());
        }
        let indexes: Vec<u32> = limited.iter().map(|(.., ifindex)| *ifindex).collect();
        let look = move |connection: &mut netdev::Connection| {
            let mut queues = Queues::new();
            for ifindex in indexes {
                match connection.shape_of(ifindex) {
                    Ok(RootQueue::Ours(state)) => {
                        queues.insert(ifindex, state);
                    }
                    Ok(RootQueue::Default | RootQueue::Foreign { .. }) => {}
                    Err(error) if error.is_gone() => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(queues)
        };
        let queues = self.host.netlink.with(look).await?;
        for (network, direction, ifindex) in limited {
            if let Some(state) = queues.get(&ifindex) {
                let dropped = state.dropped_packets;
                self.metrics
                    .queue_drops(&network, direction.label(), ifindex, dropped);
            }
        }
        Ok(queues)
    }

    /// Counts what the queues of an attachment dropped, for the last time.
    pub async fn close_queues(&self, record: &Attachment) {
        // Not counted is no reason to keep the attachment.
        if let Err(error) = self.queues([record]).await {
            tracing::debug!(attachment = %record.key, %error, "drops in the queues of the attachment are not counted");
        }
        for direction in Direction::ALL {
            if let Some((_, ifindex)) = queue_of(record, direction) {
                self.metrics.queue_is_gone(ifindex);
            }
        }
    }

    /// Lists the faults of the limits of an attachment.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn faults(&self, record: &Attachment) -> Result<Vec<String>, PortError> {
        let mut faults = Vec::new();
        if record.limits.is_unlimited() {
            return Ok(faults);
        }
        let discipline = self.discipline(&record.limits)?;
        let seen = self.seen(record).await?;
        let mtu = record.network.mtu;
        if let Some(limit) = record.limits.ingress {
            let fault = queue_fault(&seen.host, is(&seen.host, &limit.shape(mtu), discipline));
            faults
                .extend(fault.map(|fault| format!("host interface {}: {fault}", record.host.name)));
        }
        if let Some(limit) = record.limits.egress {
            let name = near_name(&record.host.name);
            let recorded = record.shaper.map(|shaper| (shaper.near, shaper.far));
            match &seen.pair {
                Some((near, far, queue)) if recorded == Some((near.ifindex, far.ifindex)) => {
                    let fault = queue_fault(queue, is(queue, &limit.shape(mtu), discipline));
                    faults.extend(fault.map(|fault| format!("shaper interface {name}: {fault}")));
                    let of_far = far_name(&record.host.name);
                    for (end, name) in [(near, &name), (far, &of_far)] {
                        if !end.up {
                            faults.push(format!("shaper interface {name} is down"));
                        }
                    }
                    if !self.host.is_attached(&of_far, far.ifindex).await? {
                        faults.push(format!(
                            "the program of shaper interface {of_far} is detached"
                        ));
                    }
                }
                Some(_) => faults.push(format!("shaper interface {name} was replaced")),
                None => faults.push(format!("shaper interface {name} is gone")),
            }
        }
        Ok(faults)
    }
}

fn queue_fault(queue: &RootQueue, as_it_should_be: bool) -> Option<String> {
    match queue {
        RootQueue::Ours(_) if as_it_should_be => None,
        RootQueue::Ours(state) => Some(format!("its limit is changed or broken ({})", state.shape)),
        RootQueue::Default => Some("its limit is gone".to_owned()),
        RootQueue::Foreign { kind } => Some(format!(
            "its limit was replaced by a {kind} that is not podnet's"
        )),
    }
}
