//! Carries out what is decided about a frame that another node sent through a tunnel.

use agent_common::arrival::{self, Arrival, Origin};
use agent_common::drop::DropReason;
use agent_common::map::JUMP_FLOOD;

use crate::from_pod::deliver;
use crate::maps::{self, NodeTables};
use crate::skb::Skb;
use crate::tunnel::NO_PORT;
use crate::verdict::{self, Verdict};

#[inline(always)]
pub(crate) fn run(skb: &Skb<'_>) -> Verdict {
    receive(skb).unwrap_or_else(|(network, reason)| {
        let network = network.map(|network| (network, NO_PORT));
        verdict::drop(skb, network, reason)
    })
}

#[inline(always)]
fn receive(skb: &Skb<'_>) -> Result<Verdict, (Option<u32>, DropReason)> {
    let Some((number, source)) = skb.tunnel() else {
        return Err((None, DropReason::UnknownNode));
    };
    let vtep = maps::vtep_of(&source).ok_or((None, DropReason::UnknownNode))?;
    let network = maps::network(number).ok_or((None, DropReason::UnknownNetwork))?;
    let refuse = |reason| Err((Some(number), reason));
    let origin = Origin {
        network: number,
        vtep,
    };
    skb.clear_mark();
    match arrival::arrive(skb, network, origin, &NodeTables { home: 0 }) {
        Arrival::Drop(reason) => refuse(reason),
        Arrival::Deliver(endpoint) => {
            if deliver(skb, &endpoint) {
                Ok(Verdict::Redirected)
            } else {
                refuse(DropReason::Undeliverable)
            }
        }
        Arrival::Flood => {
            skb.sort_by_flow();
            skb.set_cursor([0, number, 0]);
            maps::jump(skb, JUMP_FLOOD);
            refuse(DropReason::NoProgram)
        }
    }
}
