//! The round: everything is looked at, in one order, and put right.
//!
//! The order counts. What is new is looked at before anything of it is given; the book knows of all
//! reservations before any is granted; and what is left over goes last.

use std::time::Instant;

use super::command::{Answer, Command, Object};
use super::state::{Effect, Machine};
use super::steps::{Round, Step};

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
            tracing::debug!(why, "addresses of the cluster not known yet");
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
        step: Step,
        answer: Option<Answer>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) -> Option<Command> {
        match step {
            Step::Clear => {
                let new = self.new_blocks(now);
                let after = [
                    Step::Forget,
                    Step::Publish,
                    Step::Grant,
                    Step::Survey,
                    Step::Stay,
                    Step::Tell,
                ];
                round.first(after);
                round.first(new);
            }
            Step::ListBlocks(network, blocks) => {
                round.first([Step::BlocksListed(network.clone(), blocks)]);
                return Some(Command::list_blocks(network));
            }
            Step::BlocksListed(network, blocks) => {
                return self.blocks_listed(round, network, blocks, answer);
            }
            Step::ReservationsListed(network, blocks) => {
                self.reservations_listed(&network, blocks, answer);
            }
            Step::Forget => round.first(self.unseen()),
            Step::Find(uid, name) => {
                round.first([Step::Found(uid)]);
                return Some(Command::FindReservation { name });
            }
            Step::Found(uid) => self.found(&uid, answer),
            Step::Publish => {
                round.first([Step::Published]);
                round.view = self.view();
                return Some(Command::Publish(self.shares(&round.view)));
            }
            Step::Republish => {
                round.first([Step::Published]);
                return Some(self.publish());
            }
            Step::Published => published(round, answer),
            Step::Grant => {
                let unanswered = round.view.unanswered();
                round.first(unanswered.into_iter().map(Step::Answer));
            }
            Step::Answer(reservation) => return self.answer(round, &reservation),
            Step::Survey => {
                round.first([Step::Surveyed]);
                return Some(Command::Survey);
            }
            Step::Surveyed => {
                let Some(Answer::Surveyed(facts)) = answer else {
                    return None;
                };
                round.given.clone_from(&facts.given);
                if facts.ready {
                    // Before that the book is not complete.
                    round.first([Step::LetGo, Step::Yield, Step::Stock]);
                }
                round.facts = facts;
            }
            Step::LetGo => return self.let_go(round, now),
            Step::LetGoPublished(given_up) => {
                published(round, answer);
                self.let_go_published(round, given_up);
            }
            Step::DeleteReservation(reservation) => {
                return Some(Command::DeleteReservation(Object::of(&*reservation)));
            }
            Step::Yield => self.yield_contested(round),
            Step::Stock => self.stock(round),
            Step::Balance(balance) => return self.balance(round, balance, now),
            Step::TakeListed(balance) => self.take_listed(round, balance, answer, now),
            Step::TakeNext(balance, attempt) => {
                return self.take_next(round, balance, attempt, now);
            }
            Step::TakeMade(balance, attempt) => {
                self.take_made(round, balance, attempt, answer, (now, effects));
            }
            Step::Idle => self.idle(round, now),
            Step::Scarce(network, family, blocks) => {
                return self.scarce(round, network, family, blocks, now);
            }
            Step::ScarceListed(network, family, blocks) => {
                self.scarce_listed(round, &network, family, blocks, answer);
            }
            Step::GiveBack(network, block) => return self.give_back(round, &network, block),
            Step::Leave(object, block) => return self.leave(round, object, block),
            Step::GiveBackPublished(object, block) => {
                published(round, answer);
                return self.give_back_published(round, &object, block, effects);
            }
            Step::RetryLeaving => {
                let leaving = self.leaving(&round.view);
                round.first(leaving.into_iter().map(Step::DeleteBlock));
            }
            Step::DeleteBlock(object) => return Some(Command::DeleteBlock(object)),
            Step::Stay => {
                let marked = self.marked(round);
                round.first(marked);
            }
            Step::Tell => {
                let uses = self.uses(round, now);
                round.first(uses.into_iter().map(Step::Do));
            }
            Step::Do(command) => return Some(command),
        }
        None
    }
}

fn published(round: &mut Round, answer: Option<Answer>) {
    if let Some(Answer::Published(given)) = answer {
        round.given = given;
    }
}
