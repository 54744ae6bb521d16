//! Inputs of the tables that are no records.
//!
//! They are tunnels, routes of the underlay, uplinks, ways out, and the members that other nodes have.
//!
//! The owner of an input sets it as a whole when it changes, and then has the tables of the networks
//! concerned written. The writer of the tables is the only reader, and reads under the tables' lock: what
//! is written later was read later. The locks here are taken last ([`Rank::Feature`]), so an owner holds
//! no other of that rank when it sets its input.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use agent_common::addr::{Ip16, MacAddr};
use agent_common::vtep::Straight;
use book::record::NetworkFacts;
use locks::{Guard, Rank, Ranked};
use tokio::sync::watch;

use super::beyond::{Others, Reach};
use crate::guards::Marks;
use crate::routes::{self, AllRoutes, Routes};
use remotes::Remotes;

/// Paths to other nodes, by the address of the node.
pub type UnderlayPaths = BTreeMap<IpAddr, UnderlayPath>;

/// A path of the underlay to another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnderlayPath {
    /// Facts with which the programs encapsulate themselves.
    pub straight: Option<Straight>,
    /// Largest L3 packet that a tunnel carries on it, bytes.
    pub mtu: u32,
}

/// Next hops to other nodes, the interface and the router or the node itself.
///
/// `None` without a route.
pub type Hops = BTreeMap<IpAddr, Option<(u32, IpAddr)>>;

/// Default routers by IPv4 and by IPv6, on one link.
pub type Routers = [Option<IpAddr>; 2];

/// The way out of a network on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WayOut {
    /// The port of the gateway, in the node's namespace.
    pub ifindex: u32,
    /// MAC address of the gateway.
    pub mac: MacAddr,
}

/// The inputs; see the module.
#[derive(Debug)]
pub struct Surroundings {
    remotes: Arc<Remotes>,
    /// How often the marks of any network were changed.
    marked: watch::Sender<u64>,
    given: Ranked<Given>,
}

#[derive(Debug, Default)]
struct Given {
    /// Index of the tunnel device; 0 before it was needed.
    device: u32,
    underlay: Arc<UnderlayPaths>,
    ways_out: BTreeMap<u32, WayOut>,
    /// Indexes of the uplinks that are there.
    uplinks: BTreeMap<String, u32>,
    /// Without an entry a node has not been looked for yet.
    hops: Arc<Hops>,
    /// By uplink; without an entry one has not been looked for yet.
    routers: BTreeMap<String, Routers>,
    /// Ports that XDP gives no frames, by their IDs.
    unsteered: BTreeSet<u16>,
    /// Ports of which policies speak, by network.
    marks: BTreeMap<u32, Arc<Marks>>,
    /// Addresses of Services, by network.
    services: BTreeMap<u32, Arc<BTreeSet<Ip16>>>,
    /// Routes of virtual gateways to other networks.
    routes: AllRoutes,
    /// The networks to which these lead.
    reached: BTreeSet<u32>,
}

impl Surroundings {
    /// Nothing is there yet but what other nodes say.
    pub(super) fn new(remotes: Arc<Remotes>) -> Self {
        Self {
            remotes,
            marked: watch::Sender::new(0),
            given: Ranked::new(Rank::Feature, Given::default()),
        }
    }

    fn given(&self) -> Guard<'_, Given> {
        self.given.lock()
    }

    /// Sets the index of the tunnel device.
    pub fn set_tunnels(&self, device: u32) {
        self.given().device = device;
    }

    /// Sets the paths to other nodes.
    ///
    /// The caller writes those to nodes in the tables.
    pub(super) fn set_underlay(&self, paths: UnderlayPaths) -> Arc<UnderlayPaths> {
        let paths = Arc::new(paths);
        self.given().underlay = Arc::clone(&paths);
        paths
    }

    /// Sets the way out of a network.
    pub fn set_way_out(&self, network: u32, way_out: WayOut) {
        self.given().ways_out.insert(network, way_out);
    }

    /// Removes the ways out of all networks but these.
    pub fn keep_ways_out(&self, networks: &BTreeSet<u32>) {
        let mut given = self.given();
        given
            .ways_out
            .retain(|network, _| networks.contains(network));
    }

    /// Sets the uplinks that are there, by name.
    pub fn set_uplinks(&self, uplinks: BTreeMap<String, u32>) {
        self.given().uplinks = uplinks;
    }

    /// Sets the next hops to other nodes, and the default routers on uplinks.
    pub fn set_hops(&self, hops: Arc<Hops>, routers: BTreeMap<String, Routers>) {
        let mut given = self.given();
        given.hops = hops;
        given.routers = routers;
    }

    /// Has XDP give a port no frames, which a capture would not see, or do so again.
    ///
    /// Frames that go by the port's interface are not concerned.
    pub(super) fn set_unsteered(&self, port_id: u16, unsteered: bool) {
        let mut given = self.given();
        if unsteered {
            given.unsteered.insert(port_id);
        } else {
            given.unsteered.remove(&port_id);
        }
    }

    /// Sets the ports of a network of which policies speak; returns the earlier marks.
    pub(super) fn set_marks(&self, network: u32, marks: Marks) -> Arc<Marks> {
        let marks = Arc::new(marks);
        let before = {
            let mut given = self.given();
            match *marks == Marks::default() {
                true => given.marks.remove(&network),
                false => given.marks.insert(network, Arc::clone(&marks)),
            }
        };
        let before = before.unwrap_or_default();
        if before != marks {
            self.marked.send_modify(|version| *version += 1);
        }
        before
    }

    /// Adds a port of which policies speak, and says whether it gets no frames for all.
    pub(super) fn add_mark(&self, network: u32, port: u16, closed: bool) {
        let mut given = self.given();
        let marks = Arc::make_mut(given.marks.entry(network).or_default());
        marks.guarded.insert(port);
        if closed {
            marks.closed.insert(port);
        }
    }

    /// Tells of each change of ports of which policies speak.
    pub fn marks_changes(&self) -> watch::Receiver<u64> {
        self.marked.subscribe()
    }

    /// True for a port of a network of which policies speak.
    pub fn is_guarded(&self, network: u32, port_id: u16) -> bool {
        let given = self.given();
        let marks = given.marks.get(&network);
        marks.is_some_and(|marks| marks.guarded.contains(&port_id))
    }

    /// The ports of a network of which policies speak.
    pub(super) fn marks(&self, network: u32) -> Arc<Marks> {
        self.given()
            .marks
            .get(&network)
            .cloned()
            .unwrap_or_default()
    }

    /// Sets the addresses of a network's Services; returns the earlier ones.
    pub(super) fn set_services(
        &self,
        network: u32,
        addresses: BTreeSet<Ip16>,
    ) -> Arc<BTreeSet<Ip16>> {
        let before = {
            let mut given = self.given();
            match addresses.is_empty() {
                true => given.services.remove(&network),
                false => given.services.insert(network, Arc::new(addresses)),
            }
        };
        let before = before.unwrap_or_default();
        if before.is_empty() != self.services(network).is_empty() {
            self.marked.send_modify(|version| *version += 1);
        }
        before
    }

    /// The addresses of a network's Services.
    pub(super) fn services(&self, network: u32) -> Arc<BTreeSet<Ip16>> {
        let given = self.given();
        given.services.get(&network).cloned().unwrap_or_default()
    }

    /// True for a network that has Services.
    pub fn is_served(&self, network: u32) -> bool {
        self.given().services.contains_key(&network)
    }

    /// The networks that have Services.
    pub(super) fn served(&self) -> BTreeSet<u32> {
        self.given().services.keys().copied().collect()
    }

    /// Sets the routes of all virtual gateways to other networks.
    ///
    /// Returns the networks of which the tables have to be written.
    pub fn set_routes(&self, routes: AllRoutes) -> BTreeSet<u32> {
        let mut given = self.given();
        let changed = routes::changed(&given.routes, &routes);
        given.reached = routes::reached(&routes);
        given.routes = routes;
        changed
    }

    /// The routes of all virtual gateways to other networks.
    pub fn all_routes(&self) -> AllRoutes {
        self.given().routes.clone()
    }

    /// The routes of a network's virtual gateway.
    pub(super) fn routes(&self, network: u32) -> Arc<Routes> {
        let given = self.given();
        given.routes.get(&network).cloned().unwrap_or_default()
    }

    /// Ports that XDP gives no frames.
    pub(super) fn unsteered(&self) -> BTreeSet<u16> {
        self.given().unsteered.clone()
    }

    /// Puts the members of a network together, and keeps them.
    ///
    /// It takes long where there are many.
    pub(super) fn prepare(&self, network: u32) {
        self.remotes.resolved(network);
    }

    /// The inputs of one network, which is this.
    pub(super) fn of(&self, network: u32, facts: Option<&NetworkFacts>) -> Others {
        let others = match facts.and_then(|facts| Some((facts, facts.wire.as_ref()?))) {
            Some((facts, wire)) => self.on_wire(facts, wire),
            None => self.in_tunnels(network),
        };
        Others {
            unsteered: self.unsteered(),
            marks: self.marks(network),
            services: self.services(network),
            routes: self.routes(network),
            reached: self.given().reached.contains(&network),
            ..others
        }
    }

    fn in_tunnels(&self, network: u32) -> Others {
        let (device, paths, way_out) = {
            let given = self.given();
            let way_out = given.ways_out.get(&network).copied();
            (given.device, Arc::clone(&given.underlay), way_out)
        };
        if device == 0 {
            return Others {
                way_out,
                ..Others::default()
            };
        }
        Others {
            said: self.remotes.resolved(network),
            reach: Reach::Tunnels {
                device,
                own: self.remotes.vteps(),
            },
            paths,
            complete: self.remotes.is_complete(),
            way_out,
            ..Others::default()
        }
    }

    fn on_wire(&self, facts: &NetworkFacts, wire: &api::Wire) -> Others {
        // On a segment each member answers for itself.
        let resolved = || self.remotes.resolved(facts.id);
        let said = facts.routed.then(resolved).flatten();
        let given = self.given();
        let is_known = |vtep: &IpAddr| given.hops.contains_key(vtep);
        let peers = said.iter().flat_map(|it| &it.peers);
        let mut vteps = peers.flat_map(|it| &it.vteps);
        // Whether the way to all of it is known.
        let hops_known = !wire.is_routed() || vteps.all(is_known);
        let routers = given.routers.get(&wire.uplink).copied();
        let routers_known = !facts.leaves_by_uplink || routers.is_some();
        Others {
            reach: Reach::Wire {
                uplink: given.uplinks.get(&wire.uplink).copied().unwrap_or(0),
                hops: Arc::clone(&given.hops),
                routers: routers.unwrap_or_default(),
            },
            complete: hops_known && routers_known && self.remotes.is_complete(),
            way_out: given.ways_out.get(&facts.id).copied(),
            said,
            ..Others::default()
        }
    }
}

#[cfg(test)]
mod tests;
