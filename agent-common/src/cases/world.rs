//! The node of the cases: two L2 networks with one subnet, an L3 network, an L3 network that the
//! node routes for, one with a way out, an L2 network without addresses; and of those with an uplink a
//! VLAN, a trunk, and L3 networks over a VLAN and behind routers.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::addr::{GATEWAY_MAC, GATEWAY_V6, Ip16, MacAddr};
use crate::endpoint::{
    ENDPOINT_GATEWAY, ENDPOINT_NO_PEER, ENDPOINT_OUTSIDE, ENDPOINT_REMOTE, ENDPOINT_WIRE, Endpoint,
    EndpointKey, FdbKey,
};
use crate::flood::{FLOOD_CHUNK, FloodKey, FloodPorts};
use crate::network::{NETWORK_L3, NETWORK_NEXT_HOP, NETWORK_TRUNK, NETWORK_WIRE, Network};
use crate::policy::Tables;
use crate::port::{
    PORT_ANY_IP, PORT_EGRESS, PORT_L3, PORT_MORE_IPS, PORT_NODE, PORT_OUTSIDE, PORT_SPREAD,
    PORT_TRUNK, PORT_WIRE, Port, PortAddressKey,
};
use crate::wire::{NextHop, WireKey};

/// An L2 network, 10.10.0.0/24 and fd10:10::/64.
pub const BLUE: u32 = 1001;
/// An L2 network with the subnets of [`BLUE`].
pub const RED: u32 = 1002;
/// An L3 network, 10.20.0.0/24 and fd20:20::/64.
pub const GREEN: u32 = 2001;
/// An L3 network that the node routes for, 10.30.0.0/24 and fd30:30::/64.
pub const WHITE: u32 = 3001;
/// An L3 network with a way out, 10.40.0.0/24 and fd40:40::/64.
pub const AMBER: u32 = 4001;
/// An L2 network that is VLAN 100 of [`UPLINK`], 10.50.0.0/24 and fd50:50::/64.
pub const TEAL: u32 = 5001;
/// A trunk of [`UPLINK`], of [`TRUNK_VLANS`].
pub const STEEL: u32 = 5002;
/// An L3 network over VLAN 200 of [`UPLINK`], 10.60.0.0/24 and fd60:60::/64.
pub const OCHRE: u32 = 5003;
/// An L3 network whose nodes routers on [`UPLINK`] lead to, with the subnets of [`OCHRE`].
pub const OLIVE: u32 = 5004;
/// The VLANs of [`STEEL`].
pub const TRUNK_VLANS: [u16; 2] = [300, 302];
/// Index of the uplink.
pub const UPLINK: u32 = 90;
/// An L2 network whose addresses podnet does not know.
pub const GREY: u32 = 16_777_215;

/// A pod's end of one network.
#[derive(Debug, PartialEq, Eq)]
pub struct Pod {
    /// Network and a letter.
    pub name: &'static str,
    /// Network it is on.
    pub network: u32,
    /// Host end of its link.
    pub ifindex: u32,
    /// Index of its counters.
    pub port_id: u16,
    /// `PORT_*` flags.
    pub flags: u32,
    /// `ENDPOINT_*` flags.
    pub endpoint_flags: u32,
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its first IPv4 address; unspecified for none.
    pub ip4: Ipv4Addr,
    /// Its first IPv6 address; unspecified for none.
    pub ip6: Ipv6Addr,
    /// Its other addresses.
    pub further: &'static [IpAddr],
}

/// Largest L3 packet on every network of the world.
const MTU: u16 = 1500;

const NOBODY: Pod = Pod {
    name: "",
    network: 0,
    ifindex: 0,
    port_id: 0,
    flags: 0,
    endpoint_flags: 0,
    mac: MacAddr([0; 6]),
    ip4: Ipv4Addr::UNSPECIFIED,
    ip6: Ipv6Addr::UNSPECIFIED,
    further: &[],
};

const fn l2_v6(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd10, 0x10, 0, 0, 0, 0, 0, host)
}

const fn l3_v6(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd20, 0x20, 0, 0, 0, 0, 0, host)
}

const fn node_v6(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd30, 0x30, 0, 0, 0, 0, 0, host)
}

const fn egress_v6(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd40, 0x40, 0, 0, 0, 0, 0, host)
}

const fn vlan_v6(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd50, 0x50, 0, 0, 0, 0, 0, host)
}

const fn wired_v6(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd60, 0x60, 0, 0, 0, 0, 0, host)
}

/// On [`BLUE`].
pub static BLUE_A: Pod = Pod {
    name: "blue-a",
    network: BLUE,
    ifindex: 11,
    port_id: 11,
    mac: MacAddr([2, 0, 0, 0, 0x0b, 0x0a]),
    ip4: Ipv4Addr::new(10, 10, 0, 11),
    ip6: l2_v6(0x11),
    ..NOBODY
};
/// On [`BLUE`].
pub static BLUE_B: Pod = Pod {
    name: "blue-b",
    network: BLUE,
    ifindex: 12,
    port_id: 12,
    mac: MacAddr([2, 0, 0, 0, 0x0b, 0x0b]),
    ip4: Ipv4Addr::new(10, 10, 0, 12),
    ip6: l2_v6(0x12),
    ..NOBODY
};
/// On [`BLUE`], with two addresses of each family, reached by the host end of its link.
pub static BLUE_C: Pod = Pod {
    name: "blue-c",
    network: BLUE,
    ifindex: 13,
    port_id: 13,
    flags: PORT_MORE_IPS,
    endpoint_flags: ENDPOINT_NO_PEER,
    mac: MacAddr([2, 0, 0, 0, 0x0b, 0x0c]),
    ip4: Ipv4Addr::new(10, 10, 0, 13),
    ip6: l2_v6(0x13),
    further: &[
        IpAddr::V4(Ipv4Addr::new(10, 10, 0, 113)),
        IpAddr::V6(l2_v6(0x113)),
    ],
};
/// On [`RED`], with the addresses of [`BLUE_A`].
pub static RED_A: Pod = Pod {
    name: "red-a",
    network: RED,
    ifindex: 21,
    port_id: 21,
    mac: MacAddr([2, 0, 0, 0, 0x0d, 0x0a]),
    ip4: Ipv4Addr::new(10, 10, 0, 11),
    ip6: l2_v6(0x11),
    ..NOBODY
};
/// On [`RED`], with the MAC and IP addresses of [`BLUE_B`].
pub static RED_B: Pod = Pod {
    name: "red-b",
    network: RED,
    ifindex: 22,
    port_id: 22,
    mac: MacAddr([2, 0, 0, 0, 0x0b, 0x0b]),
    ip4: Ipv4Addr::new(10, 10, 0, 12),
    ip6: l2_v6(0x12),
    ..NOBODY
};
/// On [`RED`], with addresses that [`BLUE`] does not have.
pub static RED_D: Pod = Pod {
    name: "red-d",
    network: RED,
    ifindex: 24,
    port_id: 24,
    mac: MacAddr([2, 0, 0, 0, 0x0d, 0x0d]),
    ip4: Ipv4Addr::new(10, 10, 0, 14),
    ip6: l2_v6(0x14),
    ..NOBODY
};
/// On [`GREEN`]. Its port id is that of the gateway's endpoint: 0.
pub static GREEN_A: Pod = Pod {
    name: "green-a",
    network: GREEN,
    ifindex: 31,
    port_id: 0,
    flags: PORT_L3,
    mac: MacAddr([2, 0, 0, 0, 0x0e, 0x0a]),
    ip4: Ipv4Addr::new(10, 20, 0, 11),
    ip6: l3_v6(0x11),
    ..NOBODY
};
/// On [`GREEN`].
pub static GREEN_B: Pod = Pod {
    name: "green-b",
    network: GREEN,
    ifindex: 32,
    port_id: 32,
    flags: PORT_L3,
    mac: MacAddr([2, 0, 0, 0, 0x0e, 0x0b]),
    ip4: Ipv4Addr::new(10, 20, 0, 12),
    ip6: l3_v6(0x12),
    ..NOBODY
};
/// On [`GREEN`], with two addresses of each family, reached by the host end of its link.
pub static GREEN_C: Pod = Pod {
    name: "green-c",
    network: GREEN,
    ifindex: 33,
    port_id: 33,
    flags: PORT_L3 | PORT_MORE_IPS,
    endpoint_flags: ENDPOINT_NO_PEER,
    mac: MacAddr([2, 0, 0, 0, 0x0e, 0x0c]),
    ip4: Ipv4Addr::new(10, 20, 0, 13),
    ip6: l3_v6(0x13),
    further: &[
        IpAddr::V4(Ipv4Addr::new(10, 20, 0, 113)),
        IpAddr::V6(l3_v6(0x113)),
    ],
};
/// On [`WHITE`].
pub static WHITE_A: Pod = Pod {
    name: "white-a",
    network: WHITE,
    ifindex: 51,
    port_id: 51,
    flags: PORT_L3 | PORT_NODE,
    endpoint_flags: ENDPOINT_NO_PEER,
    mac: MacAddr([2, 0, 0, 0, 0x0a, 0x0a]),
    ip4: Ipv4Addr::new(10, 30, 0, 11),
    ip6: node_v6(0x11),
    ..NOBODY
};
/// On [`WHITE`], with two addresses of each family.
pub static WHITE_B: Pod = Pod {
    name: "white-b",
    network: WHITE,
    ifindex: 52,
    port_id: 52,
    flags: PORT_L3 | PORT_NODE | PORT_MORE_IPS,
    endpoint_flags: ENDPOINT_NO_PEER,
    mac: MacAddr([2, 0, 0, 0, 0x0a, 0x0b]),
    ip4: Ipv4Addr::new(10, 30, 0, 12),
    ip6: node_v6(0x12),
    further: &[
        IpAddr::V4(Ipv4Addr::new(10, 30, 0, 112)),
        IpAddr::V6(node_v6(0x112)),
    ],
};
/// On [`AMBER`].
pub static AMBER_A: Pod = Pod {
    name: "amber-a",
    network: AMBER,
    ifindex: 61,
    port_id: 61,
    flags: PORT_L3 | PORT_EGRESS,
    mac: MacAddr([2, 0, 0, 0, 0x0c, 0x0a]),
    ip4: Ipv4Addr::new(10, 40, 0, 11),
    ip6: egress_v6(0x11),
    ..NOBODY
};
/// On [`AMBER`], with two addresses of each family, reached by the host end of its link.
pub static AMBER_B: Pod = Pod {
    name: "amber-b",
    network: AMBER,
    ifindex: 62,
    port_id: 62,
    flags: PORT_L3 | PORT_EGRESS | PORT_MORE_IPS,
    endpoint_flags: ENDPOINT_NO_PEER,
    mac: MacAddr([2, 0, 0, 0, 0x0c, 0x0b]),
    ip4: Ipv4Addr::new(10, 40, 0, 12),
    ip6: egress_v6(0x12),
    further: &[
        IpAddr::V4(Ipv4Addr::new(10, 40, 0, 112)),
        IpAddr::V6(egress_v6(0x112)),
    ],
};
/// The way out of [`AMBER`].
pub static AMBER_OUT: Pod = Pod {
    name: "amber-out",
    network: AMBER,
    ifindex: 63,
    port_id: 63,
    flags: PORT_L3 | PORT_OUTSIDE,
    endpoint_flags: ENDPOINT_OUTSIDE,
    mac: MacAddr([2, 0, 0, 0, 0x0c, 0x0c]),
    ..NOBODY
};
/// On [`GREY`].
pub static GREY_A: Pod = Pod {
    name: "grey-a",
    network: GREY,
    ifindex: 41,
    port_id: 41,
    flags: PORT_ANY_IP,
    mac: MacAddr([2, 0, 0, 0, 0x0f, 0x0a]),
    ..NOBODY
};
/// On [`GREY`].
pub static GREY_B: Pod = Pod {
    name: "grey-b",
    network: GREY,
    ifindex: 42,
    port_id: 42,
    flags: PORT_ANY_IP,
    mac: MacAddr([2, 0, 0, 0, 0x0f, 0x0b]),
    ..NOBODY
};
/// On [`TEAL`].
pub static TEAL_A: Pod = Pod {
    name: "teal-a",
    network: TEAL,
    ifindex: 71,
    port_id: 71,
    flags: PORT_WIRE | PORT_SPREAD,
    mac: MacAddr([2, 0, 0, 0, 0x10, 0x0a]),
    ip4: Ipv4Addr::new(10, 50, 0, 11),
    ip6: vlan_v6(0x11),
    ..NOBODY
};
/// On [`TEAL`].
pub static TEAL_B: Pod = Pod {
    name: "teal-b",
    network: TEAL,
    ifindex: 72,
    port_id: 72,
    flags: PORT_WIRE | PORT_SPREAD,
    mac: MacAddr([2, 0, 0, 0, 0x10, 0x0b]),
    ip4: Ipv4Addr::new(10, 50, 0, 12),
    ip6: vlan_v6(0x12),
    ..NOBODY
};
/// On [`STEEL`].
pub static STEEL_A: Pod = Pod {
    name: "steel-a",
    network: STEEL,
    ifindex: 81,
    port_id: 81,
    flags: PORT_WIRE | PORT_TRUNK | PORT_ANY_IP | PORT_SPREAD,
    mac: MacAddr([2, 0, 0, 0, 0x11, 0x0a]),
    ..NOBODY
};
/// On [`STEEL`].
pub static STEEL_B: Pod = Pod {
    name: "steel-b",
    network: STEEL,
    ifindex: 82,
    port_id: 82,
    flags: PORT_WIRE | PORT_TRUNK | PORT_ANY_IP | PORT_SPREAD,
    mac: MacAddr([2, 0, 0, 0, 0x11, 0x0b]),
    ..NOBODY
};
/// On [`OCHRE`].
pub static OCHRE_A: Pod = Pod {
    name: "ochre-a",
    network: OCHRE,
    ifindex: 91,
    port_id: 91,
    flags: PORT_L3,
    mac: MacAddr([2, 0, 0, 0, 0x12, 0x0a]),
    ip4: Ipv4Addr::new(10, 60, 0, 11),
    ip6: wired_v6(0x11),
    ..NOBODY
};
/// On [`OLIVE`].
pub static OLIVE_A: Pod = Pod {
    name: "olive-a",
    network: OLIVE,
    ifindex: 94,
    port_id: 94,
    flags: PORT_L3,
    mac: MacAddr([2, 0, 0, 0, 0x13, 0x0a]),
    ip4: Ipv4Addr::new(10, 60, 0, 11),
    ip6: wired_v6(0x11),
    ..NOBODY
};
/// A member of [`OCHRE`] and [`OLIVE`] on another node, beyond the uplink; no pod of this one.
pub static BEYOND: Pod = Pod {
    name: "beyond",
    port_id: u16::MAX,
    endpoint_flags: ENDPOINT_REMOTE | ENDPOINT_WIRE,
    mac: MacAddr([2, 0, 0, 0, 0x12, 0x0f]),
    ip4: Ipv4Addr::new(10, 60, 0, 99),
    ip6: wired_v6(0x99),
    ..NOBODY
};
/// The router that leads to [`BEYOND`].
const ROUTER: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x42));

/// Everybody on this node.
pub static PODS: [&Pod; 22] = [
    &BLUE_A, &BLUE_B, &BLUE_C, &RED_A, &RED_B, &RED_D, &GREEN_A, &GREEN_B, &GREEN_C, &WHITE_A,
    &WHITE_B, &AMBER_A, &AMBER_B, &AMBER_OUT, &GREY_A, &GREY_B, &TEAL_A, &TEAL_B, &STEEL_A,
    &STEEL_B, &OCHRE_A, &OLIVE_A,
];

/// The addresses of the virtual gateway on [`GREEN`].
pub static GATEWAY_ON_GREEN: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(10, 20, 0, 1)),
    IpAddr::V6(l3_v6(1)),
    IpAddr::V6(GATEWAY_V6),
];

/// The addresses of the virtual gateway on [`WHITE`].
pub static GATEWAY_ON_WHITE: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(10, 30, 0, 1)),
    IpAddr::V6(node_v6(1)),
    IpAddr::V6(GATEWAY_V6),
];

/// The addresses of the virtual gateway on [`AMBER`].
pub static GATEWAY_ON_AMBER: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(10, 40, 0, 1)),
    IpAddr::V6(egress_v6(1)),
    IpAddr::V6(GATEWAY_V6),
];

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
            reserved: 0,
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

    /// Every address by which others find it: none where podnet does not know, and for the way out
    /// the one that nobody has.
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
            .chain(GATEWAY_ON_AMBER.map(|ip| (AMBER, ip)));
        for (network, ip) in gateways {
            let gateway = Endpoint {
                ifindex: 0,
                flags: ENDPOINT_GATEWAY,
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
        world
    }

    /// What networks have at the uplink, and who is beyond it.
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

    fn join(&mut self, network: u32, ifindex: u32) {
        let empty = FloodPorts {
            count: 0,
            ifindexes: [0; FLOOD_CHUNK],
        };
        let ports = self
            .flood
            .entry(FloodKey { network, chunk: 0 })
            .or_insert(empty);
        if let Some(free) = ports.ifindexes.iter_mut().find(|ifindex| **ifindex == 0) {
            *free = ifindex;
            ports.count += 1;
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
    fn has_vlan(&self, network: u32, id: u16) -> bool {
        self.world.wires.contains_key(&WireKey::trunk(network, id))
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

    fn station(&self, network: u32, mac: MacAddr) -> Option<Endpoint> {
        self.world.fdb.get(&FdbKey::new(network, mac)).copied()
    }
}
