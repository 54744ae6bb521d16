//! Networks that leave the nodes as they are, without a tag.

use std::net::{IpAddr, SocketAddr};

use agent_common::addr::{GATEWAY_MAC, MacAddr};
use agent_common::drop::DropReason;
use testbed::frame::{ethernet, marker, udp4};
use testbed::host::UPLINK;
use testbed::stream::Stream;
use testbed::tap::contains;
use testbed::{Fabric, Network, Node, Port, Setup, Tap, traffic};

use super::scene::{assert_meet, introduce};
use super::segment::{
    Judge, Segment, as_port, assert_carries, assert_untouched, give, l2, l3, part, subnets,
};

const IP: u16 = 0x0800;
const NOBODY: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x66]);

fn segments(number: u8) -> Vec<Network> {
    vec![l2("blue", 10, number).id(2001).native()]
}

fn routed(number: u8) -> Vec<Network> {
    let [v4, v6] = subnets(30);
    let other = Network::l3("lime", &[&v4, &v6]);
    vec![
        l3("green", 20, number).id(2003).native(),
        part(other, 30, number).id(2004).native(),
    ]
}

/// The node itself, on its uplink.
fn own(node: &Node, number: u8) -> Port {
    let ips: Vec<(IpAddr, u8)> = Fabric::on_segment(number)
        .into_iter()
        .zip([24, 64])
        .collect();
    as_port(node.netns(), UPLINK, &ips)
}

fn spread<'a>(nodes: &'a [Node], network: &str) -> Vec<(testbed::Pod<'a>, Port)> {
    let attach = |node: &'a Node| {
        let pod = node.pod(&format!("{network}-{}", node.name()));
        let port = pod.attach(network, "net1");
        (pod, port)
    };
    nodes.iter().map(attach).collect()
}

fn mesh(nodes: &[Node], network: &str) {
    let pods = spread(nodes, network);
    for (index, (_, a)) in pods.iter().enumerate() {
        for (_, b) in &pods[index + 1..] {
            assert_meet(a, b);
        }
    }
    assert_carries(&pods[0].1, &pods[1].1);
    for (pod, _) in &pods {
        pod.detach(network, "net1");
    }
    for node in nodes {
        assert_untouched(node);
        node.assert_empty();
    }
}

#[test]
fn nodes_and_hosts_of_a_segment_are_one_network_kep_p1_13() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(3, segments);
    mesh(&all.nodes, "blue");
    let (host, uplink) = all.stranger(9);
    let ips: [(IpAddr, u8); 2] = [
        ([10, 10, 0, 9].into(), 24),
        ("fd10:10::9".parse().expect("an address"), 64),
    ];
    give(&host, uplink, &ips);
    let host = as_port(&host, UPLINK, &ips);
    let pods = spread(&all.nodes, "blue");
    let a = &pods[0].1;
    assert_meet(a, &host);
    assert_carries(a, &host);
    assert_carries(&host, a);
    // The nodes themselves are on the segment as before.
    let nodes: Vec<Port> = (1..)
        .zip(&all.nodes)
        .map(|(number, node)| own(node, number))
        .collect();
    traffic::assert_reaches(&nodes[0], &nodes[1]);
    traffic::assert_reaches(&nodes[1], &nodes[0]);
    assert_carries(&nodes[0], &nodes[1]);
    for (pod, _) in &pods {
        pod.detach("blue", "net1");
    }
    proof::of!("KEP-P1-13");
}

/// Broadcast reaches pods and node, and tagged frames do not enter this network.
#[test]
fn a_segment_brings_each_its_own() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(1, segments);
    let node = &all.nodes[0];
    let pods = [node.pod("a"), node.pod("b")];
    let [a, b] = [0, 1].map(|index| pods[index].attach("blue", "net1"));
    let stack = Tap::stack(node.netns(), IP);
    let (taps, wire) = ([a.tap(), b.tap(), stack], all.tap(1));
    let of = |to, word: &[u8]| {
        let packet = udp4([10, 10, 0, 9].into(), a.v4(), (9, 9), word);
        ethernet(to, NOBODY, IP, &packet)
    };
    testbed::tap::assert_each_gets_one(&taps, |word| {
        wire.send(&of(MacAddr::BROADCAST, word));
    });
    let (other, last) = (marker(), marker());
    wire.send(&testbed::frame::tagged(&of(a.mac, &other), 0x8100, 100));
    wire.send(&of(a.mac, &last));
    taps[0].wait("a later frame", |frame| {
        assert!(!contains(frame, &other), "a frame of a VLAN");
        contains(frame, &last)
    });
    let word = marker();
    let judge = Judge::new(node, "blue", DropReason::SpoofedMac);
    let packet = udp4([10, 10, 0, 9].into(), b.v4(), (9, 9), &word);
    wire.send(&ethernet(b.mac, a.mac, IP, &packet));
    judge.assert_dropped(&[&taps[1]], &word);
    for pod in &pods {
        pod.detach("blue", "net1");
    }
}

#[test]
fn nodes_on_one_link_route_to_each_other() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let all = Segment::start(3, routed);
    mesh(&all.nodes, "green");
    let pods = spread(&all.nodes, "green");
    let (a, b) = (&pods[0].1, &pods[1].1);
    introduce(a, b);
    let (wire, seen) = (all.tap(1), b.tap());
    let word = marker();
    traffic::shout(a, a.v4().into(), SocketAddr::new(b.v4().into(), 9), &word).expect("sent");
    let frame = wire.wait_marker("the packet on the wire", &word);
    let nodes = [own(&all.nodes[0], 1), own(&all.nodes[1], 2)];
    assert_eq!(frame[..12], [nodes[1].mac.0, nodes[0].mac.0].concat());
    let frame = seen.wait_marker("the packet in the pod", &word);
    assert_eq!(frame[..12], [b.mac.0, GATEWAY_MAC.0].concat());
    assert_eq!(frame[22], 63, "a hop less");
    // Who is here comes in by no uplink.
    let word = marker();
    let judge = Judge::new(&all.nodes[1], "green", DropReason::SpoofedIp);
    let packet = udp4(b.v4(), b.v4(), (9, 9), &word);
    all.tap(2)
        .send(&ethernet(nodes[1].mac, NOBODY, IP, &packet));
    judge.assert_dropped(&[&seen], &word);
    // What is for another host's MAC address is not this node's to take.
    let (word, last) = (marker(), marker());
    let of = |to, word: &[u8]| {
        let packet = udp4(a.v4(), b.v4(), (9, 9), word);
        ethernet(to, NOBODY, IP, &packet)
    };
    let wire = all.tap(2);
    wire.send(&of(NOBODY, &word));
    wire.send(&of(nodes[1].mac, &last));
    seen.wait("a later packet", |frame| {
        assert!(!contains(frame, &word), "another host's");
        contains(frame, &last)
    });
    traffic::assert_reaches(&nodes[0], &nodes[1]);
    for (pod, _) in &pods {
        pod.detach("green", "net1");
    }
}

/// Routers between the nodes lead each node's part of the subnets to it.
#[test]
fn routers_between_nodes_carry_a_network() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let shared = tempfile::tempdir().expect("a directory for the nodes");
    let directory = shared.path().to_str().expect("a path in UTF-8");
    let fabric = Fabric::create();
    let mut nodes = Vec::new();
    for number in 1..=2 {
        let (v4, v6) = (Fabric::v4(number), Fabric::v6(number));
        let mut setup = Setup::empty().named(&format!("node-{number}")).args(&[
            "--vtep",
            &v4.to_string(),
            "--vtep",
            &v6.to_string(),
            "--endpoints",
            directory,
        ]);
        for network in routed(number) {
            setup = setup.network(&network);
        }
        nodes.push(Node::start_on(setup, fabric.host(number)));
        let first = u8::try_from(u32::from(number) * 32).expect("a small number");
        fabric.route(([10, 20, 0, first].into(), 27), number);
        let v6: IpAddr = format!("fd10:20::{number:x}:0")
            .parse()
            .expect("an address");
        fabric.route((v6, 112), number);
    }
    mesh(&nodes, "green");
    let pods = spread(&nodes, "green");
    let (a, b) = (&pods[0].1, &pods[1].1);
    introduce(a, b);
    for (here, there) in traffic::pairs(a, b) {
        let stream = Stream::start(a, here, b, there);
        for node in &nodes {
            node.kill_9();
            stream.progress();
            node.start_agent();
            stream.progress();
        }
        stream.assert_nothing_lost();
    }
    for (pod, _) in &pods {
        pod.detach("green", "net1");
    }
}
