//! Ports that the node itself has on networks, which no policy selects.
//!
//! Pods open no connection to them, whatever policies there are. The node reaches its own pods, whatever policies isolate them
//! (NetworkPolicy: traffic between a pod and its own node is allowed always). To other nodes its address is one outside of the pods.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;

use agent_common::addr::Ip16;
use book::record::NetworkFacts;
use book::{Book, access};
use ipnet::IpNet;
use policy::{Action, Block, Direction, Kind, Peer, Policy, PolicyId, Rule, Tier};
use tables::guards::{Guarded, PortSets};

/// The name of policies by which the node reaches its own pods.
///
/// No object has it, and it comes before all that objects have.
const NAME: &str = "(node access)";

/// The port that the node has on a network, if it has one: its id and addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodePort(Option<(u16, Vec<IpAddr>)>);

impl NodePort {
    /// Finds the one on a network.
    pub(crate) fn of(book: &Book, network: &NetworkFacts) -> Self {
        let Ok(key) = access::key(&network.name) else {
            return Self::default();
        };
        let ledger = book.ledger();
        let record = ledger.get(&key).map(|entry| &entry.record);
        let record = record.filter(|record| record.network.id == network.id);
        Self(record.map(|record| {
            let addresses = record.leases.iter().map(|lease| lease.address);
            (record.port_id, addresses.collect())
        }))
    }

    fn addresses(&self) -> impl Iterator<Item = &IpAddr> {
        self.0.iter().flat_map(|(_, addresses)| addresses)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn has(&self, port: u16) -> bool {
        self.0.as_ref().is_some_and(|(it, _)| *it == port)
    }

    /// The policies of the network with those of this port.
    ///
    /// Only what others isolate is let be reached: a pod that no policy selects is judged by none.
    pub(crate) fn add_to<'a>(&self, policies: &'a [Policy]) -> Cow<'a, [Policy]> {
        if self.is_empty() {
            return Cow::Borrowed(policies);
        }
        let own = self.addresses().map(|address| {
            Peer::Block(Block {
                cidr: IpNet::from(*address),
                except: Vec::new(),
            })
        });
        let rule = Rule {
            action: Action::Accept,
            peers: Some(own.collect()),
            ports: None,
        };
        let speak = |policy: &&Policy| {
            policy.isolates(Direction::Ingress) || !policy.rules(Direction::Ingress).is_empty()
        };
        let subjects = policies.iter().filter(speak).map(|policy| &policy.subject);
        let subjects: BTreeSet<_> = subjects.collect();
        let first = subjects.into_iter().map(|subject| Policy {
            id: PolicyId {
                kind: Kind::ClusterNetworkPolicy,
                namespace: String::new(),
                name: NAME.to_owned(),
            },
            tier: Tier::Admin,
            priority: 0,
            subject: subject.clone(),
            isolates_ingress: false,
            isolates_egress: false,
            ingress: vec![rule.clone()],
            egress: Vec::new(),
        });
        first.chain(policies.iter().cloned()).collect()
    }

    /// Writes the atoms of its addresses, and of ports of other nodes: of blocks.
    ///
    /// Of other endpoints that no member is, no rule is sure.
    pub(crate) fn name(&self, tables: &mut Guarded, compiled: &policy::Network, others: &[IpAddr]) {
        for address in self.addresses().chain(others) {
            let atom = compiled.atom(*address);
            tables.atoms.entry(Ip16::from(*address)).or_insert(atom);
        }
    }

    /// Closes this port for what others begin.
    pub(crate) fn close(&self, tables: &mut Guarded) {
        let closed = PortSets {
            egress: None,
            // No network has so many sets, and one that is not there lets nothing pass.
            ingress: Some(u32::MAX as usize),
        };
        tables
            .ports
            .extend(self.0.iter().map(|(port, _)| (*port, closed)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use policy::{
        Direction, Labels, Member, Namespaces, PeerEnd, Pods, Protocol, Selector, Traffic,
        Workload, World, judge,
    };

    use super::*;

    fn isolating(app: &str) -> Policy {
        Policy {
            id: PolicyId {
                kind: Kind::NetworkPolicy,
                namespace: "a".to_owned(),
                name: app.to_owned(),
            },
            tier: Tier::Network,
            priority: 0,
            subject: Pods {
                namespaces: Namespaces::Named("a".to_owned()),
                pods: Selector::default(),
            },
            isolates_ingress: true,
            isolates_egress: true,
            ingress: Vec::new(),
            egress: Vec::new(),
        }
    }

    #[test]
    fn the_node_reaches_what_policies_isolate_from_all_others() {
        let member = Member {
            workload: Arc::new(Workload {
                namespace: "a".to_owned(),
                ..Workload::default()
            }),
            addresses: vec!["10.0.0.5".parse().unwrap()],
        };
        let world = World {
            namespaces: [("a".to_owned(), Labels::new())].into(),
            members: vec![member.clone()],
            nodes: Vec::new(),
        };
        let policies = [isolating("x"), isolating("y")];
        let own = NodePort(Some((7, vec!["10.0.0.9".parse().unwrap()])));
        let added = own.add_to(&policies);
        assert_eq!(added.len(), 3, "one for the subject of both");
        let compiled = policy::compile(&world, &added, [0]).unwrap();
        let traffic = Traffic::Port(Protocol::Tcp, 8080);
        for (from, passes) in [("10.0.0.9", true), ("10.0.0.8", false)] {
            let from = from.parse().unwrap();
            let peer = PeerEnd::Address(from);
            let direction = Direction::Ingress;
            let decided = judge(&world, &added, direction, &member, peer, traffic);
            assert_eq!(decided.allows(), passes, "{from}");
            let set = compiled.guards[&0].ingress;
            let found = compiled.allows(set, compiled.atom(from), traffic);
            assert_eq!(found, passes, "{from}");
        }
        assert_eq!(NodePort::default().add_to(&policies).len(), 2);
    }
}
