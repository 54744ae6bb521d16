//! Attack from pods on the very segment that tunnels of nodes go by.
//!
//! It is an L2 network without a tag on the uplink of the underlay, on which a pod may have any
//! address, or that of a node.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use tempfile::TempDir;
use testbed::frame::{
    IPV4_MF, Ipv4, Ipv6, Marker, ethernet, extension, fragment_header, marker, udp4, udp6,
};
use testbed::host::{UPLINK, connection};
use testbed::{Fabric, Network, Node, Port, Setup, Tap, wait};

const VXLAN: u16 = 4789;
const BLUE: u32 = 2001;
const IP: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ALL: MacAddr = MacAddr([0xff; 6]);

/// EtherTypes and packets of a lie with this word in it.
type Lie<'a> = &'a dyn Fn(&Marker) -> Vec<(u16, Vec<u8>)>;

/// Two nodes on a segment, which is a network of pods too.
struct Nodes {
    nodes: Vec<Node>,
    _fabric: Fabric,
    _shared: TempDir,
}

impl Nodes {
    fn start() -> Self {
        let fabric = Fabric::segment();
        let shared = tempfile::Builder::new()
            .prefix("podnet-test-shared-")
            .tempdir()
            .expect("a directory for the nodes");
        let mut nodes = Vec::new();
        for number in 1..=2_u8 {
            let taken = format!("10.10.0.{}/25", u32::from(2 - number) * 128);
            let blue = Network::l2("blue", &["10.10.0.0/24"]).exclude(&[&taken]);
            let directory = shared.path().to_str().expect("a path in UTF-8");
            let mut setup = Setup::empty().named(&format!("node-{number}"));
            for address in Fabric::on_segment(number) {
                setup = setup.args(&["--vtep", &address.to_string()]);
            }
            let setup = setup
                .args(&["--endpoints", directory])
                .network(&blue.id(BLUE).vxlan())
                .network(&Network::l2("street", &[]).id(2002).native());
            nodes.push(Node::start_on(setup, fabric.host(number)));
        }
        Self {
            nodes,
            _fabric: fabric,
            _shared: shared,
        }
    }
}

fn addresses(number: u8) -> (Ipv4Addr, Ipv6Addr) {
    match Fabric::on_segment(number) {
        [IpAddr::V4(v4), IpAddr::V6(v6)] => (v4, v6),
        other => unreachable!("an address of each family, not {other:?}"),
    }
}

fn uplink_mac(node: &Node) -> MacAddr {
    let link = connection(node.netns()).by_name(UPLINK);
    let link = link.expect("links can be read").expect("the uplink");
    MacAddr(link.mac.expect("Ethernet"))
}

/// Builds a VXLAN payload (RFC 7348 section 5): a marked datagram from pod to pod.
fn tunnelled(from: &Port, to: &Port, word: &Marker) -> Vec<u8> {
    let packet = udp4(from.v4(), to.v4(), (9, 9), word);
    let [_, a, b, c] = BLUE.to_be_bytes();
    let frame = ethernet(to.mac, from.mac, IP, &packet);
    [&[8, 0, 0, 0, a, b, c, 0][..], &frame].concat()
}

/// ATT-01a: a pod on the segment of the underlay sends no tunnel packet.
///
/// A pod may have any address there where its network has no subnets. It sends by the node's MAC
/// address or to all, plain, behind IPv6 headers, in fragments.
#[test]
fn a_pod_on_the_segment_of_the_underlay_sends_no_tunnel() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let Nodes { nodes, .. } = &Nodes::start();
    let pods = [nodes[0].pod("a"), nodes[1].pod("b")];
    let [a, b] = pods.each_ref().map(|pod| pod.attach("blue", "net1"));
    let liar = nodes[0].pod("mallory");
    let mallory = liar.attach("street", "net1");
    let (tap, seen) = (mallory.tap(), b.tap());
    let ((from, from6), (to, to6)) = (addresses(1), addresses(2));
    let node = uplink_mac(&nodes[1]);
    let whole = |word: &Marker| tunnelled(&a, &b, word);
    let plain = |word: &Marker| vec![(IP, udp4(from, to, (4096, VXLAN), &whole(word)))];
    let plain6 = |word: &Marker| vec![(IPV6, udp6(from6, to6, (4096, VXLAN), &whole(word)))];
    let behind = |word: &Marker| {
        let datagram = udp6(from6, to6, (4096, VXLAN), &whole(word));
        let behind = [&extension(17, &[1, 4, 0, 0, 0, 0])[..], &datagram[40..]].concat();
        vec![(IPV6, Ipv6::new(from6, to6, 60).packet(&behind))]
    };
    let pieces = |word: &Marker| {
        let datagram = udp4(from, to, (4096, VXLAN), &whole(word));
        let (first, rest) = datagram[20..].split_at(32);
        let pieces = [(first, IPV4_MF), (rest, 32 / 8)].map(|(payload, field)| {
            let header = Ipv4 {
                fragment: field,
                ..Ipv4::new(from, to, 17)
            };
            (IP, header.packet(payload))
        });
        pieces.to_vec()
    };
    let pieces6 = |word: &Marker| {
        let datagram = udp6(from6, to6, (4096, VXLAN), &whole(word));
        let (first, rest) = datagram[40..].split_at(32);
        let pieces = [(first, 0, true), (rest, 4, false)].map(|(payload, offset, more)| {
            let fragment = [&fragment_header(17, offset, more)[..], payload].concat();
            (IPV6, Ipv6::new(from6, to6, 44).packet(&fragment))
        });
        pieces.to_vec()
    };
    let lies: [(&str, Lie<'_>); 5] = [
        ("IPv4", &plain),
        ("IPv6", &plain6),
        ("IPv6 behind options", &behind),
        ("IPv4 in fragments", &pieces),
        ("IPv6 in fragments", &pieces6),
    ];
    for (what, lie) in lies {
        for mac in [node, ALL] {
            assert_kept(&nodes[0], &tap, &seen, &format!("{what}, {mac}"), |word| {
                let packets = lie(word).into_iter();
                let frame =
                    |(kind, packet): (u16, Vec<u8>)| ethernet(mac, mallory.mac, kind, &packet);
                packets.map(frame).collect()
            });
        }
    }
    // Another port is nobody's business.
    let word = marker();
    let wire = Tap::on(nodes[1].netns(), UPLINK);
    let packet = udp4(from, to, (4096, VXLAN + 1), &whole(&word));
    tap.send(&ethernet(node, mallory.mac, IP, &packet));
    wire.wait_marker("a datagram to another port", &word);
    liar.detach("street", "net1");
    for pod in pods {
        pod.detach("blue", "net1");
    }
    proof::of!("ATT-01a");
}

/// Asserts that the liar's node drops the packet, and the victim does not get it.
#[track_caller]
fn assert_kept(
    node: &Node,
    tap: &Tap,
    seen: &Tap,
    what: &str,
    frames: impl Fn(&Marker) -> Vec<Vec<u8>>,
) {
    let dropped = || node.drops().of("street", DropReason::TunnelPort);
    let (before, word) = (dropped(), marker());
    for frame in frames(&word) {
        tap.send(&frame);
    }
    wait::until_true(&format!("{what}: a drop"), || {
        assert_eq!(
            seen.count(&word),
            0,
            "{what}: a forged tunnel reached a pod"
        );
        dropped() > before
    });
}
