//! Neighbour discovery (RFC 4861) as far as a port must be kept from lying with it.

use crate::addr::MacAddr;
use crate::control::is_between_hosts;
use crate::drop::DropReason;
use crate::packet::{Frame, IPPROTO_ICMPV6, IPV6_HLEN, Ipv6Payload, L3};

/// Option type: link-layer address of the sender.
pub const OPTION_SOURCE_LINK_ADDRESS: u8 = 1;
/// Option type: link-layer address of the target.
pub const OPTION_TARGET_LINK_ADDRESS: u8 = 2;
/// Length of a solicitation or advertisement of a neighbour without options.
pub const MESSAGE: usize = 24;
/// Length of a router solicitation without options.
pub const ROUTER_SOLICITATION: usize = 8;
/// Options a message may carry before it is refused. The kernel sends one or two.
const OPTIONS_MAX: usize = 4;

/// Meaning of an IPv6 packet for neighbour discovery and group membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nd {
    /// None of the others.
    Other,
    /// Neighbour solicitation.
    Solicitation,
    /// Neighbour advertisement.
    Advertisement,
    /// Router solicitation.
    RouterSolicitation,
    /// Multicast listener report or done (RFC 2710, RFC 3810).
    Membership,
}

/// Classifies the packet and refuses what no pod may send.
///
/// # Errors
/// `RouterAdvertisement`, and `ControlMessage` for what only routers send or asks hosts who they are;
/// `FragmentedNd`, `Malformed`, `Ipv6Headers` or `Truncated` for neighbour discovery of another form than
/// RFC 4861 and RFC 6980 demand.
#[inline(always)]
pub fn inspect<F: Frame + ?Sized>(
    frame: &F,
    hops: u8,
    payload: &Ipv6Payload,
) -> Result<Nd, DropReason> {
    if payload.protocol != IPPROTO_ICMPV6 || payload.later_fragment {
        return Ok(Nd::Other);
    }
    let Some([kind, code]) = frame.load::<2>(payload.offset) else {
        return Err(DropReason::Truncated);
    };
    let meaning = match kind {
        133 => Nd::RouterSolicitation,
        134 | 137 => return Err(DropReason::RouterAdvertisement),
        135 => Nd::Solicitation,
        136 => Nd::Advertisement,
        131 | 132 | 143 => return Ok(Nd::Membership),
        _ if is_between_hosts(kind) => return Ok(Nd::Other),
        _ => return Err(DropReason::ControlMessage),
    };
    if payload.fragment {
        return Err(DropReason::FragmentedNd);
    }
    // RFC 4861 section 7.1: anything else was not sent by a neighbour.
    if hops != 255 || code != 0 {
        return Err(DropReason::Malformed);
    }
    // No stack puts extension headers before these; what does is looking for a gap in a guard.
    if payload.offset != L3 + IPV6_HLEN {
        return Err(DropReason::Ipv6Headers);
    }
    Ok(meaning)
}

/// True when no option of this kind names another MAC address than `mac`.
///
/// The options begin at byte `offset` of the frame.
///
/// # Errors
/// `Truncated` for a frame that ends before `offset`; `Malformed` for options that do not end with the
/// frame, or are more than four.
#[inline(always)]
pub fn options_name_only<F: Frame + ?Sized>(
    frame: &F,
    offset: usize,
    kind: u8,
    mac: MacAddr,
) -> Result<bool, DropReason> {
    let mut at = offset;
    if frame.length() < at {
        return Err(DropReason::Truncated);
    }
    for _ in 0..OPTIONS_MAX {
        if at == frame.length() {
            return Ok(true);
        }
        let Some([option, units, a, b, c, d, e, f]) = frame.load::<8>(at) else {
            return Err(DropReason::Malformed);
        };
        if units == 0 {
            return Err(DropReason::Malformed);
        }
        if option == kind && (units != 1 || MacAddr([a, b, c, d, e, f]) != mac) {
            return Ok(false);
        }
        at += units as usize * 8;
    }
    if at != frame.length() {
        Err(DropReason::Malformed)
    } else {
        Ok(true)
    }
}
