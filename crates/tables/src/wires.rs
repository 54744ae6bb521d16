//! Entries of a network with an uplink, besides those of its own pods.

use std::collections::BTreeSet;
use std::net::IpAddr;

use agent_common::addr::{Ip16, MacAddr};
use agent_common::endpoint::{
    ENDPOINT_GATEWAY, ENDPOINT_OUTSIDE, ENDPOINT_REMOTE, ENDPOINT_SERVICE, ENDPOINT_WIRE, Endpoint,
    EndpointKey,
};
use agent_common::network::{
    NETWORK_ANY_IP, NETWORK_L3, NETWORK_NEXT_HOP, NETWORK_TRUNK, NETWORK_WIRE, Network,
};
use agent_common::policy::Family;
use agent_common::wire::{NextHop, WireKey, outside};
use book::record::NetworkFacts;
use datapath::Entries;

use super::beyond::Members;
use super::mapped;
use super::surroundings::{Hops, Routers};
use remotes::{Peer, RemoteEndpoint};

/// Adds to `entries` those of a network's uplink.
///
/// They have this node's own pods. Without an uplink, 0, nothing comes in, and packets that go out are
/// dropped.
pub(super) fn add(entries: &mut Entries, facts: &NetworkFacts, wire: &api::Wire, uplink: u32) {
    let id = facts.id;
    let mut network = Network::new(NETWORK_WIRE, u32::from(facts.mtu));
    network.vlan = wire.tag();
    network.uplink = uplink;
    for (flag, is_so) in [
        (NETWORK_L3, facts.routed),
        (NETWORK_TRUNK, wire.is_trunk()),
        (NETWORK_NEXT_HOP, wire.is_routed()),
        (NETWORK_ANY_IP, facts.addressless()),
    ] {
        if is_so {
            network.flags |= flag;
        }
    }
    entries.networks.insert(id, network);
    if wire.is_trunk() {
        let keys = wire.ids().map(|vlan| (WireKey::trunk(id, vlan), id));
        entries.wires.extend(keys);
    }
    // Whatever the uplink is: pods of this node are not told apart from those beyond it.
    let listed = wire.ether_types.iter();
    let keys = listed.map(|it| (WireKey::ether_type(id, *it), id));
    entries.wires.extend(keys);
    if uplink == 0 {
        return;
    }
    for vlan in wire.ids() {
        entries.wires.insert(WireKey::segment(uplink, vlan), id);
    }
    let own = entries.endpoints.iter();
    let own = own.filter(|_| wire.is_routed());
    let own = own
        .filter(|(_, it)| it.flags & (ENDPOINT_GATEWAY | ENDPOINT_OUTSIDE | ENDPOINT_SERVICE) == 0);
    let keys = own.map(|(key, _)| (WireKey::address(uplink, key.ip), id));
    entries.wires.extend(keys);
}

/// Adds the way out of a network that leaves by its uplink.
///
/// Packets to addresses without a member go to these routers, and those to addresses in a subnet do not.
pub(super) fn leave(entries: &mut Entries, facts: &NetworkFacts, routers: Routers) {
    if !facts.leaves_by_uplink {
        return;
    }
    let id = facts.id;
    let at = |ip| EndpointKey { network: id, ip };
    let way_out = Endpoint {
        ifindex: 0,
        flags: ENDPOINT_OUTSIDE | ENDPOINT_WIRE,
        mac: MacAddr([0; 6]),
        port_id: u16::MAX,
    };
    entries.endpoints.insert(at(Ip16::NONE), way_out);
    for (family, router) in [Family::V4, Family::V6].into_iter().zip(routers) {
        let hop = router.map(|ip| (at(outside(family)), NextHop::new(&mapped(ip))));
        entries.next_hops.extend(hop);
    }
    let mut lengths = BTreeSet::new();
    for subnet in &facts.subnets {
        let (first, length) = (subnet.prefix.network(), subnet.prefix.prefix_len());
        let length = if first.is_ipv4() { length + 96 } else { length };
        let key = WireKey::subnet(id, mapped(first), length);
        entries.wires.insert(key, id);
        lengths.insert(length);
    }
    if let Some(network) = entries.networks.get_mut(&id) {
        for (slot, length) in network.subnets.iter_mut().zip(lengths) {
            *slot = length;
        }
    }
}

/// Adds the members on other nodes, of a network that is routed.
///
/// On a segment each member answers for itself.
pub(super) fn beyond(
    whose: &Members,
    members: &[RemoteEndpoint],
    uplink: u32,
    hops: &Hops,
) -> Entries {
    let mut entries = Entries::default();
    if !whose.routed {
        return entries;
    }
    for member in members {
        let endpoint = Endpoint {
            ifindex: 0,
            flags: ENDPOINT_REMOTE | ENDPOINT_WIRE,
            mac: member.mac,
            port_id: u16::MAX,
        };
        for ip in &member.ips {
            let key = EndpointKey {
                network: whose.network,
                ip: mapped(*ip),
            };
            entries.endpoints.entry(key).or_insert(endpoint);
            if let Some(hop) = hop_to(*ip, &member.peer, uplink, hops) {
                entries.next_hops.insert(key, NextHop::new(&mapped(hop)));
            }
        }
    }
    entries
}

/// Finds the next hop to an address of a node's member.
fn hop_to(ip: IpAddr, node: &Peer, uplink: u32, hops: &Hops) -> Option<IpAddr> {
    let vteps = node.vteps.iter();
    let mut hops = vteps.filter_map(|vtep| hops.get(vtep)?.as_ref());
    // The kernel gives IPv6 packets to IPv6 neighbours only.
    let fits = |(by, hop): &&(u32, IpAddr)| *by == uplink && (ip.is_ipv4() || hop.is_ipv6());
    hops.find(fits).map(|(_, hop)| *hop)
}
