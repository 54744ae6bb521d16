//! Blocks: how one is taken, looked at from all sides, given back, and told of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{IpBlock, IpReservation, Prefix};
use cluster::brief;
use ipam::{Family, Occupied, Pool, candidates, overlap};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use telemetry::chain;
use tokio::time::timeout;

use super::{ANSWER, Addresses, LENGTH, ROUND, View};
use crate::digest::digest;
use crate::kube::MANAGER;
use crate::node::Node;

/// Attempts at a block that others take at the same moment.
const ATTEMPTS: usize = 32;
/// Time to the next attempt when there was no block to be had.
const RETRY: Duration = Duration::from_secs(1);

/// A block of this cluster, by its object.
#[derive(Debug)]
struct Taken {
    uid: String,
    network: String,
    cidr: Prefix,
}

impl Taken {
    fn of(block: &IpBlock) -> Option<Self> {
        Some(Self {
            uid: block.uid()?,
            network: block.spec.network.clone(),
            cidr: cidr(block)?,
        })
    }
}

impl Addresses {
    /// Looks at blocks that are new here from all sides; only then anything of them is given. The
    /// order counts: while another block with some of the addresses was there, its holder may have
    /// granted one of them.
    pub(super) async fn clear(&self) {
        let blocks = self.blocks.store.state();
        let mut new: BTreeMap<String, Vec<Taken>> = BTreeMap::new();
        {
            let mut state = self.state();
            let known: BTreeSet<String> = blocks.iter().filter_map(|block| block.uid()).collect();
            state.cleared.retain(|uid| known.contains(uid));
            // One that is gone does not come back under the same UID.
            state.leaving.retain(|uid| known.contains(uid));
            state.contested.retain(|uid| known.contains(uid));
            // One that does not come was deleted before anybody saw it.
            let coming = |uid: &String, at: &Instant| !known.contains(uid) && at.elapsed() < ROUND;
            state.fresh.retain(|uid, (_, at)| coming(uid, at));
            state.written.retain(|uid, _| known.contains(uid));
            let unknown = blocks.iter().filter_map(|block| Taken::of(block));
            for block in unknown.filter(|block| !state.cleared.contains(&block.uid)) {
                new.entry(block.network.clone()).or_default().push(block);
            }
        }
        for (network, blocks) in new {
            let uncontested = match self.uncontested(&network, blocks).await {
                Ok(uncontested) if !uncontested.is_empty() => uncontested,
                Ok(_) => continue,
                Err(error) => {
                    tracing::warn!(network, error, "blocks cannot be read");
                    continue;
                }
            };
            let api: Api<IpReservation> = Api::all(self.client.clone());
            match answer(api.list(&of_network(&network))).await {
                Ok(found) => {
                    let mut state = self.state();
                    for reservation in found.items {
                        if let Some(uid) = reservation.uid() {
                            state.unseen.insert(uid, Arc::new(reservation));
                        }
                    }
                    state.cleared.extend(uncontested);
                }
                Err(error) => tracing::warn!(network, error, "reservations cannot be read"),
            }
        }
        self.forget_seen().await;
    }

    /// UIDs of those of these blocks that share no address with another. The others are noted.
    async fn uncontested(&self, network: &str, blocks: Vec<Taken>) -> Result<Vec<String>, String> {
        let api: Api<IpBlock> = Api::all(self.client.clone());
        let listed = answer(api.list(&of_network(network))).await?;
        let all: Vec<Taken> = listed.items.iter().filter_map(Taken::of).collect();
        let mut uncontested = Vec::new();
        for block in blocks {
            // One that is not in the list is gone.
            if !all.iter().any(|it| it.uid == block.uid) {
                continue;
            }
            let mut others = all.iter().filter(|it| it.uid != block.uid);
            let Some(rival) = others.find(|it| overlap(&it.cidr, &block.cidr)) else {
                self.state().contested.remove(&block.uid);
                uncontested.push(block.uid);
                continue;
            };
            if self.state().contested.insert(block.uid) {
                let (block, of) = (block.cidr.to_string(), rival.cidr.to_string());
                tracing::warn!(network, block, of, "part of the block is another's");
            }
        }
        Ok(uncontested)
    }

    /// Gives up blocks with a part of another, but for those of which pods here have addresses: they
    /// may have been here first.
    pub(super) async fn yield_contested(&self, node: &Node, view: &View) {
        let contested = self.state().contested.clone();
        for block in &view.blocks {
            let Some(taken) = Taken::of(block).filter(|it| contested.contains(&it.uid)) else {
                continue;
            };
            if self.slices.claim(&taken.network, &taken.cidr) {
                continue;
            }
            if node.book.ledger().given_of(&taken.network, &taken.cidr) == 0 {
                self.state().leaving.insert(taken.uid);
            }
        }
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

    /// Takes one more block of a network; none when that is not possible now, and why is noted.
    pub(super) async fn take(
        &self,
        network: &str,
        pools: &[Pool],
        family: Family,
    ) -> Option<Prefix> {
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
        let listed = answer(api.list(&of_network(network))).await?;
        let taken = Occupied::new(LENGTH, listed.items.iter().filter_map(cidr));
        let is_taken = |block| taken.has_part_of(&block);
        let free: Vec<Prefix> = candidates(pools, family, LENGTH, self.seed(), &is_taken)
            .take(ATTEMPTS)
            .collect();
        for block in free {
            if self.create(&api, network, block, &uid).await? {
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

    /// Takes a block; false when somebody has it.
    pub(super) async fn create(
        &self,
        api: &Api<IpBlock>,
        network: &str,
        block: Prefix,
        uid: &str,
    ) -> Result<bool, String> {
        let object = IpBlock::take(network, block, &self.node, uid);
        let object = object.map_err(|error| chain(&error))?;
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let created = match timeout(ANSWER, api.create(&params, &object)).await {
            Ok(Ok(created)) => created,
            Ok(Err(kube::Error::Api(status))) if status.reason == "AlreadyExists" => {
                return Ok(false);
            }
            Ok(Err(error)) => return Err(brief(&error)),
            Err(_) => return Err(no_answer()),
        };
        tracing::info!(network, block = object.spec.cidr, "block taken");
        self.metrics.block("taken");
        if let Some(uid) = created.uid() {
            // Until it is in the copy, nobody else would know that it need not be taken again.
            let taken = ((network.to_owned(), block), Instant::now());
            self.state().fresh.insert(uid, taken);
        }
        Ok(true)
    }

    /// Where this node begins to look for blocks.
    pub(super) fn seed(&self) -> u64 {
        digest(self.node.as_bytes())
    }

    pub(super) async fn give_back(&self, node: &Node, view: &View, network: &str, block: Prefix) {
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
        // First other nodes hear that nobody here has its addresses any more.
        if self.slices.claim(network, &block) {
            return;
        }
        let uid = object.uid().unwrap_or_default();
        self.state().leaving.insert(uid.clone());
        // The ledger gives no more of it; what it gave since the plan was made keeps the block.
        self.publish(node);
        if node.book.ledger().given_of(network, &block) > 0 {
            self.state().leaving.remove(&uid);
            self.publish(node);
            return;
        }
        tracing::info!(network, block = cidr, "block given back");
        self.metrics.block("given_back");
        self.delete(object).await;
    }

    /// A block that was being given back when the API server did not answer: whether it is ours is
    /// not known, so it goes.
    pub(super) async fn retry_leaving(&self, view: &View) {
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
            let used = node.book.ledger().given_of(&block.spec.network, &cidr);
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

/// What of a kind is of a network; without a resource version, so that no cache answers.
pub(super) fn of_network(network: &str) -> ListParams {
    ListParams::default().fields(&format!("spec.network={network}"))
}

/// The addresses of a block.
pub(super) fn cidr(block: &IpBlock) -> Option<Prefix> {
    block.spec.cidr.parse().ok()
}

pub(super) fn no_answer() -> String {
    format!("no answer from the API server in {} s", ANSWER.as_secs())
}

/// What the API server answers in time, or why not, in one line.
pub(in crate::kube) async fn answer<T>(
    asked: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, String> {
    match timeout(ANSWER, asked).await {
        Ok(answered) => answered.map_err(|error| brief(&error)),
        Err(_) => Err(no_answer()),
    }
}
