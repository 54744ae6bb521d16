//! Attack the node's table of tracked connections, which all pods share.
//!
//! Pods fill it through their network's way out.

use std::fs;
use std::net::{IpAddr, SocketAddr};

use netdev::Netns;
use serde_json::{Value, json};
use testbed::beyond::{BEYOND, NODE, attached, call, conf, ip, settle_world};
use testbed::{Network, Node, Port, Setup, traffic, wait};

/// Limits of these tests, of each family.
const POD: u64 = 256;
const NETWORK: u64 = 384;
/// Connections that a pod begins.
const FLOOD: u16 = 3000;

/// Two networks with egress.
fn setup() -> Setup {
    let subnets = ["10.40.0.0/24", "fd40:40::/64"];
    Setup::empty()
        .network(&Network::l3("amber", &subnets).egress())
        .network(&Network::l3("ochre", &subnets).egress())
        .env("PODNET_EGRESS_CONNECTIONS_PER_POD", &POD.to_string())
        .env(
            "PODNET_EGRESS_CONNECTIONS_PER_NETWORK",
            &NETWORK.to_string(),
        )
}

/// A datagram to each of many ports of the world: each is a connection.
fn flood(port: &Port, source: IpAddr, world: IpAddr) {
    let socket = traffic::udp(port, source);
    for number in 0..FLOOD {
        // What is refused may be told to the socket: it goes on.
        let _ = socket.send_to(b"flood", SocketAddr::new(world, 10_000 + number));
    }
}

/// Connections that a namespace tracks.
fn tracked(netns: &Netns) -> u64 {
    let path = "/proc/sys/net/netfilter/nf_conntrack_count";
    let read = netns.run_in(|| fs::read_to_string(path)).expect("entered");
    let count = read.expect("connections are tracked here");
    count.trim().parse().expect("a number")
}

/// Returns a field of `get networks` for a network.
fn shown(node: &Node, network: &str, key: &str) -> Value {
    let networks = node.get("networks");
    let of_network = networks.iter().find(|it| it["name"] == network);
    of_network.expect("the network")[key].clone()
}

/// False when the agent has found that the kernel does not count connections.
fn can_count(node: &Node) -> bool {
    !node
        .log()
        .contains("connections through ways out are not limited")
}

/// ATT-10a: a pod and its network have a share of the node's connections.
///
/// One pod begins thousands of connections to the world, then another of the same network. The pod gets
/// its own share, both together no more than their network's, and a third on another network gets out
/// all the while.
#[test]
fn a_pod_and_a_network_have_a_share_of_the_nodes_connections_and_no_more() {
    for is_v4 in [true, false] {
        let node = testbed::node!(setup());
        settle_world(&node);
        let (pa, a) = attached(&node, "a", "amber");
        let (pb, b) = attached(&node, "b", "amber");
        let (pc, c) = attached(&node, "c", "ochre");
        if shown(&node, "amber", "connectionsMost").is_null() && !can_count(&node) {
            let why = "needs nft_connlimit and nft_hash";
            testbed::skip::skip(testbed::test_name!(), why);
            return;
        }
        let world = ip(BEYOND[usize::from(!is_v4)]);
        let source = |port: &Port| -> IpAddr {
            if is_v4 {
                port.v4().into()
            } else {
                port.v6().into()
            }
        };
        flood(&a, source(&a), world);
        let of_one = tracked(node.netns());
        assert!(
            (POD / 2..=POD).contains(&of_one),
            "one pod has {of_one} connections in the node's table"
        );
        flood(&b, source(&b), world);
        let of_both = tracked(node.netns());
        assert!(
            (NETWORK / 2..=NETWORK).contains(&of_both),
            "both pods of a network have {of_both} connections in the node's table"
        );
        assert!(of_both > of_one, "the other pod has a share of its own");
        call(&c.netns, node.host().outside(), world, 8080);
        let counted = shown(&node, "amber", "connections").as_u64();
        assert!(
            counted.is_some_and(|it| it > 0 && it <= 2 * POD),
            "{counted:?}"
        );
        assert_eq!(shown(&node, "amber", "connectionsMost"), NETWORK);
        let refused = shown(&node, "amber", "connectionsRefused").as_u64();
        assert!(
            refused.is_some_and(|it| it >= u64::from(FLOOD) - POD),
            "{refused:?}"
        );
        wait::until_true("the metrics to say so", || {
            let (_, page) = node.http("/metrics").expect("metrics");
            let of_network = |name: &str| {
                let start = format!("{name}{{network=\"amber\"}}");
                page.lines().any(|line| line.starts_with(&start))
            };
            of_network("podnet_egress_connections") && of_network("podnet_egress_refused_packets")
        });
        for (pod, network) in [(pa, "amber"), (pb, "amber"), (pc, "ochre")] {
            pod.detach(network, "eth0");
        }
    }
    proof::of!("ATT-10a");
}

/// ATT-10a: connections to host ports are of the share of their network.
#[test]
fn a_network_has_one_share_of_connections_for_both_directions() {
    for is_v4 in [true, false] {
        let node = testbed::node!(setup());
        settle_world(&node);
        let pod = node.pod("a");
        let mut with_port = conf(&node, "amber");
        with_port["runtimeConfig"] = json!({"portMappings": [
            {"hostPort": 8053, "containerPort": 53, "protocol": "udp"},
        ]});
        let a = pod.attach_conf(&with_port, "eth0");
        let (pb, b) = attached(&node, "b", "amber");
        if !can_count(&node) {
            let why = "needs nft_connlimit and nft_hash";
            testbed::skip::skip(testbed::test_name!(), why);
            return;
        }
        let family = usize::from(!is_v4);
        let to = SocketAddr::new(ip(NODE[family]), 8053);
        // From as many ports of the world: each is a connection.
        let outside = node.host().outside();
        for _ in 0..2 * NETWORK {
            let any = if is_v4 { "0.0.0.0:0" } else { "[::]:0" };
            let socket = outside.run_in(|| std::net::UdpSocket::bind(any));
            let socket = socket.expect("entered").expect("a socket");
            let _ = socket.send_to(b"flood", to);
        }
        let towards = tracked(node.netns());
        assert!(
            (NETWORK / 2..=NETWORK).contains(&towards),
            "clients have {towards} connections in the node's table"
        );
        for port in [&a, &b] {
            let source: IpAddr = if is_v4 {
                port.v4().into()
            } else {
                port.v6().into()
            };
            flood(port, source, ip(BEYOND[family]));
        }
        let both = tracked(node.netns());
        assert!(
            both <= NETWORK,
            "clients and pods of a network have {both} connections in the node's table"
        );
        pod.detach("amber", "eth0");
        pb.detach("amber", "eth0");
    }
    proof::of!("ATT-10a");
}
