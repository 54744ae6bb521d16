//! Taking a block: a free one is chosen from a list, and created.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::{IpBlock, Prefix};
use cni_spec::digest::digest;
use ipam::{Occupied, candidates};
use kube_core::ResourceExt as _;
use telemetry::chain;
use world::blocks::LENGTH;

use super::command::{Answer, Command};
use super::read::cidr;
use super::state::{Effect, Machine};
use super::steps::{Attempt, Balance, Round, RoundStep};

/// Attempts at a block that others take at the same moment.
const ATTEMPTS: usize = 32;
/// Time to the next attempt when there was no block to be had.
const RETRY: Duration = Duration::from_secs(1);

impl Machine {
    /// True when it is too soon to ask for a further block of a network.
    pub(super) fn is_refused(&self, network: &str, now: Instant) -> bool {
        let refused = self.state.refused.get(network);
        refused.is_some_and(|(_, again)| *again > now)
    }

    pub(super) fn take_listed(
        &mut self,
        round: &mut Round,
        balance: Box<Balance>,
        answer: Option<Answer>,
        now: Instant,
    ) {
        let listed = match answer {
            Some(Answer::Blocks(Ok(listed))) => listed,
            Some(Answer::Blocks(Err(why))) => return self.refused(round, *balance, &why, now),
            _ => return,
        };
        let taken = Occupied::new(LENGTH, listed.iter().filter_map(cidr));
        let is_taken = |block| taken.has_part_of(&block);
        let pools = &balance.pools;
        let free = candidates(pools, balance.family, LENGTH, self.seed(), &is_taken);
        let attempt = Attempt {
            free: free.take(ATTEMPTS).collect(),
            otherwise: all_taken(&listed),
        };
        round.first([RoundStep::TakeNext(balance, attempt)]);
    }

    pub(super) fn take_next(
        &mut self,
        round: &mut Round,
        balance: Box<Balance>,
        mut attempt: Attempt,
        now: Instant,
    ) -> Option<Command> {
        let Some(block) = attempt.free.front() else {
            self.refused(round, *balance, &attempt.otherwise, now);
            return None;
        };
        match self.create(&balance.network, *block) {
            Ok(command) => {
                round.first([RoundStep::TakeMade(balance, attempt)]);
                Some(command)
            }
            Err(why) => {
                attempt.free.clear();
                self.refused(round, *balance, &why, now);
                None
            }
        }
    }

    pub(super) fn take_made(
        &mut self,
        round: &mut Round,
        mut balance: Box<Balance>,
        mut attempt: Attempt,
        answer: Option<Answer>,
        (now, effects): (Instant, &mut Vec<Effect>),
    ) {
        let Some(block) = attempt.free.pop_front() else {
            return;
        };
        match answer {
            Some(Answer::BlockMade(Ok(Some(made)))) => {
                self.taken(&made, (now, effects));
                self.state.refused.remove(&balance.network);
                balance.took(block);
                round.first([RoundStep::Balance(balance)]);
            }
            Some(Answer::BlockMade(Ok(None))) => {
                round.first([RoundStep::TakeNext(balance, attempt)]);
            }
            Some(Answer::BlockMade(Err(why))) => self.refused(round, *balance, &why, now),
            _ => {}
        }
    }

    /// Notes why there is no further block; what is spare is so all the same.
    pub(super) fn refused(&mut self, round: &mut Round, balance: Balance, why: &str, now: Instant) {
        let refused = (why.to_owned(), now + RETRY);
        let before = self.state.refused.insert(balance.network.clone(), refused);
        if before.is_none_or(|(before, _)| before != why) {
            let (network, family) = (&balance.network, balance.family);
            tracing::warn!(network, %family, why, "the node cannot take a further IPBlock");
        }
        round.spare.extend(balance.into_spare());
    }

    /// Creates a block; its name is the first address, so it has one holder.
    ///
    /// # Errors
    /// When there is no such object, or no object of this node.
    pub(super) fn create(&self, network: &str, block: Prefix) -> Result<Command, String> {
        let uid = self.own_uid()?;
        let object = IpBlock::take(network, block, &self.node, &uid);
        let object = object.map_err(|error| chain(&error))?;
        Ok(Command::CreateBlock(Box::new(object)))
    }

    /// The UID of this node's object.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn own_uid(&self) -> Result<String, String> {
        let uid = self.seen.node_uid.clone();
        uid.ok_or_else(|| format!("the API server has no Node {}", self.node))
    }

    /// Notes a block that was created.
    pub(super) fn taken(&mut self, made: &IpBlock, (now, effects): (Instant, &mut Vec<Effect>)) {
        let network = &made.spec.network;
        tracing::info!(
            network,
            block = made.spec.cidr,
            "an IPBlock is taken for this node"
        );
        effects.push(Effect::Count("taken"));
        if let (Some(uid), Some(block)) = (made.uid(), cidr(made)) {
            // Until it is in the copy, nobody else would know that it need not be taken again.
            let taken = ((network.clone(), block), now);
            self.state.fresh.insert(uid, taken);
        }
    }

    /// Where this node begins to look for blocks.
    pub(super) fn seed(&self) -> u64 {
        digest(self.node.as_bytes())
    }
}

/// Says that all blocks are taken, and by which node most of them.
fn all_taken(listed: &[IpBlock]) -> String {
    let mut holders: BTreeMap<&str, usize> = BTreeMap::new();
    for block in listed {
        *holders.entry(&block.spec.node).or_default() += 1;
    }
    let most = holders.iter().max_by_key(|(_, count)| **count);
    match most {
        Some((node, count)) => format!(
            "all blocks of its subnets are taken, {count} of {} by node {node}; add a subnet",
            listed.len()
        ),
        None => "its subnets have none".to_owned(),
    }
}
