//! Drop or steer packets of an interface before the kernel makes an skb of them.
//!
//! A packet of a tunnel that no network here wants ends at once, and one for a socket goes there where the
//! interface shows frames as they are on the wire. The rest goes on untouched, packets of the node and for
//! pods alike: `from_uplink` sees them with what only an skb knows, segments and the state of checksums.

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use agent_common::endpoint::{ENDPOINT_SERVED, ENDPOINT_SOCKET, Endpoint};
use agent_common::outer::Outer;
use agent_common::packet::{ETH_HLEN, Start};
use agent_common::uplink::{UPLINK_STEERS, Uplink};

use crate::maps::{self, PortCounter, Sample as _};
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
    let received = Received {
        xdp,
        steers: uplink.flags & UPLINK_STEERS != 0,
    };
    tunnel::open(&received, u16::from_be_bytes([t0, t1]), uplink).unwrap_or(Early::Pass)
}

/// A frame, and whether it is as it was on the wire.
struct Received<'a> {
    xdp: &'a Xdp<'a>,
    steers: bool,
}

impl Received<'_> {
    /// Takes the tunnel's headers off and hands the frame to the port's own link.
    ///
    /// The link brings it to the socket.
    #[inline(always)]
    fn give<const AT: usize>(&self, to: &Endpoint, network: u32) -> Early {
        let bytes = (self.xdp.length() - AT) as u32;
        if !self.xdp.take_off(AT as i32) {
            return Early::Pass;
        }
        if !self.xdp.send(to.ifindex) {
            return verdict::drop_early(self.xdp, Some(network), DropReason::Undeliverable);
        }
        maps::count_port(to.port_id, PortCounter::ToPod, 1, bytes);
        Early::Redirected
    }
}

impl Packet for Received<'_> {
    type Verdict = Early;

    #[inline(always)]
    fn whole(&self) -> usize {
        self.xdp.length()
    }

    #[inline(always)]
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.xdp.load::<N>(offset)
    }

    #[inline(always)]
    fn start_at(&self, offset: usize) -> Start {
        self.xdp.start_at(offset)
    }

    /// Returns the length of the packet on a wire, bytes; 0 where it is unknown.
    ///
    /// Generic XDP may be shown a frame merged of several packets, and nothing tells. One that is too large is
    /// dropped where that is known.
    #[inline(always)]
    fn segment_length_of(&self, length: usize) -> usize {
        if self.steers { length } else { 0 }
    }

    #[inline(always)]
    fn take<const AT: usize>(&self, _uplink: &Uplink, outer: &Outer) -> Early {
        match tunnel::judge(outer, &InnerFrame::<_, AT> { packet: self }) {
            Err((network, reason)) => verdict::drop_early(self.xdp, network, reason),
            // Congestion is marked where the inner header is known (RFC 6040).
            Ok(Some(to)) if self.steers && !outer.congested && is_socket(&to) => {
                self.give::<AT>(&to, outer.network)
            }
            Ok(_) => Early::Pass,
        }
    }
}

#[inline(always)]
const fn is_socket(to: &Endpoint) -> bool {
    to.flags & (ENDPOINT_SOCKET | ENDPOINT_SERVED) == ENDPOINT_SOCKET
}
