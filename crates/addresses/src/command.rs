//! Commands that the machine gives, and the answers to them.

use std::collections::HashMap;
use std::net::IpAddr;

use api::{BlockReason, Holder, IpBlock, IpReservation, Network, PortUser};
use book::BookError;
use book::ledger::{ClaimRef, Share};

use super::error::LookupError;
use super::found::{ClaimWrite, FoundClaim};
use super::known::{Facts, Given};

/// One thing to be done outside the machine; each has one [`Answer`].
///
/// The first group asks the node and is answered at once, the second the API server.
#[derive(Debug, Clone)]
pub enum Command {
    /// Make the book give by these shares alone: [`Answer::Published`].
    Publish(HashMap<String, Share>),
    /// Tell of the node: [`Answer::Surveyed`].
    Survey,
    /// Ask whether the book would give a reserved address to a holder:
    /// [`Answer::Usable`].
    IsUsable {
        /// The network.
        network: String,
        /// The address.
        ip: IpAddr,
        /// UID of the holder.
        holder: String,
    },
    /// Set free addresses apart for a holder: [`Answer::Picked`].
    Pick {
        /// The network.
        network: Box<Network>,
        /// The holder.
        holder: Holder,
    },

    /// Look the UID of a pod up: [`Answer::Pod`].
    FindPod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// UID in the request, where it has one.
        uid: Option<String>,
    },
    /// List the blocks of a network: [`Answer::Blocks`].
    ListBlocks {
        /// The network.
        network: String,
        /// A cache may answer.
        cached: bool,
    },
    /// List the reservations of a network, past any cache:
    /// [`Answer::Reservations`].
    ListReservations {
        /// The network.
        network: String,
    },
    /// Read a reservation by its name: [`Answer::Reservation`].
    GetReservation {
        /// The name of the object.
        name: String,
    },
    /// Read the UID of a reservation by its name: [`Answer::ReservationUid`].
    FindReservation {
        /// The name of the object.
        name: String,
    },
    /// Create a block: [`Answer::BlockMade`].
    CreateBlock(Box<IpBlock>),
    /// Delete a block with this UID: [`Answer::Done`].
    DeleteBlock(Object),
    /// Write into a block how many addresses are in use, and why it is kept:
    /// [`Answer::Done`].
    TellUsed(Object, u64, BlockReason),
    /// Remove the mark of a block by which the controller deletes it:
    /// [`Answer::Done`].
    Unmark(Object),
    /// Create a reservation: [`Answer::ReservationMade`].
    CreateReservation(Box<IpReservation>),
    /// Grant a reservation, or refuse it with a reason, unless its version is
    /// another by now: [`Answer::Done`].
    AnswerReservation {
        /// The reservation.
        object: Object,
        /// Its version.
        version: Option<String>,
        /// Its generation.
        generation: Option<i64>,
        /// The reason of a refusal.
        refused: Option<String>,
    },
    /// Delete a reservation with this UID: [`Answer::Done`].
    DeleteReservation(Object),
    /// Read a claim: [`Answer::Claim`].
    GetClaim(ClaimRef),
    /// Write the status of a claim, unless it is another version by now:
    /// [`Answer::ClaimWritten`].
    WriteClaim(Box<ClaimWrite>),
    /// Ask whether a pod has not ended: [`Answer::Runs`].
    Runs {
        /// Its namespace.
        namespace: String,
        /// The pod.
        user: PortUser,
    },
}

impl Command {
    /// Lists the blocks of a network past any cache.
    pub(super) fn list_blocks(network: String) -> Self {
        Self::ListBlocks {
            network,
            cached: false,
        }
    }
}

/// Name and UID of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The name.
    pub name: String,
    /// The UID; the precondition of each write.
    pub uid: Option<String>,
}

impl Object {
    /// Names an object.
    pub(super) fn of(object: &impl kube_core::ResourceExt) -> Self {
        Self {
            name: object.name_any(),
            uid: object.uid(),
        }
    }
}

/// An answer to a [`Command`]; reasons of failures are one line each.
#[derive(Debug)]
pub enum Answer {
    /// The book gives by the shares, and has given these.
    Published(Given),
    /// The node at this moment.
    Surveyed(Facts),
    /// Whether the book would give it.
    Usable(bool),
    /// Addresses that are set apart.
    Picked(Result<Vec<IpAddr>, BookError>),
    /// UID of the pod.
    Pod(Result<String, LookupError>),
    /// Blocks of a network.
    Blocks(Result<Vec<IpBlock>, String>),
    /// Reservations of a network.
    Reservations(Result<Vec<IpReservation>, String>),
    /// A reservation, if there is one.
    Reservation(Result<Option<IpReservation>, String>),
    /// UID of a reservation, if there is one.
    ReservationUid(Result<Option<String>, String>),
    /// The block as it was made; none when one of its name is there.
    BlockMade(Result<Option<IpBlock>, String>),
    /// The reservation as it was made; none when one of its name is there.
    ReservationMade(Result<Option<IpReservation>, String>),
    /// A claim, if there is one.
    Claim(Result<Option<FoundClaim>, String>),
    /// Whether the claim was as it had been read.
    ClaimWritten(Result<bool, String>),
    /// Whether the pod has not ended.
    Runs(Result<bool, String>),
    /// It was tried; the watches tell of the result.
    Done,
}
