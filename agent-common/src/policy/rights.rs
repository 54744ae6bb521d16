//! Second stage: refuses what the port may not send, whoever it is for.

use super::decision::{Act, Step, drop, load};
use super::scratch::Scratch;
use super::tables::Tables;
use crate::addr::{Ip16, MacAddr};
use crate::control;
use crate::drop::DropReason;
use crate::nd::{self, Nd};
use crate::packet::{
    ETH_HLEN, ETH_P_802_3_MIN, ETH_P_MAC_CONTROL, Frame, IPV4_HLEN, L3, is_vlan_ether_type,
};
use crate::port::{PORT_ANY_IP, PORT_L3, PORT_MORE_IPS, PORT_OUTSIDE, PORT_TRUNK, PORT_WIRE, Port};

mod arp;

pub(super) use self::arp::arp;

/// Purpose of a frame that may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    /// To get to a MAC address.
    Switch,
    /// To get to an IP address.
    Route,
    /// To know the MAC address for the IPv4 address in [`Scratch::target`].
    AskArp,
    /// The same before the sender has that address (RFC 5227).
    ProbeArp,
    /// To know the MAC address for the IPv6 address there.
    AskNd,
}

/// Refuses a trunk's VLAN that the network does not carry.
///
/// # Errors
/// `VlanId`.
#[inline(always)]
pub(super) fn vlan<F: Frame + ?Sized, T: Tables>(frame: &F, port: &Port, tables: &T) -> Step<()> {
    let is_trunk = port.flags & PORT_TRUNK != 0;
    if is_trunk && !tables.has_vlan(port.network, frame.vlan_id()) {
        return drop(DropReason::VlanId);
    }
    Ok(())
}

/// Refuses tags, another's MAC address, groups of the link, and sizes over the MTU.
///
/// # Errors
/// `VlanTag`, `SpoofedMac`, `LinkControl`, `TooBig`.
#[inline(always)]
pub(super) fn ethernet<F: Frame + ?Sized>(
    frame: &F,
    port: &Port,
    ether_type: u16,
    scratch: &Scratch,
) -> Step<()> {
    let is_trunk = port.flags & PORT_TRUNK != 0;
    if is_vlan_ether_type(ether_type) || (frame.has_vlan_tag() && !is_trunk) {
        return drop(DropReason::VlanTag);
    }
    if MacAddr(scratch.start.field::<6, 6>()) != port.mac {
        return drop(DropReason::SpoofedMac);
    }
    if MacAddr(scratch.start.field::<0, 6>()).is_link_control() {
        return drop(DropReason::LinkControl);
    }
    if frame.segment_length() > port.mtu as usize + ETH_HLEN {
        return drop(DropReason::TooBig);
    }
    Ok(())
}

/// Refuses what is neither IP nor ARP, but for what the network carries of it.
///
/// # Errors
/// `EtherType`; `Malformed` for a header that is not finished.
#[inline(always)]
pub(super) fn other<T: Tables>(
    port: &Port,
    tables: &T,
    ether_type: u16,
    scratch: &Scratch,
) -> Step<Intent> {
    if port.flags & PORT_L3 != 0 || !carries(port, tables, ether_type) {
        return drop(DropReason::EtherType);
    }
    if !scratch.partial.spares_ethernet() {
        return drop(DropReason::Malformed);
    }
    Ok(Intent::Switch)
}

/// True when a frame other than IP and ARP may be sent on an L2 network.
///
/// Wherever it goes: the members on the same node must not make a difference.
#[inline(always)]
fn carries<T: Tables>(port: &Port, tables: &T, ether_type: u16) -> bool {
    if port.flags & PORT_WIRE != 0 {
        carries_on_wire(port.network, ether_type, tables)
    } else {
        carries_alone(ether_type)
    }
}

/// True when an L2 network without an uplink carries this other EtherType.
#[inline(always)]
pub(crate) const fn carries_alone(ether_type: u16) -> bool {
    ether_type >= ETH_P_802_3_MIN && ether_type != ETH_P_MAC_CONTROL
}

/// The same of one with an uplink.
///
/// Switches out there take link protocols from whoever sends them.
#[inline(always)]
pub(crate) fn carries_on_wire<T: Tables>(network: u32, ether_type: u16, tables: &T) -> bool {
    carries_alone(ether_type) && tables.has_ether_type(network, ether_type)
}

/// Refuses DHCP, messages of routers, and another's address.
///
/// # Errors
/// Those of [`control::v4`]; `SpoofedIp`.
#[inline(always)]
pub(super) fn ipv4<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    scratch: &Scratch,
) -> Step<Intent> {
    let (start, packet) = (&scratch.start, &scratch.packet);
    let dhcp = port.flags & PORT_ANY_IP != 0;
    let header = start.field::<L3, IPV4_HLEN>();
    control::v4(frame, start, &header, packet.later, dhcp)?;
    let source = start.field::<{ L3 + 12 }, 4>();
    if port.flags & (PORT_ANY_IP | PORT_OUTSIDE) == 0 && !owns_v4(port, tables, source) {
        return drop(DropReason::SpoofedIp);
    }
    Ok(by(port))
}

/// The same of IPv6, and neighbour discovery that speaks for others.
///
/// # Errors
/// Those of [`nd::inspect`] and [`control::dhcp_v6`]; `SpoofedIp`, `SpoofedNd`. `Ignore` for messages that have
/// done their work here.
#[inline(always)]
pub(super) fn ipv6<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    scratch: &mut Scratch,
) -> Step<Intent> {
    let payload = scratch.packet.ipv6_payload();
    let nd = nd::inspect(frame, scratch.packet.hops, &payload)?;
    if port.flags & PORT_ANY_IP == 0 {
        control::dhcp_v6(frame, &scratch.start, &payload)?;
    }
    let source = &scratch.packet.source;
    if port.flags & (PORT_ANY_IP | PORT_OUTSIDE) == 0 && !owns_v6(port, tables, source) {
        // RFC 4862 and RFC 3810: only these speak before they have an address.
        let unspecified = source.same(&Ip16::NONE);
        if !(unspecified
            && matches!(
                nd,
                Nd::Solicitation | Nd::RouterSolicitation | Nd::Membership
            ))
        {
            return drop(DropReason::SpoofedIp);
        }
    }
    match nd {
        Nd::Solicitation => solicitation(frame, port, payload.offset, &mut scratch.target),
        Nd::Advertisement => {
            advertisement(frame, port, tables, payload.offset, &mut scratch.target)
        }
        Nd::RouterSolicitation | Nd::Membership if port.flags & PORT_L3 != 0 => Err(Act::Ignore),
        Nd::RouterSolicitation => {
            let options = payload.offset + nd::ROUTER_SOLICITATION;
            speaks_for_itself(frame, port, options, nd::OPTION_SOURCE_LINK_ADDRESS)?;
            Ok(Intent::Switch)
        }
        Nd::Membership | Nd::Other => Ok(by(port)),
    }
}

/// How a frame that may be sent is forwarded.
#[inline(always)]
const fn by(port: &Port) -> Intent {
    if port.flags & PORT_L3 == 0 {
        Intent::Switch
    } else {
        Intent::Route
    }
}

/// Refuses neighbour discovery with an option that names another's MAC address.
#[inline(always)]
fn speaks_for_itself<F: Frame + ?Sized>(
    frame: &F,
    port: &Port,
    options: usize,
    kind: u8,
) -> Step<()> {
    if nd::options_name_only(frame, options, kind, port.mac)? {
        Ok(())
    } else {
        drop(DropReason::SpoofedNd)
    }
}

#[inline(always)]
fn solicitation<F: Frame + ?Sized>(
    frame: &F,
    port: &Port,
    offset: usize,
    target: &mut Ip16,
) -> Step<Intent> {
    let options = offset + nd::MESSAGE;
    speaks_for_itself(frame, port, options, nd::OPTION_SOURCE_LINK_ADDRESS)?;
    *target = Ip16(load::<16, F>(frame, offset + 8)?);
    if target.is_multicast_v6() || target.is_mapped_v4() {
        return drop(DropReason::Malformed);
    }
    Ok(Intent::AskNd)
}

#[inline(always)]
fn advertisement<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    offset: usize,
    target: &mut Ip16,
) -> Step<Intent> {
    *target = Ip16(load::<16, F>(frame, offset + 8)?);
    let owned = port.flags & PORT_ANY_IP != 0 || owns_v6(port, tables, target);
    if target.is_mapped_v4() || !owned {
        return drop(DropReason::SpoofedNd);
    }
    let options = offset + nd::MESSAGE;
    speaks_for_itself(frame, port, options, nd::OPTION_TARGET_LINK_ADDRESS)?;
    if port.flags & PORT_L3 != 0 {
        Err(Act::Ignore)
    } else {
        Ok(Intent::Switch)
    }
}

#[inline(always)]
fn owns_v4<T: Tables>(port: &Port, tables: &T, ip: [u8; 4]) -> bool {
    u32::from_ne_bytes(ip) != 0
        && (u32::from_ne_bytes(ip) == u32::from_ne_bytes(port.ip4)
            || (port.flags & PORT_MORE_IPS != 0 && tables.is_further_address(&Ip16::from_v4(ip))))
}

#[inline(always)]
fn owns_v6<T: Tables>(port: &Port, tables: &T, ip: &Ip16) -> bool {
    !ip.same(&Ip16::NONE)
        && (ip.same(&port.ip6)
            || ip.same(&port.link_local)
            || (port.flags & PORT_MORE_IPS != 0 && tables.is_further_address(ip)))
}
