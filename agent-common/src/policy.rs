//! Decision about one frame of a pod: anti-spoofing, then L2 or L3 forwarding.
//!
//! Four stages, each a file: `parse` reads headers, `guard` refuses what the port may not send, `resolve` looks
//! up the receiver, `forward` says what becomes of the frame. The TC program and every other engine call
//! [`decide`] or [`decide_in`] with the same inputs and carry out the same [`Decision`]. Nothing that is not
//! explicitly allowed passes.

use crate::packet::{ETH_P_ARP, ETH_P_IP, ETH_P_IPV6, Frame};
use crate::port::Port;

mod decision;
mod forward;
mod guard;
mod parse;
mod resolve;
mod scratch;
mod tables;

pub use self::decision::{Act, Decision, Family};
pub(crate) use self::guard::{carries_alone, carries_on_wire};
pub use self::scratch::{Packet, Scratch};
pub use self::tables::Tables;

use self::decision::Step;
use self::guard::Intent;

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

#[inline(always)]
fn stages<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    scratch: &mut Scratch,
) -> Step<Act> {
    // Before anything else, so that on the stack it has the place of what comes later.
    scratch.partial = frame.partial();
    guard::vlan(frame, port, tables)?;
    let ether_type = parse::ethernet(frame, scratch)?;
    guard::ethernet(frame, port, ether_type, scratch)?;
    let intent = match ether_type {
        ETH_P_IP => {
            parse::ipv4(frame, scratch)?;
            guard::ipv4(frame, port, tables, scratch)?
        }
        ETH_P_IPV6 => {
            parse::ipv6(frame, scratch)?;
            guard::ipv6(frame, port, tables, scratch)?
        }
        ETH_P_ARP => guard::arp(frame, port, tables, scratch)?,
        other => guard::other(port, tables, other, scratch)?,
    };
    match intent {
        Intent::Switch => {
            let is_ip = matches!(ether_type, ETH_P_IP | ETH_P_IPV6);
            forward::by_mac(port, tables, scratch, is_ip)
        }
        Intent::Route => forward::by_ip(frame, port, tables, scratch),
        Intent::AskArp => forward::answer_arp(port, tables, scratch, false),
        Intent::ProbeArp => forward::answer_arp(port, tables, scratch, true),
        Intent::AskNd => forward::answer_nd(port, tables, scratch),
    }
}
