//! Requests: attachments that need answers about addresses before they are booked.

use std::time::Instant;

use api::{Holder, PodHolder};
use book::ledger::ClaimKind;
use book::record::PodIdentity;
use book::{AddressError, BookError};
use ipam::IpamError;

use super::command::{Answer, Command};
use super::error::RequestError;
use super::requests::{Ask, Request, RequestStep, Turn};
use super::state::{Effect, Machine, RequestId};

impl Machine {
    /// Does steps of a request up to the next command, or to its end.
    pub(super) fn serve(
        &mut self,
        id: RequestId,
        mut answer: Option<Answer>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let Some(mut request) = self.requests.remove(&id) else {
            return;
        };
        while let Some(step) = request.steps.pop() {
            let turn = self.turn(&mut request, step, answer.take(), (now, &mut *effects));
            let effect = match turn {
                Ok(Turn::Go) => continue,
                Ok(Turn::Call(command)) => Effect::Call(command),
                Ok(Turn::Wait) => Effect::Wait,
                Ok(Turn::Book) => Effect::Book(Box::new(request.wish.wanted.clone())),
                Err(error) => {
                    unpick(&mut request, effects);
                    effects.push(Effect::Refuse(error));
                    return;
                }
            };
            effects.push(effect);
            break;
        }
        self.requests.insert(id, request);
    }

    fn turn(
        &mut self,
        request: &mut Request,
        step: RequestStep,
        answer: Option<Answer>,
        (now, effects): (Instant, &mut Vec<Effect>),
    ) -> Result<Turn, RequestError> {
        match step {
            RequestStep::Begin => Ok(begin(request)),
            RequestStep::PodFound => self.pod_found(request, answer),
            RequestStep::AskAll(holder) => self.ask_all(request, holder),
            RequestStep::Ask(ask) => Ok(self.ask(request, ask, now)?),
            RequestStep::Made(ask) => Ok(Self::made(request, ask, answer)?),
            RequestStep::Read(ask) => Ok(Self::read(request, ask, answer)?),
            RequestStep::Look(ask) => Ok(self.look(request, ask)?),
            RequestStep::Wait(ask) => {
                request.first([RequestStep::Look(ask)]);
                effects.push(Effect::Look);
                Ok(Turn::Wait)
            }
            RequestStep::Known(ask) => {
                let usable = matches!(answer, Some(Answer::Usable(true)));
                Ok(self.known(request, ask, usable))
            }
            RequestStep::GrantListed(ask) => Ok(self.grant_listed(request, &ask, answer)?),
            RequestStep::HolderListed(ask) => Ok(self.holder_listed(request, ask, answer)?),
            RequestStep::HolderMade(ask) => {
                Ok(self.holder_made(request, ask, answer, (now, effects))?)
            }
            RequestStep::HolderListedAgain(ask) => {
                Ok(Self::holder_listed_again(request, ask, answer)?)
            }
            RequestStep::UserFound => self.user_found(request, answer),
            RequestStep::ReadClaim => Ok(Self::read_claim(request)?),
            RequestStep::ClaimRead => Ok(Self::claim_read(request, answer)?),
            RequestStep::UserAsked(read, user) => {
                Ok(Self::user_asked(request, read, &user, answer)?)
            }
            RequestStep::Allocate(read) => Ok(self.allocate(request, read)),
            RequestStep::Pick(read) => {
                if !request.is_starved() {
                    // Stock may be low now.
                    effects.push(Effect::Look);
                }
                Ok(Self::pick(request, read))
            }
            RequestStep::Picked(read) => self.picked(request, read, answer, effects),
            RequestStep::WriteClaim(read, ips) => {
                unpick(request, effects);
                Ok(Self::write_claim(request, read, ips))
            }
            RequestStep::ClaimWritten(read, ips) => {
                Ok(Self::claim_written(request, read, ips, answer)?)
            }
            RequestStep::Withdraw(read, ips) => Ok(Self::withdraw(request, read, ips)),
            RequestStep::Withdrawn(read, ips) => {
                self.withdrawn(request, &read, &ips, answer);
                Ok(Turn::Go)
            }
            RequestStep::Claimed(read, ips) => {
                Self::claimed(request, *read, ips);
                Ok(Turn::Go)
            }
            RequestStep::Delete(object) => Ok(Turn::Call(Command::DeleteReservation(object))),
            RequestStep::Fail(error) => Err(*error),
            RequestStep::Book => {
                request.first([RequestStep::Book]);
                Ok(Turn::Book)
            }
        }
    }

    fn pod_found(
        &self,
        request: &mut Request,
        answer: Option<Answer>,
    ) -> Result<Turn, RequestError> {
        let found = match answer {
            Some(Answer::Pod(found)) => Some(found?),
            _ => None,
        };
        let pod = request.wish.wanted.pod.as_ref();
        let holder = pod.and_then(|pod| {
            Some(Holder::Pod(PodHolder {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                uid: found.or_else(|| pod.uid.clone())?,
                node: self.node.clone(),
            }))
        });
        request.first([RequestStep::AskAll(holder)]);
        Ok(Turn::Go)
    }

    /// Addresses by name: each must be of a block of this node, or be reserved.
    fn ask_all(&self, request: &mut Request, holder: Option<Holder>) -> Result<Turn, RequestError> {
        let wish = &mut request.wish;
        let ips = wish.wanted.ips.0.iter().map(|request| request.address);
        let mut steps = Vec::new();
        for ip in ips.filter(|ip| !wish.ours.contains(ip)) {
            let Some(holder) = &holder else {
                return Err(AddressError::NoPod { ip }.into());
            };
            steps.push(RequestStep::Ask(Box::new(Ask::new(ip, holder.clone()))));
        }
        wish.wanted.holder = holder;
        request.first(steps);
        Ok(Turn::Go)
    }

    /// Makes the request wait for a block: there was no room for it.
    pub(super) fn starve(&mut self, id: RequestId, source: IpamError, effects: &mut Vec<Effect>) {
        if let Some(request) = self.requests.get_mut(&id) {
            if request.starved.replace(source).is_none() {
                effects.push(Effect::Look);
            }
            effects.push(Effect::Wait);
        }
    }

    /// Ends a request: from now on the book says that its reservations are needed.
    pub(super) fn booked(&mut self, id: RequestId, effects: &mut Vec<Effect>) {
        let Some(mut request) = self.requests.remove(&id) else {
            return;
        };
        unpick(&mut request, effects);
        if let Some(holder) = &request.wish.wanted.holder {
            let (network, uid) = (request.network(), holder.uid());
            self.state
                .asked
                .retain(|(of, _, asked), _| of != network || asked != uid);
        }
    }

    /// Ends a request that has waited for too long.
    pub(super) fn expire(&mut self, id: RequestId, effects: &mut Vec<Effect>) {
        let Some(mut request) = self.requests.remove(&id) else {
            return;
        };
        unpick(&mut request, effects);
        let network = request.network().to_owned();
        let error = match (request.starved.take(), request.steps.pop()) {
            (Some(source), _) => self.no_block(network, source).into(),
            (None, Some(RequestStep::Look(ask))) => ask.not_granted(network).into(),
            // A request waits at these two steps only.
            (None, _) => BookError::NoAllocator.into(),
        };
        effects.push(Effect::Refuse(error));
    }

    fn no_block(&self, network: String, source: IpamError) -> AddressError {
        let refused = self.state.refused.get(&network);
        let why = refused
            .map(|(why, _)| why.clone())
            .or_else(|| self.seen.unread.clone())
            .unwrap_or_else(|| "the API server gave it none in time".to_owned());
        AddressError::NoBlock {
            network,
            source,
            why,
        }
    }

    /// Ends a request of which nobody waits for the end.
    pub(super) fn forget(&mut self, id: RequestId, effects: &mut Vec<Effect>) {
        if let Some(mut request) = self.requests.remove(&id) {
            unpick(&mut request, effects);
        }
    }
}

/// A claim decides where there is one.
///
/// A pod without a UID is looked up, and one that is to have a Port.
fn begin(request: &mut Request) -> Turn {
    request.first([RequestStep::Book]);
    let wanted = &request.wish.wanted;
    if let Some(claim) = &wanted.claim {
        let pod = wanted.pod.clone().filter(|_| claim.kind == ClaimKind::Port);
        request.first([RequestStep::ReadClaim]);
        if let Some(pod) = pod {
            request.first([RequestStep::UserFound]);
            return Turn::Call(find(pod));
        }
    } else if !wanted.ips.0.is_empty() {
        let pod = wanted.pod.clone().filter(|pod| pod.uid.is_none());
        request.first([RequestStep::PodFound]);
        if let Some(pod) = pod {
            return Turn::Call(find(pod));
        }
    }
    Turn::Go
}

fn find(pod: PodIdentity) -> Command {
    Command::FindPod {
        namespace: pod.namespace,
        name: pod.name,
        uid: pod.uid,
    }
}

/// The reservations of picked addresses are known, or will not be made.
fn unpick(request: &mut Request, effects: &mut Vec<Effect>) {
    if !request.picked.is_empty() {
        let ips = std::mem::take(&mut request.picked);
        effects.push(Effect::Unpick(request.network().to_owned(), ips));
    }
}
