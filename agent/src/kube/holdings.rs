//! Tells [`Remotes`] of the blocks and reservations of nodes as they come.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ::addresses::granted_by;
use api::{IpBlock, IpReservation, Prefix};
use cluster::copied::trim_all;
use cluster::watch::{Kind, follow_into};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, ResourceExt as _};
use reach::members::spanning;
use remotes::{Block, ByAddress, Remotes, Reservation};
use tokio::sync::Notify;

use super::home::Home;

/// Follows the blocks of all nodes.
#[derive(Clone)]
pub(super) struct Blocks {
    client: Client,
    home: Home,
}

impl Blocks {
    pub(super) fn new(client: &Client, home: Home) -> Self {
        Self {
            client: client.clone(),
            home,
        }
    }

    /// Follows blocks and reservations for ever.
    ///
    /// It begins when the node has the first attachment of a network that spans nodes.
    pub(super) async fn work(&self) {
        let mut changes = self.home.book.ledger().changes();
        let mut objects = self.home.world.changes();
        loop {
            changes.mark_unchanged();
            objects.mark_unchanged();
            if !spanning(&self.home.book.ledger(), &self.home.world.get()).is_empty() {
                break;
            }
            // Both senders live as long as the node.
            tokio::select! {
                _ = changes.changed() => {}
                _ = objects.changed() => {}
            }
        }
        // Who waits for all to be read is told by `Remotes`.
        let kind = Kind::new("ipblocks", false, &Arc::new(Notify::new()));
        let api: Api<IpBlock> = Api::all(self.client.clone());
        let heard = of_blocks(&self.home.remotes);
        follow_into(kind, api, Config::default(), trim_all, heard).await;
    }
}

/// Tells of blocks.
fn of_blocks(remotes: &Arc<Remotes>) -> impl FnMut(&Event<IpBlock>) + Send + use<> {
    let remotes = Arc::clone(remotes);
    let mut read = HashMap::new();
    move |event| match event {
        Event::Init => read.clear(),
        Event::InitApply(object) => gather(&mut read, block(object)),
        Event::InitDone => drop(remotes.set_blocks(std::mem::take(&mut read))),
        Event::Apply(object) => {
            if let Some((network, first, block)) = block(object) {
                remotes.set_block(&network, first, Some(block));
            }
        }
        Event::Delete(object) => {
            if let Some((network, first, _)) = block(object) {
                remotes.set_block(&network, first, None);
            }
        }
    }
}

/// Tells of reservations.
pub(super) fn of_reservations(
    remotes: &Arc<Remotes>,
) -> impl FnMut(&Event<IpReservation>) + Send + use<> {
    let remotes = Arc::clone(remotes);
    let mut read = HashMap::new();
    move |event| match event {
        Event::Init => read.clear(),
        Event::InitApply(object) => {
            let granted = reservation(object);
            let granted = granted.and_then(|(network, ip, it)| Some((network, ip, it?)));
            gather(&mut read, granted);
        }
        Event::InitDone => drop(remotes.set_reservations(std::mem::take(&mut read))),
        Event::Apply(object) => {
            if let Some((network, ip, reservation)) = reservation(object) {
                remotes.set_reservation(&network, ip, reservation);
            }
        }
        Event::Delete(object) => {
            if let Some((network, ip, _)) = reservation(object) {
                remotes.set_reservation(&network, ip, None);
            }
        }
    }
}

fn gather<T>(read: &mut ByAddress<T>, found: Option<(String, IpAddr, T)>) {
    if let Some((network, ip, value)) = found {
        read.entry(network).or_default().insert(ip, value);
    }
}

fn block(object: &IpBlock) -> Option<(String, IpAddr, Block)> {
    let cidr: Prefix = object.spec.cidr.parse().ok()?;
    let block = Block {
        cidr,
        node: object.spec.node.clone(),
        taken: object.creation_timestamp()?.0,
    };
    Some((object.spec.network.clone(), cidr.addr(), block))
}

/// The address of a reservation, and what it proves if it was granted.
fn reservation(object: &IpReservation) -> Option<(String, IpAddr, Option<Reservation>)> {
    let ip: IpAddr = object.spec.address.parse().ok()?;
    let made = object.creation_timestamp()?.0;
    let granted = granted_by(object).map(|by| Reservation {
        node: object.spec.pod.as_ref().map(|pod| pod.node.clone()),
        granted_by: by.to_owned(),
        made,
    });
    Some((object.spec.network.clone(), ip, granted))
}
