//! Set up a node with such a network, an isolated one like it, and a world beyond.
//!
//! Both have the same subnets.

pub(crate) use testbed::beyond::{BEYOND, NODE, attached, call, conf, ip, settle_world, uplink};
use testbed::host::connection;
pub(crate) use testbed::talk::tcp;
use testbed::{Network, Node, Pod, Setup};

/// Our number among those who make routes.
pub(crate) const PROTOCOL: u8 = 112;
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
