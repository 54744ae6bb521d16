//! Find paths of the underlay on which the programs encapsulate packets.
//!
//! A path is one Ethernet link and one next hop to another node, as the kernel's routes say. The kernel's
//! tunnel device encapsulates where routes differ, or IPsec applies.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_common::addr::Ip16;
use agent_common::uplink::{UPLINK_ANY_FAMILY, Uplink};
use agent_common::vtep::Straight;
use datapath::{DatapathError, Room};
use host::{Host, HostError};
use netdev::{Connection, Link};
use remotes::Remotes;
use tables::Reconciler;
use tables::surroundings::{UnderlayPath, UnderlayPaths};
use telemetry::chain;

use crate::overlay::{self, Overlay, OverlayError, added};
use crate::uplink_networks::UplinkNetworks;
use crate::uplinks::{UplinkError, Uplinks, User, Wanted};

/// Least time between two looks: routes of a node may change often.
const SETTLE: Duration = Duration::from_millis(50);
/// Longest time between two looks at the paths.
///
/// A change of a router's MTU comes without notice.
const ROUND: Duration = Duration::from_secs(30);

/// The paths to other nodes are not as they should be.
#[derive(Debug, thiserror::Error)]
pub enum UnderlayError {
    /// The tunnels have no fence.
    #[error(transparent)]
    Overlay(#[from] OverlayError),
    /// The interfaces are not as they should be.
    #[error(transparent)]
    Uplinks(#[from] UplinkError),
    /// The kernel refused.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl From<netdev::Error> for UnderlayError {
    fn from(error: netdev::Error) -> Self {
        HostError::from(error).into()
    }
}

impl From<DatapathError> for UnderlayError {
    fn from(error: DatapathError) -> Self {
        HostError::from(error).into()
    }
}

/// The search for paths.
#[derive(Debug)]
pub struct Underlay {
    host: Arc<Host>,
    tables: Arc<Reconciler>,
    remotes: Arc<Remotes>,
    overlay: Arc<Overlay>,
    uplinks: Arc<Uplinks>,
}

/// Paths and links found in the node's routes.
#[derive(Debug, Default)]
struct Found {
    paths: UnderlayPaths,
    /// The interfaces by which tunnels may come in.
    uplinks: BTreeSet<u32>,
    /// Names of all links by which other nodes may send.
    entrances: BTreeSet<String>,
}

impl Underlay {
    /// Hold the owners of what a path depends on; [`Underlay::find`] looks for paths.
    pub fn new(
        host: Arc<Host>,
        tables: Arc<Reconciler>,
        remotes: Arc<Remotes>,
        overlay: Arc<Overlay>,
        uplinks: Arc<Uplinks>,
    ) -> Self {
        Self {
            host,
            tables,
            remotes,
            overlay,
            uplinks,
        }
    }

    /// Keep paths and next hops of uplink networks as the node's routes are.
    ///
    /// # Errors
    /// When the kernel does not tell of changes any more.
    pub async fn keep(&self, uplink_networks: &UplinkNetworks) -> Result<(), netdev::Error> {
        let mut monitor = self.host.netlink.watch_ways()?;
        let mut members = self.remotes.changes();
        let mut vteps = self.remotes.vtep_changes();
        loop {
            if let Err(error) = self.find().await {
                let error = chain(&error);
                tracing::warn!(
                    error,
                    "the paths to other nodes are not written: packets go by the tunnel device or as before until the next look"
                );
            }
            let hopped = Box::pin(uplink_networks.follow_hops()).await;
            self.remotes.look_again(&hopped);
            // What comes meanwhile is seen right after it.
            tokio::time::sleep(SETTLE).await;
            tokio::select! {
                changed = monitor.changed() => changed?,
                () = self.overlay.replaced() => {}
                // Both senders live as long as the node.
                _ = members.changed() => {}
                _ = vteps.changed() => {}
                () = tokio::time::sleep(ROUND) => {}
            }
        }
    }

    /// Looks for the paths to all nodes, and writes them to the tables.
    ///
    /// # Errors
    /// When the kernel refuses; packets then go by the device, or as before.
    pub async fn find(&self) -> Result<(), UnderlayError> {
        let port = self.overlay.port();
        let own = self.remotes.vteps();
        let mut fenced = Ok(());
        let found = if self.overlay.device() == 0 {
            Found::default()
        } else {
            let nodes = self.overlay.other_nodes(&own)?;
            let (room, own) = (self.host.room, own.clone());
            let look =
                move |connection: &mut Connection| look(connection, &nodes, &own, room, port);
            let mut found = self.host.netlink.with(look).await?;
            // Before anything of a new path is told to others.
            fenced = self
                .overlay
                .fence_from(std::mem::take(&mut found.entrances))
                .await
                .map(drop);
            if self.host.netlink.has_ipsec_policies().await? {
                tracing::debug!("the node has IPsec policies: tunnels go by the kernel's device");
                found.uplinks.clear();
                for path in found.paths.values_mut() {
                    path.straight = None;
                }
            }
            found
        };
        let address = |v4| own.iter().copied().find(move |it| it.is_ipv4() == v4);
        let mapped = |it: Option<IpAddr>| it.map_or(Ip16::NONE, Ip16::from);
        let uplink = Uplink {
            flags: if self.host.room.any_family {
                UPLINK_ANY_FAMILY
            } else {
                0
            },
            port: port.to_be_bytes(),
            v4: mapped(address(true)),
            v6: mapped(address(false)),
            ..Uplink::NOTHING
        };
        let uplinks: Wanted = found.uplinks.into_iter().map(|it| (it, uplink)).collect();
        self.tables.set_underlay(found.paths)?;
        self.uplinks.take_from(User::Tunnels, uplinks).await?;
        Ok(fenced?)
    }
}

fn look(
    connection: &mut Connection,
    nodes: &BTreeSet<IpAddr>,
    own: &[IpAddr],
    room: Room,
    port: u16,
) -> Result<Found, HostError> {
    let mut links: BTreeMap<u32, Option<Link>> = BTreeMap::new();
    let mut link = |connection: &mut Connection, ifindex: u32| {
        if let Some(link) = links.get(&ifindex) {
            return Ok::<_, HostError>(link.clone());
        }
        let link = connection.by_index(ifindex)?;
        links.insert(ifindex, link.clone());
        Ok(link)
    };
    let mut found = Found {
        entrances: overlay::entrances(connection, own, nodes)?,
        ..Found::default()
    };
    for address in own {
        if let Some(holder) = connection.holder_of(*address)?
            && link(connection, holder)?.is_some_and(|link| is_ethernet(&link))
        {
            found.uplinks.insert(holder);
        }
    }
    for address in nodes {
        let Some(local) = own.iter().find(|it| it.is_ipv4() == address.is_ipv4()) else {
            continue;
        };
        let Some(way) = connection.way_to(*address, *local)? else {
            continue;
        };
        let Some(link) = link(connection, way.ifindex)? else {
            continue;
        };
        // A router may have said that it carries less than the link.
        let carried = way.mtu.unwrap_or(link.mtu).min(link.mtu);
        let mtu = carried.saturating_sub(added(*address));
        let mut known = UnderlayPath {
            straight: None,
            mtu,
        };
        if is_ethernet(&link) && way.next_hop.is_ipv4() == address.is_ipv4() {
            found.uplinks.insert(way.ifindex);
            known.straight = Some(Straight {
                uplink: way.ifindex,
                next_hop: way.next_hop.into(),
                local: (*local).into(),
                port,
                says_ethernet: room.says_ethernet,
            });
        }
        found.paths.insert(*address, known);
    }
    Ok(found)
}

fn is_ethernet(link: &Link) -> bool {
    link.up && link.mac.is_some() && link.name != overlay::DEVICE
}
