//! Test drops at an uplink: `xdp_uplink` before there is an skb, and `from_uplink`.
//!
//! The latter drops the same where there is no XDP.

use std::net::IpAddr;

use agent_common::addr::{GATEWAY_MAC, Ip16, MacAddr};
use agent_common::drop::DropReason;
use agent_common::endpoint::{ENDPOINT_REMOTE, Endpoint, EndpointKey, FdbKey};
use agent_common::network::{NETWORK_L3, Network};
use agent_common::uplink::Uplink;
use agent_common::vtep::Vtep;
use datapath::{Datapath, Entries, Trial};

use super::scratch::{LOOPBACK, SHOT, scene};

/// `XDP_DROP` and `XDP_PASS` of `linux/bpf.h`.
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const PORT: u16 = 4789;
const L2: u32 = 2001;
const L3: u32 = 2003;
const UPLINK_MAC: MacAddr = MacAddr([2, 0, 0, 0, 9, 1]);
const HERE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const THERE: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const ELSEWHERE: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);
const OWN: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const PEER: [&str; 2] = ["192.0.2.2", "2001:db8::2"];

fn ip(text: &str) -> Ip16 {
    text.parse::<IpAddr>().expect("an address").into()
}

fn short(length: usize) -> u16 {
    u16::try_from(length).expect("a short packet")
}

/// A network of each mode, with a member here and one on each of two other nodes.
pub(crate) fn fill(datapath: &mut Datapath) {
    let mut new = Entries::default();
    for (number, flags) in [(L2, 0), (L3, NETWORK_L3)] {
        new.networks.insert(number, Network::new(flags, 1430));
        for (mac, last, flags, ifindex) in [
            (HERE, 1, 0, 77),
            (THERE, 2, ENDPOINT_REMOTE, 1),
            (ELSEWHERE, 3, ENDPOINT_REMOTE, 2),
        ] {
            let endpoint = Endpoint {
                ifindex,
                flags,
                mac,
                port_id: 5,
            };
            new.fdb.insert(FdbKey::new(number, mac), endpoint);
            for text in [format!("10.0.0.{last}"), format!("fd00::{last}")] {
                let key = EndpointKey {
                    network: number,
                    ip: ip(&text),
                };
                new.endpoints.insert(key, endpoint);
            }
        }
    }
    let tables = datapath.tables();
    tables.apply(&Entries::default(), &new).expect("room");
    for text in PEER {
        tables.vteps.admit(ip(text), 1).expect("room");
    }
    tables
        .vteps
        .set(1, Vtep::new(&ip(PEER[0]), 9))
        .expect("a number");
    let uplink = Uplink {
        port: PORT.to_be_bytes(),
        v4: ip(OWN[0]),
        v6: ip(OWN[1]),
        mac: UPLINK_MAC,
        ..Uplink::NOTHING
    };
    tables.uplinks.insert(LOOPBACK, uplink).expect("room");
}

/// A packet on the underlay, and what may be wrong with it.
#[derive(Clone)]
struct Packet {
    to: MacAddr,
    source: &'static str,
    target: &'static str,
    port: u16,
    checksum: u16,
    vxlan: [u8; 4],
    vni: u32,
    last: u8,
    inner: Vec<u8>,
    /// Changes bytes of the IPv4 header, its checksum then made right.
    header: fn(&mut [u8]),
}

impl Packet {
    fn new(vni: u32, inner: Vec<u8>) -> Self {
        Self {
            to: UPLINK_MAC,
            source: PEER[0],
            target: OWN[0],
            port: PORT,
            checksum: 0,
            vxlan: [8, 0, 0, 0],
            vni,
            last: 0,
            inner,
            header: |_| {},
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let [_, a, b, c] = self.vni.to_be_bytes();
        let mut vxlan = self.vxlan.to_vec();
        vxlan.extend([a, b, c, self.last]);
        vxlan.extend(&self.inner);
        let length = short(vxlan.len() + 8);
        let mut udp = Vec::new();
        for number in [40_000, self.port, length, self.checksum] {
            udp.extend(number.to_be_bytes());
        }
        udp.extend(vxlan);
        let packet = match (
            self.source.parse().expect("an address"),
            self.target.parse().expect("an address"),
        ) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let total = short(udp.len() + 20).to_be_bytes();
                let mut header =
                    [0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 17, 0, 0].to_vec();
                header.extend(from.octets());
                header.extend(to.octets());
                (self.header)(&mut header);
                let sum: u32 = header
                    .chunks(2)
                    .map(|it| u32::from(it[0]) << 8 | u32::from(it[1]))
                    .sum();
                let sum = (sum & 0xffff) + (sum >> 16);
                let check = !u16::try_from((sum & 0xffff) + (sum >> 16)).expect("a folded sum");
                header[10..12].copy_from_slice(&check.to_be_bytes());
                [header, udp].concat()
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let length = short(udp.len()).to_be_bytes();
                let mut header = [0x60, 0, 0, 0, length[0], length[1], 17, 64].to_vec();
                header.extend(from.octets());
                header.extend(to.octets());
                [header, udp].concat()
            }
            mixed => unreachable!("{mixed:?}"),
        };
        let ether_type: u16 = if self.source.contains(':') {
            0x86dd
        } else {
            0x0800
        };
        ethernet(self.to, MacAddr([2, 0, 0, 0, 9, 2]), ether_type, &packet)
    }
}

fn ethernet(to: MacAddr, from: MacAddr, ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0, &ether_type.to_be_bytes(), payload].concat()
}

/// UDP between members of a network, as its number says.
fn between(to: MacAddr, from: MacAddr, hosts: (u8, u8)) -> Vec<u8> {
    let mut packet = vec![
        0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, hosts.0,
    ];
    packet.extend([10, 0, 0, hosts.1, 0, 9, 0, 9, 0, 8, 0, 0]);
    ethernet(to, from, 0x0800, &packet)
}

fn between_v6(to: MacAddr, from: MacAddr, hosts: (u8, u8)) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
    for host in [hosts.0, hosts.1] {
        packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    packet.extend([0, 9, 0, 9, 0, 8, 0, 0]);
    ethernet(to, from, 0x86dd, &packet)
}

type Case = (&'static str, Packet, Option<(u32, DropReason)>);

/// Returns the cases of unwanted packets, with the network each is counted for.
fn unwanted() -> Vec<Case> {
    let legal = || Packet::new(L2, between(HERE, THERE, (2, 1)));
    let l2 = |inner| Packet::new(L2, inner);
    let l3 = |inner| Packet::new(L3, inner);
    let case = |name, packet, network, reason| (name, packet, Some((network, reason)));
    let mut stranger = legal();
    stranger.source = "192.0.2.66";
    let mut checked = stranger.clone();
    checked.checksum = 0x1234;
    let mut unknown = legal();
    unknown.vni = 0x00ff_ffff;
    let mut flags = legal();
    flags.vxlan = [0, 0, 0, 0];
    let mut more_flags = legal();
    more_flags.vxlan = [8, 0, 0, 1];
    let mut reserved = legal();
    reserved.last = 1;
    let nobody = MacAddr([2, 0, 0, 0, 0, 0x66]);
    let tagged = ethernet(HERE, THERE, 0x8100, &[0, 5, 8, 0, 0x45]);
    vec![
        case("of no node", stranger, 0, DropReason::UnknownNode),
        case(
            "of no node, with a checksum",
            checked,
            0,
            DropReason::UnknownNode,
        ),
        case("on no network", unknown, 0, DropReason::UnknownNetwork),
        case("without a VNI", flags, 0, DropReason::Malformed),
        case("with a flag too many", more_flags, 0, DropReason::Malformed),
        case("with a reserved byte", reserved, 0, DropReason::Malformed),
        case(
            "of a stranger",
            l2(between(HERE, nobody, (2, 1))),
            L2,
            DropReason::SpoofedMac,
        ),
        case(
            "of a third node's pod",
            l2(between(HERE, ELSEWHERE, (3, 1))),
            L2,
            DropReason::SpoofedMac,
        ),
        case(
            "from a third node's address",
            l2(between(HERE, THERE, (3, 1))),
            L2,
            DropReason::SpoofedIp,
        ),
        case(
            "from a third node's IPv6 address",
            l2(between_v6(HERE, THERE, (3, 1))),
            L2,
            DropReason::SpoofedIp,
        ),
        case(
            "ARP of nothing",
            l2(ethernet(HERE, THERE, 0x0806, &[0; 28])),
            L2,
            DropReason::Malformed,
        ),
        case(
            "a pause frame",
            l2(ethernet(HERE, THERE, 0x8808, &[0; 46])),
            L2,
            DropReason::EtherType,
        ),
        case(
            "of a pod here",
            l2(between(HERE, HERE, (1, 1))),
            L2,
            DropReason::SpoofedMac,
        ),
        case(
            "of a stranger, for all",
            l2(between(MacAddr::BROADCAST, nobody, (2, 255))),
            L2,
            DropReason::SpoofedMac,
        ),
        case(
            "for nobody",
            l2(between(nobody, THERE, (2, 9))),
            L2,
            DropReason::NoEndpoint,
        ),
        case(
            "for a third node",
            l2(between(ELSEWHERE, THERE, (2, 3))),
            L2,
            DropReason::Hairpin,
        ),
        case("with a tag inside", l2(tagged), L2, DropReason::VlanTag),
        case(
            "with half a frame inside",
            l2(vec![0; 9]),
            L2,
            DropReason::Truncated,
        ),
        case(
            "with nothing inside",
            l2(Vec::new()),
            L2,
            DropReason::Truncated,
        ),
        case(
            "routed, of no gateway",
            l3(between(HERE, THERE, (2, 1))),
            L3,
            DropReason::SpoofedMac,
        ),
        case(
            "routed, of another's address",
            l3(between(HERE, GATEWAY_MAC, (3, 1))),
            L3,
            DropReason::SpoofedIp,
        ),
        case(
            "routed, the same over IPv6",
            l3(between_v6(HERE, GATEWAY_MAC, (3, 1))),
            L3,
            DropReason::SpoofedIp,
        ),
        case(
            "routed, for nobody",
            l3(between(HERE, GATEWAY_MAC, (2, 9))),
            L3,
            DropReason::NoEndpoint,
        ),
        case(
            "routed, half a header",
            l3(between(HERE, GATEWAY_MAC, (2, 1))[..30].to_vec()),
            L3,
            DropReason::Truncated,
        ),
        case(
            "routed, ARP",
            l3(ethernet(HERE, GATEWAY_MAC, 0x0806, &[0; 28])),
            L3,
            DropReason::EtherType,
        ),
    ]
}

/// The node's own, what is for pods, and what only the stack can judge.
fn left_alone() -> Vec<(&'static str, Vec<u8>)> {
    let forged = || {
        let mut packet = Packet::new(L2, between(HERE, THERE, (2, 1)));
        packet.source = "192.0.2.66";
        packet
    };
    let with = |change: fn(&mut Packet)| {
        let mut packet = forged();
        change(&mut packet);
        packet.bytes()
    };
    let legal = |inner| Packet::new(L2, inner).bytes();
    let tagged = {
        let bytes = forged().bytes();
        [&bytes[..12], &[0x81, 0, 0, 5], &bytes[12..]].concat()
    };
    let options = {
        // One word of options in front of the UDP header.
        let mut bytes = forged().bytes();
        bytes.splice(34..34, [1, 1, 1, 1]);
        let total = short(bytes.len() - 14).to_be_bytes();
        bytes[14] = 0x46;
        bytes[16..18].copy_from_slice(&total);
        bytes
    };
    let mut trailing = forged().bytes();
    trailing.extend([0; 4]);
    vec![
        ("for another port", with(|it| it.port = 8472)),
        ("for another address", with(|it| it.target = "192.0.2.9")),
        (
            "for another station, a VLAN's perhaps",
            with(|it| it.to = MacAddr([2, 0, 0, 0, 9, 9])),
        ),
        ("for all stations", with(|it| it.to = MacAddr::BROADCAST)),
        (
            "a fragment",
            with(|it| it.header = |header| header[6] = 0x20),
        ),
        (
            "a later fragment",
            with(|it| it.header = |header| (header[6], header[7]) = (0, 4)),
        ),
        ("no UDP", with(|it| it.header = |header| header[9] = 6)),
        ("ICMP", with(|it| it.header = |header| header[9] = 1)),
        ("with IPv4 options", options),
        ("tagged", tagged),
        ("with bytes behind it", trailing),
        ("no IP", ethernet(UPLINK_MAC, THERE, 0x0806, &[0; 46])),
        (
            "an Ethernet header",
            ethernet(UPLINK_MAC, THERE, 0x0800, &[]),
        ),
        (
            "half an IPv4 header",
            ethernet(UPLINK_MAC, THERE, 0x0800, &[0x45, 0, 0, 9]),
        ),
        ("for a pod here", legal(between(HERE, THERE, (2, 1)))),
        (
            "for a pod here, over IPv6",
            legal(between_v6(HERE, THERE, (2, 1))),
        ),
        (
            "for all pods",
            legal(between(MacAddr::BROADCAST, THERE, (2, 255))),
        ),
        (
            "for a pod here, routed",
            Packet::new(L3, between(HERE, GATEWAY_MAC, (2, 1))).bytes(),
        ),
        (
            "routed over IPv6",
            Packet::new(L3, between_v6(HERE, GATEWAY_MAC, (2, 1))).bytes(),
        ),
        // Generic XDP is shown what was merged, so this one is for who sees segments.
        (
            "large",
            legal([between(HERE, THERE, (2, 1)), vec![0; 2000]].concat()),
        ),
    ]
}

fn count(datapath: &mut Datapath, network: u32, reason: DropReason) -> (u64, u64) {
    let drops = datapath.counters().drops().expect("counters");
    let of = drops
        .iter()
        .find(|it| (it.network, it.reason) == (network, reason));
    of.map_or((0, 0), |it| (it.count.packets, it.count.bytes))
}

/// Returns a frame from the wire that no program of an uplink lets pass.
pub(crate) fn unwanted_frame() -> Vec<u8> {
    unwanted()[0].1.bytes()
}

/// Issue 5: unwanted packets are dropped early, counted, and the same without XDP.
#[test]
fn what_nobody_wants_is_dropped_and_counted_before_and_behind_the_skb() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        fill(&mut datapath);
        let mut ran = 0;
        for (name, packet, expected) in unwanted() {
            let over_v6 = Packet {
                source: if packet.source == PEER[0] {
                    PEER[1]
                } else {
                    "2001:db8::66"
                },
                target: OWN[1],
                ..packet.clone()
            };
            let (network, reason) = expected.expect("a reason");
            for packet in [packet, over_v6] {
                let frame = packet.bytes();
                let trial = Trial {
                    frame: &frame,
                    repeat: 1,
                };
                let before = count(&mut datapath, network, reason);
                let early = datapath.try_early(&trial).expect("a frame that runs");
                assert_eq!(early.verdict, XDP_DROP, "{name}");
                let after = count(&mut datapath, network, reason);
                assert_eq!(
                    after,
                    (before.0 + 1, before.1 + frame.len() as u64),
                    "{name}"
                );
                let behind = datapath.try_uplink(&trial).expect("a frame that runs");
                assert_eq!(behind.verdict, SHOT, "{name}");
                let last = count(&mut datapath, network, reason);
                assert_eq!(last.0, after.0 + 1, "{name}");
                ran += 1;
            }
        }
        assert_eq!(ran, unwanted().len() * 2);
        let total: u64 = datapath
            .counters()
            .drops()
            .expect("counters")
            .iter()
            .map(|it| it.count.packets)
            .sum();
        assert_eq!(
            total,
            2 * ran as u64,
            "each is counted once, for one reason"
        );
    });
}

#[test]
fn what_is_the_nodes_own_or_for_pods_goes_on_untouched() {
    scene(|scratch| {
        let mut datapath = Datapath::open(&scratch.options()).expect("programs that load");
        fill(&mut datapath);
        for (name, frame) in left_alone() {
            let trial = Trial {
                frame: &frame,
                repeat: 1,
            };
            let result = datapath.try_early(&trial).expect("a frame that runs");
            assert_eq!(result.verdict, XDP_PASS, "{name}");
            assert_eq!(result.frame, frame, "{name}");
        }
        assert_eq!(datapath.counters().drops().expect("counters"), []);
        // Where no tunnel ends, nothing is unwanted.
        let frame = unwanted()[0].1.bytes();
        let trial = Trial {
            frame: &frame,
            repeat: 1,
        };
        assert_eq!(datapath.try_early(&trial).expect("runs").verdict, XDP_DROP);
        let uplink = Uplink {
            port: [0; 2],
            ..datapath
                .tables()
                .uplinks
                .get(&LOOPBACK)
                .expect("read")
                .expect("there")
        };
        datapath
            .tables()
            .uplinks
            .insert(LOOPBACK, uplink)
            .expect("room");
        assert_eq!(datapath.try_early(&trial).expect("runs").verdict, XDP_PASS);
        datapath
            .tables()
            .uplinks
            .remove(&LOOPBACK)
            .expect("removed");
        assert_eq!(datapath.try_early(&trial).expect("runs").verdict, XDP_PASS);
    });
}
