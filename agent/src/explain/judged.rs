//! Tells what network policies say of a packet, at each end that this node has.

use std::net::IpAddr;

use agent_common::addr::Ip16;
use agent_common::drop::DropReason;
use agent_common::guard::UNKNOWN_ATOM;
use guards::view::{Asked, Side};

use super::directory::name_of;
use super::guards::{Direction, Judged, JudgedEnd, Kind};
use super::report::Story;
use super::scene::Scene;

impl Scene<'_> {
    /// Tells how policies judge each end of this node.
    ///
    /// Returns the reason for a drop.
    ///
    /// `network` is the number of the packet's network.
    pub(super) fn judged(
        &self,
        network: u32,
        judged: &Judged,
        story: &mut Story,
    ) -> Option<DropReason> {
        match judged.kind {
            Kind::Exempt => {
                if judged.has_sets() {
                    let found = "ARP and neighbour discovery";
                    story.step("network policies", found, "pass: none can deny them");
                }
                return judged.verdict.err();
            }
            Kind::Other => {
                if judged.has_sets() {
                    let found = "neither IP nor ARP as hosts send it: no policy can name it";
                    let verdict = match judged.verdict {
                        Ok(()) => "pass".to_owned(),
                        Err(reason) => format!("drop {reason}: the port is isolated"),
                    };
                    story.step("network policies", found, verdict);
                }
                return judged.verdict.err();
            }
            Kind::Judged => {}
        }
        let mut told = false;
        for end in &judged.ends {
            told |= self.end(network, judged, end, story);
        }
        if !told {
            return judged.verdict.err();
        }
        self.connection(judged, story);
        judged.verdict.err()
    }

    /// Tells of one end; false where no policy is for the network.
    fn end(&self, network: u32, judged: &Judged, end: &JudgedEnd, story: &mut Story) -> bool {
        let asked = Asked {
            network,
            port: end.port,
            side: match end.direction {
                Direction::Egress => Side::Sender,
                Direction::Ingress => Side::Receiver,
            },
            other: IpAddr::from(end.other),
            protocol: judged.tuple.protocol,
            number: judged.number,
        };
        let why = self.node.guards.why(&asked);
        if why.is_none() && end.set.1 == 0 {
            return false;
        }
        let (word, reason) = match end.direction {
            Direction::Egress => ("egress", DropReason::PolicyEgress),
            Direction::Ingress => ("ingress", DropReason::PolicyIngress),
        };
        let holder = self.directory.here.iter();
        let holder = holder.clone().find(|it| it.port_id == end.port);
        let holder = holder.map_or_else(|| format!("port {}", end.port), name_of);
        let found = match end.set {
            (_, 0) => "no set".to_owned(),
            (generation, set) => {
                let atom = match end.atom {
                    UNKNOWN_ATOM => "of unknown labels".to_owned(),
                    atom => format!("in group {atom}"),
                };
                format!(
                    "set {set} of generation {generation}, {} is {atom}",
                    end.other
                )
            }
        };
        let verdict = match end.verdict {
            Ok(()) => "pass".to_owned(),
            Err(reason) => format!("drop {reason}"),
        };
        let because = why.as_ref().map_or_else(
            || {
                let unread = self.node.policies.get().unread.join(", ");
                if unread.is_empty() {
                    "no policy that this agent knows is for the network".to_owned()
                } else {
                    format!("what is in force stays until policies are known ({unread})")
                }
            },
            |why| why.reason.clone(),
        );
        let what = format!("GUARDS[{}], {word} of {holder}", end.port);
        story.step(what, found, format!("{verdict}: {because}"));
        if let Some(why) = why.filter(|why| why.allows != end.verdict.is_ok()) {
            let does = if end.verdict.is_ok() {
                "let the packet pass"
            } else {
                "drop the packet"
            };
            story.disagree(format!(
                "the kernel's tables {does} at {word} of {holder}, and the policies say otherwise ({}): ask again in a \
                 moment, and if it stays so restart the agent, which writes all tables",
                why.reason.trim_end_matches('.')
            ));
        }
        // A policy that allows an address does not allow another port to take its packets.
        if judged.verdict == Err(reason)
            && end.verdict.is_ok()
            && end.direction == Direction::Egress
        {
            let found = format!("{} is not at this MAC address", end.other);
            story.step("ENDPOINTS", found, format!("drop {reason}"));
        }
        true
    }

    /// Tells of the connection that the packet is of, and of the reply.
    fn connection(&self, judged: &Judged, story: &mut Story) {
        if let Some((key, words, age)) = &judged.connection {
            let opener = if words.flags & agent_common::guard::FLOW_HIGH_OPENED != 0 {
                (key.high, key.high_port)
            } else {
                (key.low, key.low_port)
            };
            let found = format!("{} opened it, last packet {age} s ago", socket(opener));
            let verdict = match judged.verdict {
                Ok(()) => "pass: it is of this connection",
                Err(_) => "judged again: policies have changed",
            };
            story.step("FLOWS", found, verdict);
        }
        if judged.verdict.is_ok() && judged.for_one && judged.has_sets() {
            let (from, to) = (judged.tuple.destination, judged.tuple.source);
            let found = format!("from {from} to {to}");
            story.step("the reply", found, "pass: it is of the same connection");
        }
    }
}

/// An address with its port.
fn socket((ip, port): (Ip16, u16)) -> String {
    match IpAddr::from(ip) {
        ip if port == 0 => ip.to_string(),
        ip => std::net::SocketAddr::from((ip, port)).to_string(),
    }
}
