//! Steps from the limits that are there to those that are wanted, in their order.
//!
//! While limits change, packets always have a way that is there. The node's own steps are those of
//! [`super::Shaping`]; tests have others.

use book::bandwidth::{Direction, Limit, Limits};
use book::record::{Attachment, HostEnd, Shaper};
use host::{far_name, near_name};
use netdev::{Discipline, RootQueue, Shape};
use telemetry::failpoint::reached;

use super::{End, Pair, Seen, is};
use crate::error::PortError;

/// Steps at the queues of one attachment.
///
/// Each fails when the kernel or the store refuses.
pub(super) trait Work: Sync {
    /// Mechanism by which this kernel limits rates.
    fn discipline(&self, limits: &Limits) -> Result<Discipline, PortError>;

    /// Looks at the queues that are there.
    fn seen(&self, record: &Attachment) -> impl Future<Output = Result<Seen, PortError>> + Send;

    /// Writes the record to the disk.
    fn save(&self, record: &Attachment) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Writes the limits of the record into book and tables.
    fn write(&self, record: &Attachment) -> Result<(), PortError>;

    /// Puts a queue at the root of a link.
    fn shape(
        &self,
        ifindex: u32,
        shape: Shape,
        discipline: Discipline,
    ) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Removes our queue from there.
    fn unshape(&self, ifindex: u32) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Makes a shaper in the place of one that is there.
    fn make_pair(&self, pair: Pair) -> impl Future<Output = Result<Shaper, PortError>> + Send;

    /// True when packets from an end of a shaper meet the dispatcher.
    fn is_attached(&self, end: &HostEnd) -> impl Future<Output = Result<bool, PortError>> + Send;

    /// Attaches the dispatcher there.
    fn attach_again(&self, ifindex: u32) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Sets both ends of a shaper up, the near one last.
    fn restart(&self, near: u32, far: u32) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Waits until the queue of a near end has run empty.
    fn let_go(&self, near: u32) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Waits until packets that have left the queue are through the far end.
    fn wait_for_far_end(&self) -> impl Future<Output = ()> + Send;

    /// Removes a shaper by the name of its near end.
    fn delete(&self, near: String) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Counts the drops of a queue no more.
    fn forget_queue(&self, ifindex: u32);
}

/// [`super::Shaping::limit`].
pub(super) async fn limit<W: Work>(
    work: &W,
    record: &Attachment,
    limits: Limits,
) -> Result<Attachment, PortError> {
    if limits != record.limits {
        let recorded = Attachment {
            limits,
            ..record.clone()
        };
        work.save(&recorded).await?;
        reached("limit.recorded");
    }
    let seen = work.seen(record).await?;
    let mut change = Change {
        work,
        written: record.clone(),
        next: record.clone(),
    };
    match limits.ingress {
        Some(limit) => change.limit_ingress(limit, &seen.host).await?,
        None => change.unlimit_ingress(&seen.host).await?,
    }
    match limits.egress {
        Some(limit) => change.limit_egress(limit, seen.pair).await?,
        None => change.unlimit_egress(seen.near).await?,
    }
    if change.written == *record {
        return Ok(change.written);
    }
    for direction in Direction::ALL {
        let (old, new) = (record.limits.of(direction), limits.of(direction));
        if old != new {
            let rate = new.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
            let direction = direction.label();
            tracing::info!(attachment = %record.key, direction, rate, "the limit of the attachment is changed");
        }
    }
    work.save(&change.written).await?;
    Ok(change.written)
}

impl Seen {
    /// True when [`limit`] would leave the queues of this record alone.
    ///
    /// It would still look at the program of the far end. The limits are those of the record, in this way of
    /// the kernel.
    pub(crate) fn is_settled(&self, record: &Attachment, discipline: Option<Discipline>) -> bool {
        let mtu = record.network.mtu;
        let keeps = |queue: &RootQueue, limit: Limit| {
            discipline.is_some_and(|discipline| is(queue, &limit.shape(mtu), discipline))
        };
        let ingress = match (record.limits.ingress, &self.host) {
            (Some(limit), queue) => !record.queued && keeps(queue, limit),
            (None, RootQueue::Ours(_)) => false,
            (None, RootQueue::Foreign { .. }) => record.queued,
            (None, RootQueue::Default) => !record.queued,
        };
        let egress = match (record.limits.egress, record.shaper, &self.pair) {
            (Some(limit), Some(shaper), Some((near, far, queue))) => {
                let is_recorded = (shaper.near, shaper.far) == (near.ifindex, far.ifindex);
                is_recorded && shaper.used && near.up && far.up && keeps(queue, limit)
            }
            (None, None, None) => !self.near,
            _ => false,
        };
        ingress && egress
    }
}

/// An attachment on its way to other limits.
struct Change<'a, W> {
    work: &'a W,
    /// Record in the book and in the tables.
    written: Attachment,
    /// Record that comes next there.
    next: Attachment,
}

impl<W: Work> Change<'_, W> {
    fn write(&mut self) -> Result<(), PortError> {
        if self.next != self.written {
            self.work.write(&self.next)?;
            self.written = self.next.clone();
        }
        Ok(())
    }
}

impl<W: Work> Change<'_, W> {
    async fn limit_ingress(&mut self, limit: Limit, seen: &RootQueue) -> Result<(), PortError> {
        let shape = limit.shape(self.next.network.mtu);
        let discipline = self.work.discipline(&only(Direction::Ingress, limit))?;
        if !is(seen, &shape, discipline) {
            let ifindex = self.next.host.ifindex;
            self.work.shape(ifindex, shape, discipline).await?;
            reached("limit.queued");
        }
        self.next.limits.ingress = Some(limit);
        self.next.queued = false;
        self.write()
    }

    async fn unlimit_ingress(&mut self, seen: &RootQueue) -> Result<(), PortError> {
        if let (false, RootQueue::Foreign { kind }) = (self.next.queued, seen) {
            tracing::warn!(
                attachment = %self.next.key, interface = self.next.host.name, kind,
                "the port has a queue that is not podnet's: packets to the pod go through it from now on",
            );
        }
        self.next.limits.ingress = None;
        self.next.queued = matches!(seen, RootQueue::Foreign { .. });
        self.write()?;
        if let RootQueue::Ours(_) = seen {
            let ifindex = self.next.host.ifindex;
            self.work.unshape(ifindex).await?;
            self.work.forget_queue(ifindex);
        }
        Ok(())
    }

    async fn limit_egress(
        &mut self,
        limit: Limit,
        seen: Option<(End, End, RootQueue)>,
    ) -> Result<(), PortError> {
        let pair = Pair::of(
            &self.next,
            limit,
            self.work.discipline(&only(Direction::Egress, limit))?,
        );
        let recorded = self.next.shaper;
        let seen = seen.filter(|(near, far, _)| {
            recorded.is_none_or(|known| (known.near, known.far) == (near.ifindex, far.ifindex))
        });
        let shaper = match seen {
            Some((near, far, queue)) => {
                if !is(&queue, &pair.shape, pair.discipline) {
                    let ifindex = near.ifindex;
                    let (shape, discipline) = (pair.shape, pair.discipline);
                    self.work.shape(ifindex, shape, discipline).await?;
                    reached("limit.queued");
                }
                self.mend(near, far).await?;
                Shaper {
                    near: near.ifindex,
                    far: far.ifindex,
                    used: true,
                }
            }
            None => {
                let shaper = self.work.make_pair(pair).await?;
                reached("limit.queued");
                shaper
            }
        };
        if self.next.limits.egress.is_none() {
            // The far end first: what arrives there must find its port.
            self.next.shaper = Some(Shaper {
                used: false,
                ..shaper
            });
            self.write()?;
        }
        self.next.limits.egress = Some(limit);
        self.next.shaper = Some(shaper);
        self.write()
    }

    /// `stray`: the near end is there, whether it is recorded or not.
    async fn unlimit_egress(&mut self, stray: bool) -> Result<(), PortError> {
        self.next.limits.egress = None;
        if let Some(shaper) = self.next.shaper {
            // The far end still forwards what comes out.
            self.next.shaper = Some(Shaper {
                used: false,
                ..shaper
            });
            self.write()?;
            self.work.let_go(shaper.near).await?;
            reached("limit.drained");
            self.work.wait_for_far_end().await;
            self.next.shaper = None;
            self.work.forget_queue(shaper.near);
        }
        self.write()?;
        if stray {
            let near = near_name(&self.next.host.name);
            self.work.delete(near).await?;
        }
        Ok(())
    }

    /// Sets the ends of a shaper up and attaches the dispatcher, where it is missing.
    async fn mend(&self, near: End, far: End) -> Result<(), PortError> {
        let end = HostEnd {
            name: far_name(&self.next.host.name),
            ifindex: far.ifindex,
        };
        if !self.work.is_attached(&end).await? {
            self.work.attach_again(end.ifindex).await?;
            tracing::info!(interface = %end.name, "the program is attached to the shaper again");
        }
        if near.up && far.up {
            return Ok(());
        }
        self.work.restart(near.ifindex, far.ifindex).await
    }
}

fn only(direction: Direction, limit: Limit) -> Limits {
    let mut limits = Limits::default();
    match direction {
        Direction::Ingress => limits.ingress = Some(limit),
        Direction::Egress => limits.egress = Some(limit),
    }
    limits
}

#[cfg(test)]
mod tests;
