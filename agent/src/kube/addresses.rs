//! Addresses in a cluster: what of the networks this node may give, and how it gets more.
//!
//! - [`stock`] says how many blocks this node has, ahead of need; [`blocks`] takes them and gives them
//!   back, when they were [`idle`] for long.
//! - [`reservations`] asks for addresses by name, and answers those who ask for one of a block here.
//! - [`claims`] serves `IPAMClaim`s.
//!
//! The rules by which all of them work, and why they suffice, are at [`crate::ledger::Share`].
//!
//! An `ADD` without wishes asks nobody: what the ledger may give is there already. Only when that is
//! used up, or for an address by name that is not in a block of this node, it waits for the API
//! server, and not for long.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::{Holder, IpBlock, IpReservation, PodHolder, Prefix};
use cluster::Work;
use cluster::copied::{Copied, Copier, trim_all};
use ipam::{Family, IpamError};
use k8s_openapi::api::core::v1::Node as ApiNode;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Config;
use kube::{Client, ResourceExt as _};
use tokio::sync::{Notify, watch};
use tokio::time::timeout_at;
use world::Current;
use world::blocks::LENGTH;

use self::idle::{Idle, NetworkBlock};
use super::error::ClusterError;
use super::holdings::of_reservations;
use super::lookup::Pods;
use super::slices::Slices;
use crate::book::{AddressError, Book, BookError};
use crate::ledger::{Reserved, Share, Wanted, pools};
use crate::metrics::Metrics;
use crate::node::Node;
use crate::record::{Attachment, HostEnd};
use crate::remotes::Remotes;

mod blocks;
mod claims;
mod expected;
mod idle;
mod reservations;
mod stock;

pub(super) use blocks::answer;
pub(super) use expected::{SOON, networks};
pub(super) use reservations::granted_by;

/// How long an `ADD` waits for addresses in all.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the API server may take for one answer.
const ANSWER: Duration = Duration::from_secs(3);
/// Everything is looked at again after this time, also when nothing is known to have changed.
const ROUND: Duration = Duration::from_secs(30);

/// Addresses of the cluster's networks, as this node has to do with them.
pub(super) struct Addresses {
    client: Client,
    /// Name of this node.
    node: String,
    nodes: Copied<PartialObjectMeta<ApiNode>>,
    /// Blocks with this node's name.
    blocks: Copied<IpBlock>,
    /// Reservations of everybody.
    reservations: Copied<IpReservation>,
    pods: Pods,
    /// What was said to other nodes of who has which address.
    slices: Arc<Slices>,
    metrics: Arc<Metrics>,
    /// How long a block is kept that is not needed.
    keep: Duration,
    /// Something may have to be done.
    changed: Arc<Notify>,
    /// Counts how often everything was looked at.
    rounds: watch::Sender<u64>,
    state: Mutex<State>,
}

/// What is not in any copy.
#[derive(Debug, Default)]
struct State {
    /// `ADD`s that wait for an address, by network.
    waiting: BTreeMap<String, u64>,
    /// Until when reservations are kept that no attachment has yet: network, address, UID of the
    /// holder.
    asked: BTreeMap<(String, IpAddr, String), Instant>,
    /// Reservations, by UID, that this node deletes or has deleted; until when that is remembered. A
    /// copy may still have them.
    given_up: BTreeMap<String, Instant>,
    /// Blocks, by UID, for which other blocks and reservations were read after they were taken.
    cleared: BTreeSet<String>,
    /// Blocks, by UID, that were taken at this time and were not in the copy then.
    fresh: BTreeMap<String, (NetworkBlock, Instant)>,
    /// Blocks, by UID, that have addresses of another.
    contested: BTreeSet<String>,
    /// Blocks, by UID, that are being given back.
    leaving: BTreeSet<String>,
    /// Reservations that were read, and are not in the copy yet.
    unseen: BTreeMap<String, Arc<IpReservation>>,
    /// Why a network got no further block, and when to try again.
    refused: BTreeMap<String, (String, Instant)>,
    /// Since when blocks are not needed.
    idle: Idle,
    /// When it was last looked whether others need blocks of a network.
    looked: BTreeMap<(String, Family), Instant>,
    /// Uses of blocks as they were last written, by UID.
    written: BTreeMap<String, (u64, Instant)>,
}

/// What addresses are given from.
#[derive(Clone, Copy)]
pub(super) struct Local<'a> {
    pub(super) book: &'a Book,
    pub(super) world: &'a Current,
}

/// What was known when a round began.
struct View {
    blocks: Vec<Arc<IpBlock>>,
    reservations: Vec<Arc<IpReservation>>,
    /// UIDs of those blocks from which this node gives.
    serving: BTreeSet<String>,
    /// Blocks that were taken, and are not in the copy yet.
    fresh: Vec<NetworkBlock>,
}

/// Counts an `ADD` that waits.
struct Waiting<'a> {
    addresses: &'a Addresses,
    network: &'a str,
}

impl Addresses {
    /// Prepares to give addresses as node `node`, and the work that keeps copies.
    pub(super) fn new(
        client: &Client,
        node: &str,
        pods: Pods,
        slices: Arc<Slices>,
        remotes: &Arc<Remotes>,
        metrics: Arc<Metrics>,
        keep: Duration,
    ) -> (Self, Vec<Work>) {
        let changed = Arc::new(Notify::new());
        let of_node = |field: &str| Config::default().fields(&format!("{field}={node}"));
        let mut copier = Copier::new(client, &changed);
        let nodes = copier.copy("nodes", false, of_node("metadata.name"), trim_all);
        let blocks = copier.copy("ipblocks", false, of_node("spec.node"), trim_all);
        let reservations = copier.told("ipreservations", trim_all, of_reservations(remotes));
        let this = Self {
            client: client.clone(),
            node: node.to_owned(),
            nodes,
            blocks,
            reservations,
            pods,
            slices,
            metrics,
            keep,
            changed,
            rounds: watch::Sender::new(0),
            state: Mutex::default(),
        };
        (this, copier.work())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something may have to be done: an address was given, or is free again.
    pub(super) fn look_again(&self) {
        self.changed.notify_one();
    }

    /// Keeps what this node may give what it should be, for ever.
    pub(super) async fn work(&self, node: &Node) {
        let mut pods = self.pods.changes();
        let mut networks = node.world.changes();
        let mut withdrawn = self.slices.withdrawals();
        loop {
            self.round(node).await;
            self.rounds.send_modify(|rounds| *rounds += 1);
            let idle = self.next_idle();
            let soonest = {
                let state = self.state();
                let waited_for = state.refused.iter();
                let waited_for = waited_for.filter(|(name, _)| state.waiting.contains_key(*name));
                let again = waited_for.map(|(_, (_, again))| *again);
                let again = again.chain(idle).min();
                again.map_or(ROUND, |at| {
                    at.saturating_duration_since(Instant::now()).min(ROUND)
                })
            };
            tokio::select! {
                () = self.changed.notified() => {}
                // These senders live as long as the agent.
                _ = pods.changed() => {}
                _ = networks.changed() => {}
                _ = withdrawn.changed() => {}
                () = tokio::time::sleep(soonest) => {}
            }
        }
    }

    async fn round(&self, node: &Node) {
        if let Some(why) = self.unread() {
            tracing::debug!(why, "addresses of the cluster not known yet");
            return;
        }
        self.clear().await;
        let view = self.publish(node);
        self.grant(node, &view).await;
        if node.is_ready() {
            // Before that the book is not complete.
            self.let_go(node, &view).await;
            self.yield_contested(node, &view).await;
            self.stock(node, &view).await;
        }
        self.stay(&view).await;
        self.tell(node, &view).await;
    }

    /// Why nothing can be said about addresses, if so.
    fn unread(&self) -> Option<String> {
        let kinds = [&self.nodes.kind, &self.blocks.kind, &self.reservations.kind];
        kinds.into_iter().find_map(|kind| kind.unread())
    }

    /// UID of this node's object.
    fn node_uid(&self) -> Option<String> {
        let object = self.nodes.store.state().into_iter().next()?;
        object.uid()
    }

    /// Makes the ledger know what is this node's to give.
    fn publish(&self, node: &Node) -> View {
        let view = self.view();
        let mut shares: HashMap<String, Share> = HashMap::new();
        for block in &view.blocks {
            let serving = block.uid().is_some_and(|uid| view.serving.contains(&uid));
            let cidr = block.spec.cidr.parse::<Prefix>();
            if let (true, Ok(cidr)) = (serving, cidr) {
                let share = shares.entry(block.spec.network.clone()).or_default();
                share.blocks.push(cidr);
            }
        }
        for reservation in &view.reservations {
            let spec = &reservation.spec;
            let (Ok(ip), Some(holder)) = (spec.address.parse(), reservations::holder(spec)) else {
                continue;
            };
            let reserved = Reserved {
                holder,
                granted: reservations::answer(reservation).is_some_and(|answer| answer.0)
                    && !self.is_given_up(reservation),
            };
            let share = shares.entry(spec.network.clone()).or_default();
            share.reserved.insert(ip, reserved);
        }
        for share in shares.values_mut() {
            // In one order at all times: what is used up first is what is kept.
            share.blocks.sort();
        }
        node.book.ledger().set_shares(shares);
        view
    }

    fn view(&self) -> View {
        let state = self.state();
        let own = self.node_uid();
        let blocks = self.blocks.store.state();
        let serves = |block: &Arc<IpBlock>| {
            let uid = block.uid()?;
            let marked = block
                .status
                .as_ref()
                .and_then(|it| it.reclaim_after.as_ref());
            let serves = own.as_ref() == Some(&block.spec.node_uid)
                && block.metadata.deletion_timestamp.is_none()
                && marked.is_none()
                && state.cleared.contains(&uid)
                && !state.leaving.contains(&uid);
            serves.then_some(uid)
        };
        let serving = blocks.iter().filter_map(serves).collect();
        let mut reservations = self.reservations.store.state();
        let copied: BTreeSet<String> = reservations.iter().filter_map(|it| it.uid()).collect();
        let unseen = state
            .unseen
            .iter()
            .filter(|(uid, _)| !copied.contains(*uid));
        // Last: one of the same name in the copy is older.
        reservations.extend(unseen.map(|(_, reservation)| Arc::clone(reservation)));
        let known = |uid: &String| blocks.iter().any(|it| it.uid().as_ref() == Some(uid));
        let fresh = state.fresh.iter().filter(|(uid, _)| !known(uid));
        let fresh = fresh.map(|(_, (block, _))| block.clone()).collect();
        View {
            blocks,
            reservations,
            serving,
            fresh,
        }
    }

    /// Books an attachment with addresses that nobody else in the cluster has.
    ///
    /// # Errors
    /// When there are none, or the API server does not answer in time.
    pub(super) async fn book(
        &self,
        node: Local<'_>,
        mut wanted: Wanted,
        network: &api::Network,
        host: HostEnd,
    ) -> Result<Attachment, ClusterError> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        if network.subnets.is_empty() {
            // Nothing that a claim could keep (NPWG-8-T5).
            return Ok(node.book.ledger().reserve(wanted, network, host)?);
        }
        check_requests(&wanted, network)?;
        if let Some(claim) = wanted.claim.clone() {
            self.serve_claim(node, &mut wanted, &claim, network, deadline)
                .await?;
        } else if !wanted.ips.0.is_empty() {
            self.reserve_all(node, &mut wanted, network, deadline)
                .await?;
        }
        let booked = self.until_room(&network.name, deadline, || {
            node.book
                .ledger()
                .reserve(wanted.clone(), network, host.clone())
        });
        let booked = booked.await?;
        // From now on the ledger says that its reservations are needed.
        if let Some(holder) = &wanted.holder {
            let uid = reservations::uid_of(holder);
            self.state()
                .asked
                .retain(|(of, _, asked), _| of != &network.name || asked != uid);
        }
        Ok(booked)
    }

    /// What `choose` chooses, as soon as there is a block with room for it.
    async fn until_room<T>(
        &self,
        network: &str,
        deadline: tokio::time::Instant,
        mut choose: impl FnMut() -> Result<T, BookError>,
    ) -> Result<T, BookError> {
        let mut rounds = self.rounds.subscribe();
        let mut waiting = None;
        loop {
            rounds.mark_unchanged();
            let chosen = choose();
            if waiting.is_none() {
                // Stock may be low now.
                self.look_again();
            }
            let source = match chosen {
                Err(BookError::Address {
                    source: source @ IpamError::NoRoom { .. },
                    ..
                }) => source,
                done => return done,
            };
            if waiting.is_none() {
                waiting = Some(self.wait_for(network));
                self.look_again();
            }
            // Each round may have brought a block.
            if timeout_at(deadline, rounds.changed()).await.is_err() {
                return Err(self.no_block(network, source).into());
            }
        }
    }

    fn wait_for<'a>(&'a self, network: &'a str) -> Waiting<'a> {
        *self.state().waiting.entry(network.to_owned()).or_default() += 1;
        Waiting {
            addresses: self,
            network,
        }
    }

    fn no_block(&self, network: &str, source: IpamError) -> AddressError {
        let state = self.state();
        let refused = state.refused.get(network).map(|(why, _)| why.clone());
        let why = refused
            .or_else(|| self.unread())
            .unwrap_or_else(|| "the API server gave it none in time".to_owned());
        AddressError::NoBlock {
            network: network.to_owned(),
            source,
            why,
        }
    }

    /// Addresses by name: each must be of a block of this node, or be reserved.
    async fn reserve_all(
        &self,
        node: Local<'_>,
        wanted: &mut Wanted,
        network: &api::Network,
        deadline: tokio::time::Instant,
    ) -> Result<(), ClusterError> {
        let ips: Vec<IpAddr> = wanted.ips.0.iter().map(|it| it.address).collect();
        wanted.holder = self.pod_holder(wanted).await?;
        for ip in ips {
            let is_ours = {
                let ledger = node.book.ledger();
                let share = ledger.share_of(&network.name);
                share.is_some_and(|share| share.has(ip) && !share.reserved.contains_key(&ip))
            };
            if is_ours {
                continue;
            }
            let Some(holder) = &wanted.holder else {
                return Err(AddressError::NoPod { ip }.into());
            };
            self.ask(node, &network.name, ip, holder, deadline).await?;
        }
        Ok(())
    }

    /// The pod of an attachment, to reserve addresses for.
    async fn pod_holder(&self, wanted: &Wanted) -> Result<Option<Holder>, ClusterError> {
        let Some(pod) = &wanted.pod else {
            return Ok(None);
        };
        let uid = match &pod.uid {
            Some(uid) => uid.clone(),
            None => self.pods.find(&pod.namespace, &pod.name, None).await?.uid,
        };
        Ok(Some(Holder::Pod(PodHolder {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid,
            node: self.node.clone(),
        })))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.addresses.state();
        if let Some(count) = state.waiting.get_mut(self.network) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                state.waiting.remove(self.network);
            }
        }
    }
}

impl std::fmt::Debug for Addresses {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Addresses")
            .field("node", &self.node)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// An address that nobody can have is refused before anybody is asked for it.
fn check_requests(wanted: &Wanted, network: &api::Network) -> Result<(), BookError> {
    let fail = |source| BookError::Address {
        network: network.name.clone(),
        source,
    };
    let pools = pools(network)?;
    for ip in wanted.ips.0.iter().map(|request| request.address) {
        let pool = pools.iter().find(|pool| pool.prefix().contains(&ip));
        let subnets = || pools.iter().map(ipam::Pool::prefix).collect();
        let pool = pool.ok_or_else(|| {
            fail(IpamError::OutOfSubnets {
                ip,
                subnets: subnets(),
            })
        })?;
        pool.request(ip, &|_| false).map_err(fail)?;
    }
    Ok(())
}
