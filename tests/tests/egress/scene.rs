//! Set up a node with two egress networks of the same subnets, others, and a world.

use netdev::{Bound, Guard, LinkName, Netfilter, Netns, NetnsId, Packets, Ruleset};
pub(crate) use testbed::beyond::{BEYOND, NODE, attached, call, conf, ip, settle_world};
use testbed::{Network, Node, Port, Setup};

/// Of all networks here.
pub(crate) const SUBNETS: [&str; 2] = ["10.40.0.0/24", "fd40:40::/64"];
/// The table of nf_tables in the node's namespace.
pub(crate) const TABLE: &str = "podnet-egress";
/// The table of mapped ports there.
pub(crate) const PORTS: &str = "podnet-ports";

/// `amber` and `ochre` have egress, `island` does not, and the node routes `white`.
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
pub(crate) fn files(node: &Node) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(node.path("run").join("egress"));
    let entries = entries.into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Returns the namespaces of gateways.
///
/// A file may be there a moment before its namespace is.
pub(crate) fn gateways(node: &Node) -> Vec<NetnsId> {
    let opened = files(node).into_iter().map(|path| Netns::open(&path));
    opened.flatten().map(|netns| netns.identity()).collect()
}

/// Takes the namespaces of gateways away from their files, as they are now.
pub(crate) fn break_gateways(node: &Node) {
    for path in files(node) {
        let flags = rustix::mount::UnmountFlags::DETACH;
        rustix::mount::unmount(&path, flags).expect("a mount");
    }
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
    let mut netfilter = netfilter(node);
    let is_there = netfilter.has(TABLE).expect("a look");
    assert!(!is_there, "the table {TABLE} is left");
    // After ports were mapped a table without ports stays, for connections that go on.
    let is_there = netfilter.has(PORTS).expect("a look");
    let leads_nowhere = netfilter.says(&no_ports()).expect("a look");
    assert!(!is_there || leads_nowhere, "the table {PORTS} leads on");
}

/// The table of ports of a node that has none any more.
fn no_ports() -> Ruleset {
    let links = LinkName::Starts("podnet-e".to_owned());
    let transit = [
        ("169.254.64.0", 18),
        ("fd70:6f64:6e65:7400::", 64),
        ("169.254.128.0", 19),
        ("fd70:6f64:6e65:7401::", 64),
    ];
    let stops = transit.map(|(address, bits)| Packets::To((ip(address), bits)));
    let stops = stops.map(|packets| Guard::stop(Bound::Leaving, &[packets]));
    let pass = Guard::pass(Bound::Leaving, &[Packets::OutBy(links)]);
    Ruleset {
        table: PORTS,
        masquerade: None,
        ports: None,
        limits: Vec::new(),
        guards: [vec![pass], stops.to_vec()].concat(),
        early: false,
    }
}
