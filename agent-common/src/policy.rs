//! Decision about one frame of a pod: anti-spoofing, then L2 or L3 forwarding.
//!
//! Four stages, each a file: `parse` reads headers, `rights` refuses what the port may not send, `resolve` looks
//! up the receiver, `forward` says what becomes of the frame. The TC program and every other engine call
//! [`decide`] or [`decide_in`] with the same inputs and carry out the same [`Decision`]. Nothing that is not
//! explicitly allowed passes.

use crate::drop::DropReason;
use crate::packet::{ETH_P_ARP, ETH_P_IP, ETH_P_IPV6, Frame};
use crate::port::Port;

mod decision;
mod forward;
mod parse;
mod resolve;
mod rights;
mod scratch;
mod tables;

pub use self::decision::{Act, Decision, Family};
pub(crate) use self::rights::{carries_alone, carries_on_wire};
pub use self::scratch::{Packet, Scratch};
pub use self::tables::Tables;

use self::decision::Step;
use self::rights::Intent;

/// Decides about a frame that `port` sent.
#[inline(always)]
pub fn decide<F: Frame + ?Sized, T: Tables>(frame: &F, port: &Port, tables: &T) -> Decision {
    let mut scratch = Scratch::EMPTY;
    decide_in(frame, port, tables, &mut scratch).with(&scratch)
}

/// Decides the same, and leaves the values of the decision in the scratch.
#[inline(always)]
pub fn decide_in<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    scratch: &mut Scratch,
) -> Act {
    match stages(frame, port, tables, scratch) {
        Ok(act) | Err(act) => act,
    }
}

/// Reads the headers of a frame into the scratch; returns its EtherType.
///
/// # Errors
/// `Truncated`, `Malformed`, `Ipv6Headers`.
#[inline(always)]
pub fn read<F: Frame + ?Sized>(frame: &F, scratch: &mut Scratch) -> Result<u16, DropReason> {
    match headers(frame, scratch) {
        Ok(ether_type) => Ok(ether_type),
        Err(Act::Drop(reason)) => Err(reason),
        Err(_) => Err(DropReason::Malformed),
    }
}

/// Reads the headers of a frame.
///
/// Not a closure: the compiler would make a call of it, whose frame has no room on the stack.
#[inline(always)]
fn headers<F: Frame + ?Sized>(frame: &F, scratch: &mut Scratch) -> Step<u16> {
    scratch.partial = frame.partial();
    let ether_type = parse::ethernet(frame, scratch)?;
    match ether_type {
        ETH_P_IP => parse::ipv4(frame, scratch)?,
        ETH_P_IPV6 => parse::ipv6(frame, scratch)?,
        _ => {}
    }
    Ok(ether_type)
}

#[inline(always)]
fn stages<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    scratch: &mut Scratch,
) -> Step<Act> {
    // Before anything else, so that on the stack it has the place of what comes later.
    scratch.partial = frame.partial();
    rights::vlan(frame, port, tables)?;
    let ether_type = parse::ethernet(frame, scratch)?;
    rights::ethernet(frame, port, ether_type, scratch)?;
    let intent = match ether_type {
        ETH_P_IP => {
            parse::ipv4(frame, scratch)?;
            rights::ipv4(frame, port, tables, scratch)?
        }
        ETH_P_IPV6 => {
            parse::ipv6(frame, scratch)?;
            rights::ipv6(frame, port, tables, scratch)?
        }
        ETH_P_ARP => rights::arp(frame, port, tables, scratch)?,
        other => rights::other(port, tables, other, scratch)?,
    };
    match intent {
        Intent::Switch => {
            let is_ip = matches!(ether_type, ETH_P_IP | ETH_P_IPV6);
            forward::by_mac(frame, port, tables, scratch, is_ip)
        }
        Intent::Route => forward::by_ip(frame, port, tables, scratch),
        Intent::AskArp => forward::answer_arp(frame, port, tables, scratch, false),
        Intent::ProbeArp => forward::answer_arp(frame, port, tables, scratch, true),
        Intent::AskNd => forward::answer_nd(frame, port, tables, scratch),
    }
}
