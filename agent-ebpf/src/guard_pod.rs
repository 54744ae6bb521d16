//! Judge the frames that a port of a guarded network sends.
//!
//! A frame comes here after it was decided what becomes of it.

use agent_common::drop::DropReason;
use agent_common::guard::{self, FlowWords, GUARD_SWITCHED};
use agent_common::map::{JUMP_CARRY, JUMP_GUARD_POD, JUMP_PUBLISH};
use agent_common::policy::Act;

use crate::maps::{self, GuardedTables};
use crate::skb::Skb;
use crate::verdict::{self, Verdict};

/// Has a frame judged, of which the scratch of this CPU has the rest.
///
/// Returns only when the program that judges is missing.
#[inline(always)]
pub(crate) fn judge(skb: &Skb<'_>, act: u32) -> DropReason {
    skb.set_cursor([act, 0, 0]);
    maps::jump(skb.ctx, JUMP_GUARD_POD);
    DropReason::NoProgram
}

#[inline(always)]
pub(crate) fn run(skb: &Skb<'_>) -> Verdict {
    let (Some(scratch), Some(passage)) = (maps::scratch(), maps::passage()) else {
        return verdict::drop(skb, None, DropReason::NoProgram);
    };
    let Some(port) = maps::port(skb.ifindex()) else {
        return verdict::drop(skb, None, DropReason::NoPort);
    };
    passage.port = *port;
    [passage.act, ..] = skb.cursor();
    passage.words = FlowWords::NONE;
    let reason = match Act::unpack(passage.act) {
        Some(act) => {
            let tables = GuardedTables::new(port.home);
            guard::depart(skb, act, scratch, &tables, passage).err()
        }
        None => Some(DropReason::NoProgram),
    };
    if reason.is_none() {
        let switched = (passage.sender.flags | passage.receiver.flags) & GUARD_SWITCHED;
        if switched != 0 && passage.words.seen != 0 {
            maps::jump(skb.ctx, JUMP_PUBLISH);
        }
        maps::jump(skb.ctx, JUMP_CARRY);
    }
    let port = Some((port.network, port.port_id));
    verdict::drop(skb, port, reason.unwrap_or(DropReason::NoProgram))
}

/// Shows the switch the connection of a frame that was let pass.
///
/// The switch may carry over the next ones by itself.
#[inline(always)]
pub(crate) fn publish(skb: &Skb<'_>) -> Verdict {
    if let Some(passage) = maps::passage() {
        maps::publish(&passage.key, &passage.words);
    }
    maps::jump(skb.ctx, JUMP_CARRY);
    verdict::drop(skb, None, DropReason::NoProgram)
}
