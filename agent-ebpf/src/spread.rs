//! Copying a frame to every other node that has ports of its network (head-end replication).

use agent_common::map::{JUMP_FLOOD, JUMP_SPREAD};
use agent_common::network::NETWORK_WIRE;
use agent_common::vtep::VTEP_CHUNKS;

use crate::maps;
use crate::skb::Skb;
use crate::verdict::Verdict;
use crate::wire;

/// Copies to the nodes of one chunk, calls itself for the next, and then `flood` for this node. The
/// cursor is that of `flood`.
#[inline(always)]
pub(crate) fn run(skb: &Skb<'_>) -> Verdict {
    let [chunk, network, sender] = skb.cursor();
    // Beyond the uplink others copy.
    if let Some(facts) = maps::network(network)
        && facts.flags & NETWORK_WIRE != 0
    {
        wire::copy(skb, facts);
        return here(skb, network, sender);
    }
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
    if chunk + 1 < VTEP_CHUNKS {
        skb.set_cursor([chunk + 1, network, sender]);
        maps::jump(skb, JUMP_SPREAD);
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
    skb.set_cursor([0, network, sender]);
    maps::jump(skb, JUMP_FLOOD);
    Verdict::Consumed
}
