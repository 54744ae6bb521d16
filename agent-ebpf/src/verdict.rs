//! Return the verdict of a program, and count drops.
//!
//! Every drop is counted here and nowhere else.

use core::ptr::null_mut;

use agent_common::drop::DropReason;
use agent_common::packet::Frame as _;
use aya_ebpf::bindings::xdp_action::{XDP_DROP, XDP_PASS, XDP_REDIRECT};
use aya_ebpf::bindings::{TC_ACT_OK, TC_ACT_REDIRECT, TC_ACT_SHOT, TC_ACT_UNSPEC};

use crate::maps::{self, PortCounter};
use crate::skb::Skb;
use crate::xdp::Xdp;

/// The end of a packet's way through a program.
///
/// A packet that podnet does not forward never reaches the node's own stack, but for the one network that the
/// node routes for.
#[must_use]
#[derive(Clone, Copy)]
pub(crate) enum Verdict {
    /// A redirect helper has been called.
    Redirected,
    /// The packet ends here.
    Consumed,
    /// The node's own stack goes on with it: `Decision::Node`, and nothing else.
    Node,
    /// Not podnet's: the next filter of an interface of the node goes on with it.
    Pass,
}

impl Verdict {
    #[inline(always)]
    pub(crate) const fn code(self) -> i32 {
        match self {
            Self::Redirected => TC_ACT_REDIRECT,
            Self::Consumed => TC_ACT_SHOT,
            // Not `TC_ACT_UNSPEC`: behind a TCX link the filter would decide and count once more.
            Self::Node => TC_ACT_OK,
            Self::Pass => TC_ACT_UNSPEC,
        }
    }
}

/// The dispatcher found nothing to call.
#[inline(always)]
pub(crate) fn no_program() -> Verdict {
    maps::count_root_miss();
    Verdict::Consumed
}

/// Counts and samples a drop.
///
/// `port` is the network and the port id, when they are known.
#[inline(always)]
pub(crate) fn drop(skb: &Skb<'_>, port: Option<(u32, u16)>, reason: DropReason) -> Verdict {
    let (packets, bytes) = (skb.segments(), skb.length() as u32);
    let network = port.map_or(0, |(network, _)| network);
    let (mut captured, mut sampled) = (null_mut(), 0);
    if let Some((_, port_id)) = port {
        maps::count_port(port_id, PortCounter::Dropped, packets, bytes);
        maps::count_port_reason(port_id, reason, packets);
        captured = maps::captured(port_id);
        if !captured.is_null() {
            sampled = maps::take_sampled(captured, skb.ifindex());
            if sampled == 0 && !maps::is_captured(captured) {
                captured = null_mut();
            }
        }
    }
    maps::count_drop(network, reason, packets, bytes);
    maps::publish_drop(skb, network, captured, sampled, reason);
    Verdict::Consumed
}

/// The end of a packet's way through an XDP program.
#[must_use]
#[derive(Clone, Copy)]
pub(crate) enum Early {
    /// A redirect helper has been called.
    Redirected,
    /// The packet ends here.
    Consumed,
    /// Everything goes on as if there were no program.
    Pass,
}

impl Early {
    #[inline(always)]
    pub(crate) const fn code(self) -> u32 {
        match self {
            Self::Redirected => XDP_REDIRECT,
            Self::Consumed => XDP_DROP,
            Self::Pass => XDP_PASS,
        }
    }
}

/// Counts and samples a drop before there is an skb.
#[inline(always)]
pub(crate) fn drop_early(xdp: &Xdp<'_>, network: Option<u32>, reason: DropReason) -> Early {
    let network = network.unwrap_or(0);
    maps::count_drop(network, reason, 1, xdp.length() as u32);
    maps::publish_drop(xdp, network, null_mut(), 0, reason);
    Early::Consumed
}
