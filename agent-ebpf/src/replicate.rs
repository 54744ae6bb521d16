//! Replicate a frame to every other node with ports of its network.
//!
//! Head-end replication: the sender's node makes the copies.

use agent_common::map::{JUMP_FLOOD, JUMP_REPLICATE};
use agent_common::network::NETWORK_WIRE;
use agent_common::tail_call::VTEP_CHUNKS_A_CALL;
use agent_common::vtep::VTEP_CHUNKS;

use crate::maps;
use crate::skb::Skb;
use crate::storm;
use crate::verdict::{self, Verdict};
use crate::wire;

/// Copies a frame to the nodes of a few chunks, and calls itself for the next.
///
/// After the last it calls `flood` for the ports of this node. The cursor is that of `flood`.
#[inline(always)]
pub(crate) fn run(skb: &Skb<'_>) -> Verdict {
    let [first, marked, sender] = skb.cursor();
    let (network, is_paid) = storm::network_of(marked);
    // Beyond the uplink others copy.
    let uplink = maps::network(network).filter(|facts| facts.flags & NETWORK_WIRE != 0);
    if uplink.is_some()
        && let Some(port) = maps::port(sender)
        && let Some(reason) = wire::refuse(skb, port)
    {
        return verdict::drop(skb, Some((network, port.port_id)), reason);
    }
    if !is_paid {
        let nodes = if uplink.is_some() {
            1
        } else {
            maps::flood_vteps(network, 0).map_or(0, |vteps| u32::from(vteps.total))
        };
        if let Err(verdict) = storm::pay(skb, network, sender, nodes) {
            return verdict;
        }
    }
    if let Some(facts) = uplink {
        wire::copy(skb, facts);
        return here(skb, network, sender);
    }
    let next = first + VTEP_CHUNKS_A_CALL;
    for chunk in first..next {
        let Some(vteps) = maps::flood_vteps(network, chunk) else {
            return here(skb, network, sender);
        };
        let count = vteps.count as usize;
        for (index, number) in vteps.vteps.iter().enumerate() {
            if index >= count {
                return here(skb, network, sender);
            }
            copy_to(skb, network, *number);
        }
    }
    if next < VTEP_CHUNKS {
        skb.set_cursor([next, storm::paid(network), sender]);
        maps::jump(skb.ctx, JUMP_REPLICATE);
    }
    here(skb, network, sender)
}

/// A node that is going away takes its copy with it.
#[inline(always)]
fn copy_to(skb: &Skb<'_>, network: u32, number: u16) {
    if let Some(vtep) = maps::vtep(u32::from(number))
        && skb.name_tunnel(network, vtep)
    {
        let _ = skb.copy_to(vtep.device);
    }
}

/// Copies for the ports of this node.
#[inline(always)]
fn here(skb: &Skb<'_>, network: u32, sender: u32) -> Verdict {
    skb.set_cursor([0, storm::paid(network), sender]);
    maps::jump(skb.ctx, JUMP_FLOOD);
    Verdict::Consumed
}
