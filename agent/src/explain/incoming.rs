//! Follows a frame that comes in by the uplink of a network.

use std::net::IpAddr;

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use agent_common::endpoint::Endpoint;
use agent_common::guard::End;
use agent_common::network::{NETWORK_NEXT_HOP, NETWORK_TRUNK, Network};
use agent_common::wire::{Incoming, WireKey};
use serde_json::json;

use super::address::{self, Ends};
use super::arrive::{receiver, shown};
use super::depart::build;
use super::directory::{Found, Member};
use super::frame::{self, Macs};
use super::guards;
use super::question::Proto;
use super::report::{Outcome, PACKET, Report, Story, Verdict};
use super::scene::Scene;
use super::tables;
use crate::error::AgentError;

/// Entries of the tables about an uplink.
struct Uplink {
    network: Network,
    name: String,
    mac: MacAddr,
}

/// Follows a frame of somebody beyond the uplink of `number`.
///
/// # Errors
/// When the description does not fit together, or the kernel does not tell.
pub(super) async fn follow(
    scene: &Scene<'_>,
    from: &Found,
    to: &Found,
    number: u32,
) -> Result<Report, AgentError> {
    let ends = address::ends(&scene.question, from, to)?;
    let facts = scene.directory.facts(number);
    let routed = facts.is_some_and(|facts| facts.routed);
    let mut shown = shown(scene, (from, to), &ends, (number, routed));
    let mut story = Story::new();
    if let Some(Member::Here(record)) = &to.member {
        scene.faults(record, &mut story).await?;
    }
    let Some(uplink) = uplink(scene, number, &mut story).await? else {
        let outcome = Outcome::dropped(DropReason::NoUplink, &scene.node.name);
        return Ok(story.end(&scene.node.name, shown, outcome));
    };
    let by_router = uplink.network.flags & NETWORK_NEXT_HOP != 0;
    let to_mac = if by_router && ends.to_mac.is_none() {
        uplink.mac
    } else {
        receiver(scene, to, &ends, number)
    };
    let macs = Macs {
        to: to_mac,
        from: ends.mac,
    };
    let frame = frame_of(scene, &ends, macs, routed)?;
    shown.source_mac = Some(ends.mac.to_string());
    shown.destination_mac = frame.first_chunk().map(|mac| MacAddr(*mac).to_string());
    shown.frame(&frame);
    let outcome = run(scene, &mut story, &frame, &ends, (number, &uplink)).await?;
    Ok(story.end(&scene.node.name, shown, outcome))
}

/// As it is on the wire, but for the tag.
fn frame_of(
    scene: &Scene<'_>,
    ends: &Ends,
    macs: Macs,
    routed: bool,
) -> Result<Vec<u8>, AgentError> {
    match (ends.proto, ends.addresses) {
        (Proto::Arp, Some((IpAddr::V4(source), IpAddr::V4(target)))) => {
            Ok(frame::arp(ends.mac, source, target))
        }
        (Proto::Nd, Some((IpAddr::V6(source), IpAddr::V6(target)))) => {
            Ok(frame::solicitation(ends.mac, source, target))
        }
        (Proto::Arp | Proto::Nd, _) => Err(ends.needs_address().into()),
        _ => {
            let frame = build(macs, ends, scene.question.size)?;
            // Its own node has routed it, or a router.
            Ok(if routed {
                frame::routed(&frame, macs)
            } else {
                frame
            })
        }
    }
}

/// Reads a network's uplink from the tables; `None` when nothing comes in.
async fn uplink(
    scene: &Scene<'_>,
    number: u32,
    story: &mut Story,
) -> Result<Option<Uplink>, AgentError> {
    let what = format!("NETWORKS[{number}]");
    let found = scene.look(|tables| tables.networks.get(&number))?;
    let Some(network) = found.filter(|it| it.uplink != 0) else {
        story.step(what, "no uplink", "nothing comes in");
        return Ok(None);
    };
    let link = scene.node.host.netlink.by_index(network.uplink).await?;
    let Some((name, mac)) = link.and_then(|it| Some((it.name, it.mac?))) else {
        let found = format!("interface {}, which is gone", network.uplink);
        story.step(what, found, "nothing comes in");
        return Ok(None);
    };
    let tag = if network.vlan == 0 {
        "as it is".to_owned()
    } else {
        format!("with VLAN tag {}", network.vlan)
    };
    story.step(what, name.clone(), tag);
    Ok(Some(Uplink {
        network,
        name,
        mac: MacAddr(mac),
    }))
}

/// Runs the checks of `from_wire`.
async fn run(
    scene: &Scene<'_>,
    story: &mut Story,
    frame: &[u8],
    ends: &Ends,
    (number, uplink): (u32, &Uplink),
) -> Result<Outcome, AgentError> {
    let Uplink { network, name, .. } = uplink;
    let node = || {
        let text = format!("not for a pod of this network here: {name} is the node's own");
        Outcome::new(Verdict::Node, text, json!({"node": scene.node.name}))
    };
    let key = match ends.addresses {
        // Which of its VLANs the frame is on is not said; all of them are its own.
        _ if network.flags & NETWORK_TRUNK != 0 => None,
        Some((_, ip)) if network.flags & NETWORK_NEXT_HOP != 0 => Some((
            WireKey::address(network.uplink, ip.into()),
            format!("WIRES[{name}, {ip}]"),
        )),
        _ => Some((
            WireKey::segment(network.uplink, network.vlan),
            format!("WIRES[{name}, VLAN {}]", network.vlan),
        )),
    };
    if let Some((key, what)) = key {
        let owner = scene.look(|tables| tables.wires.get(&key))?;
        if owner != Some(number) {
            let owner = owner.map(|it| scene.directory.network_name(it));
            let found = owner.unwrap_or_else(|| "nothing".to_owned());
            story.step(what, found, "not this network's");
            return Ok(node());
        }
        story.step(what, scene.directory.network_name(number), "");
    }
    story.about(match ends.proto {
        Proto::Arp => "arp",
        Proto::Nd => "nd",
        _ => PACKET,
    });
    let (incoming, lookups) = tables::incoming(&scene.node.tables, frame, network, number)?;
    for lookup in lookups {
        scene.tell(lookup, story)?;
    }
    // Exhaustive, as for what pods send.
    match incoming {
        Incoming::Leave => {
            story.step("policy", "for no pod of this node", "leave it to the node");
            Ok(node())
        }
        Incoming::Drop(reason) => {
            story.step("policy", "refused", format!("drop {reason}"));
            Ok(Outcome::dropped(reason, &scene.node.name))
        }
        Incoming::Deliver(endpoint) => {
            story.step("policy", "a member here", "deliver: as it is");
            deliver(scene, story, frame, (number, &endpoint)).await
        }
        Incoming::Route(endpoint) => {
            story.step("policy", "a member here", "deliver: from the gateway");
            deliver(scene, story, frame, (number, &endpoint)).await
        }
        Incoming::ArpReply(holder) | Incoming::NdReply(holder) => {
            let by_router = network.flags & NETWORK_NEXT_HOP != 0;
            let mac = if by_router { uplink.mac } else { holder.mac };
            let found = "a member here has the address";
            story.step("policy", found, "the datapath answers");
            let text = format!("answered by the datapath, out of {name}: it is at {mac}");
            Ok(Outcome::new(
                Verdict::Answered,
                text,
                json!({"mac": mac.to_string(), "uplink": name}),
            ))
        }
        Incoming::Flood => {
            let found = "for all";
            story.step(
                "policy",
                found,
                "replicate, on this node alone, and leave it to the node",
            );
            let ports = scene.flood(number, 0, story)?;
            let text = format!(
                "a copy for {} of this node's ports and for the node",
                ports.len()
            );
            let nodes: [String; 0] = [];
            let details = json!({"ports": ports, "nodes": nodes});
            Ok(Outcome::new(Verdict::Replicated, text, details))
        }
    }
}

/// Has policies judge a frame from outside, and delivers it.
async fn deliver(
    scene: &Scene<'_>,
    story: &mut Story,
    frame: &[u8],
    (number, to): (u32, &Endpoint),
) -> Result<Outcome, AgentError> {
    let node = &scene.node;
    let judged = guards::arrive(&node.tables, frame, (number, End::Outside), to)?;
    match scene.judged(number, &judged, story) {
        Some(reason) => Ok(Outcome::dropped(reason, &node.name)),
        None => scene.deliver(to, story).await,
    }
}
