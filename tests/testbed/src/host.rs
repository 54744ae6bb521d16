//! The network namespace of a scratch node, with a way out.
//!
//! It has an uplink, a default route and forwarding switched on, so that whatever leaks into the node's
//! stack would get far.

use std::fs;
use std::net::IpAddr;

use netdev::{Address, Connection, LinkChange, Netns, Route, VethSpec};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcHandle, TcMessage};

use crate::netlink;

/// The node's end of the uplink.
pub const UPLINK: &str = "uplink";
/// The world's end of it.
pub const WORLD: &str = "world";

/// A node's network.
#[derive(Debug)]
pub struct Host {
    netns: Netns,
    outside: Netns,
}

impl Host {
    /// Makes both namespaces and the link between them.
    pub fn create() -> Self {
        let netns = Netns::create().expect("a network namespace for the node");
        let outside = Netns::create().expect("a network namespace for the world");
        let mut here = connection(&netns);
        let mut spec = VethSpec::new(UPLINK, WORLD);
        spec.peer_netns = Some(outside.clone());
        let pair = here.create_veth(&spec).expect("an uplink");
        up(&mut here, "lo");
        here.set_up(pair.host_ifindex).expect("the uplink goes up");
        up(&mut connection(&outside), WORLD);
        let routes: [(IpAddr, u8, IpAddr); 2] = [
            ([192, 0, 2, 1].into(), 24, [192, 0, 2, 2].into()),
            (
                [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(),
                64,
                [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2].into(),
            ),
        ];
        for (ip, prefix_len, gateway) in routes {
            here.add_address(pair.host_ifindex, Address::new(ip, prefix_len))
                .expect("an address for the uplink");
            here.add_route(&Route::default_via(gateway, pair.host_ifindex))
                .expect("a default route");
        }
        forward(&netns);
        Self { netns, outside }
    }

    /// A network that is made already, and what is outside.
    pub(crate) fn of(netns: Netns, outside: Netns) -> Self {
        Self { netns, outside }
    }

    /// Where the agent runs.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Where the uplink leads.
    pub fn outside(&self) -> &Netns {
        &self.outside
    }

    /// Netlink there, and the index of the uplink's other end.
    pub fn world(&self) -> (Connection, u32) {
        let mut world = connection(&self.outside);
        let link = world.by_name(WORLD).expect("links can be read");
        (world, link.expect("the world's end").ifindex)
    }
}

/// Netlink in `netns`.
pub fn connection(netns: &Netns) -> Connection {
    netns
        .run_in(Connection::open)
        .expect("the namespace can be entered")
        .expect("a netlink socket")
}

/// Makes `netns` forward packets of both families.
pub(crate) fn forward(netns: &Netns) {
    netns
        .run_in(|| {
            for key in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                fs::write(format!("/proc/sys/net/{key}"), "1").expect("forwarding");
            }
        })
        .expect("the namespace can be entered");
}

pub(crate) fn up(connection: &mut Connection, name: &str) {
    let link = connection.by_name(name).expect("links can be read");
    let ifindex = link.expect("the link is there").ifindex;
    connection
        .reconfigure(ifindex, &LinkChange::updown(true))
        .expect("the link goes up");
}

/// Removes the clsact qdisc of a link with all its filters.
///
/// As `tc qdisc del dev NAME clsact` does.
///
/// # Panics
/// When the kernel refuses.
pub fn remove_clsact(netns: &Netns, ifindex: u32) {
    let mut message = TcMessage::default();
    message.header.index = i32::try_from(ifindex).expect("a small index");
    message.header.handle = TcHandle::from(0xffff_0000);
    message.header.parent = TcHandle::CLSACT;
    netlink::change(netns, RouteNetlinkMessage::DelQueueDiscipline(message), 0);
}
