//! Pods with default routes, and the world beyond a node's uplink.
//!
//! The routes lead there.

use std::net::{IpAddr, SocketAddr};

use netdev::{Address, Netns};
use serde_json::Value;

use crate::host::{UPLINK, connection};
use crate::node::Node;
use crate::pod::{Pod, Port};
use crate::talk::tcp;

/// The node on its uplink, and the world's end of that.
pub const NODE: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
/// See [`NODE`].
pub const BEYOND: [&str; 2] = ["192.0.2.2", "2001:db8::2"];

/// An address of these tests.
///
/// # Panics
/// If it is none.
pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// The configuration of an attachment with the default routes.
pub fn conf(node: &Node, network: &str) -> Value {
    let mut conf = node.conf(network);
    conf["isDefaultGateway"] = true.into();
    conf
}

/// A pod with its default routes on `network`.
pub fn attached<'a>(node: &'a Node, name: &str, network: &str) -> (Pod<'a>, Port) {
    let pod = node.pod(name);
    let port = pod.attach_conf(&conf(node, network), "eth0");
    (pod, port)
}

/// Gives the world beyond the uplink its addresses; it has no route to any pod.
///
/// # Panics
/// If the kernel refuses.
pub fn settle_world(node: &Node) {
    let (mut world, link) = node.host().world();
    for (address, length) in BEYOND.into_iter().zip([24, 64]) {
        world
            .add_address(link, Address::new(ip(address), length))
            .expect("an address");
    }
    // Without a link-local address a router cannot ask for a neighbour. The fixture's has none.
    let own = Address::new(ip("fe80::1"), 64);
    connection(node.netns())
        .add_address(uplink(node), own)
        .expect("an address");
}

/// Index of the uplink.
///
/// # Panics
/// If there is none.
pub fn uplink(node: &Node) -> u32 {
    let link = connection(node.netns()).by_name(UPLINK);
    link.expect("links can be read")
        .expect("the uplink")
        .ifindex
}

/// Talks by TCP with the server at this address; returns the client it saw.
///
/// # Panics
/// If there is none.
#[track_caller]
pub fn call(client: &Netns, server: &Netns, address: IpAddr, port: u16) -> IpAddr {
    let at = SocketAddr::new(address, port);
    let seen = tcp(client, at, server, at);
    assert!(seen.is_ok(), "TCP to {at}: {seen:?}");
    seen.expect("checked")
}
