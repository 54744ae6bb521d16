//! Take the price of a replicated frame once, before its first copy.

use agent_common::drop::DropReason;
use agent_common::packet::Frame as _;
use agent_common::storm::Flood;

use crate::maps::{self, PortCounter};
use crate::skb::Skb;
use crate::tunnel::NO_PORT;
use crate::verdict::{self, Verdict};
use crate::wire;

/// Mark of a frame that is paid for, in the cursor of `flood` and `replicate`.
///
/// It is in the word of the network.
const PAID: u32 = 1 << 31;

/// The network of a cursor, and whether its frame is paid for.
#[inline(always)]
pub(crate) const fn network_of(marked: u32) -> (u32, bool) {
    (marked & !PAID, marked & PAID != 0)
}

/// The network of a frame that is paid for, as a cursor has it.
#[inline(always)]
pub(crate) const fn paid(network: u32) -> u32 {
    network | PAID
}

/// Takes the price of a frame for `nodes` other nodes and the ports of this one.
///
/// The sender is that of a cursor.
///
/// # Errors
/// What becomes of one that may not be replicated, which is counted.
#[inline(always)]
pub(crate) fn pay(skb: &Skb<'_>, network: u32, sender: u32, nodes: u32) -> Result<(), Verdict> {
    let port = match sender {
        0 | wire::FROM_WIRE => None,
        home => maps::port(home).map(|port| port.port_id),
    };
    let ports = maps::flood_ports(network, 0).map_or(0, |ports| u32::from(ports.total));
    let own = if port.is_some() && ports != 0 { 1 } else { 0 };
    let flood = Flood {
        segments: skb.real_segments(),
        receivers: ports - own + nodes,
        ports,
    };
    // Some of those that get a copy have it cut by software.
    let admitted = if port.is_some() && skb.is_too_fine() {
        Err(DropReason::SmallSegments)
    } else {
        maps::may_flood(network, port, flood)
    };
    match admitted {
        Ok(()) => {
            if let Some(port) = port {
                let (packets, bytes) = (skb.segments(), skb.length() as u32);
                maps::count_port(port, PortCounter::Flooded, packets, bytes);
            }
            Ok(())
        }
        Err(reason) => Err(verdict::drop(
            skb,
            Some((network, port.unwrap_or(NO_PORT))),
            reason,
        )),
    }
}
