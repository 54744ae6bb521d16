//! Makes rates real: queues, shaper pairs, and the tables that lead there.
//!
//! The queue at the host end limits the packets to the pod, the shaper pair those from it.
//!
//! What is already as it should be is not touched. While limits change, packets always have a way
//! that is there: a queue is made before the tables lead to it, and runs empty after they have
//! stopped to.

use std::sync::Arc;
use std::time::Duration;

use netdev::{Connection, Discipline, Link, LinkChange, RootQueue, Shape};
use telemetry::failpoint::reached;
use world::Current;

use crate::bandwidth::{Direction, Limit, Limits};
use crate::book::Book;
use crate::host::{Host, far_name, near_name};
use crate::metrics::Metrics;
use crate::ports::error::PortError;
use crate::reconcile::Reconciler;
use crate::record::{Attachment, HostEnd, Shaper};

mod look;
mod pair;

pub use pair::Pair;

/// Time that packets from a shaper's queue take through the far end.
const ON_THE_WAY: Duration = Duration::from_millis(20);

/// The rates of this node's attachments.
#[derive(Debug)]
pub struct Shaping {
    book: Arc<Book>,
    host: Arc<Host>,
    tables: Arc<Reconciler>,
    /// Where the objects that ask for rates are.
    world: Arc<Current>,
    metrics: Arc<Metrics>,
}

/// Queues of an attachment, as the kernel has them.
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
    shaping: &'a Shaping,
    /// Record in the book and in the tables.
    written: Attachment,
    /// Record that comes next there.
    next: Attachment,
}

impl Change<'_> {
    fn write(&mut self) -> Result<(), PortError> {
        if self.next != self.written {
            self.shaping.book.ledger().set_shaping(&self.next);
            self.shaping.tables.reconcile(self.next.network.id)?;
            self.written = self.next.clone();
        }
        Ok(())
    }
}

impl Shaping {
    /// Takes what rates are made with, and from.
    pub const fn new(
        book: Arc<Book>,
        host: Arc<Host>,
        tables: Arc<Reconciler>,
        world: Arc<Current>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            book,
            host,
            tables,
            world,
            metrics,
        }
    }

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

    /// The limits that the objects ask for by now.
    ///
    /// Where they do not say, because one is gone or wrong, and where the kernel could not keep them, the
    /// limits stay as they are.
    pub fn limits_now(&self, record: &Attachment) -> Limits {
        let wanted = self.of_objects(record).unwrap_or(record.limits);
        if self.host.discipline.is_none() {
            return record.limits;
        }
        wanted
    }

    fn of_objects(&self, record: &Attachment) -> Option<Limits> {
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

    /// True where the objects ask for other limits and this kernel has none.
    pub fn falls_short(&self, record: &Attachment) -> bool {
        let wanted = self.of_objects(record);
        self.host.discipline.is_none() && wanted.is_some_and(|wanted| wanted != record.limits)
    }

    /// Applies these limits to a live attachment; returns its record.
    ///
    /// The caller holds the container's lock.
    ///
    /// # Errors
    /// When the kernel or the store refuses; calling again goes on.
    pub async fn limit(
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
            shaping: self,
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
        let discipline = self.shaping.discipline(&only(Direction::Ingress, limit))?;
        if !is(seen, &shape, discipline) {
            let ifindex = self.next.host.ifindex;
            self.shaping
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
            self.shaping.host.netlink.unshape(ifindex).await?;
            self.shaping.metrics.queue_is_gone(ifindex);
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
            self.shaping.discipline(&only(Direction::Egress, limit))?,
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
                    self.shaping
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
                let hook = self.shaping.host.hook.clone();
                let made = self
                    .shaping
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
            self.shaping.host.netlink.let_go(shaper.near).await?;
            reached("limit.drained");
            tokio::time::sleep(ON_THE_WAY).await;
            self.next.shaper = None;
            self.shaping.metrics.queue_is_gone(shaper.near);
        }
        self.write()?;
        if stray {
            let near = near_name(&self.next.host.name);
            self.shaping.host.netlink.delete_by_name(&near).await?;
        }
        Ok(())
    }

    /// Sets the ends of a shaper up and attaches the dispatcher, where it is missing.
    async fn mend(&self, near: &Link, far: &Link) -> Result<(), PortError> {
        let end = HostEnd {
            name: far.name.clone(),
            ifindex: far.ifindex,
        };
        if !self
            .shaping
            .host
            .is_attached(&end.name, end.ifindex)
            .await?
        {
            self.shaping.host.attach_again(end.ifindex).await?;
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
        Ok(self.shaping.host.netlink.with(restart).await?)
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
