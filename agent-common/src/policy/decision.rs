//! What the policy says of a frame.

use crate::addr::MacAddr;
use crate::drop::DropReason;
use crate::endpoint::{ENDPOINT_NO_PEER, ENDPOINT_REMOTE, Endpoint};

/// What to do with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Count and discard.
    Drop(DropReason),
    /// Discard: the frame did its work here (duplicate address detection, group membership).
    Ignore,
    /// Deliver as it is.
    Switch(Endpoint),
    /// Deliver with new MAC addresses and a hop less.
    Route(Endpoint, Family),
    /// Deliver to the network's way out with new MAC addresses; it counts the hop.
    Leave(Endpoint),
    /// Hand to the node's own network stack, which routes it.
    Node,
    /// Send out of the network's uplink as it is.
    Wire,
    /// Send out of the network's uplink to this member elsewhere, or router (`ENDPOINT_OUTSIDE`), a hop less.
    WireRoute(Endpoint, Family),
    /// Copy to every other port of the network.
    Flood,
    /// Send back: this MAC address has the IPv4 address that was asked for.
    ArpReply(MacAddr),
    /// Send back: this MAC address has the IPv6 address that was asked for.
    NdReply(MacAddr),
    /// Send back as an echo reply; the ICMP header is at this offset.
    EchoReply(Family, u16),
}

impl Decision {
    /// True when the frame goes to where no kernel need look at its IP header again before a program does: by
    /// an uplink, to another node, to a socket. Of those with a queue of a kernel's pod too, and of all copies.
    #[inline(always)]
    pub const fn leaves_the_kernel(&self) -> bool {
        match self {
            Self::Switch(to) | Self::Route(to, _) => {
                to.flags & (ENDPOINT_NO_PEER | ENDPOINT_REMOTE) != 0
            }
            Self::Wire | Self::WireRoute(..) | Self::Flood => true,
            Self::Drop(_)
            | Self::Ignore
            | Self::Leave(_)
            | Self::Node
            | Self::ArpReply(_)
            | Self::NdReply(_)
            | Self::EchoReply(..) => false,
        }
    }
}

/// Address family of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl From<DropReason> for Decision {
    #[inline(always)]
    fn from(reason: DropReason) -> Self {
        Self::Drop(reason)
    }
}
