//! Pods that send what a node would take for a tunnel of another one.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use agent_common::drop::DropReason;
use testbed::beyond::{BEYOND, attached, ip, settle_world};
use testbed::frame::marker;
use testbed::host::WORLD;
use testbed::{Network, Node, Port, Setup, Tap, wait};

/// Default port of the agent's tunnels (RFC 7348 section 8.1), and another one.
const VXLAN: u16 = 4789;
const OTHER: u16 = 4790;

/// Networks with the node's address outside: by a gateway, and by the node's stack.
const NETWORKS: [&str; 2] = ["amber", "white"];

fn setup() -> Setup {
    let subnets = |third: u8| {
        [
            format!("10.{third}.0.0/24"),
            format!("fd{third}:{third}::/64"),
        ]
    };
    let ([a, b], [c, d]) = (subnets(40), subnets(30));
    Setup::empty()
        .network(&Network::l3("amber", &[&a, &b]).egress())
        .network(&Network::l3("white", &[&c, &d]).by_node().masquerade(true))
}

/// Sends a datagram to the world from an ordinary socket.
fn send(port: &Port, to: IpAddr, udp: u16, word: &[u8]) {
    let any: IpAddr = match to {
        IpAddr::V4(_) => [0; 4].into(),
        IpAddr::V6(_) => [0_u16; 8].into(),
    };
    let socket = port.netns.run_in(|| UdpSocket::bind((any, 0)));
    let socket = socket.expect("entered").expect("a socket");
    let sent = socket.send_to(word, SocketAddr::new(to, udp));
    sent.expect("a datagram");
}

fn dropped(node: &Node, network: &str) -> u64 {
    node.drops().of(network, DropReason::TunnelPort)
}

/// ATT-01a: programs drop packets to the tunnel port, with a reason of their own.
///
/// The node's tables do not matter for that.
#[test]
fn no_pod_sends_to_the_tunnel_port_of_anybody_outside_of_its_network() {
    let node = testbed::node!(setup());
    settle_world(&node);
    for network in NETWORKS {
        let (pod, port) = attached(&node, "mallory", network);
        let world = Tap::on(node.host().outside(), WORLD);
        for to in BEYOND.map(ip) {
            let (first, forged) = (marker(), marker());
            send(&port, to, OTHER, &first);
            world.wait_marker("a datagram to another port", &first);
            let before = dropped(&node, network);
            send(&port, to, VXLAN, &forged);
            wait::until_true(&format!("{network}: a drop of a tunnel to {to}"), || {
                let seen = world.count(&forged);
                assert_eq!(seen, 0, "{network}: a tunnel to {to} left the node");
                dropped(&node, network) > before
            });
        }
        pod.detach(network, "eth0");
    }
    node.assert_empty();
    proof::of!("ATT-01a");
}
