//! Reads the tables of the datapath in the kernel, and records each lookup.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;

use agent_common::addr::{Ip16, MacAddr};
use agent_common::arrival::{self, Arrival, Origin};
use agent_common::endpoint::{ENDPOINT_GATEWAY, ENDPOINT_REMOTE, Endpoint, EndpointKey, FdbKey};
use agent_common::guard;
use agent_common::network::Network;
use agent_common::policy::{self, Decision, Scratch, Tables};
use agent_common::port::{Port, PortAddressKey};
use agent_common::route::{Route, RouteKey};
use agent_common::wire::{self, Incoming, WireKey};
use datapath::{DatapathError, GuardMaps};
use tables::Reconciler;

use super::question::Address;

/// One look into a table, by the policy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lookup {
    /// The network that it is in; 0 for none.
    pub(super) network: u32,
    /// By what.
    pub(super) key: Address,
    /// Entry that the lookup found.
    pub(super) found: Hit,
}

/// Result of a lookup.
#[derive(Debug, Clone, Copy)]
pub(super) enum Hit {
    /// `PORT_ADDRESSES`: whether it is a further address of the port.
    Further(bool),
    /// `ENDPOINTS` or `FDB`: where it is.
    At(Option<Endpoint>),
    /// `ROUTES`: the network to which the virtual gateway routes.
    Route(Option<Route>),
}

/// The maps, which the policy reads and this remembers.
pub(super) struct Live<'a> {
    tables: &'a Reconciler,
    /// Where further addresses of the port are filed.
    home: u32,
    lookups: RefCell<Vec<Lookup>>,
    failure: Cell<Option<DatapathError>>,
}

impl<'a> Live<'a> {
    pub(super) fn new(tables: &'a Reconciler, home: u32) -> Self {
        Self {
            tables,
            home,
            lookups: RefCell::default(),
            failure: Cell::new(None),
        }
    }

    fn look<T>(
        &self,
        look: impl FnOnce(&datapath::Tables) -> Result<Option<T>, DatapathError>,
    ) -> Option<T> {
        self.found(self.tables.look(look))
    }

    /// Looks into the maps of policies.
    pub(super) fn look_at_guards<T>(
        &self,
        look: impl FnOnce(&GuardMaps) -> Result<Option<T>, DatapathError>,
    ) -> Option<T> {
        self.found(self.tables.guards().look(look))
    }

    fn found<T>(&self, looked: Result<Option<T>, DatapathError>) -> Option<T> {
        looked.unwrap_or_else(|error| {
            self.failure.set(Some(error));
            None
        })
    }

    fn note(&self, network: u32, key: Address, found: Hit) {
        let lookup = Lookup {
            network,
            key,
            found,
        };
        self.lookups.borrow_mut().push(lookup);
    }

    /// Returns the value and the lookups, unless the kernel refused one.
    pub(super) fn end<T>(self, value: T) -> Result<(T, Vec<Lookup>), DatapathError> {
        match self.failure.into_inner() {
            Some(error) => Err(error),
            None => Ok((value, self.lookups.into_inner())),
        }
    }
}

impl Tables for Live<'_> {
    fn is_further_address(&self, ip: &Ip16) -> bool {
        let key = PortAddressKey {
            ifindex: self.home,
            ip: *ip,
        };
        let found = self
            .look(|tables| tables.port_addresses.get(&key))
            .is_some();
        self.note(0, Address::Ip((*ip).into()), Hit::Further(found));
        found
    }

    fn endpoint(&self, network: u32, ip: &Ip16) -> Option<Endpoint> {
        let key = EndpointKey { network, ip: *ip };
        let found = self.look(|tables| tables.endpoints.get(&key));
        self.note(network, Address::Ip((*ip).into()), Hit::At(found));
        found
    }

    fn route(&self, network: u32, ip: &Ip16) -> Option<Route> {
        let key = RouteKey::of(network, *ip);
        let found = self.look(|tables| tables.routes.get(&key));
        self.note(network, Address::Ip((*ip).into()), Hit::Route(found));
        found
    }

    fn station(&self, network: u32, mac: MacAddr) -> Option<Endpoint> {
        let key = FdbKey::new(network, mac);
        let found = self.look(|tables| tables.fdb.get(&key));
        self.note(network, Address::Mac(mac), Hit::At(found));
        found
    }

    fn has_vlan(&self, network: u32, id: u16) -> bool {
        let key = WireKey::trunk(network, id);
        self.look(|tables| tables.wires.get(&key)).is_some()
    }

    fn has_subnet(&self, network: u32, first: &Ip16, length: u8) -> bool {
        let key = WireKey::subnet(network, *first, length);
        self.look(|tables| tables.wires.get(&key)).is_some()
    }

    fn has_ether_type(&self, network: u32, ether_type: u16) -> bool {
        let key = WireKey::ether_type(network, ether_type);
        self.look(|tables| tables.wires.get(&key)).is_some()
    }
}

/// Decides about a frame of this port, as the programs do.
///
/// Returns the receiver's network, too, and the MTU there if it is another.
///
/// # Errors
/// When the kernel does not tell what is in a map.
pub(super) fn decide(
    tables: &Reconciler,
    frame: &[u8],
    port: &Port,
) -> Result<((Decision, Route), Vec<Lookup>), DatapathError> {
    let live = Live::new(tables, port.home);
    let mut scratch = Scratch::EMPTY;
    let act = policy::decide_in(frame, port, &live, &mut scratch);
    let way = Route {
        network: guard::receiver_network(port, act, &scratch),
        ..scratch.route
    };
    live.end((act.with(&scratch), way))
}

/// Decides about a frame from another node, as the programs do.
///
/// # Errors
/// When the kernel does not tell what is in a map.
pub(super) fn arrive(
    tables: &Reconciler,
    frame: &[u8],
    network: &Network,
    origin: Origin,
) -> Result<(Arrival, Vec<Lookup>), DatapathError> {
    let live = Live::new(tables, 0);
    let arrival = arrival::arrive(frame, network, origin, &live);
    live.end(arrival)
}

/// Decides about a frame from the network's uplink, as the programs do.
///
/// # Errors
/// When the kernel does not tell what is in a map.
pub(super) fn incoming(
    tables: &Reconciler,
    frame: &[u8],
    network: &Network,
    number: u32,
) -> Result<(Incoming, Vec<Lookup>), DatapathError> {
    let live = Live::new(tables, 0);
    let incoming = wire::incoming(frame, network, number, &live);
    live.end(incoming)
}

/// Whether an address is in a subnet of the network, as the uplink's program sees.
///
/// # Errors
/// When the kernel does not tell what is in a map.
pub(super) fn is_own(
    tables: &Reconciler,
    network: &Network,
    number: u32,
    ip: IpAddr,
) -> Result<bool, DatapathError> {
    let live = Live::new(tables, 0);
    let own = wire::is_own(network, number, &Ip16::from(ip), &live);
    live.end(own).map(|(own, _)| own)
}

/// Number of this node as the other one is supposed to have it.
const SELF: u32 = u32::MAX;

/// Tables of another node, derived from those of this one.
///
/// Its local endpoints are remote here, and local ones here are remote there.
struct Mirrored<'a> {
    live: Live<'a>,
    /// The other node.
    there: u32,
    /// The network of the sender.
    from: u32,
}

impl Mirrored<'_> {
    fn turn(&self, endpoint: Endpoint) -> Endpoint {
        if endpoint.flags & ENDPOINT_GATEWAY != 0 {
            return endpoint;
        }
        if endpoint.flags & ENDPOINT_REMOTE == 0 {
            return Endpoint {
                ifindex: SELF,
                flags: ENDPOINT_REMOTE,
                ..endpoint
            };
        }
        let flags = if endpoint.ifindex == self.there {
            0
        } else {
            ENDPOINT_REMOTE
        };
        Endpoint { flags, ..endpoint }
    }
}

impl Tables for Mirrored<'_> {
    fn is_further_address(&self, ip: &Ip16) -> bool {
        self.live.is_further_address(ip)
    }

    fn endpoint(&self, network: u32, ip: &Ip16) -> Option<Endpoint> {
        self.live.endpoint(network, ip).map(|it| self.turn(it))
    }

    /// Its gateway leads to where the packet is from, as this one's leads there.
    fn route(&self, network: u32, _: &Ip16) -> Option<Route> {
        (network != self.from).then_some(Route {
            network: self.from,
            mtu: 0,
        })
    }

    fn station(&self, network: u32, mac: MacAddr) -> Option<Endpoint> {
        self.live.station(network, mac).map(|it| self.turn(it))
    }

    fn has_vlan(&self, network: u32, id: u16) -> bool {
        self.live.has_vlan(network, id)
    }
}

/// Decides on another node about a frame from this one.
///
/// It holds when that node's tables agree with these.
///
/// # Errors
/// When the kernel does not tell what is in a map.
pub(super) fn arrive_there(
    tables: &Reconciler,
    frame: &[u8],
    network: &Network,
    (number, there, from): (u32, u32, u32),
) -> Result<Arrival, DatapathError> {
    let mirrored = Mirrored {
        live: Live::new(tables, 0),
        there,
        from,
    };
    let origin = Origin {
        network: number,
        vtep: SELF,
    };
    let arrival = arrival::arrive(frame, network, origin, &mirrored);
    mirrored.live.end(arrival).map(|(arrival, _)| arrival)
}
