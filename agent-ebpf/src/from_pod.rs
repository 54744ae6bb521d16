//! Carries out what the policy decides about a frame from a pod.

use agent_common::addr::GATEWAY_MAC;
use agent_common::checksum;
use agent_common::drop::DropReason;
use agent_common::endpoint::{
    ENDPOINT_GUARD, ENDPOINT_NO_PEER, ENDPOINT_OUTSIDE, ENDPOINT_REMOTE, ENDPOINT_SERVED, Endpoint,
};
use agent_common::icmp_error::IcmpError;
use agent_common::map::{JUMP_ANSWER, JUMP_FLOOD, JUMP_ICMP_ERROR, JUMP_REPLICATE, JUMP_SERVICE};
use agent_common::packet::Frame as _;
use agent_common::policy::{self, Act, Family, Scratch};
use agent_common::port::{PORT_GUARD, PORT_REPLICATE, Port};
use agent_common::route::Route;

use crate::answer::Answer;
use crate::deliver::{Refusal, deliver, one_hop_less};
use crate::guard_pod;
use crate::maps::{self, NodeTables, PortCounter};
use crate::service::deliver_served;
use crate::skb::Skb;
use crate::tunnel;
use crate::verdict::{self, Verdict};
use crate::wire;

#[inline(always)]
pub(crate) fn run(skb: &Skb<'_>) -> Verdict {
    end(skb, forward(skb))
}

/// Goes on with a frame that policies let pass.
#[inline(always)]
pub(crate) fn carry(skb: &Skb<'_>) -> Verdict {
    end(skb, go_on(skb))
}

#[inline(always)]
fn end(skb: &Skb<'_>, carried: Result<Verdict, Refusal>) -> Verdict {
    // One place to drop: the code that counts and samples is large.
    let (port, reason) = match carried {
        Ok(verdict) => return verdict,
        Err(refusal) => refusal,
    };
    let verdict = verdict::drop(skb, port, reason);
    if reason == DropReason::Ttl {
        prepare(skb, IcmpError::HopsSpent);
    }
    if matches!(reason, DropReason::Ttl | DropReason::PathMtu) {
        maps::jump(skb.ctx, JUMP_ICMP_ERROR);
    }
    verdict
}

/// Names the ICMP error for the sender of a packet that is dropped.
#[inline(always)]
fn prepare(skb: &Skb<'_>, error: IcmpError) {
    let [kind, mtu] = error.pack();
    skb.set_cursor([kind, mtu, 0]);
}

#[inline(always)]
fn forward(skb: &Skb<'_>) -> Result<Verdict, Refusal> {
    let ifindex = skb.ifindex();
    let port = maps::port(ifindex).ok_or((None, DropReason::NoPort))?;
    let refuse = |reason| Err((Some((port.network, port.port_id)), reason));
    let Some(scratch) = maps::scratch() else {
        return refuse(DropReason::NoProgram);
    };
    let act = policy::decide_in(skb, port, &NodeTables { home: port.home }, scratch);
    if act.leaves_the_kernel(scratch) && !checksum::of_ipv4_is_right(skb) {
        return refuse(DropReason::Malformed);
    }
    // What waits in a shaper is judged when it comes back.
    if is_guarded(port, act, &scratch.to)
        && port.shaper == 0
        && let Some(number) = act.pack()
        && let Err(reason) = guard_pod::judge(skb, port, (act, number), scratch)
    {
        return refuse(reason);
    }
    carry_out(skb, port, act, scratch)
}

/// True for a frame of a guarded network, and for one to a guarded port.
///
/// The receiver's first policy may be known before the sender's port has the mark of its network.
#[inline(always)]
const fn is_guarded(port: &Port, act: Act, to: &Endpoint) -> bool {
    let to_guard = matches!(act, Act::Switch | Act::Moved | Act::Route);
    port.flags & PORT_GUARD != 0 || to_guard && to.flags & ENDPOINT_GUARD != 0
}

#[inline(always)]
fn go_on(skb: &Skb<'_>) -> Result<Verdict, Refusal> {
    let missing = Err((None, DropReason::NoProgram));
    let (Some(scratch), Some(passage)) = (maps::scratch(), maps::passage()) else {
        return missing;
    };
    let port = &passage.port;
    let Some(act) = Act::unpack(passage.act) else {
        return missing;
    };
    carry_out(skb, port, act, scratch)
}

#[inline(always)]
fn carry_out(skb: &Skb<'_>, port: &Port, act: Act, scratch: &Scratch) -> Result<Verdict, Refusal> {
    let refuse = |reason| Err((Some((port.network, port.port_id)), reason));
    let (to, packet) = (&scratch.to, &scratch.packet);
    let done = match act {
        Act::Drop(reason) => return refuse(reason),
        Act::Switch
        | Act::Moved
        | Act::Route
        | Act::Leave
        | Act::Wire
        | Act::WireRoute
        | Act::Node
        | Act::Flood
        | Act::Service
            if port.shaper != 0 =>
        {
            // Its queue cuts what is larger than it lets go at once.
            if skb.is_too_fine() {
                return refuse(DropReason::SmallSegments);
            }
            // It comes back at the shaper's far end, whose port has none, and is decided anew: the
            // network may have changed while it waited.
            skb.clear_mark();
            skb.sort_by_flow();
            skb.send(port.shaper)
        }
        Act::Service => {
            maps::jump(skb.ctx, JUMP_SERVICE);
            return refuse(DropReason::NoProgram);
        }
        Act::Ignore => {
            count(skb, port);
            return Ok(Verdict::Consumed);
        }
        Act::Node => {
            return hand_to_node(skb, port)
                .map_err(|reason| (Some((port.network, port.port_id)), reason));
        }
        Act::Flood => {
            // What it costs is taken there.
            skb.clear_mark();
            // Copies for limited ports wait there in their flow's queue.
            skb.sort_by_flow();
            skb.set_cursor([0, port.network, port.home]);
            if port.flags & PORT_REPLICATE != 0 {
                maps::jump(skb.ctx, JUMP_REPLICATE);
            }
            maps::jump(skb.ctx, JUMP_FLOOD);
            return refuse(DropReason::NoProgram);
        }
        // One place for all three: what sends is large.
        Act::Switch | Act::Moved | Act::Leave => {
            let is_addressed = match act {
                Act::Moved => skb.swap_in_macs(to.mac, port.mac),
                Act::Leave => skb.swap_in_macs(to.mac, GATEWAY_MAC),
                _ => true,
            };
            is_addressed && send(skb, port, to, None)?
        }
        Act::Route => send(skb, port, to, Some((packet.family, &scratch.route)))?,
        Act::Wire => return refuse(wire::to(skb, None)),
        Act::WireRoute => return refuse(wire::to(skb, Some((to, packet.family)))),
        Act::ArpReply => return refuse(answer(skb, Answer::Arp(to.mac))),
        Act::NdReply => return refuse(answer(skb, Answer::Nd(to.mac))),
        Act::EchoReply => {
            return refuse(answer(skb, Answer::Echo(packet.family, packet.payload)));
        }
    };
    if done {
        Ok(Verdict::Redirected)
    } else {
        refuse(DropReason::Undeliverable)
    }
}

/// Leaves a packet to the node's stack.
///
/// # Errors
/// `SmallSegments`, `Undeliverable`.
#[inline(always)]
pub(crate) fn hand_to_node(skb: &Skb<'_>, port: &Port) -> Result<Verdict, DropReason> {
    if skb.is_too_fine() {
        return Err(DropReason::SmallSegments);
    }
    // To the node, packets for the virtual gateway's MAC address are another's.
    skb.clear_mark();
    if !skb.keep() {
        return Err(DropReason::Undeliverable);
    }
    count(skb, port);
    Ok(Verdict::Node)
}

#[inline(always)]
fn count(skb: &Skb<'_>, port: &Port) {
    maps::count_port(
        port.port_id,
        PortCounter::FromPod,
        skb.segments(),
        skb.length() as u32,
    );
}

/// Answers are rare and large: they have a program, and so a stack, of their own.
/// Returns only when that program is missing.
#[inline(always)]
fn answer(skb: &Skb<'_>, answer: Answer) -> DropReason {
    skb.set_cursor(answer.pack());
    maps::jump(skb.ctx, JUMP_ANSWER);
    DropReason::NoProgram
}

/// Sends a packet to a pod of this or another node, a hop nearer if it is routed.
///
/// `hop`: its family and the receiver's network.
///
/// The packet is counted as the pod sent it.
#[inline(always)]
fn send(
    skb: &Skb<'_>,
    port: &Port,
    to: &Endpoint,
    hop: Option<(Family, &Route)>,
) -> Result<bool, Refusal> {
    skb.clear_mark();
    if to.flags & (ENDPOINT_NO_PEER | ENDPOINT_REMOTE | ENDPOINT_OUTSIDE) != 0 && skb.is_too_fine()
    {
        return Err((
            Some((port.network, port.port_id)),
            DropReason::SmallSegments,
        ));
    }
    // A tunnel's headers are not the pod's, and the kernel forgets the number of segments for them.
    let (packets, bytes) = (skb.segments(), skb.length() as u32);
    let refusal = |reason| (Some((port.network, port.port_id)), reason);
    let network = match hop {
        Some((_, route)) => {
            if route.mtu != 0 && skb.largest_packet() > route.mtu as usize {
                prepare(skb, IcmpError::TooBig(route.mtu));
                return Err(refusal(DropReason::PathMtu));
            }
            route.network
        }
        None => port.network,
    };
    let vtep = if to.flags & ENDPOINT_REMOTE != 0 {
        let vtep = maps::vtep(to.ifindex).filter(|vtep| vtep.device != 0);
        let vtep = vtep.ok_or(refusal(DropReason::NoTunnel))?;
        if vtep.mtu != 0 && skb.largest_packet() > vtep.mtu as usize {
            // Before it is changed: the error quotes its own headers.
            prepare(skb, IcmpError::TooBig(vtep.mtu));
            return Err(refusal(DropReason::PathMtu));
        }
        Some(vtep)
    } else {
        None
    };
    if let Some((family, _)) = hop
        && !route(skb, to, family)
    {
        return Ok(false);
    }
    let sent = match vtep {
        Some(vtep) => tunnel::send(skb, network, vtep),
        None if to.flags & ENDPOINT_SERVED != 0 => {
            count(skb, port);
            deliver_served(skb, network, to);
            return Ok(false);
        }
        None => deliver(skb, to),
    };
    if sent {
        maps::count_port(port.port_id, PortCounter::FromPod, packets, bytes);
    }
    Ok(sent)
}

#[inline(always)]
fn route(skb: &Skb<'_>, to: &Endpoint, family: Family) -> bool {
    skb.swap_in_macs(to.mac, GATEWAY_MAC) && one_hop_less(skb, family)
}
