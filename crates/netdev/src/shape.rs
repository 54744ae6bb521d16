//! Rate limits: real queues on what leaves by a device, fair between its flows.
//!
//! The root is a `tbf`, which sends at the rate and never above it. What waits does so inside it, in
//! a queue for each flow: `fq_codel` where the kernel has it, else an `htb` with one class for each
//! value of `skb->priority` that a program may set. No class is held back; their rates only say which
//! of them send little and go first, as with `fq_codel`. In one FIFO instead, a ping behind a bulk flow waits for everything that this flow has in the queue.
//!
//! A packet of many segments (GSO) keeps the line for as long as all of them take. `tbf` splits what
//! is larger than its burst or its peak burst, so one of the two is kept at about a millisecond of
//! the rate. Not less: at 1 Gbit/s the largest packets of TCP then stay whole, and splitting them
//! costs so much that the rate is not reached.
//!
//! Nothing here is newer than Linux 3.13.

mod message;
mod state;
mod support;

use std::collections::BTreeMap;
use std::fmt;
use std::thread;
use std::time::Duration;

use netlink_packet_core::NLM_F_ECHO;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

pub use self::state::{RootQueue, ShapeState};
pub use self::support::shape_support;

use self::message::Tree;
use self::state::{Place, Queue, found_flows};
use crate::connection::{Connection, Message, Request};
use crate::error::{Error, Refusal};

/// Length of an Ethernet header, which `tbf` counts and an MTU does not.
const ETHERNET: u32 = 14;
/// `GSO_MAX_SIZE` (linux/netdevice.h, 6.18): no packet is larger.
const GSO_MAX: u32 = 8 * 65_535;
/// Largest queue that no limit of time makes smaller, bytes.
///
/// Above it, bytes that may wait are limited by time: enough for what TCP's own limit puts there.
const QUEUE_FREELY: u64 = 1 << 20;
/// Peak rate, bytes per second, that only serves to split: 100 Gbit/s.
///
/// No rate that needs splitting comes near it.
const PEAK: u64 = 12_500_000_000;
/// Nanoseconds of a tick, in which the kernel reports sizes as times.
///
/// `PSCHED_SHIFT`, net/pkt_sched.h; the second word of `/proc/net/psched`.
const TICK: u128 = 64;
const NANOSECONDS: u128 = 1_000_000_000;
/// Looks at a queue that packets leave, before the rest is dropped with it.
///
/// Looks and no deadline: on a node that stands still for a moment, packets do not leave either.
const DRAIN_LOOKS: usize = 200;
const DRAIN_POLL: Duration = Duration::from_micros(500);

/// A rate limit on what leaves by a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes per second on the wire, Ethernet headers included, as `tbf` counts.
    pub rate: u64,
    /// Bytes that may leave at once after a pause.
    pub burst: u32,
    /// Bytes; a packet of several segments that is larger is split before it queues.
    pub segment: u32,
    /// Bytes that may wait: of each flow with [`Discipline::Htb`], of all with
    /// [`Discipline::Fifo`], of a few full flows with [`Discipline::FqCodel`].
    pub queue: u32,
}

impl Shape {
    /// Bytes per second; a higher rate is cut to this, 1 Tbit/s.
    pub const RATE_MAX: u64 = 125_000_000_000;

    /// Makes the shape for a rate in bit/s and a burst in bits, with this MTU.
    ///
    /// NPWG "bandwidth"; CNI conventions, `bandwidth`. Every value gives a shape that works:
    ///
    /// - the rate is rounded down to whole bytes, at least 1;
    /// - the burst is at least 1 ms of the rate, which a timer needs to keep the rate, and two full
    ///   frames; at most 1 s of the rate, for runtimes pass 2^32. Not given, it is the least;
    /// - packets above a millisecond of the rate and two full frames are split;
    /// - 25 ms of the rate may wait, but not more than 1 MiB or 2.5 ms, whichever is more: bytes of
    ///   small packets hold twelve times their size in memory. At least 128 full frames.
    pub fn new(bits_per_second: u64, burst_bits: Option<u64>, mtu: u16) -> Self {
        let frame = u64::from(mtu) + u64::from(ETHERNET);
        let rate = (bits_per_second / 8).clamp(1, Self::RATE_MAX);
        let least = rate / 1000;
        let asked = burst_bits.map_or(least, |bits| bits / 8);
        let burst = asked.min(rate).max(least).max(2 * frame);
        let segment = least.max(2 * frame).min(burst);
        let queue = (rate / 40)
            .min(QUEUE_FREELY.max(rate / 400))
            .max(128 * frame);
        let size = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        Self {
            rate,
            burst: size(burst),
            segment: size(segment),
            queue: size(queue),
        }
    }

    /// Reports whether the kernel, asked for this shape, would report that one.
    ///
    /// It rounds sizes to times of 64 ns.
    pub fn matches(&self, reported: &Self) -> bool {
        let close = |ours: u32, theirs: u32, rate: u64| {
            // The kernel's reciprocal of the rate may be a tick off ours.
            u64::from(ours.abs_diff(theirs)) <= u64::from(bytes_of(1, rate)) + 1
        };
        let expected = self.as_reported();
        self.rate == reported.rate
            && self.queue == reported.queue
            && close(expected.burst, reported.burst, self.rate)
            && match self.splits() {
                true => close(expected.segment, reported.segment, PEAK),
                false => reported.segment == reported.burst,
            }
    }

    /// Bytes of the largest packet that goes whole.
    fn whole(&self) -> u32 {
        match self.splits() {
            true => self.segment,
            false => self.burst,
        }
    }

    /// Reports whether a peak rate is needed to split packets.
    ///
    /// Otherwise `tbf` splits by the burst already, or no packet is as large.
    fn splits(&self) -> bool {
        self.segment < self.burst.min(GSO_MAX) && self.rate < PEAK
    }

    fn as_reported(&self) -> Self {
        let burst = bytes_of(ticks_of(self.burst, self.rate), self.rate);
        let segment = match self.splits() {
            true => bytes_of(ticks_of(self.segment, PEAK), PEAK),
            false => burst,
        };
        Self {
            burst,
            segment,
            ..*self
        }
    }

    fn check(&self, ifindex: u32) -> Result<(), Error> {
        if self.rate == 0 || self.burst == 0 || self.segment == 0 || self.queue == 0 {
            return Err(Error::InvalidShape {
                link: ifindex.into(),
                reason: "rate, burst, segment and queue must be above 0",
            });
        }
        Ok(())
    }
}

/// In the units a person asked in.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from(self.rate) * 8;
        let (value, unit) = match bits {
            1_000_000_000.. if bits % 1_000_000_000 == 0 => (bits / 1_000_000_000, "Gbit/s"),
            1_000_000.. if bits % 1_000_000 == 0 => (bits / 1_000_000, "Mbit/s"),
            1000.. if bits % 1000 == 0 => (bits / 1000, "kbit/s"),
            _ => (bits, "bit/s"),
        };
        write!(f, "{value} {unit}, burst {} bytes", self.burst)
    }
}

/// Ticks that so many bytes take. The kernel reports the low 32 bits.
fn ticks_of(bytes: u32, rate: u64) -> u32 {
    let ticks = u128::from(bytes) * NANOSECONDS / u128::from(rate.max(1)) / TICK;
    u32::try_from(ticks & u128::from(u32::MAX)).unwrap_or(u32::MAX)
}

/// Bytes that take so many ticks, rounded up.
fn bytes_of(ticks: u32, rate: u64) -> u32 {
    let bytes = (u128::from(ticks) * TICK * u128::from(rate)).div_ceil(NANOSECONDS);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The classes of an `htb`, as `skb->priority` names them: `major << 16 | minor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flows {
    major: u16,
    queues: u16,
    other: u16,
}

impl Flows {
    /// Makes flows of an `htb`: its major number, the flows' queues, the other class.
    ///
    /// `queues`: classes for flows, minors 1 to this. `other`: the minor of the class for everything
    /// else.
    ///
    /// # Panics
    /// If a number is 0 or no 16-bit one, `other` is one of the queues, or a queue of its own for
    /// each class would leave the range of handles. In a constant this does not compile.
    pub const fn new(major: u32, queues: u32, other: u32) -> Self {
        assert!(major > 0 && queues > 0 && other > queues);
        // Each class has a queue of the handle major + minor; below 0x8000 the kernel gives none
        // out by itself.
        assert!(major < 0x8000 && other < 0x8000 && major + other < 0x8000);
        assert!(other < message::PARENT as u32);
        assert!(major > message::ROOT_MAJOR as u32);
        #[expect(clippy::cast_possible_truncation, reason = "checked above")]
        Self {
            major: major as u16,
            queues: queues as u16,
            other: other as u16,
        }
    }

    /// Minors of all classes.
    fn minors(self) -> impl Iterator<Item = u16> {
        (1..=self.queues).chain([self.other])
    }
}

/// The queueing discipline inside the `tbf`, with the packets that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// Flows told apart by the kernel's hash, with queue control and ECN marks.
    FqCodel,
    /// Flows told apart by `skb->priority`.
    Htb(Flows),
    /// One queue for all.
    Fifo,
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FqCodel => "tbf+fq_codel",
            Self::Htb(_) => "tbf+htb",
            Self::Fifo => "tbf",
        })
    }
}

impl Connection {
    /// Limits what leaves by a device; the device may be down.
    ///
    /// A limit that is there is changed in place, and what waits in it stays; a damaged one is repaired.
    ///
    /// While one is made on a device that is up, the kernel deactivates the device, and what it
    /// sends in that moment is lost. So is what waits in a queue that another discipline replaces.
    ///
    /// # Errors
    /// [`Error::ForeignQueue`]: somebody else's queueing discipline is at the root; nothing was
    /// changed. [`Error::InvalidShape`]: a size is 0. [`Error::LinkVanished`]. [`Error::Shape`]:
    /// refused; a limit that was not there before is gone again.
    pub fn shape(
        &mut self,
        ifindex: u32,
        shape: &Shape,
        discipline: Discipline,
    ) -> Result<(), Error> {
        shape.check(ifindex)?;
        let link = self.by_index(ifindex)?.ok_or_else(|| Error::LinkVanished {
            link: ifindex.into(),
        })?;
        let tree = Tree {
            ifindex,
            shape: *shape,
            discipline,
            frame: link.mtu.saturating_add(ETHERNET),
        };
        let (root, inner) = self.queues(ifindex)?;
        match root {
            None => {
                let made = self
                    .carry_out(ifindex, vec![tree.root()])
                    .and_then(|()| self.fill(&tree, None));
                if made.is_err() {
                    // The first error is the one to tell.
                    let _ = self.remove(ifindex);
                }
                made
            }
            Some(queue) if !queue.is_root_of_ours() => Err(Error::ForeignQueue {
                link: ifindex.into(),
                kind: queue.kind,
            }),
            // The root last: it is what tells the shape.
            Some(_) => {
                self.fill(&tree, inner.as_ref())?;
                self.carry_out(ifindex, vec![tree.root()])
            }
        }
    }

    /// Returns the queue at the root of a device.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::is_gone`] if there is no such device; [`Error::List`] and
    /// [`Error::DumpInterrupted`] for its classes.
    pub fn shape_of(&mut self, ifindex: u32) -> Result<RootQueue, Error> {
        match self.queues(ifindex)? {
            (Some(root), inner) => self.root_queue(ifindex, root, inner.as_ref()),
            (None, _) => Ok(RootQueue::Default),
        }
    }

    /// Lists the queues at the roots of all devices, by index.
    ///
    /// A device with the kernel's own queue is left out. It is one dump, however many devices there are, and
    /// another one for each `htb` of ours.
    ///
    /// # Errors
    /// As for [`Self::shape_of`].
    pub fn root_queues(&mut self) -> Result<BTreeMap<u32, RootQueue>, Error> {
        let mut roots: BTreeMap<u32, Queue> = BTreeMap::new();
        let mut inner: BTreeMap<u32, Queue> = BTreeMap::new();
        for message in self.dump("queues", &message::list_queues())? {
            let Some((ifindex, place, queue)) = Queue::placed(&message.body) else {
                continue;
            };
            match place {
                Place::Root if queue.handle != 0 => roots.insert(ifindex, queue),
                Place::InRoot => inner.insert(ifindex, queue),
                Place::Root | Place::Elsewhere => None,
            };
        }
        let mut found = BTreeMap::new();
        for (ifindex, root) in roots {
            match self.root_queue(ifindex, root, inner.get(&ifindex)) {
                Ok(queue) => {
                    found.insert(ifindex, queue);
                }
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn root_queue(
        &mut self,
        ifindex: u32,
        root: Queue,
        inner: Option<&Queue>,
    ) -> Result<RootQueue, Error> {
        if !root.is_root_of_ours() {
            return Ok(RootQueue::Foreign { kind: root.kind });
        }
        let discipline = match inner {
            Some(inner) if inner.is_fq_codel_of_ours() => Some(Discipline::FqCodel),
            Some(inner) if inner.is_fifo_of_ours() => Some(Discipline::Fifo),
            Some(inner) => self.flows(ifindex, inner)?.map(Discipline::Htb),
            None => None,
        };
        root.state(inner, discipline)
            .map(RootQueue::Ours)
            .ok_or(Error::Malformed {
                what: "options of tbf",
            })
    }

    /// Removes a limit; packets that wait have 100 ms and more to leave.
    ///
    /// The rest is dropped. No limit, no device, or a queueing discipline of somebody else: nothing to
    /// do.
    ///
    /// Blocks while packets leave, and first until those are in the queue that programs are sending
    /// there at this moment. Before the device is deleted, [`Self::let_go`] is enough.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Quiesce`].
    pub fn unshape(&mut self, ifindex: u32) -> Result<(), Error> {
        if self.let_go(ifindex)? {
            self.remove(ifindex)?;
        }
        Ok(())
    }

    /// Lifts a limit and lets packets that wait leave, but keeps the queue.
    ///
    /// In the moment of its removal the kernel would drop arriving packets. `false`: there is no limit of
    /// ours. See [`Self::unshape`].
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Quiesce`].
    pub fn let_go(&mut self, ifindex: u32) -> Result<bool, Error> {
        quiesce()?;
        match self.drain(ifindex) {
            Err(error) if error.is_gone() => Ok(false),
            outcome => outcome,
        }
    }

    /// Lifts the limit and waits until the queue is empty; `false` without our limit.
    fn drain(&mut self, ifindex: u32) -> Result<bool, Error> {
        let mut lifted = false;
        for _ in 0..DRAIN_LOOKS {
            let root = match self.queues(ifindex)? {
                (Some(root), _) if root.is_root_of_ours() => root,
                _ => return Ok(false),
            };
            if root.length == 0 {
                return Ok(true);
            }
            if !lifted {
                let limit = root.state(None, None).map_or(1, |state| state.shape.queue);
                self.carry_out(ifindex, vec![message::unlimited(ifindex, limit)])?;
                lifted = true;
            }
            thread::sleep(DRAIN_POLL);
        }
        Ok(true)
    }

    fn remove(&mut self, ifindex: u32) -> Result<(), Error> {
        match self.carry_out(ifindex, vec![message::delete_root(ifindex)]) {
            // Gone already, or no longer ours.
            Err(error) if error.is_gone() => Ok(()),
            Err(Error::Shape { source, .. })
                if matches!(source.errno(), Errno::NOENT | Errno::INVAL) =>
            {
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Makes what is inside the root as the tree wants it, whatever is there now.
    fn fill(&mut self, tree: &Tree, inner: Option<&Queue>) -> Result<(), Error> {
        let ifindex = tree.ifindex;
        let fits = match (tree.discipline, inner) {
            (_, None) => false,
            (Discipline::FqCodel, Some(inner)) => inner.is_fq_codel_of_ours(),
            (Discipline::Fifo, Some(inner)) => inner.is_fifo_of_ours(),
            (Discipline::Htb(wanted), Some(inner)) => {
                inner.is_htb(wanted) && self.no_class_too_many(ifindex, wanted)?
            }
        };
        let mut steps = Vec::new();
        if let Some(inner) = inner
            && !fits
        {
            steps.push(message::delete_inner(ifindex, inner.handle));
        }
        match tree.discipline {
            Discipline::Fifo => {
                steps.push(tree.fifo());
                self.carry_out(ifindex, steps)
            }
            Discipline::FqCodel => {
                steps.push(tree.fq_codel(fits));
                self.carry_out(ifindex, steps)
            }
            Discipline::Htb(flows) => {
                // An htb has nothing to change: the kernel refuses to.
                if !fits {
                    steps.push(tree.htb(flows));
                }
                steps.push(tree.parent(flows));
                steps.extend(flows.minors().map(|minor| tree.class(flows, minor)));
                self.carry_out(ifindex, steps)?;
                let leaves = flows.minors().map(|minor| tree.leaf(flows, minor));
                self.carry_out(ifindex, leaves.collect())
            }
        }
    }

    /// Returns the root and the inner queueing discipline of a device.
    ///
    /// `None` for one that the kernel made itself: at a root it has no handle, in a `tbf` it is not
    /// shown.
    fn queues(&mut self, ifindex: u32) -> Result<(Option<Queue>, Option<Queue>), Error> {
        let answers = self.look_all(vec![
            Request::new(message::get_root(ifindex), NLM_F_ECHO),
            Request::new(message::get_inner(ifindex), NLM_F_ECHO),
        ])?;
        let mut queues = answers.into_iter().map(|answer| match answer {
            Ok(messages) => Ok(messages.first().and_then(|m| Queue::parse(&m.body))),
            // No root of ours for the inner one to be in, or one that can hold none.
            Err(refusal)
                if matches!(
                    refusal.errno(),
                    Errno::NOENT | Errno::INVAL | Errno::OPNOTSUPP
                ) =>
            {
                Ok(None)
            }
            Err(source) => Err(refused(ifindex, "look at its queues".to_owned(), source)),
        });
        let mut next = || queues.next().unwrap_or(Ok(None));
        let root = next()?.filter(|root| root.handle != 0);
        Ok((root, next()?))
    }

    fn classes(&mut self, ifindex: u32, major: u16) -> Result<Vec<Message>, Error> {
        let messages = self.dump("classes", &message::list_classes(ifindex, major))?;
        Ok(messages)
    }

    fn flows(&mut self, ifindex: u32, inner: &Queue) -> Result<Option<Flows>, Error> {
        let Some((major, default)) = inner.htb() else {
            return Ok(None);
        };
        let classes = self.classes(ifindex, major)?;
        Ok(Some(found_flows(major, default, &classes)))
    }

    fn no_class_too_many(&mut self, ifindex: u32, wanted: Flows) -> Result<bool, Error> {
        let classes = self.classes(ifindex, wanted.major)?;
        Ok(state::minors(wanted.major, &classes)
            .all(|(minor, _)| wanted.minors().any(|other| other == minor)))
    }

    fn carry_out(&mut self, ifindex: u32, steps: Vec<message::Step>) -> Result<(), Error> {
        let (words, requests): (Vec<_>, Vec<_>) = steps.into_iter().unzip();
        for (answer, step) in self.ask_all(requests)?.into_iter().zip(words) {
            answer.map_err(|source| refused(ifindex, step, source))?;
        }
        Ok(())
    }
}

/// Waits until the programs that run now have ended, and their packets are sent.
///
/// Both happen in one RCU read-side section. The kernel waits for all of these when a packet socket is
/// closed (`packet_release`, net/packet/af_packet.c, 5.10: `synchronize_net`).
fn quiesce() -> Result<(), Error> {
    // Of no protocol: it receives nothing.
    let socket = socket_with(
        AddressFamily::PACKET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|source| Error::Quiesce {
        source: source.into(),
    })?;
    drop(socket);
    Ok(())
}

fn refused(ifindex: u32, step: String, source: Refusal) -> Error {
    Error::Shape {
        link: ifindex.into(),
        step,
        source,
    }
}

#[cfg(test)]
mod tests;
