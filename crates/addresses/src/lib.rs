//! Addresses of a cluster as a pure machine: events in, effects out.
//!
//! It has no IO, no clock and no lock. Watches, the clock, the requests of `ADD`, the book of the
//! node and the API server are outside: each says what it has to say as an [`Event`], and is asked
//! by a [`Command`], which has exactly one [`Answer`]. The same events at the same times have the
//! same effects. [`super`] carries the effects out; the model test beside this file does the same
//! with a server in memory, and loses, delays and reorders what passes between.
//!
//! # Events
//!
//! | Event | From | Meaning |
//! |---|---|---|
//! | [`Event::Seen`] | watches | the copies are these now |
//! | [`Event::Round`] | clock, or a change | look at everything |
//! | [`Event::Asked`] | `ADD` | an attachment wants addresses by name, of a claim, or of a further block |
//! | [`Event::Answered`] | shell | the command of this job came to this |
//! | [`Event::Woken`] | shell | a round has ended since the request began to wait |
//! | [`Event::Full`] | book | the addresses chosen for the request cannot be booked: no room |
//! | [`Event::Booked`] | book | the attachment of the request is booked |
//! | [`Event::Expired`] | clock | the request has waited for long enough |
//! | [`Event::Gone`] | shell | the request is given up |
//!
//! # Jobs
//!
//! A job is a stack of steps, and at any time waits for at most one answer. A step takes the answer
//! to the command of the step before it, changes the state, puts further steps on the stack, and may
//! give one command. Events that come between change only the state, so each step goes by the state
//! of its own moment. There is one round at a time, and any number of requests.
//!
//! | Job | State | Ends with | Steps |
//! |---|---|---|---|
//! | round, look | [`round`] | | [`clear`]: list blocks and reservations of what is new; then publish |
//! | round, answer | | | [`reservations`]: grant and refuse, delete those of this node that are not needed |
//! | round, stock | | | [`stock`] and [`take`]: create missing blocks; give idle ones back |
//! | round, tell | | [`Effect::Rest`] | [`tell`]: remove marks of what is in use, give back the rest of what is marked, write how much is in use |
//! | request by name | [`request`] | [`Effect::Book`] | [`ask`]: create the reservation, wait for the grant, check the grant |
//! | request of a claim | | [`Effect::Book`] | [`claim`]: read it; pick, [`ask`] and write where it has none, [`ask`] where it has; of a Port also write the pod that has it |
//! | any request | | [`Effect::Refuse`] | on an error of a step, or [`Event::Expired`] |
//!
//! # States of a block of this node
//!
//! | State | Entered by | Left by |
//! |---|---|---|
//! | fresh | created, not in the copy | in the copy → new; not for 30 s → forgotten |
//! | new | in the copy | no overlap, reservations read → serving; overlap → contested |
//! | contested | shares addresses with another | the other is gone → serving; nothing given of it → leaving |
//! | serving | `State::cleared`, UID of this node, no mark | not needed for long → leaving; marked → marked; deleted → gone |
//! | marked | the controller asks for it, and nothing is given of it | in use → the mark removed → serving; not in use → leaving |
//! | leaving | before the book forgets it | given after all → serving; deleted → gone |
//!
//! # States of a reservation of this node's pods
//!
//! | State | Entered by | Left by |
//! |---|---|---|
//! | asked | [`Event::Asked`], for 90 s or until booked | booked → held; time → given up |
//! | held | an attachment has the address | attachment gone → given up |
//! | given up | before the book forgets the grant | held or said after all → held; deleted → gone |
//!
//! The rules by which all of this is safe are at [`book::ledger::Share`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use self::requests::Request;
use self::state::State;
use self::steps::Round;

mod ask;
mod claim;
mod clear;
mod command;
mod error;
mod found;
mod idle;
mod known;
mod read;
mod request;
mod requests;
mod reservations;
mod round;
mod share;
mod state;
mod steps;
mod stock;
mod take;
mod tell;
#[cfg(test)]
mod tests;
mod view;

pub use self::command::{Answer, Command, Object};
pub use self::error::{LookupError, RequestError};
pub use self::found::{ClaimWrite, FoundClaim, FoundPort, PortWrite};
pub use self::known::{Facts, Given, Said, Seen, Wish};
pub use self::read::{BY, granted_by};
pub use self::state::{Effect, Event, Job, Machine, ROUND, RequestId};

impl Machine {
    /// Makes the machine of a node of this name; nothing is known yet.
    pub fn new(node: &str, keep: Duration) -> Self {
        Self {
            node: node.to_owned(),
            keep,
            seen: Seen {
                unread: Some("nothing is read yet".to_owned()),
                ..Seen::default()
            },
            state: State::default(),
            round: None,
            requests: BTreeMap::new(),
        }
    }

    /// Takes in an event that happens `now`; returns its effects.
    ///
    /// Of [`Effect::Call`], [`Effect::Wait`], [`Effect::Book`], [`Effect::Refuse`] and
    /// [`Effect::Rest`] there is at most one, the last, and it is of the job of the event.
    pub fn handle(&mut self, event: Event, now: Instant) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Seen(seen) => self.seen = seen,
            Event::Round => {
                self.round = Some(Round::new());
                self.go_on(None, now, &mut effects);
            }
            Event::Answered(Job::Round, answer) => self.go_on(Some(answer), now, &mut effects),
            Event::Asked(id, wish) => {
                self.requests.insert(id, Request::new(*wish));
                self.serve(id, None, now, &mut effects);
            }
            Event::Answered(Job::Request(id), answer) => {
                self.serve(id, Some(answer), now, &mut effects);
            }
            Event::Woken(id) => self.serve(id, None, now, &mut effects),
            Event::Full(id, source) => self.starve(id, source, &mut effects),
            Event::Booked(id) => self.booked(id, &mut effects),
            Event::Expired(id) => self.expire(id, &mut effects),
            Event::Gone(id) => self.forget(id, &mut effects),
        }
        effects
    }

    /// Counts the requests that wait for a block of a network.
    fn waiting(&self, network: &str) -> u64 {
        let waiting = self.requests.values();
        let waiting = waiting.filter(|it| it.is_starved() && it.network() == network);
        u64::try_from(waiting.count()).unwrap_or(u64::MAX)
    }

    /// Networks of which requests wait for a block.
    fn waited_for(&self) -> BTreeSet<String> {
        let waiting = self.requests.values().filter(|it| it.is_starved());
        waiting.map(|it| it.network().to_owned()).collect()
    }

    /// How long nothing has to be looked at if nothing happens.
    fn rest(&self, now: Instant) -> Duration {
        let waited_for = self.waited_for();
        let refused = self.state.refused.iter();
        let again = refused
            .filter(|(network, _)| waited_for.contains(*network))
            .map(|(_, (_, again))| *again);
        let soonest = again.chain(self.next_idle(now)).min();
        soonest.map_or(ROUND, |at| at.saturating_duration_since(now).min(ROUND))
    }
}
