//! Copying a frame to every other port of its network.

use agent_common::flood::FLOOD_CHUNKS;
use agent_common::map::JUMP_FLOOD;

use crate::maps;
use crate::skb::Skb;
use crate::verdict::Verdict;

/// Copies to the ports of one chunk and calls itself for the next. The cursor is the chunk, the
/// network, and the sender's own interface, or 0 when it is on another node.
#[inline(always)]
pub(crate) fn run(skb: &Skb<'_>) -> Verdict {
    let [chunk, network, sender] = skb.cursor();
    let Some(ports) = maps::flood_ports(network, chunk) else {
        return Verdict::Consumed;
    };
    let count = ports.count as usize;
    for (index, to) in ports.ifindexes.iter().enumerate() {
        if index >= count {
            return Verdict::Consumed;
        }
        if *to != sender && *to != 0 {
            // A port that is going away takes its copy with it.
            let _ = skb.copy_to(*to);
        }
    }
    if chunk + 1 < FLOOD_CHUNKS {
        skb.set_cursor([chunk + 1, network, sender]);
        maps::jump(skb, JUMP_FLOOD);
    }
    Verdict::Consumed
}
