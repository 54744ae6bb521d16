//! Carry frames of networks with an uplink, out of the node and into it.
//!
//! They leave as they are, in no tunnel.

use agent_common::addr::{GATEWAY_MAC, Ip16, MacAddr};
use agent_common::drop::DropReason;
use agent_common::endpoint::{ENDPOINT_OUTSIDE, Endpoint};
use agent_common::guard::End;
use agent_common::map::{JUMP_ANSWER, JUMP_FLOOD, JUMP_TO_WIRE};
use agent_common::network::{NETWORK_NEXT_HOP, NETWORK_TRUNK, Network};
use agent_common::packet::{Frame as _, L3};
use agent_common::policy::Family;
use agent_common::port::Port;
use agent_common::segments::repeat_too_much;
use agent_common::wire::{self, AF_INET6, Incoming, NextHop};

use crate::answer::{Answer, FromWire};
use crate::deliver::{Refusal, one_hop_less};
use crate::guard_in::deliver_to;
use crate::maps::{self, NodeTables, PortCounter};
use crate::skb::Skb;
use crate::tunnel::NO_PORT;
use crate::verdict::{self, Verdict};

/// Sender that `flood` is told for a frame from an uplink.
///
/// No interface has this index.
pub(crate) const FROM_WIRE: u32 = u32::MAX;

/// In the cursor of `to_wire`: as it is, or routed.
const AS_IT_IS: u32 = 0;
const ROUTED_V4: u32 = 4;
const ROUTED_V6: u32 = 6;
/// Mark of a frame to a router, not to a member.
const OUTSIDE: u32 = 8;

/// Has a pod's frame sent out of its network's uplink, to `member` if it is named.
///
/// A program, and so a stack, of its own sends it. Returns only when that program is missing.
#[inline(always)]
pub(crate) fn to(skb: &Skb<'_>, member: Option<(&Endpoint, Family)>) -> DropReason {
    let cursor = match member {
        None => [AS_IT_IS, 0, 0],
        Some((to, family)) => {
            let MacAddr([a, b, c, d, e, f]) = to.mac;
            let how = match family {
                Family::V4 => ROUTED_V4,
                Family::V6 => ROUTED_V6,
            };
            let outside = to.flags & ENDPOINT_OUTSIDE != 0;
            let how = if outside { how | OUTSIDE } else { how };
            let low = u32::from_ne_bytes([a, b, c, d]);
            [how, low, u32::from_ne_bytes([e, f, 0, 0])]
        }
    };
    skb.set_cursor(cursor);
    maps::jump(skb.ctx, JUMP_TO_WIRE);
    DropReason::NoProgram
}

/// Carries it out.
#[inline(always)]
pub(crate) fn leave(skb: &Skb<'_>) -> Verdict {
    let Some(port) = maps::port(skb.ifindex()) else {
        return verdict::drop(skb, None, DropReason::NoPort);
    };
    let [how, low, high] = skb.cursor();
    let [a, b, c, d] = low.to_ne_bytes();
    let [e, f, ..] = high.to_ne_bytes();
    let to = MacAddr([a, b, c, d, e, f]);
    let family = if how & ROUTED_V6 == ROUTED_V6 {
        Family::V6
    } else {
        Family::V4
    };
    let refused = if skb.is_too_fine() {
        Some(DropReason::SmallSegments)
    } else {
        refuse(skb, port)
    };
    if let Some(reason) = refused {
        return verdict::drop(skb, Some((port.network, port.port_id)), reason);
    }
    let sent = match how {
        AS_IT_IS => send(skb, port),
        _ if how & OUTSIDE != 0 => route_outside(skb, port, family),
        _ => route(skb, port, to, family),
    };
    match sent {
        Ok(true) => Verdict::Redirected,
        Ok(false) => {
            let who = Some((port.network, port.port_id));
            verdict::drop(skb, who, DropReason::Undeliverable)
        }
        Err((who, reason)) => verdict::drop(skb, who, reason),
    }
}

/// Why a frame of a pod may not leave by an uplink, for a member or for all.
#[inline(always)]
pub(crate) fn refuse(skb: &Skb<'_>, port: &Port) -> Option<DropReason> {
    if repeat_too_much(skb, port.mtu) {
        Some(DropReason::TooBig)
    } else if wire::forges_tunnel(skb, port) {
        Some(DropReason::TunnelPort)
    } else {
        None
    }
}

/// Sends a frame of a pod out of its network's uplink.
#[inline(always)]
fn send(skb: &Skb<'_>, port: &Port) -> Result<bool, Refusal> {
    let network = network_of(port)?;
    skb.clear_mark();
    let (packets, bytes) = (skb.segments(), skb.length() as u32);
    let sent = tag(skb, network) && skb.send(network.uplink);
    if sent {
        maps::count_port(port.port_id, PortCounter::FromPod, packets, bytes);
    }
    Ok(sent)
}

/// Sends a packet of a pod to a member on another node.
#[inline(always)]
fn route(skb: &Skb<'_>, port: &Port, to: MacAddr, family: Family) -> Result<bool, Refusal> {
    let network = network_of(port)?;
    if network.flags & NETWORK_NEXT_HOP == 0 {
        // Switches learn where the pod is, and the virtual gateway is on no wire.
        return if skb.swap_in_macs(to, port.mac) && one_hop_less(skb, family) {
            send(skb, port)
        } else {
            Ok(false)
        };
    }
    let hop = destination(skb, family)
        .and_then(|ip| maps::next_hop(port.network, &ip))
        .ok_or_else(|| no_uplink(port))?;
    by_router(skb, port, network, hop, family)
}

/// Sends a packet of a pod to the router of the node's own default route.
#[inline(always)]
fn route_outside(skb: &Skb<'_>, port: &Port, family: Family) -> Result<bool, Refusal> {
    let network = network_of(port)?;
    let refuse = |reason| (Some((port.network, port.port_id)), reason);
    let ip = destination(skb, family).ok_or_else(|| refuse(DropReason::Truncated))?;
    // Routers would send it back.
    if wire::is_own(network, port.network, &ip, &NodeTables { home: 0 }) {
        return Err(refuse(DropReason::NoEndpoint));
    }
    let hop = maps::next_hop(port.network, &wire::outside(family));
    let hop = hop.ok_or_else(|| no_uplink(port))?;
    by_router(skb, port, network, hop, family)
}

#[inline(always)]
fn by_router(
    skb: &Skb<'_>,
    port: &Port,
    network: &Network,
    hop: &NextHop,
    family: Family,
) -> Result<bool, Refusal> {
    skb.clear_mark();
    let (packets, bytes) = (skb.segments(), skb.length() as u32);
    let sent = one_hop_less(skb, family)
        && skb.send_by(network.uplink, hop.family == AF_INET6, &hop.address);
    if sent {
        maps::count_port(port.port_id, PortCounter::FromPod, packets, bytes);
    }
    Ok(sent)
}

/// Sends a copy of what is for all, and leaves the frame as it was.
#[inline(always)]
pub(crate) fn copy(skb: &Skb<'_>, network: &Network) {
    if network.uplink == 0 || !tag(skb, network) {
        return;
    }
    // An uplink that is going away takes its copy with it.
    let _ = skb.copy_to(network.uplink);
    if network.vlan != 0 {
        let _ = skb.pop_tag();
    }
}

#[inline(always)]
fn network_of(port: &Port) -> Result<&'static Network, Refusal> {
    maps::network(port.network)
        .filter(|network| network.uplink != 0)
        .ok_or_else(|| no_uplink(port))
}

#[inline(always)]
const fn no_uplink(port: &Port) -> Refusal {
    (Some((port.network, port.port_id)), DropReason::NoUplink)
}

/// The tag of a trunk's pod is the pod's own.
#[inline(always)]
fn tag(skb: &Skb<'_>, network: &Network) -> bool {
    network.vlan == 0 || skb.push_tag(network.vlan)
}

#[inline(always)]
fn destination(skb: &Skb<'_>, family: Family) -> Option<Ip16> {
    match family {
        Family::V4 => skb.load::<4>(L3 + 16).map(Ip16::from_v4),
        Family::V6 => skb.load::<16>(L3 + 24).map(Ip16),
    }
}

/// Takes what is for pods of this node; everything else is the node's.
#[inline(always)]
pub(crate) fn receive(skb: &Skb<'_>) -> Verdict {
    let Some(tag) = skb.tag() else {
        return Verdict::Pass;
    };
    let vlan = tag.vlan();
    let by_address = if vlan == 0 { addressed(skb) } else { None };
    let Some(number) = by_address.or_else(|| maps::wire_segment(skb.ifindex(), vlan)) else {
        return Verdict::Pass;
    };
    let Some(network) = maps::network(number) else {
        return Verdict::Pass;
    };
    let refuse = |reason| verdict::drop(skb, Some((number, NO_PORT)), reason);
    // A pod of a trunk gets its frames with their tags.
    let tagged = tag.is_there() && network.flags & NETWORK_TRUNK == 0;
    let delivered = match wire::incoming(skb, network, number, &NodeTables { home: 0 }) {
        Incoming::Leave => return Verdict::Pass,
        Incoming::Drop(reason) => return refuse(reason),
        Incoming::Deliver(endpoint) => {
            skb.clear_mark();
            (!tagged || skb.pop_tag()) && deliver_to(skb, number, End::Outside, &endpoint)
        }
        Incoming::Route(endpoint) => {
            skb.clear_mark();
            (!tagged || skb.pop_tag())
                && skb.swap_in_macs(endpoint.mac, GATEWAY_MAC)
                && deliver_to(skb, number, End::Outside, &endpoint)
        }
        Incoming::ArpReply(endpoint) => {
            return refuse(answer(skb, network, number, &endpoint, Answer::Arp));
        }
        Incoming::NdReply(endpoint) => {
            return refuse(answer(skb, network, number, &endpoint, Answer::Nd));
        }
        Incoming::Flood => {
            if tagged && !skb.pop_tag() {
                return refuse(DropReason::Undeliverable);
            }
            skb.keep_for_node(if tagged { tag.bits() } else { 0 });
            // Copies for limited ports wait there in their flow's queue.
            skb.sort_by_flow();
            skb.set_cursor([0, number, FROM_WIRE]);
            maps::jump(skb.ctx, JUMP_FLOOD);
            return hand_back(skb);
        }
    };
    if delivered {
        Verdict::Redirected
    } else {
        refuse(DropReason::Undeliverable)
    }
}

/// Says where the address of a pod is.
///
/// Returns only when the program that does so is missing.
#[inline(always)]
fn answer(
    skb: &Skb<'_>,
    network: &Network,
    number: u32,
    holder: &Endpoint,
    by: fn(MacAddr) -> Answer,
) -> DropReason {
    let mac = if network.flags & NETWORK_NEXT_HOP == 0 {
        Some(holder.mac)
    } else {
        maps::uplink(skb.ifindex()).map(|uplink| uplink.mac)
    };
    let Some(mac) = mac else {
        return DropReason::NoUplink;
    };
    let asked = FromWire {
        network: number,
        port_id: holder.port_id,
    };
    skb.set_cursor(asked.pack(by(mac)));
    maps::jump(skb.ctx, JUMP_ANSWER);
    DropReason::NoProgram
}

/// The frame goes on to the node as it came.
#[inline(always)]
pub(crate) fn hand_back(skb: &Skb<'_>) -> Verdict {
    if skb.give_to_node() {
        Verdict::Pass
    } else {
        Verdict::Consumed
    }
}

/// Returns the network of the pod that a packet is for, or that it asks for.
///
/// The packet is for this node's MAC address.
#[inline(always)]
fn addressed(skb: &Skb<'_>) -> Option<u32> {
    if skb.is_for_another() {
        return None;
    }
    // Almost all of it is the node's own traffic: no more than one look for that.
    let destination = if skb.is_for_host() {
        wire::destination(skb)
    } else {
        None
    };
    let ip = match destination {
        Some(ip) => ip,
        None => wire::asked_for(skb)?,
    };
    maps::wire_address(skb.ifindex(), ip)
}
