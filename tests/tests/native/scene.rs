//! A node with such a network, an isolated one with the same subnets, and a world beyond.

use std::net::{IpAddr, SocketAddr};

use netdev::{Address, Netns};
use serde_json::Value;
use tests::host::{UPLINK, connection};
pub(crate) use tests::talk::tcp;
use tests::{Network, Node, Pod, Port, Setup};

/// Our number among those who make routes.
pub(crate) const PROTOCOL: u8 = 112;
/// The node on its uplink, and the world's end of that.
pub(crate) const NODE: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
/// See [`NODE`].
pub(crate) const BEYOND: [&str; 2] = ["192.0.2.2", "2001:db8::2"];
const SUBNETS: [&str; 2] = ["10.30.0.0/24", "fd30:30::/64"];

/// The networks of these tests.
pub(crate) fn setup() -> Setup {
    let isolated = Network::l3("island", &SUBNETS);
    Setup::empty().network(&white()).network(&isolated)
}

/// The network that the node routes for.
pub(crate) fn white() -> Network {
    Network::l3("white", &SUBNETS).by_node()
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// The configuration of the pod's first network.
pub(crate) fn conf(node: &Node, network: &str) -> Value {
    let mut conf = node.conf(network);
    conf["isDefaultGateway"] = true.into();
    conf
}

/// A pod with its default routes on `network`.
pub(crate) fn attached<'a>(node: &'a Node, name: &str, network: &str) -> (Pod<'a>, Port) {
    let pod = node.pod(name);
    let port = pod.attach_conf(&conf(node, network), "eth0");
    (pod, port)
}

/// Gives the world beyond the uplink its addresses; it has no route to any pod.
pub(crate) fn settle_world(node: &Node) {
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
pub(crate) fn uplink(node: &Node) -> u32 {
    let link = connection(node.netns()).by_name(UPLINK);
    link.expect("links can be read")
        .expect("the uplink")
        .ifindex
}

/// The same address everywhere; whom the server saw.
#[track_caller]
pub(crate) fn call(client: &Netns, server: &Netns, address: IpAddr, port: u16) -> IpAddr {
    let at = SocketAddr::new(address, port);
    let seen = tcp(client, at, server, at);
    assert!(seen.is_ok(), "TCP to {at}: {seen:?}");
    seen.expect("checked")
}

/// Takes pods away and checks that the node has nothing of them.
#[track_caller]
pub(crate) fn close(node: &Node, pods: &[&Pod<'_>], network: &str) {
    for pod in pods {
        pod.detach(network, "eth0");
    }
    node.assert_empty();
    let routes = connection(node.netns()).routes_by(PROTOCOL);
    assert_eq!(routes.expect("a list"), [], "routes are left");
}
