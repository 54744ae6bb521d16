//! Copying a frame to every other port of its network.

use agent_common::flood::FLOOD_CHUNKS;
use agent_common::map::JUMP_FLOOD;
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
    for chunk in first..next {
        let Some(ports) = maps::flood_ports(network, chunk) else {
            return end(skb, sender);
        };
        let count = ports.count as usize;
        for (index, to) in ports.ifindexes.iter().enumerate() {
            if index >= count {
                return end(skb, sender);
            }
            if *to != sender && *to != 0 {
                // A port that is going away takes its copy with it.
                let _ = skb.copy_to(*to);
            }
        }
    }
    if next < FLOOD_CHUNKS {
        skb.set_cursor([next, storm::paid(network), sender]);
        maps::jump(skb.ctx, JUMP_FLOOD);
    }
    end(skb, sender)
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
