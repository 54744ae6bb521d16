//! Requests for queueing disciplines and classes, built without IO.

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAttribute, TcHandle, TcMessage, TcOption, TcQdiscFqCodelOption as FqCodel,
};

use super::{Discipline, Flows, GSO_MAX, PEAK, Shape, ticks_of};
use crate::connection::Request;

/// Major number of every `tbf` of ours, by which we know it. Any number would do.
pub(super) const ROOT_MAJOR: u16 = 0x0f0f;
/// Major number of a `bfifo` in it. The one it makes itself cannot be seen.
pub(super) const FIFO_MAJOR: u16 = 0x0f0d;
/// Major number of an `fq_codel` in it.
pub(super) const FQ_CODEL_MAJOR: u16 = 0x0f0e;

// linux/pkt_sched.h, linux/rtnetlink.h
const TCA_OPTIONS: u16 = 2;
pub(super) const TCA_TBF_PARMS: u16 = 1;
pub(super) const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_PRATE64: u16 = 5;
const TCA_TBF_BURST: u16 = 6;
const TCA_TBF_PBURST: u16 = 7;
const TCA_HTB_PARMS: u16 = 1;
pub(super) const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const TC_LINKLAYER_ETHERNET: u8 = 1;
/// `HTB_VER >> 16`, which `htb_init` wants to see.
const HTB_VERSION: u32 = 3;
/// Burst of all classes together: a millisecond, in ticks, at an unreachable rate.
const PARENT_BURST_TICKS: u32 = 15_625;
/// Minor number of the class above all others.
///
/// They take the most of their rate from it.
pub(super) const PARENT: u16 = 0x7fff;
/// Part of the rate up to which a flow goes before those that send more.
const SPARSE: u64 = 128;
/// The least of that, bytes per second.
const SPARSE_LEAST: u64 = 1000;
/// Largest packet that the kernel makes, bytes, as queues count it.
///
/// With headers for each segment, which are as large as what these carry at most.
const LARGEST: u32 = 2 * GSO_MAX;
/// Queueing time that `fq_codel` accepts, microseconds (RFC 8290 section 5.2.1).
const CODEL_TARGET: u64 = 5_000;
/// Interval of CoDel beyond the target, µs (RFC 8290 section 5.2.2: 100 ms in all).
const CODEL_INTERVAL: u64 = 95_000;
/// `fq_codel` holds the flows together: so many that fill their share.
const FULL_FLOWS: u32 = 4;

/// A request and, for errors, what it does.
pub(super) type Step = (String, Request);

/// A limit as it should be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    pub(super) ifindex: u32,
    pub(super) shape: Shape,
    pub(super) discipline: Discipline,
    /// Bytes of the largest packet that is not split.
    pub(super) frame: u32,
}

/// A class of an `htb`.
struct Class {
    minor: u16,
    parent: TcHandle,
    /// Bytes per second.
    rate: u64,
    /// Ticks, at that rate.
    burst: u32,
}

impl Tree {
    /// Makes or changes the `tbf`.
    ///
    /// Without `NLM_F_REPLACE` the kernel refuses to put it in the place of another one.
    pub(super) fn root(&self) -> Step {
        let request = tbf(self.ifindex, &self.shape, NLM_F_CREATE);
        (format!("tbf with {}", self.shape), request)
    }

    /// Makes or changes the `fq_codel`. The number of its flows cannot be changed.
    pub(super) fn fq_codel(&self, change: bool) -> Step {
        let Shape { rate, queue, .. } = self.shape;
        let frame = self.frame.max(1);
        // No shorter than a full frame and a half take: each would be found to have waited.
        let frame_time = u64::from(frame) * 1_500_000 / rate.max(1);
        let target = CODEL_TARGET.max(frame_time);
        let options = [
            FqCodel::Limit((queue / frame).max(1).saturating_mul(FULL_FLOWS)),
            FqCodel::Target(micros(target)),
            FqCodel::Interval(micros(target + CODEL_INTERVAL)),
            FqCodel::Quantum(frame),
            FqCodel::Ecn(1),
        ];
        let options = options.into_iter().map(TcOption::FqCodel).collect();
        let message = queue_message(
            self.ifindex,
            handle(FQ_CODEL_MAJOR),
            inside_root(),
            "fq_codel",
            TcAttribute::Options(options),
        );
        let flags = if change {
            0
        } else {
            NLM_F_CREATE | NLM_F_REPLACE
        };
        let request = Request::new(RouteNetlinkMessage::NewQueueDiscipline(message), flags);
        ("fq_codel in its tbf".to_owned(), request)
    }

    /// Makes the `htb`.
    pub(super) fn htb(&self, flows: Flows) -> Step {
        // struct tc_htb_glob: version, rate2quantum, defcls, debug, direct_pkts.
        let words = [HTB_VERSION, 10, flows.other.into(), 0, 0];
        let message = queue_message(
            self.ifindex,
            handle(flows.major),
            inside_root(),
            "htb",
            TcAttribute::Options(vec![raw(TCA_HTB_INIT, bytes(&words))]),
        );
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        let request = Request::new(RouteNetlinkMessage::NewQueueDiscipline(message), flags);
        ("htb in its tbf".to_owned(), request)
    }

    /// Makes or changes the class above all others, which holds nothing back.
    pub(super) fn parent(&self, flows: Flows) -> Step {
        let class = Class {
            minor: PARENT,
            parent: handle(flows.major),
            rate: Shape::RATE_MAX,
            burst: PARENT_BURST_TICKS,
        };
        self.htb_class(flows, &class)
    }

    /// Makes or changes one class, which is never held back.
    ///
    /// Up to a small part of the rate it goes before those that send more than theirs: a question before
    /// what others transfer. Above that, turns of a packet of the largest size, so that bytes are shared
    /// and not packets.
    pub(super) fn class(&self, flows: Flows, minor: u16) -> Step {
        let rate = self.sparse();
        let class = Class {
            minor,
            parent: TcHandle {
                major: flows.major,
                minor: PARENT,
            },
            rate,
            burst: ticks_of(self.frame.saturating_mul(2), rate),
        };
        self.htb_class(flows, &class)
    }

    /// Bytes per second up to which a flow goes first.
    pub(super) fn sparse(&self) -> u64 {
        (self.shape.rate / SPARSE).max(SPARSE_LEAST)
    }

    /// Returns the bytes that a class sends before the next one may.
    ///
    /// Not less than a packet: the kernel's account of what a class has had too much would go down with
    /// each one, and turn over after 2 GiB (`htb_dequeue_tree`); then all others wait until this one has
    /// sent 2 GiB more.
    pub(super) fn turn(&self) -> u32 {
        self.shape.whole().min(LARGEST).max(self.frame)
    }

    fn htb_class(&self, flows: Flows, class: &Class) -> Step {
        // struct tc_htb_opt: rate, ceil, buffer, cbuffer, quantum, level, prio.
        let mut parms = ratespec(class.rate);
        parms.extend(ratespec(Shape::RATE_MAX));
        parms.extend(bytes(&[class.burst, PARENT_BURST_TICKS, self.turn(), 0, 0]));
        let wide = |rate: u64| rate.to_ne_bytes().to_vec();
        let options = vec![
            raw(TCA_HTB_PARMS, parms),
            raw(TCA_HTB_RATE64, wide(class.rate)),
            raw(TCA_HTB_CEIL64, wide(Shape::RATE_MAX)),
        ];
        let minor = class.minor;
        let message = queue_message(
            self.ifindex,
            TcHandle {
                major: flows.major,
                minor,
            },
            class.parent,
            "htb",
            TcAttribute::Options(options),
        );
        let request = Request::new(RouteNetlinkMessage::NewTrafficClass(message), NLM_F_CREATE);
        (format!("class {minor} of its htb"), request)
    }

    /// Makes or changes the queue of one class.
    ///
    /// The one that came with the class counts packets, not bytes, and cannot be changed.
    pub(super) fn leaf(&self, flows: Flows, minor: u16) -> Step {
        let class = TcHandle {
            major: flows.major,
            minor,
        };
        let request = self.bfifo(leaf_major(flows.major, minor), class);
        (format!("queue of class {minor} of its htb"), request)
    }

    /// Makes or changes the one queue of all.
    pub(super) fn fifo(&self) -> Step {
        let request = self.bfifo(FIFO_MAJOR, inside_root());
        ("bfifo in its tbf".to_owned(), request)
    }

    fn bfifo(&self, major: u16, parent: TcHandle) -> Request {
        // struct tc_fifo_qopt: limit.
        let limit = self.shape.queue.to_ne_bytes().to_vec();
        let message = queue_message(
            self.ifindex,
            handle(major),
            parent,
            "bfifo",
            TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, limit)),
        );
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        Request::new(RouteNetlinkMessage::NewQueueDiscipline(message), flags)
    }
}

/// Handle of the queue of a class.
pub(super) fn leaf_major(major: u16, minor: u16) -> u16 {
    major.saturating_add(minor)
}

/// Changes the `tbf` so that it limits nothing.
///
/// `queue`: as it is, because a FIFO in it obeys.
pub(super) fn unlimited(ifindex: u32, queue: u32) -> Step {
    let shape = Shape {
        rate: Shape::RATE_MAX,
        burst: u32::MAX,
        segment: u32::MAX,
        queue,
    };
    (
        "its tbf without a limit".to_owned(),
        tbf(ifindex, &shape, 0),
    )
}

fn tbf(ifindex: u32, shape: &Shape, flags: u16) -> Request {
    let peak = shape.splits().then_some(PEAK);
    // struct tc_tbf_qopt: rate, peakrate, limit, buffer, mtu. The last two, in ticks, are taken
    // from the attributes in bytes where those are given (Linux 3.13).
    let mut parms = ratespec(shape.rate);
    parms.extend(ratespec(peak.unwrap_or(0)));
    parms.extend(bytes(&[shape.queue, 0, 0]));
    let mut options = vec![
        raw(TCA_TBF_PARMS, parms),
        raw(TCA_TBF_RATE64, shape.rate.to_ne_bytes().to_vec()),
        raw(TCA_TBF_BURST, shape.burst.to_ne_bytes().to_vec()),
    ];
    if let Some(peak) = peak {
        options.push(raw(TCA_TBF_PRATE64, peak.to_ne_bytes().to_vec()));
        options.push(raw(TCA_TBF_PBURST, shape.segment.to_ne_bytes().to_vec()));
    }
    let message = queue_message(
        ifindex,
        handle(ROOT_MAJOR),
        TcHandle::ROOT,
        "tbf",
        TcAttribute::Options(options),
    );
    Request::new(RouteNetlinkMessage::NewQueueDiscipline(message), flags)
}

/// Encodes tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu, rate.
///
/// With a link layer named, the kernel wants no table of times with it.
fn ratespec(rate: u64) -> Vec<u8> {
    let mut spec = vec![0, TC_LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0];
    let rate = u32::try_from(rate).unwrap_or(u32::MAX);
    spec.extend(rate.to_ne_bytes());
    spec
}

pub(super) fn delete_root(ifindex: u32) -> Step {
    let message = bare(ifindex, handle(ROOT_MAJOR), TcHandle::ROOT);
    let request = Request::new(RouteNetlinkMessage::DelQueueDiscipline(message), 0);
    ("remove its tbf".to_owned(), request)
}

pub(super) fn delete_inner(ifindex: u32, inner: u32) -> Step {
    let message = bare(ifindex, inner.into(), inside_root());
    let request = Request::new(RouteNetlinkMessage::DelQueueDiscipline(message), 0);
    ("remove what is in its tbf".to_owned(), request)
}

pub(super) fn get_root(ifindex: u32) -> RouteNetlinkMessage {
    RouteNetlinkMessage::GetQueueDiscipline(bare(ifindex, TcHandle::UNSPEC, TcHandle::ROOT))
}

pub(super) fn get_inner(ifindex: u32) -> RouteNetlinkMessage {
    RouteNetlinkMessage::GetQueueDiscipline(bare(ifindex, TcHandle::UNSPEC, inside_root()))
}

/// Asks for the queues of all devices.
pub(super) fn list_queues() -> RouteNetlinkMessage {
    RouteNetlinkMessage::GetQueueDiscipline(bare(0, TcHandle::UNSPEC, TcHandle::UNSPEC))
}

pub(super) fn list_classes(ifindex: u32, major: u16) -> RouteNetlinkMessage {
    RouteNetlinkMessage::GetTrafficClass(bare(ifindex, TcHandle::UNSPEC, handle(major)))
}

/// The only class of the `tbf`.
pub(super) fn inside_root() -> TcHandle {
    TcHandle {
        major: ROOT_MAJOR,
        minor: 1,
    }
}

fn handle(major: u16) -> TcHandle {
    TcHandle { major, minor: 0 }
}

fn bare(ifindex: u32, handle: TcHandle, parent: TcHandle) -> TcMessage {
    let mut message = TcMessage::default();
    message.header.index = i32::try_from(ifindex).unwrap_or(0);
    message.header.handle = handle;
    message.header.parent = parent;
    message
}

fn queue_message(
    ifindex: u32,
    handle: TcHandle,
    parent: TcHandle,
    kind: &str,
    options: TcAttribute,
) -> TcMessage {
    let mut message = bare(ifindex, handle, parent);
    message.attributes = vec![TcAttribute::Kind(kind.to_owned()), options];
    message
}

fn raw(kind: u16, value: Vec<u8>) -> TcOption {
    TcOption::Other(DefaultNla::new(kind, value))
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn micros(time: u64) -> u32 {
    u32::try_from(time).unwrap_or(u32::MAX)
}
