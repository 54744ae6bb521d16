//! Follows a packet that comes in by another node's tunnel.

use std::net::IpAddr;

use agent_common::addr::{GATEWAY_MAC, Ip16, MacAddr};
use agent_common::arrival::{Arrival, Origin};
use agent_common::drop::DropReason;
use agent_common::endpoint::ENDPOINT_SOCKET;
use agent_common::guard::End;
use agent_common::network::NETWORK_L3;
use reach::overlay::DEVICE;
use serde_json::json;

use super::address::{self, Ends};
use super::depart::{build, mode};
use super::directory::{Found, Member};
use super::frame::{self, Macs};
use super::guards;
use super::question::{Address, Proto};
use super::report::{Outcome, Report, Shown, Story, Verdict};
use super::scene::Scene;
use super::tables;
use crate::error::AgentError;
use crate::error::ExplainError;

/// A receiver that nobody is: the other node would not have sent it.
const NOBODY: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 0]);

/// Follows a packet of a member of `network` on another node.
///
/// # Errors
/// When the description does not fit together, or the kernel does not tell.
pub(super) async fn follow(
    scene: &Scene<'_>,
    from: &Found,
    to: &Found,
    network: u32,
) -> Result<Report, AgentError> {
    let ends = address::ends(&scene.question, from, to)?;
    if matches!(ends.proto, Proto::Arp | Proto::Nd) {
        return Err(ExplainError::Invalid {
            argument: "--proto",
            value: address::words(ends.proto, None),
            fix: "the sender's own node answers questions about neighbours: ask there, or about \
                  another protocol",
        }
        .into());
    }
    let facts = scene.directory.facts(network);
    // The tunnel has the number of the receiver's network, to which the sender's gateway routes.
    let lands = to.member.as_ref().map_or(network, Member::network);
    let routed = lands != network || facts.is_some_and(|facts| facts.routed);
    let receiver = receiver(scene, to, &ends, lands);
    let mut shown = shown(scene, (from, to), &ends, (network, routed));
    let macs = Macs {
        to: receiver,
        from: ends.mac,
    };
    let mut frame = build(macs, &ends, scene.question.size)?;
    let mut source = ends.mac;
    if routed {
        source = GATEWAY_MAC;
        let macs = Macs {
            to: receiver,
            from: GATEWAY_MAC,
        };
        // Its own node has routed it.
        frame = frame::routed(&frame, macs);
    }
    shown.source_mac = Some(source.to_string());
    shown.destination_mac = Some(receiver.to_string());
    shown.frame(&frame);
    let mut story = Story::new();
    if let Some(Member::Here(record)) = &to.member {
        scene.faults(record, &mut story).await?;
    }
    let outer = outer(scene, from)?;
    let outcome = run(scene, &mut story, &frame, lands, outer).await?;
    Ok(story.end(&scene.node.name, shown, outcome))
}

/// Where the tunnel comes from: what was said, else the node of the sender.
fn outer(scene: &Scene<'_>, from: &Found) -> Result<IpAddr, ExplainError> {
    let own = scene.node.remotes.vteps();
    let no_way = |node: &str| ExplainError::Invalid {
        argument: "--arrive-from",
        value: node.to_owned(),
        fix: "this node and that one have no address for tunnels of one family: see --vtep",
    };
    let Some(text) = &scene.question.arrive_from else {
        return match &from.member {
            Some(Member::There(_, endpoint)) => endpoint
                .peer
                .address_for(&own)
                .ok_or_else(|| no_way(&endpoint.peer.node)),
            Some(Member::Here(_)) | None => Err(ExplainError::Invalid {
                argument: "--from",
                value: scene.question.from.text.clone(),
                fix: "no node is known to have it: say with --arrive-from which one sends",
            }),
        };
    };
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let mut peers = scene.directory.peers.iter();
    match peers.find(|peer| peer.node == *text) {
        Some(peer) => peer.address_for(&own).ok_or_else(|| no_way(&peer.node)),
        None => Err(ExplainError::Unknown {
            argument: "--arrive-from",
            value: text.clone(),
            why: "no other node of this name is known; write its name or its address for tunnels",
            known: scene
                .directory
                .peers
                .iter()
                .map(|it| it.node.clone())
                .collect(),
        }),
    }
}

/// Shows a packet from outside the node, before its frame is built.
pub(super) fn shown(
    scene: &Scene<'_>,
    (from, to): (&Found, &Found),
    ends: &Ends,
    (number, routed): (u32, bool),
) -> Shown {
    Shown {
        network: scene.directory.network_name(number),
        network_id: number,
        mode: mode(routed),
        from: scene.directory.name(from),
        to: scene.directory.name(to),
        protocol: address::words(ends.proto, ends.addresses),
        source: ends.addresses.map(|(source, _)| source.to_string()),
        destination: ends.addresses.map(|(_, to)| to.to_string()),
        ..Shown::default()
    }
}

/// The MAC address that the sender, or its node, writes as receiver.
pub(super) fn receiver(scene: &Scene<'_>, to: &Found, ends: &Ends, network: u32) -> MacAddr {
    let of = |ip| scene.directory.member(network, Address::Ip(ip));
    let destination = ends.addresses.map(|(_, destination)| destination);
    let own = to.member.as_ref().filter(|it| it.network() == network);
    ends.to_mac
        .or_else(|| own.map(Member::mac))
        .or_else(|| destination.and_then(address::group))
        .or_else(|| destination.and_then(of).map(|it| it.mac()))
        .unwrap_or(NOBODY)
}

/// The interfaces from which XDP gives frames to sockets.
fn steering(scene: &Scene<'_>) -> Vec<String> {
    let places = scene.node.reach.places();
    let steers = places.values().filter(|it| it.steers);
    steers.map(|it| it.interface.clone()).collect()
}

/// Runs the checks of `from_overlay`, or of `xdp_uplink` in its place.
async fn run(
    scene: &Scene<'_>,
    story: &mut Story,
    frame: &[u8],
    number: u32,
    outer: IpAddr,
) -> Result<Outcome, AgentError> {
    let node = &scene.node;
    let device = node.host.netlink.by_name(DEVICE).await?;
    let Some(device) = device.filter(|link| link.up) else {
        story.step(
            format!("device {DEVICE}"),
            "none that is up",
            "no tunnel ends here",
        );
        let text = format!("{DEVICE} is gone or down: nothing of other nodes arrives");
        let advice = "wait for the audit, which makes it again within 30 seconds";
        return Ok(Outcome::lost(text, advice));
    };
    let found = format!(
        "interface {}, UDP {}",
        device.ifindex,
        node.reach.tunnel_port()
    );
    story.step(
        format!("device {DEVICE}"),
        found,
        format!("VNI {number}, from {outer}"),
    );
    let address = Ip16::from(outer);
    let what = format!("VTEP_SOURCES[{outer}]");
    let Some(vtep) = scene.look(|tables| tables.vteps.number_of(&address))? else {
        story.step(what, "nothing", "drop unknown_node");
        return Ok(Outcome::dropped(DropReason::UnknownNode, &node.name));
    };
    let peer = scene.directory.node_of(address);
    story.step(what, format!("{peer}, number {vtep}"), "it is heard");
    let what = format!("NETWORKS[{number}]");
    let Some(network) = scene.look(|tables| tables.networks.get(&number))? else {
        story.step(what, "nothing", "drop unknown_network");
        return Ok(Outcome::dropped(DropReason::UnknownNetwork, &node.name));
    };
    let name = scene.directory.network_name(number);
    let mode = mode(network.flags & NETWORK_L3 != 0);
    story.step(what, name, format!("{mode}, MTU {}", network.mtu));
    let origin = Origin {
        network: number,
        vtep,
    };
    let (arrival, lookups) = tables::arrive(&node.tables, frame, &network, origin)?;
    for lookup in lookups {
        scene.tell(lookup, story)?;
    }
    // Exhaustive, as for what pods send.
    match arrival {
        Arrival::Drop(reason) => {
            story.step("policy", "refused", format!("drop {reason}"));
            Ok(Outcome::dropped(reason, &node.name))
        }
        Arrival::Deliver(endpoint) => {
            let found = format!("the sender is {peer}'s to speak for");
            story.step("policy", found, "deliver");
            let way = (number, End::Member);
            let judged = guards::arrive(&node.tables, frame, way, &endpoint)?;
            if let Some(reason) = scene.judged(number, &judged, story) {
                return Ok(Outcome::dropped(reason, &node.name));
            }
            if endpoint.flags & ENDPOINT_SOCKET != 0 {
                for name in steering(scene) {
                    let what = format!("xdp_uplink on {name}");
                    story.step(
                        what,
                        "it shows frames as on the wire",
                        "past the stack, to the port",
                    );
                }
            }
            scene.deliver(&endpoint, story).await
        }
        Arrival::Flood => {
            story.step("policy", "for all", "replicate, on this node alone");
            let ports = scene.flood(number, 0, story)?;
            let text = format!("a copy for {} of this node's ports", ports.len());
            let nodes: [String; 0] = [];
            let details = json!({"ports": ports, "nodes": nodes});
            Ok(Outcome::new(Verdict::Replicated, text, details))
        }
    }
}
