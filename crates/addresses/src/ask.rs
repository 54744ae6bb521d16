//! Asking for an address by name, of the node with the block.

use std::sync::Arc;
use std::time::Instant;

use api::{IpBlock, IpReservation, NODE_LABEL};
use book::AddressError;
use ipam::Occupied;
use kube_core::ResourceExt as _;
use telemetry::chain;
use world::blocks::{LENGTH, pools as pools_of};

use super::command::{Answer, Command, Object};
use super::read::{answer as answer_of, block_holder, cidr, granted_by};
use super::requests::{Ask, Request, RequestStep, Turn};
use super::reservations::ASKED;
use super::state::{Effect, Machine};

/// The reason when a command had the answer of another.
const UNANSWERED: &str = "no answer";

type Asked = Result<Turn, AddressError>;

impl Machine {
    /// Reserves an address, and keeps the reservation for a while.
    ///
    /// A reservation of the same holder that is there already serves as well.
    pub(super) fn ask(&mut self, request: &mut Request, ask: Box<Ask>, now: Instant) -> Asked {
        let network = request.network().to_owned();
        let uid = ask.holder.uid().to_owned();
        let asked = (network.clone(), ask.ip, uid);
        self.state.asked.insert(asked, now + ASKED);
        self.reserve(request, ask)
    }

    fn reserve(&self, request: &mut Request, ask: Box<Ask>) -> Asked {
        let network = request.network();
        let wanted = IpReservation::ask(network, ask.ip, ask.holder.clone());
        let mut wanted = wanted.map_err(|error| ask.cannot_reserve(network, chain(&error)))?;
        // That of a claim is taken back by the node that made it: see agent-policy.yaml.
        let maker = (NODE_LABEL.to_owned(), self.node.clone());
        wanted.metadata.annotations = Some([maker].into());
        request.first([RequestStep::Made(ask)]);
        Ok(Turn::Call(Command::CreateReservation(Box::new(wanted))))
    }

    pub(super) fn made(request: &mut Request, ask: Box<Ask>, answer: Option<Answer>) -> Asked {
        let network = request.network();
        match answer {
            Some(Answer::ReservationMade(Ok(Some(made)))) => {
                has(request, ask, made);
                Ok(Turn::Go)
            }
            Some(Answer::ReservationMade(Ok(None))) => {
                let wanted = IpReservation::ask(network, ask.ip, ask.holder.clone());
                let wanted = wanted.map_err(|error| ask.cannot_reserve(network, chain(&error)))?;
                request.first([RequestStep::Read(ask)]);
                let name = wanted.name_any();
                Ok(Turn::Call(Command::GetReservation { name }))
            }
            Some(Answer::ReservationMade(Err(why))) => Err(ask.cannot_reserve(network, why)),
            _ => Err(ask.cannot_reserve(network, UNANSWERED.to_owned())),
        }
    }

    pub(super) fn read(request: &mut Request, ask: Box<Ask>, answer: Option<Answer>) -> Asked {
        let network = request.network();
        let found = match answer {
            Some(Answer::Reservation(Ok(found))) => found,
            Some(Answer::Reservation(Err(why))) => return Err(ask.cannot_reserve(network, why)),
            _ => return Err(ask.cannot_reserve(network, UNANSWERED.to_owned())),
        };
        // It went in between.
        let gone = || ask.cannot_reserve(network, "it was another's a moment ago".to_owned());
        let found = found.ok_or_else(gone)?;
        match found.spec.holder() {
            Some(other) if other.uid() != ask.holder.uid() => Err(AddressError::reserved_before(
                network,
                ask.ip,
                &other,
                &ask.holder,
            )),
            _ => {
                has(request, ask, found);
                Ok(Turn::Go)
            }
        }
    }

    /// Goes by what is known of the reservation now.
    pub(super) fn look(&self, request: &mut Request, mut ask: Box<Ask>) -> Asked {
        let Some(reservation) = ask.reservation.clone() else {
            return self.reserve(request, ask);
        };
        let known = self.known_of(&reservation);
        if self.is_given_up(&reservation) {
            // It is being deleted, and the address may be another's soon: not by this one.
            if known.is_none() {
                ask.again = true;
                return self.reserve(request, ask);
            }
            request.first([RequestStep::Wait(ask)]);
            return Ok(Turn::Go);
        }
        let now = known.unwrap_or(reservation);
        let network = request.network().to_owned();
        match answer_of(&now) {
            // The book must know, not only this request.
            Some((true, _)) => {
                let command = Command::IsUsable {
                    network,
                    ip: ask.ip,
                    holder: ask.holder.uid().to_owned(),
                };
                ask.reservation = Some(now);
                request.first([RequestStep::Known(ask)]);
                Ok(Turn::Call(command))
            }
            Some((false, why)) => {
                let error = AddressError::InUse {
                    network,
                    ip: ask.ip,
                    message: why.to_owned(),
                };
                let fail = RequestStep::Fail(Box::new(error.into()));
                request.first([RequestStep::Delete(Object::of(&*now)), fail]);
                Ok(Turn::Go)
            }
            None if ask.granter.is_none() => {
                let uid = self.own_uid();
                uid.map_err(|why| ask.cannot_find(&network, why))?;
                request.first([RequestStep::HolderListed(ask)]);
                Ok(Turn::Call(Command::list_blocks(network)))
            }
            None => {
                request.first([RequestStep::Wait(ask)]);
                Ok(Turn::Go)
            }
        }
    }

    pub(super) fn known(&self, request: &mut Request, ask: Box<Ask>, usable: bool) -> Turn {
        if !usable {
            request.first([RequestStep::Wait(ask)]);
            return Turn::Go;
        }
        let reservation = ask.reservation.as_ref();
        let by = reservation
            .and_then(|it| granted_by(it))
            .unwrap_or_default();
        if by == self.node {
            return Turn::Go;
        }
        request.first([RequestStep::GrantListed(ask)]);
        Turn::Call(Command::list_blocks(request.network().to_owned()))
    }

    /// Succeeds when the node that granted an address was able to grant it.
    ///
    /// It holds the block, or did when the address was asked for. Any node can write the same, and does not
    /// know whether the address is in use.
    ///
    /// # Errors
    /// When it could not; the reservation is given up then. Or when the API server does not answer.
    pub(super) fn grant_listed(
        &self,
        request: &mut Request,
        ask: &Ask,
        answer: Option<Answer>,
    ) -> Asked {
        let (network, ip) = (request.network().to_owned(), ask.ip);
        let fail = |why| AddressError::GrantUnknown {
            ip,
            network: network.clone(),
            why,
        };
        let Some(reservation) = &ask.reservation else {
            return Ok(Turn::Go);
        };
        let listed = blocks_of(answer).map_err(fail)?;
        let by = granted_by(reservation).unwrap_or_default();
        let of_ip = |it: &&IpBlock| cidr(it).is_some_and(|block| block.contains(&ip));
        let blocks = listed.iter().filter(of_ip);
        // A later holder keeps to what was granted before it came.
        let first = blocks.min_by_key(|it| it.creation_timestamp());
        let wrong = first.filter(|it| {
            it.spec.node != by && it.creation_timestamp() <= reservation.creation_timestamp()
        });
        if let Some(block) = wrong {
            let holder = &block.spec.node;
            let error = fail(format!(
                "node {by} says that it is, and node {holder} holds the block"
            ));
            let fail = RequestStep::Fail(Box::new(error.into()));
            request.first([RequestStep::Delete(Object::of(&**reservation)), fail]);
        }
        Ok(Turn::Go)
    }

    /// Notes the node that has to grant the address; takes the block if there is none.
    pub(super) fn holder_listed(
        &self,
        request: &mut Request,
        mut ask: Box<Ask>,
        answer: Option<Answer>,
    ) -> Asked {
        let network = request.network().to_owned();
        let listed = blocks_of(answer).map_err(|why| ask.cannot_find(&network, why))?;
        if let Some(found) = block_holder(&listed, ask.ip) {
            ask.granter = Some(found);
            request.first([RequestStep::Wait(ask)]);
            return Ok(Turn::Go);
        }
        let pools = self.seen.world.network(&network);
        let pools = pools.ok().and_then(|it| pools_of(it).ok());
        let taken = Occupied::new(LENGTH, listed.iter().filter_map(cidr));
        let block = LENGTH.free_block_of(&pools.unwrap_or_default(), ask.ip, &taken);
        let none = || ask.cannot_find(&network, "its subnets have no such address".to_owned());
        let block = block.ok_or_else(none)?;
        let command = self.create(&network, block);
        let command = command.map_err(|why| ask.cannot_find(&network, why))?;
        request.first([RequestStep::HolderMade(ask)]);
        Ok(Turn::Call(command))
    }

    pub(super) fn holder_made(
        &mut self,
        request: &mut Request,
        mut ask: Box<Ask>,
        answer: Option<Answer>,
        moment: (Instant, &mut Vec<Effect>),
    ) -> Asked {
        let network = request.network().to_owned();
        match answer {
            Some(Answer::BlockMade(Ok(Some(made)))) => {
                self.taken(&made, moment);
                ask.granter = Some(self.node.clone());
                request.first([RequestStep::Wait(ask)]);
                Ok(Turn::Go)
            }
            Some(Answer::BlockMade(Ok(None))) => {
                request.first([RequestStep::HolderListedAgain(ask)]);
                Ok(Turn::Call(Command::list_blocks(network)))
            }
            Some(Answer::BlockMade(Err(why))) => Err(ask.cannot_find(&network, why)),
            _ => Err(ask.cannot_find(&network, UNANSWERED.to_owned())),
        }
    }

    pub(super) fn holder_listed_again(
        request: &mut Request,
        mut ask: Box<Ask>,
        answer: Option<Answer>,
    ) -> Asked {
        let listed = blocks_of(answer).map_err(|why| ask.cannot_find(request.network(), why))?;
        ask.granter = Some(block_holder(&listed, ask.ip).unwrap_or_default());
        request.first([RequestStep::Wait(ask)]);
        Ok(Turn::Go)
    }

    /// The reservation as the copy has it by now.
    fn known_of(&self, reservation: &IpReservation) -> Option<Arc<IpReservation>> {
        let uid = reservation.metadata.uid.as_ref();
        let mut all = self.seen.reservations.iter();
        all.find(|it| it.metadata.uid.as_ref() == uid).cloned()
    }
}

fn blocks_of(answer: Option<Answer>) -> Result<Vec<IpBlock>, String> {
    match answer {
        Some(Answer::Blocks(listed)) => listed,
        _ => Err(UNANSWERED.to_owned()),
    }
}

/// Goes on with a reservation that is there.
fn has(request: &mut Request, mut ask: Box<Ask>, reservation: IpReservation) {
    ask.reservation = Some(Arc::new(reservation));
    let again = std::mem::take(&mut ask.again);
    request.first([if again {
        RequestStep::Wait(ask)
    } else {
        RequestStep::Look(ask)
    }]);
}
