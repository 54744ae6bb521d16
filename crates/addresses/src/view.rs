//! Blocks and reservations at one moment.
//!
//! The copies have most of it; some was read and written apart from them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use api::{IpBlock, IpReservation};

use super::idle::NetworkBlock;
use super::read::{answer, cidr};

/// Blocks and reservations at one moment.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) blocks: Vec<Arc<IpBlock>>,
    pub(super) reservations: Vec<Arc<IpReservation>>,
    /// UIDs of those blocks from which this node gives.
    pub(super) serving: BTreeSet<String>,
    /// Blocks that were taken, and are not in the copy yet.
    pub(super) fresh: Vec<NetworkBlock>,
}

impl View {
    /// True when this node gives addresses of the block.
    pub(super) fn serves(&self, block: &IpBlock) -> bool {
        let uid = block.metadata.uid.as_ref();
        uid.is_some_and(|uid| self.serving.contains(uid))
    }

    /// True when an address of a network is in a block of which this node gives.
    pub(super) fn gives(&self, network: &str, ip: IpAddr) -> bool {
        let of_network = self.blocks.iter().filter(|it| it.spec.network == network);
        let mut serving = of_network.filter(|it| self.serves(it));
        serving.any(|it| cidr(it).is_some_and(|block| block.contains(&ip)))
    }

    /// Reservations that nobody has answered.
    pub(super) fn unanswered(&self) -> Vec<Arc<IpReservation>> {
        let unanswered = self.reservations.iter().filter(|it| answer(it).is_none());
        unanswered.cloned().collect()
    }
}
