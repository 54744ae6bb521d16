//! Blocks' status: marks of the controller that are wrong, and how much is in use.

use std::sync::Arc;
use std::time::Instant;

use api::BlockReason;
use kube_core::ResourceExt as _;

use super::command::{Command, Object};
use super::read::{cidr, is_marked};
use super::state::{Machine, ROUND};
use super::steps::{Round, RoundStep};

impl Machine {
    /// Answers for marked blocks of this node: one in use stays, any other goes.
    ///
    /// It is alive: they are too many, or it was taken for gone. One in use stays whichever `Node` of
    /// this name took it: the pods were not asked when the `Node` was made again.
    pub(super) fn marked(&self, round: &Round) -> Vec<RoundStep> {
        let own = self.seen.node_uid.as_ref();
        let blocks = round.view.blocks.iter();
        let marked = blocks.filter(|it| is_marked(it));
        let mut steps = Vec::new();
        for block in marked {
            let Some(cidr) = cidr(block) else {
                continue;
            };
            let (network, name) = (&block.spec.network, block.name_any());
            if round.given.of_block(network, &cidr) > 0 {
                tracing::warn!(
                    block = name,
                    "this node is asked for a block that is in use"
                );
                steps.push(RoundStep::Do(Command::Unmark(Object::of(&**block))));
            } else if own == Some(&block.spec.node_uid)
                && round.facts.ready
                && !self.is_said(network, &cidr)
            {
                steps.push(RoundStep::Leave(Arc::clone(block), cidr));
            }
        }
        steps
    }

    /// Finds blocks whose status is not what it should say.
    ///
    /// That is how many addresses are in use, and why the block is kept.
    /// Each is told again only after a while; the status is for people.
    pub(super) fn uses(&mut self, round: &Round, now: Instant) -> Vec<Command> {
        let mut uses = Vec::new();
        for block in &round.view.blocks {
            let (Some(uid), Some(cidr)) = (block.uid(), cidr(block)) else {
                continue;
            };
            let used = round.given.of_block(&block.spec.network, &cidr);
            let is_spare = || {
                let block = (block.spec.network.clone(), cidr);
                round.spare.contains(&block)
            };
            let reason = match used {
                0 if is_spare() => BlockReason::Idle,
                0 => BlockReason::Ahead,
                _ => BlockReason::InUse,
            };
            let is_said = block.status.as_ref().is_some_and(|status| {
                status.used == i64::try_from(used).ok()
                    && status.reason.as_deref() == Some(reason.as_str())
            });
            if is_said || !round.view.serves(block) {
                continue;
            }
            let recent = |(_, when): &(u64, Instant)| now.saturating_duration_since(*when) < ROUND;
            if self.state.written.get(&uid).is_some_and(recent) {
                continue;
            }
            self.state.written.insert(uid, (used, now));
            uses.push(Command::TellUsed(Object::of(&**block), used, reason));
        }
        uses
    }
}
