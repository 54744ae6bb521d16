//! Decide which IP messages of configuration and control a member may send.
//!
//! By them hosts are configured, and groups and routers found.

use crate::drop::DropReason;
use crate::packet::{
    Frame, IPPROTO_ICMP, IPPROTO_IGMP, IPPROTO_UDP, IPV4_HLEN, IPV6_HLEN, Ipv6Payload, L3,
    PORTS_LEN, Start,
};

/// Refuses an IPv4 packet that configures hosts or speaks as a router.
///
/// DHCP configures hosts; `dhcp` lets it pass.
/// `header` is the IPv4 header without its options, `later` true for a fragment other than the first.
///
/// # Errors
/// `Dhcp`, `RouterAdvertisement`, `ControlMessage`; `Truncated` for a packet without what is judged.
#[inline(always)]
pub fn v4<F: Frame + ?Sized>(
    frame: &F,
    start: &Start,
    header: &[u8; IPV4_HLEN],
    later: bool,
    dhcp: bool,
) -> Result<(), DropReason> {
    if later {
        return Ok(());
    }
    let [version_ihl, _, _, _, _, _, _, _, _, protocol, ..] = *header;
    let length = (version_ihl & 0x0f) as usize * 4;
    match protocol {
        // RFC 2131 section 4.1. Clients listen on raw sockets and look at the destination only.
        IPPROTO_UDP => {
            let ports = if length == IPV4_HLEN {
                start.get::<{ L3 + IPV4_HLEN }, PORTS_LEN>()
            } else {
                frame.load::<PORTS_LEN>(L3 + length)
            };
            match ports {
                None => Err(DropReason::Truncated),
                Some([_, _, q0, q1])
                    if matches!(u16::from_be_bytes([q0, q1]), 67 | 68) && !dhcp =>
                {
                    Err(DropReason::Dhcp)
                }
                Some(_) => Ok(()),
            }
        }
        IPPROTO_ICMP | IPPROTO_IGMP => match frame.load::<1>(L3 + length) {
            None => Err(DropReason::Truncated),
            Some([kind]) => of_v4(protocol, kind),
        },
        _ => Ok(()),
    }
}

/// Refuses messages by which routers are found and groups asked for.
///
/// RFC 1256 routers; RFC 3376 section 4.1 queries; RFC 4286 section 3 multicast routers.
#[inline(always)]
const fn of_v4(protocol: u8, kind: u8) -> Result<(), DropReason> {
    match (protocol, kind) {
        (IPPROTO_ICMP, 9) => Err(DropReason::RouterAdvertisement),
        (IPPROTO_IGMP, 0x11 | 0x30..=0x32) => Err(DropReason::ControlMessage),
        _ => Ok(()),
    }
}

/// Refuses DHCPv6, told by the destination port.
///
/// RFC 8415 section 7.2 fixes where messages go, not where they come from.
///
/// # Errors
/// `Dhcp`; `Truncated` for a packet without ports.
#[inline(always)]
pub fn dhcp_v6<F: Frame + ?Sized>(
    frame: &F,
    start: &Start,
    payload: &Ipv6Payload,
) -> Result<(), DropReason> {
    if payload.protocol != IPPROTO_UDP || payload.later_fragment {
        return Ok(());
    }
    let ports = if payload.offset == L3 + IPV6_HLEN {
        start.get::<{ L3 + IPV6_HLEN }, PORTS_LEN>()
    } else {
        frame.load::<PORTS_LEN>(payload.offset)
    };
    match ports {
        None => Err(DropReason::Truncated),
        Some([_, _, q0, q1]) if matches!(u16::from_be_bytes([q0, q1]), 546 | 547) => {
            Err(DropReason::Dhcp)
        }
        Some(_) => Ok(()),
    }
}

/// True for an `ICMPv6` type that hosts exchange and routers need no right for.
///
/// Errors (RFC 4443 section 2.1), echo, mobility (RFC 6275), locators (RFC 6743) and the extended
/// echo (RFC 8335). What is not here is refused: listener queries, inverse neighbour discovery (RFC 3122),
/// node information (RFC 4620), multicast routers (RFC 4286), renumbering of routers, certification paths,
/// and whatever is assigned later. Neighbour discovery and listener reports are judged for themselves.
#[inline(always)]
pub const fn is_between_hosts(kind: u8) -> bool {
    matches!(kind, 1..=127 | 128 | 129 | 144..=147 | 156 | 160 | 161)
}
