//! Blocks that are new here: they are checked before an address of them is given.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use api::IpBlock;
use ipam::overlap;
use kube_core::ResourceExt as _;

use super::command::{Answer, Command};
use super::state::{Machine, ROUND};
use super::steps::{Round, RoundStep, Taken};

impl Machine {
    /// Lists the steps that check blocks which are new here, one for each network.
    ///
    /// It also forgets the state of blocks that are gone or that the copies have by now.
    ///
    /// The order of the steps counts: while another block with some of the addresses was there, its
    /// holder may have granted one of them.
    pub(super) fn new_blocks(&mut self, now: Instant) -> Vec<RoundStep> {
        let state = &mut self.state;
        let blocks = &self.seen.blocks;
        let known: BTreeSet<String> = blocks.iter().filter_map(|block| block.uid()).collect();
        state.cleared.retain(|uid| known.contains(uid));
        // One that is gone does not come back under the same UID.
        state.leaving.retain(|uid| known.contains(uid));
        state.contested.retain(|uid| known.contains(uid));
        // One that does not come was deleted before anybody saw it.
        let coming = |uid: &String, at: &Instant| {
            !known.contains(uid) && now.saturating_duration_since(*at) < ROUND
        };
        state.fresh.retain(|uid, (_, at)| coming(uid, at));
        state.written.retain(|uid, _| known.contains(uid));
        let unknown = blocks.iter().filter_map(|block| Taken::of(block));
        let mut new: BTreeMap<String, Vec<Taken>> = BTreeMap::new();
        for block in unknown.filter(|block| !state.cleared.contains(&block.uid)) {
            new.entry(block.network.clone()).or_default().push(block);
        }
        let steps = new.into_iter();
        steps
            .map(|(network, blocks)| RoundStep::ListBlocks(network, blocks))
            .collect()
    }

    pub(super) fn blocks_listed(
        &mut self,
        round: &mut Round,
        network: String,
        blocks: Vec<Taken>,
        answer: Option<Answer>,
    ) -> Option<Command> {
        let uncontested = match answer {
            Some(Answer::Blocks(Ok(listed))) => self.uncontested(&network, blocks, &listed),
            Some(Answer::Blocks(Err(error))) => {
                tracing::warn!(
                    network,
                    error,
                    "IPBlocks of the network cannot be read: correct or delete them"
                );
                return None;
            }
            _ => return None,
        };
        if uncontested.is_empty() {
            return None;
        }
        round.first([RoundStep::ReservationsListed(network.clone(), uncontested)]);
        Some(Command::ListReservations { network })
    }

    /// Picks those of `blocks` that share no address with another, by UID.
    ///
    /// The others are noted.
    fn uncontested(
        &mut self,
        network: &str,
        blocks: Vec<Taken>,
        listed: &[IpBlock],
    ) -> Vec<String> {
        let all: Vec<Taken> = listed.iter().filter_map(Taken::of).collect();
        let mut uncontested = Vec::new();
        for block in blocks {
            // One that is not in the list is gone.
            if !all.iter().any(|it| it.uid == block.uid) {
                continue;
            }
            let mut others = all.iter().filter(|it| it.uid != block.uid);
            let Some(rival) = others.find(|it| overlap(&it.cidr, &block.cidr)) else {
                self.state.contested.remove(&block.uid);
                uncontested.push(block.uid);
                continue;
            };
            if self.state.contested.insert(block.uid) {
                let (block, of) = (block.cidr.to_string(), rival.cidr.to_string());
                tracing::warn!(
                    network,
                    block,
                    of,
                    "the IPBlock overlaps another, and no address of it is given"
                );
            }
        }
        uncontested
    }

    pub(super) fn reservations_listed(
        &mut self,
        network: &str,
        blocks: Vec<String>,
        answer: Option<Answer>,
    ) {
        match answer {
            Some(Answer::Reservations(Ok(found))) => {
                for reservation in found {
                    if let Some(uid) = reservation.uid() {
                        self.state.unseen.insert(uid, Arc::new(reservation));
                    }
                }
                self.state.cleared.extend(blocks);
            }
            Some(Answer::Reservations(Err(error))) => {
                tracing::warn!(
                    network,
                    error,
                    "IPReservations of the network cannot be read: correct or delete them"
                );
            }
            _ => {}
        }
    }

    /// Forgets reservations that the copy has by now, and asks for each other one.
    ///
    /// The answer is whether it is there still.
    pub(super) fn unseen(&mut self) -> Vec<RoundStep> {
        let copied = self.seen.reservations.iter();
        let copied: BTreeSet<String> = copied.filter_map(|it| it.uid()).collect();
        let unseen = &mut self.state.unseen;
        unseen.retain(|uid, _| !copied.contains(uid));
        let unseen = unseen.iter();
        unseen
            .map(|(uid, it)| RoundStep::Find(uid.clone(), it.name_any()))
            .collect()
    }

    pub(super) fn found(&mut self, uid: &str, answer: Option<Answer>) {
        if let Some(Answer::ReservationUid(Ok(found))) = answer
            && found.as_deref() != Some(uid)
        {
            self.state.unseen.remove(uid);
        }
    }

    /// Gives up blocks that overlap with another block.
    ///
    /// A block of which pods here have addresses stays: it may have been here first.
    pub(super) fn yield_contested(&mut self, round: &Round) {
        for block in &round.view.blocks {
            let Some(taken) = Taken::of(block) else {
                continue;
            };
            if !self.state.contested.contains(&taken.uid)
                || self.is_said(&taken.network, &taken.cidr)
            {
                continue;
            }
            if round.given.of_block(&taken.network, &taken.cidr) == 0 {
                self.state.leaving.insert(taken.uid);
            }
        }
    }
}
