//! Last stage: what becomes of a frame of which the receiver has been looked up.

use super::decision::{Act, Family, Step, drop, load};
use super::resolve;
use super::scratch::{Packet, Scratch};
use super::tables::Tables;
use crate::addr::{GATEWAY_MAC, Ip16};
use crate::drop::DropReason;
use crate::endpoint::{
    ENDPOINT_GATEWAY, ENDPOINT_OUTSIDE, ENDPOINT_REMOTE, ENDPOINT_SERVICE, ENDPOINT_WIRE, Endpoint,
};
use crate::packet::{Frame, ICMP_HLEN, IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_UDP, PORTS_LEN};
use crate::port::{
    PORT_ANY_IP, PORT_EGRESS, PORT_L3, PORT_NODE, PORT_OUTSIDE, PORT_ROUTES, PORT_WIRE, Port,
};

/// Flags of addresses that no port has, and that have a MAC address all the same.
const ANSWERED_FOR: u32 = ENDPOINT_GATEWAY | ENDPOINT_SERVICE;

/// Looks up the receiver by its MAC address, and forwards there.
///
/// A neighbour may remember the MAC address of a pod that is gone. An IP packet to one that no port has is for the
/// port with its address, so no announcement is needed. The neighbour learns of the new one when it asks again.
/// The virtual gateway's is one that no port has: by it come packets for Services, and for other networks of a VPC.
///
/// # Errors
/// `Flood`, `Hairpin`, `NoEndpoint`, and those of [`across`].
#[inline(always)]
pub(super) fn by_mac<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    scratch: &mut Scratch,
    is_ip: bool,
) -> Step<Act> {
    if resolve::station(port, tables, scratch)? {
        if scratch.to.port_id == port.port_id {
            return drop(DropReason::Hairpin);
        }
        return Ok(Act::Switch);
    }
    if port.flags & PORT_WIRE != 0 {
        return Ok(Act::Wire);
    }
    if !is_ip {
        return drop(DropReason::NoEndpoint);
    }
    if resolve::addressee(port, tables, scratch) {
        if scratch.to.flags & ENDPOINT_SERVICE != 0 {
            return serve(port, scratch);
        }
        if resolve::is_heir(port, &scratch.to) {
            return Ok(Act::Moved);
        }
        if scratch.to.flags & ENDPOINT_GATEWAY != 0 && resolve::is_for_gateway(scratch) {
            return echo(frame, &scratch.packet);
        }
        return drop(DropReason::NoEndpoint);
    }
    if port.flags & PORT_ROUTES != 0
        && resolve::is_for_gateway(scratch)
        && !is_about_link(frame, &scratch.packet)
        && resolve::beyond(port, tables, scratch)?
    {
        return across(frame, port, scratch);
    }
    drop(DropReason::NoEndpoint)
}

/// Reports whether a packet is for its link only (RFC 4861, RFC 3810).
///
/// No policy is asked about neighbour discovery.
#[inline(always)]
fn is_about_link<F: Frame + ?Sized>(frame: &F, packet: &Packet) -> bool {
    matches!(packet.family, Family::V6)
        && packet.protocol == IPPROTO_ICMPV6
        && !packet.fragment
        && matches!(
            frame.load::<1>(packet.payload as usize),
            Some([130..=137 | 143])
        )
}

/// Routes a packet to an endpoint that has been looked up, by the virtual gateway.
///
/// # Errors
/// `LinkLocal`, `Hairpin`, `Ttl`, and those of [`echo`].
#[inline(always)]
fn across<F: Frame + ?Sized>(frame: &F, port: &Port, scratch: &Scratch) -> Step<Act> {
    let (to, packet) = (&scratch.to, &scratch.packet);
    if to.flags & ENDPOINT_GATEWAY != 0 {
        return echo(frame, packet);
    }
    if packet.source.is_link_local_v6() || packet.destination.is_link_local_v6() {
        return drop(DropReason::LinkLocal);
    }
    if to.port_id == port.port_id {
        return drop(DropReason::Hairpin);
    }
    if packet.hops <= 1 {
        return drop(DropReason::Ttl);
    }
    if to.flags & ENDPOINT_WIRE != 0 {
        return Ok(Act::WireRoute);
    }
    Ok(Act::Route)
}

/// Has a packet for a Service translated.
///
/// # Errors
/// `NoEndpoint` for one from outside: the network's own have Services. `LinkLocal` for a sender that cannot be answered.
#[inline(always)]
fn serve(port: &Port, scratch: &Scratch) -> Step<Act> {
    if port.flags & (PORT_OUTSIDE | PORT_ANY_IP) != 0 {
        return drop(DropReason::NoEndpoint);
    }
    if scratch.packet.source.is_link_local_v6() {
        return drop(DropReason::LinkLocal);
    }
    Ok(Act::Service)
}

/// Looks up the receiver by its IP address, and routes there.
///
/// # Errors
/// A reason to drop the packet.
#[inline(always)]
pub(super) fn by_ip<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    scratch: &mut Scratch,
) -> Step<Act> {
    let mut is_found = resolve::endpoint(port, tables, scratch)?;
    scratch.route.network = port.network;
    scratch.route.mtu = 0;
    // What comes from outside is for the network that it comes to.
    if !is_found && port.flags & (PORT_ROUTES | PORT_OUTSIDE) == PORT_ROUTES {
        is_found = resolve::beyond(port, tables, scratch)?;
    }
    if port.flags & PORT_NODE != 0 {
        return by_node(frame, port, scratch, is_found);
    }
    if !is_found {
        if port.flags & PORT_EGRESS != 0 {
            return leave(frame, port, tables, scratch);
        }
        return drop(DropReason::NoEndpoint);
    }
    let (to, packet) = (&scratch.to, &scratch.packet);
    if to.flags & ENDPOINT_OUTSIDE != 0 {
        return drop(DropReason::NoEndpoint);
    }
    if to.flags & ENDPOINT_SERVICE != 0 {
        return serve(port, scratch);
    }
    if port.flags & PORT_OUTSIDE != 0 {
        enter(port, tables, packet, to)?;
    }
    across(frame, port, scratch)
}

/// Sends a packet to an address that the network does not have.
///
/// The way out knows which of these addresses are the network's own after all, and sends such packets back.
#[inline(always)]
fn leave<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    scratch: &mut Scratch,
) -> Step<Act> {
    let packet = &scratch.packet;
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
    if !resolve::way_out(port, tables, scratch) {
        return drop(DropReason::NoEndpoint);
    }
    if scratch.to.flags & ENDPOINT_WIRE == 0 {
        // The hop is counted there, which says when there were too many.
        return Ok(Act::Leave);
    }
    if scratch.packet.hops <= 1 {
        return drop(DropReason::Ttl);
    }
    Ok(Act::WireRoute)
}

/// Refuses packets from outside that no endpoint of this node may get.
///
/// Nobody out there speaks for a member of the network, and a network that spans nodes has its way out on each.
#[inline(always)]
fn enter<T: Tables>(port: &Port, tables: &T, packet: &Packet, to: &Endpoint) -> Step<()> {
    if to.flags & ENDPOINT_REMOTE != 0 {
        return drop(DropReason::Hairpin);
    }
    match resolve::holder(port, tables, &packet.source) {
        // The way out has the gateway's address, and says by it that there were too many hops.
        Some(holder) if holder.flags & ENDPOINT_GATEWAY == 0 => drop(DropReason::SpoofedIp),
        // Nor for one of another network to which the gateway routes.
        None if port.flags & PORT_ROUTES != 0
            && tables.route(port.network, &packet.source).is_some() =>
        {
            drop(DropReason::SpoofedIp)
        }
        Some(_) | None => Ok(()),
    }
}

/// Hands a packet to the node's stack behind the virtual gateway.
///
/// One for a Service is translated before. All that may go there goes there, pod to pod too: where the node translates addresses, both directions of a connection must pass it.
#[inline(always)]
fn by_node<F: Frame + ?Sized>(
    frame: &F,
    port: &Port,
    scratch: &Scratch,
    is_found: bool,
) -> Step<Act> {
    let (to, packet) = (&scratch.to, &scratch.packet);
    // The gateway's addresses are no addresses of the node: it would route them elsewhere.
    if is_found && to.flags & ENDPOINT_GATEWAY != 0 {
        return echo(frame, packet);
    }
    if is_found && to.port_id == port.port_id {
        return drop(DropReason::Hairpin);
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
    if is_found && to.flags & ENDPOINT_SERVICE != 0 {
        return serve(port, scratch);
    }
    // The node counts the hops, and says when there were too many.
    Ok(Act::Node)
}

/// Refuses UDP that a node would take for a tunnel of another one.
///
/// Out there a pod can have the address of its node. Whichever address it is for, as any can be translated to a node's.
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

/// Answers ping of the virtual gateway, which shows that the network is there.
#[inline(always)]
fn echo<F: Frame + ?Sized>(frame: &F, packet: &Packet) -> Step<Act> {
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
    Ok(Act::EchoReply)
}

/// Answers ARP for [`Scratch::target`]; `is_probe`: without a sender's address.
///
/// # Errors
/// `NoEndpoint`, and those of [`by_mac`]: somebody beyond the uplink may answer.
#[inline(always)]
pub(super) fn answer_arp<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    scratch: &mut Scratch,
    is_probe: bool,
) -> Step<Act> {
    if resolve::target(port, tables, scratch) {
        let to = &mut scratch.to;
        if port.flags & PORT_L3 != 0 && !is_probe && to.flags & ANSWERED_FOR == 0 {
            to.mac = GATEWAY_MAC;
        }
        return Ok(Act::ArpReply);
    }
    if port.flags & PORT_WIRE != 0 {
        return by_mac(frame, port, tables, scratch, false);
    }
    drop(DropReason::NoEndpoint)
}

/// Answers a solicitation for [`Scratch::target`].
///
/// # Errors
/// As of [`answer_arp`].
#[inline(always)]
pub(super) fn answer_nd<F: Frame + ?Sized, T: Tables>(
    frame: &F,
    port: &Port,
    tables: &T,
    scratch: &mut Scratch,
) -> Step<Act> {
    if resolve::target(port, tables, scratch) {
        let to = &mut scratch.to;
        if to.flags & ENDPOINT_OUTSIDE != 0 {
            return drop(DropReason::NoEndpoint);
        }
        if to.flags & ANSWERED_FOR == 0 {
            if to.port_id == port.port_id {
                // Duplicate address detection for its own address: nobody objects.
                return Ok(Act::Ignore);
            }
            // On an L3 network everybody is behind the gateway.
            if port.flags & PORT_L3 != 0 && !scratch.packet.source.same(&Ip16::NONE) {
                to.mac = GATEWAY_MAC;
            }
        }
        return Ok(Act::NdReply);
    }
    if port.flags & (PORT_ANY_IP | PORT_WIRE) != 0 {
        return by_mac(frame, port, tables, scratch, false);
    }
    if scratch.target.same(&port.link_local) {
        return Ok(Act::Ignore);
    }
    drop(DropReason::NoEndpoint)
}
