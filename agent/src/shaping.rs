//! Making rates real: the queue at the host end for what a pod receives, the shaper pair for what it
//! sends, and the tables that lead packets through them.
//!
//! What is already as it should be is not touched. While limits change, packets always have a way
//! that is there: a queue is made before the tables lead to it, and runs empty after they have
//! stopped to.

use std::time::Duration;

use cni_spec::AttachmentKey;
use netdev::{Connection, Discipline, Link, LinkChange, RootQueue, Shape};
use telemetry::failpoint::reached;

use crate::bandwidth::{Direction, Limit, Limits};
use crate::host::{HostError, far_name, near_name};
use crate::node::Node;
use crate::ports::PortError;
use crate::record::{Attachment, HostEnd, Shaper, State};

mod look;
mod pair;

pub use pair::Pair;

/// What has left the queue of a shaper is on its way through the far end for an instant more.
const ON_THE_WAY: Duration = Duration::from_millis(20);

/// What the kernel has of an attachment's queues.
#[derive(Debug)]
struct Seen {
    /// At the root of the host end.
    host: RootQueue,
    /// Both ends of the shaper, and what is at the root of the near one.
    pair: Option<(Link, Link, RootQueue)>,
    /// There is a link with the name of the near end.
    near: bool,
}

/// An attachment on its way to other limits.
struct Change<'a> {
    node: &'a Node,
    /// What book and tables say.
    written: Attachment,
    /// What they shall say next.
    next: Attachment,
}

impl Change<'_> {
    fn write(&mut self) -> Result<(), PortError> {
        if self.next != self.written {
            self.node.book.ledger().set_shaping(&self.next);
            self.node.tables.reconcile(self.next.network.id)?;
            self.written = self.next.clone();
        }
        Ok(())
    }
}

impl Node {
    /// How this kernel limits rates.
    ///
    /// # Errors
    /// [`PortError::NoShaping`] naming the first rate of `limits`, if it cannot.
    pub fn discipline(&self, limits: &Limits) -> Result<Discipline, PortError> {
        let missing = || {
            let mut limited = Direction::ALL.into_iter();
            let first = limited.find_map(|direction| Some((direction, limits.of(direction)?)));
            let (key, rate) = match first {
                Some((direction, limit)) => (limit.source.key(direction), limit.rate),
                None => ("bandwidth", 0),
            };
            PortError::NoShaping { key, rate }
        };
        self.host.discipline.ok_or_else(missing)
    }

    /// The limits that the objects ask for by now. Where they do not say, because one is gone or
    /// wrong, and where the kernel could not keep them, the limits stay as they are.
    pub fn limits_now(&self, record: &Attachment) -> Limits {
        let wanted = self.limits_of_objects(record).unwrap_or(record.limits);
        if self.host.discipline.is_none() {
            return record.limits;
        }
        wanted
    }

    fn limits_of_objects(&self, record: &Attachment) -> Option<Limits> {
        let world = self.world.get();
        let network = world.resolved.definition(&record.network.name)?;
        let own = match &record.object {
            None => api::Bandwidth::default(),
            Some(object) => {
                let found = world.resolved.attachment(&object.namespace, &object.name);
                let found = found.ok()?;
                if found.network != record.network.name {
                    return None;
                }
                found.request.bandwidth
            }
        };
        Some(record.asked.or(&own, &network.bandwidth))
    }

    /// Gives every attachment the limits that the objects ask for by now, one after the other.
    /// Failures are logged; the audit comes back to them.
    pub async fn follow_limits(&self) {
        let keys: Vec<_> = self
            .book
            .ledger()
            .entries()
            .map(|entry| entry.record.key.clone())
            .collect();
        for key in keys {
            let _guard = self.book.turn(&key.container).await;
            let record = match self.book.ledger().get(&key) {
                Some(entry) if entry.live && entry.record.state == State::Added => {
                    entry.record.clone()
                }
                Some(_) | None => continue,
            };
            if self.host.discipline.is_none()
                && self
                    .limits_of_objects(&record)
                    .is_some_and(|wanted| wanted != record.limits)
            {
                tracing::error!(attachment = %key, "this kernel cannot limit rates: not limited");
            }
            let limits = self.limits_now(&record);
            if limits != record.limits
                && let Err(error) = self.limit(&record, limits).await
            {
                tracing::error!(attachment = %key, %error, "limits not changed");
            }
        }
    }

    /// Makes queues and tables of a live attachment what `limits` say, whatever is there now. The
    /// caller holds the container's lock.
    ///
    /// # Errors
    /// When the kernel or the store refuses; calling again goes on.
    pub async fn limit(&self, record: &Attachment, limits: Limits) -> Result<(), PortError> {
        if !record.is_switched() {
            return self.make_limits(record, limits).await.map(|_| ());
        }
        // From the first moment what the switch carries goes by the queues.
        let mut next = record.clone();
        next.limits = limits;
        self.tell_switch(&next).await?;
        let limited = self.make_limits(record, limits).await?;
        self.tell_switch(&limited).await
    }

    /// The record as it is then.
    async fn make_limits(
        &self,
        record: &Attachment,
        limits: Limits,
    ) -> Result<Attachment, PortError> {
        if limits != record.limits {
            let recorded = Attachment {
                limits,
                ..record.clone()
            };
            self.book.save(&recorded).await?;
            reached("limit.recorded");
        }
        let seen = self.seen(record).await?;
        let mut change = Change {
            node: self,
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
                tracing::info!(attachment = %record.key, direction, rate, "limit changed");
            }
        }
        self.book.save(&change.written).await?;
        Ok(change.written)
    }

    /// Something happened to the queue at this interface, or to a shaper: somebody removed ours, or
    /// a plugin that is chained behind podnet put one there, which packets must not go past.
    pub async fn queue_changed(&self, ifindex: u32) {
        let Some(key) = self.book.ledger().on_link(ifindex) else {
            return;
        };
        match self.look_again(&key).await {
            Ok(()) => {}
            // The link is gone with its queue, and will be said to be.
            Err(PortError::Host(HostError::Netdev(error))) if error.is_gone() => {}
            Err(error) => tracing::error!(attachment = %key, %error, "limits not mended"),
        }
    }

    /// Looks after the limits of an attachment, as they are recorded.
    ///
    /// # Errors
    /// As [`Node::limit`].
    pub async fn look_again(&self, key: &AttachmentKey) -> Result<(), PortError> {
        let _guard = self.book.turn(&key.container).await;
        // A request that was under way may have changed or removed it.
        let record = match self.book.ledger().get(key) {
            Some(entry) if entry.live && entry.record.state == State::Added => entry.record.clone(),
            Some(_) | None => return Ok(()),
        };
        self.limit(&record, record.limits).await
    }

    async fn seen(&self, record: &Attachment) -> Result<Seen, PortError> {
        let host = record.host.ifindex;
        let (near, far) = (near_name(&record.host.name), far_name(&record.host.name));
        let look = move |connection: &mut Connection| -> Result<_, netdev::Error> {
            let mut seen = Seen {
                host: connection.shape_of(host)?,
                pair: None,
                near: false,
            };
            let Some(near) = connection.by_name(&near)? else {
                return Ok(seen);
            };
            seen.near = true;
            let far = connection.by_name(&far)?;
            if let Some(far) = far.filter(|far| near.peer_ifindex == Some(far.ifindex)) {
                let queue = connection.shape_of(near.ifindex)?;
                seen.pair = Some((near, far, queue));
            }
            Ok(seen)
        };
        Ok(self.host.netlink.with(look).await?)
    }
}

impl Change<'_> {
    async fn limit_ingress(&mut self, limit: Limit, seen: &RootQueue) -> Result<(), PortError> {
        let shape = limit.shape(self.next.network.mtu);
        let discipline = self.node.discipline(&only(Direction::Ingress, limit))?;
        if !is(seen, &shape, discipline) {
            let ifindex = self.next.host.ifindex;
            self.node
                .host
                .netlink
                .shape(ifindex, shape, discipline)
                .await?;
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
                "a queue of somebody else: packets to the pod go through it from now on",
            );
        }
        self.next.limits.ingress = None;
        self.next.queued = matches!(seen, RootQueue::Foreign { .. });
        self.write()?;
        if let RootQueue::Ours(_) = seen {
            let ifindex = self.next.host.ifindex;
            self.node.host.netlink.unshape(ifindex).await?;
            self.node.metrics.queue_is_gone(ifindex);
        }
        Ok(())
    }

    async fn limit_egress(
        &mut self,
        limit: Limit,
        seen: Option<(Link, Link, RootQueue)>,
    ) -> Result<(), PortError> {
        let pair = Pair::of(
            &self.next,
            limit,
            self.node.discipline(&only(Direction::Egress, limit))?,
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
                    self.node
                        .host
                        .netlink
                        .shape(ifindex, shape, discipline)
                        .await?;
                    reached("limit.queued");
                }
                self.mend(&near, &far).await?;
                Shaper {
                    near: near.ifindex,
                    far: far.ifindex,
                    used: true,
                }
            }
            None => {
                let hook = self.node.host.hook.clone();
                let made = self
                    .node
                    .host
                    .netlink
                    .with(move |connection| pair.make(connection, &hook));
                let shaper = made.await?;
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
            self.node.host.netlink.let_go(shaper.near).await?;
            reached("limit.drained");
            tokio::time::sleep(ON_THE_WAY).await;
            self.next.shaper = None;
            self.node.metrics.queue_is_gone(shaper.near);
        }
        self.write()?;
        if stray {
            let near = near_name(&self.next.host.name);
            self.node.host.netlink.delete_by_name(&near).await?;
        }
        Ok(())
    }

    /// Sets the ends of a shaper up and attaches the dispatcher, where somebody undid that.
    async fn mend(&self, near: &Link, far: &Link) -> Result<(), PortError> {
        let end = HostEnd {
            name: far.name.clone(),
            ifindex: far.ifindex,
        };
        if !self.node.is_attached(&end).await? {
            self.node.attach_again(end.ifindex).await?;
            tracing::info!(interface = %far.name, "program attached again");
        }
        if near.up && far.up {
            return Ok(());
        }
        let (near, far) = (near.ifindex, far.ifindex);
        let restart = move |connection: &mut Connection| {
            // The near end last: the kernel starts the queue of that one at once.
            connection.reconfigure(near, &LinkChange::updown(false))?;
            connection.set_up(far)?;
            connection.set_up(near)
        };
        Ok(self.node.host.netlink.with(restart).await?)
    }
}

/// True when the queue is there, whole, and has this shape.
fn is(queue: &RootQueue, shape: &Shape, discipline: Discipline) -> bool {
    matches!(queue, RootQueue::Ours(state) if state.is(shape, discipline))
}

fn only(direction: Direction, limit: Limit) -> Limits {
    let mut limits = Limits::default();
    match direction {
        Direction::Ingress => limits.ingress = Some(limit),
        Direction::Egress => limits.egress = Some(limit),
    }
    limits
}
