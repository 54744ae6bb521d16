//! Translate what errors of ICMP quote (RFC 792, RFC 4443).
//!
//! An error about a packet to a backend quotes the backend, of which the client has never heard; one about an answer quotes
//! the Service, of which the backend has not. So what is quoted becomes what its sender has sent, and path MTU discovery
//! and "connection refused" work by a Service as they do without.

use super::entry::{BACK, TO_BACKEND};
use super::tables::ServiceTables;
use super::translate::{Work, is_served};
use crate::addr::Ip16;
use crate::guard::related;
use crate::packet::Frame;
use crate::policy::Scratch;

/// Ends of an error as it leaves.
///
/// They lie as in [`Packet`](crate::policy::Packet), source first.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outer {
    /// Source address.
    pub source: Ip16,
    /// Destination address.
    pub destination: Ip16,
    /// Where the ports of the quoted packet are in the frame, bytes.
    pub ports: usize,
}

impl Outer {
    /// Of no packet.
    pub const EMPTY: Self = Self {
        source: Ip16::NONE,
        destination: Ip16::NONE,
        ports: 0,
    };
}

/// Reports whether a packet is an error about one of a connection by a Service.
///
/// [`Work::came`] is the packet that it quotes, [`Work::leaves`] what it shall quote, and [`Work::outer`] what its own
/// addresses are then.
///
/// `is_of_client`: a client sends it, about an answer that it got. Only the receiver of an answer has anything to say about it.
/// Else it is for a client, about what that has sent, and any router may say so.
#[inline(always)]
pub fn quoted<F: Frame + ?Sized, T: ServiceTables>(
    frame: &F,
    (network, is_of_client): (u32, bool),
    scratch: &Scratch,
    tables: &T,
    work: &mut Work,
) -> bool {
    let packet = &scratch.packet;
    if !related::is_about_another(frame, packet) {
        return false;
    }
    work.came.start(packet);
    let Some(ports) = related::quote(frame, packet, &mut work.came) else {
        return false;
    };
    let work = tables.again(work);
    let came = &work.came;
    let is_from_receiver = !is_of_client || came.destination.same(&packet.source);
    // The quoted packet is on its way from the end that gets the error.
    if !is_served(came.protocol) || !came.source.same(&packet.destination) || !is_from_receiver {
        return false;
    }
    let from_high = came.is_from_high();
    work.key.write(network, &work.came, from_high);
    let work = tables.again(work);
    let place = tables.place(&work.key);
    // What is quoted goes the other way than the packets that the entry is for.
    let kind = if is_of_client { TO_BACKEND } else { BACK };
    if !tables.find(place, &work.key, &mut work.found)
        || work.found.target.kind != kind
        || work.found.words.is_onward(from_high) == is_of_client
        || !work.found.words.is_alive(work.came.protocol, tables.now())
    {
        return false;
    }
    let work = tables.again(work);
    work.leaves = work.came;
    let target = &work.found.target;
    if is_of_client {
        work.leaves.source.set(&target.ip);
        work.leaves.source_port = target.port;
    } else {
        work.leaves.destination.set(&target.ip);
        work.leaves.destination_port = target.port;
    }
    let work = tables.again(work);
    if !is_of_client && !is_at(network, tables, work) {
        return false;
    }
    let work = tables.again(work);
    // The end that the quoted packet was for says it by the name that it was called; a router has its own.
    if packet.source.same(&work.came.destination) {
        work.outer.source.set(&work.leaves.destination);
    } else {
        work.outer.source.set(&packet.source);
    }
    work.outer.destination.set(&work.leaves.source);
    work.outer.ports = ports;
    true
}

/// Reports whether the client is at this backend still, or at none.
///
/// Its answers are of no Service, else, and no more are its errors.
#[inline(always)]
fn is_at<T: ServiceTables>(network: u32, tables: &T, work: &mut Work) -> bool {
    let from_high = work.leaves.is_from_high();
    let protocol = work.came.protocol;
    work.other_key.write(network, &work.leaves, from_high);
    let work = tables.again(work);
    let place = tables.place(&work.other_key);
    if !tables.find(place, &work.other_key, &mut work.other)
        || !work.other.words.is_alive(protocol, tables.now())
    {
        return true;
    }
    let (came, target) = (&work.came, &work.other.target);
    target.kind == TO_BACKEND
        && target.port == came.destination_port
        && target.ip.same(&came.destination)
}
