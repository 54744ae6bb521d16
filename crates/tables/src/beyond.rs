//! Entries of the tables for members beyond this node.
//!
//! There may be thousands of members, and attachments come and go much more often than these change: the
//! entries are made again only of something new.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use agent_common::addr::Ip16;
use agent_common::endpoint::{ENDPOINT_REMOTE, Endpoint};
use book::record::NetworkFacts;
use datapath::Entries;

use super::surroundings::{Hops, Routers, UnderlayPaths, WayOut};
use crate::guards::Marks;
use crate::routes::Routes;
use remotes::Resolved;

/// State of a network beyond this node.
#[derive(Debug, Default)]
pub struct Others {
    /// Its members there, as their nodes have said it.
    pub said: Option<Arc<Resolved>>,
    /// How packets get there.
    pub reach: Reach,
    /// Where programs tunnel without the device.
    pub paths: Arc<UnderlayPaths>,
    /// All nodes have been heard since this agent started: what is not here is gone.
    pub complete: bool,
    /// The way out that the network has on this node.
    pub way_out: Option<WayOut>,
    /// Ports of this node that XDP gives no frames, by their IDs.
    pub unsteered: BTreeSet<u16>,
    /// Ports of the network of which policies speak.
    pub marks: Arc<Marks>,
    /// Addresses of the network's Services.
    pub services: Arc<BTreeSet<Ip16>>,
    /// Routes of its virtual gateway to other networks.
    pub routes: Arc<Routes>,
    /// The virtual gateway of another network routes to it.
    pub reached: bool,
}

impl Others {
    /// Routers to the outside from the network's uplink, by IPv4 and by IPv6.
    pub(super) fn routers(&self) -> Routers {
        match self.reach {
            Reach::Wire { routers, .. } => routers,
            Reach::Nowhere | Reach::Tunnels { .. } => Routers::default(),
        }
    }

    /// The network's uplink; 0 while it is not there, and where there is none.
    pub(super) fn uplink(&self) -> u32 {
        match self.reach {
            Reach::Wire { uplink, .. } => uplink,
            Reach::Nowhere | Reach::Tunnels { .. } => 0,
        }
    }
}

/// How packets of a network get to other nodes.
#[derive(Debug, Clone, Default)]
pub enum Reach {
    /// Not at all.
    #[default]
    Nowhere,
    /// In tunnels.
    Tunnels {
        /// Index of the device.
        device: u32,
        /// Addresses of this node on the underlay.
        own: Vec<IpAddr>,
    },
    /// As they are.
    Wire {
        /// Index of the uplink; 0 while it is not there.
        uplink: u32,
        /// Routers on it.
        hops: Arc<Hops>,
        /// Routers that lead to the outside.
        routers: Routers,
    },
}

/// The network whose members are beyond this node, as their entries show it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Members {
    /// Its number.
    pub(super) network: u32,
    pub(super) routed: bool,
    pub(super) addressless: bool,
}

impl Members {
    /// Members of a network with ports on this node.
    pub(super) fn of(facts: &NetworkFacts) -> Self {
        Self {
            network: facts.id,
            routed: facts.routed,
            addressless: facts.addressless(),
        }
    }

    /// Members of a network that virtual gateways lead to.
    pub(super) const fn routed(network: u32) -> Self {
        Self {
            network,
            routed: true,
            addressless: false,
        }
    }
}

/// All that the entries are made of.
#[derive(Debug)]
pub(super) struct Source {
    said: Option<Arc<Resolved>>,
    reach: Reach,
    complete: bool,
    routed: bool,
    addressless: bool,
}

impl Source {
    pub(super) fn new(members: &Members, others: &Others) -> Self {
        Self {
            said: others.said.clone(),
            reach: others.reach.clone(),
            complete: others.complete,
            routed: members.routed,
            addressless: members.addressless,
        }
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        // What is in them is not compared: they are kept, so that no other can have their place.
        let same_said = match (&self.said, &other.said) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        let same_reach = match (&self.reach, &other.reach) {
            (Reach::Nowhere, Reach::Nowhere) => true,
            (
                Reach::Tunnels { device, own },
                Reach::Tunnels {
                    device: that,
                    own: theirs,
                },
            ) => device == that && own == theirs,
            (
                // Routers to the outside are with the network's own entries.
                Reach::Wire { uplink, hops, .. },
                Reach::Wire {
                    uplink: that,
                    hops: theirs,
                    ..
                },
            ) => uplink == that && Arc::ptr_eq(hops, theirs),
            _ => false,
        };
        same_said
            && same_reach
            && (self.complete, self.routed, self.addressless)
                == (other.complete, other.routed, other.addressless)
    }
}

/// The entries of members beyond this node.
#[derive(Debug, Default)]
pub(super) struct Beyond {
    pub(super) entries: Entries,
    /// Numbers of the nodes in them.
    pub(super) nodes: BTreeSet<u32>,
    /// None when they were read from the maps.
    source: Option<Source>,
}

impl Beyond {
    pub(super) fn new(entries: Entries, source: Option<Source>) -> Self {
        Self {
            nodes: mentioned(&entries),
            entries,
            source,
        }
    }

    /// Whether that would come to the same.
    pub(super) fn is_of(&self, source: &Source) -> bool {
        self.source.as_ref() == Some(source)
    }
}

/// Leaves entries of other nodes in the tables: not all have been heard yet.
pub(super) fn keep(wanted: &mut Entries, old: &Entries) {
    for (key, endpoint) in &old.fdb {
        wanted.fdb.entry(*key).or_insert(*endpoint);
    }
    for (key, endpoint) in &old.endpoints {
        wanted.endpoints.entry(*key).or_insert(*endpoint);
    }
    for (key, hop) in &old.next_hops {
        wanted.next_hops.entry(*key).or_insert(*hop);
    }
    for (key, nodes) in &old.flood_vteps {
        wanted.flood_vteps.insert(*key, *nodes);
    }
}

/// The numbers of nodes in these entries.
fn mentioned(entries: &Entries) -> BTreeSet<u32> {
    let endpoints = entries.fdb.values().chain(entries.endpoints.values());
    let mut mentioned: BTreeSet<u32> = endpoints.map(|it| it.ifindex).collect();
    for nodes in entries.flood_vteps.values() {
        let count = usize::from(nodes.count);
        mentioned.extend(nodes.vteps.iter().take(count).map(|it| u32::from(*it)));
    }
    mentioned
}

pub(super) const fn is_far(endpoint: &Endpoint) -> bool {
    endpoint.flags & ENDPOINT_REMOTE != 0
}
