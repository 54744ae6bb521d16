//! Attack with checksums that are written after a frame was checked, or are wrong.
//!
//! The wrong ones are in IPv4 headers.

mod scene;

mod random;
mod watch;

use std::net::{Ipv4Addr, Ipv6Addr};

use agent_common::addr::MacAddr;
use testbed::frame::{Arp, Ipv4, Ipv6, Marker, ethernet, icmp6, marker, udp4};
use testbed::{VirtioHeader, traffic};

use self::scene::{IP, IPV6, NETWORKS, Scene, setup};

/// Where a receiver of a frame finds what is lied about.
const IPV4_SOURCE: usize = 28;
const ARP_SENDER: usize = 30;
const ICMPV6_TYPE: usize = 54;
const ROUTER_ADVERTISEMENT: [u8; 2] = [134, 0];

/// Changes a frame's end so that the sum from `start` on, put at `at`, is `wanted`.
fn finishing(frame: &[u8], start: usize, at: usize, wanted: [u8; 2]) -> (VirtioHeader, Vec<u8>) {
    let mut frame = frame.to_vec();
    if (frame.len() - start) % 2 == 1 {
        frame.push(0);
    }
    frame.extend([0; 2]);
    let sum = |frame: &[u8]| {
        let words = frame[start..].chunks(2);
        words.fold(0_u32, |sum, word| {
            let sum = sum + u32::from(u16::from_be_bytes([word[0], word[1]]));
            (sum & 0xffff) + (sum >> 16)
        })
    };
    let missing = u32::from(!u16::from_be_bytes(wanted)) + 0xffff - sum(&frame);
    let missing = u16::try_from((missing & 0xffff) + (missing >> 16)).expect("folded");
    let end = frame.len() - 2;
    frame[end..].copy_from_slice(&missing.to_be_bytes());
    assert_eq!(sum(&frame), u32::from(!u16::from_be_bytes(wanted)));
    let short = |place: usize| u16::try_from(place).expect("a place in a header");
    (
        VirtioHeader::checksum(short(start), short(at - start)),
        frame,
    )
}

/// Returns an IPv4 packet whose header checksum fits another source address.
///
/// The two addresses have the same first two bytes.
fn from_another(own: Ipv4Addr, other: Ipv4Addr, to: Ipv4Addr, word: &Marker) -> Vec<u8> {
    let mut packet = udp4(other, to, (9, 9), word);
    packet[12..16].copy_from_slice(&own.octets());
    packet
}

/// ATT-02a: a checksum written later changes no source, ARP sender or ICMPv6 type.
///
/// That is so wherever the frame goes.
#[test]
fn a_checksum_written_later_changes_no_address_and_no_type() {
    let node = testbed::node!(setup());
    for network in NETWORKS {
        let scene = Scene::set(&node, network);
        let (own, bob) = (&scene.mallory, &scene.bob);
        for (target, to) in scene.targets() {
            let word = marker();
            let packet = from_another(own.v4(), bob.v4(), Ipv4Addr::new(10, 10, 0, 99), &word);
            let frame = ethernet(to, own.mac, IP, &packet);
            let [.., high, low] = bob.v4().octets();
            let (header, frame) = finishing(&frame, 20, IPV4_SOURCE, [high, low]);
            let what = format!("{network}, {target}: another's IPv4 address");
            scene.refused(&what, header, &frame, &word);

            let word = marker();
            let arp = Arp::request((own.mac, own.v4()), Ipv4Addr::new(10, 10, 0, 99));
            let frame = arp.frame(to, own.mac, &word);
            let (header, frame) = finishing(&frame, 20, ARP_SENDER, [high, low]);
            let what = format!("{network}, {target}: another's ARP sender");
            scene.refused(&what, header, &frame, &word);

            let word = marker();
            let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
            let body = [&[0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0][..], &word].concat();
            let own_local = own.mac.link_local();
            let message = icmp6(own_local, all, (128, 0), &body);
            let packet = Ipv6::new(own_local, all, 58).packet(&message);
            let frame = ethernet(to, own.mac, IPV6, &packet);
            let (header, frame) = finishing(&frame, 22, ICMPV6_TYPE, ROUTER_ADVERTISEMENT);
            let what = format!("{network}, {target}: a router advertisement");
            scene.refused(&what, header, &frame, &word);
        }
        scene.close();
    }
    node.assert_empty();
    proof::of!("ATT-02a");
}

/// ATT-02a: an unfinished transport checksum passes, and arrives finished.
///
/// It does so where nothing offloads, for TCP, UDP, and the packet inside of a tunnel that a pod makes.
#[test]
fn a_transport_checksum_may_be_written_later() {
    let node = testbed::node!(setup());
    for network in NETWORKS {
        let scene = Scene::set(&node, network);
        let (own, bob) = (&scene.mallory, &scene.bob);
        for (target, to) in scene.targets() {
            let word = marker();
            let packet = udp4(own.v4(), bob.v4(), (9, 9), &word);
            let frame = ethernet(to, own.mac, IP, &packet);
            scene.passes(&format!("{network}, {target}: UDP"), (34, 6), &frame, &word);

            let word = marker();
            let ip = Ipv4::new(own.v4(), bob.v4(), 6);
            let frame = ethernet(to, own.mac, IP, &ip.packet(&tcp_with(&word)));
            scene.passes(
                &format!("{network}, {target}: TCP"),
                (34, 16),
                &frame,
                &word,
            );

            // VXLAN (RFC 7348): the inner frame begins 8 bytes behind the UDP header. Not on the port of
            // the nodes' tunnels, which leads from no pod to an uplink.
            let word = marker();
            let inner = ethernet(
                MacAddr([2; 6]),
                MacAddr([4; 6]),
                IP,
                &ip.packet(&tcp_with(&word)),
            );
            let payload = [&[8, 0, 0, 0, 0, 0, 7, 0][..], &inner].concat();
            let packet = udp4(own.v4(), bob.v4(), (9, 8472), &payload);
            let frame = ethernet(to, own.mac, IP, &packet);
            let what = format!("{network}, {target}: VXLAN");
            scene.passes(&what, (34 + 8 + 8 + 34, 16), &frame, &word);
        }
        for (_, to) in traffic::pairs(own, bob) {
            let done = traffic::tcp_round_trip(own, bob, to, 1 << 20);
            assert!(done.is_ok(), "{network} {to}: {done:?}");
        }
        scene.close();
    }
    node.assert_empty();
    proof::of!("ATT-02a");
}

/// ATT-02a: a neighbour on the uplink's segment takes no address by a checksum.
///
/// The checksum would be written by this node, for a socket.
#[test]
fn an_uplink_brings_no_frame_whose_sender_changes_later() {
    let node = testbed::node!(setup());
    let scene = Scene::set(&node, "plain");
    let (bob, stranger) = (&scene.bob, MacAddr([2, 0, 0, 0, 0, 0x77]));
    let free = Ipv4Addr::new(10, 10, 0, 99);
    for (target, to) in scene.targets().into_iter().take(3) {
        let word = marker();
        let frame = Arp::request((stranger, free), bob.v4()).frame(to, stranger, &word);
        let [.., high, low] = bob.v4().octets();
        let (header, frame) = finishing(&frame, 20, ARP_SENDER, [high, low]);
        let what = format!("{target}: a pod's ARP sender from the uplink");
        scene.refused_by(&scene.world, &what, header, &frame, &word);
    }
    scene.close();
    node.assert_empty();
    proof::of!("ATT-02a");
}

fn tcp_with(word: &Marker) -> Vec<u8> {
    let mut tcp = vec![0; 20];
    tcp[12] = 5 << 4;
    tcp.extend(word);
    tcp
}

/// ATT-02b: a wrong IPv4 header checksum reaches neither an uplink nor a socket.
///
/// No kernel looks at the header again there.
#[test]
fn a_wrong_ipv4_header_checksum_goes_nowhere_unchecked() {
    let node = testbed::node!(setup());
    for network in NETWORKS {
        let scene = Scene::set(&node, network);
        let own = &scene.mallory;
        let targets = scene.targets().into_iter().skip(1);
        for (target, to) in targets.chain([("everybody", MacAddr::BROADCAST)]) {
            for place in [10, 11, 4, 8] {
                let word = marker();
                let mut packet = udp4(own.v4(), Ipv4Addr::new(10, 10, 0, 99), (9, 9), &word);
                packet[place] ^= 0x40;
                let frame = ethernet(to, own.mac, IP, &packet);
                let what = format!("{network}, {target}: byte {place} of the header");
                scene.refused(&what, VirtioHeader::default(), &frame, &word);
            }
        }
        scene.close();
    }
    node.assert_empty();
    proof::of!("ATT-02b");
}
