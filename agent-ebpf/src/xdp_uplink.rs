//! What comes in by an interface of the node, before the kernel makes an skb of it: what a tunnel brings
//! that no network here wants ends at once. The rest goes on untouched, the node's own and what is for
//! pods alike: `from_uplink` sees it with what only an skb knows, its segments and what became of its
//! checksums.

use agent_common::addr::MacAddr;
use agent_common::outer::Outer;
use agent_common::packet::{ETH_HLEN, Start};
use agent_common::uplink::Uplink;

use crate::maps::{self, Sample as _};
use crate::tunnel::{self, InnerFrame, Packet};
use crate::verdict::{self, Early};
use crate::xdp::Xdp;

#[inline(always)]
pub(crate) fn run(xdp: &Xdp<'_>) -> Early {
    let Some(uplink) = maps::uplink(xdp.ifindex()) else {
        return Early::Pass;
    };
    let Some([d0, d1, d2, d3, d4, d5, .., t0, t1]) = xdp.load::<ETH_HLEN>(0) else {
        return Early::Pass;
    };
    // A driver may have taken a tag off: what is for another station is none of ours in any VLAN.
    if !uplink.has_tunnels() || MacAddr([d0, d1, d2, d3, d4, d5]) != uplink.mac {
        return Early::Pass;
    }
    tunnel::open(xdp, u16::from_be_bytes([t0, t1]), uplink).unwrap_or(Early::Pass)
}

impl Packet for Xdp<'_> {
    type Verdict = Early;

    #[inline(always)]
    fn whole(&self) -> usize {
        self.length()
    }

    #[inline(always)]
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.load::<N>(offset)
    }

    #[inline(always)]
    fn start_at(&self, offset: usize) -> Start {
        Xdp::start_at(self, offset)
    }

    /// What generic XDP is shown may have been merged of several packets, and nothing tells. What is too
    /// large is dropped where that is known.
    #[inline(always)]
    fn segment_length_of(&self, _length: usize) -> usize {
        0
    }

    #[inline(always)]
    fn take<const AT: usize>(&self, _uplink: &Uplink, outer: &Outer) -> Early {
        match tunnel::judge(outer, &InnerFrame::<_, AT> { packet: self }) {
            Err((network, reason)) => verdict::drop_early(self, network, reason),
            Ok(_) => Early::Pass,
        }
    }
}
