//! Steps of a round, as data.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use api::{IpBlock, IpReservation, Prefix};
use ipam::{Family, Held, Pool};
use kube_core::ResourceExt as _;

use super::command::{Command, Object};
use super::idle::NetworkBlock;
use super::known::{Facts, Given};
use super::read::cidr;
use super::view::View;

/// A round that is under way.
#[derive(Debug)]
pub(super) struct Round {
    /// Steps to come, the next one last.
    pub(super) steps: Vec<RoundStep>,
    pub(super) view: View,
    /// Addresses that the book had given when it was last asked.
    pub(super) given: Given,
    pub(super) facts: Facts,
    /// Blocks that this node could do without.
    pub(super) spare: BTreeSet<NetworkBlock>,
}

/// A step of a round.
///
/// Those named in the past tense take the answer of the one before.
#[derive(Debug)]
pub(super) enum RoundStep {
    /// Look for blocks that are new here.
    Clear,
    /// Read all blocks of a network with new ones.
    ListBlocks(String, Vec<Taken>),
    /// Tell blocks that overlap another from those that do not.
    BlocksListed(String, Vec<Taken>),
    /// Begin to serve blocks, with the reservations that were read.
    ReservationsListed(String, Vec<String>),
    /// Look for reservations that were read and are still in no copy.
    Forget,
    /// Ask whether one of them is there.
    Find(String, String),
    /// Forget it if it is not.
    Found(String),
    /// Note what is known now, and make the book give by it.
    Publish,
    /// Make the book give by what is known now; the round goes on by what it knew.
    Republish,
    /// Note what the book has given.
    Published,
    /// Answer reservations of addresses of this node's blocks.
    Grant,
    /// Answer one.
    Answer(Arc<IpReservation>),
    /// Ask what the node is like.
    Survey,
    /// Note it, and leave out what a node cannot do whose book is not complete.
    Surveyed,
    /// Give up reservations of this node's pods that no attachment needs.
    LetGo,
    /// Delete those which the book does not need after all.
    LetGoPublished(Vec<Arc<IpReservation>>),
    /// Delete a reservation.
    DeleteReservation(Arc<IpReservation>),
    /// Give up contested blocks of which nothing is given.
    Yield,
    /// Work out how many blocks of which networks are needed.
    Stock,
    /// Take blocks of one family of a network until there are enough.
    Balance(Box<Balance>),
    /// Choose free blocks among those that are not listed.
    TakeListed(Box<Balance>),
    /// Try the next of them.
    TakeNext(Box<Balance>, Attempt),
    /// Note whether it was taken.
    TakeMade(Box<Balance>, Attempt),
    /// Find blocks that were not needed for long.
    Idle,
    /// Ask whether others have blocks left to take.
    Scarce(String, Family, Vec<Prefix>),
    /// Give blocks back if they do not.
    ScarceListed(String, Family, Vec<Prefix>),
    /// Begin to give a block back.
    GiveBack(String, Prefix),
    /// Make the book forget a block.
    Leave(Arc<IpBlock>, Prefix),
    /// Delete it if nothing of it was given.
    GiveBackPublished(Arc<IpBlock>, Prefix),
    /// Delete again what could not be deleted before.
    RetryLeaving,
    /// Delete a block.
    DeleteBlock(Object),
    /// Answer for marked blocks of this node.
    Stay,
    /// Write how much of blocks is in use.
    Tell,
    /// Give this command, whatever it comes to.
    Do(Command),
}

impl Round {
    pub(super) fn new() -> Self {
        Self {
            steps: vec![RoundStep::Clear],
            view: View::default(),
            given: Given::default(),
            facts: Facts::default(),
            spare: BTreeSet::new(),
        }
    }

    /// Puts steps before those that are to come.
    pub(super) fn first<I>(&mut self, steps: I)
    where
        I: IntoIterator<Item = RoundStep, IntoIter: DoubleEndedIterator>,
    {
        self.steps.extend(steps.into_iter().rev());
    }
}

/// A block of this cluster, by its object.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) uid: String,
    pub(super) network: String,
    pub(super) cidr: Prefix,
}

impl Taken {
    pub(super) fn of(block: &IpBlock) -> Option<Self> {
        Some(Self {
            uid: block.uid()?,
            network: block.spec.network.clone(),
            cidr: cidr(block)?,
        })
    }
}

/// The blocks of one family of a network, while it is worked out which are needed.
#[derive(Debug)]
pub(super) struct Balance {
    pub(super) network: String,
    pub(super) pools: Vec<Pool>,
    pub(super) family: Family,
    /// Attachments that are expected; none when the network needs no blocks.
    pub(super) coming: Option<u64>,
    /// Read when the turn of this family comes.
    pub(super) held: Option<Vec<Held>>,
    pub(super) spare: Vec<Prefix>,
    pub(super) taken: usize,
}

impl Balance {
    /// Counts a block that was taken.
    pub(super) fn took(&mut self, block: Prefix) {
        self.taken += 1;
        let room = room(&self.pools, &block);
        let used = 0;
        let held = self.held.get_or_insert_default();
        held.push(Held { block, room, used });
    }

    /// The blocks that could be missed.
    pub(super) fn into_spare(self) -> impl Iterator<Item = NetworkBlock> {
        let network = self.network;
        let spare = self.spare.into_iter();
        spare.map(move |block| (network.clone(), block))
    }
}

/// An attempt to take one of several blocks.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) free: VecDeque<Prefix>,
    /// The reason for which there is no block when all of these are taken.
    pub(super) otherwise: String,
}

/// Counts the addresses of a block that pools have.
pub(super) fn room(pools: &[Pool], block: &Prefix) -> u64 {
    let room: u128 = pools.iter().map(|pool| pool.capacity_in(block)).sum();
    u64::try_from(room).unwrap_or(u64::MAX)
}
