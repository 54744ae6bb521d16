//! Entries that the tables of one network must hold. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use agent_common::addr::{GATEWAY_MAC, GATEWAY_V4, GATEWAY_V6, Ip16};
use agent_common::endpoint::{
    ENDPOINT_GATEWAY, ENDPOINT_GUARD, ENDPOINT_NO_PEER, ENDPOINT_OUTSIDE, ENDPOINT_REMOTE,
    ENDPOINT_SERVED, ENDPOINT_SERVICE, ENDPOINT_SOCKET, Endpoint, EndpointKey, FdbKey,
};
use agent_common::flood::{FLOOD_CHUNK, FLOOD_CLOSED, FloodKey, FloodPorts};
use agent_common::network::{NETWORK_ANY_IP, NETWORK_L3, NETWORK_TRUNK, Network};
use agent_common::port::{
    PORT_ANY_IP, PORT_EGRESS, PORT_ELDER, PORT_GUARD, PORT_L3, PORT_MORE_IPS, PORT_NODE,
    PORT_OUTSIDE, PORT_REPLICATE, PORT_SERVED, PORT_TRUNK, PORT_WIRE, Port, PortAddressKey,
};
use agent_common::vtep::{FloodVteps, VTEP_CHUNK, VTEP_CHUNKS};
use book::record::{Attachment, NetworkFacts};
use datapath::Entries;

use super::beyond::Members;
use super::surroundings::WayOut;
use super::{Others, mapped, routes, wires};
use remotes::RemoteEndpoint;

/// Shaper of a port that has to have one and has lost it.
///
/// Packets sent there are dropped, rather than sent without a limit.
const NO_DEVICE: u32 = i32::MAX.unsigned_abs();

/// Builds the entries of these attachments, all of `network`.
///
/// Returns the facts on which they agree, too, if the network has members on other nodes.
pub(super) fn own<'a>(
    network: u32,
    attachments: impl Iterator<Item = &'a Attachment>,
    others: &Others,
) -> (Entries, Option<&'a NetworkFacts>) {
    let mut entries = Entries::default();
    let mut flooded = Vec::new();
    let (mut facts, mut leaves) = (None, None);
    for attachment in attachments {
        facts = Some(&attachment.network);
        leaves = leaves.or(attachment
            .network
            .has_gateway()
            .then_some(&attachment.network));
        // The fast way into a pod goes past the queues of its link, past its XDP program, and is not
        // there for a port that is a socket only.
        // The other end of the node's own port is no other namespace's, to which alone the kernel hands packets over.
        let has_queue =
            attachment.queued || attachment.limits.ingress.is_some() || attachment.is_of_node();
        let by_interface = has_queue || others.unsteered.contains(&attachment.port_id);
        let guard = match others.marks.guarded.contains(&attachment.port_id) {
            true => ENDPOINT_GUARD,
            false => 0,
        };
        let asked = match others.services.is_empty() {
            true => guard,
            false => guard | ENDPOINT_SERVED,
        };
        let endpoint = Endpoint {
            ifindex: attachment.host.ifindex,
            flags: match (by_interface, attachment.interface.is_veth()) {
                (false, true) => asked,
                // XDP asks no policy, and knows no Service.
                (false, false) if asked == 0 => ENDPOINT_NO_PEER | ENDPOINT_SOCKET,
                (true, _) | (false, false) => ENDPOINT_NO_PEER | asked,
            },
            mac: attachment.mac,
            port_id: attachment.port_id,
        };
        port(&mut entries, attachment, !others.services.is_empty());
        for lease in &attachment.leases {
            let key = EndpointKey {
                network,
                ip: mapped(lease.address),
            };
            entries.endpoints.insert(key, endpoint);
        }
        if attachment.network.routed {
            let own = [IpAddr::V4(GATEWAY_V4), IpAddr::V6(GATEWAY_V6)];
            gateways(&mut entries, &attachment.network, own);
        } else {
            entries
                .fdb
                .insert(FdbKey::new(network, attachment.mac), endpoint);
            if let Some(ip) = link_local(attachment).map(mapped) {
                let key = EndpointKey { network, ip };
                entries.endpoints.insert(key, endpoint);
            }
            if !others.routes.is_empty() {
                // The gateway is a station of its own where networks lead to each other.
                gateways(&mut entries, &attachment.network, []);
            }
            flooded.push(copied_to(attachment, others));
        }
    }
    if let (Some(facts), Some(way_out)) = (leaves, others.way_out) {
        outside(&mut entries, facts, way_out);
    }
    let spans = facts.filter(|facts| !facts.transport.is_local());
    if let Some(facts) = spans {
        match &facts.wire {
            Some(wire) => {
                wires::add(&mut entries, facts, wire, others.uplink());
                wires::leave(&mut entries, facts, others.routers());
            }
            None => {
                let flags = match (facts.routed, facts.addressless()) {
                    (true, _) => NETWORK_L3,
                    (false, true) => NETWORK_ANY_IP,
                    (false, false) => 0,
                };
                let facts = Network::new(flags, u32::from(facts.mtu));
                entries.networks.insert(network, facts);
            }
        }
    }
    if !others.marks.guarded.is_empty() {
        for port in entries.ports.values_mut() {
            port.flags |= PORT_GUARD;
        }
    }
    routes::add(&mut entries, network, &others.routes);
    // In order of age, so that a newcomer changes the last chunk only.
    flooded.sort_unstable_by_key(|it| it & !FLOOD_CLOSED);
    entries
        .flood
        .extend(flood(network, 0, &flooded, flooded.len()));
    (entries, spans)
}

/// Adds the addresses of a network's Services, which are at the virtual gateway.
///
/// A network without a port has none, and what a port has is no Service's.
pub(super) fn add_services(entries: &mut Entries, network: u32, others: &Others) {
    if entries.ports.is_empty() {
        return;
    }
    let service = Endpoint {
        ifindex: 0,
        flags: ENDPOINT_SERVICE,
        mac: GATEWAY_MAC,
        port_id: u16::MAX,
    };
    for ip in others.services.iter() {
        let key = EndpointKey { network, ip: *ip };
        entries.endpoints.entry(key).or_insert(service);
    }
}

/// The interface by which a port gets copies, as a list of them has it.
pub(super) fn copied_to(attachment: &Attachment, others: &Others) -> u32 {
    match others.marks.closed.contains(&attachment.port_id) {
        true => attachment.host.ifindex | FLOOD_CLOSED,
        false => attachment.host.ifindex,
    }
}

/// Keeps ports from forging tunnels of this UDP port.
///
/// They are ports that send to outside of their network, and ports of a segment without a tag, which may be
/// that of the nodes.
pub(super) fn guard_tunnels(entries: &mut Entries, tunnel_port: u16) {
    let is_tagged = |network: &Network| network.vlan != 0 || network.flags & NETWORK_TRUNK != 0;
    for port in entries.ports.values_mut() {
        let wire = port.flags & (PORT_WIRE | PORT_L3) == PORT_WIRE;
        let tagged = entries.networks.get(&port.network).is_some_and(is_tagged);
        if port.flags & (PORT_NODE | PORT_EGRESS) != 0 || wire && !tagged {
            port.tunnel_port = tunnel_port;
        }
    }
}

/// The link-local address at which an attachment is found by its network.
pub(super) fn link_local(attachment: &Attachment) -> Option<IpAddr> {
    let network = &attachment.network;
    let has = !network.routed && !network.addressless();
    has.then(|| attachment.mac.link_local().into())
}

/// Divides ports in order of age into chunks, of which the first has this number.
///
/// `all` is how many ports there are, with those of earlier chunks.
pub(super) fn flood(
    network: u32,
    first: u32,
    ifindexes: &[u32],
    all: usize,
) -> impl Iterator<Item = (FloodKey, FloodPorts)> {
    let chunks = (first..).zip(ifindexes.chunks(FLOOD_CHUNK));
    chunks.map(move |(chunk, members)| {
        let mut ports = FloodPorts {
            count: 0,
            total: total_of(chunk, all),
            network,
            ifindexes: [0; FLOOD_CHUNK],
            network_again: network,
        };
        for (slot, ifindex) in ports.ifindexes.iter_mut().zip(members) {
            *slot = *ifindex;
            ports.count += 1;
        }
        (FloodKey { network, chunk }, ports)
    })
}

/// How many there are in all chunks, which the first one says.
pub(super) fn total_of(chunk: u32, all: usize) -> u16 {
    if chunk == 0 {
        u16::try_from(all).unwrap_or(u16::MAX)
    } else {
        0
    }
}

/// The way out: what nobody has goes there, and it speaks for everybody else.
fn outside(entries: &mut Entries, facts: &NetworkFacts, way_out: WayOut) {
    let endpoint = Endpoint {
        ifindex: way_out.ifindex,
        flags: ENDPOINT_OUTSIDE,
        mac: way_out.mac,
        port_id: u16::MAX,
    };
    let key = EndpointKey {
        network: facts.id,
        ip: Ip16::NONE,
    };
    entries.endpoints.insert(key, endpoint);
    let port = Port {
        network: facts.id,
        flags: PORT_L3 | PORT_OUTSIDE,
        mac: way_out.mac,
        mtu: facts.mtu,
        ip4: [0; 4],
        port_id: u16::MAX,
        tunnel_port: 0,
        ip6: Ip16::NONE,
        link_local: Ip16::NONE,
        home: way_out.ifindex,
        shaper: 0,
    };
    entries.ports.insert(way_out.ifindex, port);
}

/// Builds the entries of members on other nodes that tunnels lead to.
///
/// `numbers` are those of the nodes, by name.
pub(super) fn tunnelled(
    whose: &Members,
    members: &[RemoteEndpoint],
    numbers: &BTreeMap<&str, u32>,
) -> Entries {
    let network = whose.network;
    let mut entries = Entries::default();
    for member in members {
        let Some(number) = numbers.get(member.peer.node.as_str()) else {
            continue;
        };
        let endpoint = Endpoint {
            ifindex: *number,
            flags: ENDPOINT_REMOTE,
            mac: member.mac,
            port_id: u16::MAX,
        };
        let at = |ip: IpAddr| EndpointKey {
            network,
            ip: mapped(ip),
        };
        for ip in &member.ips {
            entries.endpoints.entry(at(*ip)).or_insert(endpoint);
        }
        if whose.routed {
            continue;
        }
        let key = FdbKey::new(network, member.mac);
        entries.fdb.entry(key).or_insert(endpoint);
        if !whose.addressless {
            let key = at(member.mac.link_local().into());
            entries.endpoints.entry(key).or_insert(endpoint);
        }
    }
    if whose.routed {
        return entries;
    }
    let nodes: BTreeSet<u16> = numbers
        .values()
        .filter_map(|number| u16::try_from(*number).ok())
        .collect();
    let nodes: Vec<u16> = nodes.into_iter().collect();
    for (chunk, members) in (0..VTEP_CHUNKS).zip(nodes.chunks(VTEP_CHUNK)) {
        let mut list = FloodVteps {
            count: 0,
            total: total_of(chunk, nodes.len()),
            vteps: [0; VTEP_CHUNK],
        };
        for (slot, vtep) in list.vteps.iter_mut().zip(members) {
            *slot = *vtep;
            list.count += 1;
        }
        let key = FloodKey { network, chunk };
        entries.flood_vteps.insert(key, list);
    }
    entries
}

/// The port of an attachment, without the shaper that is in front of it.
pub fn port_of(attachment: &Attachment) -> Port {
    let mut port = Port {
        network: attachment.network.id,
        flags: 0,
        mac: attachment.mac,
        mtu: attachment.network.mtu,
        ip4: [0; 4],
        port_id: attachment.port_id,
        tunnel_port: 0,
        ip6: Ip16::NONE,
        link_local: mapped(attachment.mac.link_local().into()),
        home: attachment.host.ifindex,
        shaper: 0,
    };
    if attachment.network.routed {
        port.flags |= PORT_L3;
    }
    if attachment.network.by_node {
        port.flags |= PORT_NODE;
    }
    if attachment.network.has_gateway() || attachment.network.leaves_by_uplink {
        port.flags |= PORT_EGRESS;
    }
    if !attachment.network.transport.is_local() && !attachment.network.routed {
        port.flags |= PORT_REPLICATE;
    }
    if let Some(wire) = &attachment.network.wire
        && !attachment.network.routed
    {
        port.flags |= PORT_WIRE;
        if wire.is_trunk() {
            port.flags |= PORT_TRUNK;
        }
    }
    if attachment.network.addressless() {
        port.flags |= PORT_ANY_IP;
    }
    for lease in &attachment.leases {
        match lease.address {
            IpAddr::V4(ip) if port.ip4 == [0; 4] => port.ip4 = ip.octets(),
            IpAddr::V6(ip) if port.ip6 == Ip16::NONE => port.ip6 = Ip16(ip.octets()),
            IpAddr::V4(_) | IpAddr::V6(_) => port.flags |= PORT_MORE_IPS,
        }
    }
    port
}

fn port(entries: &mut Entries, attachment: &Attachment, served: bool) {
    let mut port = port_of(attachment);
    if served && attachment.network.by_node {
        port.flags |= PORT_SERVED;
        if attachment.network.service_cidrs.is_empty() {
            port.flags |= PORT_ELDER;
        }
    }
    let firsts = [Ip16::from_v4(port.ip4), port.ip6];
    for lease in &attachment.leases {
        let ip = mapped(lease.address);
        if !firsts.contains(&ip) {
            let ifindex = attachment.host.ifindex;
            let key = PortAddressKey { ifindex, ip };
            entries.port_addresses.insert(key, 1);
        }
    }
    if let Some(shaper) = attachment.shaper {
        entries.ports.insert(shaper.far, port);
    }
    port.shaper = match attachment.shaper {
        Some(shaper) if shaper.used => shaper.near,
        Some(_) => 0,
        None if attachment.limits.egress.is_some() => NO_DEVICE,
        None => 0,
    };
    entries.ports.insert(attachment.host.ifindex, port);
}

/// Adds the addresses of the virtual gateway: these, and those of subnets.
///
/// They are everywhere and nowhere.
fn gateways(entries: &mut Entries, facts: &NetworkFacts, own: impl IntoIterator<Item = IpAddr>) {
    let endpoint = Endpoint {
        ifindex: 0,
        flags: ENDPOINT_GATEWAY,
        mac: GATEWAY_MAC,
        port_id: u16::MAX,
    };
    let configured = facts.subnets.iter().filter_map(|subnet| subnet.gateway);
    for ip in own.into_iter().chain(configured) {
        let key = EndpointKey {
            network: facts.id,
            ip: mapped(ip),
        };
        entries.endpoints.insert(key, endpoint);
    }
}

#[cfg(test)]
mod far;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wire;
