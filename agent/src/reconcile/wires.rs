//! What the tables of a network with an uplink must hold beside its own pods.

use std::net::IpAddr;

use agent_common::addr::MacAddr;
use agent_common::endpoint::{
    ENDPOINT_GATEWAY, ENDPOINT_REMOTE, ENDPOINT_WIRE, Endpoint, EndpointKey,
};
use agent_common::network::{NETWORK_L3, NETWORK_NEXT_HOP, NETWORK_TRUNK, NETWORK_WIRE, Network};
use agent_common::wire::{NextHop, WireKey};
use datapath::Entries;

use super::mapped;
use crate::record::NetworkFacts;

/// A network's uplink, and who is beyond it.
#[derive(Debug, Clone)]
pub struct OnWire {
    /// Its index; 0 while it is not there.
    pub uplink: u32,
    /// Members on other nodes, of a network that is routed.
    pub members: Vec<WireMember>,
}

/// A member on another node.
#[derive(Debug, Clone)]
pub struct WireMember {
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its addresses, and who leads there, for a network whose nodes are behind routers.
    pub ips: Vec<(IpAddr, Option<IpAddr>)>,
}

/// Adds it to `entries`, which have this node's own pods. Without an uplink nothing comes in, and what
/// goes out is dropped.
pub(super) fn add(
    entries: &mut Entries,
    facts: &NetworkFacts,
    wire: &api::Wire,
    there: Option<&OnWire>,
) {
    let id = facts.id;
    let mut network = Network::new(NETWORK_WIRE, u32::from(facts.mtu));
    network.vlan = wire.tag();
    network.uplink = there.map_or(0, |it| it.uplink);
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
    let Some(there) = there else {
        return;
    };
    if there.uplink != 0 {
        for vlan in wire.ids() {
            let key = WireKey::segment(there.uplink, vlan);
            entries.wires.insert(key, id);
        }
        let own = entries.endpoints.iter();
        let own = own.filter(|_| wire.is_routed());
        let own = own.filter(|(_, it)| it.flags & (ENDPOINT_GATEWAY | ENDPOINT_REMOTE) == 0);
        let keys = own.map(|(key, _)| (WireKey::address(there.uplink, key.ip), id));
        entries.wires.extend(keys);
    }
    for member in &there.members {
        let endpoint = Endpoint {
            ifindex: 0,
            flags: ENDPOINT_REMOTE | ENDPOINT_WIRE,
            mac: member.mac,
            port_id: u16::MAX,
        };
        for (ip, hop) in &member.ips {
            let key = EndpointKey {
                network: id,
                ip: mapped(*ip),
            };
            // What this node has itself comes first, whoever else claims it.
            entries.endpoints.entry(key).or_insert(endpoint);
            if let Some(hop) = hop {
                entries.next_hops.insert(key, NextHop::new(&mapped(*hop)));
            }
        }
    }
}
