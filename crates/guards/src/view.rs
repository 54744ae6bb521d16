//! Policies as people look at them.

use std::net::IpAddr;

use policy::{Decision, Direction, PeerEnd, Protocol, Traffic};

use crate::Guards;
use crate::access::NodePort;

/// A policy, and what becomes of it on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyView {
    /// Kind, as in a manifest.
    pub kind: &'static str,
    /// Namespace; empty for kinds of the cluster.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Networks that it is for.
    pub networks: Vec<String>,
    /// Ports of this node that it selects, all networks together.
    pub ports: usize,
    /// Parts that are not obeyed, and parts that may be read in another way than meant.
    pub problems: Vec<String>,
}

/// The end of a packet that is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The sender, judged by what it sends.
    Sender,
    /// The receiver, judged by what it receives.
    Receiver,
}

/// The first packet of a connection, as [`Guards::why`] is asked about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Number of the network.
    pub network: u32,
    /// Port of this node that is judged, by its id.
    pub port: u16,
    /// Its end of the packet.
    pub side: Side,
    /// Address of the other end.
    pub other: IpAddr,
    /// IP protocol.
    pub protocol: u8,
    /// Port number at the receiver; none of what has no ports.
    pub number: Option<u16>,
}

impl Asked {
    fn traffic(&self) -> Traffic {
        let protocol = match self.protocol {
            6 => Protocol::Tcp,
            17 => Protocol::Udp,
            132 => Protocol::Sctp,
            _ => return Traffic::Other,
        };
        let number = self.number;
        number.map_or(Traffic::Other, |number| Traffic::Port(protocol, number))
    }
}

/// Verdict of the policies of one end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// True when the packet may pass.
    pub allows: bool,
    /// One sentence, with the policy and the rule that decide.
    pub reason: String,
}

impl Guards {
    /// Lists all policies; `None` while they are not known.
    pub fn policies(&self) -> Option<Vec<PolicyView>> {
        let mut state = self.state.lock();
        let parsed = state.parse(&self.inputs)?;
        let networks: Vec<_> = {
            let ledger = self.inputs.book.ledger();
            ledger.networks().cloned().collect()
        };
        let mut worlds = std::collections::BTreeMap::new();
        for facts in networks {
            if !parsed.of(&facts).is_empty() {
                let local = state.members.local(&self.inputs, &facts);
                let here = state.members.world(&self.inputs, &facts, local, None);
                worlds.entry(facts.name.clone()).or_insert((here, facts));
            }
        }
        let view = parsed.all().map(|(object, read, place)| {
            let mut ports = 0;
            let mut problems: Vec<String> = object.problems.clone();
            problems.extend(place.problems.iter().cloned());
            problems.extend(read.problems.iter().map(ToString::to_string));
            for name in &place.networks {
                let Some((here, facts)) = worlds.get(name) else {
                    continue;
                };
                let selected = policy::selected(&here.world, &read.policy);
                ports += selected.iter().filter(|it| **it < here.ports.len()).count();
                let warnings = policy::warnings(&here.world, &read.policy, !facts.addressless());
                let warnings = warnings.iter().map(|it| format!("on network {name}: {it}"));
                problems.extend(warnings);
            }
            PolicyView {
                kind: object.kind.as_str(),
                namespace: object.namespace.clone(),
                name: object.name.clone(),
                networks: place.networks.clone(),
                ports,
                problems,
            }
        });
        Some(view.collect())
    }

    /// Tells why a packet passes an end of this node or not.
    ///
    /// `None` where the end is no port of this node, no policy is for the network, or policies are not known.
    pub fn why(&self, asked: &Asked) -> Option<Why> {
        let mut state = self.state.lock();
        let parsed = state.parse(&self.inputs)?;
        let facts = {
            let ledger = self.inputs.book.ledger();
            let found = ledger.networks().find(|facts| facts.id == asked.network);
            found.cloned()?
        };
        let own = NodePort::of(&self.inputs.book, &facts);
        if own.has(asked.port) {
            return (asked.side == Side::Receiver).then(|| Why {
                allows: false,
                reason: "The port is the node's own, to which others open no connection."
                    .to_owned(),
            });
        }
        let policies = own.add_to(parsed.of(&facts));
        if policies.is_empty() {
            return None;
        }
        let policies = &*policies;
        let local = state.members.local(&self.inputs, &facts);
        let here = state.members.world(&self.inputs, &facts, local, None);
        let place = here.ports.iter().position(|port| *port == asked.port)?;
        let subject = here.world.members.get(place)?;
        let direction = match asked.side {
            Side::Sender => Direction::Egress,
            Side::Receiver => Direction::Ingress,
        };
        let network = state.networks.get(&facts.id);
        if let Some(refused) = network.and_then(|it| it.refused.as_deref()) {
            let closed = here
                .selected(policies)
                .into_iter()
                .any(|(port, ingress, egress)| {
                    let judged = match asked.side {
                        Side::Sender => egress,
                        Side::Receiver => ingress,
                    };
                    port == asked.port && judged
                });
            return closed.then(|| Why {
                allows: false,
                reason: format!(
                    "Nothing passes, because the policies of the network cannot be put in force: {refused}."
                ),
            });
        }
        let members = &here.world.members;
        let holder = members
            .iter()
            .find(|it| it.addresses.contains(&asked.other));
        let peer = holder.map_or(PeerEnd::Address(asked.other), |member| {
            PeerEnd::Member(member, asked.other)
        });
        let decision: Decision = policy::judge(
            &here.world,
            policies,
            direction,
            subject,
            peer,
            asked.traffic(),
        );
        Some(Why {
            allows: decision.allows(),
            reason: policy::reason(&here.world, policies, direction, subject, decision),
        })
    }
}
