//! Deliver a packet to a port of this node, and count the hop of a routed one.

use agent_common::drop::DropReason;
use agent_common::endpoint::{ENDPOINT_NO_PEER, Endpoint};
use agent_common::packet::{Frame as _, L3};
use agent_common::policy::Family;

use crate::maps::{self, PortCounter};
use crate::skb::Skb;

/// Where the TTL, the protocol and the checksum of an IPv4 header are.
const TTL: usize = L3 + 8;
const IPV4_CHECKSUM: usize = L3 + 10;
const HOP_LIMIT: usize = L3 + 7;

/// The network and the port of a packet that ends here, and the reason.
pub(crate) type Refusal = (Option<(u32, u16)>, DropReason);

/// Delivers a packet into a pod of this node.
#[inline(always)]
pub(crate) fn deliver(skb: &Skb<'_>, to: &Endpoint) -> bool {
    let sent = if to.flags & ENDPOINT_NO_PEER != 0 {
        skb.sort_by_flow();
        skb.send(to.ifindex)
    } else {
        skb.send_to_peer(to.ifindex)
    };
    if sent {
        maps::count_port(
            to.port_id,
            PortCounter::ToPod,
            skb.segments(),
            skb.length() as u32,
        );
    }
    sent
}

#[inline(always)]
pub(crate) fn one_hop_less(skb: &Skb<'_>, family: Family) -> bool {
    match family {
        Family::V4 => one_hop_less_v4(skb),
        Family::V6 => one_hop_less_v6(skb),
    }
}

#[inline(always)]
fn one_hop_less_v4(skb: &Skb<'_>) -> bool {
    let Some([ttl, protocol]) = skb.load::<2>(TTL) else {
        return false;
    };
    let old = u16::from_ne_bytes([ttl, protocol]);
    let new = u16::from_ne_bytes([ttl - 1, protocol]);
    skb.ctx
        .l3_csum_replace(IPV4_CHECKSUM, u64::from(old), u64::from(new), 2)
        .is_ok()
        && skb.store(TTL, &[ttl - 1])
}

#[inline(always)]
fn one_hop_less_v6(skb: &Skb<'_>) -> bool {
    let Some([hops]) = skb.load::<1>(HOP_LIMIT) else {
        return false;
    };
    skb.store(HOP_LIMIT, &[hops - 1])
}
