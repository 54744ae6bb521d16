//! Carry out the decision about a frame that another node sent through a tunnel.

use agent_common::drop::DropReason;
use agent_common::guard::End;
use agent_common::map::JUMP_FLOOD;

use crate::guard_in::deliver_to;
use crate::maps;
use crate::skb::Skb;
use crate::tunnel::{self, NO_PORT, Refused};
use crate::verdict::{self, Verdict};

#[inline(always)]
pub(crate) fn run(skb: &Skb<'_>) -> Verdict {
    receive(skb).unwrap_or_else(|(network, reason)| {
        let network = network.map(|network| (network, NO_PORT));
        verdict::drop(skb, network, reason)
    })
}

#[inline(always)]
fn receive(skb: &Skb<'_>) -> Result<Verdict, Refused> {
    let Some((number, source)) = skb.tunnel() else {
        return Err((None, DropReason::UnknownNode));
    };
    let receiver = tunnel::arrive(&source, number, skb)?;
    skb.clear_mark();
    let Some(endpoint) = receiver else {
        skb.sort_by_flow();
        skb.set_cursor([0, number, 0]);
        maps::jump(skb.ctx, JUMP_FLOOD);
        return Err((Some(number), DropReason::NoProgram));
    };
    if deliver_to(skb, number, End::Member, &endpoint) {
        Ok(Verdict::Redirected)
    } else {
        Err((Some(number), DropReason::Undeliverable))
    }
}
