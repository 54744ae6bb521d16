//! Check the ARP messages that a port sends (RFC 826).

use super::super::decision::{Act, Step, drop};
use super::super::scratch::Scratch;
use super::super::tables::Tables;
use super::{Intent, owns_v4};
use crate::addr::Ip16;
use crate::arp::Arp;
use crate::drop::DropReason;
use crate::packet::Frame;
use crate::port::{PORT_ANY_IP, PORT_L3, Port};

/// Refuses ARP that is not for IPv4 over Ethernet, or speaks for others.
///
/// # Errors
/// `Truncated`, `Malformed`, `SpoofedArp`. `Ignore` for messages that have done their work here.
#[inline(always)]
pub(in crate::policy) fn arp<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    scratch: &mut Scratch,
) -> Step<Intent> {
    if !scratch.partial.is_none() {
        return drop(DropReason::Malformed);
    }
    let packet = Arp::read(frame)?;
    if packet.mac != port.mac {
        return drop(DropReason::SpoofedArp);
    }
    if port.flags & PORT_ANY_IP != 0 {
        return Ok(Intent::Switch);
    }
    let probe = packet.is_probe();
    if !probe && !owns_v4(port, tables, packet.sender) {
        return drop(DropReason::SpoofedArp);
    }
    let l3 = port.flags & PORT_L3 != 0;
    if !packet.is_request {
        return if l3 {
            Err(Act::Ignore)
        } else {
            Ok(Intent::Switch)
        };
    }
    if owns_v4(port, tables, packet.target) {
        // An announcement (RFC 5227) tells the others; a probe for one's own address tells nobody.
        return if probe || l3 {
            Err(Act::Ignore)
        } else {
            Ok(Intent::Switch)
        };
    }
    scratch.target = Ip16::from_v4(packet.target);
    Ok(if probe {
        Intent::ProbeArp
    } else {
        Intent::AskArp
    })
}
