//! VPCs as a table: prefixes, networks, peers, and problems.

use api::PeerState;
use serde_json::{Value, json};

use crate::node::Node;

/// Rows of `get vpcs`, one for each, as it is in force.
pub(super) fn rows(node: &Node) -> Value {
    let world = node.world.get();
    world
        .resolved
        .vpcs()
        .map(|vpc| {
            let peers = vpc.peers.iter();
            let peers: Vec<String> = peers
                .map(|peer| match peer.state {
                    PeerState::Active => peer.vpc.clone(),
                    state => format!("{} ({state:?})", peer.vpc),
                })
                .collect();
            json!({
                "name": vpc.name,
                "cidrs": vpc.cidrs.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "networks": vpc.networks,
                "peers": peers,
                "ready": vpc.ready,
                "reason": vpc.reason,
                "message": vpc.message,
            })
        })
        .collect()
}
