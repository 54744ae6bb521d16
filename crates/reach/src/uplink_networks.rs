//! Networks that leave the node by an uplink as they are.
//!
//! The module has the interface, the share of each network in it, and the routers on it that lead to
//! other nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use agent_common::uplink::{UPLINK_EVERY_FRAME, UPLINK_WIRES, Uplink};
use book::Book;
use book::record::NetworkFacts;
use datapath::DatapathError;
use host::{ALIAS_PREFIX, HOST_PREFIX, Host, HostError};
use locks::{Guard, Rank, Ranked};
use netdev::{Connection, Link, RouteKind};
use remotes::Remotes;
use tables::Reconciler;
use tables::surroundings::{Hops, Routers};
use telemetry::chain;

use crate::uplinks::{UplinkError, Uplinks, User, Wanted};

/// Why a network cannot have its uplink.
#[derive(Debug, thiserror::Error)]
pub enum UplinkNetworkError {
    /// There is no such interface.
    #[error(
        "network {network} has uplink {uplink}, and this node has no interface of that name: correct spec.transport.uplink of its PodNetworkParameters, or make the interface"
    )]
    NoInterface {
        /// The network.
        network: String,
        /// The interface.
        uplink: String,
    },
    /// The interface is one of podnet.
    #[error(
        "network {network} has uplink {uplink}, which is podnet's own: choose another for spec.transport.uplink of its PodNetworkParameters"
    )]
    Own {
        /// The network.
        network: String,
        /// The interface.
        uplink: String,
    },
    /// Ethernet frames cannot leave by the interface.
    #[error(
        "network {network} has uplink {uplink}, which is no Ethernet interface: choose another for spec.transport.uplink of its PodNetworkParameters"
    )]
    NoEthernet {
        /// The network.
        network: String,
        /// The interface.
        uplink: String,
    },
    /// Packets of the network would not fit.
    #[error(
        "network {network} has mtu {mtu} and its uplink {uplink} carries {underlay}: set spec.mtu of its PodNetworkParameters to {underlay} or less, or raise the MTU of {uplink}"
    )]
    TooBig {
        /// The network.
        network: String,
        /// Its MTU, bytes.
        mtu: u16,
        /// The interface.
        uplink: String,
        /// Its MTU, bytes.
        underlay: u32,
    },
    /// Packets for the node would be taken for a pod's.
    #[error(
        "network {network} has subnet {prefix}, where this node has its own address {address}: choose another for spec.subnets of its PodNetworkParameters"
    )]
    NodeAddress {
        /// The network.
        network: String,
        /// The subnet.
        prefix: api::Prefix,
        /// The address.
        address: IpAddr,
    },
    /// The interfaces are not as they should be.
    #[error(transparent)]
    Uplinks(#[from] UplinkError),
    /// The kernel refused.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl From<netdev::Error> for UplinkNetworkError {
    fn from(error: netdev::Error) -> Self {
        HostError::from(error).into()
    }
}

impl From<DatapathError> for UplinkNetworkError {
    fn from(error: DatapathError) -> Self {
        HostError::from(error).into()
    }
}

/// Metric of an IPv6 route that has none (`IP6_RT_PRIO_USER`, `net/ip6_route.h`).
const IPV6_METRIC: u32 = 1024;

/// State of uplinks.
#[derive(Debug)]
pub struct UplinkNetworks {
    host: Arc<Host>,
    book: Arc<Book>,
    tables: Arc<Reconciler>,
    remotes: Arc<Remotes>,
    uplinks: Arc<Uplinks>,
    state: Ranked<State>,
    /// One at a time looks.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Indexes of uplinks that networks need and that are there, by name.
    uplinks: BTreeMap<String, u32>,
    /// Names that networks need.
    needed: BTreeSet<String>,
    /// Next hops to other nodes; a missing node has not been looked for yet.
    hops: Arc<Hops>,
    /// Default routers of the node, by the uplink that networks leave by.
    ///
    /// A missing uplink has not been looked at yet.
    routers: BTreeMap<String, Routers>,
}

impl UplinkNetworks {
    /// Hold what is needed; no uplink is known yet.
    pub fn new(
        host: Arc<Host>,
        book: Arc<Book>,
        tables: Arc<Reconciler>,
        remotes: Arc<Remotes>,
        uplinks: Arc<Uplinks>,
    ) -> Self {
        Self {
            host,
            book,
            tables,
            remotes,
            uplinks,
            state: Ranked::new(Rank::Feature, State::default()),
            turn: tokio::sync::Mutex::default(),
        }
    }

    fn lock(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    /// Whether what became of this interface concerns a network.
    pub fn concerns(&self, name: &str, ifindex: u32, is_there: bool) -> bool {
        let state = self.lock();
        let known = state.uplinks.get(name).copied();
        // Renamed away is gone, too.
        let other = state
            .uplinks
            .iter()
            .any(|(it, index)| *index == ifindex && it != name);
        let stale = if is_there {
            known != Some(ifindex)
        } else {
            known == Some(ifindex)
        };
        other || (state.needed.contains(name) && stale)
    }

    /// Makes sure that a network can have its uplink.
    ///
    /// # Errors
    /// [`UplinkNetworkError`], or when the kernel does not tell.
    pub async fn admit(&self, network: &api::Network) -> Result<(), UplinkNetworkError> {
        let Some(wire) = network.wire.clone() else {
            return Ok(());
        };
        let name = wire.uplink.clone();
        let all_addresses = wire.is_routed();
        let look = move |connection: &mut Connection| -> Result<_, netdev::Error> {
            let link = connection.by_name(&name)?;
            let addresses = if all_addresses {
                connection.all_addresses()?
            } else {
                Vec::new()
            };
            Ok((link, addresses))
        };
        let (link, addresses) = self.host.netlink.with(look).await?;
        let (name, uplink) = (network.name.clone(), wire.uplink);
        let Some(link) = link else {
            return Err(UplinkNetworkError::NoInterface {
                network: name,
                uplink,
            });
        };
        match fitness(&link) {
            Fitness::Fit => {}
            Fitness::Own => {
                return Err(UplinkNetworkError::Own {
                    network: name,
                    uplink,
                });
            }
            Fitness::NoEthernet => {
                return Err(UplinkNetworkError::NoEthernet {
                    network: name,
                    uplink,
                });
            }
        }
        // The tag of a VLAN is beyond the MTU: devices have room for it.
        if u32::from(network.mtu) > link.mtu {
            return Err(UplinkNetworkError::TooBig {
                network: name,
                mtu: network.mtu,
                uplink,
                underlay: link.mtu,
            });
        }
        for subnet in &network.subnets {
            let inside = addresses.iter().find(|ip| subnet.prefix.contains(*ip));
            if let Some(address) = inside {
                return Err(UplinkNetworkError::NodeAddress {
                    network: name,
                    prefix: subnet.prefix,
                    address: *address,
                });
            }
        }
        Ok(())
    }

    /// Finds uplinks and next hops, attaches the program, and updates the tables.
    ///
    /// The uplinks are those of all networks in use, the next hops those to other nodes.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn plug(&self) -> Result<(), UplinkNetworkError> {
        let hops = self.find_hops().await;
        let plugged = self.plug_uplinks(matches!(hops, Ok(true))).await;
        hops?;
        plugged
    }

    /// Finds the uplinks, and reconciles networks whose uplink has moved.
    ///
    /// With `routed`, reconciles routed networks too.
    async fn plug_uplinks(&self, routed: bool) -> Result<(), UplinkNetworkError> {
        let plugged = self.find_uplinks().await;
        let (moved, plugged) = match plugged {
            Ok(moved) => (moved, Ok(())),
            Err((moved, error)) => (moved, Err(error)),
        };
        for facts in self.networks_on_wires() {
            let wire = facts.wire.as_ref();
            let has_moved = wire.is_some_and(|it| moved.contains(&it.uplink));
            if has_moved || (routed && facts.routed) {
                self.tables.reconcile(facts.id)?;
            }
        }
        plugged
    }

    /// Restores the uplinks, and logs a failure.
    ///
    /// The next hops to other nodes are followed with the paths of tunnels.
    pub async fn mend(&self) {
        if let Err(error) = self.plug_uplinks(false).await {
            tracing::error!(error = %chain(&error), "the uplinks of networks are not as they should be; the audit tries again");
        }
    }

    /// Finds the uplinks without an update of tables; returns the uplinks that moved.
    pub async fn find_uplinks(
        &self,
    ) -> Result<BTreeSet<String>, (BTreeSet<String>, UplinkNetworkError)> {
        let _alone = self.turn.lock().await;
        let mut needed: BTreeMap<String, u32> = BTreeMap::new();
        for facts in self.networks_on_wires() {
            let Some(wire) = facts.wire else { continue };
            let flags = needed.entry(wire.uplink.clone()).or_insert(UPLINK_WIRES);
            if !wire.is_routed() {
                *flags |= UPLINK_EVERY_FRAME;
            }
        }
        let names: Vec<String> = needed.keys().cloned().collect();
        let look = move |connection: &mut Connection| -> Result<_, netdev::Error> {
            let links = names.iter().map(|name| connection.by_name(name));
            links.collect::<Result<Vec<Option<Link>>, _>>()
        };
        let links = self.host.netlink.with(look).await;
        let links = links.map_err(|error| (BTreeSet::new(), error.into()))?;
        let usable = links
            .into_iter()
            .flatten()
            .filter(|it| fitness(it) == Fitness::Fit);
        let found: BTreeMap<String, u32> = usable.map(|it| (it.name, it.ifindex)).collect();
        let mut wanted = Wanted::new();
        for (name, ifindex) in &found {
            let flags = needed.get(name).copied().unwrap_or(0);
            wanted.insert(*ifindex, uplink(flags));
        }
        let moved = {
            let mut state = self.lock();
            let before = std::mem::replace(&mut state.uplinks, found.clone());
            let names = needed.keys().chain(before.keys());
            let moved: BTreeSet<String> = names
                .filter(|name| before.get(*name) != state.uplinks.get(*name))
                .cloned()
                .collect();
            for name in needed.keys().filter(|name| moved.contains(*name)) {
                match state.uplinks.get(name) {
                    Some(ifindex) => tracing::info!(
                        uplink = name,
                        ifindex,
                        "packets of networks leave the node by this uplink"
                    ),
                    None => tracing::error!(
                        uplink = name,
                        "the uplink is not there, and its networks are cut off: make the interface"
                    ),
                }
            }
            state.needed = needed.into_keys().collect();
            moved
        };
        self.tables.surroundings().set_uplinks(found);
        match self.uplinks.take_from(User::UplinkNetworks, wanted).await {
            Ok(()) => Ok(moved),
            Err(error) => Err((moved, error.into())),
        }
    }

    /// Asks the kernel for next hops to nodes with members; true on a change.
    ///
    /// Only members of routed networks count.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn find_hops(&self) -> Result<bool, UplinkNetworkError> {
        let _alone = self.turn.lock().await;
        let (mut nodes, mut uplinks) = (BTreeSet::new(), BTreeSet::new());
        for facts in self.networks_on_wires() {
            let Some(wire) = facts.wire else { continue };
            if facts.leaves_by_uplink {
                uplinks.insert(wire.uplink.clone());
            }
            if wire.is_routed() {
                let peers = self.remotes.peers(facts.id);
                nodes.extend(peers.iter().flat_map(|it| it.vteps.clone()));
            }
        }
        let look = move |connection: &mut Connection| -> Result<_, netdev::Error> {
            let mut hops = Hops::new();
            for node in nodes {
                let route = connection.route_to(node)?;
                let route = route.filter(|it| it.kind == RouteKind::Unicast);
                let hop = route.map(|it| (it.ifindex, it.gateway.unwrap_or(node)));
                hops.insert(node, hop);
            }
            let mut routers = BTreeMap::new();
            for uplink in uplinks {
                let found = routers_on(connection, &uplink)?;
                routers.insert(uplink, found);
            }
            Ok((hops, routers))
        };
        let (hops, routers) = self.host.netlink.with(look).await?;
        let (is_news, hops) = {
            let mut state = self.lock();
            let is_news = *state.hops != hops || state.routers != routers;
            if *state.hops != hops {
                state.hops = Arc::new(hops);
            }
            state.routers.clone_from(&routers);
            (is_news, Arc::clone(&state.hops))
        };
        self.tables.surroundings().set_hops(hops, routers);
        Ok(is_news)
    }

    /// Finds the next hops, logs a failure; returns routed networks on a change.
    pub async fn follow_hops(&self) -> BTreeSet<u32> {
        match self.find_hops().await {
            Ok(true) => {
                let networks = self.networks_on_wires().into_iter();
                networks.filter(|it| it.routed).map(|it| it.id).collect()
            }
            Ok(false) => BTreeSet::new(),
            Err(error) => {
                tracing::error!(error = %chain(&error), "the next hops to other nodes are not known yet; the audit tries again");
                BTreeSet::new()
            }
        }
    }

    /// One for each network that has an uplink and attachments, in whatever state.
    fn networks_on_wires(&self) -> Vec<NetworkFacts> {
        let ledger = self.book.ledger();
        let mut networks: BTreeMap<u32, &NetworkFacts> = BTreeMap::new();
        for facts in ledger.networks() {
            if facts.wire.is_some() {
                networks.entry(facts.id).or_insert(facts);
            }
        }
        networks.into_values().cloned().collect()
    }

    /// Restores the uplinks in a task of its own.
    ///
    /// A caller does so when an attachment has gone, or a link has changed.
    pub fn look(self: &Arc<Self>) {
        let networks = Arc::clone(self);
        tokio::spawn(async move { networks.mend().await });
    }
}

/// Next hops of the default routes out of an interface, preferred ones only.
fn routers_on(connection: &mut Connection, name: &str) -> Result<Routers, netdev::Error> {
    let Some(link) = connection.by_name(name)? else {
        return Ok(Routers::default());
    };
    let routes = connection.routes(link.ifindex)?;
    Ok([true, false].map(|v4| {
        let defaults = routes.iter();
        let defaults = defaults.filter(|it| it.prefix_len == 0 && it.dst.is_ipv4() == v4);
        let usual = if v4 { 0 } else { IPV6_METRIC };
        let best = defaults.min_by_key(|it| it.metric.unwrap_or(usual));
        // The kernel gives IPv6 packets to IPv6 neighbours only.
        best.and_then(|it| it.gateway)
            .filter(|it| v4 || it.is_ipv6())
    }))
}

const fn uplink(flags: u32) -> Uplink {
    Uplink {
        flags,
        ..Uplink::NOTHING
    }
}

/// Fitness of an interface as the uplink of networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fitness {
    Fit,
    Own,
    NoEthernet,
}

fn fitness(link: &Link) -> Fitness {
    let ours = link
        .alias
        .as_deref()
        .is_some_and(|it| it.starts_with(ALIAS_PREFIX));
    if ours || link.name.starts_with(HOST_PREFIX) {
        return Fitness::Own;
    }
    match link.mac {
        None | Some([0, 0, 0, 0, 0, 0]) => Fitness::NoEthernet,
        Some(_) => Fitness::Fit,
    }
}
