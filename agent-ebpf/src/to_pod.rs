//! Let pass what the node's stack sends to a pod, judged and translated.
//!
//! Only the host ends of ports that the node routes for have this: what goes to others never meets that stack.

use agent_common::drop::DropReason;
use agent_common::guard::{self, Origin};
use agent_common::map::{JUMP_GUARD_TO, JUMP_REPLY_TO};
use agent_common::port::{PORT_GUARD, PORT_SERVED, Port};

use crate::maps::{self, GuardedTables};
use crate::skb::Skb;
use crate::verdict::{self, Verdict};

#[inline(always)]
pub(crate) fn run(skb: &Skb<'_>) -> Verdict {
    // An agent of before this program, which was put in place again, has its ports in other maps.
    let Some(port) = maps::port(skb.ifindex()) else {
        return Verdict::Pass;
    };
    if port.flags & PORT_GUARD != 0 {
        maps::jump(skb.ctx, JUMP_GUARD_TO);
        // A port has the mark only while the program is there. An agent of before has no such programs, and took ours
        // away.
        return Verdict::Pass;
    }
    pass(skb, port)
}

/// Passes a packet on, translated where it may be an answer of a Service.
#[inline(always)]
fn pass(skb: &Skb<'_>, port: &Port) -> Verdict {
    if port.flags & PORT_SERVED != 0 {
        maps::jump(skb.ctx, JUMP_REPLY_TO);
    }
    Verdict::Pass
}

#[inline(always)]
pub(crate) fn judge(skb: &Skb<'_>) -> Verdict {
    let (Some(scratch), Some(passage)) = (maps::scratch(), maps::passage()) else {
        return verdict::drop(skb, None, DropReason::NoProgram);
    };
    let Some(port) = maps::port(skb.ifindex()) else {
        return verdict::drop(skb, None, DropReason::NoPort);
    };
    passage.port = *port;
    let tables = GuardedTables::new(port.home, passage);
    let origin = origin(skb, passage.port.network);
    match guard::from_node(skb, origin, scratch, &tables, passage) {
        Ok(()) => pass(skb, port),
        Err(reason) => {
            let port = Some((passage.port.network, passage.port.port_id));
            verdict::drop(skb, port, reason)
        }
    }
}

/// The link by which a packet came to the node, if it came.
#[inline(always)]
fn origin(skb: &Skb<'_>, network: u32) -> Origin {
    let from = skb.came_by();
    if from == 0 {
        return Origin::Node;
    }
    match maps::port(from) {
        Some(port) if port.network == network => Origin::Port(port.port_id),
        _ => Origin::Elsewhere,
    }
}
