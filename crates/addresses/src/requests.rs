//! Steps of a request, as data.

use std::net::IpAddr;
use std::sync::Arc;

use api::{Holder, IpReservation, MacAddr, PortUser};
use book::AddressError;
use book::ledger::ClaimRef;
use ipam::IpamError;

use super::command::{Command, Object};
use super::error::RequestError;
use super::found::FoundClaim;
use super::known::Wish;

/// A request that is under way.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) wish: Wish,
    /// Steps to come, the next one last.
    pub(super) steps: Vec<RequestStep>,
    /// Addresses that are set apart in the book until their reservations are known.
    pub(super) picked: Vec<IpAddr>,
    /// Why it waits for a block, if it does.
    pub(super) starved: Option<IpamError>,
    /// Attempts at a claim.
    pub(super) attempts: usize,
    /// The pod as it would have a Port.
    pub(super) user: Option<PortUser>,
}

/// A step of a request.
///
/// Those named in the past tense take the answer of the one before.
#[derive(Debug)]
pub(super) enum RequestStep {
    /// Work out which node to ask.
    Begin,
    /// Note the UID of the pod.
    PodFound,
    /// Ask for those addresses of the pod that its node may not give without.
    AskAll(Option<Holder>),

    /// Reserve an address.
    Ask(Box<Ask>),
    /// Note the reservation, or read the one that is there.
    Made(Box<Ask>),
    /// Note the one that was there, if it is the same holder's.
    Read(Box<Ask>),
    /// See whether it is granted.
    Look(Box<Ask>),
    /// Wait for the end of a round, and look again.
    Wait(Box<Ask>),
    /// Go on when the book knows that it is granted.
    Known(Box<Ask>),
    /// See whether the node that granted it could.
    GrantListed(Box<Ask>),
    /// Find the node that has to grant it.
    HolderListed(Box<Ask>),
    /// Note this node if it has got the block, else look who was faster.
    HolderMade(Box<Ask>),
    /// Note who was faster.
    HolderListedAgain(Box<Ask>),

    /// Note the pod that is to have the Port.
    UserFound,
    /// Read the claim.
    ReadClaim,
    /// Go by its addresses, or find some for it.
    ClaimRead,
    /// Go on when the pod that has the Port has ended.
    UserAsked(Box<Read>, PortUser),
    /// Find addresses for a claim without any.
    Allocate(Box<Read>),
    /// Ask for addresses that are set apart in the book.
    Pick(Box<Read>),
    /// Note them.
    Picked(Box<Read>),
    /// Write the addresses that are reserved by now into the claim.
    WriteClaim(Box<Read>, Vec<IpAddr>),
    /// Begin again when another was faster.
    ClaimWritten(Box<Read>, Vec<IpAddr>),
    /// Read what the other wrote.
    Withdraw(Box<Read>, Vec<IpAddr>),
    /// Delete the reservations that it did not write down.
    Withdrawn(Box<Read>, Vec<IpAddr>),
    /// Make the addresses of the claim those of the attachment.
    Claimed(Box<Read>, Vec<IpAddr>),

    /// Delete a reservation.
    Delete(Object),
    /// Refuse the request.
    Fail(Box<RequestError>),
    /// Book the attachment.
    Book,
}

/// Sequel of a step.
#[derive(Debug)]
pub(super) enum Turn {
    /// The next step.
    Go,
    /// An answer to this.
    Call(Command),
    /// The end of a round.
    Wait,
    /// The book.
    Book,
}

impl Request {
    pub(super) fn new(wish: Wish) -> Self {
        Self {
            wish,
            steps: vec![RequestStep::Begin],
            picked: Vec::new(),
            starved: None,
            attempts: 0,
            user: None,
        }
    }

    /// Name of the network.
    pub(super) fn network(&self) -> &str {
        &self.wish.network.name
    }

    /// True when it waits for a block with room.
    pub(super) fn is_starved(&self) -> bool {
        self.starved.is_some()
    }

    /// Puts steps before those that are to come.
    pub(super) fn first<I>(&mut self, steps: I)
    where
        I: IntoIterator<Item = RequestStep, IntoIter: DoubleEndedIterator>,
    {
        self.steps.extend(steps.into_iter().rev());
    }
}

/// An address that a request asks for.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) ip: IpAddr,
    pub(super) holder: Holder,
    /// As it was made or read.
    pub(super) reservation: Option<Arc<IpReservation>>,
    /// The node that has to grant it.
    pub(super) granter: Option<String>,
    /// It was made once more, and is looked at after the next round.
    pub(super) again: bool,
}

impl Ask {
    pub(super) fn new(ip: IpAddr, holder: Holder) -> Self {
        Self {
            ip,
            holder,
            reservation: None,
            granter: None,
            again: false,
        }
    }

    /// The error of a request that waits for the grant and has no more time.
    pub(super) fn not_granted(self, network: String) -> AddressError {
        AddressError::NotGranted {
            network,
            ip: self.ip,
            node: self.granter,
        }
    }

    pub(super) fn cannot_reserve(&self, network: &str, why: String) -> AddressError {
        AddressError::NotReserved {
            ip: self.ip,
            network: network.to_owned(),
            why,
        }
    }

    pub(super) fn cannot_find(&self, network: &str, why: String) -> AddressError {
        AddressError::NodeUnknown {
            ip: self.ip,
            network: network.to_owned(),
            why,
        }
    }
}

/// A claim as it was read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) claim: ClaimRef,
    pub(super) found: FoundClaim,
    pub(super) holder: Holder,
    /// Its MAC address, of a Port.
    pub(super) mac: Option<MacAddr>,
    /// Addresses that it was made with, of a Port.
    pub(super) asked: Vec<IpAddr>,
}
