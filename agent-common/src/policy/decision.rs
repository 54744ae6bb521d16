//! Decisions of the policy about a frame.

use super::scratch::Scratch;
use crate::addr::MacAddr;
use crate::drop::DropReason;
use crate::endpoint::{ENDPOINT_NO_PEER, ENDPOINT_REMOTE, Endpoint};
use crate::packet::Frame;

/// Fate of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Count and discard.
    Drop(DropReason),
    /// Discard a frame that did its work here.
    ///
    /// Duplicate address detection and group membership are such frames.
    Ignore,
    /// Deliver as it is.
    Switch(Endpoint),
    /// Deliver with the MAC address of this endpoint, which has the IP address by now.
    Moved(Endpoint),
    /// Deliver with new MAC addresses and a hop less.
    Route(Endpoint, Family),
    /// Deliver to the network's way out with new MAC addresses; it counts the hop.
    Leave(Endpoint),
    /// Hand to the node's own network stack, which routes it.
    Node,
    /// Translate from the address of a Service to that of an endpoint.
    ///
    /// Then it is decided about once more.
    Service,
    /// Send out of the network's uplink as it is.
    Wire,
    /// Send out of the network's uplink, a hop less.
    ///
    /// To this member elsewhere, or to a router (`ENDPOINT_OUTSIDE`).
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

/// [`Decision`] without the values that it names, which are in the [`Scratch`].
///
/// One number, so that a program keeps it in a register wherever ways of its code meet. Linux refuses a spill
/// of half a pointer, and Linux 5.10 a look at a part of the stack that was not written; a compiler makes both
/// of the values of variants that have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Count and discard.
    Drop(DropReason),
    /// Discard: the frame did its work here.
    Ignore,
    /// Deliver to [`Scratch::to`] as it is.
    Switch,
    /// Deliver there with its MAC address in place of one that no port has.
    Moved,
    /// Deliver there with new MAC addresses and a hop less.
    Route,
    /// Deliver there, to the network's way out, with new MAC addresses.
    Leave,
    /// Hand to the node's own network stack.
    Node,
    /// Translate from the address of a Service to that of an endpoint.
    ///
    /// Then it is decided about once more.
    Service,
    /// Send out of the network's uplink as it is.
    Wire,
    /// Send out of the network's uplink to [`Scratch::to`], a hop less.
    WireRoute,
    /// Copy to every other port of the network.
    Flood,
    /// Send back the MAC address of [`Scratch::to`], asked for by ARP.
    ArpReply,
    /// Send back the MAC address of [`Scratch::to`], asked for by neighbour discovery.
    NdReply,
    /// Send back as an echo reply; [`Scratch::packet`] has the ICMP header's place.
    EchoReply,
}

const _: () = assert!(size_of::<Act>() == size_of::<DropReason>());

impl Act {
    /// Adds the values from the scratch.
    #[inline(always)]
    pub const fn with(self, scratch: &Scratch) -> Decision {
        let (to, packet) = (scratch.to, &scratch.packet);
        match self {
            Self::Drop(reason) => Decision::Drop(reason),
            Self::Ignore => Decision::Ignore,
            Self::Switch => Decision::Switch(to),
            Self::Moved => Decision::Moved(to),
            Self::Route => Decision::Route(to, packet.family),
            Self::Leave => Decision::Leave(to),
            Self::Node => Decision::Node,
            Self::Service => Decision::Service,
            Self::Wire => Decision::Wire,
            Self::WireRoute => Decision::WireRoute(to, packet.family),
            Self::Flood => Decision::Flood,
            Self::ArpReply => Decision::ArpReply(to.mac),
            Self::NdReply => Decision::NdReply(to.mac),
            Self::EchoReply => Decision::EchoReply(packet.family, packet.payload),
        }
    }

    /// Returns a number for what lets a frame go on.
    ///
    /// `None` for what ends or answers it.
    #[inline(always)]
    pub const fn pack(self) -> Option<u32> {
        match self {
            Self::Switch => Some(1),
            Self::Moved => Some(2),
            Self::Route => Some(3),
            Self::Leave => Some(4),
            Self::Wire => Some(5),
            Self::WireRoute => Some(6),
            Self::Flood => Some(7),
            Self::Node => Some(8),
            Self::Drop(_)
            | Self::Ignore
            | Self::Service
            | Self::ArpReply
            | Self::NdReply
            | Self::EchoReply => None,
        }
    }

    /// Returns what has a number by [`Self::pack`].
    #[inline(always)]
    pub const fn unpack(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Switch),
            2 => Some(Self::Moved),
            3 => Some(Self::Route),
            4 => Some(Self::Leave),
            5 => Some(Self::Wire),
            6 => Some(Self::WireRoute),
            7 => Some(Self::Flood),
            8 => Some(Self::Node),
            _ => None,
        }
    }

    /// True when no kernel need look at the IP header before another program does.
    ///
    /// The frame leaves by an uplink, to another node, or to a socket. True too of frames to a kernel's pod with a
    /// queue, and of all copies.
    #[inline(always)]
    pub const fn leaves_the_kernel(self, scratch: &Scratch) -> bool {
        match self {
            Self::Switch | Self::Moved | Self::Route => {
                scratch.to.flags & (ENDPOINT_NO_PEER | ENDPOINT_REMOTE) != 0
            }
            Self::Wire | Self::WireRoute | Self::Flood => true,
            Self::Drop(_)
            | Self::Ignore
            | Self::Leave
            | Self::Node
            | Self::Service
            | Self::ArpReply
            | Self::NdReply
            | Self::EchoReply => false,
        }
    }
}

impl From<DropReason> for Act {
    #[inline(always)]
    fn from(reason: DropReason) -> Self {
        Self::Drop(reason)
    }
}

/// Address family of an IP packet.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Result of a stage for the next one, or the end of the frame.
pub(super) type Step<T> = Result<T, Act>;

#[inline(always)]
pub(super) const fn drop<T>(reason: DropReason) -> Step<T> {
    Err(Act::Drop(reason))
}

#[inline(always)]
pub(super) fn load<const N: usize, F: Frame + ?Sized>(frame: &F, offset: usize) -> Step<[u8; N]> {
    match frame.load::<N>(offset) {
        Some(bytes) => Ok(bytes),
        None => drop(DropReason::Truncated),
    }
}
