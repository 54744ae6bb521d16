//! Judge the packets that a gateway of egress sends to the node.
//!
//! They may leave the node again by an outlet, and nothing else: this holds also where the node's table of
//! nf_tables, which says more, is gone.

use agent_common::addr::Ip16;
use agent_common::drop::DropReason;
use agent_common::packet::{ETH_P_IP, ETH_P_IPV6, Frame as _, L3};

use crate::maps;
use crate::skb::Skb;
use crate::verdict::{self, Verdict};

#[inline(always)]
pub(crate) fn run(skb: &Skb<'_>) -> Verdict {
    let route = match skb.protocol() {
        ETH_P_IP => {
            let Some([a, b, c, d, e, f, g, h]) = skb.load::<8>(L3 + 12) else {
                return verdict::drop(skb, None, DropReason::Truncated);
            };
            let (from, to) = ([a, b, c, d], [e, f, g, h]);
            skb.route(
                false,
                [u32::from_ne_bytes(from), 0, 0, 0],
                [u32::from_ne_bytes(to), 0, 0, 0],
            )
        }
        ETH_P_IPV6 => {
            let (Some(from), Some(to)) = (skb.load::<16>(L3 + 8), skb.load::<16>(L3 + 24)) else {
                return verdict::drop(skb, None, DropReason::Truncated);
            };
            if to[0] == 0xff {
                // No pod's: the datapath forwards no group to a gateway. What its own links say to
                // their routers and groups ends without a word.
                return Verdict::Consumed;
            }
            skb.route(true, Ip16(from).words(), Ip16(to).words())
        }
        // The neighbours on this link are written down on both sides.
        _ => return verdict::drop(skb, None, DropReason::EtherType),
    };
    match route {
        Some(ifindex) if maps::is_outlet(ifindex) => Verdict::Pass,
        _ => verdict::drop(skb, None, DropReason::NoUplink),
    }
}
