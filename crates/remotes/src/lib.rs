//! Members of networks on other nodes, as those nodes publish them.
//!
//! Nodes publish [`Slice`]s of their members. What counts of them here are those of networks that
//! have attachments on this node, under the same number and with the same transport; the rest is kept
//! and counts as soon as that changes.
//!
//! In a cluster nothing of it is taken on the word of the node that says it: tunnels end at addresses
//! of its `Node`, and an address is a node's that has its `IPBlock`, or an `IPReservation` of it. What
//! is not proven yet is kept, and counts when the proof arrives. See
//! [0052](../../docs/adr/0052-claims-of-nodes-are-judged.md).
//!
//! For a moment of a move, two nodes may claim one MAC or IP address. The better proof holds, then the
//! later claim, and of two of one time that of the node whose name comes later: every node decides so
//! by itself and alike. A claim that is made while another is known is dated later than that one,
//! whatever the clocks say; one that is dated later than now, by more than [`SKEW`], holds against
//! none. Who has an attachment of its own with the address goes by that, as long as it has it: the
//! entries of this node's own attachments come before those of [`Remotes::endpoints`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_common::addr::MacAddr;
use api::NetworkId;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use locks::{Guard, Rank, Ranked};
use tokio::sync::watch;

pub use self::claims::Resolved;
pub use self::holdings::{Block, ByAddress, NodeFacts, Refusal, Reservation};
pub use self::peer::{Peer, RemoteEndpoint, SKEW, Served, Slice};
pub use self::refused::RefusedClaims;
use self::state::State;

mod claims;
mod holdings;
mod peer;
mod refused;
mod state;
#[cfg(test)]
mod tests;

/// All that is known of other nodes.
#[derive(Debug)]
pub struct Remotes {
    /// Name of this node, whose own slices say nothing new.
    own: String,
    state: Ranked<State>,
    /// How often anything changed.
    version: watch::Sender<u64>,
    /// By which addresses tunnels reach this node.
    vteps: watch::Sender<Vec<IpAddr>>,
    /// All slices of the networks that this node serves have been read once.
    complete: AtomicBool,
}

impl Remotes {
    /// Starts without any member; `own` is the name of this node.
    ///
    /// Nodes are believed: there is no cluster that could say which addresses they hold.
    pub fn new(own: &str) -> Self {
        Self::of(own, State::default())
    }

    /// The same in a cluster: what nodes say counts as far as it is proven.
    pub fn judged(own: &str) -> Self {
        Self::of(own, State::judged())
    }

    fn of(own: &str, state: State) -> Self {
        Self {
            own: own.to_owned(),
            state: Ranked::new(Rank::Feature, state),
            version: watch::Sender::new(0),
            vteps: watch::Sender::new(Vec::new()),
            complete: AtomicBool::new(false),
        }
    }

    /// True when all slices that count here have been read since the start.
    ///
    /// Until then, a member that is not in them may still be there.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// Notes that all slices have been read.
    ///
    /// Entries of the tables beyond them can go, once everything is read by which they are judged.
    pub fn set_complete(&self) {
        self.change(|state| {
            state.complete = true;
            BTreeSet::new()
        });
    }

    fn lock(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    /// Makes a change; the networks for which it is one.
    fn change(&self, change: impl FnOnce(&mut State) -> BTreeSet<u32>) -> BTreeSet<u32> {
        let mut state = self.lock();
        let mut changed = change(&mut state);
        let complete = state.is_complete();
        if self.complete.swap(complete, Ordering::AcqRel) != complete && complete {
            changed.extend(state.all_served());
        }
        state.changed.extend(&changed);
        drop(state);
        self.tell(&changed);
        changed
    }

    /// Returns the merged members of a network, shared until a slice changes.
    pub fn resolved(&self, network: u32) -> Option<Arc<Resolved>> {
        self.lock().resolved(network)
    }

    /// Numbers and names of the networks whose members on other nodes count here.
    pub fn networks(&self) -> BTreeMap<u32, String> {
        let state = self.lock();
        let served = state.served();
        served.map(|(name, it)| (it.id, name.clone())).collect()
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

    /// Lists nodes with members of any network that this node serves, by their names.
    pub fn all_peers(&self) -> Vec<Arc<Peer>> {
        let state = self.lock();
        let peers = state.peers.values();
        peers.map(|(peer, _)| Arc::clone(peer)).collect()
    }

    /// Replaces or removes the slice of this name; returns the networks that change.
    pub fn replace(&self, source: &str, slice: Option<Slice>) -> BTreeSet<u32> {
        self.replace_at(source, slice, Timestamp::now())
    }

    fn replace_at(&self, source: &str, slice: Option<Slice>, now: Timestamp) -> BTreeSet<u32> {
        let slice = slice.filter(|slice| slice.node != self.own);
        self.change(|state| state.replace(source, slice, now))
    }

    /// This node serves these networks now, by name.
    pub fn serve(&self, networks: BTreeMap<String, Served>) -> BTreeSet<u32> {
        self.change(|state| state.serve(networks))
    }

    /// These nodes are in the cluster.
    pub fn set_nodes(&self, nodes: BTreeMap<String, NodeFacts>) -> BTreeSet<u32> {
        self.change(|state| state.set_nodes(nodes))
    }

    /// These blocks are taken, and no others.
    pub fn set_blocks(&self, all: ByAddress<Block>) -> BTreeSet<u32> {
        self.change(|state| state.judge_anew(|holdings| holdings.set_blocks(all)))
    }

    /// The block of a network that begins with this address is this, or there is none.
    pub fn set_block(&self, network: &str, first: IpAddr, block: Option<Block>) -> BTreeSet<u32> {
        self.change(|state| {
            state.judge_one_anew(network, |holdings| {
                holdings.set_block(network, first, block)
            })
        })
    }

    /// These addresses are reserved, and no others.
    pub fn set_reservations(&self, all: ByAddress<Reservation>) -> BTreeSet<u32> {
        self.change(|state| state.judge_anew(|holdings| holdings.set_reservations(all)))
    }

    /// An address is reserved like this, or is not.
    pub fn set_reservation(
        &self,
        network: &str,
        ip: IpAddr,
        reservation: Option<Reservation>,
    ) -> BTreeSet<u32> {
        self.change(|state| {
            state.judge_one_anew(network, |holdings| {
                holdings.set_reservation(network, ip, reservation)
            })
        })
    }

    /// Lists the claims of nodes that do not count.
    pub fn refused(&self) -> Vec<RefusedClaims> {
        self.lock().refused()
    }

    /// Logs the claims that were refused twice in a row.
    ///
    /// A proof may come later than the claim.
    pub fn complain(&self) {
        let mut state = self.lock();
        let refused = state.refused();
        state.complaints.tell(&refused);
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
    pub fn latest_claim(&self, network: u32, mac: MacAddr, ips: &[IpAddr]) -> Option<Timestamp> {
        self.resolved(network)?.latest_claim(mac, ips)
    }

    /// Dates a new claim of this node: later than every known claim of other nodes.
    ///
    /// Clocks of nodes differ. The time has microseconds, because it is compared with what is read, and that
    /// has no more.
    pub fn date_of_claim(
        &self,
        network: NetworkId,
        mac: api::MacAddr,
        ips: &[IpAddr],
    ) -> Timestamp {
        let known = self.latest_claim(network.get(), MacAddr(mac.octets()), ips);
        let after = known.and_then(|known| known.checked_add(SignedDuration::from_micros(1)).ok());
        let now = Timestamp::now();
        let time = after.map_or(now, |after| after.max(now));
        Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
    }

    /// Lists the addresses by which tunnels reach this node.
    ///
    /// There is at most one of each family, and none if they are unknown.
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
