//! Follows a packet that a pod of this node sends.

use std::net::IpAddr;

use agent_common::addr::{GATEWAY_MAC, Ip16, MacAddr};
use agent_common::drop::DropReason;
use agent_common::policy::Decision;
use agent_common::port::{PORT_L3, PORT_MORE_IPS, Port};
use agent_common::route::{Route, RouteKey};
use book::record::Attachment;

use super::address::{self, Ends};
use super::directory::{Found, Member, name_of};
use super::frame::{self, Macs};
use super::question::{Address, Proto};
use super::report::{Outcome, PACKET, Report, Shown, Story, Verdict};
use super::scene::Scene;
use super::tables;
use crate::error::AgentError;

/// The way of one packet.
pub(super) struct Departure<'a> {
    pub(super) scene: &'a Scene<'a>,
    pub(super) record: &'a Attachment,
    pub(super) story: Story,
    /// The receiver's network, with its MTU where it is another than the sender's.
    pub(super) way: Route,
}

/// Follows a packet of `record` to `to`.
///
/// # Errors
/// When the description does not fit together, or the kernel does not tell.
pub(super) async fn follow(
    scene: &Scene<'_>,
    record: &Attachment,
    from: &Found,
    to: &Found,
) -> Result<Report, AgentError> {
    let ends = address::ends(&scene.question, from, to)?;
    // Before anything is looked up: what does not fit together is the asker's to mend.
    if !matches!(ends.proto, Proto::Arp | Proto::Nd) {
        let macs = Macs {
            to: MacAddr::BROADCAST,
            from: ends.mac,
        };
        build(macs, &ends, scene.question.size)?;
    }
    let mut departure = Departure {
        scene,
        record,
        story: Story::new(),
        way: Route {
            network: record.network.id,
            mtu: 0,
        },
    };
    let mut shown = Shown {
        network: record.network.name.clone(),
        network_id: record.network.id,
        mode: mode(record.network.routed),
        from: format!("{} on this node", name_of(record)),
        to: scene.directory.name(to),
        protocol: address::words(ends.proto, ends.addresses),
        source: ends.addresses.map(|(source, _)| source.to_string()),
        destination: ends.addresses.map(|(_, to)| to.to_string()),
        source_mac: Some(ends.mac.to_string()),
        ..Shown::default()
    };
    departure.compare(to, &ends).await?;
    let outcome = departure.run(&ends, &mut shown).await?;
    Ok(departure.story.end(&scene.node.name, shown, outcome))
}

/// The word for how a network forwards.
pub(super) const fn mode(routed: bool) -> &'static str {
    if routed { "L3" } else { "L2" }
}

impl Departure<'_> {
    /// Notes where the records of sender and receiver and the kernel differ.
    async fn compare(&mut self, to: &Found, ends: &Ends) -> Result<(), AgentError> {
        let own = self.record.network.id;
        let receiver = match &to.member {
            Some(Member::Here(record)) => Some(&**record),
            Some(Member::There(..)) | None => None,
        };
        for record in std::iter::once(self.record).chain(receiver) {
            self.scene.faults(record, &mut self.story).await?;
        }
        if let Some(network) = to.network.filter(|network| *network != own) {
            let (here, there) = (
                self.scene.directory.network_name(own),
                self.scene.directory.network_name(network),
            );
            let found = ends.addresses.map_or_else(
                || "its MAC address".to_owned(),
                |(_, destination)| destination.to_string(),
            );
            self.story.step(
                format!("network of {}", self.scene.directory.name(to)),
                there.clone(),
                match self.leads_to(ends)? == Some(network) {
                    true => format!("the virtual gateway of {here} routes to {there}"),
                    false => format!(
                        "networks never meet: {found} is looked up on {here}, not on {there}"
                    ),
                },
            );
        }
        Ok(())
    }

    /// The network to which the virtual gateway routes what is for the destination.
    fn leads_to(&self, ends: &Ends) -> Result<Option<u32>, AgentError> {
        let Some((_, destination)) = ends.addresses else {
            return Ok(None);
        };
        let own = self.record.network.id;
        let key = RouteKey::of(own, destination.into());
        let route = self.scene.look(|tables| tables.routes.get(&key))?;
        Ok(route.map(|route| route.network))
    }

    async fn run(&mut self, ends: &Ends, shown: &mut Shown) -> Result<Outcome, AgentError> {
        if let Some(outcome) = self.enter().await? {
            return Ok(outcome);
        }
        let ifindex = self.record.host.ifindex;
        let Some(port) = self.port(ifindex)? else {
            return Ok(self.drop(DropReason::NoPort));
        };
        let frame = match ends.proto {
            Proto::Arp | Proto::Nd => {
                shown.destination_mac = None;
                self.question(ends, ends.addresses.map(|(_, to)| to))?
            }
            Proto::Tcp(_) | Proto::Udp(_) | Proto::Icmp | Proto::Ip(_) | Proto::Ether(_) => {
                let mac = match self.receiver_mac(ends, &port).await? {
                    Ok(mac) => mac,
                    Err(outcome) => return Ok(outcome),
                };
                shown.destination_mac = Some(mac.to_string());
                let macs = Macs {
                    to: mac,
                    from: ends.mac,
                };
                build(macs, ends, self.scene.question.size)?
            }
        };
        shown.frame(&frame);
        self.story.about(PACKET);
        let decision = self.decide(&frame, &port)?;
        if port.shaper != 0 && is_forwarded(decision) {
            return self.through_shaper(&port, &frame).await;
        }
        self.carry_out(decision, &port, &frame).await
    }

    /// Looks at the pod's link; an outcome when no program of ours is there.
    async fn enter(&mut self) -> Result<Option<Outcome>, AgentError> {
        let (node, host) = (self.scene.node, &self.record.host);
        let who = format!("attachment {}", name_of(self.record));
        let found = format!("{} (interface {})", host.name, host.ifindex);
        self.story.step(who, found, "the pod sends here");
        let link = node.host.netlink.by_index(host.ifindex).await?;
        let Some(link) = link.filter(|link| link.name == host.name) else {
            let text = format!("{} is gone: the pod cannot send", host.name);
            self.story.step("link", "none", "nothing leaves the pod");
            let advice = "remove the attachment and make it again";
            return Ok(Some(Outcome::lost(text, advice)));
        };
        if !link.up {
            let text = format!("{} is down: the pod cannot send", host.name);
            self.story.step("link", "down", "nothing leaves the pod");
            let advice = "find out who set it down, and set it up again";
            return Ok(Some(Outcome::lost(text, advice)));
        }
        let what = format!("program of {}", host.name);
        if node.host.is_attached(&host.name, host.ifindex).await? {
            let kind = node.host.hook.kind(host.ifindex).label();
            self.story
                .step(what, format!("d_pod, {kind}"), "it decides");
            return Ok(None);
        }
        self.story.step(what, "not podnet's", "no program decides");
        let text = format!(
            "no program of podnet is at {}: the node's own stack gets the packet",
            host.name
        );
        let details = serde_json::json!({"interface": host.name});
        let outcome = Outcome::new(Verdict::Unguarded, text, details);
        Ok(Some(outcome))
    }

    /// The entry of an interface in `PORTS`.
    pub(super) fn port(&mut self, ifindex: u32) -> Result<Option<Port>, AgentError> {
        let found = self.scene.look(|tables| tables.ports.get(&ifindex))?;
        let lookup = format!("PORTS[{ifindex}]");
        let Some(port) = found else {
            self.story.step(lookup, "nothing", "drop no_port");
            return Ok(None);
        };
        let network = self.scene.directory.network_name(port.network);
        let mut text = format!("{network} (#{}), {}", port.network, port.mac);
        let first = [Ip16::from_v4(port.ip4), port.ip6];
        for ip in first.into_iter().filter(|ip| !is_none(ip)) {
            text.push_str(&format!(", {ip}"));
        }
        if port.flags & PORT_MORE_IPS != 0 {
            text.push_str(", and more");
        }
        let mode = mode(port.flags & PORT_L3 != 0);
        self.story
            .step(lookup, text, format!("{mode}, MTU {}", port.mtu));
        Ok(Some(port))
    }

    /// MAC address that the pod's kernel would send to.
    ///
    /// Returns the outcome of its ARP or ND question when that has no answer.
    async fn receiver_mac(
        &mut self,
        ends: &Ends,
        port: &Port,
    ) -> Result<Result<MacAddr, Outcome>, AgentError> {
        if let Some(mac) = ends.to_mac {
            return Ok(Ok(mac));
        }
        let Some((_, destination)) = ends.addresses else {
            return Ok(Ok(MacAddr::BROADCAST));
        };
        if frame::is_group(destination) || address::is_broadcast(self.record, destination) {
            let mac = frame::group_mac(destination);
            let what = format!("MAC address of {destination}");
            self.story
                .step(what, mac.to_string(), "known without a question");
            return Ok(Ok(mac));
        }
        let own = Member::Here(Box::new(self.record.clone())).ips();
        if own.contains(&destination) {
            let routed = self.record.network.routed;
            let mac = if routed { GATEWAY_MAC } else { self.record.mac };
            self.story.step(
                format!("{destination} in the pod"),
                "its own address",
                "its kernel would not send it out; followed as if it did",
            );
            return Ok(Ok(mac));
        }
        let next = self.next_hop(destination);
        let question = self.question(ends, Some(next))?;
        let about = if next.is_ipv4() { "arp" } else { "nd" };
        self.story.about(about);
        let decision = self.decide(&question, port)?;
        Ok(match decision {
            Decision::ArpReply(mac) | Decision::NdReply(mac) => {
                let what = format!("who has {next}?");
                self.story
                    .step(what, mac.to_string(), "the datapath answers");
                Ok(mac)
            }
            Decision::Flood | Decision::Wire => self.asked_everybody(next),
            Decision::Drop(_)
            | Decision::Ignore
            | Decision::Switch(_)
            | Decision::Moved(_)
            | Decision::Route(..)
            | Decision::Leave(_)
            | Decision::WireRoute(..)
            | Decision::Node
            | Decision::Service
            | Decision::EchoReply(..) => {
                // Without an answer the packet itself is never sent.
                let outcome = self.carry_out(decision, port, &question).await?;
                let what = format!("who has {next}?");
                self.story
                    .step(what, "no answer", "the packet itself is not sent");
                Err(outcome)
            }
        })
    }

    /// Finds the member that answers a question on a network of unknown addresses.
    ///
    /// podnet does not know the addresses of such a network, so members answer for themselves.
    fn asked_everybody(&mut self, next: IpAddr) -> Result<MacAddr, Outcome> {
        let network = self.record.network.id;
        let what = format!("who has {next}?");
        let known = self.scene.directory.member(network, Address::Ip(next));
        if let Some(member) = known {
            let mac = member.mac();
            self.story.step(
                what,
                mac.to_string(),
                "the question goes to all members; this one answers",
            );
            return Ok(mac);
        }
        self.story.step(
            what,
            "not known here",
            "the question goes to all members; the holder answers",
        );
        let text = format!("who has {next} is for the members of the network to answer");
        let details = serde_json::json!({"nextHop": next.to_string()});
        Err(Outcome::new(Verdict::Unresolved, text, details))
    }

    /// Next hop of the pod's kernel, by the routes that podnet has made.
    fn next_hop(&mut self, destination: IpAddr) -> IpAddr {
        let (next, why) = address::next_hop(self.record, destination);
        let what = format!("route of the pod to {destination}");
        self.story.step(what, next.to_string(), why);
        next
    }

    fn question(&self, ends: &Ends, target: Option<IpAddr>) -> Result<Vec<u8>, AgentError> {
        let own = |target| address::own(self.record, target);
        Ok(match target {
            Some(IpAddr::V4(target)) => match own(target.into()) {
                Some(IpAddr::V4(ip)) => frame::arp(self.record.mac, ip, target),
                Some(IpAddr::V6(_)) | None => {
                    frame::arp(self.record.mac, std::net::Ipv4Addr::UNSPECIFIED, target)
                }
            },
            Some(IpAddr::V6(target)) => match own(target.into()) {
                Some(IpAddr::V6(ip)) => frame::solicitation(self.record.mac, ip, target),
                Some(IpAddr::V4(_)) | None => {
                    let link_local = self.record.mac.link_local();
                    frame::solicitation(self.record.mac, link_local, target)
                }
            },
            None => return Err(ends.needs_address().into()),
        })
    }

    /// Runs the policy over the live tables, and tells what it looked at.
    pub(super) fn decide(&mut self, frame: &[u8], port: &Port) -> Result<Decision, AgentError> {
        let ((decision, way), lookups) = tables::decide(&self.scene.node.tables, frame, port)?;
        self.way = way;
        for lookup in lookups {
            self.scene.tell(lookup, &mut self.story)?;
        }
        Ok(decision)
    }

    pub(super) fn drop(&self, reason: DropReason) -> Outcome {
        Outcome::dropped(reason, &self.scene.node.name)
    }
}

/// True for the value of a port that has no address of the family.
fn is_none(ip: &Ip16) -> bool {
    [Ip16::NONE, Ip16::from_v4([0; 4])].contains(ip)
}

/// True when a rate from the pod applies.
pub(super) const fn is_forwarded(decision: Decision) -> bool {
    match decision {
        Decision::Switch(_)
        | Decision::Moved(_)
        | Decision::Route(..)
        | Decision::Leave(_)
        | Decision::Wire
        | Decision::WireRoute(..)
        | Decision::Node
        | Decision::Service
        | Decision::Flood => true,
        Decision::Drop(_)
        | Decision::Ignore
        | Decision::ArpReply(_)
        | Decision::NdReply(_)
        | Decision::EchoReply(..) => false,
    }
}

/// The frame itself.
pub(super) fn build(macs: Macs, ends: &Ends, size: Option<usize>) -> Result<Vec<u8>, AgentError> {
    match (ends.proto, ends.addresses) {
        (Proto::Ether(ether_type), _) => Ok(frame::data(macs, ether_type, size)),
        (_, Some(addresses)) => Ok(frame::packet(macs, addresses, ends.proto, size)?),
        (_, None) => Err(ends.needs_address().into()),
    }
}
