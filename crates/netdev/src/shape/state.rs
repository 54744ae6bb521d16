//! Reads the kernel's state of queues.

use std::collections::BTreeMap;

use netlink_packet_route::tc::TcHandle;

use super::message::{
    FIFO_MAJOR, FQ_CODEL_MAJOR, PARENT, ROOT_MAJOR, TCA_HTB_INIT, TCA_TBF_PARMS, TCA_TBF_RATE64,
    inside_root, leaf_major,
};
use super::{Discipline, Flows, PEAK, Shape, bytes_of};
use crate::connection::Message;
use crate::wire;

/// `sizeof(struct tcmsg)`.
const TCMSG: usize = 20;
// linux/rtnetlink.h, linux/gen_stats.h
const RTM_NEWTCLASS: u16 = 40;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;

/// The queue at the root of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootQueue {
    /// The kernel's own queue.
    Default,
    /// A limit of ours.
    Ours(ShapeState),
    /// A queueing discipline that somebody else put there.
    Foreign {
        /// `tbf`, `htb`, …
        kind: String,
    },
}

/// A limit as it is in the kernel. Counters are since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeState {
    /// After the kernel's rounding; compare with [`Shape::matches`].
    pub shape: Shape,
    /// The discipline as it was found; `None`: it is not ours, or there is none.
    ///
    /// A half-made `htb` has fewer queues than were asked for. With `None` all is dropped.
    pub discipline: Option<Discipline>,
    /// Bytes that wait.
    pub backlog_bytes: u64,
    /// Packets that wait; one of several segments that was not split is one.
    pub backlog_packets: u64,
    /// Packets that found no room or were dropped by `fq_codel`.
    pub dropped_packets: u64,
    /// Bytes that left.
    pub sent_bytes: u64,
    /// Packets that left, as on the wire.
    pub sent_packets: u64,
    /// How often a packet had to wait for the rate.
    pub overlimits: u64,
}

impl ShapeState {
    /// Reports whether this limit is there already, and whole.
    pub fn is(&self, shape: &Shape, discipline: Discipline) -> bool {
        self.discipline == Some(discipline) && shape.matches(&self.shape)
    }
}

/// One queueing discipline (`RTM_NEWQDISC`).
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    pub(super) handle: u32,
    pub(super) kind: String,
    options: Vec<u8>,
    /// Packets that wait.
    pub(super) length: u32,
    backlog: u32,
    drops: u32,
    overlimits: u32,
    bytes: u64,
    packets: u64,
}

/// Where a queueing discipline is on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Root,
    /// In a `tbf` of ours.
    InRoot,
    Elsewhere,
}

impl Queue {
    /// Reads one of a dump, with the index of its device.
    pub(super) fn placed(body: &[u8]) -> Option<(u32, Place, Self)> {
        let ifindex = wire::u32_at(body, 4)?;
        let parent = wire::u32_at(body, 12)?;
        let place = if parent == u32::from(TcHandle::ROOT) {
            Place::Root
        } else if parent == u32::from(inside_root()) {
            Place::InRoot
        } else {
            Place::Elsewhere
        };
        Some((ifindex, place, Self::parse(body)?))
    }

    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        // struct tcmsg: family and padding, ifindex, handle, parent, info.
        let mut queue = Self {
            handle: wire::u32_at(body, 8)?,
            ..Self::default()
        };
        for (kind, value) in wire::attributes(body.get(TCMSG..)?) {
            match kind {
                TCA_KIND => queue.kind = wire::string(value)?,
                TCA_OPTIONS => queue.options = value.to_vec(),
                TCA_STATS2 => queue.count(value),
                _ => {}
            }
        }
        Some(queue)
    }

    fn count(&mut self, statistics: &[u8]) {
        let mut wide = None;
        for (kind, value) in wire::attributes(statistics) {
            match kind {
                // struct gnet_stats_basic: bytes, packets.
                TCA_STATS_BASIC => {
                    self.bytes = wire::u64_at(value, 0).unwrap_or(0);
                    self.packets = wire::u32_at(value, 8).unwrap_or(0).into();
                }
                TCA_STATS_PKT64 => wide = wire::u64_at(value, 0),
                // struct gnet_stats_queue: qlen, backlog, drops, requeues, overlimits.
                TCA_STATS_QUEUE => {
                    let word = |n: usize| wire::u32_at(value, 4 * n).unwrap_or(0);
                    self.length = word(0);
                    self.backlog = word(1);
                    self.drops = word(2);
                    self.overlimits = word(4);
                }
                _ => {}
            }
        }
        self.packets = wide.unwrap_or(self.packets);
    }

    pub(super) fn is_root_of_ours(&self) -> bool {
        self.kind == "tbf" && self.handle == u32::from(ROOT_MAJOR) << 16
    }

    pub(super) fn is_fq_codel_of_ours(&self) -> bool {
        self.kind == "fq_codel" && self.handle == u32::from(FQ_CODEL_MAJOR) << 16
    }

    pub(super) fn is_fifo_of_ours(&self) -> bool {
        self.kind == "bfifo" && self.handle == u32::from(FIFO_MAJOR) << 16
    }

    /// The `htb` for these classes, whether they are there or not.
    pub(super) fn is_htb(&self, flows: Flows) -> bool {
        self.htb() == Some((flows.major, flows.other.into()))
    }

    /// Major number and default class of an `htb`.
    pub(super) fn htb(&self) -> Option<(u16, u32)> {
        let init = self.option(TCA_HTB_INIT).filter(|_| self.kind == "htb")?;
        // struct tc_htb_glob: version, rate2quantum, defcls, …
        let default = wire::u32_at(init, 8)?;
        Some((u16::try_from(self.handle >> 16).ok()?, default))
    }

    fn option(&self, wanted: u16) -> Option<&[u8]> {
        wire::attributes(&self.options)
            .find(|(kind, _)| *kind == wanted)
            .map(|(_, value)| value)
    }

    /// Reads a `tbf`; the queue inside tells the backlog.
    ///
    /// Before 6.13 a `tbf` that splits counts its own backlog wrong.
    pub(super) fn state(
        &self,
        inner: Option<&Self>,
        discipline: Option<Discipline>,
    ) -> Option<ShapeState> {
        // struct tc_tbf_qopt: rate (the number at 8), peakrate (at 20), limit, buffer, mtu.
        let parms = self.option(TCA_TBF_PARMS)?;
        let rate = self
            .option(TCA_TBF_RATE64)
            .and_then(|value| wire::u64_at(value, 0))
            .or_else(|| wire::u32_at(parms, 8).map(u64::from))?;
        let splits = wire::u32_at(parms, 20)? != 0;
        let burst = bytes_of(wire::u32_at(parms, 28)?, rate);
        let segment = match splits {
            true => bytes_of(wire::u32_at(parms, 32)?, PEAK),
            false => burst,
        };
        let shape = Shape {
            rate,
            burst,
            segment,
            queue: wire::u32_at(parms, 24)?,
        };
        Some(ShapeState {
            shape,
            discipline,
            backlog_bytes: inner.unwrap_or(self).backlog.into(),
            backlog_packets: self.length.into(),
            dropped_packets: self.drops.into(),
            sent_bytes: self.bytes,
            sent_packets: self.packets,
            overlimits: self.overlimits.into(),
        })
    }
}

/// Minor number and queue handle of each class of that `htb` which holds packets.
pub(super) fn minors(major: u16, classes: &[Message]) -> impl Iterator<Item = (u16, u32)> {
    classes.iter().filter_map(move |message| {
        let class = wire::u32_at(&message.body, 8)?;
        let queue = wire::u32_at(&message.body, 16)?;
        let minor = u16::try_from(class & 0xffff).ok()?;
        let is_one = message.kind == RTM_NEWTCLASS && class >> 16 == u32::from(major);
        (is_one && minor != PARENT).then_some((minor, queue))
    })
}

/// The classes that are whole, with a queue of ours.
pub(super) fn found_flows(major: u16, default: u32, classes: &[Message]) -> Flows {
    let mut found: BTreeMap<u16, bool> = minors(major, classes)
        .map(|(minor, queue)| {
            let ours = queue == u32::from(leaf_major(major, minor)) << 16;
            (minor, ours)
        })
        .collect();
    let other = u16::try_from(default).unwrap_or(0);
    let other = found.remove(&other).filter(|ours| *ours).map(|_| other);
    // 1, 2, 3 and so on, and none besides.
    let in_order = (1..)
        .zip(&found)
        .all(|(n, (minor, ours))| n == *minor && *ours);
    let queues = if in_order { found.len() } else { 0 };
    Flows {
        major,
        queues: u16::try_from(queues).unwrap_or(0),
        other: other.unwrap_or(0),
    }
}
