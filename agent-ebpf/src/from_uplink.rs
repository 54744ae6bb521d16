//! Take podnet's packets from an interface of the node.
//!
//! These are tunnels of other nodes, and frames of a network that has the interface as its uplink. The rest
//! is left to the node as it is.

use agent_common::map::JUMP_WIRE;
use agent_common::uplink::UPLINK_WIRES;

use crate::maps;
use crate::skb::Skb;
use crate::tunnel;
use crate::verdict::Verdict;

#[inline(always)]
pub(crate) fn run(skb: &Skb<'_>) -> Verdict {
    let Some(uplink) = maps::uplink(skb.ifindex()) else {
        return Verdict::Pass;
    };
    let verdict = if uplink.port == [0; 2] {
        Verdict::Pass
    } else {
        tunnel::receive(skb, uplink)
    };
    if uplink.flags & UPLINK_WIRES != 0 && matches!(verdict, Verdict::Pass) {
        maps::jump(skb.ctx, JUMP_WIRE);
    }
    verdict
}
