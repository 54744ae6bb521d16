//! `explain` across nodes: what leaves by a tunnel, and what arrives by one.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use agent_common::addr::{GATEWAY_MAC, Ip16, MacAddr};
use agent_common::drop::DropReason;
use serde_json::json;
use testbed::frame::{ethernet, marker, udp4};
use testbed::{Fabric, Node, Port, pins, traffic, wait};

use super::scene::{L2, L3, Nodes, Pair, Underlay};

const UDP: [&str; 2] = ["--proto", "udp:5000:9"];
/// VNI of the first L2 network.
const BLUE: u32 = 2001;

/// Packets of the only attachment, as its node counts them.
fn received(node: &Node) -> u64 {
    let row = node.get("attachments").remove(0);
    row["toPod"]["packets"].as_u64().expect("a number")
}

/// Compares both nodes' explanation of a packet between them with a real packet.
fn from_here_to_there(nodes: &Nodes, network: &str, vteps: [IpAddr; 2]) {
    let pair = Pair::attach(nodes, network);
    let (here, there) = (&nodes.nodes[0], &nodes.nodes[1]);
    let (a, b) = (&pair.a, &pair.b);
    for (from, to) in traffic::pairs(a, b) {
        let told = here.explain("a", &to.to_string(), &UDP);
        told.assert_is("tunnelled", "");
        assert_eq!(*told.detail("node"), "node-2");
        assert_eq!(*told.detail("vtep"), vteps[1].to_string());
        assert_eq!(told.disagreements(), "[]");
        told.assert_tells(&[
            &format!("{} to {}, UDP 4789", vteps[0], vteps[1]),
            "bytes fit",
            "on node-2, if its tables agree with these",
            "it delivers",
        ]);
        let sender = format!("{network}/{from}");
        let before = received(there);
        let arrival = there.explain(&sender, "b", &UDP);
        arrival.assert_is("delivered", "");
        assert_eq!(*arrival.detail("container"), "b");
        arrival.assert_tells(&[&format!("VTEP_SOURCES[{}] | node-1", vteps[0])]);
        assert_eq!(received(there), before, "explaining sends nothing");
        let (mark, tap) = (marker(), b.tap());
        traffic::shout(a, from, (to, 9).into(), &mark).expect("sent");
        let frame = tap.wait_marker("the datagram", &mark);
        wait::until_true("the count", || received(there) > before);
        // The frame that arrives is the one that was followed there.
        let addresses = if to.is_ipv4() { 26..34 } else { 22..54 };
        for part in [0..14, addresses] {
            assert_eq!(arrival.head()[part.clone()], frame[part], "{network} {to}");
        }
        let hops = if to.is_ipv4() { 22 } else { 21 };
        assert_eq!(arrival.head()[hops], frame[hops], "{network} {to}");
    }
    let all = format!("{network}/{}", b.v4());
    here.explain("a", &all, &UDP).assert_is("tunnelled", "");
    here.explain("a", &all, &["--size", "1430"])
        .assert_is("tunnelled", "");
    here.explain("a", &all, &["--size", "1431"])
        .assert_is("dropped", "too_big");
    pair.detach();
}

#[test]
fn what_is_told_to_go_to_another_node_arrives_there_as_told() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for (underlay, of) in [
        (Underlay::V4, Fabric::v4 as fn(u8) -> IpAddr),
        (Underlay::V6, Fabric::v6),
    ] {
        let nodes = Nodes::start(2, underlay);
        for network in [L2[0], L3[0]] {
            from_here_to_there(&nodes, network, [of(1), of(2)]);
        }
    }
}

/// A broadcast: who gets a copy on either side.
#[test]
fn a_broadcast_is_told_with_the_nodes_and_on_each_with_its_ports() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    let pair = Pair::attach(&nodes, L2[0]);
    let (here, there) = (&nodes.nodes[0], &nodes.nodes[1]);
    let beside = here.pod("beside");
    beside.attach(L2[0], "net1");
    let told = here.explain("a", "255.255.255.255", &UDP);
    told.assert_is("replicated", "");
    assert_eq!(*told.detail("ports"), json!(["beside/net1"]));
    assert_eq!(*told.detail("nodes"), json!(["node-2 (10.99.2.1)"]));
    let sender = format!("blue/{}", pair.a.mac);
    let told = there.explain(&sender, "255.255.255.255", &UDP);
    told.assert_is("replicated", "");
    assert_eq!(*told.detail("ports"), json!(["b/net1"]));
    assert_eq!(*told.detail("nodes"), json!([]), "split horizon");
    beside.detach(L2[0], "net1");
    pair.detach();
}

/// A VXLAN packet as another node would send it (RFC 7348 section 5).
fn forge(node: &Node, to: IpAddr, vni: u32, frame: &[u8]) {
    let socket = node.netns().run_in(|| UdpSocket::bind(("0.0.0.0", 0)));
    let socket = socket.expect("entered").expect("a socket");
    let [_, a, b, c] = vni.to_be_bytes();
    let packet = [&[8, 0, 0, 0, a, b, c, 0], frame].concat();
    socket
        .send_to(&packet, SocketAddr::new(to, 4789))
        .expect("sent");
}

#[track_caller]
fn assert_dropped(node: &Node, network: &str, reason: DropReason, send: impl FnOnce()) {
    let before = node.drops().of(network, reason);
    send();
    wait::until_true(&format!("a drop for {reason}"), || {
        node.drops().of(network, reason) > before
    });
}

/// A forged packet of a node is explained with the reason of its drop.
#[test]
fn what_a_node_may_not_send_is_told_with_the_reason_it_is_dropped_for() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    let pair = Pair::attach(&nodes, L2[0]);
    let (here, there) = (&nodes.nodes[0], &nodes.nodes[1]);
    let (a, b) = (&pair.a, &pair.b);
    let inner = |from: MacAddr, to: MacAddr| {
        ethernet(to, from, 0x0800, &udp4(a.v4(), b.v4(), (5000, 9), b"lie"))
    };
    let stranger = MacAddr([2, 0, 0, 0, 0, 0x66]);
    let own = a.v4().to_string();
    let claim = ["--source", &own, "--arrive-from", "node-1"];
    let told = there.explain(&format!("blue/{stranger}"), "b", &claim);
    told.assert_is("dropped", "spoofed_mac");
    assert_dropped(there, L2[0], DropReason::SpoofedMac, || {
        forge(here, Fabric::v4(2), BLUE, &inner(stranger, b.mac));
    });
    // The pod's own, said by its neighbour.
    let told = there.explain("b", &b.mac.to_string(), &["--arrive-from", "node-1"]);
    told.assert_is("dropped", "spoofed_mac");
    let told = there.explain(&format!("blue/{}", a.mac), &stranger.to_string(), &[]);
    told.assert_is("dropped", "no_endpoint");
    assert_dropped(there, L2[0], DropReason::NoEndpoint, || {
        forge(here, Fabric::v4(2), BLUE, &inner(a.mac, stranger));
    });
    let sender = format!("blue/{own}");
    let told = there.explain(&sender, "b", &["--arrive-from", "10.99.77.1"]);
    told.assert_is("dropped", "unknown_node");
    let error = there.explain_error(&sender, "b", &["--arrive-from", "node-9"]);
    for word in ["--arrive-from node-9", "node-1"] {
        assert!(error.contains(word), "{error}");
    }
    let error = there.explain_error(&sender, "b", &["--proto", "arp"]);
    assert!(error.contains("--proto"), "{error}");
    pair.detach();
}

/// The explanation reads the receiver's maps: without an entry a node is unknown.
#[test]
fn a_node_that_somebody_removed_from_the_maps_is_told_to_be_unknown() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    let pair = Pair::attach(&nodes, L3[0]);
    let (here, there) = (&nodes.nodes[0], &nodes.nodes[1]);
    let (a, b): (&Port, &Port) = (&pair.a, &pair.b);
    let sender = format!("{}/{}", L3[0], a.v4());
    there.explain(&sender, "b", &UDP).assert_is("delivered", "");
    pins::remove::<16, 4>(there, "VTEP_SOURCES", Ip16::from(Fabric::v4(1)).0);
    let told = there.explain(&sender, "b", &UDP);
    told.assert_is("dropped", "unknown_node");
    let packet = udp4(a.v4(), b.v4(), (5000, 9), b"?");
    let tap = a.tap();
    assert_dropped(there, "", DropReason::UnknownNode, || {
        tap.send(&ethernet(GATEWAY_MAC, a.mac, 0x0800, &packet));
    });
    // From here it looks as before: what the other node has lost only that node can tell.
    here.explain("a", &b.v4().to_string(), &UDP)
        .assert_is("tunnelled", "");
    let key = pins::endpoint(2003, b.v4().into());
    pins::remove::<20, 24>(here, "ENDPOINTS", key);
    let told = here.explain("a", &b.v4().to_string(), &UDP);
    told.assert_is("dropped", "no_endpoint");
    let said = told.disagreements();
    assert!(said.contains("node-2 says that it has it"), "{said}");
    for node in [here, there] {
        node.restart();
    }
    super::scene::assert_meet(a, b);
    pair.detach();
}
