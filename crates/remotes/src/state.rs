//! Slices of other nodes that were heard, and their claims that count.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Transport;
use k8s_openapi::jiff::Timestamp;

use super::claims::{self, Resolved, Said};
use super::holdings::{Holdings, Judge, NodeFacts, Refusal};
use super::peer::{Peer, SKEW, Served, Slice};
use super::refused::{Complaints, RefusedClaims};

/// Least time between two lines of the log about contested addresses of a network.
///
/// Several nodes claim them.
const QUIET: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct State {
    served: BTreeMap<String, Served>,
    /// By name.
    slices: BTreeMap<String, Held>,
    /// Nodes with slices that count, and the number of these.
    ///
    /// A node has one set of addresses, the one that came last.
    pub(super) peers: BTreeMap<String, (Arc<Peer>, usize)>,
    networks: BTreeMap<u32, OnNetwork>,
    /// Networks that changed, and nobody was told yet.
    pub(super) changed: BTreeSet<u32>,
    /// Slices that do not count for their network's sake and were logged.
    refused: BTreeSet<String>,
    /// Holdings of nodes; none where there is no cluster.
    holdings: Option<Holdings>,
    /// All slices have been read.
    pub(super) complete: bool,
    pub(super) complaints: Complaints,
}

#[derive(Debug)]
struct Held {
    slice: Arc<Slice>,
    /// When it was heard first, as it is.
    heard: Timestamp,
    /// Of its tunnels' addresses those that count.
    vteps: Vec<IpAddr>,
    /// The network it counts for.
    network: Option<u32>,
}

impl Held {
    /// A date in it was in the future when it was heard.
    fn is_early(&self) -> bool {
        let until = until(self.heard);
        self.slice.endpoints.iter().any(|it| it.since > until)
    }
}

#[derive(Debug, Default)]
struct OnNetwork {
    /// Names of the slices that count.
    slices: BTreeSet<String>,
    /// Merged members of the slices, once they were asked for.
    resolved: Option<Arc<Resolved>>,
    /// Addresses that several nodes claim, as far as that was logged.
    contested: BTreeSet<String>,
    /// When it was.
    told: Option<Instant>,
}

impl State {
    /// In a cluster, which says what nodes hold.
    pub(super) fn judged() -> Self {
        Self {
            holdings: Some(Holdings::default()),
            ..Self::default()
        }
    }

    /// Everything that this node needs to know of others has been read.
    pub(super) fn is_complete(&self) -> bool {
        let spans = || {
            let mut served = self.served.values();
            served.any(|it| it.transport != Transport::Local)
        };
        let holdings = self.holdings.as_ref();
        self.complete && holdings.is_none_or(|it| it.read.iter().all(|read| *read) || !spans())
    }

    pub(super) fn served(&self) -> impl Iterator<Item = (&String, &Served)> {
        self.served.iter()
    }

    pub(super) fn all_served(&self) -> BTreeSet<u32> {
        self.served.values().map(|it| it.id).collect()
    }

    pub(super) fn replace(
        &mut self,
        source: &str,
        slice: Option<Slice>,
        now: Timestamp,
    ) -> BTreeSet<u32> {
        let known = self.slices.get(source);
        // What was too early then may not be any more.
        let is_same = |held: &Held| Some(&*held.slice) == slice.as_ref() && !held.is_early();
        if known.map_or(slice.is_none(), is_same) {
            return BTreeSet::new();
        }
        let mut changed = self.remove(source);
        if let Some(slice) = slice {
            let slice = Arc::new(slice);
            changed.extend(self.add(source, &slice, now));
        } else {
            self.refused.remove(source);
        }
        changed
    }

    /// Sets the nodes; slices of those that are reached otherwise now are judged again.
    pub(super) fn set_nodes(&mut self, nodes: BTreeMap<String, NodeFacts>) -> BTreeSet<u32> {
        let Some(holdings) = &mut self.holdings else {
            return BTreeSet::new();
        };
        let heard: BTreeSet<&str> = self
            .slices
            .values()
            .map(|it| it.slice.node.as_str())
            .collect();
        let moved = holdings.set_nodes(nodes, |name| heard.contains(name));
        self.add_anew(|held| moved.contains(&held.slice.node))
    }

    /// Judges again the claims of the networks whose holdings a change changes.
    pub(super) fn judge_anew(
        &mut self,
        change: impl FnOnce(&mut Holdings) -> BTreeSet<String>,
    ) -> BTreeSet<u32> {
        let names = self.holdings.as_mut().map(change).unwrap_or_default();
        let served = names.iter().filter_map(|name| self.served.get(name));
        let networks = served.map(|it| it.id).collect();
        self.forget_resolved(networks)
    }

    /// The same for a change of one network; true when it is one.
    pub(super) fn judge_one_anew(
        &mut self,
        network: &str,
        change: impl FnOnce(&mut Holdings) -> bool,
    ) -> BTreeSet<u32> {
        self.judge_anew(|holdings| {
            let changed = change(holdings).then(|| network.to_owned());
            changed.into_iter().collect()
        })
    }

    pub(super) fn serve(&mut self, networks: BTreeMap<String, Served>) -> BTreeSet<u32> {
        if self.served == networks {
            return BTreeSet::new();
        }
        let before = std::mem::replace(&mut self.served, networks);
        let served = self.served.clone();
        let differs = |name: &String| before.get(name) != served.get(name);
        self.add_anew(|held| differs(&held.slice.network))
    }

    /// Looks again at some slices.
    fn add_anew(&mut self, which: impl Fn(&Held) -> bool) -> BTreeSet<u32> {
        let which: Vec<(String, Arc<Slice>, Timestamp)> = self
            .slices
            .iter()
            .filter(|(_, held)| which(held))
            .map(|(source, held)| (source.clone(), Arc::clone(&held.slice), held.heard))
            .collect();
        let mut changed = BTreeSet::new();
        for (source, slice, heard) in which {
            changed.extend(self.remove(&source));
            changed.extend(self.add(&source, &slice, heard));
        }
        changed
    }

    fn add(&mut self, source: &str, slice: &Arc<Slice>, heard: Timestamp) -> BTreeSet<u32> {
        let vteps = match &self.holdings {
            Some(holdings) => holdings.vteps_of(&slice.node, &slice.vteps),
            None => slice.vteps.clone(),
        };
        let network = self.network_of(source, slice);
        let network = network.filter(|_| !vteps.is_empty());
        let held = Held {
            slice: Arc::clone(slice),
            heard,
            vteps: vteps.clone(),
            network,
        };
        self.slices.insert(source.to_owned(), held);
        let Some(network) = network else {
            return BTreeSet::new();
        };
        let on_network = self.networks.entry(network).or_default();
        on_network.slices.insert(source.to_owned());
        let mut changed = BTreeSet::from([network]);
        let peer = || {
            Arc::new(Peer {
                node: slice.node.clone(),
                vteps: vteps.clone(),
            })
        };
        let fresh = || (peer(), 0);
        let known = self.peers.entry(slice.node.clone()).or_insert_with(fresh);
        known.1 += 1;
        if known.0.vteps != vteps {
            known.0 = peer();
            changed.extend(self.networks_of(&slice.node));
        }
        self.forget_resolved(changed)
    }

    fn remove(&mut self, source: &str) -> BTreeSet<u32> {
        let Some(held) = self.slices.remove(source) else {
            return BTreeSet::new();
        };
        let Some(network) = held.network else {
            return BTreeSet::new();
        };
        if let Some(on_network) = self.networks.get_mut(&network) {
            on_network.slices.remove(source);
            on_network.resolved = None;
            if on_network.slices.is_empty() {
                self.networks.remove(&network);
            }
        }
        if let Some((_, slices)) = self.peers.get_mut(&held.slice.node) {
            *slices = slices.saturating_sub(1);
            if *slices == 0 {
                self.peers.remove(&held.slice.node);
            }
        }
        BTreeSet::from([network])
    }

    /// The network that a slice counts for here.
    fn network_of(&mut self, source: &str, slice: &Slice) -> Option<u32> {
        let served = self.served.get(&slice.network)?;
        let why = if served.transport == Transport::Local {
            "this node's attachments on the network stay on their node"
        } else if served.id != slice.id.get() {
            "the network has another number here"
        } else {
            self.refused.remove(source);
            return Some(served.id);
        };
        if self.refused.insert(source.to_owned()) {
            tracing::warn!(
                slice = source,
                network = slice.network,
                node = slice.node,
                number = slice.id.get(),
                here = served.id,
                why,
                "members on another node are not reached"
            );
        }
        None
    }

    /// Networks of which a node has members.
    fn networks_of(&self, node: &str) -> Vec<u32> {
        let held = self.slices.values();
        let of_node = held.filter(|held| held.slice.node == node);
        of_node.filter_map(|held| held.network).collect()
    }

    fn forget_resolved(&mut self, networks: BTreeSet<u32>) -> BTreeSet<u32> {
        for network in &networks {
            if let Some(on_network) = self.networks.get_mut(network) {
                on_network.resolved = None;
            }
        }
        networks
    }

    /// Returns the merged members of all slices of a network.
    pub(super) fn resolved(&mut self, network: u32) -> Option<Arc<Resolved>> {
        let on_network = self.networks.get_mut(&network)?;
        if let Some(resolved) = &on_network.resolved {
            return Some(Arc::clone(resolved));
        }
        let (name, served) = self.served.iter().find(|(_, it)| it.id == network)?;
        let slices = on_network.slices.iter().filter_map(|source| {
            let held = self.slices.get(source)?;
            Some(Said {
                slice: &held.slice,
                peer: &self.peers.get(&held.slice.node)?.0,
                until: until(held.heard),
            })
        });
        let judge = Judge {
            holdings: self.holdings.as_ref(),
            network: name,
            served,
        };
        let (resolved, contested) = claims::resolve(slices, judge);
        on_network.tell_contested(name, contested);
        let resolved = Arc::new(resolved);
        on_network.resolved = Some(Arc::clone(&resolved));
        Some(resolved)
    }

    /// Lists the claims that do not count, of all networks that this node serves.
    pub(super) fn refused(&mut self) -> Vec<RefusedClaims> {
        let mut refused = Vec::new();
        let served: Vec<(String, u32)> = self
            .served
            .iter()
            .map(|(name, served)| (name.clone(), served.id))
            .collect();
        for (name, id) in served {
            let Some(resolved) = self.resolved(id) else {
                continue;
            };
            for ((node, why), claims) in &resolved.refused {
                refused.push(RefusedClaims {
                    network: name.clone(),
                    node: node.clone(),
                    why: *why,
                    count: claims.count,
                    mac: Some(claims.mac),
                    ip: claims.ip,
                });
            }
            self.complaints.tell_early(&name, &resolved.early);
        }
        let served = |slice: &Slice| {
            let here = self.served.get(&slice.network);
            here.is_some_and(|it| it.transport != Transport::Local && it.id == slice.id.get())
        };
        let mut nowhere: BTreeMap<(&str, &str), (usize, Option<IpAddr>)> = BTreeMap::new();
        for held in self.slices.values() {
            let foreign = held.slice.vteps.iter().find(|it| !held.vteps.contains(it));
            if foreign.is_some() && served(&held.slice) {
                let key = (held.slice.network.as_str(), held.slice.node.as_str());
                let of_node = nowhere.entry(key).or_insert((0, foreign.copied()));
                of_node.0 += held.slice.endpoints.len();
            }
        }
        refused.extend(
            nowhere
                .into_iter()
                .map(|((network, node), (count, ip))| RefusedClaims {
                    network: network.to_owned(),
                    node: node.to_owned(),
                    why: Refusal::Vtep,
                    count,
                    mac: None,
                    ip,
                }),
        );
        refused
    }
}

impl OnNetwork {
    fn tell_contested(&mut self, network: &str, contested: BTreeSet<String>) {
        self.contested.retain(|it| contested.contains(it));
        let mut new = contested.difference(&self.contested);
        let Some(contest) = new.next() else { return };
        let others = new.count();
        if self.told.is_some_and(|told| told.elapsed() < QUIET) {
            return;
        }
        tracing::warn!(
            network,
            contest,
            others,
            "two nodes claim one address; the node that holds it has it, else the later claim"
        );
        self.told = Some(Instant::now());
        self.contested = contested;
    }
}

/// The latest date that counts in what was heard at this time.
fn until(heard: Timestamp) -> Timestamp {
    heard.saturating_add(SKEW).unwrap_or(Timestamp::MAX)
}
