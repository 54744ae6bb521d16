//! How many blocks this node has: more ahead of need, fewer when it has not needed them for long.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use api::{IpBlock, Prefix, Routing};
use ipam::{Family, Held, Occupied, Plan, Pool, candidates, plan};
use kube::{Api, ResourceExt as _};
use world::World;

use super::blocks::{answer, cidr, of_network};
use super::idle::NetworkBlock;
use super::{Addresses, LENGTH, ROUND, View};
use crate::ledger::pools;
use crate::node::Node;

/// Blocks that a network gets in one round; more come with the next.
const BLOCKS_AT_ONCE: usize = 16;
/// After this part of the time for which a block is kept it is looked whether others need it.
const DISPENSABLE: u32 = 20;
/// The soonest another round is begun for a block that could be given back.
const BREATH: Duration = Duration::from_millis(100);

impl Addresses {
    /// Takes blocks for networks with too few free addresses, and gives back what was not needed for
    /// long.
    pub(super) async fn stock(&self, node: &Node, view: &View) {
        let world = node.world.get();
        if world.check_read().is_err() {
            return;
        }
        let expected = self.expected(node, &world);
        let mut networks: BTreeSet<String> = {
            let ledger = node.book.ledger();
            ledger.networks_in_use().map(str::to_owned).collect()
        };
        networks.extend(expected.keys().cloned());
        networks.extend(self.state().waiting.keys().cloned());
        let used = networks.clone();
        networks.extend(view.blocks.iter().map(|block| block.spec.network.clone()));
        // Of the network that the node routes for, it has what its routes say.
        let by_node = world.resolved.routed_by_node().map(|it| it.name.as_str());
        networks.retain(|network| Some(network.as_str()) != by_node);
        let mut spare = BTreeSet::new();
        for network in networks {
            let pools = pools_of(&world, &network);
            let waiting = self.state().waiting.get(&network).copied().unwrap_or(0);
            let coming = expected.get(&network).copied().unwrap_or(0).max(waiting);
            // What the node routes for has addresses of the node's own, and needs no blocks.
            let definition = world.resolved.definition(&network);
            let by_node = definition.is_some_and(|it| it.routing == Routing::Node);
            let coming = (used.contains(&network) && !by_node).then_some(coming);
            for family in [Family::V4, Family::V6] {
                let has_family = pools.iter().any(|pool| pool.family() == family);
                let coming = coming.filter(|_| has_family);
                let held = held(node, view, (&network, &pools), family);
                let of_family = self.balance(held, (&network, &pools), family, coming).await;
                spare.extend(of_family.into_iter().map(|block| (network.clone(), block)));
            }
        }
        self.give_back_idle(node, view, &world, &spare).await;
        self.retry_leaving(view).await;
    }

    /// Takes what is missing; the blocks that could be missed.
    async fn balance(
        &self,
        mut held: Vec<Held>,
        (network, pools): (&str, &[Pool]),
        family: Family,
        coming: Option<u64>,
    ) -> Vec<Prefix> {
        let of_family = pools.iter().filter(|pool| pool.family() == family);
        let size = of_family.map(|pool| LENGTH.size(pool)).max().unwrap_or(1);
        let (mut spare, mut taken) = (Vec::new(), 0);
        loop {
            match plan(&held, coming, size) {
                Plan::Take if taken < BLOCKS_AT_ONCE => {
                    let Some(block) = self.take(network, pools, family).await else {
                        return spare;
                    };
                    taken += 1;
                    held.push(Held {
                        block,
                        room: room(pools, &block),
                        used: 0,
                    });
                }
                Plan::GiveBack(block) => {
                    held.retain(|one| one.block != block);
                    spare.push(block);
                }
                Plan::Keep | Plan::Take => return spare,
            }
        }
    }

    /// Gives back what was not needed for long, and sooner where no other node could take a block.
    async fn give_back_idle(
        &self,
        node: &Node,
        view: &View,
        world: &World,
        spare: &BTreeSet<NetworkBlock>,
    ) {
        let now = Instant::now();
        let (due, dispensable) = {
            let mut state = self.state();
            state.idle.note(spare, now);
            (
                state.idle.longer_than(self.keep, now),
                state.idle.longer_than(self.keep / DISPENSABLE, now),
            )
        };
        for (network, block) in &due {
            self.give_back(node, view, network, *block).await;
        }
        let mut others: BTreeMap<(String, Family), Vec<Prefix>> = BTreeMap::new();
        for (network, block) in dispensable.into_iter().filter(|one| !due.contains(one)) {
            let family = Family::of(block.addr());
            others.entry((network, family)).or_default().push(block);
        }
        self.state()
            .looked
            .retain(|key, _| others.contains_key(key));
        for ((network, family), blocks) in others {
            if !self.is_scarce(world, &network, family).await {
                continue;
            }
            for block in blocks {
                self.give_back(node, view, &network, block).await;
            }
        }
    }

    /// True when no other node could take a block of the network; looked at now and then.
    async fn is_scarce(&self, world: &World, network: &str, family: Family) -> bool {
        let now = Instant::now();
        let key = (network.to_owned(), family);
        let recent = |at: &Instant| now.saturating_duration_since(*at) < ROUND;
        if self.state().looked.get(&key).is_some_and(recent) {
            return false;
        }
        self.state().looked.insert(key, now);
        let api: Api<IpBlock> = Api::all(self.client.clone());
        // A moment old is new enough.
        let Ok(listed) = answer(api.list(&of_network(network).match_any())).await else {
            return false;
        };
        let taken = Occupied::new(LENGTH, listed.items.iter().filter_map(cidr));
        let is_taken = |block| taken.has_part_of(&block);
        let pools = pools_of(world, network);
        let free = candidates(&pools, family, LENGTH, self.seed(), &is_taken).next();
        free.is_none()
    }

    /// When a block may have to be given back.
    pub(super) fn next_idle(&self) -> Option<Instant> {
        let state = self.state();
        // What was looked at is looked at again in every round.
        let age = match state.looked.is_empty() {
            true => self.keep / DISPENSABLE,
            false => self.keep,
        };
        let next = state.idle.next(age)?;
        Some(next.max(Instant::now() + BREATH))
    }
}

/// The blocks of a network from which this node gives, or will in a moment.
fn held(node: &Node, view: &View, (network, pools): (&str, &[Pool]), family: Family) -> Vec<Held> {
    let ledger = node.book.ledger();
    let serving = view.blocks.iter().filter(|it| {
        let uid = it.uid();
        it.spec.network == network && uid.is_some_and(|uid| view.serving.contains(&uid))
    });
    let blocks = serving.filter_map(|it| cidr(it));
    let mut held: Vec<Held> = blocks
        .filter(|block| Family::of(block.addr()) == family)
        .map(|block| Held {
            block,
            room: room(pools, &block),
            used: ledger.given_of(network, &block),
        })
        .collect();
    let fresh = view.fresh.iter().filter(|(of, _)| of == network);
    let fresh = fresh.filter(|(_, block)| Family::of(block.addr()) == family);
    held.extend(fresh.map(|(_, block)| Held {
        block: *block,
        room: room(pools, block),
        used: 0,
    }));
    // The same ones in every round, or none would ever have been idle for long.
    held.sort_by_key(|one| Reverse(one.block));
    held
}

/// Of a network that is gone or disabled there are none: its blocks stay while they are in use.
fn pools_of(world: &World, network: &str) -> Vec<Pool> {
    let pools = world.network(network).ok().and_then(|it| pools(it).ok());
    pools.unwrap_or_default()
}

fn room(pools: &[Pool], block: &Prefix) -> u64 {
    let room: u128 = pools.iter().map(|pool| pool.capacity_in(block)).sum();
    u64::try_from(room).unwrap_or(u64::MAX)
}
