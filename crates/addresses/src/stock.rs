//! Number of this node's blocks: it grows ahead of need, and falls after long.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{IpBlock, Prefix, Routing};
use ipam::{Family, Held, Occupied, Plan, Pool, candidates, plan};
use kube_core::ResourceExt as _;
use world::World;
use world::blocks::{LENGTH, pools};

use super::command::{Answer, Command, Object};
use super::read::cidr;
use super::state::{Effect, Machine, ROUND};
use super::steps::{Balance, Round, RoundStep, room};
use super::view::View;

/// Blocks that a network gets in one round; more come with the next.
const BLOCKS_AT_ONCE: usize = 16;
/// Divisor of the time for which an idle block is kept.
///
/// After that part of it the node checks whether others need the block.
const DISPENSABLE: u32 = 20;
/// The soonest another round is begun for a block that could be given back.
const BREATH: Duration = Duration::from_millis(100);

impl Machine {
    /// Takes blocks for networks with too few free addresses, and gives idle ones back.
    pub(super) fn stock(&self, round: &mut Round) {
        let world = &self.seen.world;
        if world.check_read().is_err() {
            return;
        }
        let expected = &round.facts.expected;
        let mut networks: BTreeSet<String> = round.facts.given.networks().cloned().collect();
        networks.extend(expected.keys().cloned());
        networks.extend(self.waited_for());
        let used = networks.clone();
        let held = round.view.blocks.iter();
        networks.extend(held.map(|block| block.spec.network.clone()));
        // Of the network that the node routes for, it has what its routes say.
        let by_node = world.resolved.routed_by_node().map(|it| it.name.as_str());
        networks.retain(|network| Some(network.as_str()) != by_node);
        let mut steps = Vec::new();
        for network in networks {
            let pools = pools_of(world, &network);
            let coming = expected.get(&network).copied().unwrap_or(0);
            let coming = coming.max(self.waiting(&network));
            // What the node routes for has addresses of the node's own, and needs no blocks.
            let definition = world.resolved.definition(&network);
            let by_node = definition.is_some_and(|it| it.routing == Routing::Node);
            let coming = (used.contains(&network) && !by_node).then_some(coming);
            for family in [Family::V4, Family::V6] {
                let has_family = pools.iter().any(|pool| pool.family() == family);
                steps.push(RoundStep::Balance(Box::new(Balance {
                    network: network.clone(),
                    pools: pools.clone(),
                    family,
                    coming: coming.filter(|_| has_family),
                    held: None,
                    spare: Vec::new(),
                    taken: 0,
                })));
            }
        }
        steps.extend([RoundStep::Idle, RoundStep::RetryLeaving]);
        round.first(steps);
    }

    /// Takes what is missing; notes the blocks that could be missed.
    pub(super) fn balance(
        &mut self,
        round: &mut Round,
        mut balance: Box<Balance>,
        now: Instant,
    ) -> Option<Command> {
        let of_family = balance.pools.iter();
        let of_family = of_family.filter(|pool| pool.family() == balance.family);
        let size = of_family.map(|pool| LENGTH.size(pool)).max().unwrap_or(1);
        let mut held = match balance.held.take() {
            Some(held) => held,
            None => held(round, &balance),
        };
        loop {
            match plan(&held, balance.coming, size) {
                Plan::Take
                    if balance.taken < BLOCKS_AT_ONCE
                        && !self.is_refused(&balance.network, now) =>
                {
                    if let Err(why) = self.own_uid() {
                        self.refused(round, *balance, &why, now);
                        return None;
                    }
                    balance.held = Some(held);
                    let network = balance.network.clone();
                    round.first([RoundStep::TakeListed(balance)]);
                    return Some(Command::list_blocks(network));
                }
                Plan::GiveBack(block) => {
                    held.retain(|one| one.block != block);
                    balance.spare.push(block);
                }
                Plan::Keep | Plan::Take => {
                    round.spare.extend(balance.into_spare());
                    return None;
                }
            }
        }
    }

    /// Gives back blocks that were idle for long.
    ///
    /// It is sooner where no other node could take a block.
    pub(super) fn idle(&mut self, round: &mut Round, now: Instant) {
        let state = &mut self.state;
        state.idle.note(&round.spare, now);
        let due = state.idle.longer_than(self.keep, now);
        let dispensable = state.idle.longer_than(self.keep / DISPENSABLE, now);
        let mut others: BTreeMap<(String, Family), Vec<Prefix>> = BTreeMap::new();
        for (network, block) in dispensable.into_iter().filter(|one| !due.contains(one)) {
            let family = Family::of(block.addr());
            others.entry((network, family)).or_default().push(block);
        }
        state.looked.retain(|key, _| others.contains_key(key));
        let due = due.into_iter();
        let due = due.map(|(network, block)| RoundStep::GiveBack(network, block));
        let others = others.into_iter();
        let others =
            others.map(|((network, family), blocks)| RoundStep::Scarce(network, family, blocks));
        round.first(due.chain(others).collect::<Vec<_>>());
    }

    /// Asks whether another node could take a block of the network; now and then.
    pub(super) fn scarce(
        &mut self,
        round: &mut Round,
        network: String,
        family: Family,
        blocks: Vec<Prefix>,
        now: Instant,
    ) -> Option<Command> {
        let key = (network.clone(), family);
        let recent = |at: &Instant| now.saturating_duration_since(*at) < ROUND;
        if self.state.looked.get(&key).is_some_and(recent) {
            return None;
        }
        self.state.looked.insert(key, now);
        round.first([RoundStep::ScarceListed(network.clone(), family, blocks)]);
        // A moment old is new enough.
        Some(Command::ListBlocks {
            network,
            cached: true,
        })
    }

    pub(super) fn scarce_listed(
        &self,
        round: &mut Round,
        network: &str,
        family: Family,
        blocks: Vec<Prefix>,
        answer: Option<Answer>,
    ) {
        let Some(Answer::Blocks(Ok(listed))) = answer else {
            return;
        };
        let taken = Occupied::new(LENGTH, listed.iter().filter_map(cidr));
        let is_taken = |block| taken.has_part_of(&block);
        let pools = pools_of(&self.seen.world, network);
        let mut free = candidates(&pools, family, LENGTH, self.seed(), &is_taken);
        if free.next().is_none() {
            let blocks = blocks.into_iter();
            round.first(blocks.map(|block| RoundStep::GiveBack(network.to_owned(), block)));
        }
    }

    /// Gives a block back, unless one of its addresses may be said to be here.
    pub(super) fn give_back(
        &mut self,
        round: &mut Round,
        network: &str,
        block: Prefix,
    ) -> Option<Command> {
        let text = block.to_string();
        let mut serving = round.view.blocks.iter().filter(|it| {
            it.spec.network == network && it.spec.cidr == text && round.view.serves(it)
        });
        let object = Arc::clone(serving.next()?);
        // First other nodes hear that nobody here has its addresses any more.
        if self.is_said(network, &block) {
            return None;
        }
        self.leave(round, object, block)
    }

    /// Makes the book forget a block.
    pub(super) fn leave(
        &mut self,
        round: &mut Round,
        object: Arc<IpBlock>,
        block: Prefix,
    ) -> Option<Command> {
        self.state.leaving.insert(object.uid()?);
        // The book gives no more of it; what it gave since the plan was made keeps the block.
        round.first([RoundStep::GiveBackPublished(object, block)]);
        Some(self.publish())
    }

    pub(super) fn give_back_published(
        &mut self,
        round: &mut Round,
        object: &IpBlock,
        block: Prefix,
        effects: &mut Vec<Effect>,
    ) -> Option<Command> {
        let network = &object.spec.network;
        if round.given.of_block(network, &block) > 0 {
            self.state.leaving.remove(&object.uid()?);
            round.first([RoundStep::Republish]);
            return None;
        }
        tracing::info!(
            network,
            block = object.spec.cidr,
            "an IPBlock that no pod uses is given back"
        );
        effects.push(Effect::Count("given_back"));
        Some(Command::DeleteBlock(Object::of(object)))
    }

    /// Lists blocks that were being given back when the API server did not answer.
    ///
    /// Whether they are ours is not known, so they go.
    pub(super) fn leaving(&self, view: &View) -> Vec<Object> {
        let blocks = view.blocks.iter();
        let leaving = blocks.filter(|block| {
            let uid = block.metadata.uid.as_ref();
            uid.is_some_and(|uid| self.state.leaving.contains(uid))
        });
        leaving.map(|block| Object::of(&**block)).collect()
    }

    /// When a block may have to be given back.
    pub(super) fn next_idle(&self, now: Instant) -> Option<Instant> {
        // What was looked at is looked at again in every round.
        let age = match self.state.looked.is_empty() {
            true => self.keep / DISPENSABLE,
            false => self.keep,
        };
        let next = self.state.idle.next(age)?;
        Some(next.max(now + BREATH))
    }
}

/// The blocks of a network from which this node gives, or will in a moment.
fn held(round: &Round, balance: &Balance) -> Vec<Held> {
    let Balance {
        network,
        pools,
        family,
        ..
    } = balance;
    let view: &View = &round.view;
    let of_network = view.blocks.iter().filter(|it| it.spec.network == *network);
    let serving = of_network.filter(|it| view.serves(it));
    let serving = serving.filter_map(|it| cidr(it)).map(|block| Held {
        block,
        room: room(pools, &block),
        used: round.given.of_block(network, &block),
    });
    let fresh = view.fresh.iter().filter(|(of, _)| of == network);
    let fresh = fresh.map(|(_, block)| Held {
        block: *block,
        room: room(pools, block),
        used: 0,
    });
    let held = serving.chain(fresh);
    let mut held: Vec<Held> = held
        .filter(|it| Family::of(it.block.addr()) == *family)
        .collect();
    // The same ones in every round, or none would ever have been idle for long.
    held.sort_by_key(|one| Reverse(one.block));
    held
}

/// Lists the pools of a network; none when it is gone or disabled.
///
/// Blocks of such a network stay while they are in use.
fn pools_of(world: &World, network: &str) -> Vec<Pool> {
    let pools = world.network(network).ok().and_then(|it| pools(it).ok());
    pools.unwrap_or_default()
}
