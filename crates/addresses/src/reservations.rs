//! Reservations: those of this node's blocks are answered, its pods' given up.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{IpReservation, PodHolder, Prefix};
use kube_core::ResourceExt as _;

use super::command::{Command, Object};
use super::known::Bearer;
use super::state::Machine;
use super::steps::{Round, RoundStep};

/// Time for which a reservation is kept for a pod whose `ADD` failed.
///
/// The runtime tries again.
pub(super) const ASKED: Duration = Duration::from_secs(90);

impl Machine {
    /// Answers a reservation of an address of a block here.
    ///
    /// The book knows of the reservation, so it will not give an address that it has not given by now.
    pub(super) fn answer(&self, round: &Round, reservation: &IpReservation) -> Option<Command> {
        let spec = &reservation.spec;
        let ip: IpAddr = spec.address.parse().ok()?;
        let gives = match round.given.own(&spec.network) {
            Some(own) => own.iter().any(|prefix| prefix.contains(&ip)),
            None => round.view.gives(&spec.network, ip),
        };
        if !gives {
            return None;
        }
        let bearer = round.given.bearer(&spec.network, ip);
        Some(Command::AnswerReservation {
            object: Object::of(reservation),
            version: reservation.resource_version(),
            generation: reservation.metadata.generation,
            refused: bearer.map(|bearer| format!("{} has it", bearer.describe(&self.node))),
        })
    }

    /// Gives up reservations of this node's pods that no attachment needs any more.
    ///
    /// They are deleted after other nodes have heard of it: see `let_go_published`.
    pub(super) fn let_go(&mut self, round: &mut Round, now: Instant) -> Option<Command> {
        self.state.asked.retain(|_, until| *until > now);
        self.state.given_up.retain(|_, until| *until > now);
        let mut given_up = Vec::new();
        for reservation in &round.view.reservations {
            let is_own = reservation.spec.pod.as_ref();
            let is_own = is_own.is_some_and(|pod| pod.node == self.node);
            if is_own
                && !self.is_needed(round, reservation)
                && self.give_up(reservation, now).is_some()
            {
                given_up.push(Arc::clone(reservation));
            }
        }
        if given_up.is_empty() {
            return None;
        }
        round.first([RoundStep::LetGoPublished(given_up)]);
        Some(self.publish())
    }

    /// Deletes reservations that the book does not need after all.
    ///
    /// They may have been booked until then. Other nodes hear first that no pod here has the address any
    /// more.
    pub(super) fn let_go_published(
        &mut self,
        round: &mut Round,
        given_up: Vec<Arc<IpReservation>>,
    ) {
        let (mut kept, mut steps) = (false, Vec::new());
        for reservation in given_up {
            if self.is_needed(round, &reservation) {
                if let Some(uid) = reservation.uid() {
                    self.state.given_up.remove(&uid);
                    kept = true;
                }
            } else {
                steps.push(RoundStep::DeleteReservation(reservation));
            }
        }
        if kept {
            steps.insert(0, RoundStep::Republish);
        }
        round.first(steps);
    }

    /// True when an attachment of the holder has the address.
    ///
    /// Also when other nodes may believe so.
    fn is_needed(&self, round: &Round, reservation: &IpReservation) -> bool {
        let spec = &reservation.spec;
        let (Some(pod), Ok(ip)) = (&spec.pod, spec.address.parse::<IpAddr>()) else {
            // No node of this version has made it.
            return true;
        };
        let bearer = round.given.bearer(&spec.network, ip);
        bearer.is_some_and(|bearer| is_of(bearer, pod))
            || self.is_said(&spec.network, &Prefix::from(ip))
    }

    /// Keeps all requests of this node from using a reservation from now on.
    ///
    /// This comes before the server is told: else a request that comes meanwhile would get an address that
    /// is another's a moment later. None when a request uses it already.
    fn give_up(&mut self, reservation: &IpReservation, now: Instant) -> Option<()> {
        let uid = reservation.uid()?;
        let spec = &reservation.spec;
        let ip: IpAddr = spec.address.parse().ok()?;
        let key = (spec.network.clone(), ip, spec.pod.as_ref()?.uid.clone());
        let state = &mut self.state;
        // One that was given up once stays so, whoever asks for it: it may be gone.
        if state.asked.contains_key(&key) && !state.given_up.contains_key(&uid) {
            return None;
        }
        state.given_up.insert(uid, now + ASKED);
        Some(())
    }

    pub(super) fn is_given_up(&self, reservation: &IpReservation) -> bool {
        let uid = reservation.uid();
        uid.is_some_and(|uid| self.state.given_up.contains_key(&uid))
    }
}

/// True when an attachment is this pod's.
///
/// Without a UID the name decides: the reservation was made for the UID of that time, and is given up with
/// the attachment.
fn is_of(bearer: &Bearer, holder: &PodHolder) -> bool {
    bearer.pod.as_ref().is_some_and(|pod| match &pod.uid {
        Some(uid) => *uid == holder.uid,
        None => (&pod.namespace, &pod.name) == (&holder.namespace, &holder.name),
    })
}
