//! Follows other nodes' members of the networks that this one serves.
//!
//! Networks are followed in groups, each with one watch that selects its networks by their label: a
//! thousand networks are a few watches, and a network that comes or goes starts one of them anew.
//! Until that has read all again, what was known counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::{NETWORK_LABEL, PodNetworkEndpointSlice, label_value};
use cluster::Work;
use cluster::copied::trim_all;
use cluster::watch::{Kind, follow_into};
use futures_util::FutureExt as _;
use futures_util::future::select_all;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, ResourceExt as _};
use reach::members::{served, spanning};
use remotes::Remotes;
use telemetry::chain;
use tokio::sync::Notify;

use crate::kube::home::Home;

/// Time within which changes are taken as one, read or written.
pub(super) const SETTLE: Duration = Duration::from_millis(20);
/// Most networks of a group.
///
/// The selector is part of an address, which has a length.
const GROUP_MAX: usize = 200;
/// Time for which a network is followed after it is not served any more.
///
/// The next pod may come soon.
const LINGER: Duration = Duration::from_secs(60);

/// An object that this version may not be able to read.
type Guarded = DeserializeGuard<PodNetworkEndpointSlice>;

/// The slices that are known of a group: their networks, by name.
type Known = Arc<Mutex<BTreeMap<String, String>>>;

/// Follows what other nodes say.
#[derive(Clone)]
pub(in crate::kube) struct Followed {
    client: Client,
    home: Home,
}

/// Networks of one watch, with the time since which each is not served.
type Networks = BTreeMap<String, Option<Instant>>;

/// Networks that one watch follows.
struct Group {
    networks: Networks,
    known: Known,
    kind: Arc<Kind>,
    work: Work,
}

impl Followed {
    pub(in crate::kube) fn new(client: &Client, home: Home) -> Self {
        Self {
            client: client.clone(),
            home,
        }
    }

    /// Follows the networks that the node serves, for ever.
    pub(in crate::kube) async fn work(&self) {
        let progress = Arc::new(Notify::new());
        let mut groups: Vec<Group> = Vec::new();
        let mut changes = self.home.book.ledger().changes();
        let mut objects = self.home.world.changes();
        loop {
            changes.mark_unchanged();
            objects.mark_unchanged();
            let world = self.home.world.get();
            let wanted = spanning(&self.home.book.ledger(), &world);
            self.regroup(&mut groups, &wanted, &self.home.remotes, &progress);
            // Without objects it is not known which other networks are reached.
            let is_known = world.unread.is_empty();
            if is_known && groups.iter().all(|group| group.kind.unread().is_none()) {
                // Before what is not served goes.
                let served = served(&self.home.book.ledger(), &world);
                self.home.remotes.serve(served);
                self.home.remotes.set_complete();
            }
            tokio::select! {
                // The senders live as long as the node.
                _ = changes.changed() => {}
                _ = objects.changed() => {}
                () = progress.notified() => continue,
                () = tokio::time::sleep(LINGER) => {}
                () = follow_all(&mut groups) => {}
            }
            let settled = tokio::time::sleep(SETTLE);
            tokio::select! {
                () = settled => {}
                () = follow_all(&mut groups) => {}
            }
        }
    }

    /// Makes the groups follow these networks, with as few new watches as may be.
    fn regroup(
        &self,
        groups: &mut Vec<Group>,
        wanted: &BTreeSet<String>,
        remotes: &Arc<Remotes>,
        progress: &Arc<Notify>,
    ) {
        let mut networks: Vec<Networks> = groups
            .iter_mut()
            .map(|group| std::mem::take(&mut group.networks))
            .collect();
        let stale = assign(&mut networks, wanted, Instant::now());
        for (index, networks) in networks.into_iter().enumerate() {
            if index == groups.len() {
                groups.push(self.group(progress));
            }
            if let Some(group) = groups.get_mut(index) {
                group.networks = networks;
                if stale.contains(&index) {
                    self.restart(group, remotes, progress);
                }
            }
        }
        groups.retain(|group| !group.networks.is_empty());
    }

    fn group(&self, progress: &Arc<Notify>) -> Group {
        Group {
            networks: BTreeMap::new(),
            known: Known::default(),
            kind: kind(progress),
            work: std::future::pending().boxed(),
        }
    }

    /// Starts a new watch for the networks of the group.
    ///
    /// The old one ends here, so nothing that it tells comes after.
    fn restart(&self, group: &mut Group, remotes: &Arc<Remotes>, progress: &Arc<Notify>) {
        group.work = std::future::pending().boxed();
        let mut gone = Vec::new();
        lock(&group.known).retain(|name, network| {
            let stays = group.networks.contains_key(network);
            if !stays {
                gone.push(name.clone());
            }
            stays
        });
        for name in gone {
            remotes.replace(&name, None);
        }
        group.kind = kind(progress);
        if group.networks.is_empty() {
            return;
        }
        let labels: BTreeSet<String> = group.networks.keys().map(|it| label_value(it)).collect();
        let labels: Vec<String> = labels.into_iter().collect();
        let selection = format!("{NETWORK_LABEL} in ({})", labels.join(","));
        let api: Api<Guarded> = Api::all(self.client.clone());
        let mut heard = Heard {
            known: Arc::clone(&group.known),
            remotes: Arc::clone(remotes),
            read: BTreeSet::new(),
        };
        let apply = move |event: &Event<Guarded>| heard.apply(event);
        let selection = Config::default().labels(&selection);
        let work = follow_into(Arc::clone(&group.kind), api, selection, trim_all, apply);
        group.work = work.boxed();
    }
}

impl std::fmt::Debug for Followed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Followed").finish_non_exhaustive()
    }
}

/// Takes over what a watch tells.
struct Heard {
    known: Known,
    remotes: Arc<Remotes>,
    /// Slices so far of the list that is being read.
    read: BTreeSet<String>,
}

impl Heard {
    fn apply(&mut self, event: &Event<Guarded>) {
        match event {
            Event::Init => self.read.clear(),
            Event::InitApply(object) => {
                self.read.insert(object.name_any());
                self.replace(object);
            }
            Event::InitDone => {
                let known: Vec<String> = lock(&self.known).keys().cloned().collect();
                for name in known.into_iter().filter(|it| !self.read.contains(it)) {
                    self.forget(&name);
                }
                self.read.clear();
            }
            Event::Apply(object) => self.replace(object),
            Event::Delete(object) => self.forget(&object.name_any()),
        }
    }

    fn replace(&self, object: &Guarded) {
        let name = object.name_any();
        let read = match &object.0 {
            Ok(slice) => slice.checked().map_err(|error| chain(&error)),
            Err(invalid) => Err(invalid.to_string()),
        };
        match read {
            Ok(slice) => {
                lock(&self.known).insert(name.clone(), slice.network.clone());
                self.remotes.replace(&name, Some(slice));
            }
            Err(error) => {
                tracing::warn!(
                    slice = name,
                    error,
                    "the slice of another node cannot be read, and its members are not reached"
                );
                self.forget(&name);
            }
        }
    }

    fn forget(&self, name: &str) {
        lock(&self.known).remove(name);
        self.remotes.replace(name, None);
    }
}

fn lock(known: &Known) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kind(progress: &Arc<Notify>) -> Arc<Kind> {
    Kind::new("podnetworkendpointslices", false, progress)
}

/// Adds wanted networks to groups, and removes those unwanted for long.
///
/// A network stays in its group. Returns the indexes of the groups that have changed.
fn assign(groups: &mut Vec<Networks>, wanted: &BTreeSet<String>, now: Instant) -> BTreeSet<usize> {
    let mut missing = wanted.clone();
    let mut stale = BTreeSet::new();
    for (index, group) in groups.iter_mut().enumerate() {
        let before = group.len();
        group.retain(|network, since| {
            if missing.remove(network) {
                *since = None;
                return true;
            }
            let since = *since.get_or_insert(now);
            now.saturating_duration_since(since) < LINGER
        });
        if group.len() != before {
            stale.insert(index);
        }
    }
    for network in missing {
        let room = groups.iter().position(|group| group.len() < GROUP_MAX);
        let index = room.unwrap_or(groups.len());
        if index == groups.len() {
            groups.push(Networks::new());
        }
        if let Some(group) = groups.get_mut(index) {
            group.insert(network, None);
            stale.insert(index);
        }
    }
    stale
}

/// Goes on with all watches; none of them ends.
async fn follow_all(groups: &mut [Group]) {
    if groups.is_empty() {
        return std::future::pending().await;
    }
    select_all(groups.iter_mut().map(|group| &mut group.work)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(count: usize) -> BTreeSet<String> {
        (0..count).map(|n| format!("network-{n:04}")).collect()
    }

    fn sizes(groups: &[Networks]) -> Vec<usize> {
        groups.iter().map(BTreeMap::len).collect()
    }

    /// Issue 5: watched by the nodes that serve that network only; 1,000 networks.
    #[test]
    fn a_thousand_networks_are_five_watches_and_one_more_starts_one() {
        let (mut groups, now) = (Vec::new(), Instant::now());
        assert_eq!(assign(&mut groups, &wanted(1000), now).len(), 5);
        assert_eq!(sizes(&groups), [200; 5]);
        assert!(assign(&mut groups, &wanted(1000), now).is_empty());
        assert_eq!(assign(&mut groups, &wanted(1001), now), [5].into());
        // The longest labels, with a comma as three bytes, in an address that the client takes.
        assert!(GROUP_MAX * (63 + 3) < usize::from(u16::MAX) / 2);
    }

    #[test]
    fn a_network_is_followed_for_a_while_after_its_last_attachment() {
        let (mut groups, now) = (Vec::new(), Instant::now());
        assign(&mut groups, &wanted(300), now);
        assert_eq!(sizes(&groups), [200, 100]);
        let mut fewer = wanted(300);
        fewer.remove("network-0007");
        assert!(assign(&mut groups, &fewer, now).is_empty());
        // It is back before anybody noticed.
        assert!(assign(&mut groups, &wanted(300), now + LINGER / 2).is_empty());
        assert!(assign(&mut groups, &fewer, now + LINGER).is_empty());
        assert_eq!(assign(&mut groups, &fewer, now + LINGER * 2), [0].into());
        assert_eq!(sizes(&groups), [199, 100]);
        // The next one takes the room that is there.
        let mut other = fewer.clone();
        other.insert("other".to_owned());
        assert_eq!(assign(&mut groups, &other, now + LINGER * 2), [0].into());
        let gone = assign(&mut groups, &BTreeSet::new(), now + LINGER * 2);
        assert!(gone.is_empty());
        assign(&mut groups, &BTreeSet::new(), now + LINGER * 3);
        assert_eq!(sizes(&groups), [0, 0]);
    }
}
