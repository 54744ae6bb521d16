//! Blocks: taken ahead of need, given back when empty.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{IpBlock, IpReservation, Prefix};
use ipam::{Family, Held, Plan, Pool, candidates, plan};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::time::timeout;

use super::{ANSWER, Addresses, LENGTH, ROUND, View};
use crate::error::chain;
use crate::kube::{MANAGER, brief};
use crate::ledger::{digest, pools};
use crate::node::Node;

/// Blocks that a network gets in one round; more come with the next.
const BLOCKS_AT_ONCE: usize = 16;
/// Attempts at a block that others take at the same moment.
const ATTEMPTS: usize = 32;
/// Time to the next attempt when there was no block to be had.
const RETRY: Duration = Duration::from_secs(1);
/// How long a new block may take to appear in the copy.
const APPEARANCE: Duration = Duration::from_secs(2);

impl Addresses {
    /// Reads reservations for blocks that are new here. Only then anything of them is given.
    pub(super) async fn clear(&self) {
        let blocks = self.blocks.store.state();
        let mut new: BTreeMap<String, Vec<String>> = BTreeMap::new();
        {
            let mut state = self.state();
            let known: BTreeSet<String> = blocks.iter().filter_map(|block| block.uid()).collect();
            state.cleared.retain(|uid| known.contains(uid));
            // One that is gone does not come back under the same UID.
            state.leaving.retain(|uid| known.contains(uid));
            state.written.retain(|uid, _| known.contains(uid));
            let unknown = blocks
                .iter()
                .filter_map(|block| Some((block, block.uid()?)));
            for (block, uid) in unknown.filter(|(_, uid)| !state.cleared.contains(uid)) {
                new.entry(block.spec.network.clone()).or_default().push(uid);
            }
        }
        let api: Api<IpReservation> = Api::all(self.client.clone());
        for (network, uids) in new {
            // Without a resource version this is no read of a cache.
            let params = ListParams::default().fields(&format!("spec.network={network}"));
            let found = match timeout(ANSWER, api.list(&params)).await {
                Ok(Ok(found)) => found.items,
                Ok(Err(error)) => {
                    tracing::warn!(
                        network,
                        error = brief(&error),
                        "reservations cannot be read"
                    );
                    continue;
                }
                Err(_) => continue,
            };
            let mut state = self.state();
            for reservation in found {
                if let Some(uid) = reservation.uid() {
                    state.unseen.insert(uid, Arc::new(reservation));
                }
            }
            state.cleared.extend(uids);
        }
        self.forget_seen().await;
    }

    /// What was read apart from the copy is of no use once the copy has it, or it is gone.
    async fn forget_seen(&self) {
        let copied = self.reservations.store.state();
        let copied: BTreeSet<String> = copied.iter().filter_map(|it| it.uid()).collect();
        let unseen: Vec<(String, String)> = {
            let mut state = self.state();
            state.unseen.retain(|uid, _| !copied.contains(uid));
            let unseen = state.unseen.iter();
            unseen
                .map(|(uid, it)| (uid.clone(), it.name_any()))
                .collect()
        };
        let api: Api<IpReservation> = Api::all(self.client.clone());
        for (uid, name) in unseen {
            if let Ok(Ok(found)) = timeout(ANSWER, api.get_metadata_opt(&name)).await
                && found.and_then(|found| found.uid()).as_ref() != Some(&uid)
            {
                self.state().unseen.remove(&uid);
            }
        }
    }

    /// Takes blocks for networks with too few free addresses, and gives back what is not needed.
    pub(super) async fn stock(&self, node: &Node, view: &View) {
        let world = node.world.get();
        if world.check_read().is_err() {
            return;
        }
        let expected = self.expected(node, &world);
        let mut networks: BTreeSet<String> = {
            let ledger = node.ledger();
            ledger.networks_in_use().map(str::to_owned).collect()
        };
        networks.extend(expected.keys().cloned());
        networks.extend(self.state().waiting.keys().cloned());
        let used = networks.clone();
        networks.extend(view.blocks.iter().map(|block| block.spec.network.clone()));
        for network in networks {
            let pools = world.network(&network).ok().and_then(|it| pools(it).ok());
            // Of a network that is gone or disabled, blocks stay only while they are in use.
            let pools = pools.unwrap_or_default();
            let waiting = self.state().waiting.get(&network).copied().unwrap_or(0);
            let coming = expected.get(&network).copied().unwrap_or(0).max(waiting);
            let coming = used.contains(&network).then_some(coming);
            for family in [Family::V4, Family::V6] {
                let has_family = pools.iter().any(|pool| pool.family() == family);
                let coming = coming.filter(|_| has_family);
                self.balance(node, view, (&network, &pools), family, coming)
                    .await;
            }
        }
        self.retry_leaving(view).await;
    }

    async fn balance(
        &self,
        node: &Node,
        view: &View,
        (network, pools): (&str, &[Pool]),
        family: Family,
        coming: Option<u64>,
    ) {
        let mut held: Vec<Held> = {
            let ledger = node.ledger();
            let blocks = ledger.share_of(network).map(|share| share.blocks.clone());
            let blocks = blocks.unwrap_or_default().into_iter();
            let of_family = blocks.filter(|block| Family::of(block.addr()) == family);
            of_family
                .map(|block| Held {
                    block,
                    room: room(pools, &block),
                    used: ledger.given_of(network, &block),
                })
                .collect()
        };
        for _ in 0..BLOCKS_AT_ONCE {
            match plan(&held, coming) {
                Plan::Keep => return,
                Plan::Take => match self.take(network, pools, family).await {
                    Some(block) => held.push(Held {
                        block,
                        room: room(pools, &block),
                        used: 0,
                    }),
                    None => return,
                },
                Plan::GiveBack(block) => {
                    held.retain(|one| one.block != block);
                    self.give_back(node, view, network, block).await;
                }
            }
        }
    }

    /// Takes one more block of a network; none when that is not possible now, and why is noted.
    async fn take(&self, network: &str, pools: &[Pool], family: Family) -> Option<Prefix> {
        let now = Instant::now();
        let too_soon = |state: &super::State| {
            let refused = state.refused.get(network);
            refused.is_some_and(|(_, again)| *again > now)
        };
        if too_soon(&self.state()) {
            return None;
        }
        let taken = self.try_take(network, pools, family).await;
        let mut state = self.state();
        match taken {
            Ok(block) => {
                state.refused.remove(network);
                Some(block)
            }
            Err(why) => {
                let again = Instant::now() + RETRY;
                let before = state
                    .refused
                    .insert(network.to_owned(), (why.clone(), again));
                if before.is_none_or(|(before, _)| before != why) {
                    tracing::warn!(network, %family, why, "no further block");
                }
                None
            }
        }
    }

    async fn try_take(
        &self,
        network: &str,
        pools: &[Pool],
        family: Family,
    ) -> Result<Prefix, String> {
        let uid = self.node_uid();
        let uid = uid.ok_or_else(|| format!("the API server has no Node {}", self.node))?;
        let api: Api<IpBlock> = Api::all(self.client.clone());
        let of_network = ListParams::default().fields(&format!("spec.network={network}"));
        let listed = answer(api.list(&of_network)).await?;
        let cidrs = listed
            .items
            .iter()
            .filter_map(|it| it.spec.cidr.parse().ok());
        let taken: BTreeSet<Prefix> = cidrs.collect();
        let is_taken = |block| taken.contains(&block);
        let free: Vec<Prefix> = candidates(pools, family, LENGTH, self.seed(), &is_taken)
            .take(ATTEMPTS)
            .collect();
        for block in free {
            if self.create(&api, network, block.addr(), &uid).await? {
                return Ok(block);
            }
        }
        let mut holders: BTreeMap<&str, usize> = BTreeMap::new();
        for block in &listed.items {
            *holders.entry(&block.spec.node).or_default() += 1;
        }
        let most = holders.iter().max_by_key(|(_, count)| **count);
        Err(match most {
            Some((node, count)) => format!(
                "all blocks of its subnets are taken, {count} of {} by node {node}; add a subnet",
                listed.items.len()
            ),
            None => "its subnets have none".to_owned(),
        })
    }

    /// Takes the block with this address; false when somebody has it.
    pub(super) async fn create(
        &self,
        api: &Api<IpBlock>,
        network: &str,
        address: std::net::IpAddr,
        uid: &str,
    ) -> Result<bool, String> {
        let block = IpBlock::take(network, address, &self.node, uid);
        let block = block.map_err(|error| chain(&error))?;
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let created = match timeout(ANSWER, api.create(&params, &block)).await {
            Ok(Ok(created)) => created,
            Ok(Err(kube::Error::Api(status))) if status.reason == "AlreadyExists" => {
                return Ok(false);
            }
            Ok(Err(error)) => return Err(brief(&error)),
            Err(_) => return Err(no_answer()),
        };
        tracing::info!(network, block = block.spec.cidr, "block taken");
        let uid = created.uid();
        // Until it is in the copy, nobody would know that it need not be taken again.
        let end = tokio::time::Instant::now() + APPEARANCE;
        loop {
            let blocks = self.blocks.store.state();
            if blocks.iter().any(|block| block.uid() == uid) {
                break;
            }
            if tokio::time::timeout_at(end, self.changed.notified())
                .await
                .is_err()
            {
                break;
            }
        }
        // Whatever else it was about.
        self.changed.notify_one();
        Ok(true)
    }

    /// Where this node begins to look for blocks.
    fn seed(&self) -> u64 {
        digest(self.node.as_bytes())
    }

    async fn give_back(&self, node: &Node, view: &View, network: &str, block: Prefix) {
        let cidr = block.to_string();
        let serving = |it: &&Arc<IpBlock>| {
            let uid = it.uid();
            it.spec.network == network
                && it.spec.cidr == cidr
                && uid.is_some_and(|uid| view.serving.contains(&uid))
        };
        let Some(object) = view.blocks.iter().find(serving) else {
            return;
        };
        let uid = object.uid().unwrap_or_default();
        self.state().leaving.insert(uid.clone());
        // The ledger gives no more of it; what it gave since the plan was made keeps the block.
        self.publish(node);
        if node.ledger().given_of(network, &block) > 0 {
            self.state().leaving.remove(&uid);
            self.publish(node);
            return;
        }
        tracing::info!(network, block = cidr, "block given back");
        self.delete(object).await;
    }

    /// A block that was being given back when the API server did not answer: whether it is ours is
    /// not known, so it goes.
    async fn retry_leaving(&self, view: &View) {
        let leaving = self.state().leaving.clone();
        for block in &view.blocks {
            if block.uid().is_some_and(|uid| leaving.contains(&uid)) {
                self.delete(block).await;
            }
        }
    }

    async fn delete(&self, block: &IpBlock) {
        let api: Api<IpBlock> = Api::all(self.client.clone());
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: block.uid(),
            resource_version: None,
        });
        match timeout(ANSWER, api.delete(&block.name_any(), &params)).await {
            Ok(Ok(_)) => {}
            // Gone, or another node's by now.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {}
            Ok(Err(error)) => {
                let (block, error) = (block.name_any(), brief(&error));
                tracing::warn!(block, error, "block not given back yet");
            }
            Err(_) => tracing::warn!(block = block.name_any(), "block not given back yet"),
        }
    }

    /// Says that this node is alive, where somebody doubts it.
    pub(super) async fn stay(&self, view: &View) {
        let own = self.node_uid();
        for block in &view.blocks {
            let marked = block
                .status
                .as_ref()
                .and_then(|it| it.reclaim_after.as_ref());
            if marked.is_some() && own.as_ref() == Some(&block.spec.node_uid) {
                tracing::warn!(block = block.name_any(), "this node was taken for gone");
                self.patch(block, json!({"reclaimAfter": null})).await;
            }
        }
    }

    /// Writes how much of each block is in use, now and then; for people.
    pub(super) async fn tell(&self, node: &Node, view: &View) {
        for block in &view.blocks {
            let (Some(uid), Ok(cidr)) = (block.uid(), block.spec.cidr.parse::<Prefix>()) else {
                continue;
            };
            let used = node.ledger().given_of(&block.spec.network, &cidr);
            let said = block.status.as_ref().and_then(|status| status.used);
            if said == i64::try_from(used).ok() || !view.serving.contains(&uid) {
                continue;
            }
            let now = Instant::now();
            let recent = |(_, when): &(u64, Instant)| now.duration_since(*when) < ROUND;
            if self.state().written.get(&uid).is_some_and(recent) {
                continue;
            }
            self.state().written.insert(uid, (used, now));
            self.patch(block, json!({"used": used})).await;
        }
    }

    async fn patch(&self, block: &IpBlock, status: serde_json::Value) {
        let api: Api<IpBlock> = Api::all(self.client.clone());
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let body = json!({"metadata": {"uid": block.uid()}, "status": status});
        let name = block.name_any();
        if let Err(why) = answer(api.patch_status(&name, &params, &Patch::Merge(body))).await {
            tracing::debug!(block = name, why, "status not written");
        }
    }
}

fn room(pools: &[Pool], block: &Prefix) -> u64 {
    let room: u128 = pools.iter().map(|pool| pool.capacity_in(block)).sum();
    u64::try_from(room).unwrap_or(u64::MAX)
}

pub(super) fn no_answer() -> String {
    format!("no answer from the API server in {} s", ANSWER.as_secs())
}

/// What the API server answers in time, or why not, in one line.
pub(super) async fn answer<T>(
    asked: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, String> {
    match timeout(ANSWER, asked).await {
        Ok(answered) => answered.map_err(|error| brief(&error)),
        Err(_) => Err(no_answer()),
    }
}
