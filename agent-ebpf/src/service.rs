//! Translates packets to Services, and the answers.

use agent_common::addr::{GATEWAY_MAC, MacAddr};
use agent_common::drop::DropReason;
use agent_common::endpoint::{ENDPOINT_NO_PEER, Endpoint};
use agent_common::guard::Passage;
use agent_common::icmp_error::IcmpError;
use agent_common::map::{JUMP_ICMP_ERROR, JUMP_REPLY, ROOT_FROM_POD};
use agent_common::packet::{ETH_P_IP, ETH_P_IPV6, Frame as _};
use agent_common::policy::{self, Act, Scratch};
use agent_common::port::{PORT_GUARD, PORT_NODE, Port};
use agent_common::service::{self, Client, Work};

use crate::deliver::deliver;
use crate::from_pod::hand_to_node;
use crate::guard_pod;
use crate::maps::{self, PortCounter, ServedTables};
use crate::skb::Skb;
use crate::verdict::{self, Verdict};

/// In the cursor: the receiver has no fast way in.
const NO_PEER: u32 = 1 << 16;
/// In the cursor: a program of ours has written the packet, and its sums.
const WRITTEN: u32 = 1 << 17;

/// Translates what a pod sends to a Service; it was parsed by the program before.
#[inline(always)]
pub(crate) fn run(skb: &Skb<'_>) -> Verdict {
    let (Some(scratch), Some(passage), Some(work)) =
        (maps::scratch(), maps::passage(), maps::work())
    else {
        return verdict::drop(skb, None, DropReason::NoProgram);
    };
    let Some(port) = maps::port(skb.ifindex()) else {
        return verdict::drop(skb, None, DropReason::NoPort);
    };
    let tables = ServedTables::new(passage);
    let from = (port.network, port.port_id);
    let mut reason = DropReason::Undeliverable;
    match service::request(skb, Client::of(port), scratch, &tables, work) {
        Ok(()) if work.is_to_self() && skb.is_too_fine() => reason = DropReason::SmallSegments,
        Ok(()) if !skb.translate(scratch, work) => {}
        Ok(()) if work.is_to_self() => {
            let (packets, bytes) = (skb.segments(), skb.length() as u32);
            let to = Endpoint {
                ifindex: port.home,
                flags: ENDPOINT_NO_PEER,
                mac: port.mac,
                port_id: port.port_id,
            };
            skb.clear_mark();
            if skb.swap_in_macs(port.mac, GATEWAY_MAC) && deliver(skb, &to) {
                maps::count_port(port.port_id, PortCounter::FromPod, packets, bytes);
                return Verdict::Redirected;
            }
        }
        Ok(()) => {
            maps::root(skb.ctx, ROOT_FROM_POD);
            reason = DropReason::NoProgram;
        }
        Err(DropReason::NoService)
            if service::quoted(skb, (port.network, true), scratch, &tables, work) =>
        {
            if skb.translate_quoted(scratch, work) {
                maps::root(skb.ctx, ROOT_FROM_POD);
                reason = DropReason::NoProgram;
            }
        }
        // The node's stack may know better: it has the Services of all protocols, and connections of before.
        Err(DropReason::NoService | DropReason::PolicyFragment) if port.flags & PORT_NODE != 0 => {
            match leave_to_node(skb, port, passage) {
                Ok(verdict) => return verdict,
                Err(refused) => reason = refused,
            }
        }
        Err(refused) => reason = refused,
    }
    let dropped = verdict::drop(skb, Some(from), reason);
    if matches!(
        reason,
        DropReason::NoService | DropReason::NoBackend | DropReason::ServiceClash
    ) {
        let [kind, mtu] = IcmpError::Refused.pack();
        skb.set_cursor([kind, mtu, 0]);
        maps::jump(skb.ctx, JUMP_ICMP_ERROR);
    }
    dropped
}

/// Leaves a packet to a Service as it is to the node's stack, if policies allow it.
///
/// # Errors
/// As of [`hand_to_node`]; `NoProgram`.
#[inline(always)]
fn leave_to_node(skb: &Skb<'_>, port: &Port, passage: &mut Passage) -> Result<Verdict, DropReason> {
    if port.flags & PORT_GUARD == 0 {
        return hand_to_node(skb, port);
    }
    Err(match Act::Node.pack() {
        Some(packed) => guard_pod::ask(skb, port, packed, passage),
        None => DropReason::NoProgram,
    })
}

/// Passes a packet of the node's stack on, as an answer of a Service if it is one.
#[inline(always)]
pub(crate) fn reply_to(skb: &Skb<'_>) -> Verdict {
    let (Some(scratch), Some(passage), Some(work), Some(port)) = (
        maps::scratch(),
        maps::passage(),
        maps::work(),
        maps::port(skb.ifindex()),
    ) else {
        return verdict::drop(skb, None, DropReason::NoProgram);
    };
    if answer(skb, port.network, scratch, passage, work) == Answer::Broken {
        let to = Some((port.network, port.port_id));
        return verdict::drop(skb, to, DropReason::Undeliverable);
    }
    Verdict::Pass
}

/// A packet to a client, as a Service has it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// It is of no Service.
    None,
    /// It is translated.
    Translated,
    /// The kernel does not translate it.
    Broken,
}

/// Translates an answer of a Service, or an error about what a client has sent.
///
/// What cannot be read is none, nor is what has no addresses.
#[inline(always)]
fn answer(
    skb: &Skb<'_>,
    network: u32,
    scratch: &mut Scratch,
    passage: &mut Passage,
    work: &mut Work,
) -> Answer {
    let tables = ServedTables::new(passage);
    if !matches!(policy::read(skb, scratch), Ok(ETH_P_IP | ETH_P_IPV6)) {
        return Answer::None;
    }
    let is_translated = if service::reply(skb, network, scratch, &tables, work) {
        skb.translate(scratch, work)
    } else if service::quoted(skb, (network, false), scratch, &tables, work) {
        skb.translate_quoted(scratch, work)
    } else {
        return Answer::None;
    };
    if is_translated {
        Answer::Translated
    } else {
        Answer::Broken
    }
}

/// Has a packet to a port of a network with Services delivered.
///
/// Returns only when that program is missing.
#[inline(always)]
pub(crate) fn deliver_served(skb: &Skb<'_>, network: u32, to: &Endpoint) {
    let mut how = u32::from(to.port_id);
    if to.flags & ENDPOINT_NO_PEER != 0 {
        how |= NO_PEER;
    }
    skb.set_cursor([to.ifindex, how, network]);
    maps::jump(skb.ctx, JUMP_REPLY);
}

/// Has an error about a packet of this port delivered to it, as [`deliver_served`].
#[inline(always)]
pub(crate) fn tell_sender(skb: &Skb<'_>, port: &Port) {
    let how = u32::from(port.port_id) | NO_PEER | WRITTEN;
    skb.set_cursor([port.home, how, port.network]);
    maps::jump(skb.ctx, JUMP_REPLY);
}

/// Delivers a packet, as an answer of a Service if it is one.
#[inline(always)]
pub(crate) fn reply(skb: &Skb<'_>) -> Verdict {
    let [ifindex, how, network] = skb.cursor();
    let skb = &skb.written(how & WRITTEN != 0);
    let to = Endpoint {
        ifindex,
        flags: if how & NO_PEER != 0 {
            ENDPOINT_NO_PEER
        } else {
            0
        },
        mac: MacAddr([0; 6]),
        port_id: (how & 0xffff) as u16,
    };
    let mut refusal = DropReason::Undeliverable;
    if let (Some(scratch), Some(passage), Some(work)) =
        (maps::scratch(), maps::passage(), maps::work())
    {
        let is_whole = match answer(skb, network, scratch, passage, work) {
            Answer::None => true,
            // The Service's address is at the gateway's, on a network that is switched, too.
            Answer::Translated => skb.come_from(GATEWAY_MAC),
            Answer::Broken => false,
        };
        if is_whole && deliver(skb, &to) {
            return Verdict::Redirected;
        }
    } else {
        refusal = DropReason::NoProgram;
    }
    verdict::drop(skb, Some((network, to.port_id)), refusal)
}
