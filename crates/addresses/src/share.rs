//! Knowledge at one moment, and what of it is this node's to give.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use api::{IpBlock, Prefix};
use book::ledger::{Reserved, Share};
use kube_core::ResourceExt as _;

use super::command::Command;
use super::read::{answer, cidr, is_marked};
use super::state::Machine;
use super::view::View;

impl Machine {
    /// Puts together what is known now.
    pub(super) fn view(&self) -> View {
        let state = &self.state;
        let own = self.seen.node_uid.as_ref();
        let blocks = self.seen.blocks.clone();
        let serves = |block: &Arc<IpBlock>| {
            let uid = block.uid()?;
            let serves = own == Some(&block.spec.node_uid)
                && block.metadata.deletion_timestamp.is_none()
                && !is_marked(block)
                && state.cleared.contains(&uid)
                && !state.leaving.contains(&uid);
            serves.then_some(uid)
        };
        let serving = blocks.iter().filter_map(serves).collect();
        let mut reservations = self.seen.reservations.clone();
        let copied: BTreeSet<String> = reservations.iter().filter_map(|it| it.uid()).collect();
        let unseen = state
            .unseen
            .iter()
            .filter(|(uid, _)| !copied.contains(*uid));
        // Last: one of the same name in the copy is older.
        reservations.extend(unseen.map(|(_, reservation)| Arc::clone(reservation)));
        let known: BTreeSet<String> = blocks.iter().filter_map(|it| it.uid()).collect();
        let fresh = state.fresh.iter().filter(|(uid, _)| !known.contains(*uid));
        let fresh = fresh.map(|(_, (block, _))| block.clone()).collect();
        View {
            blocks,
            reservations,
            serving,
            fresh,
        }
    }

    /// Works out what of the networks is this node's to give, and what is reserved.
    pub(super) fn shares(&self, view: &View) -> HashMap<String, Share> {
        let mut shares: HashMap<String, Share> = HashMap::new();
        for block in view.blocks.iter().filter(|block| view.serves(block)) {
            if let Some(cidr) = cidr(block) {
                let share = shares.entry(block.spec.network.clone()).or_default();
                share.blocks.push(cidr);
            }
        }
        for reservation in &view.reservations {
            let spec = &reservation.spec;
            let (Ok(ip), Some(holder)) = (spec.address.parse(), spec.holder()) else {
                continue;
            };
            let reserved = Reserved {
                holder,
                granted: answer(reservation).is_some_and(|answer| answer.0)
                    && !self.is_given_up(reservation),
            };
            let share = shares.entry(spec.network.clone()).or_default();
            share.reserved.insert(ip, reserved);
        }
        for share in shares.values_mut() {
            // In one order at all times: what is used up first is what is kept.
            share.blocks.sort();
        }
        shares
    }

    /// Makes the book give by what is known now.
    pub(super) fn publish(&self) -> Command {
        Command::Publish(self.shares(&self.view()))
    }

    /// True when other nodes may believe one of these addresses to be here.
    pub(super) fn is_said(&self, network: &str, addresses: &Prefix) -> bool {
        self.seen.said.has(network, addresses)
    }
}
