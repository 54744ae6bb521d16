//! What the tables of a network with an uplink must hold beside its own pods.

use std::net::IpAddr;

use agent_common::endpoint::{
    ENDPOINT_GATEWAY, ENDPOINT_REMOTE, ENDPOINT_WIRE, Endpoint, EndpointKey,
};
use agent_common::network::{NETWORK_L3, NETWORK_NEXT_HOP, NETWORK_TRUNK, NETWORK_WIRE, Network};
use agent_common::wire::{NextHop, WireKey};
use datapath::Entries;

use super::mapped;
use crate::record::NetworkFacts;
use crate::remotes::{Peer, RemoteEndpoint};
use crate::wires::Hops;

/// Adds what a network has at its uplink to `entries`, which have this node's own pods. Without an uplink,
/// 0, nothing comes in, and what goes out is dropped.
pub(super) fn add(entries: &mut Entries, facts: &NetworkFacts, wire: &api::Wire, uplink: u32) {
    let id = facts.id;
    let mut network = Network::new(NETWORK_WIRE, u32::from(facts.mtu));
    network.vlan = wire.tag();
    network.uplink = uplink;
    for (flag, is_so) in [
        (NETWORK_L3, facts.routed),
        (NETWORK_TRUNK, wire.is_trunk()),
        (NETWORK_NEXT_HOP, wire.is_routed()),
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
    if uplink == 0 {
        return;
    }
    for vlan in wire.ids() {
        entries.wires.insert(WireKey::segment(uplink, vlan), id);
    }
    let own = entries.endpoints.iter();
    let own = own.filter(|_| wire.is_routed());
    let own = own.filter(|(_, it)| it.flags & ENDPOINT_GATEWAY == 0);
    let keys = own.map(|(key, _)| (WireKey::address(uplink, key.ip), id));
    entries.wires.extend(keys);
}

/// The members on other nodes, of a network that is routed: on a segment everybody answers for himself.
pub(super) fn beyond(
    facts: &NetworkFacts,
    members: &[RemoteEndpoint],
    uplink: u32,
    hops: &Hops,
) -> Entries {
    let mut entries = Entries::default();
    if !facts.routed {
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
                network: facts.id,
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

/// Who leads to an address of a node's member.
fn hop_to(ip: IpAddr, node: &Peer, uplink: u32, hops: &Hops) -> Option<IpAddr> {
    let vteps = node.vteps.iter();
    let mut hops = vteps.filter_map(|vtep| hops.get(vtep)?.as_ref());
    // The kernel gives IPv6 packets to IPv6 neighbours only.
    let fits = |(by, hop): &&(u32, IpAddr)| *by == uplink && (ip.is_ipv4() || hop.is_ipv6());
    hops.find(fits).map(|(_, hop)| *hop)
}
