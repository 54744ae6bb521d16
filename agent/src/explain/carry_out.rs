//! Follows a decision to its outcome, as far as this node can tell.
//!
//! On the way are the queues and links that a packet passes, and the node that it goes to.

use std::net::IpAddr;

use agent_common::addr::GATEWAY_MAC;
use agent_common::arrival::Arrival;
use agent_common::drop::DropReason;
use agent_common::endpoint::{ENDPOINT_GATEWAY, ENDPOINT_OUTSIDE, ENDPOINT_REMOTE, Endpoint};
use agent_common::flood::FloodKey;
use agent_common::network::{NETWORK_L3, Network};
use agent_common::packet::ETH_HLEN;
use agent_common::policy::Decision;
use agent_common::port::{PORT_L3, PORT_REPLICATE, PORT_WIRE, Port};
use agent_common::vtep::{VTEP_CHUNKS, Vtep};
use agent_common::wire::forges_tunnel;
use reach::overlay::{DEVICE, added};
use serde_json::json;

use super::depart::Departure;
use super::frame::{self, Macs};
use super::guards::{self, Judged};
use super::report::{Outcome, Verdict};
use super::tables;
use crate::error::AgentError;

impl Departure<'_> {
    /// Carries out a decision as `from_pod` does.
    // Exhaustive: a new decision does not compile until somebody says what becomes of the packet.
    pub(super) async fn carry_out(
        &mut self,
        decision: Decision,
        port: &Port,
        frame: &[u8],
    ) -> Result<Outcome, AgentError> {
        if let Some(judged) = guards::depart(&self.scene.node.tables, frame, port, false)? {
            if let Some(reason) = self.scene.judged(port.network, &judged, &mut self.story) {
                return Ok(self.drop(reason));
            }
            self.judged_there(decision, &judged);
        }
        let for_all = matches!(decision, Decision::Flood) && port.flags & PORT_WIRE != 0;
        let leaves = for_all || matches!(decision, Decision::Wire);
        if leaves && forges_tunnel(frame, port) {
            let found = "a tunnel, on the segment of the uplink";
            self.story.step("policy", found, "drop tunnel_port");
            return Ok(self.drop(DropReason::TunnelPort));
        }
        match decision {
            Decision::Drop(reason) => {
                let verdict = format!("drop {reason}");
                self.story.step("policy", "refused", verdict);
                Ok(self.drop(reason))
            }
            Decision::Ignore => {
                self.story.step("policy", "nothing to do", "it ends here");
                let text = "it has done its work, and no receiver needs it";
                Ok(Outcome::new(Verdict::Ignored, text, json!({})))
            }
            Decision::ArpReply(mac) | Decision::NdReply(mac) => {
                let found = format!("it is at {mac}");
                self.story.step("policy", found, "the datapath answers");
                let text = format!("answered by the datapath: it is at {mac}");
                let details = json!({"mac": mac.to_string()});
                Ok(Outcome::new(Verdict::Answered, text, details))
            }
            Decision::EchoReply(..) => {
                let found = "an echo request for the gateway";
                self.story.step("policy", found, "the datapath answers");
                let text = "answered by the datapath: the virtual gateway is there";
                let details = json!({"mac": GATEWAY_MAC.to_string()});
                Ok(Outcome::new(Verdict::Answered, text, details))
            }
            Decision::Service => self.translate(port, frame).await,
            Decision::Switch(endpoint) => {
                self.story.step("policy", "a member", "switch: as it is");
                self.deliver(&endpoint, port, frame).await
            }
            Decision::Moved(endpoint) => {
                let found = "no port with this MAC address, and a member with the IP address";
                self.story
                    .step("policy", found, "switch: with the member's MAC address");
                let macs = Macs {
                    to: endpoint.mac,
                    from: port.mac,
                };
                let moved = frame::addressed(frame, macs);
                self.deliver(&endpoint, port, &moved).await
            }
            Decision::Route(endpoint, _) => {
                let found = "a member, behind the gateway";
                self.story
                    .step("policy", found, "route: new MAC addresses, a hop less");
                let (carried, size) = (self.way.mtu, size_of(frame));
                if carried != 0 && size > carried {
                    let found = format!("{size} bytes, and the other network carries {carried}");
                    let verdict = "drop path_mtu, tell the sender";
                    self.story.step("MTU of the route", found, verdict);
                    return Ok(self.drop(DropReason::PathMtu));
                }
                let macs = Macs {
                    to: endpoint.mac,
                    from: GATEWAY_MAC,
                };
                let routed = frame::routed(frame, macs);
                self.deliver(&endpoint, port, &routed).await
            }
            Decision::Leave(endpoint) => {
                let found = "no member of the network, which has a way out";
                self.story
                    .step("policy", found, "leave: to the network's gateway here");
                let link = self
                    .scene
                    .node
                    .host
                    .netlink
                    .by_index(endpoint.ifindex)
                    .await?;
                let Some(link) = link.filter(|link| link.up) else {
                    return Ok(self.drop(DropReason::Undeliverable));
                };
                let text = "leaves the network with an address of this node, if it goes outside, or to a Service that clusterServices of the network name";
                let details = json!({"gateway": endpoint.mac.to_string(), "interface": link.name});
                Ok(Outcome::new(Verdict::Left, text, details))
            }
            Decision::Wire => self.leave_by_uplink(port, None).await,
            Decision::WireRoute(endpoint, family) if endpoint.flags & ENDPOINT_OUTSIDE != 0 => {
                self.leave_to_router(port, family, destination(frame)).await
            }
            Decision::WireRoute(endpoint, _) => self.leave_by_uplink(port, Some(&endpoint)).await,
            Decision::Node => self.hand_up(frame).await,
            Decision::Flood => self.flood(port).await,
        }
    }

    /// Says that a receiver elsewhere has policies of its own.
    fn judged_there(&mut self, decision: Decision, judged: &Judged) {
        let (Decision::Switch(to) | Decision::Moved(to) | Decision::Route(to, _)) = decision else {
            return;
        };
        if to.flags & ENDPOINT_REMOTE != 0 && judged.has_sets() {
            let found = "not on this node";
            let verdict = "its node judges what it receives: ask there";
            self.story.step("ingress of the receiver", found, verdict);
        }
    }

    /// Sends a packet through the shaper of a port with a rate.
    ///
    /// The packet waits at the shaper's near end, and is decided about again at its far end.
    pub(super) async fn through_shaper(
        &mut self,
        port: &Port,
        frame: &[u8],
    ) -> Result<Outcome, AgentError> {
        let near = port.shaper;
        self.story
            .step("policy", "admitted", "it waits for its rate first");
        let what = format!("shaper of the port, interface {near}");
        let Some(link) = self.scene.node.host.netlink.by_index(near).await? else {
            self.story.step(what, "none", "drop undeliverable");
            return Ok(self.drop(DropReason::Undeliverable));
        };
        let queue = self.scene.queue(near).await?;
        let name = link.name;
        self.story
            .step(format!("queue of {name}"), queue.text, queue.verdict);
        if queue.blocked {
            let text = format!("the queue of {name} is broken and drops everything");
            let advice = "wait for the audit, which mends it within 30 seconds";
            return Ok(Outcome::lost(text, advice));
        }
        // At the far end it enters as a packet of a port without a shaper.
        let far = self.record.shaper.map_or(0, |shaper| shaper.far);
        let Some(port) = self.port(far)? else {
            return Ok(self.drop(DropReason::NoPort));
        };
        let decision = self.decide(frame, &port)?;
        self.carry_out(decision, &port, frame).await
    }

    async fn deliver(
        &mut self,
        endpoint: &Endpoint,
        port: &Port,
        frame: &[u8],
    ) -> Result<Outcome, AgentError> {
        if endpoint.flags & ENDPOINT_GATEWAY != 0 {
            // No table of ours leads here: the policy answers for the gateway.
            return Ok(self.drop(DropReason::Gateway));
        }
        if endpoint.flags & ENDPOINT_REMOTE != 0 {
            return self.send_elsewhere(endpoint, port, frame).await;
        }
        self.scene.deliver(endpoint, &mut self.story).await
    }

    async fn send_elsewhere(
        &mut self,
        endpoint: &Endpoint,
        port: &Port,
        frame: &[u8],
    ) -> Result<Outcome, AgentError> {
        let number = endpoint.ifindex;
        let what = format!("VTEPS[{number}]");
        let Some(vtep) = self.scene.look(|tables| tables.vteps.get(number))? else {
            self.story.step(what, "nothing", "drop no_tunnel");
            return Ok(self.drop(DropReason::NoTunnel));
        };
        let address = IpAddr::from(vtep.address());
        let peer = self.scene.directory.node_of(vtep.address());
        let found = format!("{peer}, {address}");
        self.story.step(what, found, "into a tunnel");
        self.compare_place(endpoint, &vtep);
        let size = size_of(frame);
        if vtep.mtu != 0 && size > vtep.mtu {
            let found = format!("the way there carries {} bytes", vtep.mtu);
            self.story.step(
                format!("VTEPS[{number}]"),
                found,
                "drop path_mtu, tell the sender",
            );
            return Ok(self.drop(DropReason::PathMtu));
        }
        if let Some(outcome) = self.tunnel(&vtep, frame).await? {
            return Ok(outcome);
        }
        let outcome = self.there(&peer, number, port, frame)?;
        let text = format!("to {peer} ({address}), for {} there", endpoint.mac);
        let details = json!({
            "node": peer,
            "vtep": address.to_string(),
            "mac": endpoint.mac.to_string(),
            "vni": self.way.network,
            "device": DEVICE,
        });
        Ok(outcome.unwrap_or_else(|| Outcome::new(Verdict::Tunnelled, text, details)))
    }

    /// Notes where nodes say that a member is somewhere else.
    fn compare_place(&mut self, endpoint: &Endpoint, vtep: &Vtep) {
        let there = &self.scene.directory.there;
        let said = there
            .iter()
            .find(|(network, it)| *network == self.way.network && it.mac == endpoint.mac);
        let address = IpAddr::from(vtep.address());
        match said {
            None => self.story.disagree(format!(
                "the tables have {} at {address}, and no node says that it has it",
                endpoint.mac
            )),
            Some((_, it)) if !it.peer.vteps.contains(&address) => self.story.disagree(format!(
                "the tables have {} at {address}, and {} says that it has it",
                endpoint.mac, it.peer.node
            )),
            Some(_) => {}
        }
    }

    /// Encapsulates a packet: device, outer headers, underlay.
    ///
    /// Returns an outcome when the packet ends there.
    async fn tunnel(&mut self, vtep: &Vtep, frame: &[u8]) -> Result<Option<Outcome>, AgentError> {
        let node = self.scene.node;
        let what = format!("device {}", vtep.device);
        if vtep.uplink != 0 {
            let hop = vtep.next_hop();
            let found = format!("by interface {}, next hop {hop}", vtep.uplink);
            self.story
                .step("way", found, "the program tunnels itself, where it can");
        }
        let device = node.host.netlink.by_index(vtep.device).await?;
        let Some(device) = device.filter(|link| link.up) else {
            self.story
                .step(what, "none that is up", "nothing leaves the node");
            let text = format!("{DEVICE} is gone or down: nothing reaches other nodes");
            let advice = "wait for the audit, which makes it again within 30 seconds";
            return Ok(Some(Outcome::lost(text, advice)));
        };
        let address = IpAddr::from(vtep.address());
        let own = node.remotes.vteps();
        let own = own.iter().find(|ip| ip.is_ipv4() == address.is_ipv4());
        let own = own.map_or("this node's address".to_owned(), ToString::to_string);
        self.story.step(
            device.name,
            format!("{own} to {address}, UDP {}", node.reach.tunnel_port()),
            format!("VXLAN, VNI {}", self.way.network),
        );
        let added = added(address);
        let outer = size_of(frame).saturating_add(added);
        let way = node
            .host
            .netlink
            .with(move |connection: &mut netdev::Connection| {
                let route = connection.route_to(address)?;
                let ifindex = route.map_or(0, |route| route.ifindex);
                let link = if ifindex == 0 {
                    None
                } else {
                    connection.by_index(ifindex)?
                };
                Ok::<_, netdev::Error>((route, link))
            });
        let what = format!("route of the node to {address}");
        match way.await? {
            (Some(_), Some(link)) if outer > link.mtu => {
                let found = format!("{}, MTU {}", link.name, link.mtu);
                let verdict = format!("{outer} bytes do not fit");
                self.story.step(what, found, verdict);
                let text = format!(
                    "{outer} bytes with the tunnel's headers do not fit {}",
                    link.name
                );
                let advice =
                    "lower spec.mtu of its PodNetworkParameters, or raise the underlay's MTU";
                Ok(Some(Outcome::lost(text, advice)))
            }
            (Some(_), Some(link)) => {
                let found = format!("{}, MTU {}", link.name, link.mtu);
                self.story.step(what, found, format!("{outer} bytes fit"));
                Ok(None)
            }
            (Some(route), None) => {
                self.story
                    .step(what, route.to_string(), "as the node routes");
                Ok(None)
            }
            (None, _) => {
                self.story.step(what, "none", "nothing leaves the node");
                let text = format!("the node has no route to {address}");
                Ok(Some(Outcome::lost(
                    text,
                    "give the node a route to the other one",
                )))
            }
        }
    }

    /// Runs the checks of the other node, if its tables agree with these.
    ///
    /// Returns an outcome when one fails.
    fn there(
        &mut self,
        peer: &str,
        vtep: u32,
        port: &Port,
        frame: &[u8],
    ) -> Result<Option<Outcome>, AgentError> {
        let number = self.way.network;
        let found = self.scene.look(|tables| tables.networks.get(&number))?;
        let routed = if port.flags & PORT_L3 != 0 {
            NETWORK_L3
        } else {
            0
        };
        let network = found.unwrap_or_else(|| Network::new(routed, port.mtu.into()));
        if found.is_none() && number == port.network {
            self.story.disagree(format!(
                "NETWORKS has no entry for {number}: what comes back is dropped as unknown_network"
            ));
        }
        let node = &self.scene.node.tables;
        let arrival = tables::arrive_there(node, frame, &network, (number, vtep, port.network))?;
        let what = format!("on {peer}, if its tables agree with these");
        Ok(match arrival {
            Arrival::Deliver(endpoint) => {
                let found = format!(
                    "sender on {}, receiver {}",
                    self.scene.node.name, endpoint.mac
                );
                self.story.step(what, found, "it delivers");
                None
            }
            Arrival::Flood => {
                self.story.step(what, "for all", "it replicates");
                None
            }
            Arrival::Drop(reason) => {
                self.story.step(what, "refused", format!("drop {reason}"));
                Some(Outcome::dropped(reason, peer))
            }
        })
    }

    pub(super) async fn hand_up(&mut self, frame: &[u8]) -> Result<Outcome, AgentError> {
        self.story
            .step("policy", "routing: Node", "to the node's own stack");
        let destination = destination(frame);
        let mut details = json!({"node": self.scene.node.name});
        if let Some(destination) = destination {
            let way = &self.scene.node.host.netlink;
            let found = way
                .with(move |connection: &mut netdev::Connection| connection.route_to(destination))
                .await?;
            let text = found.map_or("none".to_owned(), |route| route.to_string());
            details["route"] = json!(text);
            let what = format!("route of the node to {destination}");
            let verdict = if found.is_some() {
                "services, masquerading and filters of the node come first"
            } else {
                "the node answers: unreachable"
            };
            self.story.step(what, text, verdict);
        }
        let text = "handed to the node's own network stack, which routes it";
        Ok(Outcome::new(Verdict::Node, text, details))
    }

    async fn flood(&mut self, port: &Port) -> Result<Outcome, AgentError> {
        self.story.step("policy", "for all", "replicate");
        let id = port.port_id;
        let refused = self.scene.look(|tables| tables.refuses_flood(port))?;
        let what = format!("STORM[{id}]");
        if let Some(reason) = refused {
            self.story.step(what, "empty", format!("drop {reason}"));
            return Ok(self.drop(reason));
        }
        self.story.step(what, "room", "within storm control");
        let nodes = if port.flags & PORT_REPLICATE != 0 {
            self.spread(port.network)?
        } else {
            Vec::new()
        };
        let uplink = if port.flags & PORT_WIRE != 0 {
            self.uplink(port.network).await?.map(|(name, _)| name)
        } else {
            None
        };
        let ports = self.scene.flood(port.network, port.home, &mut self.story)?;
        let mut text = format!(
            "a copy for {} of this node's ports and {} other nodes",
            ports.len(),
            nodes.len()
        );
        if let Some(uplink) = &uplink {
            text.push_str(" and one out of ");
            text.push_str(uplink);
        }
        let details = json!({"ports": ports, "nodes": nodes, "uplink": uplink});
        Ok(Outcome::new(Verdict::Replicated, text, details))
    }

    /// The nodes that get a copy.
    fn spread(&mut self, network: u32) -> Result<Vec<String>, AgentError> {
        let mut nodes = Vec::new();
        for chunk in 0..VTEP_CHUNKS {
            let key = FloodKey { network, chunk };
            let Some(found) = self.scene.look(|tables| tables.flood_vteps.get(&key))? else {
                break;
            };
            let count = usize::from(found.count);
            for number in found.vteps.iter().take(count) {
                let number = u32::from(*number);
                let vtep = self.scene.look(|tables| tables.vteps.get(number))?;
                nodes.push(match vtep {
                    Some(vtep) => {
                        let address = vtep.address();
                        format!("{} ({address})", self.scene.directory.node_of(address))
                    }
                    None => format!("number {number}, which no node has"),
                });
            }
        }
        let found = if nodes.is_empty() {
            "none".to_owned()
        } else {
            nodes.join(", ")
        };
        let what = format!("FLOOD_VTEPS[{network}]");
        self.story.step(what, found, "a copy for each node");
        Ok(nodes)
    }
}

/// Size of the packet in a frame, bytes.
fn size_of(frame: &[u8]) -> u32 {
    u32::try_from(frame.len().saturating_sub(ETH_HLEN)).unwrap_or(u32::MAX)
}

/// The destination address of an IP packet in a frame.
fn destination(frame: &[u8]) -> Option<IpAddr> {
    let ether_type = frame.get(12..14)?;
    if ether_type == [0x08, 0x00] {
        let bytes: [u8; 4] = frame.get(30..34)?.try_into().ok()?;
        Some(bytes.into())
    } else {
        let bytes: [u8; 16] = frame.get(38..54)?.try_into().ok()?;
        Some(bytes.into())
    }
}
