//! What comes in by an interface of the node: tunnels of other nodes are podnet's, and the rest is
//! left to the node as it is.

use crate::maps;
use crate::skb::Skb;
use crate::tunnel;
use crate::verdict::Verdict;

#[inline(always)]
pub(crate) fn run(skb: &Skb<'_>) -> Verdict {
    let Some(uplink) = maps::uplink(skb.ifindex()) else {
        return Verdict::Pass;
    };
    tunnel::receive(skb, uplink)
}
