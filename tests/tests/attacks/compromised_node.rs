//! Attack as a node that lies in its tunnels about its members.
//!
//! Its packets have to be such as its own members could send.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use netdev::Netns;
use tempfile::TempDir;
use testbed::frame::{
    Arp, Ipv6, Marker, ethernet, icmp6, marker, nd_option, neighbour_advertisement,
    neighbour_solicitation, redirect, router_advertisement, udp4, udp6,
};
use testbed::{Fabric, Network, Node, Port, Setup, Tap, traffic, wait};

const VXLAN: u16 = 4789;
const IP: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// The VNI of `blue`, and of `grey`, whose addresses podnet does not know.
const BLUE: u32 = 2001;
const GREY: u32 = 2002;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Attempts to reach a pod whose node may not know the sender yet.
const SOON: Duration = Duration::from_millis(20);

/// The node that lies and the one that hears it, and what connects them.
struct Nodes {
    liar: Node,
    victim: Node,
    fabric: Fabric,
    _shared: TempDir,
}

impl Nodes {
    fn start(xdp: &str) -> Self {
        let shared = tempfile::Builder::new()
            .prefix("podnet-test-shared-")
            .tempdir();
        let shared = shared.expect("a directory for the nodes");
        let fabric = Fabric::create();
        let [liar, victim] = [1, 2].map(|number| {
            let directory = shared.path().to_str().expect("a path in UTF-8");
            let vtep = Fabric::v4(number).to_string();
            let setup = Setup::empty().named(&format!("node-{number}"));
            let setup = setup.args(&["--vtep", &vtep, "--endpoints", directory, "--xdp", xdp]);
            let setup = setup.network(&blue(number)).network(&grey());
            Node::start_on(setup, fabric.host(number))
        });
        Self {
            liar,
            victim,
            fabric,
            _shared: shared,
        }
    }
}

/// An L2 network of which each node gives out a part of its own.
fn blue(number: u8) -> Network {
    let mut exclude = Vec::new();
    for below in 0..number {
        exclude.push(format!("10.10.0.{}/27", u32::from(below) * 32));
        exclude.push(format!("fd10:10::{below:x}:0/112"));
    }
    let exclude: Vec<&str> = exclude.iter().map(String::as_str).collect();
    let network = Network::l2("blue", &["10.10.0.0/24", "fd10:10::/64"]);
    network.exclude(&exclude).id(BLUE).vxlan()
}

fn grey() -> Network {
    Network::new("grey", "L2").id(GREY).vxlan()
}

/// A VXLAN packet (RFC 7348 section 5) of the node in `netns` to node 2.
fn forge(netns: &Netns, vni: u32, frame: &[u8]) {
    let socket = netns.run_in(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)));
    let socket = socket.expect("entered").expect("a socket");
    let [_, a, b, c] = vni.to_be_bytes();
    let packet = [&[8, 0, 0, 0, a, b, c, 0], frame].concat();
    let to = SocketAddr::new(Fabric::v4(2), VXLAN);
    socket.send_to(&packet, to).expect("sent");
}

/// Sends datagrams from `a` to `b` until one arrives.
#[track_caller]
fn introduce(a: &Port, b: &Port) {
    for (from, to) in traffic::pairs(a, b) {
        let (source, sink) = (traffic::udp(a, from), traffic::udp(b, to));
        sink.set_read_timeout(Some(SOON)).expect("a timeout");
        let target = sink.local_addr().expect("a bound socket has an address");
        wait::until_true(&format!("{from} to reach {to}"), || {
            // Until its node knows the way, the address does not resolve.
            let _ = source.send_to(b"hello", target);
            sink.recv(&mut [0; 16]).is_ok()
        });
    }
}

/// Builds a frame of the node to this address, with a marker that no pod may get.
type Said<'a> = Box<dyn Fn(MacAddr, &Marker) -> Vec<u8> + 'a>;

/// Sends each frame to one pod and to all, and asserts that it is dropped.
///
/// The drop is counted for its reason, and no pod gets the frame.
#[track_caller]
fn assert_refused(
    nodes: &Nodes,
    (name, vni): (&str, u32),
    (to, taps): (MacAddr, &[Tap]),
    lies: &[(&str, DropReason, Said<'_>)],
) {
    for (what, reason, lie) in lies {
        for to in [to, MacAddr::BROADCAST] {
            let word = marker();
            let before = nodes.victim.drops().of(name, *reason);
            forge(nodes.liar.netns(), vni, &lie(to, &word));
            let mut seen = 0;
            let mut look = || {
                seen += taps.iter().map(|tap| tap.count(&word)).sum::<usize>();
                seen
            };
            wait::until_true(&format!("{what}, to {to}: a drop for {reason}"), || {
                look() > 0 || nodes.victim.drops().of(name, *reason) > before
            });
            assert_eq!(look(), 0, "{what}, to {to}, reached a pod");
        }
    }
}

fn lies<'a>(a: &'a Port, b: &'a Port, c: &'a Port) -> Vec<(&'static str, DropReason, Said<'a>)> {
    let v6 = |to, packet: Vec<u8>| ethernet(to, a.mac, IPV6, &packet);
    let own = a.mac.link_local();
    let spoofed = DropReason::SpoofedNd;
    vec![
        (
            "ARP that has a pod's address at the liar's",
            DropReason::SpoofedArp,
            Box::new(|to, word| {
                let arp = Arp {
                    operation: 2,
                    sender: (a.mac, c.v4()),
                    target: (b.mac, b.v4()),
                };
                arp.frame(to, a.mac, word)
            }),
        ),
        (
            "an ARP question in a pod's name",
            DropReason::SpoofedArp,
            Box::new(|to, word| {
                let arp = Arp::request((a.mac, c.v4()), b.v4());
                arp.frame(to, a.mac, word)
            }),
        ),
        (
            "ARP that has the liar's address at a pod's",
            DropReason::SpoofedArp,
            Box::new(|to, word| {
                let arp = Arp::request((c.mac, a.v4()), b.v4());
                arp.frame(to, a.mac, word)
            }),
        ),
        (
            "an advertisement of a pod's address",
            spoofed,
            Box::new(move |to, word| {
                let nonce = nd_option(14, word);
                v6(
                    to,
                    neighbour_advertisement(own, b.v6(), c.v6(), a.mac, &nonce),
                )
            }),
        ),
        (
            "an advertisement of the own address at a pod's",
            spoofed,
            Box::new(move |to, word| {
                let nonce = nd_option(14, word);
                v6(
                    to,
                    neighbour_advertisement(own, b.v6(), a.v6(), c.mac, &nonce),
                )
            }),
        ),
        (
            "a solicitation in a pod's name",
            DropReason::SpoofedIp,
            Box::new(move |to, word| {
                let nonce = nd_option(14, word);
                v6(
                    to,
                    neighbour_solicitation(c.v6(), b.v6(), b.v6(), a.mac, &nonce),
                )
            }),
        ),
        (
            "a solicitation with a pod's MAC address",
            spoofed,
            Box::new(move |to, word| {
                let nonce = nd_option(14, word);
                v6(
                    to,
                    neighbour_solicitation(own, b.v6(), b.v6(), c.mac, &nonce),
                )
            }),
        ),
        (
            "a router solicitation with a pod's MAC address",
            spoofed,
            Box::new(move |to, word| {
                let body = [vec![0; 4], nd_option(1, &c.mac.0), nd_option(14, word)].concat();
                let message = icmp6(own, b.v6(), (133, 0), &body);
                v6(to, Ipv6::new(own, b.v6(), 58).packet(&message))
            }),
        ),
        (
            "a router advertisement",
            DropReason::RouterAdvertisement,
            Box::new(move |to, word| {
                v6(
                    to,
                    router_advertisement(own, ALL_NODES, &nd_option(14, word)),
                )
            }),
        ),
        (
            "a redirect",
            DropReason::RouterAdvertisement,
            Box::new(move |to, word| {
                let nonce = nd_option(14, word);
                v6(to, redirect(own, b.v6(), a.v6(), c.v6(), &nonce))
            }),
        ),
        (
            "a listener query",
            DropReason::ControlMessage,
            Box::new(move |to, word| {
                let body = [&[0; 20][..], word].concat();
                let message = icmp6(own, ALL_NODES, (130, 0), &body);
                v6(to, Ipv6::new(own, ALL_NODES, 58).packet(&message))
            }),
        ),
        (
            "an offer of DHCP",
            DropReason::Dhcp,
            Box::new(|to, word| {
                ethernet(
                    to,
                    a.mac,
                    IP,
                    &udp4(a.v4(), Ipv4Addr::BROADCAST, (67, 68), word),
                )
            }),
        ),
        (
            "an offer of DHCPv6",
            DropReason::Dhcp,
            Box::new(move |to, word| v6(to, udp6(own, b.v6(), (547, 546), word))),
        ),
        (
            "IPv4 from a pod's address",
            DropReason::SpoofedIp,
            Box::new(|to, word| ethernet(to, a.mac, IP, &udp4(c.v4(), b.v4(), (9, 9), word))),
        ),
        (
            "IPv4 from nobody's address",
            DropReason::SpoofedIp,
            Box::new(|to, word| {
                let nobody = [10, 10, 0, 254].into();
                ethernet(to, a.mac, IP, &udp4(nobody, b.v4(), (9, 9), word))
            }),
        ),
        (
            "IPv6 from a pod's address",
            DropReason::SpoofedIp,
            Box::new(move |to, word| v6(to, udp6(c.v6(), b.v6(), (9, 9), word))),
        ),
        (
            "IPv6 from a pod's link-local address",
            DropReason::SpoofedIp,
            Box::new(move |to, word| v6(to, udp6(c.mac.link_local(), b.v6(), (9, 9), word))),
        ),
        (
            "a pause frame",
            DropReason::EtherType,
            Box::new(|to, word| ethernet(to, a.mac, 0x8808, word)),
        ),
    ]
}

/// A node sends on an L2 network with subnets for its own members only.
///
/// It does so by the kernel's device, by the program on the uplink, and by XDP.
///
/// ATT-06c.
#[test]
fn a_node_speaks_on_l2_for_its_own_members_only() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for xdp in ["off", "native"] {
        let nodes = Nodes::start(xdp);
        let pods = [
            nodes.liar.pod("a"),
            nodes.victim.pod("b"),
            nodes.victim.pod("c"),
        ];
        let [a, b, c] = [0, 1, 2].map(|index| pods[index].attach("blue", "net1"));
        introduce(&a, &b);
        introduce(&b, &a);
        let taps = [b.tap(), c.tap()];
        assert_refused(&nodes, ("blue", BLUE), (b.mac, &taps), &lies(&a, &b, &c));
        // In the name of its own pod the very frames are taken.
        let nonce = |word: &Marker| nd_option(14, word);
        let own = a.mac.link_local();
        let truths: [Said<'_>; 6] = [
            Box::new(|to, word| Arp::request((a.mac, a.v4()), b.v4()).frame(to, a.mac, word)),
            // RFC 5227: before it has the address.
            Box::new(|to, word| {
                let arp = Arp::request((a.mac, Ipv4Addr::UNSPECIFIED), a.v4());
                arp.frame(to, a.mac, word)
            }),
            Box::new(|to, word| {
                let packet = neighbour_advertisement(own, b.v6(), a.v6(), a.mac, &nonce(word));
                ethernet(to, a.mac, IPV6, &packet)
            }),
            Box::new(|to, word| {
                let packet = neighbour_solicitation(a.v6(), b.v6(), b.v6(), a.mac, &nonce(word));
                ethernet(to, a.mac, IPV6, &packet)
            }),
            Box::new(|to, word| ethernet(to, a.mac, IP, &udp4(a.v4(), b.v4(), (9, 9), word))),
            Box::new(|to, word| ethernet(to, a.mac, IPV6, &udp6(own, b.v6(), (9, 9), word))),
        ];
        for truth in &truths {
            for to in [b.mac, MacAddr::BROADCAST] {
                let word = marker();
                forge(nodes.liar.netns(), BLUE, &truth(to, &word));
                taps[0].wait_marker("what a member may say", &word);
            }
        }
        introduce(&a, &c);
        drop(pods);
        drop(nodes.fabric);
    }
    proof::of!("ATT-06c");
}

/// Without addresses, a node sends on L2 by its members' MAC addresses only.
///
/// No node is a router there.
///
/// ATT-06c.
#[test]
fn a_node_speaks_on_l2_without_addresses_by_its_members_mac_addresses_only() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let nodes = Nodes::start("off");
    let pods = [nodes.liar.pod("a"), nodes.victim.pod("b")];
    let [a, b] = [0, 1].map(|index| pods[index].attach("grey", "net1"));
    let taps = [b.tap()];
    let any: [IpAddr; 2] = [
        [198, 51, 100, 7].into(),
        [0x2001, 0xdb8, 0, 0, 0, 0, 0, 7].into(),
    ];
    let [IpAddr::V4(any4), IpAddr::V6(any6)] = any else {
        return;
    };
    let v6 = |to, packet: Vec<u8>| ethernet(to, a.mac, IPV6, &packet);
    // Until the victim has heard of the liar's pod, nothing of it arrives.
    let word = marker();
    wait::until_true("the pod to be known on the other node", || {
        let frame = ethernet(b.mac, a.mac, IP, &udp4(any4, any4, (9, 9), &word));
        forge(nodes.liar.netns(), GREY, &frame);
        taps[0].count(&word) > 0
    });
    let truths: [Said<'_>; 3] = [
        Box::new(|to, word| Arp::request((a.mac, any4), any4).frame(to, a.mac, word)),
        Box::new(|to, word| {
            ethernet(
                to,
                a.mac,
                IP,
                &udp4(any4, Ipv4Addr::BROADCAST, (67, 68), word),
            )
        }),
        Box::new(|to, word| {
            let nonce = nd_option(14, word);
            v6(to, neighbour_advertisement(any6, any6, any6, a.mac, &nonce))
        }),
    ];
    for truth in &truths {
        for to in [b.mac, MacAddr::BROADCAST] {
            let word = marker();
            forge(nodes.liar.netns(), GREY, &truth(to, &word));
            taps[0].wait_marker("what a member may say", &word);
        }
    }
    let lies: [(&str, DropReason, Said<'_>); 4] = [
        (
            "ARP at a pod's MAC address",
            DropReason::SpoofedArp,
            Box::new(|to, word| Arp::request((b.mac, any4), any4).frame(to, a.mac, word)),
        ),
        (
            "an advertisement at a pod's MAC address",
            DropReason::SpoofedNd,
            Box::new(|to, word| {
                let nonce = nd_option(14, word);
                v6(to, neighbour_advertisement(any6, any6, any6, b.mac, &nonce))
            }),
        ),
        (
            "a router advertisement",
            DropReason::RouterAdvertisement,
            Box::new(|to, word| {
                v6(
                    to,
                    router_advertisement(any6, ALL_NODES, &nd_option(14, word)),
                )
            }),
        ),
        (
            "a listener query",
            DropReason::ControlMessage,
            Box::new(|to, word| {
                let body = [&[0; 20][..], word].concat();
                let message = icmp6(any6, ALL_NODES, (130, 0), &body);
                v6(to, Ipv6::new(any6, ALL_NODES, 58).packet(&message))
            }),
        ),
    ];
    assert_refused(&nodes, ("grey", GREY), (b.mac, &taps), &lies);
    proof::of!("ATT-06c");
}
