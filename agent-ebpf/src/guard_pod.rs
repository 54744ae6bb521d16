//! Judge the frames that a port of a guarded network sends.
//!
//! A frame comes here after it was decided what becomes of it.

use agent_common::drop::DropReason;
use agent_common::guard;
use agent_common::map::{JUMP_CARRY, JUMP_GUARD_POD};
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
    let reason = match Act::unpack(passage.act) {
        Some(act) => {
            let tables = GuardedTables::new(port.home);
            guard::depart(skb, act, scratch, &tables, passage).err()
        }
        None => Some(DropReason::NoProgram),
    };
    if reason.is_none() {
        maps::jump(skb.ctx, JUMP_CARRY);
    }
    let port = Some((port.network, port.port_id));
    verdict::drop(skb, port, reason.unwrap_or(DropReason::NoProgram))
}
