//! Members of networks that span nodes, as objects of the API server.
//!
//! This node's are written, and those of other nodes are [`Followed`].
//!
//! Nobody waits for it. A member that is gone is withdrawn before its address can be another node's:
//! see [`Slices::said`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::addresses::Said;
use api::{NODE_LABEL, PodNetworkEndpointSlice, label_value};
use cluster::Work;
use cluster::copied::{Copied, Copier, trim_all};
use cluster::watch::Progress;
use futures_util::{StreamExt as _, stream};
use kube::runtime::watcher::Config;
use kube::{Client, ResourceExt as _};
use reach::members::{self, Pods, Slices as Divided, divide, spec};
use tokio::sync::{Notify, watch};

use super::home::Home;
use super::nodes::OwnNode;

mod follow;
mod write;

pub(super) use follow::Followed;
use follow::SETTLE;

/// Time to the next attempt when the API server did not take a slice.
const RETRY: Duration = Duration::from_secs(1);
/// Time after which everything is looked at again, even without a change.
const ROUND: Duration = Duration::from_secs(30);
/// Time within which a write comes back in the copy.
///
/// A write that does not was changed by somebody since.
const COMING: Duration = Duration::from_secs(10);
/// Slices that are written at the same time.
const AT_ONCE: usize = 8;

/// The slices of this node.
pub(super) struct Slices {
    client: Client,
    /// Name of this node.
    node: String,
    own: Copied<PodNetworkEndpointSlice>,
    changed: Arc<Notify>,
    object: watch::Receiver<Option<OwnNode>>,
    home: Home,
    state: Mutex<State>,
    /// How often something was withdrawn.
    withdrawn: watch::Sender<u64>,
}

/// Writes that are not in the copy.
#[derive(Debug, Default)]
struct State {
    /// Slices that were written, and are in the copy as they were before, by name.
    unseen: BTreeMap<String, Unseen>,
    /// Slices that are being written, by name, and since when.
    ///
    /// Other nodes may have read them already.
    sending: BTreeMap<String, (Arc<PodNetworkEndpointSlice>, Instant)>,
    /// Numbers of slices of a network whose names are those of another's.
    others: BTreeSet<(String, u32)>,
    /// Slices that were deleted and that somebody keeps for now.
    kept: usize,
    /// Why slices could not be written.
    failing: Option<String>,
}

/// A slice that was written.
#[derive(Debug)]
struct Unseen {
    /// As it is now; none when it was deleted.
    object: Option<Arc<PodNetworkEndpointSlice>>,
    /// Versions that were replaced since the copy had one of them.
    ///
    /// None is a slice that was not there.
    replaced: BTreeSet<Option<String>>,
    at: Instant,
}

/// Changes that one slice needs.
#[derive(Debug)]
enum Step {
    Create(PodNetworkEndpointSlice),
    /// With the version that it replaces.
    Replace(PodNetworkEndpointSlice),
    Delete(Arc<PodNetworkEndpointSlice>),
}

impl Slices {
    /// Prepares to write as node `node`, and returns the work that keeps the copy.
    ///
    /// The copy has the slices that were written.
    pub(super) fn new(
        client: &Client,
        node: &str,
        object: watch::Receiver<Option<OwnNode>>,
        home: Home,
    ) -> (Self, Vec<Work>) {
        let changed = Arc::new(Notify::new());
        let mut copier = Copier::new(client, &changed);
        let of_node = Config::default().labels(&format!("{NODE_LABEL}={}", label_value(node)));
        let this = Self {
            client: client.clone(),
            node: node.to_owned(),
            own: copier.copy("podnetworkendpointslices", false, of_node, trim_all),
            changed,
            object,
            home,
            state: Mutex::default(),
            withdrawn: watch::Sender::new(0),
        };
        (this, copier.work())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of each slice that says less than before.
    pub(super) fn withdrawals(&self) -> watch::Receiver<u64> {
        self.withdrawn.subscribe()
    }

    /// Addresses of which this node may have said that they are here.
    ///
    /// No other node may have one of them yet.
    ///
    /// [`Slices::withdrawals`] tells when it is worth to ask again.
    pub(super) fn said(&self) -> Said {
        match &*self.own.kind.progress() {
            Progress::Read => {}
            // Where slices are not known, nobody has read one either.
            Progress::Absent => return Said::Nothing,
            Progress::Unread(_) => return Said::Unread,
        }
        let sending = self.state().sending.clone().into_values();
        let sending: Vec<_> = sending.map(|(slice, _)| slice).collect();
        let published = self.published();
        let mut members = BTreeSet::new();
        for slice in published.values().chain(&sending) {
            let endpoints = slice.spec.endpoints.iter();
            let ips = endpoints.flat_map(|endpoint| &endpoint.ips);
            let ips = ips.filter_map(|ip| ip.parse().ok());
            members.extend(ips.map(|ip| (slice.spec.network.clone(), ip)));
        }
        Said::Members(members)
    }

    /// Writes what there is to say, for ever.
    pub(super) async fn work(&self) {
        // What runs here is not known before, and what was said of it still holds.
        self.home.until_recovered().await;
        let mut members = self.home.book.ledger().changes();
        let mut vteps = self.home.remotes.vtep_changes();
        let mut object = self.object.clone();
        let mut policies = self.home.policies.changes();
        let mut failures = 0;
        loop {
            members.mark_unchanged();
            policies.mark_unchanged();
            let named = self.home.services.get().names_networks();
            let again = if self.round().await {
                failures = 0;
                ROUND
            } else {
                failures += 1;
                ROUND.min(RETRY * failures)
            };
            tokio::select! {
                // These senders live as long as the agent.
                _ = members.changed() => {}
                _ = vteps.changed() => {}
                _ = object.changed() => {}
                _ = policies.changed() => {}
                () = self.services_name_otherwise(named) => {}
                () = self.changed.notified() => {}
                () = tokio::time::sleep(again) => {}
            }
            tokio::time::sleep(SETTLE).await;
        }
    }

    /// Waits until Services name networks, or name none any more.
    async fn services_name_otherwise(&self, before: bool) {
        let services = &self.home.services;
        let mut changes = services.changes();
        // The sender lives as long as the agent.
        while services.get().names_networks() == before && changes.changed().await.is_ok() {}
    }

    /// Makes the slices what they should be; false when it has to be tried again soon.
    async fn round(&self) -> bool {
        if *self.own.kind.progress() != Progress::Read {
            return true;
        }
        // A node that is gone for the cluster has no slices either: they would be removed again.
        if !self.object.borrow().as_ref().is_some_and(|own| own.exists) {
            return true;
        }
        // Nothing is on its way now. What failed was written or not, and the copy has heard of it.
        let recent = |since: &Instant| since.elapsed() < COMING;
        self.state().sending.retain(|_, (_, since)| recent(since));
        let steps = self.steps();
        let outcomes: Vec<bool> = stream::iter(steps)
            .map(|step| self.carry_out(step))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        if outcomes.iter().all(|done| *done) {
            self.state().failing = None;
            return true;
        }
        false
    }

    /// The slices as they are: the copy, and what was written since.
    fn published(&self) -> BTreeMap<String, Arc<PodNetworkEndpointSlice>> {
        let copied = self.own.store.state().into_iter();
        let of_node = copied.filter(|slice| slice.spec.node == self.node);
        let mut published: BTreeMap<String, Arc<PodNetworkEndpointSlice>> =
            of_node.map(|slice| (slice.name_any(), slice)).collect();
        let mut state = self.state();
        state.unseen.retain(|name, unseen| {
            let version = published.get(name).and_then(|it| it.resource_version());
            let is_coming = unseen.replaced.contains(&version) && unseen.at.elapsed() < COMING;
            if is_coming {
                match &unseen.object {
                    Some(object) => published.insert(name.clone(), Arc::clone(object)),
                    None => published.remove(name),
                };
            }
            is_coming
        });
        published
    }

    /// Lists the writes that are needed now.
    fn steps(&self) -> Vec<Step> {
        let mut published: BTreeMap<String, BTreeMap<u32, Arc<PodNetworkEndpointSlice>>> =
            BTreeMap::new();
        let mut steps = Vec::new();
        let all = self.published();
        let is_going =
            |slice: &PodNetworkEndpointSlice| slice.metadata.deletion_timestamp.is_some();
        let kept = all.values().filter(|slice| is_going(slice)).count();
        if kept < std::mem::replace(&mut self.state().kept, kept) {
            self.tell_withdrawn();
        }
        for slice in all.into_values() {
            match slice.number() {
                Some(number) => {
                    let network = slice.spec.network.clone();
                    published.entry(network).or_default().insert(number, slice);
                }
                // Somebody else wrote it in the name of this node.
                None => steps.push(Step::Delete(slice)),
            }
        }
        let pods = Pods {
            named: self.home.policies.get().names_networks()
                || self.home.services.get().names_networks(),
            labels: false,
        };
        let members = members::of(&self.home.book.ledger(), pods);
        let vteps = self.home.remotes.vteps();
        if vteps.is_empty() && !members.is_empty() {
            // The networks are refused for it, and what runs cannot be reached anew.
            return steps;
        }
        for (network, here) in members {
            let before = published.remove(&network).unwrap_or_default();
            let said: Divided = before
                .iter()
                .filter_map(|(number, slice)| Some((*number, slice.checked().ok()?.endpoints)))
                .collect();
            let taken = self.taken(&network);
            let divided = divide(&said, &here.members, &taken, pods, |mac, ips| {
                self.home.remotes.date_of_claim(here.id, mac, ips)
            });
            for (number, endpoints) in &divided {
                let spec = spec(&network, here.id, &self.node, &vteps, endpoints);
                let before = before.get(number);
                if before.is_some_and(|slice| slice.spec == spec) {
                    continue;
                }
                let Ok(mut slice) = PodNetworkEndpointSlice::numbered(*number, spec) else {
                    // The API server has both names already.
                    continue;
                };
                match before {
                    Some(before) => {
                        slice.metadata.resource_version = before.resource_version();
                        steps.push(Step::Replace(slice));
                    }
                    None => steps.push(Step::Create(slice)),
                }
            }
            let spare = before.into_iter();
            let spare = spare.filter(|(number, _)| !divided.contains_key(number));
            steps.extend(spare.map(|(_, slice)| Step::Delete(slice)));
        }
        let left = published.into_values().flat_map(BTreeMap::into_values);
        steps.extend(left.map(Step::Delete));
        // One that somebody keeps is on its way out already.
        steps.retain(|step| !matches!(step, Step::Delete(slice) if is_going(slice)));
        steps
    }

    /// Numbers of slices that are another's.
    fn taken(&self, network: &str) -> BTreeSet<u32> {
        let state = self.state();
        let others = state.others.iter();
        let of_network = others.filter(|(other, _)| other == network);
        of_network.map(|(_, number)| *number).collect()
    }
}

impl std::fmt::Debug for Slices {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Slices")
            .field("node", &self.node)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
