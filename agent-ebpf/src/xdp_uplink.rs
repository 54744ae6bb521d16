//! What comes in by an interface of the node, before the kernel makes an skb of it: what a tunnel brings
//! that no network here wants ends at once. The rest goes on untouched, the node's own and what is for
//! pods alike: `from_uplink` sees it with what only an skb knows, its segments and what became of its
//! checksums.

use agent_common::addr::MacAddr;
use agent_common::outer::{self, Outer};
use agent_common::packet::{ETH_HLEN, ETH_P_IP, ETH_P_IPV6, Frame, Start};
use agent_common::vtep::{ADDED_V4, ADDED_V6};

use crate::maps::{self, Sample as _};
use crate::tunnel;
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
    let length = xdp.length();
    match u16::from_be_bytes([t0, t1]) {
        ETH_P_IP => {
            let outer = xdp.load::<ADDED_V4>(0);
            match outer.and_then(|outer| outer::v4(&outer, length, uplink)) {
                Some(outer) => judge::<ADDED_V4>(xdp, &outer),
                None => Early::Pass,
            }
        }
        ETH_P_IPV6 => {
            let outer = xdp.load::<ADDED_V6>(0);
            match outer.and_then(|outer| outer::v6(&outer, length, uplink)) {
                Some(outer) => judge::<ADDED_V6>(xdp, &outer),
                None => Early::Pass,
            }
        }
        _ => Early::Pass,
    }
}

/// The inner frame begins `AT` bytes after the outer one.
#[inline(always)]
fn judge<const AT: usize>(xdp: &Xdp<'_>, outer: &Outer) -> Early {
    match tunnel::judge(outer, &InnerFrame::<AT> { xdp }) {
        Err((network, reason)) => verdict::drop_early(xdp, network, reason),
        Ok(_) => Early::Pass,
    }
}

/// The frame in a tunnel's packet.
struct InnerFrame<'a, 'b, const AT: usize> {
    xdp: &'a Xdp<'b>,
}

impl<const AT: usize> Frame for InnerFrame<'_, '_, AT> {
    #[inline(always)]
    fn length(&self) -> usize {
        self.xdp.length() - AT
    }

    /// What generic XDP is shown may have been merged of several packets, and nothing tells. What is too
    /// large is dropped where that is known.
    #[inline(always)]
    fn segment_length(&self) -> usize {
        0
    }

    /// One beside the packet would be the outer frame's.
    #[inline(always)]
    fn has_vlan_tag(&self) -> bool {
        false
    }

    #[inline(always)]
    fn load<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.xdp.load::<N>(AT + offset)
    }

    #[inline(always)]
    fn start(&self) -> Start {
        self.xdp.start_at(AT)
    }
}
