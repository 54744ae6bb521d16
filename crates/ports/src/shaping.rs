//! Makes rates real: queues, shaper pairs, and the tables that lead there.
//!
//! The queue at the host end limits the packets to the pod, the shaper pair those from it.
//!
//! What is already as it should be is not touched. While limits change, packets always have a way
//! that is there: a queue is made before the tables lead to it, and runs empty after they have
//! stopped to.

use std::sync::Arc;
use std::time::Duration;

use book::Book;
use book::bandwidth::{Direction, Limits};
use book::record::{Attachment, HostEnd, Shaper};
use host::{Host, far_name, near_name};
use metrics::Metrics;
use netdev::{Connection, Discipline, Link, LinkChange, RootQueue, Shape};
use tables::Reconciler;
use world::Current;

use crate::error::PortError;

mod change;
mod look;
mod pair;

use change::Work;
pub use look::{Queues, bandwidth, queue_of};
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
pub(crate) struct Seen {
    /// At the root of the host end.
    pub(crate) host: RootQueue,
    /// Near and far end of the shaper, and what is at the root of the near one.
    pub(crate) pair: Option<(End, End, RootQueue)>,
    /// There is a link with the name of the near end.
    pub(crate) near: bool,
}

/// An end of a shaper that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) ifindex: u32,
    pub(crate) up: bool,
}

impl From<&Link> for End {
    fn from(link: &Link) -> Self {
        Self {
            ifindex: link.ifindex,
            up: link.up,
        }
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
        change::limit(self, record, limits).await
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
                seen.pair = Some((End::from(&near), End::from(&far), queue));
            }
            Ok(seen)
        };
        Ok(self.host.netlink.with(look).await?)
    }
}

/// True when the queue is there, whole, and has this shape.
fn is(queue: &RootQueue, shape: &Shape, discipline: Discipline) -> bool {
    matches!(queue, RootQueue::Ours(state) if state.is(shape, discipline))
}

impl Work for Shaping {
    fn discipline(&self, limits: &Limits) -> Result<Discipline, PortError> {
        self.discipline(limits)
    }

    async fn seen(&self, record: &Attachment) -> Result<Seen, PortError> {
        self.seen(record).await
    }

    async fn save(&self, record: &Attachment) -> Result<(), PortError> {
        Ok(self.book.save(record).await?)
    }

    fn write(&self, record: &Attachment) -> Result<(), PortError> {
        self.book.ledger().set_shaping(record);
        Ok(self.tables.reconcile(record.network.id)?)
    }

    async fn shape(
        &self,
        ifindex: u32,
        shape: Shape,
        discipline: Discipline,
    ) -> Result<(), PortError> {
        let netlink = &self.host.netlink;
        Ok(netlink.shape(ifindex, shape, discipline).await?)
    }

    async fn unshape(&self, ifindex: u32) -> Result<(), PortError> {
        Ok(self.host.netlink.unshape(ifindex).await?)
    }

    async fn make_pair(&self, pair: Pair) -> Result<Shaper, PortError> {
        let hook = self.host.hook.clone();
        let make = move |connection: &mut Connection| pair.make(connection, &hook);
        self.host.netlink.with(make).await
    }

    async fn is_attached(&self, end: &HostEnd) -> Result<bool, PortError> {
        Ok(self.host.is_attached(&end.name, end.ifindex).await?)
    }

    async fn attach_again(&self, ifindex: u32) -> Result<(), PortError> {
        Ok(self.host.attach_again(ifindex).await?)
    }

    async fn restart(&self, near: u32, far: u32) -> Result<(), PortError> {
        let restart = move |connection: &mut Connection| {
            // The near end last: the kernel starts the queue of that one at once.
            connection.reconfigure(near, &LinkChange::updown(false))?;
            connection.set_up(far)?;
            connection.set_up(near)
        };
        Ok(self.host.netlink.with(restart).await?)
    }

    async fn let_go(&self, near: u32) -> Result<(), PortError> {
        Ok(self.host.netlink.let_go(near).await.map(drop)?)
    }

    async fn wait_for_far_end(&self) {
        tokio::time::sleep(ON_THE_WAY).await;
    }

    async fn delete(&self, near: String) -> Result<(), PortError> {
        Ok(self.host.netlink.delete_by_name(&near).await.map(drop)?)
    }

    fn forget_queue(&self, ifindex: u32) {
        self.metrics.queue_is_gone(ifindex);
    }
}
