//! The decision about one frame a pod sent: anti-spoofing, then L2 or L3 forwarding.
//!
//! The TC program and every other engine call [`decide`] with the same inputs and carry out the
//! same [`Decision`]. Nothing that is not explicitly allowed passes.

use crate::addr::{GATEWAY_MAC, Ip16, MacAddr};
use crate::drop::DropReason;
use crate::endpoint::{
    ENDPOINT_GATEWAY, ENDPOINT_OUTSIDE, ENDPOINT_REMOTE, ENDPOINT_WIRE, Endpoint,
};
use crate::nd::{self, Nd};
use crate::packet::{
    ARP_FRAME, ETH_HLEN, ETH_P_802_3_MIN, ETH_P_ARP, ETH_P_IP, ETH_P_IPV6, Frame, ICMP_HLEN,
    IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_UDP, IPV4_HLEN, IPV6_HLEN, L3, PORTS_LEN, Start,
    ipv6_payload, is_vlan_ether_type,
};
use crate::port::{
    PORT_ANY_IP, PORT_EGRESS, PORT_L3, PORT_MORE_IPS, PORT_NODE, PORT_OUTSIDE, PORT_TRUNK,
    PORT_WIRE, Port,
};

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
}

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
    /// Send out of the network's uplink to this member elsewhere, or router ([`ENDPOINT_OUTSIDE`]), a hop less.
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

/// Address family of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

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
fn part<const AT: usize, const N: usize>(start: &Start) -> Step<[u8; N]> {
    match start.get::<AT, N>() {
        Some(bytes) => Ok(bytes),
        None => drop(DropReason::Truncated),
    }
}

#[inline(always)]
fn admit<F: Frame + ?Sized, T: Tables>(frame: &F, port: &Port, tables: &T) -> Step<Decision> {
    // Before anything else, so that on the stack it has the place of what comes later.
    let trunk = port.flags & PORT_TRUNK != 0;
    if trunk && !tables.has_vlan(port.network, frame.vlan_id()) {
        return drop(DropReason::VlanId);
    }
    let start = frame.start();
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = part::<0, ETH_HLEN>(&start)?;
    let to = MacAddr([d0, d1, d2, d3, d4, d5]);
    let from = MacAddr([s0, s1, s2, s3, s4, s5]);
    let ether_type = u16::from_be_bytes([t0, t1]);
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
        ETH_P_IP => ipv4(frame, &start, port, tables, to),
        ETH_P_IPV6 => ipv6(frame, &start, port, tables, to),
        ETH_P_ARP => arp(frame, port, tables, to),
        ETH_P_802_3_MIN.. if port.flags & PORT_L3 == 0 => forward(port, tables, to),
        _ => drop(DropReason::EtherType),
    }
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
            return leave(port, tables, packet);
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
fn leave<T: Tables>(port: &Port, tables: &T, packet: &Packet) -> Step<Decision> {
    if packet.source.is_link_local() || packet.destination.is_link_local() {
        return drop(DropReason::LinkLocal);
    }
    if packet.destination.is_group() {
        return drop(DropReason::Multicast);
    }
    if packet.destination.is_of_this_host() {
        return drop(DropReason::NoEndpoint);
    }
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
    // The node counts the hops, and says when there were too many.
    Ok(Decision::Node)
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
) -> Step<Decision> {
    let header = part::<L3, IPV4_HLEN>(start)?;
    let [
        version_ihl,
        _,
        l0,
        l1,
        _,
        _,
        f0,
        f1,
        ttl,
        protocol,
        _,
        _,
        s0,
        s1,
        s2,
        s3,
        d0,
        d1,
        d2,
        d3,
    ] = header;
    let header_length = (version_ihl & 0x0f) as usize * 4;
    if version_ihl >> 4 != 4 || header_length < IPV4_HLEN {
        return drop(DropReason::Malformed);
    }
    let gso = frame.segment_length() != frame.length();
    let total = u16::from_be_bytes([l0, l1]) as usize;
    if !gso && (total < header_length || total > frame.length() - ETH_HLEN) {
        return drop(DropReason::Malformed);
    }
    let source = [s0, s1, s2, s3];
    let destination = [d0, d1, d2, d3];
    let fragment = u16::from_be_bytes([f0, f1]) & 0x3fff != 0;
    let first = u16::from_be_bytes([f0, f1]) & 0x1fff == 0;
    if protocol == IPPROTO_UDP && first {
        // RFC 2131 section 4.1. Clients listen on raw sockets and look at the destination only.
        let [_, _, q0, q1] = if header_length == IPV4_HLEN {
            part::<{ L3 + IPV4_HLEN }, PORTS_LEN>(start)?
        } else {
            load::<PORTS_LEN, F>(frame, L3 + header_length)?
        };
        if matches!(u16::from_be_bytes([q0, q1]), 67 | 68) && port.flags & PORT_ANY_IP == 0 {
            return drop(DropReason::Dhcp);
        }
    }
    if port.flags & (PORT_ANY_IP | PORT_OUTSIDE) == 0 && !owns_v4(port, tables, source) {
        return drop(DropReason::SpoofedIp);
    }
    if port.flags & PORT_L3 == 0 {
        return forward(port, tables, to);
    }
    let packet = Packet {
        family: Family::V4,
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
) -> Step<Decision> {
    let header = part::<L3, IPV6_HLEN>(start)?;
    let [v, _, _, _, l0, l1, next_header, hops, addresses @ ..] = header;
    let (source, destination) = Ip16::pair(addresses);
    // A mapped address stands for IPv4 in the tables and belongs on no wire: let through, it would
    // be looked up as the IPv4 address of somebody.
    if v >> 4 != 6 || source.is_mapped_v4() || destination.is_mapped_v4() {
        return drop(DropReason::Malformed);
    }
    let gso = frame.segment_length() != frame.length();
    let payload_length = u16::from_be_bytes([l0, l1]) as usize;
    if !gso && payload_length > frame.length() - ETH_HLEN - IPV6_HLEN {
        return drop(DropReason::Malformed);
    }
    let Some(payload) = ipv6_payload(frame, next_header) else {
        return drop(DropReason::Ipv6Headers);
    };
    let nd = nd::inspect(frame, hops, &payload)?;
    if nd == Nd::Advertisement && port.flags & PORT_ANY_IP != 0 {
        return forward(port, tables, to);
    }
    if payload.protocol == IPPROTO_UDP && !payload.later_fragment {
        // RFC 8415 section 7.2 fixes where messages go, not where they come from.
        let [_, _, q0, q1] = if payload.offset == L3 + IPV6_HLEN {
            part::<{ L3 + IPV6_HLEN }, PORTS_LEN>(start)?
        } else {
            load::<PORTS_LEN, F>(frame, payload.offset)?
        };
        if matches!(u16::from_be_bytes([q0, q1]), 546 | 547) && port.flags & PORT_ANY_IP == 0 {
            return drop(DropReason::Dhcp);
        }
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
        _ if port.flags & PORT_L3 == 0 => forward(port, tables, to),
        _ => {
            let packet = Packet {
                family: Family::V6,
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

#[inline(always)]
fn solicitation<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    to: MacAddr,
    source: &Ip16,
    offset: usize,
) -> Step<Decision> {
    if !nd::options_name_only(frame, offset, nd::OPTION_SOURCE_LINK_ADDRESS, port.mac)? {
        return drop(DropReason::SpoofedNd);
    }
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
    if target.is_mapped_v4()
        || !owns_v6(port, tables, &target)
        || !nd::options_name_only(frame, offset, nd::OPTION_TARGET_LINK_ADDRESS, port.mac)?
    {
        return drop(DropReason::SpoofedNd);
    }
    if port.flags & PORT_L3 != 0 {
        Ok(Decision::Ignore)
    } else {
        forward(port, tables, to)
    }
}

#[inline(always)]
fn arp<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    to: MacAddr,
) -> Step<Decision> {
    let packet = load::<{ ARP_FRAME - ETH_HLEN }, F>(frame, L3)?;
    let [
        h0,
        h1,
        p0,
        p1,
        hlen,
        plen,
        o0,
        o1,
        a0,
        a1,
        a2,
        a3,
        a4,
        a5,
        s0,
        s1,
        s2,
        s3,
        ..,
    ] = packet;
    let [.., t0, t1, t2, t3] = packet;
    if [h0, h1, p0, p1, hlen, plen, o0] != [0, 1, 0x08, 0x00, 6, 4, 0] || !matches!(o1, 1 | 2) {
        return drop(DropReason::Malformed);
    }
    let (sender, target) = ([s0, s1, s2, s3], [t0, t1, t2, t3]);
    if MacAddr([a0, a1, a2, a3, a4, a5]) != port.mac {
        return drop(DropReason::SpoofedArp);
    }
    if port.flags & PORT_ANY_IP != 0 {
        return forward(port, tables, to);
    }
    let request = o1 == 1;
    let probe = request && sender == [0; 4];
    if !probe && !owns_v4(port, tables, sender) {
        return drop(DropReason::SpoofedArp);
    }
    let l3 = port.flags & PORT_L3 != 0;
    if !request {
        return if l3 {
            Ok(Decision::Ignore)
        } else {
            forward(port, tables, to)
        };
    }
    if owns_v4(port, tables, target) {
        // An announcement (RFC 5227) tells the others; a probe for one's own address tells nobody.
        return if probe || l3 {
            Ok(Decision::Ignore)
        } else {
            forward(port, tables, to)
        };
    }
    match tables.endpoint(port.network, &Ip16::from_v4(target)) {
        Some(found) if l3 && !probe && found.flags & ENDPOINT_GATEWAY == 0 => {
            Ok(Decision::ArpReply(GATEWAY_MAC))
        }
        Some(found) => Ok(Decision::ArpReply(found.mac)),
        None if port.flags & PORT_WIRE != 0 => forward(port, tables, to),
        None => drop(DropReason::NoEndpoint),
    }
}
