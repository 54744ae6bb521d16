//! A node with two networks that have egress and the same subnets, others without, and a world.

use std::net::{IpAddr, SocketAddr};

use netdev::{Address, Netfilter, Netns, NetnsId};
use serde_json::Value;
use tests::host::{UPLINK, connection};
use tests::{Network, Node, Pod, Port, Setup, talk};

/// The node on its uplink, and the world's end of that.
pub(crate) const NODE: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
/// See [`NODE`].
pub(crate) const BEYOND: [&str; 2] = ["192.0.2.2", "2001:db8::2"];
/// Of all networks here.
pub(crate) const SUBNETS: [&str; 2] = ["10.40.0.0/24", "fd40:40::/64"];
/// The table of nf_tables in the node's namespace.
pub(crate) const TABLE: &str = "podnet-egress";

/// `amber` and `ochre` have egress, `island` has not, and for `white` the node routes.
pub(crate) fn setup() -> Setup {
    let white = ["10.30.0.0/24", "fd30:30::/64"];
    Setup::empty()
        .network(&amber())
        .network(&Network::l3("ochre", &SUBNETS).egress())
        .network(&Network::l3("island", &SUBNETS))
        .network(&Network::l3("white", &white).by_node())
}

/// A network with egress.
pub(crate) fn amber() -> Network {
    Network::l3("amber", &SUBNETS).egress()
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// The configuration of an attachment with the default routes.
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

fn uplink(node: &Node) -> u32 {
    let link = connection(node.netns()).by_name(UPLINK);
    link.expect("links can be read")
        .expect("the uplink")
        .ifindex
}

/// A conversation of a pod with the world; whom the world saw.
#[track_caller]
pub(crate) fn call(client: &Netns, world: &Netns, address: IpAddr, port: u16) -> IpAddr {
    let at = SocketAddr::new(address, port);
    let seen = talk::tcp(client, at, world, at);
    assert!(seen.is_ok(), "TCP to {at}: {seen:?}");
    seen.expect("checked")
}

/// Fails the test unless a pod reaches the world over both families, as the node.
#[track_caller]
pub(crate) fn assert_gets_out(node: &Node, port: &Port) {
    for (beyond, own) in BEYOND.map(ip).into_iter().zip(NODE.map(ip)) {
        let seen = call(&port.netns, node.host().outside(), beyond, 8080);
        assert_eq!(seen, own, "the world sees the node");
    }
}

/// Names of the links of gateways in the node's namespace.
pub(crate) fn gateway_links(node: &Node) -> Vec<String> {
    let names = node.links().into_iter().map(|link| link.name);
    let ours = ["podnet-g", "podnet-e"];
    names
        .filter(|name| ours.iter().any(|prefix| name.starts_with(prefix)))
        .collect()
}

/// The files of the namespaces of gateways.
fn files(node: &Node) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(node.path("run").join("egress"));
    let entries = entries.into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The namespaces of gateways; a file may be there a moment before its namespace is.
pub(crate) fn gateways(node: &Node) -> Vec<NetnsId> {
    let opened = files(node).into_iter().map(|path| Netns::open(&path));
    opened.flatten().map(|netns| netns.identity()).collect()
}

pub(crate) fn netfilter(node: &Node) -> Netfilter {
    let opened = node.netns().run_in(Netfilter::open);
    opened.expect("entered").expect("a socket of netfilter")
}

/// Fails the test if anything of any way out is left.
#[track_caller]
pub(crate) fn assert_closed(node: &Node) {
    assert_eq!(gateway_links(node), [""; 0], "links of gateways are left");
    assert_eq!(
        files(node),
        [""; 0].map(std::path::PathBuf::from),
        "namespaces are left"
    );
    let table = netfilter(node).has(TABLE).expect("a look");
    assert!(!table, "the table is left");
}
