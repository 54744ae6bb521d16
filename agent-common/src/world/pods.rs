//! List the networks of the cases, and the pods on them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::addr::{GATEWAY_V6, MacAddr};
use crate::endpoint::{ENDPOINT_NO_PEER, ENDPOINT_OUTSIDE, ENDPOINT_REMOTE, ENDPOINT_WIRE};
use crate::port::{
    PORT_ANY_IP, PORT_EGRESS, PORT_L3, PORT_MORE_IPS, PORT_NODE, PORT_OUTSIDE, PORT_REPLICATE,
    PORT_ROUTES, PORT_TRUNK, PORT_WIRE,
};

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
/// An L3 network that routers on [`UPLINK`] lead to, with egress there.
///
/// It has the subnets of [`OCHRE`].
pub const OLIVE: u32 = 5004;
/// An L3 network with a way out that leads to [`PEARL`], too.
///
/// It is 10.70.0.0/24 and fd70:70::/64.
pub const CORAL: u32 = 6001;
/// An L3 network, 10.71.0.0/24 and fd71:71::/64, that leads to [`CORAL`].
pub const PEARL: u32 = 6002;
/// An L2 network, 10.73.0.0/24 and fd73:73::/64, that leads to [`PEARL`] and back.
pub const JADE: u32 = 6003;
/// Largest L3 packet on [`PEARL`], bytes.
pub const PEARL_MTU: u32 = 1400;
/// EtherType of [`TEAL`] besides IP and ARP: that of local experiments (IEEE 802).
pub const ETHER_TYPE_OF_TEAL: u16 = 0x88b5;
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
pub(super) const MTU: u16 = 1500;

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

pub(super) const fn coral_v6(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd70, 0x70, 0, 0, 0, 0, 0, host)
}

pub(super) const fn jade_v6(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd73, 0x73, 0, 0, 0, 0, 0, host)
}

pub(super) const fn pearl_v6(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd71, 0x71, 0, 0, 0, 0, 0, host)
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
/// On [`BLUE`], with two addresses of each family.
///
/// Reached by the host end of its link.
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
/// On [`GREEN`], with two addresses of each family.
///
/// Reached by the host end of its link.
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
/// On [`AMBER`], with two addresses of each family.
///
/// Reached by the host end of its link.
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
    flags: PORT_WIRE | PORT_REPLICATE,
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
    flags: PORT_WIRE | PORT_REPLICATE,
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
    flags: PORT_WIRE | PORT_TRUNK | PORT_ANY_IP | PORT_REPLICATE,
    mac: MacAddr([2, 0, 0, 0, 0x11, 0x0a]),
    ..NOBODY
};
/// On [`STEEL`].
pub static STEEL_B: Pod = Pod {
    name: "steel-b",
    network: STEEL,
    ifindex: 82,
    port_id: 82,
    flags: PORT_WIRE | PORT_TRUNK | PORT_ANY_IP | PORT_REPLICATE,
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
    flags: PORT_L3 | PORT_EGRESS,
    mac: MacAddr([2, 0, 0, 0, 0x13, 0x0a]),
    ip4: Ipv4Addr::new(10, 60, 0, 11),
    ip6: wired_v6(0x11),
    ..NOBODY
};
/// On [`CORAL`].
pub static CORAL_A: Pod = Pod {
    name: "coral-a",
    network: CORAL,
    ifindex: 95,
    port_id: 95,
    flags: PORT_L3 | PORT_EGRESS | PORT_ROUTES,
    mac: MacAddr([2, 0, 0, 0, 0x14, 0x0a]),
    ip4: Ipv4Addr::new(10, 70, 0, 11),
    ip6: coral_v6(0x11),
    ..NOBODY
};
/// The way out of [`CORAL`].
pub static CORAL_OUT: Pod = Pod {
    name: "coral-out",
    network: CORAL,
    ifindex: 96,
    port_id: 96,
    flags: PORT_L3 | PORT_OUTSIDE | PORT_ROUTES,
    endpoint_flags: ENDPOINT_OUTSIDE,
    mac: MacAddr([2, 0, 0, 0, 0x14, 0x0c]),
    ..NOBODY
};
/// On [`PEARL`].
pub static PEARL_A: Pod = Pod {
    name: "pearl-a",
    network: PEARL,
    ifindex: 97,
    port_id: 97,
    flags: PORT_L3 | PORT_ROUTES,
    mac: MacAddr([2, 0, 0, 0, 0x15, 0x0a]),
    ip4: Ipv4Addr::new(10, 71, 0, 11),
    ip6: pearl_v6(0x11),
    ..NOBODY
};
/// On [`JADE`].
pub static JADE_A: Pod = Pod {
    name: "jade-a",
    network: JADE,
    ifindex: 98,
    port_id: 98,
    flags: PORT_ROUTES,
    mac: MacAddr([2, 0, 0, 0, 0x16, 0x0a]),
    ip4: Ipv4Addr::new(10, 73, 0, 11),
    ip6: jade_v6(0x11),
    ..NOBODY
};
/// On [`JADE`], with [`JADE_A`].
pub static JADE_B: Pod = Pod {
    name: "jade-b",
    network: JADE,
    ifindex: 99,
    port_id: 99,
    flags: PORT_ROUTES,
    mac: MacAddr([2, 0, 0, 0, 0x16, 0x0b]),
    ip4: Ipv4Addr::new(10, 73, 0, 12),
    ip6: jade_v6(0x12),
    ..NOBODY
};
/// A member of [`OCHRE`] and [`OLIVE`] on another node, beyond the uplink.
pub static BEYOND: Pod = Pod {
    name: "beyond",
    port_id: u16::MAX,
    endpoint_flags: ENDPOINT_REMOTE | ENDPOINT_WIRE,
    mac: MacAddr([2, 0, 0, 0, 0x12, 0x0f]),
    ip4: Ipv4Addr::new(10, 60, 0, 99),
    ip6: wired_v6(0x99),
    ..NOBODY
};
/// The router that leads to [`BEYOND`], and to the outside.
pub(super) const ROUTER: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x42));

/// Everybody on this node.
pub static PODS: [&Pod; 27] = [
    &BLUE_A, &BLUE_B, &BLUE_C, &RED_A, &RED_B, &RED_D, &GREEN_A, &GREEN_B, &GREEN_C, &WHITE_A,
    &WHITE_B, &AMBER_A, &AMBER_B, &AMBER_OUT, &GREY_A, &GREY_B, &TEAL_A, &TEAL_B, &STEEL_A,
    &STEEL_B, &OCHRE_A, &OLIVE_A, &CORAL_A, &CORAL_OUT, &PEARL_A, &JADE_A, &JADE_B,
];

/// The way to the outside that [`OLIVE`] has.
pub static OUTSIDE: Pod = Pod {
    name: "outside",
    port_id: u16::MAX,
    endpoint_flags: ENDPOINT_OUTSIDE | ENDPOINT_WIRE,
    ..NOBODY
};

/// The addresses of the virtual gateway on [`GREEN`].
pub static GATEWAY_ON_GREEN: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(10, 20, 0, 1)),
    IpAddr::V6(l3_v6(1)),
    IpAddr::V6(GATEWAY_V6),
];

/// The addresses of a Service on [`GREEN`], [`BLUE`] and [`AMBER`].
pub static SERVICE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10)),
    IpAddr::V6(Ipv6Addr::new(0xfd96, 0, 0, 0, 0, 0, 0, 10)),
];

/// The addresses of the virtual gateway on [`WHITE`].
pub static GATEWAY_ON_WHITE: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(10, 30, 0, 1)),
    IpAddr::V6(node_v6(1)),
    IpAddr::V6(GATEWAY_V6),
];

/// The addresses of the virtual gateway on [`JADE`].
pub static GATEWAY_ON_JADE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 73, 0, 1)),
    IpAddr::V6(jade_v6(1)),
];

/// The addresses of the virtual gateway on [`AMBER`].
pub static GATEWAY_ON_AMBER: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(10, 40, 0, 1)),
    IpAddr::V6(egress_v6(1)),
    IpAddr::V6(GATEWAY_V6),
];
