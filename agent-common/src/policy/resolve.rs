//! Third stage: looks up the receiver in the tables of the port's network.

use super::decision::{Act, Step, drop};
use super::scratch::Scratch;
use super::tables::Tables;
use crate::addr::{GATEWAY_MAC, Ip16, MacAddr};
use crate::drop::DropReason;
use crate::endpoint::{
    ENDPOINT_GATEWAY, ENDPOINT_OUTSIDE, ENDPOINT_REMOTE, ENDPOINT_WIRE, Endpoint,
};
use crate::port::Port;

/// Looks up the receiver of a frame on an L2 network; false when there is none.
///
/// # Errors
/// `Flood` for a group.
#[inline(always)]
pub(super) fn station<T: Tables>(port: &Port, tables: &T, scratch: &mut Scratch) -> Step<bool> {
    let to = destination(scratch);
    if to.is_group() {
        return Err(Act::Flood);
    }
    Ok(keep(tables.station(port.network, to), &mut scratch.to))
}

/// Looks up the receiver of a packet that goes by the virtual gateway.
///
/// # Errors
/// `Multicast`, and `NoEndpoint` for another station than the gateway.
#[inline(always)]
pub(super) fn endpoint<T: Tables>(port: &Port, tables: &T, scratch: &mut Scratch) -> Step<bool> {
    let to = destination(scratch);
    if to.is_group() {
        return drop(DropReason::Multicast);
    }
    if to != GATEWAY_MAC {
        return drop(DropReason::NoEndpoint);
    }
    let found = holder(port, tables, &scratch.packet.destination);
    Ok(keep(found, &mut scratch.to))
}

/// Looks up the receiver in the network to which the gateway routes.
///
/// False when it has no route there.
///
/// # Errors
/// `NoEndpoint` when that network has no such address, and when none has it; `SpoofedIp` when it does not lead back.
#[inline(always)]
pub(super) fn beyond<T: Tables>(port: &Port, tables: &T, scratch: &mut Scratch) -> Step<bool> {
    let Some(route) = tables.route(port.network, &scratch.packet.destination) else {
        return Ok(false);
    };
    scratch.route.network = route.network;
    scratch.route.mtu = route.mtu;
    // No endpoint is in network 0. The way out is no way for what the gateway has a route for.
    let found = tables.endpoint(route.network, &scratch.packet.destination);
    if !keep(found, &mut scratch.to) {
        return drop(DropReason::NoEndpoint);
    }
    // Another node asks the same of what it gets.
    if scratch.to.flags & (ENDPOINT_REMOTE | ENDPOINT_GATEWAY) == 0 {
        let back = match tables.route(route.network, &scratch.packet.source) {
            Some(back) => back.network,
            None => 0,
        };
        if back != port.network {
            return drop(DropReason::SpoofedIp);
        }
    }
    Ok(true)
}

/// Looks up the endpoint with the packet's address; false when there is none.
#[inline(always)]
pub(super) fn addressee<T: Tables>(port: &Port, tables: &T, scratch: &mut Scratch) -> bool {
    let found = holder(port, tables, &scratch.packet.destination);
    keep(found, &mut scratch.to)
}

/// Reports whether a frame is for the virtual gateway.
#[inline(always)]
pub(super) fn is_for_gateway(scratch: &Scratch) -> bool {
    destination(scratch) == GATEWAY_MAC
}

/// Reports whether an endpoint is another port.
#[inline(always)]
pub(super) const fn is_heir(port: &Port, to: &Endpoint) -> bool {
    let no_port = ENDPOINT_GATEWAY | ENDPOINT_OUTSIDE | ENDPOINT_WIRE;
    to.flags & no_port == 0 && to.port_id != port.port_id
}

/// Looks up the endpoint with [`Scratch::target`]; false when there is none.
#[inline(always)]
pub(super) fn target<T: Tables>(port: &Port, tables: &T, scratch: &mut Scratch) -> bool {
    let found = holder(port, tables, &scratch.target);
    keep(found, &mut scratch.to)
}

/// Looks up the network's way to the outside; false when there is none.
#[inline(always)]
pub(super) fn way_out<T: Tables>(port: &Port, tables: &T, scratch: &mut Scratch) -> bool {
    let found = tables.way_out(port.network);
    keep(found, &mut scratch.to) && scratch.to.flags & ENDPOINT_OUTSIDE != 0
}

/// Looks up the endpoint with an address.
#[inline(always)]
pub(super) fn holder<T: Tables>(port: &Port, tables: &T, ip: &Ip16) -> Option<Endpoint> {
    tables.endpoint(port.network, ip)
}

#[inline(always)]
fn destination(scratch: &Scratch) -> MacAddr {
    MacAddr(scratch.start.field::<0, 6>())
}

/// Copies an endpoint that was found field by field.
///
/// A whole is copied from map to map by a function, with a stack and a loop of its own.
#[inline(always)]
fn keep(found: Option<Endpoint>, to: &mut Endpoint) -> bool {
    match found {
        Some(found) => {
            to.ifindex = found.ifindex;
            to.flags = found.flags;
            let MacAddr([a, b, c, d, e, f]) = found.mac;
            to.mac = MacAddr([a, b, c, d, e, f]);
            to.port_id = found.port_id;
            true
        }
        None => false,
    }
}
