//! Policies as people look at them.

use std::net::IpAddr;

use policy::{Decision, Direction, PeerEnd, Traffic};

use crate::Guards;

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
    /// Parts that are not obeyed, and parts that may mean something else than was meant.
    pub problems: Vec<String>,
}

/// An end of a packet on a network, as [`Guards::why`] is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The sender, judged by what it sends.
    Sender,
    /// The receiver, judged by what it receives.
    Receiver,
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
            if !parsed.of(&facts.name).is_empty() && !facts.by_node {
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

    /// Tells why a packet between two addresses of a network passes an end of this node or not.
    ///
    /// `None` where the end is no port of this node, or no policy is for the network.
    pub fn why(
        &self,
        network: &str,
        (end, side): (IpAddr, Side),
        other: IpAddr,
        traffic: Traffic,
    ) -> Option<Why> {
        let mut state = self.state.lock();
        let parsed = state.parse(&self.inputs)?;
        let policies = parsed.of(network);
        if policies.is_empty() {
            return None;
        }
        let facts = {
            let ledger = self.inputs.book.ledger();
            let found = ledger.networks().find(|facts| facts.name == network);
            found.cloned()?
        };
        if facts.by_node {
            return None;
        }
        let local = state.members.local(&self.inputs, &facts);
        let here = state.members.world(&self.inputs, &facts, local, None);
        let holder = |ip: IpAddr| {
            let mut members = here.world.members.iter();
            members.position(|member| member.addresses.contains(&ip))
        };
        let subject = holder(end).filter(|index| *index < here.ports.len())?;
        let subject = here.world.members.get(subject)?;
        let peer = holder(other).and_then(|index| here.world.members.get(index));
        let peer = peer.map_or(PeerEnd::Address(other), |member| {
            PeerEnd::Member(member, other)
        });
        let direction = match side {
            Side::Sender => Direction::Egress,
            Side::Receiver => Direction::Ingress,
        };
        let decision: Decision =
            policy::judge(&here.world, policies, direction, subject, peer, traffic);
        Some(Why {
            allows: decision.allows(),
            reason: policy::reason(&here.world, policies, direction, subject, decision),
        })
    }
}
