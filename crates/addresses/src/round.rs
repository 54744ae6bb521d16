//! The round: everything is looked at, in one order, and put right.
//!
//! The order counts. What is new is looked at before anything of it is given; the book knows of all
//! reservations before any is granted; and what is left over goes last.

use std::time::Instant;

use super::command::{Answer, Command, Object};
use super::state::{Effect, Machine};
use super::steps::{Round, RoundStep};

impl Machine {
    /// Does steps of the round up to the next command, or to its end.
    pub(super) fn go_on(
        &mut self,
        mut answer: Option<Answer>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let Some(mut round) = self.round.take() else {
            return;
        };
        if let (None, Some(why)) = (&answer, &self.seen.unread) {
            tracing::debug!(why, "the addresses of the cluster are not known yet");
            round.steps.clear();
        }
        while let Some(step) = round.steps.pop() {
            let command = self.step(&mut round, step, answer.take(), now, effects);
            if let Some(command) = command {
                effects.push(Effect::Call(command));
                self.round = Some(round);
                return;
            }
        }
        effects.push(Effect::Rest(self.rest(now)));
    }

    fn step(
        &mut self,
        round: &mut Round,
        step: RoundStep,
        answer: Option<Answer>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) -> Option<Command> {
        match step {
            RoundStep::Clear => {
                let new = self.new_blocks(now);
                let after = [
                    RoundStep::Forget,
                    RoundStep::Publish,
                    RoundStep::Grant,
                    RoundStep::Survey,
                    RoundStep::Stay,
                    RoundStep::Tell,
                ];
                round.first(after);
                round.first(new);
            }
            RoundStep::ListBlocks(network, blocks) => {
                round.first([RoundStep::BlocksListed(network.clone(), blocks)]);
                return Some(Command::list_blocks(network));
            }
            RoundStep::BlocksListed(network, blocks) => {
                return self.blocks_listed(round, network, blocks, answer);
            }
            RoundStep::ReservationsListed(network, blocks) => {
                self.reservations_listed(&network, blocks, answer);
            }
            RoundStep::Forget => round.first(self.unseen()),
            RoundStep::Find(uid, name) => {
                round.first([RoundStep::Found(uid)]);
                return Some(Command::FindReservation { name });
            }
            RoundStep::Found(uid) => self.found(&uid, answer),
            RoundStep::Publish => {
                round.first([RoundStep::Published]);
                round.view = self.view();
                return Some(Command::Publish(self.shares(&round.view)));
            }
            RoundStep::Republish => {
                round.first([RoundStep::Published]);
                return Some(self.publish());
            }
            RoundStep::Published => published(round, answer),
            RoundStep::Grant => {
                let unanswered = round.view.unanswered();
                round.first(unanswered.into_iter().map(RoundStep::Answer));
            }
            RoundStep::Answer(reservation) => return self.answer(round, &reservation),
            RoundStep::Survey => {
                round.first([RoundStep::Surveyed]);
                return Some(Command::Survey);
            }
            RoundStep::Surveyed => {
                let Some(Answer::Surveyed(facts)) = answer else {
                    return None;
                };
                round.given.clone_from(&facts.given);
                if facts.ready {
                    // Before that the book is not complete.
                    round.first([RoundStep::LetGo, RoundStep::Yield, RoundStep::Stock]);
                }
                round.facts = facts;
            }
            RoundStep::LetGo => return self.let_go(round, now),
            RoundStep::LetGoPublished(given_up) => {
                published(round, answer);
                self.let_go_published(round, given_up);
            }
            RoundStep::DeleteReservation(reservation) => {
                return Some(Command::DeleteReservation(Object::of(&*reservation)));
            }
            RoundStep::Yield => self.yield_contested(round),
            RoundStep::Stock => self.stock(round),
            RoundStep::Balance(balance) => return self.balance(round, balance, now),
            RoundStep::TakeListed(balance) => self.take_listed(round, balance, answer, now),
            RoundStep::TakeNext(balance, attempt) => {
                return self.take_next(round, balance, attempt, now);
            }
            RoundStep::TakeMade(balance, attempt) => {
                self.take_made(round, balance, attempt, answer, (now, effects));
            }
            RoundStep::Idle => self.idle(round, now),
            RoundStep::Scarce(network, family, blocks) => {
                return self.scarce(round, network, family, blocks, now);
            }
            RoundStep::ScarceListed(network, family, blocks) => {
                self.scarce_listed(round, &network, family, blocks, answer);
            }
            RoundStep::GiveBack(network, block) => return self.give_back(round, &network, block),
            RoundStep::Leave(object, block) => return self.leave(round, object, block),
            RoundStep::GiveBackPublished(object, block) => {
                published(round, answer);
                return self.give_back_published(round, &object, block, effects);
            }
            RoundStep::RetryLeaving => {
                let leaving = self.leaving(&round.view);
                round.first(leaving.into_iter().map(RoundStep::DeleteBlock));
            }
            RoundStep::DeleteBlock(object) => return Some(Command::DeleteBlock(object)),
            RoundStep::Stay => {
                let marked = self.marked(round);
                round.first(marked);
            }
            RoundStep::Tell => {
                let uses = self.uses(round, now);
                round.first(uses.into_iter().map(RoundStep::Do));
            }
            RoundStep::Do(command) => return Some(command),
        }
        None
    }
}

fn published(round: &mut Round, answer: Option<Answer>) {
    if let Some(Answer::Published(given)) = answer {
        round.given = given;
    }
}
