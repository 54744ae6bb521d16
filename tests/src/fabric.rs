//! An underlay: a namespace that routes between the uplinks of several scratch nodes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netdev::{Address, Netns, Route, VethSpec};

use crate::host::{Host, UPLINK, connection, forward, up};

/// The network between nodes. Node `n` has [`Fabric::v4`] and [`Fabric::v6`] of `n`.
#[derive(Debug)]
pub struct Fabric {
    netns: Netns,
    mtu: u32,
}

impl Fabric {
    /// Nobody is connected yet; links have an MTU of 1500.
    pub fn create() -> Self {
        Self::with_mtu(1500)
    }

    /// With links of another MTU, bytes.
    pub fn with_mtu(mtu: u32) -> Self {
        let netns = Netns::create().expect("a network namespace for the fabric");
        forward(&netns);
        Self { netns, mtu }
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
        let mut here = connection(&netns);
        let mut spec = VethSpec::new(UPLINK, &Self::link(n));
        spec.mtu = self.mtu;
        spec.peer_netns = Some(self.netns.clone());
        let pair = here.create_veth(&spec).expect("an uplink");
        up(&mut here, "lo");
        here.set_up(pair.host_ifindex).expect("the uplink goes up");
        let mut there = connection(&self.netns);
        up(&mut there, &Self::link(n));
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
            let at_once = |ip| Address {
                nodad: true,
                ..Address::new(ip, length)
            };
            there
                .add_address(far, at_once(gateway))
                .expect("an address for the fabric");
            here.add_address(pair.host_ifindex, at_once(own))
                .expect("an address for the uplink");
            here.add_route(&Route::default_via(gateway, pair.host_ifindex))
                .expect("a default route");
        }
        Host::of(netns, self.netns.clone())
    }
}
