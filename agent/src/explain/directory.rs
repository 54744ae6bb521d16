//! Finds the member that a person means, on this node or on others.

use std::collections::BTreeMap;
use std::net::IpAddr;

use agent_common::addr::{GATEWAY_MAC, Ip16, MacAddr};
use agent_common::endpoint::{ENDPOINT_GATEWAY, ENDPOINT_REMOTE, Endpoint};
use agent_common::vtep::Vtep;
use book::record::{Attachment, NetworkFacts};
use remotes::{Peer, RemoteEndpoint};

use super::question::{Address, Named, Party};
use crate::error::ExplainError;
use crate::node::Node;

/// Characters of a container ID that are enough when no other one begins so.
const PREFIX: usize = 6;

/// Everybody that is known at one moment.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// Attachments of this node.
    pub(super) here: Vec<Attachment>,
    /// Members on other nodes, by the number of their network.
    pub(super) there: Vec<(u32, RemoteEndpoint)>,
    /// Other nodes.
    pub(super) peers: Vec<Peer>,
    /// Networks by name, also those without an attachment here.
    pub(super) networks: BTreeMap<String, u32>,
}

/// Somebody who is known.
#[derive(Debug, Clone)]
pub(super) enum Member {
    /// An attachment of this node.
    Here(Box<Attachment>),
    /// A member of a network, on another node.
    There(u32, RemoteEndpoint),
}

/// Match for the words of a person.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Number of the network, where it was said.
    pub(super) network: Option<u32>,
    /// The member, if it is known.
    pub(super) member: Option<Member>,
    /// The address that was written, if one was.
    pub(super) address: Option<Address>,
}

impl Member {
    /// Number of the network.
    pub(super) fn network(&self) -> u32 {
        match self {
            Self::Here(record) => record.network.id,
            Self::There(network, _) => *network,
        }
    }

    /// Its MAC address.
    pub(super) fn mac(&self) -> MacAddr {
        match self {
            Self::Here(record) => record.mac,
            Self::There(_, endpoint) => endpoint.mac,
        }
    }

    /// Its addresses.
    pub(super) fn ips(&self) -> Vec<IpAddr> {
        match self {
            Self::Here(record) => record.leases.iter().map(|lease| lease.address).collect(),
            Self::There(_, endpoint) => endpoint.ips.clone(),
        }
    }

    fn has(&self, address: Address) -> bool {
        match address {
            Address::Mac(mac) => self.mac() == mac,
            Address::Ip(ip) => {
                self.ips().contains(&ip) || IpAddr::V6(self.mac().link_local()) == ip
            }
        }
    }
}

impl Directory {
    /// Reads the attachments, networks and members that the node knows.
    pub(super) fn of(node: &Node) -> Self {
        let (here, networks) = {
            let ledger = node.book.ledger();
            let entries = ledger.entries().map(|entry| entry.record.clone());
            let here: Vec<Attachment> = entries.collect();
            let world = node.world.get();
            let statuses = world.resolved.statuses();
            let ids = statuses.filter_map(|status| {
                let definition = world.resolved.definition(&status.name);
                let written = definition.and_then(|it| it.id).map(api::NetworkId::get);
                Some((status.name.clone(), ledger.id_of(&status.name).or(written)?))
            });
            let mut networks: BTreeMap<String, u32> = ids.collect();
            // What an attachment was made with counts.
            networks.extend(
                here.iter()
                    .map(|it| (it.network.name.clone(), it.network.id)),
            );
            (here, networks)
        };
        let mut there = Vec::new();
        for network in networks.values() {
            let endpoints = node.remotes.endpoints(*network);
            there.extend(endpoints.into_iter().map(|it| (*network, it)));
        }
        let peers = node.remotes.all_peers();
        Self {
            here,
            there,
            peers: peers.iter().map(|peer| (**peer).clone()).collect(),
            networks,
        }
    }

    /// Finds the place that this text means.
    ///
    /// # Errors
    /// When it is nobody, or several.
    pub(super) fn find(&self, place: &Party) -> Result<Found, ExplainError> {
        match &place.named {
            Named::Address(address) => Ok(Found {
                network: None,
                member: None,
                address: Some(*address),
            }),
            Named::OnNetwork(name, address) => {
                let Some(network) = self.networks.get(name) else {
                    let known = self.networks.keys().cloned().collect();
                    return Err(unknown(place, "there is no network of this name", known));
                };
                Ok(Found {
                    network: Some(*network),
                    member: self.member(*network, *address),
                    address: Some(*address),
                })
            }
            Named::Container(container) => {
                let exact = |it: &&Attachment| it.key.container.as_str() == container;
                let mut found: Vec<&Attachment> = self.here.iter().filter(exact).collect();
                if found.is_empty() && container.len() >= PREFIX {
                    let begins = |it: &&Attachment| {
                        it.key.container.as_str().starts_with(container.as_str())
                    };
                    found = self.here.iter().filter(begins).collect();
                }
                self.only(place, &found)
            }
            Named::Pair(left, right) => {
                let (pod, ifname) = match right.split_once(':') {
                    Some((pod, ifname)) => (pod, Some(ifname)),
                    None => (right.as_str(), None),
                };
                let meant = |it: &&Attachment| {
                    let own = it.key.ifname.to_string();
                    let by_key = it.key.container.as_str() == left && own == *right;
                    let by_pod = it.pod.as_ref().is_some_and(|it| {
                        it.namespace == *left && it.name == pod && ifname.is_none_or(|it| it == own)
                    });
                    by_key || by_pod
                };
                let found: Vec<&Attachment> = self.here.iter().filter(meant).collect();
                self.only(place, &found)
            }
        }
    }

    fn only(&self, place: &Party, found: &[&Attachment]) -> Result<Found, ExplainError> {
        match found {
            [only] => Ok(Found {
                network: Some(only.network.id),
                member: Some(Member::Here(Box::new((*only).clone()))),
                address: None,
            }),
            [] => {
                let known = self.here.iter().map(name_of).collect();
                Err(unknown(place, "no attachment of this node is meant", known))
            }
            several => Err(ExplainError::Ambiguous {
                argument: place.argument,
                value: place.text.clone(),
                candidates: several.iter().map(|it| name_of(it)).collect(),
            }),
        }
    }

    /// Member that has this address on a network; one of this node comes first.
    pub(super) fn member(&self, network: u32, address: Address) -> Option<Member> {
        let here = self.here.iter().filter(|it| it.network.id == network);
        let here = here.map(|it| Member::Here(Box::new(it.clone())));
        let there = self.there.iter().filter(|(of, _)| *of == network);
        let there = there.map(|(of, it)| Member::There(*of, it.clone()));
        here.chain(there).find(|member| member.has(address))
    }

    /// Member that has this address on another network, in words.
    ///
    /// A person who looks for the address here may mean it.
    pub(super) fn elsewhere(&self, network: u32, address: Address) -> Option<String> {
        let mut others = self.networks.iter().filter(|(_, id)| **id != network);
        others.find_map(|(name, id)| {
            let member = self.member(*id, address)?;
            let found = Found {
                network: Some(*id),
                member: Some(member),
                address: Some(address),
            };
            Some(format!("on {name} it is {}", self.name(&found)))
        })
    }

    /// Facts about a network, from an attachment of this node.
    pub(super) fn facts(&self, network: u32) -> Option<&NetworkFacts> {
        let mut here = self.here.iter();
        here.find(|it| it.network.id == network)
            .map(|it| &it.network)
    }

    /// The name of a network.
    pub(super) fn network_name(&self, network: u32) -> String {
        let mut known = self.networks.iter();
        let found = known.find(|(_, id)| **id == network);
        found.map_or_else(|| format!("#{network}"), |(name, _)| name.clone())
    }

    /// The attachment behind an interface of this node.
    pub(super) fn at(&self, ifindex: u32) -> Option<&Attachment> {
        self.here.iter().find(|it| it.host.ifindex == ifindex)
    }

    /// The node with this address for tunnels.
    pub(super) fn node_of(&self, address: Ip16) -> String {
        let address = IpAddr::from(address);
        let mut peers = self.peers.iter();
        let found = peers.find(|peer| peer.vteps.contains(&address));
        found.map_or_else(
            || "a node that has not published its members".to_owned(),
            |peer| peer.node.clone(),
        )
    }

    /// An endpoint in words; `vtep` is where a remote one is.
    pub(super) fn endpoint(&self, endpoint: &Endpoint, vtep: Option<&Vtep>) -> String {
        if endpoint.flags & ENDPOINT_GATEWAY != 0 {
            return format!("the virtual gateway, {}", endpoint.mac);
        }
        if endpoint.flags & ENDPOINT_REMOTE != 0 {
            let node = vtep.map_or_else(
                || format!("node number {}, which no node has", endpoint.ifindex),
                |vtep| format!("{} ({})", self.node_of(vtep.address()), vtep.address()),
            );
            return format!("{} on {node}", endpoint.mac);
        }
        let who = self
            .at(endpoint.ifindex)
            .map_or("no attachment".to_owned(), name_of);
        format!("{} of {who}, interface {}", endpoint.mac, endpoint.ifindex)
    }

    /// Name of this match, in words.
    pub(super) fn name(&self, found: &Found) -> String {
        match (&found.member, found.address) {
            (Some(Member::Here(record)), _) => format!("{} on this node", name_of(record)),
            (Some(Member::There(_, endpoint)), _) => {
                format!("{} on {}", endpoint.mac, endpoint.peer.node)
            }
            (None, Some(Address::Mac(GATEWAY_MAC))) => "the virtual gateway".to_owned(),
            (None, Some(Address::Ip(ip))) => ip.to_string(),
            (None, Some(Address::Mac(mac))) => mac.to_string(),
            (None, None) => "no member".to_owned(),
        }
    }
}

/// `CONTAINER/IFNAME`, and the pod where the runtime told it.
pub(super) fn name_of(record: &Attachment) -> String {
    let key = format!("{}/{}", record.key.container, record.key.ifname);
    match &record.pod {
        Some(pod) => format!("{key} ({}/{})", pod.namespace, pod.name),
        None => key,
    }
}

fn unknown(place: &Party, why: &'static str, known: Vec<String>) -> ExplainError {
    ExplainError::Unknown {
        argument: place.argument,
        value: place.text.clone(),
        why,
        known,
    }
}

#[cfg(test)]
mod tests;
