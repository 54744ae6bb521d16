//! Judge a frame from elsewhere for a guarded port, and deliver it.
//!
//! Its network was found, and its sender believed, by the program before.

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use agent_common::endpoint::{
    ENDPOINT_GUARD, ENDPOINT_NO_PEER, ENDPOINT_ROUTES, ENDPOINT_SERVED, Endpoint,
};
use agent_common::guard::{self, End};
use agent_common::map::JUMP_GUARD_IN;

use crate::deliver::deliver;
use crate::maps::{self, GuardedTables};
use crate::service::deliver_served;
use crate::skb::Skb;
use crate::verdict::{self, Verdict};

/// In the cursor: the receiver has no fast way in.
const NO_PEER: u32 = 1 << 16;
/// The sender is no member on another node.
const OUTSIDE: u32 = 1 << 17;
/// The network has Services.
const SERVED: u32 = 1 << 18;
/// The sender may be of another network.
const ROUTES: u32 = 1 << 19;

/// Delivers a frame of a network to a port of this node, by its policies if any.
///
/// False when the kernel refuses, and when the program that judges is missing.
#[inline(always)]
pub(crate) fn deliver_to(skb: &Skb<'_>, network: u32, from: End, to: &Endpoint) -> bool {
    if to.flags & ENDPOINT_GUARD == 0 {
        return bring(skb, network, to);
    }
    let mut how = u32::from(to.port_id);
    if to.flags & ENDPOINT_NO_PEER != 0 {
        how |= NO_PEER;
    }
    if to.flags & ENDPOINT_SERVED != 0 {
        how |= SERVED;
    }
    if to.flags & ENDPOINT_ROUTES != 0 {
        how |= ROUTES;
    }
    if from == End::Outside {
        how |= OUTSIDE;
    }
    skb.set_cursor([to.ifindex, how, network]);
    maps::jump(skb.ctx, JUMP_GUARD_IN);
    false
}

/// Delivers a frame, which may be an answer of a Service.
#[inline(always)]
fn bring(skb: &Skb<'_>, network: u32, to: &Endpoint) -> bool {
    if to.flags & ENDPOINT_SERVED == 0 {
        return deliver(skb, to);
    }
    deliver_served(skb, network, to);
    false
}

#[inline(always)]
pub(crate) fn run(skb: &Skb<'_>) -> Verdict {
    let [ifindex, how, network] = skb.cursor();
    let to = Endpoint {
        ifindex,
        flags: (if how & NO_PEER != 0 {
            ENDPOINT_NO_PEER
        } else {
            0
        }) | (if how & SERVED != 0 {
            ENDPOINT_SERVED
        } else {
            0
        }) | (if how & ROUTES != 0 {
            ENDPOINT_ROUTES
        } else {
            0
        }),
        mac: MacAddr([0; 6]),
        port_id: (how & 0xffff) as u16,
    };
    let from = if how & OUTSIDE != 0 {
        End::Outside
    } else {
        End::Member
    };
    let judged = match (maps::scratch(), maps::passage()) {
        (Some(scratch), Some(passage)) => {
            let tables = GuardedTables::new(0, passage);
            guard::arrive(skb, (network, from), &to, scratch, &tables, passage)
        }
        _ => Err(DropReason::NoProgram),
    };
    let refusal = match judged {
        Ok(()) if bring(skb, network, &to) => return Verdict::Redirected,
        Ok(()) => DropReason::Undeliverable,
        Err(reason) => reason,
    };
    verdict::drop(skb, Some((network, to.port_id)), refusal)
}
