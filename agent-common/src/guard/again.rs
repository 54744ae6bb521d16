//! Recognize packets of the connection of the packet before.
//!
//! Most packets are: an engine that has them pass without more pays for the rest of them only.

use super::GUARD_SWITCHED;
use super::pass::{Passage, stamps};
use super::sides::{NO_PORT, between, is_ip, is_stray, number, port_here, receiver_network};
use super::tables::GuardTables;
use super::tuple::has_ports;
use crate::packet::Frame;
use crate::policy::{Act, Scratch};
use crate::port::Port;

/// Reports whether a frame passes as the one before, without being judged.
///
/// True for a frame of the same connection, in the same tick of the kernel's timer, by the same sets of its ends, that does
/// not open it. What it tells the entry of its connection is written there. All other frames are for
/// [`depart`](super::depart), which would let this one pass, too.
#[inline(always)]
pub fn repeats<F: Frame + ?Sized, T: GuardTables>(
    frame: &F,
    port: &Port,
    act: Act,
    scratch: &Scratch,
    tables: &T,
    passage: &mut Passage,
) -> bool {
    let packet = &scratch.packet;
    let ether_type = u16::from_be_bytes(scratch.start.field::<12, 2>());
    if !matches!(act, Act::Switch | Act::Route)
        || !is_ip(ether_type)
        || packet.fragment
        || !has_ports(packet.protocol)
    {
        return false;
    }
    let to = port_here(&scratch.to);
    if to == NO_PORT {
        return false;
    }
    passage.tuple.start(packet);
    if passage.tuple.read(frame, scratch).is_err() {
        return false;
    }
    if passage.tuple.is_opening() {
        return false;
    }
    // What costs a look-up is asked last.
    let from_high = passage.tuple.is_from_high();
    let (network, _) = between(port.network, receiver_network(port, act, scratch));
    if !passage.key.is_of(network, &passage.tuple, from_high) {
        return false;
    }
    passage.take_sender(tables, port.port_id);
    passage.take_receiver(tables, number(to));
    let (sender, receiver) = (&passage.sender, &passage.receiver);
    let last = &passage.last;
    let by = stamps(sender, receiver, last.is_onward(from_high));
    // The switch is shown each packet.
    if (sender.flags | receiver.flags) & GUARD_SWITCHED != 0
        || !last.is_as_before(by, tables.now())
        || sender.egress != 0 && is_stray(port, act, scratch, tables)
    {
        return false;
    }
    if last.has_news(&passage.tuple, from_high) {
        let flags = last.after(&passage.tuple, from_high);
        if !tables.tell(&passage.key, last.news(&passage.tuple, from_high)) {
            return false;
        }
        passage.last.flags = flags;
    }
    true
}
