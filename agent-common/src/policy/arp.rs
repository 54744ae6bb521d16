//! ARP (RFC 826): what a port may say and ask, and what it is told.

use super::{Decision, Step, Tables, drop, forward, load, owns_v4};
use crate::addr::{GATEWAY_MAC, Ip16, MacAddr};
use crate::drop::DropReason;
use crate::endpoint::ENDPOINT_GATEWAY;
use crate::packet::{ARP_FRAME, ETH_HLEN, Frame, L3};
use crate::port::{PORT_ANY_IP, PORT_L3, PORT_WIRE, Port};

#[inline(always)]
pub(super) fn arp<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    to: MacAddr,
) -> Step<Decision> {
    let packet = load::<{ ARP_FRAME - ETH_HLEN }, F>(frame, L3)?;
    let [
        h0,
        h1,
        p0,
        p1,
        hlen,
        plen,
        o0,
        o1,
        a0,
        a1,
        a2,
        a3,
        a4,
        a5,
        s0,
        s1,
        s2,
        s3,
        ..,
    ] = packet;
    let [.., t0, t1, t2, t3] = packet;
    if [h0, h1, p0, p1, hlen, plen, o0] != [0, 1, 0x08, 0x00, 6, 4, 0] || !matches!(o1, 1 | 2) {
        return drop(DropReason::Malformed);
    }
    let (sender, target) = ([s0, s1, s2, s3], [t0, t1, t2, t3]);
    if MacAddr([a0, a1, a2, a3, a4, a5]) != port.mac {
        return drop(DropReason::SpoofedArp);
    }
    if port.flags & PORT_ANY_IP != 0 {
        return forward(port, tables, to);
    }
    let request = o1 == 1;
    let probe = request && sender == [0; 4];
    if !probe && !owns_v4(port, tables, sender) {
        return drop(DropReason::SpoofedArp);
    }
    let l3 = port.flags & PORT_L3 != 0;
    if !request {
        return if l3 {
            Ok(Decision::Ignore)
        } else {
            forward(port, tables, to)
        };
    }
    if owns_v4(port, tables, target) {
        // An announcement (RFC 5227) tells the others; a probe for one's own address tells nobody.
        return if probe || l3 {
            Ok(Decision::Ignore)
        } else {
            forward(port, tables, to)
        };
    }
    match tables.endpoint(port.network, &Ip16::from_v4(target)) {
        Some(found) if l3 && !probe && found.flags & ENDPOINT_GATEWAY == 0 => {
            Ok(Decision::ArpReply(GATEWAY_MAC))
        }
        Some(found) => Ok(Decision::ArpReply(found.mac)),
        None if port.flags & PORT_WIRE != 0 => forward(port, tables, to),
        None => drop(DropReason::NoEndpoint),
    }
}
