//! The decision about one frame a pod sent: anti-spoofing, then L2 or L3 forwarding.
//!
//! The TC program and every other engine call [`decide`] with the same inputs and carry out the
//! same [`Decision`]. Nothing that is not explicitly allowed passes.

use crate::addr::{GATEWAY_MAC, Ip16, MacAddr};
use crate::control;
use crate::drop::DropReason;
use crate::endpoint::{
    ENDPOINT_GATEWAY, ENDPOINT_OUTSIDE, ENDPOINT_REMOTE, ENDPOINT_WIRE, Endpoint,
};
use crate::nd::{self, Nd};
use crate::packet::{
    ETH_HLEN, ETH_P_802_3_MIN, ETH_P_ARP, ETH_P_IP, ETH_P_IPV6, ETH_P_MAC_CONTROL, Frame,
    ICMP_HLEN, IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_UDP, IPV4_HLEN, IPV6_HLEN, L3, PORTS_LEN,
    Start, ipv6_payload, is_vlan_ether_type,
};
use crate::partial::Partial;
use crate::port::{
    PORT_ANY_IP, PORT_EGRESS, PORT_L3, PORT_MORE_IPS, PORT_NODE, PORT_OUTSIDE, PORT_TRUNK,
    PORT_WIRE, Port,
};

mod decision;

pub use self::decision::{Decision, Family};

/// What a network knows, looked up by the engine in its own tables.
pub trait Tables {
    /// True when `ip` is one of the port's addresses beyond the first of its family.
    fn is_further_address(&self, ip: &Ip16) -> bool;
    /// The endpoint with this address on this network.
    fn endpoint(&self, network: u32, ip: &Ip16) -> Option<Endpoint>;
    /// The endpoint with this MAC address on this network.
    fn station(&self, network: u32, mac: MacAddr) -> Option<Endpoint>;
    /// True when frames of the network have this VLAN id at its uplink.
    #[inline(always)]
    fn has_vlan(&self, network: u32, id: u16) -> bool {
        let _ = (network, id);
        false
    }
    /// True when the network has a subnet that begins with this address and has this length, bits.
    #[inline(always)]
    fn has_subnet(&self, network: u32, first: &Ip16, length: u8) -> bool {
        let _ = (network, first, length);
        false
    }
    /// True when an L2 network with an uplink lists this EtherType beside IPv4, IPv6 and ARP.
    #[inline(always)]
    fn has_ether_type(&self, network: u32, ether_type: u16) -> bool {
        let _ = (network, ether_type);
        false
    }
}

mod arp;

use self::arp::arp;

type Step<T> = Result<T, Decision>;

/// Decides about a frame that `port` sent.
#[inline(always)]
pub fn decide<F: Frame + ?Sized, T: Tables>(frame: &F, port: &Port, tables: &T) -> Decision {
    match admit(frame, port, tables) {
        Ok(decision) | Err(decision) => decision,
    }
}

const fn drop<T>(reason: DropReason) -> Step<T> {
    Err(Decision::Drop(reason))
}

#[inline(always)]
fn load<const N: usize, F: Frame + ?Sized>(frame: &F, offset: usize) -> Step<[u8; N]> {
    match frame.load::<N>(offset) {
        Some(bytes) => Ok(bytes),
        None => drop(DropReason::Truncated),
    }
}

#[inline(always)]
fn admit<F: Frame + ?Sized, T: Tables>(frame: &F, port: &Port, tables: &T) -> Step<Decision> {
    // Before anything else, so that on the stack they have the place of what comes later.
    let partial = frame.partial();
    let trunk = port.flags & PORT_TRUNK != 0;
    if trunk && !tables.has_vlan(port.network, frame.vlan_id()) {
        return drop(DropReason::VlanId);
    }
    let start = frame.start();
    if !start.has::<ETH_HLEN>() {
        return drop(DropReason::Truncated);
    }
    let (to, from) = (
        MacAddr(start.field::<0, 6>()),
        MacAddr(start.field::<6, 6>()),
    );
    let ether_type = u16::from_be_bytes(start.field::<12, 2>());
    if is_vlan_ether_type(ether_type) || (frame.has_vlan_tag() && !trunk) {
        return drop(DropReason::VlanTag);
    }
    if from != port.mac {
        return drop(DropReason::SpoofedMac);
    }
    if to.is_link_control() {
        return drop(DropReason::LinkControl);
    }
    if frame.segment_length() > port.mtu as usize + ETH_HLEN {
        return drop(DropReason::TooBig);
    }
    match ether_type {
        ETH_P_IP => ipv4(frame, &start, port, tables, to, partial),
        ETH_P_IPV6 => ipv6(frame, &start, port, tables, to, partial),
        ETH_P_ARP if !partial.is_none() => drop(DropReason::Malformed),
        ETH_P_ARP => arp(frame, port, tables, to),
        ETH_P_802_3_MIN.. if port.flags & PORT_L3 == 0 && carries(port, tables, ether_type) => {
            if !partial.spares_ethernet() {
                return drop(DropReason::Malformed);
            }
            forward(port, tables, to)
        }
        _ => drop(DropReason::EtherType),
    }
}

/// Whether a frame that is neither IP nor ARP may be sent on an L2 network, wherever it goes: who is on the
/// same node must not make a difference.
#[inline(always)]
fn carries<T: Tables>(port: &Port, tables: &T, ether_type: u16) -> bool {
    if port.flags & PORT_WIRE != 0 {
        carries_on_wire(port.network, ether_type, tables)
    } else {
        carries_alone(ether_type)
    }
}

/// Whether an L2 network without an uplink carries an EtherType other than those of IP and ARP.
#[inline(always)]
pub(crate) const fn carries_alone(ether_type: u16) -> bool {
    ether_type >= ETH_P_802_3_MIN && ether_type != ETH_P_MAC_CONTROL
}

/// The same of one with an uplink. Switches out there take link protocols from whoever sends them.
#[inline(always)]
pub(crate) fn carries_on_wire<T: Tables>(network: u32, ether_type: u16, tables: &T) -> bool {
    carries_alone(ether_type) && tables.has_ether_type(network, ether_type)
}

/// L2: by MAC address.
#[inline(always)]
fn forward<T: Tables>(port: &Port, tables: &T, to: MacAddr) -> Step<Decision> {
    if to.is_group() {
        return Ok(Decision::Flood);
    }
    match tables.station(port.network, to) {
        Some(endpoint) if endpoint.port_id == port.port_id => drop(DropReason::Hairpin),
        Some(endpoint) => Ok(Decision::Switch(endpoint)),
        None if port.flags & PORT_WIRE != 0 => Ok(Decision::Wire),
        None => drop(DropReason::NoEndpoint),
    }
}

/// L3: by IP address, from the virtual gateway's MAC address.
#[inline(always)]
fn route<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    to: MacAddr,
    packet: &Packet,
) -> Step<Decision> {
    if to.is_group() {
        return drop(DropReason::Multicast);
    }
    if to != GATEWAY_MAC {
        return drop(DropReason::NoEndpoint);
    }
    let found = tables.endpoint(port.network, &packet.destination);
    if port.flags & PORT_NODE != 0 {
        return by_node(frame, port, packet, found.as_ref());
    }
    let Some(endpoint) = found else {
        if port.flags & PORT_EGRESS != 0 {
            return leave(frame, port, tables, packet);
        }
        return drop(DropReason::NoEndpoint);
    };
    if endpoint.flags & ENDPOINT_OUTSIDE != 0 {
        return drop(DropReason::NoEndpoint);
    }
    if port.flags & PORT_OUTSIDE != 0 {
        enter(port, tables, packet, &endpoint)?;
    }
    if endpoint.flags & ENDPOINT_GATEWAY != 0 {
        return echo(frame, packet);
    }
    if packet.source.is_link_local_v6() || packet.destination.is_link_local_v6() {
        return drop(DropReason::LinkLocal);
    }
    if endpoint.port_id == port.port_id {
        return drop(DropReason::Hairpin);
    }
    if packet.hops <= 1 {
        return drop(DropReason::Ttl);
    }
    if endpoint.flags & ENDPOINT_WIRE != 0 {
        return Ok(Decision::WireRoute(endpoint, packet.family));
    }
    Ok(Decision::Route(endpoint, packet.family))
}

/// To where nobody on the network is. That way knows which of these addresses are the network's own
/// after all, and sends such packets back.
#[inline(always)]
fn leave<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    packet: &Packet,
) -> Step<Decision> {
    if packet.source.is_link_local() || packet.destination.is_link_local() {
        return drop(DropReason::LinkLocal);
    }
    if packet.destination.is_group() {
        return drop(DropReason::Multicast);
    }
    if packet.destination.is_of_this_host() {
        return drop(DropReason::NoEndpoint);
    }
    no_tunnel(frame, port, packet)?;
    let way_out = tables.endpoint(port.network, &Ip16::NONE);
    match way_out.filter(|it| it.flags & ENDPOINT_OUTSIDE != 0) {
        None => drop(DropReason::NoEndpoint),
        // The hop is counted there, which says when there were too many.
        Some(it) if it.flags & ENDPOINT_WIRE == 0 => Ok(Decision::Leave(it)),
        Some(_) if packet.hops <= 1 => drop(DropReason::Ttl),
        Some(it) => Ok(Decision::WireRoute(it, packet.family)),
    }
}

/// From outside to an endpoint: nobody out there speaks for a member of the network, and a network
/// that spans nodes has its way out on each.
#[inline(always)]
fn enter<T: Tables>(port: &Port, tables: &T, packet: &Packet, to: &Endpoint) -> Step<()> {
    if to.flags & ENDPOINT_REMOTE != 0 {
        return drop(DropReason::Hairpin);
    }
    match tables.endpoint(port.network, &packet.source) {
        // The way out has the gateway's address, and says by it that there were too many hops.
        Some(holder) if holder.flags & ENDPOINT_GATEWAY == 0 => drop(DropReason::SpoofedIp),
        Some(_) | None => Ok(()),
    }
}

/// L3 with the node's stack behind the virtual gateway. All that may go there goes there, pod to
/// pod too: where the node translates addresses, both directions of a connection must pass it.
#[inline(always)]
fn by_node<F: Frame + ?Sized>(
    frame: &F,
    port: &Port,
    packet: &Packet,
    found: Option<&Endpoint>,
) -> Step<Decision> {
    match found {
        // The gateway's addresses are no addresses of the node: it would route them elsewhere.
        Some(endpoint) if endpoint.flags & ENDPOINT_GATEWAY != 0 => return echo(frame, packet),
        Some(endpoint) if endpoint.port_id == port.port_id => return drop(DropReason::Hairpin),
        Some(_) | None => {}
    }
    if packet.source.is_link_local_v6() || packet.destination.is_link_local_v6() {
        return drop(DropReason::LinkLocal);
    }
    if packet.destination.is_group() {
        return drop(DropReason::Multicast);
    }
    // `route_localnet`, which others set, would let a pod talk to the node's loopback address.
    if packet.destination.is_of_this_host() {
        return drop(DropReason::NoEndpoint);
    }
    no_tunnel(frame, port, packet)?;
    // The node counts the hops, and says when there were too many.
    Ok(Decision::Node)
}

/// Refuses what a node would take for a tunnel of another one: out there a pod can have the address of its
/// node. Whichever address it is for, as any can be translated to a node's.
#[inline(always)]
fn no_tunnel<F: Frame + ?Sized>(frame: &F, port: &Port, packet: &Packet) -> Step<()> {
    if packet.protocol != IPPROTO_UDP || packet.later || port.tunnel_port == 0 {
        return Ok(());
    }
    let [_, _, q0, q1] = load::<PORTS_LEN, F>(frame, packet.payload as usize)?;
    if u16::from_be_bytes([q0, q1]) == port.tunnel_port {
        return drop(DropReason::TunnelPort);
    }
    Ok(())
}

/// The virtual gateway answers ping, so that a person can see that the network is there.
#[inline(always)]
fn echo<F: Frame + ?Sized>(frame: &F, packet: &Packet) -> Step<Decision> {
    let request = match packet.family {
        Family::V4 => (IPPROTO_ICMP, 8),
        Family::V6 => (IPPROTO_ICMPV6, 128),
    };
    if packet.fragment || packet.protocol != request.0 {
        return drop(DropReason::Gateway);
    }
    let [kind, code, ..] = load::<ICMP_HLEN, F>(frame, packet.payload as usize)?;
    if kind != request.1 || code != 0 {
        return drop(DropReason::Gateway);
    }
    Ok(Decision::EchoReply(packet.family, packet.payload))
}

/// The parts of an IP packet that routing looks at.
struct Packet {
    family: Family,
    /// A fragment other than the first.
    later: bool,
    source: Ip16,
    destination: Ip16,
    hops: u8,
    protocol: u8,
    payload: u16,
    fragment: bool,
}

#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the longest chain of headers ends before byte 16,440"
)]
const fn narrow(offset: usize) -> u16 {
    offset as u16
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

#[inline(always)]
fn ipv4<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    start: &Start,
    port: &Port,
    tables: &T,
    to: MacAddr,
    partial: Partial,
) -> Step<Decision> {
    if !start.has::<{ L3 + IPV4_HLEN }>() {
        return drop(DropReason::Truncated);
    }
    let [version_ihl] = start.field::<L3, 1>();
    let header_length = (version_ihl & 0x0f) as usize * 4;
    if version_ihl >> 4 != 4 || header_length < IPV4_HLEN {
        return drop(DropReason::Malformed);
    }
    let gso = frame.segment_length() != frame.length();
    let total = u16::from_be_bytes(start.field::<{ L3 + 2 }, 2>()) as usize;
    if !gso && (total < header_length || total > frame.length() - ETH_HLEN) {
        return drop(DropReason::Malformed);
    }
    let fragmentation = u16::from_be_bytes(start.field::<{ L3 + 6 }, 2>());
    let (fragment, first) = (fragmentation & 0x3fff != 0, fragmentation & 0x1fff == 0);
    let [protocol] = start.field::<{ L3 + 9 }, 1>();
    if !partial.is_of_transport(L3 + header_length, protocol, fragment) {
        return drop(DropReason::Malformed);
    }
    let dhcp = port.flags & PORT_ANY_IP != 0;
    let header = start.field::<L3, IPV4_HLEN>();
    control::v4(frame, start, &header, !first, dhcp)?;
    let source = start.field::<{ L3 + 12 }, 4>();
    if port.flags & (PORT_ANY_IP | PORT_OUTSIDE) == 0 && !owns_v4(port, tables, source) {
        return drop(DropReason::SpoofedIp);
    }
    if port.flags & PORT_L3 == 0 {
        return forward(port, tables, to);
    }
    let [ttl] = start.field::<{ L3 + 8 }, 1>();
    let destination = start.field::<{ L3 + 16 }, 4>();
    let packet = Packet {
        family: Family::V4,
        later: !first,
        source: Ip16::from_v4(source),
        destination: Ip16::from_v4(destination),
        hops: ttl,
        protocol,
        payload: narrow(L3 + header_length),
        fragment,
    };
    route(frame, port, tables, to, &packet)
}

#[inline(always)]
fn ipv6<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    start: &Start,
    port: &Port,
    tables: &T,
    to: MacAddr,
    partial: Partial,
) -> Step<Decision> {
    if !start.has::<{ L3 + IPV6_HLEN }>() {
        return drop(DropReason::Truncated);
    }
    let [version] = start.field::<L3, 1>();
    let source = Ip16(start.field::<{ L3 + 8 }, 16>());
    let destination = Ip16(start.field::<{ L3 + 24 }, 16>());
    // A mapped address stands for IPv4 in the tables and belongs on no wire: let through, it would
    // be looked up as the IPv4 address of somebody.
    if version >> 4 != 6 || source.is_mapped_v4() || destination.is_mapped_v4() {
        return drop(DropReason::Malformed);
    }
    let gso = frame.segment_length() != frame.length();
    let payload_length = u16::from_be_bytes(start.field::<{ L3 + 4 }, 2>()) as usize;
    if !gso && payload_length > frame.length() - ETH_HLEN - IPV6_HLEN {
        return drop(DropReason::Malformed);
    }
    let [next_header, hops] = start.field::<{ L3 + 6 }, 2>();
    let Some(payload) = ipv6_payload(frame, next_header) else {
        return drop(DropReason::Ipv6Headers);
    };
    if !partial.is_of_transport(payload.offset, payload.protocol, payload.fragment) {
        return drop(DropReason::Malformed);
    }
    let nd = nd::inspect(frame, hops, &payload)?;
    if port.flags & PORT_ANY_IP == 0 {
        control::dhcp_v6(frame, start, &payload)?;
    }
    if port.flags & (PORT_ANY_IP | PORT_OUTSIDE) == 0 && !owns_v6(port, tables, &source) {
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
        Nd::Solicitation => solicitation(frame, port, tables, to, &source, payload.offset),
        Nd::Advertisement => advertisement(frame, port, tables, to, payload.offset),
        Nd::RouterSolicitation | Nd::Membership if port.flags & PORT_L3 != 0 => {
            Ok(Decision::Ignore)
        }
        Nd::RouterSolicitation => {
            let options = payload.offset + nd::ROUTER_SOLICITATION;
            speaks_for_itself(frame, port, options, nd::OPTION_SOURCE_LINK_ADDRESS)?;
            forward(port, tables, to)
        }
        _ if port.flags & PORT_L3 == 0 => forward(port, tables, to),
        _ => {
            let packet = Packet {
                family: Family::V6,
                later: payload.later_fragment,
                source,
                destination,
                hops,
                protocol: payload.protocol,
                payload: narrow(payload.offset),
                fragment: payload.fragment,
            };
            route(frame, port, tables, to, &packet)
        }
    }
}

/// Refuses neighbour discovery of which an option of this kind names another's MAC address.
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
fn solicitation<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    to: MacAddr,
    source: &Ip16,
    offset: usize,
) -> Step<Decision> {
    let options = offset + nd::MESSAGE;
    speaks_for_itself(frame, port, options, nd::OPTION_SOURCE_LINK_ADDRESS)?;
    let target = Ip16(load::<16, F>(frame, offset + 8)?);
    if target.is_multicast_v6() || target.is_mapped_v4() {
        return drop(DropReason::Malformed);
    }
    match tables.endpoint(port.network, &target) {
        Some(found) if found.flags & ENDPOINT_OUTSIDE != 0 => drop(DropReason::NoEndpoint),
        Some(found) if found.flags & ENDPOINT_GATEWAY == 0 && found.port_id == port.port_id => {
            // Duplicate address detection for its own address: nobody objects.
            Ok(Decision::Ignore)
        }
        Some(found) if port.flags & PORT_L3 != 0 && found.flags & ENDPOINT_GATEWAY == 0 => {
            // On an L3 network everybody is behind the gateway.
            if source.same(&Ip16::NONE) {
                Ok(Decision::NdReply(found.mac))
            } else {
                Ok(Decision::NdReply(GATEWAY_MAC))
            }
        }
        Some(found) => Ok(Decision::NdReply(found.mac)),
        None if port.flags & (PORT_ANY_IP | PORT_WIRE) != 0 => forward(port, tables, to),
        None if target.same(&port.link_local) => Ok(Decision::Ignore),
        None => drop(DropReason::NoEndpoint),
    }
}

#[inline(always)]
fn advertisement<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    to: MacAddr,
    offset: usize,
) -> Step<Decision> {
    let target = Ip16(load::<16, F>(frame, offset + 8)?);
    let owned = port.flags & PORT_ANY_IP != 0 || owns_v6(port, tables, &target);
    if target.is_mapped_v4() || !owned {
        return drop(DropReason::SpoofedNd);
    }
    let options = offset + nd::MESSAGE;
    speaks_for_itself(frame, port, options, nd::OPTION_TARGET_LINK_ADDRESS)?;
    if port.flags & PORT_L3 != 0 {
        Ok(Decision::Ignore)
    } else {
        forward(port, tables, to)
    }
}
