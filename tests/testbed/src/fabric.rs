//! Connect several scratch nodes by a router or by a segment.
//!
//! A namespace routes between their uplinks, or joins them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netdev::{AddrGenMode, Address, Connection, LinkChange, Netns, Route, VethSpec};

use crate::host::{Host, UPLINK, connection, forward, up};
use crate::netlink;

/// Name of the bridge that is the segment.
const SEGMENT: &str = "segment";

/// The network between nodes: node `n` has [`Fabric::v4`], [`Fabric::v6`] of `n`.
///
/// On a segment it has [`Fabric::on_segment`].
#[derive(Debug)]
pub struct Fabric {
    netns: Netns,
    mtu: u32,
    is_segment: bool,
}

impl Fabric {
    /// Makes a network without nodes; links have an MTU of 1500.
    pub fn create() -> Self {
        Self::with_mtu(1500)
    }

    /// With links of another MTU, bytes.
    pub fn with_mtu(mtu: u32) -> Self {
        let netns = Netns::create().expect("a network namespace for the fabric");
        forward(&netns);
        Self {
            netns,
            mtu,
            is_segment: false,
        }
    }

    /// Makes a segment of Ethernet: a bridge that lets every tag pass; MTU 1500.
    pub fn segment() -> Self {
        let netns = Netns::create().expect("a network namespace for the fabric");
        netlink::make_bridge(&netns, SEGMENT);
        up(&mut connection(&netns), SEGMENT);
        Self {
            netns,
            mtu: 1500,
            is_segment: true,
        }
    }

    /// The IPv4 address of node `n`, 1 to 250.
    pub fn v4(n: u8) -> IpAddr {
        Ipv4Addr::new(10, 99, n, 1).into()
    }

    /// The IPv6 address of node `n`.
    pub fn v6(n: u8) -> IpAddr {
        Ipv6Addr::new(0xfd99, 0, 0, n.into(), 0, 0, 0, 1).into()
    }

    /// Two nodes, 1 and 2, with a link between them and nothing else.
    pub fn pair() -> [Host; 2] {
        let nodes = [1, 2].map(|_| Netns::create().expect("a network namespace for a node"));
        let [one, two] = &nodes;
        let mut spec = VethSpec::new(UPLINK, UPLINK);
        spec.peer_netns = Some(two.clone());
        connection(one).create_veth(&spec).expect("a link");
        for (n, node) in (1..).zip(&nodes) {
            let mut here = connection(node);
            up(&mut here, "lo");
            up(&mut here, UPLINK);
            let uplink = here.by_name(UPLINK).expect("links can be read");
            let uplink = uplink.expect("the uplink").ifindex;
            here.add_address(uplink, Address::new(Self::v4_of_pair(n), 24))
                .expect("an address for the uplink");
        }
        let [one, two] = nodes;
        let (far_one, far_two) = (two.clone(), one.clone());
        [Host::of(one, far_one), Host::of(two, far_two)]
    }

    /// The IPv4 address of a node of [`Self::pair`].
    pub fn v4_of_pair(n: u8) -> IpAddr {
        Ipv4Addr::new(10, 99, 0, n).into()
    }

    /// The addresses of node `n` on a segment.
    pub fn on_segment(n: u8) -> [IpAddr; 2] {
        [
            Ipv4Addr::new(10, 98, 0, n).into(),
            Ipv6Addr::new(0xfd98, 0, 0, 0, 0, 0, 0, n.into()).into(),
        ]
    }

    /// Where it routes.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// The fabric's end of the link of node `n`.
    pub fn link(n: u8) -> String {
        format!("node{n}")
    }

    /// The network of node `n`, which does not forward between its own links.
    pub fn host(&self, n: u8) -> Host {
        let netns = Netns::create().expect("a network namespace for the node");
        up(&mut connection(&netns), "lo");
        let uplink = self.connect(&netns, n);
        if !self.is_segment {
            self.lead_to(&netns, uplink, n);
        }
        Host::of(netns, self.netns.clone())
    }

    /// Connects a namespace by a link [`UPLINK`]; returns its index.
    ///
    /// On a segment it gets addresses, and may be a host that no agent runs on, or a link that is made
    /// once more.
    pub fn connect(&self, netns: &Netns, n: u8) -> u32 {
        let mut here = connection(netns);
        let mut spec = VethSpec::new(UPLINK, &Self::link(n));
        spec.mtu = self.mtu;
        spec.peer_netns = Some(self.netns.clone());
        let pair = here.create_veth(&spec).expect("an uplink");
        link_local(&mut here, pair.host_ifindex);
        let mut there = connection(&self.netns);
        let far = there.by_name(&Self::link(n)).expect("links can be read");
        let far = far.expect("the fabric's end").ifindex;
        if self.is_segment {
            let bridge = there.by_name(SEGMENT).expect("links can be read");
            let bridge = bridge.expect("the segment").ifindex;
            netlink::enslave(&self.netns, far, bridge);
            for (ip, length) in Self::on_segment(n).into_iter().zip([24, 64]) {
                here.add_address(pair.host_ifindex, at_once(ip, length))
                    .expect("an address for the uplink");
            }
        }
        link_local(&mut there, far);
        pair.host_ifindex
    }

    /// Addresses and routes by way of the fabric.
    fn lead_to(&self, netns: &Netns, uplink: u32, n: u8) {
        let (mut here, mut there) = (connection(netns), connection(&self.netns));
        let far = there.by_name(&Self::link(n)).expect("links can be read");
        let far = far.expect("the fabric's end").ifindex;
        let gateways = [
            (Self::v4(n), 24, IpAddr::from(Ipv4Addr::new(10, 99, n, 254))),
            (
                Self::v6(n),
                64,
                Ipv6Addr::new(0xfd99, 0, 0, n.into(), 0, 0, 0, 0xfe).into(),
            ),
        ];
        for (own, length, gateway) in gateways {
            there
                .add_address(far, at_once(gateway, length))
                .expect("an address for the fabric");
            here.add_address(uplink, at_once(own, length))
                .expect("an address for the uplink");
            here.add_route(&Route::default_via(gateway, uplink))
                .expect("a default route");
        }
    }

    /// Leads packets for a prefix to node `n`, as a routed underlay has to.
    pub fn route(&self, prefix: (IpAddr, u8), n: u8) {
        let mut there = connection(&self.netns);
        let far = there.by_name(&Self::link(n)).expect("links can be read");
        let far = far.expect("the fabric's end").ifindex;
        let node = if prefix.0.is_ipv4() {
            Self::v4(n)
        } else {
            Self::v6(n)
        };
        there
            .add_route(&Route::new(prefix.0, prefix.1, Some(node), far))
            .expect("a route");
    }
}

/// Sets a link up with a link-local address.
///
/// Routers ask their neighbours from it (RFC 4861 section 7.2.2), and `netdev` keeps it off what it
/// makes.
fn link_local(connection: &mut Connection, ifindex: u32) {
    let change = LinkChange {
        addr_gen_mode: Some(AddrGenMode::Eui64),
        ..LinkChange::updown(true)
    };
    let changed = connection.reconfigure(ifindex, &change);
    changed.expect("the link goes up");
}

fn at_once(ip: IpAddr, length: u8) -> Address {
    Address {
        nodad: true,
        ..Address::new(ip, length)
    }
}
