//! Frames that no pod of the network has sent.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use netdev::Netns;
use testbed::frame::{Marker, ethernet, marker, tagged, udp4};
use testbed::{Fabric, Network, Node, Port, wait};

use super::scene::{L2, L3, Nodes, Pair, Underlay, introduce};

const VXLAN: u16 = 4789;
const IP: u16 = 0x0800;
/// VNIs of the networks of the pair.
pub(super) const BLUE: u32 = 2001;
pub(super) const RED: u32 = 2002;
pub(super) const GREEN: u32 = 2003;

/// A VXLAN packet (RFC 7348 section 5) from wherever `netns` is, to node 2.
pub(super) fn forge(netns: &Netns, to: IpAddr, vni: u32, frame: &[u8]) {
    let any: IpAddr = if to.is_ipv4() {
        [0, 0, 0, 0].into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = netns.run_in(|| UdpSocket::bind((any, 0)));
    let socket = socket.expect("entered").expect("a socket");
    let [_, a, b, c] = vni.to_be_bytes();
    let packet = [&[8, 0, 0, 0, a, b, c, 0], frame].concat();
    socket
        .send_to(&packet, SocketAddr::new(to, VXLAN))
        .expect("sent");
}

/// An inner frame with a word in it, as `from` would send it to `to`.
pub(super) fn inner(
    from: MacAddr,
    to: MacAddr,
    source: &Port,
    target: &Port,
    word: &Marker,
) -> Vec<u8> {
    let packet = udp4(source.v4(), target.v4(), (9, 9), word);
    ethernet(to, from, IP, &packet)
}

/// Checks that node 2 drops a packet for a reason, and that it reaches no pod.
///
/// It waits until the node has dropped one packet more for the reason than before.
pub(super) struct Judge<'a> {
    node: &'a Node,
    network: &'a str,
    reason: DropReason,
    before: u64,
}

impl<'a> Judge<'a> {
    pub(super) fn new(node: &'a Node, network: &'a str, reason: DropReason) -> Self {
        let before = node.drops().of(network, reason);
        Self {
            node,
            network,
            reason,
            before,
        }
    }

    #[track_caller]
    pub(super) fn assert_dropped(&self, ports: &[&testbed::Tap], word: &Marker) {
        wait::until_true(&format!("a drop for {}", self.reason), || {
            self.node.drops().of(self.network, self.reason) > self.before
        });
        for tap in ports {
            assert_eq!(tap.count(word), 0, "{} was delivered", self.reason);
        }
    }
}

#[test]
fn a_frame_from_no_node_is_dropped_on_either_underlay() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for (underlay, target) in [(Underlay::V4, Fabric::v4(2)), (Underlay::V6, Fabric::v6(2))] {
        let nodes = Nodes::start(2, underlay);
        let pair = Pair::attach(&nodes, L2[0]);
        let tap = pair.b.tap();
        let word = marker();
        let frame = inner(pair.a.mac, pair.b.mac, &pair.a, &pair.b, &word);
        let judge = Judge::new(&nodes.nodes[1], "", DropReason::UnknownNode);
        forge(nodes.fabric.netns(), target, BLUE, &frame);
        judge.assert_dropped(&[&tap], &word);
        // The very frame is taken from the node it belongs to.
        let word = marker();
        let frame = inner(pair.a.mac, pair.b.mac, &pair.a, &pair.b, &word);
        forge(nodes.nodes[0].netns(), target, BLUE, &frame);
        tap.wait_marker("a frame of the pod's own node", &word);
    }
}

#[test]
fn a_node_that_lies_reaches_nobody() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(3, Underlay::V4);
    let pair = Pair::attach(&nodes, L2[0]);
    let (here, there) = (&nodes.nodes[0], &nodes.nodes[1]);
    let third = nodes.nodes[2].pod("c");
    let c = third.attach(L2[0], "net1");
    introduce(&c, &pair.b);
    let red = there.pod("red");
    let red = red.attach(L2[1], "net1");
    let local = there.pod("local");
    there.write_manifest(
        "local.yaml",
        &Network::l2("local", &["10.10.0.0/24"]).id(2999).yaml(),
    );
    wait::until_true("the network", || local.add("local", "net1").success);
    let taps = [pair.b.tap(), red.tap(), c.tap()];
    let watched: Vec<_> = taps.iter().collect();
    let (a, b) = (&pair.a, &pair.b);
    let nobody = MacAddr([2, 0, 0, 0, 0, 0x66]);
    let cases: Vec<(&str, &str, DropReason, u32, MacAddr, MacAddr)> = vec![
        (
            "a stranger",
            "blue",
            DropReason::SpoofedMac,
            BLUE,
            nobody,
            b.mac,
        ),
        (
            "a pod of the receiver",
            "blue",
            DropReason::SpoofedMac,
            BLUE,
            b.mac,
            b.mac,
        ),
        (
            "a pod of a third node",
            "blue",
            DropReason::SpoofedMac,
            BLUE,
            c.mac,
            b.mac,
        ),
        (
            "for all, of a stranger",
            "blue",
            DropReason::SpoofedMac,
            BLUE,
            nobody,
            MacAddr::BROADCAST,
        ),
        (
            "on another network",
            "red",
            DropReason::SpoofedMac,
            RED,
            a.mac,
            red.mac,
        ),
        (
            "for a third node",
            "blue",
            DropReason::Hairpin,
            BLUE,
            a.mac,
            c.mac,
        ),
        (
            "for nobody",
            "blue",
            DropReason::NoEndpoint,
            BLUE,
            a.mac,
            nobody,
        ),
        (
            "on a network of that node alone",
            "",
            DropReason::UnknownNetwork,
            2999,
            a.mac,
            b.mac,
        ),
        (
            "on no network",
            "",
            DropReason::UnknownNetwork,
            0x00ff_ffff,
            a.mac,
            b.mac,
        ),
    ];
    for (what, network, reason, vni, from, to) in cases {
        let word = marker();
        let judge = Judge::new(there, network, reason);
        forge(
            here.netns(),
            Fabric::v4(2),
            vni,
            &inner(from, to, a, b, &word),
        );
        eprintln!("{what}");
        judge.assert_dropped(&watched, &word);
    }
    let word = marker();
    let judge = Judge::new(there, "blue", DropReason::VlanTag);
    let frame = tagged(&inner(a.mac, b.mac, a, b, &word), 0x8100, 5);
    forge(here.netns(), Fabric::v4(2), BLUE, &frame);
    judge.assert_dropped(&watched, &word);
}

#[test]
fn a_node_that_lies_about_addresses_of_a_routed_network_reaches_nobody() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    let pair = Pair::attach(&nodes, L3[0]);
    let (here, there) = (&nodes.nodes[0], &nodes.nodes[1]);
    let tap = pair.b.tap();
    let (a, b) = (&pair.a, &pair.b);
    let gateway = agent_common::addr::GATEWAY_MAC;
    let lie = |source, reason, from: MacAddr| {
        let word = marker();
        let judge = Judge::new(there, L3[0], reason);
        let frame = ethernet(b.mac, from, IP, &udp4(source, b.v4(), (9, 9), &word));
        forge(here.netns(), Fabric::v4(2), GREEN, &frame);
        judge.assert_dropped(&[&tap], &word);
    };
    lie(b.v4(), DropReason::SpoofedIp, gateway);
    lie([10, 20, 0, 250].into(), DropReason::SpoofedIp, gateway);
    lie(a.v4(), DropReason::SpoofedMac, a.mac);
}

/// A tunnel packet that a pod sends stays a frame of the pod's network.
#[test]
fn a_pod_makes_no_tunnels() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start(2, Underlay::V4);
    let pair = Pair::attach(&nodes, L2[0]);
    let (a, b) = (&pair.a, &pair.b);
    let (tap, fabric) = (
        a.tap(),
        testbed::Tap::on(nodes.fabric.netns(), &Fabric::link(1)),
    );
    let word = marker();
    let payload = [
        &[8, 0, 0, 0, 0, 0x07, 0xd2, 0][..],
        &inner(a.mac, b.mac, a, b, &word)[..],
    ]
    .concat();
    let IpAddr::V4(target) = Fabric::v4(2) else {
        return;
    };
    let packet = udp4(a.v4(), target, (VXLAN, VXLAN), &payload);
    let before = nodes.nodes[0].drops().of(L2[0], DropReason::NoEndpoint);
    tap.send(&ethernet(MacAddr([2, 9, 9, 9, 9, 9]), a.mac, IP, &packet));
    wait::until_true("the drop", || {
        nodes.nodes[0].drops().of(L2[0], DropReason::NoEndpoint) > before
    });
    assert_eq!(fabric.count(&word), 0, "it left the node");
    // To a pod it is a datagram like others, in a tunnel of the pod's own network.
    let seen = b.tap();
    tap.send(&ethernet(b.mac, a.mac, IP, &packet));
    let frame = seen.wait_marker("the datagram", &word);
    assert_eq!(frame[..6], b.mac.0);
}
