//! Let a packet pass by the policies of its ends, or drop it.

use super::Guard;
use super::flow::{DENIED, FLOW_DENIED, FLOW_NODE, FlowKey, FlowWords, opened};
use super::fragment::{self, FragmentKey};
use super::judge::allows;
use super::tables::{GuardTables, budget_of_address, budget_of_port};
use super::tuple::{RST, Tuple, answers, asks, is_exempt, is_icmp};
use super::{GUARD_ADOPT, GUARD_NODE, related};
use crate::addr::{Ip16, MacAddr};
use crate::drop::DropReason;
use crate::packet::{Frame, IPPROTO_TCP};
use crate::policy::Scratch;
use crate::port::Port;

/// The time of an engine that does not read its clock for each packet.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// The kernel's count of its timer ticks, when the clock was read.
    pub jiffies: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC` then.
    pub now_ns: u64,
}

/// Values of a packet that are kept where an engine has room.
///
/// A program has it in a map of its CPU. All zeroes are a value. What the first program looks at is at its beginning, in
/// four lines: other code of the kernel has the nearest caches between two packets.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Passage {
    /// The time, which stays from packet to packet.
    pub clock: Clock,
    /// Sets of the sender, if it is a port of this node.
    pub sender: Guard,
    /// Sets of the receiver, if it is a port of this node.
    pub receiver: Guard,
    /// Id of the port that the sets of the sender are of.
    pub sender_id: u16,
    /// Id of the port that the sets of the receiver are of.
    pub receiver_id: u16,
    /// Ends of the packet; those of the quoted one while an error is looked at.
    pub tuple: Tuple,
    /// Its connection.
    pub key: FlowKey,
    /// Entry of that connection when this engine last let a packet of it pass.
    ///
    /// Without a time if there was none, or the kernel's timer has ticked since.
    /// It stays from packet to packet, as the key does: the next one is of the same connection often.
    pub last: FlowWords,
    /// The traffic that policies let pass when this engine last asked them.
    ///
    /// It stays from packet to packet, until the kernel's timer ticks: a client opens many connections to one server.
    pub allowed: Allowed,
    /// Entry of the packet's connection; that by which it was let pass, if it was.
    ///
    /// Without a time if there is none.
    pub words: FlowWords,
    /// The port that sent it; the programs behind the first one have it from here.
    pub port: Port,
    /// Decision about the packet, by [`Act::pack`](crate::policy::Act::pack).
    pub act: u32,
    /// `FLOW_NODE` for a connection that the node itself has opened, else 0.
    pub by_node: u32,
    /// Bucket that a new connection is paid from.
    ///
    /// Here, and not on the stack: what a verifier knows of it would multiply the states that it looks at.
    pub budget: u32,
    /// 1 for a sender that may be a router, else 0.
    pub routed: u32,
    /// The packet that it is a fragment of.
    pub fragment: FragmentKey,
    /// Network of both ends; 0 for a packet from one network to another.
    pub shared: u32,
}

impl Passage {
    /// Of no packet.
    pub const EMPTY: Self = Self {
        clock: Clock {
            jiffies: 0,
            now_ns: 0,
        },
        port: Port {
            network: 0,
            flags: 0,
            mac: MacAddr([0; 6]),
            mtu: 0,
            ip4: [0; 4],
            port_id: 0,
            tunnel_port: 0,
            ip6: Ip16::NONE,
            link_local: Ip16::NONE,
            home: 0,
            shaper: 0,
        },
        act: 0,
        sender: Guard {
            generation: 0,
            egress: 0,
            ingress: 0,
            stamp: 0,
            flags: 0,
        },
        receiver: Guard {
            generation: 0,
            egress: 0,
            ingress: 0,
            stamp: 0,
            flags: 0,
        },
        sender_id: 0,
        receiver_id: 0,
        tuple: Tuple::EMPTY,
        key: FlowKey::EMPTY,
        last: FlowWords::NONE,
        words: FlowWords::NONE,
        allowed: Allowed::NOTHING,
        by_node: 0,
        budget: 0,
        routed: 0,
        fragment: FragmentKey::EMPTY,
        shared: 0,
    };

    /// Notes the kernel's count of timer ticks; true when it is another one.
    ///
    /// Then the clock is to be read again, and nothing is remembered of the packets before: other CPUs and the agent may
    /// have changed their connections, and what an address is to policies.
    #[inline(always)]
    pub const fn has_ticked(&mut self, jiffies: u64) -> bool {
        if self.clock.jiffies == jiffies {
            return false;
        }
        self.clock.jiffies = jiffies;
        self.last.seen = 0;
        self.allowed.network = 0;
        true
    }

    /// Looks up the sets of the sender, a port of this node.
    #[inline(always)]
    pub(super) fn take_sender<T: GuardTables>(&mut self, tables: &T, port_id: u16) {
        self.sender_id = port_id;
        self.sender = tables.guard(port_id);
    }

    /// Looks up the sets of the receiver, a port of this node.
    #[inline(always)]
    pub(super) fn take_receiver<T: GuardTables>(&mut self, tables: &T, port_id: u16) {
        self.receiver_id = port_id;
        self.receiver = tables.guard(port_id);
    }

    /// Notes a packet in the entry of its connection, and remembers it.
    #[inline(always)]
    fn note<T: GuardTables>(&mut self, tables: &T, flags: u32, by: (u32, u32), now: u32) {
        self.last = self.words.noted(flags, by, now);
        tables.note(&self.words, &self.last);
        self.words = self.last;
    }

    /// Has the sets of both ends whole.
    #[inline(always)]
    fn complete<T: GuardTables>(&mut self, tables: &T) {
        if self.sender.is_brief() {
            self.sender = tables.sets(self.sender_id);
        }
        if self.receiver.is_brief() {
            self.receiver = tables.sets(self.receiver_id);
        }
    }
}

/// Traffic that the sets of both ends let pass.
///
/// It is allowed as long as they have the same stamps, whatever port it comes from, and for one tick of the kernel's timer:
/// an address that becomes a member's is something else to sets of the same stamp.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    /// Network.
    pub network: u32,
    /// Stamp of the opener's set; 0 for none.
    pub egress: u32,
    /// Stamp of the other end's set; 0 for none.
    pub ingress: u32,
    /// Port of the other end.
    pub port: u16,
    /// IP protocol.
    pub protocol: u16,
    /// Address of the opener.
    pub opener: Ip16,
    /// Address of the other end.
    pub other: Ip16,
}

impl Allowed {
    /// Of no network: 0 is none.
    pub const NOTHING: Self = Self {
        network: 0,
        egress: 0,
        ingress: 0,
        port: 0,
        protocol: 0,
        opener: Ip16::NONE,
        other: Ip16::NONE,
    };

    /// Reports whether a packet asks for it, by sets with these stamps.
    #[inline(always)]
    pub(super) fn is_for(&self, network: u32, tuple: &Tuple, by: (u32, u32)) -> bool {
        self.network == network
            && (self.egress, self.ingress) == by
            && self.port == tuple.destination_port
            && self.protocol == tuple.protocol as u16
            && self.other.same(&tuple.destination)
            && self.opener.same(&tuple.source)
    }

    /// Notes what the sender of a packet asks for.
    #[inline(always)]
    pub(super) fn keep(&mut self, network: u32, tuple: &Tuple, (egress, ingress): (u32, u32)) {
        self.network = network;
        (self.egress, self.ingress) = (egress, ingress);
        self.port = tuple.destination_port;
        self.protocol = tuple.protocol as u16;
        self.opener.set(&tuple.source);
        self.other.set(&tuple.destination);
    }
}

/// The sender of a packet, as its new connections are paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A port of this node.
    Port(u16),
    /// A member on another node.
    Member,
    /// A host or router outside of the network's members.
    Outside,
}

/// Receivers of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// One end, by its address.
    One,
    /// A group, or all.
    ///
    /// Receivers with a set for what they get have no copy of it, unless that set is open.
    Group,
}

/// Judges the packet in `scratch` by the sets in `passage`.
///
/// `network` is that of its connection, the same in both directions, and [`Passage::shared`] is set.
///
/// # Errors
/// `PolicyEgress`, `PolicyIngress`, `PolicyFragment`, `FlowLimit`, `Truncated`.
#[inline(always)]
pub fn pass<F: Frame + ?Sized, T: GuardTables>(
    frame: &F,
    network: u32,
    (from, to): (End, To),
    scratch: &Scratch,
    tables: &T,
    passage: &mut Passage,
) -> Result<(), DropReason> {
    let packet = &scratch.packet;
    let (sender, receiver) = (&passage.sender, &passage.receiver);
    if sender.egress | sender.ingress | receiver.egress | receiver.ingress == 0 {
        return Ok(());
    }
    if is_exempt(frame, packet) {
        return Ok(());
    }
    passage.tuple.start(packet);
    (passage.budget, passage.routed) = match from {
        End::Port(port_id) => (budget_of_port(port_id), 0),
        End::Member => (budget_of_address(network, &passage.tuple.source), 0),
        End::Outside => (budget_of_address(network, &passage.tuple.source), 1),
    };
    let (tuple, fragment) = (&mut passage.tuple, &mut passage.fragment);
    fragment::ports(frame, network, scratch, tables, tuple, fragment)?;
    let (protocol, icmp) = (passage.tuple.protocol, passage.tuple.icmp);
    let answers = answers(protocol, icmp);
    // What is no question and no answer to one has nothing to tell its connection by.
    let mut alone = to == To::Group || is_icmp(packet) && !asks(protocol, icmp) && !answers;
    if related::is_error(packet, icmp) {
        let ends = (passage.routed != 0, &passage.sender, &passage.receiver);
        // The key is that of another connection now.
        passage.last.seen = 0;
        let (tuple, connection) = (&mut passage.tuple, (&mut passage.key, &mut passage.words));
        let is_related =
            related::is_related(frame, network, packet, ends, tables, tuple, connection);
        // It tells the connection nothing, and the switch neither.
        passage.words.seen = 0;
        if is_related {
            return Ok(());
        }
        passage.tuple.start(packet);
        alone = true;
    }
    follow(network, (alone, answers), tables, passage)?;
    fragment::keep(packet, tables, &passage.tuple, &passage.fragment);
    Ok(())
}

/// Judges a packet by its connection, else by itself, and keeps what it opens.
///
/// `alone`: it has no connection, and opens none. `answers`: it opens none. An answer that came first would turn the
/// connection round, so that the other end's questions pass as answers.
#[inline(always)]
fn follow<T: GuardTables>(
    network: u32,
    (alone, answers): (bool, bool),
    tables: &T,
    passage: &mut Passage,
) -> Result<(), DropReason> {
    let from_high = passage.tuple.is_from_high();
    let now = tables.now();
    let tcp = passage.tuple.tcp;
    let is_tcp = passage.tuple.protocol == IPPROTO_TCP;
    // What opens a connection is judged whatever was there before.
    let is_opening = passage.tuple.is_opening();
    let last = passage.last;
    if !alone && passage.key.is_of(network, &passage.tuple, from_high) {
        let by = stamps(
            &passage.sender,
            &passage.receiver,
            last.is_onward(from_high),
        );
        if last.is_as_before(by, now) && !last.has_news(&passage.tuple, from_high) {
            passage.words = last;
            return Ok(());
        }
    }
    passage.last.seen = 0;
    passage.key.write(network, &passage.tuple, from_high);
    // What is alone needs none; a branch more is one that verifiers walk from all that came before.
    tables.seek(&passage.key);
    let mut is_found = false;
    if !is_opening && !alone {
        is_found = tables.flow(&passage.key, &mut passage.words)
            && passage.words.is_alive(passage.tuple.protocol, now);
    }
    let mut onward = true;
    if is_found {
        let words = &passage.words;
        onward = words.is_onward(from_high);
        let by = stamps(&passage.sender, &passage.receiver, onward);
        if words.is_by(by) && words.flags & FLOW_DENIED == 0 {
            let flags = words.after(&passage.tuple, from_high);
            passage.note(tables, flags, by, now);
            return Ok(());
        }
    }
    // The middle of a connection may be of one that was there before the port's first policy.
    let flags = passage.sender.flags | passage.receiver.flags;
    let adopts = flags & GUARD_ADOPT != 0 && is_tcp && !is_opening && !is_found && !alone;
    if adopts {
        // Nothing tells which end has opened it; a client's port is the higher one nearly always.
        onward = passage.tuple.source_port > passage.tuple.destination_port;
    }
    let mut judged = Ok(());
    // The middle of one that the pod has opened to the node, by the same rule as above.
    let is_middle =
        is_tcp && !is_opening && passage.tuple.source_port <= passage.tuple.destination_port;
    passage.by_node = if is_found {
        passage.words.flags & FLOW_NODE
    } else if flags & GUARD_NODE == 0 {
        0
    } else if is_middle {
        onward = false;
        0
    } else {
        FLOW_NODE
    };
    let asked = stamps(&passage.sender, &passage.receiver, true);
    let is_allowed = onward && passage.allowed.is_for(network, &passage.tuple, asked);
    if !is_allowed {
        passage.complete(tables);
    }
    // One place for both: the code is large.
    for attempt in 0..2 {
        if is_allowed || passage.by_node != 0 {
            break;
        }
        if attempt == 1 {
            onward = !onward;
        }
        let result = judge(tables, passage, onward);
        if attempt == 0 {
            judged = result;
        } else if result.is_ok() {
            judged = Ok(());
        }
        if judged.is_ok() || !adopts {
            break;
        }
    }
    let by = stamps(&passage.sender, &passage.receiver, onward);
    if !is_allowed && judged.is_ok() && onward && passage.by_node == 0 {
        passage.allowed.keep(network, &passage.tuple, by);
    }
    if is_found {
        let flags = passage.words.after(&passage.tuple, from_high);
        // One look at the verdict: of a second one the compiler makes a read of what a verifier has not seen written.
        return match judged {
            Ok(()) => {
                passage.note(tables, flags & !FLOW_DENIED, by, now);
                Ok(())
            }
            // It stays denied in both directions until it is opened again.
            Err(reason) => {
                passage.note(tables, flags | FLOW_DENIED, (DENIED, DENIED), now);
                passage.last.seen = 0;
                Err(reason)
            }
        };
    }
    passage.words.seen = 0;
    // The end of a connection that is not known opens none.
    if judged.is_err() || alone || answers || is_tcp && tcp & RST != 0 {
        return judged;
    }
    if passage.by_node == 0 && !tables.pay(passage.budget) {
        return Err(DropReason::FlowLimit);
    }
    passage.last = FlowWords {
        seen: now,
        flags: opened(&passage.tuple, from_high, from_high == onward) | passage.by_node,
        egress: by.0,
        ingress: by.1,
    };
    // Without an entry the next packet is judged again.
    if tables.open(&passage.key, &passage.last) {
        passage.words = passage.last;
    } else {
        passage.last.seen = 0;
    }
    Ok(())
}

/// Stamps of the sets that judge a connection: of its opener, and of the other end.
///
/// `onward`: the packet's sender has opened it.
#[inline(always)]
pub(super) const fn stamps(sender: &Guard, receiver: &Guard, onward: bool) -> (u32, u32) {
    let of_sender = (
        stamp_of(sender.egress, sender),
        stamp_of(sender.ingress, sender),
    );
    let of_receiver = (
        stamp_of(receiver.egress, receiver),
        stamp_of(receiver.ingress, receiver),
    );
    if onward {
        (of_sender.0, of_receiver.1)
    } else {
        (of_receiver.0, of_sender.1)
    }
}

/// Stamp of an end for one of its sets; 0 without.
#[inline(always)]
pub(super) const fn stamp_of(set: u32, guard: &Guard) -> u32 {
    if set != 0 { guard.stamp } else { 0 }
}

/// Judges a connection at both of its ends that have a set.
///
/// `onward`: the packet's sender has opened it, else its receiver.
#[inline(always)]
fn judge<T: GuardTables>(tables: &T, passage: &Passage, onward: bool) -> Result<(), DropReason> {
    let tuple = &passage.tuple;
    let (opener, other) = if onward {
        (&passage.sender, &passage.receiver)
    } else {
        (&passage.receiver, &passage.sender)
    };
    let (opener_ip, other_ip, port) = if onward {
        (&tuple.source, &tuple.destination, tuple.destination_port)
    } else {
        (&tuple.destination, &tuple.source, tuple.source_port)
    };
    // The other end of a connection between networks is no member of this one, whatever has its address there.
    let network = passage.shared;
    let set = (opener.generation, opener.egress);
    if opener.egress != 0 && !allows(tables, set, network, other_ip, tuple, port) {
        return Err(DropReason::PolicyEgress);
    }
    let set = (other.generation, other.ingress);
    if other.ingress != 0 && !allows(tables, set, network, opener_ip, tuple, port) {
        return Err(DropReason::PolicyIngress);
    }
    Ok(())
}
