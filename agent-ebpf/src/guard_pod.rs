//! Judge the frames that a port of a guarded network sends.
//!
//! A frame comes here after it was decided what becomes of it.

use agent_common::drop::DropReason;
use agent_common::guard::{self, GUARD_SWITCHED, Passage};
use agent_common::map::{JUMP_CARRY, JUMP_GUARD_POD, JUMP_PUBLISH};
use agent_common::policy::{Act, Scratch};
use agent_common::port::Port;

use crate::maps::{self, GuardedTables};
use crate::skb::Skb;
use crate::verdict::{self, Verdict};

/// Has a frame of this port judged, unless it passes as the one before.
///
/// # Errors
/// `NoProgram`: the program that judges is missing, else it does not return.
#[inline(always)]
pub(crate) fn judge(
    skb: &Skb<'_>,
    port: &Port,
    (act, packed): (Act, u32),
    scratch: &Scratch,
) -> Result<(), DropReason> {
    let Some(passage) = maps::passage() else {
        return Err(DropReason::NoProgram);
    };
    let tables = GuardedTables::new(port.home, passage);
    if guard::repeats(skb, port, act, scratch, &tables, passage) {
        return Ok(());
    }
    Err(ask(skb, port, packed, passage))
}

/// Has a frame judged, of which this has been decided.
///
/// Returns only when the program that judges is missing.
#[inline(always)]
pub(crate) fn ask(skb: &Skb<'_>, port: &Port, packed: u32, passage: &mut Passage) -> DropReason {
    // The next programs have no need to look it up.
    passage.port = *port;
    passage.act = packed;
    maps::jump(skb.ctx, JUMP_GUARD_POD);
    DropReason::NoProgram
}

#[inline(always)]
pub(crate) fn run(skb: &Skb<'_>) -> Verdict {
    let (Some(scratch), Some(passage)) = (maps::scratch(), maps::passage()) else {
        return verdict::drop(skb, None, DropReason::NoProgram);
    };
    passage.words.seen = 0;
    let reason = match Act::unpack(passage.act) {
        Some(act) => {
            let tables = GuardedTables::new(passage.port.home, passage);
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
    let port = Some((passage.port.network, passage.port.port_id));
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
