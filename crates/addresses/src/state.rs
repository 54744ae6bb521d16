//! State of the machine, its events and its effects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::IpReservation;
use book::ledger::Wanted;
use ipam::{Family, IpamError};

use super::command::{Answer, Command};
use super::error::RequestError;
use super::idle::{Idle, NetworkBlock};
use super::known::{Seen, Wish};
use super::requests::Request;
use super::steps::Round;

/// Time after which everything is looked at again, even without a change.
pub const ROUND: Duration = Duration::from_secs(30);

/// Number of a request.
pub type RequestId = u64;

/// One of the jobs of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    /// The round.
    Round,
    /// A request.
    Request(RequestId),
}

/// An input; see the table of this module.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "an event lives for one call and is in no collection"
)]
pub enum Event {
    /// Copies are these.
    Seen(Seen),
    /// Everything is to be looked at.
    Round,
    /// An attachment wants addresses.
    Asked(RequestId, Box<Wish>),
    /// A command has an answer.
    Answered(Job, Answer),
    /// A round has ended.
    Woken(RequestId),
    /// There is no room for the attachment.
    Full(RequestId, IpamError),
    /// The attachment is booked.
    Booked(RequestId),
    /// There is no more time.
    Expired(RequestId),
    /// The requester is gone.
    Gone(RequestId),
}

/// An output, in the order in which they are to be carried out.
#[derive(Debug)]
pub enum Effect {
    /// Carry the command out, and say what it came to.
    Call(Command),
    /// Wait for the end of a round, and say so.
    Wait,
    /// Book the attachment with these addresses.
    Book(Box<Wanted>),
    /// Refuse the request; it is over.
    Refuse(RequestError),
    /// Give addresses of a network free that were picked.
    Unpick(String, Vec<IpAddr>),
    /// Begin a round as soon as none is under way.
    Look,
    /// Count a block by what happened to it.
    Count(&'static str),
    /// The round is over; begin another one after this time.
    Rest(Duration),
}

/// Knowledge that is in no copy.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Ends of reservations that no attachment has yet.
    ///
    /// The key is network, address and UID of the holder.
    pub(super) asked: BTreeMap<(String, IpAddr, String), Instant>,
    /// Reservations, by UID, that this node deletes or has deleted.
    ///
    /// The value is the time until which that is remembered: a copy may still have them.
    pub(super) given_up: BTreeMap<String, Instant>,
    /// Blocks, by UID, whose neighbours were read after they were taken.
    ///
    /// The neighbours are other blocks and reservations.
    pub(super) cleared: BTreeSet<String>,
    /// Blocks, by UID, that were taken at this time and were not in the copy then.
    pub(super) fresh: BTreeMap<String, (NetworkBlock, Instant)>,
    /// Blocks, by UID, that have addresses of another.
    pub(super) contested: BTreeSet<String>,
    /// Blocks, by UID, that are being given back.
    pub(super) leaving: BTreeSet<String>,
    /// Reservations that were read, and are not in the copy yet.
    pub(super) unseen: BTreeMap<String, Arc<IpReservation>>,
    /// Why a network got no further block, and when to try again.
    pub(super) refused: BTreeMap<String, (String, Instant)>,
    /// Since when blocks are not needed.
    pub(super) idle: Idle,
    /// When it was last looked whether others need blocks of a network.
    pub(super) looked: BTreeMap<(String, Family), Instant>,
    /// Uses of blocks as they were last written, by UID.
    pub(super) written: BTreeMap<String, (u64, Instant)>,
}

/// Addresses of the cluster's networks, as one node has to do with them.
#[derive(Debug)]
pub struct Machine {
    /// Name of this node.
    pub(super) node: String,
    /// How long a block is kept that is not needed.
    pub(super) keep: Duration,
    pub(super) seen: Seen,
    pub(super) state: State,
    pub(super) round: Option<Round>,
    pub(super) requests: BTreeMap<RequestId, Request>,
}
