//! Who is where on other nodes, as those nodes say it.
//!
//! Nodes publish [`Slice`]s of their members. What counts of them here are those of networks that
//! have attachments on this node, under the same number and with the same transport; the rest is kept
//! and counts as soon as that changes.
//!
//! For a moment of a move, two nodes may claim one MAC or IP address. The later claim holds, and of two
//! of one time that of the node whose name comes later: every node decides so by itself and alike. A
//! claim that is made while another is known is dated later than that one, whatever the clocks say. Who
//! has an attachment of its own with the address goes by that, as long as it has it: the entries of this
//! node's own attachments come before those of [`Remotes::endpoints`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_common::addr::MacAddr;
pub use api::EndpointSlice as Slice;
use api::Transport;
use tokio::sync::watch;

pub use self::claims::Resolved;

mod claims;
#[cfg(test)]
mod tests;

/// Another node, and by which addresses tunnels reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub node: String,
    /// Its addresses: at most one of each family, at least one.
    pub vteps: Vec<IpAddr>,
}

/// A member of a network, on another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteEndpoint {
    /// Its MAC address; no other remote endpoint of the network has it.
    pub mac: MacAddr,
    /// Its addresses; no other remote endpoint of the network has one of them.
    pub ips: Vec<IpAddr>,
    /// The node it is on.
    pub peer: Arc<Peer>,
}

/// A network that has attachments on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// Its number here.
    pub id: u32,
    /// What carries its packets.
    pub transport: Transport,
}

/// All that is known of other nodes.
#[derive(Debug)]
pub struct Remotes {
    /// Name of this node, whose own slices say nothing new.
    own: String,
    state: Mutex<State>,
    /// How often anything changed.
    version: watch::Sender<u64>,
    /// By which addresses tunnels reach this node.
    vteps: watch::Sender<Vec<IpAddr>>,
    /// All slices of the networks that this node serves have been read once.
    complete: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    served: BTreeMap<String, Served>,
    /// By name.
    slices: BTreeMap<String, Held>,
    /// Nodes with slices that count, and how many: a node has one set of addresses, the one that came
    /// last.
    peers: BTreeMap<String, (Arc<Peer>, usize)>,
    networks: BTreeMap<u32, OnNetwork>,
    /// Networks that changed, and nobody was told yet.
    changed: BTreeSet<u32>,
    /// Slices that do not count and were logged.
    refused: BTreeSet<String>,
}

#[derive(Debug)]
struct Held {
    slice: Arc<Slice>,
    /// The network it counts for.
    network: Option<u32>,
}

#[derive(Debug, Default)]
struct OnNetwork {
    /// Names of the slices that count.
    slices: BTreeSet<String>,
    /// What they say together, once somebody asked.
    resolved: Option<Arc<Resolved>>,
    /// Addresses that several nodes claimed when somebody asked last.
    contested: BTreeSet<String>,
}

impl Remotes {
    /// Nothing is known yet; `own` is the name of this node.
    pub fn new(own: &str) -> Self {
        Self {
            own: own.to_owned(),
            state: Mutex::default(),
            version: watch::Sender::new(0),
            vteps: watch::Sender::new(Vec::new()),
            complete: AtomicBool::new(false),
        }
    }

    /// Whether all slices that count here have been read since this agent started: until then, who is
    /// not in them may still be there.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// All have been read: what the tables have beyond them can go.
    pub fn set_complete(&self) {
        if !self.complete.swap(true, Ordering::AcqRel) {
            let networks = self.lock().served.values().map(|it| it.id).collect();
            self.look_again(&networks);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What all slices of a network say together; the same as before, as long as they do.
    pub fn resolved(&self, network: u32) -> Option<Arc<Resolved>> {
        self.lock().resolved(network)
    }

    /// Members of a network on other nodes, in order of their MAC addresses.
    pub fn endpoints(&self, network: u32) -> Vec<RemoteEndpoint> {
        let resolved = self.resolved(network);
        resolved.map_or_else(Vec::new, |resolved| resolved.endpoints.clone())
    }

    /// The nodes with members of a network, in order of their names.
    pub fn peers(&self, network: u32) -> Vec<Arc<Peer>> {
        let resolved = self.resolved(network);
        resolved.map_or_else(Vec::new, |resolved| resolved.peers.clone())
    }

    /// The nodes with members of any network that this node serves, in order of their names.
    pub fn all_peers(&self) -> Vec<Arc<Peer>> {
        let state = self.lock();
        let peers = state.peers.values();
        peers.map(|(peer, _)| Arc::clone(peer)).collect()
    }

    /// The slice of this name says this now, or is gone; the networks for which that is a change.
    pub fn replace(&self, source: &str, slice: Option<Slice>) -> BTreeSet<u32> {
        let slice = slice.filter(|slice| slice.node != self.own);
        let mut state = self.lock();
        let changed = state.replace(source, slice);
        state.changed.extend(&changed);
        drop(state);
        self.tell(&changed);
        changed
    }

    /// This node serves these networks now, by name.
    pub fn serve(&self, networks: BTreeMap<String, Served>) -> BTreeSet<u32> {
        let mut state = self.lock();
        let changed = state.serve(networks);
        state.changed.extend(&changed);
        drop(state);
        self.tell(&changed);
        changed
    }

    fn tell(&self, changed: &BTreeSet<u32>) {
        if !changed.is_empty() {
            self.version.send_modify(|version| *version += 1);
        }
    }

    /// Tells of each change from now on.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// The networks that changed since this was called last.
    pub fn take_changed(&self) -> BTreeSet<u32> {
        std::mem::take(&mut self.lock().changed)
    }

    /// These networks are to be looked at again.
    pub fn look_again(&self, networks: &BTreeSet<u32>) {
        self.lock().changed.extend(networks);
        self.tell(networks);
    }

    /// The latest claim of another node to one of these addresses of a network.
    pub(crate) fn latest_claim(
        &self,
        network: u32,
        mac: MacAddr,
        ips: &[IpAddr],
    ) -> Option<k8s_openapi::jiff::Timestamp> {
        self.resolved(network)?.latest_claim(mac, ips)
    }

    /// By which addresses tunnels reach this node: at most one of each family, none if unknown.
    pub fn vteps(&self) -> Vec<IpAddr> {
        self.vteps.borrow().clone()
    }

    /// Tunnels reach this node by these addresses: the first of each family counts.
    pub fn set_vteps(&self, addresses: &[IpAddr]) {
        let first = |v4| addresses.iter().find(move |it| it.is_ipv4() == v4);
        let vteps: Vec<IpAddr> = first(true)
            .into_iter()
            .chain(first(false))
            .copied()
            .collect();
        self.vteps.send_if_modified(|known| {
            let differs = *known != vteps;
            *known = vteps;
            differs
        });
    }

    /// Tells of each change of [`Self::vteps`] from now on.
    pub fn vtep_changes(&self) -> watch::Receiver<Vec<IpAddr>> {
        self.vteps.subscribe()
    }
}

impl State {
    fn replace(&mut self, source: &str, slice: Option<Slice>) -> BTreeSet<u32> {
        let known = self.slices.get(source);
        if known.map(|held| &*held.slice) == slice.as_ref() {
            return BTreeSet::new();
        }
        let mut changed = self.remove(source);
        if let Some(slice) = slice {
            let slice = Arc::new(slice);
            changed.extend(self.add(source, &slice));
        } else {
            self.refused.remove(source);
        }
        changed
    }

    fn serve(&mut self, networks: BTreeMap<String, Served>) -> BTreeSet<u32> {
        if self.served == networks {
            return BTreeSet::new();
        }
        let before = std::mem::replace(&mut self.served, networks);
        let differs = |name: &String| before.get(name) != self.served.get(name);
        let differing: Vec<(String, Arc<Slice>)> = self
            .slices
            .iter()
            .filter(|(_, held)| differs(&held.slice.network))
            .map(|(source, held)| (source.clone(), Arc::clone(&held.slice)))
            .collect();
        let mut changed = BTreeSet::new();
        for (source, slice) in differing {
            changed.extend(self.remove(&source));
            changed.extend(self.add(&source, &slice));
        }
        changed
    }

    fn add(&mut self, source: &str, slice: &Arc<Slice>) -> BTreeSet<u32> {
        let network = self.network_of(source, slice);
        let held = Held {
            slice: Arc::clone(slice),
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
                vteps: slice.vteps.clone(),
            })
        };
        let fresh = || (peer(), 0);
        let known = self.peers.entry(slice.node.clone()).or_insert_with(fresh);
        known.1 += 1;
        if known.0.vteps != slice.vteps {
            known.0 = peer();
            changed.extend(self.networks_of(&slice.node));
        }
        self.forget_resolved(&changed);
        changed
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

    fn forget_resolved(&mut self, networks: &BTreeSet<u32>) {
        for network in networks {
            if let Some(on_network) = self.networks.get_mut(network) {
                on_network.resolved = None;
            }
        }
    }

    /// What all slices of a network say together.
    fn resolved(&mut self, network: u32) -> Option<Arc<Resolved>> {
        let on_network = self.networks.get_mut(&network)?;
        if let Some(resolved) = &on_network.resolved {
            return Some(Arc::clone(resolved));
        }
        let slices = on_network.slices.iter().filter_map(|source| {
            let slice = &*self.slices.get(source)?.slice;
            Some((slice, &self.peers.get(&slice.node)?.0))
        });
        let (resolved, contested) = claims::resolve(slices);
        for contest in contested.difference(&on_network.contested) {
            tracing::warn!(
                network,
                contest,
                "two nodes claim one address; the later claim holds"
            );
        }
        on_network.contested = contested;
        let resolved = Arc::new(resolved);
        on_network.resolved = Some(Arc::clone(&resolved));
        Some(resolved)
    }
}
