//! Recognize packets of the connection of the packet before.
//!
//! Most packets are: an engine that has them pass without more pays for the rest of them only.

use super::GUARD_SWITCHED;
use super::pass::{Passage, stamps};
use super::sides::{NO_PORT, is_ip, is_stray, number, port_here};
use super::tables::GuardTables;
use super::tuple::{RST, has_ports};
use crate::packet::Frame;
use crate::policy::{Act, Scratch};
use crate::port::Port;

/// The way of a frame by the packets before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// It is to be judged.
    Judge,
    /// It passes.
    Pass,
    /// It passes when its connection is opened ([`open`](super::open)).
    Open,
}

/// Recognizes a frame that passes without being judged.
///
/// One of the connection of the frame before, or one that opens a connection to what was allowed last: in the same tick of the
/// kernel's timer, by the same sets of its ends. What it tells the entry of its connection is written there. All other
/// frames are for [`depart`](super::depart), which would let this one pass, too.
#[inline(always)]
pub fn again<F: Frame + ?Sized, T: GuardTables>(
    frame: &F,
    port: &Port,
    act: Act,
    scratch: &Scratch,
    tables: &T,
    passage: &mut Passage,
) -> Again {
    let packet = &scratch.packet;
    let ether_type = u16::from_be_bytes(scratch.start.field::<12, 2>());
    if !matches!(act, Act::Switch | Act::Route)
        || !is_ip(ether_type)
        || packet.fragment
        || !has_ports(packet.protocol)
    {
        return Again::Judge;
    }
    let to = port_here(&scratch.to);
    if to == NO_PORT {
        return Again::Judge;
    }
    passage.tuple.start(packet);
    if passage.tuple.read(frame, scratch).is_err() {
        return Again::Judge;
    }
    let is_opening = passage.tuple.is_opening();
    // What costs a look-up is asked last.
    let from_high = passage.tuple.is_from_high();
    if !is_opening && !passage.key.is_of(port.network, &passage.tuple, from_high) {
        return Again::Judge;
    }
    passage.take_sender(tables, port.port_id);
    passage.take_receiver(tables, number(to));
    let (sender, receiver) = (&passage.sender, &passage.receiver);
    let last = &passage.last;
    // The switch is shown each packet.
    if (sender.flags | receiver.flags) & GUARD_SWITCHED != 0 {
        return Again::Judge;
    }
    let by = stamps(sender, receiver, is_opening || last.is_onward(from_high));
    let is_known = if is_opening {
        // What is between ends without sets is no connection.
        sender.egress | sender.ingress | receiver.egress | receiver.ingress != 0
            && passage.tuple.tcp & RST == 0
            && passage.allowed.is_for(port.network, &passage.tuple, by)
    } else {
        last.is_as_before(by, tables.now())
    };
    if !is_known {
        return Again::Judge;
    }
    if sender.egress != 0 && is_stray(port, act, scratch, tables) {
        return Again::Judge;
    }
    if is_opening {
        return Again::Open;
    }
    if last.has_news(&passage.tuple, from_high) {
        let flags = last.after(&passage.tuple, from_high);
        if !tables.tell(&passage.key, last.news(&passage.tuple, from_high)) {
            return Again::Judge;
        }
        passage.last.flags = flags;
    }
    Again::Pass
}
