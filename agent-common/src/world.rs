//! Describe the node of the cases: its networks, ports and tables.
//!
//! Two L2 networks with one subnet, an L3 network, an L3 network that the node routes for, one with a way out,
//! two that lead to each other, an L2 network without addresses; and of networks with an uplink a VLAN, a trunk, and L3 networks over a VLAN
//! and behind routers.

mod pods;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use self::pods::{
    AMBER, AMBER_A, AMBER_B, AMBER_OUT, BEYOND, BLUE, BLUE_A, BLUE_B, BLUE_C, CORAL, CORAL_A,
    CORAL_OUT, ETHER_TYPE_OF_TEAL, GATEWAY_ON_AMBER, GATEWAY_ON_GREEN, GATEWAY_ON_JADE,
    GATEWAY_ON_WHITE, GREEN, GREEN_A, GREEN_B, GREEN_C, GREY, GREY_A, GREY_B, JADE, JADE_A, JADE_B,
    OCHRE, OCHRE_A, OLIVE, OLIVE_A, OUTSIDE, PEARL, PEARL_A, PEARL_MTU, PODS, Pod, RED, RED_A,
    RED_B, RED_D, SERVICE, STEEL, STEEL_A, STEEL_B, TEAL, TEAL_A, TEAL_B, TRUNK_VLANS, UPLINK,
    WHITE, WHITE_A, WHITE_B,
};
use self::pods::{MTU, ROUTER, coral_v6, jade_v6, pearl_v6};

use crate::addr::{GATEWAY_MAC, Ip16, MacAddr};
use crate::endpoint::{ENDPOINT_GATEWAY, ENDPOINT_SERVICE, Endpoint, EndpointKey, FdbKey};
use crate::flood::{FLOOD_CHUNK, FloodKey, FloodPorts};
use crate::network::{NETWORK_L3, NETWORK_NEXT_HOP, NETWORK_TRUNK, NETWORK_WIRE, Network};
use crate::policy::{Family, Tables};
use crate::port::{PORT_ANY_IP, PORT_L3, PORT_OUTSIDE, Port, PortAddressKey};
use crate::route::{Route, RouteKey};
use crate::wire::{NextHop, WireKey, outside};

/// UDP port of the nodes' tunnels (RFC 7348 section 8.1).
pub const TUNNEL_PORT: u16 = 4789;

impl Pod {
    /// The value in `PORTS`.
    pub fn port(&self) -> Port {
        Port {
            network: self.network,
            flags: self.flags,
            mac: self.mac,
            mtu: MTU,
            ip4: self.ip4.octets(),
            port_id: self.port_id,
            tunnel_port: TUNNEL_PORT,
            ip6: Ip16(self.ip6.octets()),
            link_local: Ip16(self.link_local().octets()),
            home: self.ifindex,
            shaper: 0,
        }
    }

    /// The value in `FDB` and `ENDPOINTS`.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            ifindex: self.ifindex,
            flags: self.endpoint_flags,
            mac: self.mac,
            port_id: self.port_id,
        }
    }

    /// The link-local address that belongs to its MAC address.
    pub fn link_local(&self) -> Ipv6Addr {
        self.mac.link_local()
    }

    /// Its second IPv4 address; unspecified for none.
    pub fn further_v4(&self) -> Ipv4Addr {
        let found = self.further.iter().find_map(|ip| match ip {
            IpAddr::V4(v4) => Some(*v4),
            IpAddr::V6(_) => None,
        });
        found.unwrap_or(Ipv4Addr::UNSPECIFIED)
    }

    /// Its second IPv6 address; unspecified for none.
    pub fn further_v6(&self) -> Ipv6Addr {
        let found = self.further.iter().find_map(|ip| match ip {
            IpAddr::V4(_) => None,
            IpAddr::V6(v6) => Some(*v6),
        });
        found.unwrap_or(Ipv6Addr::UNSPECIFIED)
    }

    /// Returns every address by which others find the pod.
    ///
    /// None where podnet does not know its addresses, and for the way out the unspecified one.
    pub fn addresses(&self) -> Vec<IpAddr> {
        if self.flags & PORT_ANY_IP != 0 {
            return Vec::new();
        }
        if self.flags & PORT_OUTSIDE != 0 {
            return vec![Ipv6Addr::UNSPECIFIED.into()];
        }
        let first = [self.ip4.into(), self.ip6.into(), self.link_local().into()];
        first
            .into_iter()
            .chain(self.further.iter().copied())
            .collect()
    }
}

/// The tables of the node, entry by entry as the maps hold them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    /// `PORTS`, by host-side ifindex.
    pub ports: BTreeMap<u32, Port>,
    /// `PORT_ADDRESSES`.
    pub port_addresses: BTreeMap<PortAddressKey, u32>,
    /// `FDB`.
    pub fdb: BTreeMap<FdbKey, Endpoint>,
    /// `ENDPOINTS`.
    pub endpoints: BTreeMap<EndpointKey, Endpoint>,
    /// `FLOOD`.
    pub flood: BTreeMap<FloodKey, FloodPorts>,
    /// `NETWORKS`, by number.
    pub networks: BTreeMap<u32, Network>,
    /// `WIRES`.
    pub wires: BTreeMap<WireKey, u32>,
    /// `NEXT_HOPS`.
    pub next_hops: BTreeMap<EndpointKey, NextHop>,
    /// `ROUTES`.
    pub routes: BTreeMap<RouteKey, Route>,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// The world of the cases.
    pub fn new() -> Self {
        Self::numbered(|pod| pod.ifindex)
    }

    /// The world with the host end of one link at another ifindex.
    pub fn with_pod_at(moved: &Pod, ifindex: u32) -> Self {
        Self::numbered(|pod| if pod == moved { ifindex } else { pod.ifindex })
    }

    fn numbered(number: impl Fn(&Pod) -> u32) -> Self {
        let mut world = Self {
            ports: BTreeMap::new(),
            port_addresses: BTreeMap::new(),
            fdb: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            flood: BTreeMap::new(),
            networks: BTreeMap::new(),
            wires: BTreeMap::new(),
            next_hops: BTreeMap::new(),
            routes: BTreeMap::new(),
        };
        for pod in PODS {
            let ifindex = number(pod);
            let endpoint = Endpoint {
                ifindex,
                ..pod.endpoint()
            };
            let port = Port {
                home: ifindex,
                ..pod.port()
            };
            world.ports.insert(ifindex, port);
            if pod.flags & PORT_L3 == 0 {
                world
                    .fdb
                    .insert(FdbKey::new(pod.network, pod.mac), endpoint);
                world.join(pod.network, ifindex);
            }
            for ip in pod.addresses() {
                let key = EndpointKey {
                    network: pod.network,
                    ip: ip.into(),
                };
                world.endpoints.insert(key, endpoint);
            }
            for ip in pod.further {
                world.port_addresses.insert(
                    PortAddressKey {
                        ifindex,
                        ip: (*ip).into(),
                    },
                    1,
                );
            }
        }
        let gateways = GATEWAY_ON_GREEN.map(|ip| (GREEN, ip));
        let gateways = gateways
            .into_iter()
            .chain(GATEWAY_ON_WHITE.map(|ip| (WHITE, ip)))
            .chain(GATEWAY_ON_AMBER.map(|ip| (AMBER, ip)))
            .chain(GATEWAY_ON_JADE.map(|ip| (JADE, ip)))
            .map(|at| (at, ENDPOINT_GATEWAY));
        let services = [GREEN, BLUE, AMBER].into_iter();
        let services = services
            .flat_map(|network| SERVICE.map(|ip| (network, ip)))
            .map(|at| (at, ENDPOINT_SERVICE));
        for ((network, ip), flags) in gateways.chain(services) {
            let gateway = Endpoint {
                ifindex: 0,
                flags,
                mac: GATEWAY_MAC,
                port_id: 0,
            };
            world.endpoints.insert(
                EndpointKey {
                    network,
                    ip: ip.into(),
                },
                gateway,
            );
        }
        world.plug();
        world.lead_across();
        world
    }

    /// Adds the networks at the uplink, and the hosts beyond it.
    fn plug(&mut self) {
        for (network, flags, vlan) in [
            (TEAL, 0, 100),
            (STEEL, NETWORK_TRUNK, 0),
            (OCHRE, NETWORK_L3, 200),
            (OLIVE, NETWORK_L3 | NETWORK_NEXT_HOP, 0),
        ] {
            let facts = Network {
                vlan,
                uplink: UPLINK,
                ..Network::new(NETWORK_WIRE | flags, MTU.into())
            };
            self.networks.insert(network, facts);
        }
        self.lead_outside();
        let listed = WireKey::ether_type(TEAL, ETHER_TYPE_OF_TEAL);
        self.wires.insert(listed, TEAL);
        for id in TRUNK_VLANS {
            self.wires.insert(WireKey::trunk(STEEL, id), STEEL);
        }
        for network in [OCHRE, OLIVE] {
            for ip in [IpAddr::V4(BEYOND.ip4), IpAddr::V6(BEYOND.ip6)] {
                let key = EndpointKey {
                    network,
                    ip: ip.into(),
                };
                self.endpoints.insert(key, BEYOND.endpoint());
                if network == OLIVE {
                    self.next_hops.insert(key, NextHop::new(&ROUTER.into()));
                }
            }
        }
    }

    /// Gives [`OLIVE`] its way to the outside, and its subnets.
    ///
    /// Packets for the subnets do not go that way.
    fn lead_outside(&mut self) {
        let at = |ip| EndpointKey { network: OLIVE, ip };
        self.endpoints.insert(at(Ip16::NONE), OUTSIDE.endpoint());
        for family in [Family::V4, Family::V6] {
            let hop = NextHop::new(&ROUTER.into());
            self.next_hops.insert(at(outside(family)), hop);
        }
        let subnets: [(IpAddr, u8); 2] = [
            (Ipv4Addr::new(10, 60, 0, 0).into(), 120),
            (Ipv6Addr::new(0xfd60, 0x60, 0, 0, 0, 0, 0, 0).into(), 64),
        ];
        for (index, (first, length)) in subnets.into_iter().enumerate() {
            self.wires
                .insert(WireKey::subnet(OLIVE, first.into(), length), OLIVE);
            let network = self.networks.get_mut(&OLIVE);
            if let Some(slot) = network.and_then(|it| it.subnets.get_mut(index)) {
                *slot = length;
            }
        }
    }

    /// Has [`CORAL`] and [`PEARL`] lead to each other.
    ///
    /// Nothing has the rest of their prefix.
    fn lead_across(&mut self) {
        let of_prefix = |ip: IpAddr, length| (Ip16::from(ip), length);
        let all = of_prefix(Ipv4Addr::new(10, 64, 0, 0).into(), 96 + 10);
        let coral = of_prefix(Ipv4Addr::new(10, 70, 0, 0).into(), 96 + 24);
        let pearl = of_prefix(Ipv4Addr::new(10, 71, 0, 0).into(), 96 + 24);
        let coral_v6 = of_prefix(coral_v6(0).into(), 64);
        let pearl_v6 = of_prefix(pearl_v6(0).into(), 64);
        let jade = of_prefix(Ipv4Addr::new(10, 73, 0, 0).into(), 96 + 24);
        let jade_v6 = of_prefix(jade_v6(0).into(), 64);
        let green = of_prefix(Ipv4Addr::new(10, 20, 0, 0).into(), 96 + 24);
        let to = |network, mtu| Route { network, mtu };
        for (from, (ip, length), route) in [
            (CORAL, all, Route::NOWHERE),
            (CORAL, pearl, to(PEARL, PEARL_MTU)),
            // It does not lead back.
            (CORAL, green, to(GREEN, 0)),
            (CORAL, pearl_v6, to(PEARL, PEARL_MTU)),
            (PEARL, all, Route::NOWHERE),
            (PEARL, coral, to(CORAL, 0)),
            (PEARL, coral_v6, to(CORAL, 0)),
            (PEARL, jade, to(JADE, 0)),
            (PEARL, jade_v6, to(JADE, 0)),
            (JADE, all, Route::NOWHERE),
            (JADE, pearl, to(PEARL, PEARL_MTU)),
            (JADE, pearl_v6, to(PEARL, PEARL_MTU)),
        ] {
            self.routes.insert(RouteKey::new(from, ip, length), route);
        }
    }

    /// The route to an address: the one with the longest prefix.
    fn route(&self, network: u32, ip: &Ip16) -> Option<Route> {
        let of_network = self.routes.iter().filter(|(key, _)| key.network == network);
        let bits = |ip: &Ip16| u128::from_be_bytes(ip.0);
        let reached = of_network.filter(|(key, _)| {
            let length = key.length - 32;
            length == 0 || (bits(ip) ^ bits(&key.ip)) >> (128 - length) == 0
        });
        let longest = reached.max_by_key(|(key, _)| key.length);
        longest.map(|(_, route)| *route)
    }

    fn join(&mut self, network: u32, ifindex: u32) {
        let empty = FloodPorts {
            count: 0,
            total: 0,
            network,
            ifindexes: [0; FLOOD_CHUNK],
            network_again: network,
        };
        let ports = self
            .flood
            .entry(FloodKey { network, chunk: 0 })
            .or_insert(empty);
        if let Some(free) = ports.ifindexes.iter_mut().find(|ifindex| **ifindex == 0) {
            *free = ifindex;
            ports.count += 1;
            ports.total += 1;
        }
    }

    /// The tables as the port at `ifindex` may use them.
    pub fn seen_by(&self, ifindex: u32) -> View<'_> {
        View {
            world: self,
            ifindex,
        }
    }
}

/// The tables of a [`World`], as one port may use them.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    world: &'a World,
    ifindex: u32,
}

impl Tables for View<'_> {
    fn has_subnet(&self, network: u32, first: &Ip16, length: u8) -> bool {
        let key = WireKey::subnet(network, *first, length);
        self.world.wires.contains_key(&key)
    }

    fn has_vlan(&self, network: u32, id: u16) -> bool {
        self.world.wires.contains_key(&WireKey::trunk(network, id))
    }

    fn has_ether_type(&self, network: u32, ether_type: u16) -> bool {
        let key = WireKey::ether_type(network, ether_type);
        self.world.wires.contains_key(&key)
    }

    fn is_further_address(&self, ip: &Ip16) -> bool {
        let key = PortAddressKey {
            ifindex: self.ifindex,
            ip: *ip,
        };
        self.world.port_addresses.contains_key(&key)
    }

    fn endpoint(&self, network: u32, ip: &Ip16) -> Option<Endpoint> {
        self.world
            .endpoints
            .get(&EndpointKey { network, ip: *ip })
            .copied()
    }

    fn route(&self, network: u32, ip: &Ip16) -> Option<Route> {
        self.world.route(network, ip)
    }

    fn station(&self, network: u32, mac: MacAddr) -> Option<Endpoint> {
        self.world.fdb.get(&FdbKey::new(network, mac)).copied()
    }
}
