//! Copying a frame to every other port of its network.

use agent_common::flood::{FLOOD_CHUNKS, FLOOD_CLOSED};
use agent_common::guard::{ARP_MAX, ND_MAX};
use agent_common::map::JUMP_FLOOD;
use agent_common::packet::{
    ETH_HLEN, ETH_P_ARP, ETH_P_IPV6, Frame as _, IPPROTO_ICMPV6, IPV6_HLEN, L3,
};
use agent_common::tail_call::FLOOD_CHUNKS_A_CALL;

use crate::maps;
use crate::skb::Skb;
use crate::storm;
use crate::verdict::Verdict;
use crate::wire;

/// Copies a frame to the ports of a few chunks, and calls itself for the next.
///
/// The cursor has the first of these chunks, then the network and whether the frame is paid for, then the
/// sender's own interface: 0 when it is on another node, or [`wire::FROM_WIRE`].
#[inline(always)]
pub(crate) fn run(skb: &Skb<'_>) -> Verdict {
    let [first, marked, sender] = skb.cursor();
    let (network, is_paid) = storm::network_of(marked);
    if !is_paid && let Err(verdict) = storm::pay(skb, network, sender, 0) {
        return if sender == wire::FROM_WIRE {
            wire::hand_back(skb)
        } else {
            verdict
        };
    }
    let next = first + FLOOD_CHUNKS_A_CALL;
    let is_judged = !serves_the_link(skb);
    for chunk in first..next {
        let Some(ports) = maps::flood_ports(network, chunk) else {
            return end(skb, sender);
        };
        let count = ports.count as usize;
        for (index, to) in ports.ifindexes.iter().enumerate() {
            if index >= count {
                return end(skb, sender);
            }
            let to = maps::listed(to);
            if to & FLOOD_CLOSED != 0 && is_judged {
                continue;
            }
            let to = to & !FLOOD_CLOSED;
            if to != sender && to != 0 {
                // After the interface was read, before it gets a copy.
                if !maps::is_flood_of(ports, network) {
                    return end(skb, sender);
                }
                // A port that is going away takes its copy with it.
                let _ = skb.copy_to(to);
            }
        }
    }
    if next < FLOOD_CHUNKS {
        skb.set_cursor([next, storm::paid(network), sender]);
        maps::jump(skb.ctx, JUMP_FLOOD);
    }
    end(skb, sender)
}

/// True for ARP and neighbour discovery, which ports get under any policies.
///
/// As of frames for one port: hosts send short ones, and a longer one carries something else.
/// What a pod or an uplink may send of these was checked before.
#[inline(always)]
fn serves_the_link(skb: &Skb<'_>) -> bool {
    match skb.load::<2>(ETH_HLEN - 2).map(u16::from_be_bytes) {
        Some(ETH_P_ARP) => skb.length() <= ARP_MAX,
        Some(ETH_P_IPV6) => match skb.load::<2>(L3 + 6) {
            Some([IPPROTO_ICMPV6, 255]) => match skb.load::<1>(L3 + IPV6_HLEN) {
                Some([133 | 135 | 136]) => skb.length() <= L3 + IPV6_HLEN + ND_MAX,
                kind => matches!(kind, Some([134])),
            },
            _ => false,
        },
        _ => false,
    }
}

/// Leaves a frame that an uplink brought for all hosts to the node too.
#[inline(always)]
fn end(skb: &Skb<'_>, sender: u32) -> Verdict {
    if sender == wire::FROM_WIRE {
        wire::hand_back(skb)
    } else {
        Verdict::Consumed
    }
}
