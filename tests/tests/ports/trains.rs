//! Test frames of one flow that a client sends at once.
//!
//! The kernel carries them together, and nobody sees it.

use std::net::UdpSocket;
use std::time::Instant;

use agent_common::drop::DropReason;
use memif::{Address, Client, ClientConfig, Event, Sent, Text};
use testbed::frame::{self, ethernet, udp4};
use testbed::{Node, Port, limit, wait};

use crate::{conf, setup};

/// Frames of a burst: fewer than a ring has slots.
const BURST: u16 = 100;
/// bit/s; so much that nothing waits for long.
const RATE: u64 = 1_000_000_000;

/// A client with its rings.
struct Raw {
    _client: Client,
    rings: memif::Port,
}

impl Raw {
    fn of(port: &Port) -> Self {
        let name = Address::Abstract(format!("podnet/{}", port.ifname).into_bytes());
        let netns = port.netns.clone();
        let connect = move || netns.run_in(|| name.connect()).expect("entered");
        let config = ClientConfig::new(Text::new("app").expect("a short name"));
        let client = Client::connecting_by(Box::new(connect), config, Instant::now());
        let mut client = client.expect("a usual node");
        let rings = wait::until("the rings", || match client.poll(Instant::now()) {
            Ok(Event::Connected(rings)) => Some(rings),
            Ok(Event::Closed(why)) => unreachable!("{why}"),
            Ok(Event::Nothing) | Err(_) => None,
        });
        Self {
            _client: client,
            rings,
        }
    }

    /// Sends frames all at once.
    fn send(&mut self, frames: &[Vec<u8>]) {
        let tx = &mut self.rings.tx[0];
        for frame in frames {
            assert_eq!(tx.push(frame), Ok(Sent::Yes), "a ring has room for a burst");
        }
        tx.flush();
    }

    /// Receives so many frames, without those that are not from there.
    fn receive(&mut self, from: &Port, count: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let rx = &mut self.rings.rx[0];
        wait::until_true("the frames", || {
            let taken = rx.burst(64, |packet| {
                let mut bytes = vec![0; packet.len() as usize];
                packet.read(0, &mut bytes);
                if bytes[6..12] == from.mac.0 {
                    frames.push(bytes);
                }
            });
            taken.expect("the switch keeps to the protocol");
            frames.len() >= count
        });
        frames
    }
}

/// A datagram with an identification.
fn datagram(from: &Port, to: &Port, (id, port): (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut packet = udp4(from.v4(), to.v4(), (port, 4242), payload);
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[10..12].fill(0);
    let sum = frame::checksum(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&sum);
    ethernet(to.mac, from.mac, 0x0800, &packet)
}

/// Datagrams of a flow, each with its number.
fn flow(from: &Port, to: &Port, port: u16, payload: usize) -> Vec<Vec<u8>> {
    let number = |id: u16| {
        let mut payload = vec![0x5a; payload];
        payload[..2].copy_from_slice(&id.to_be_bytes());
        datagram(from, to, (id, port), &payload)
    };
    (0..BURST).map(number).collect()
}

/// Returns a port's packets, as the page of metrics has them.
fn packets(node: &Node, port: &Port, direction: &str) -> u64 {
    let (_, page) = node.http("/metrics").expect("the page is served");
    let labels = [
        format!("pod=\"{}\"", port.container),
        format!("direction=\"{direction}\""),
    ];
    let mut lines = page.lines();
    let line = lines.find(|line| {
        line.starts_with("podnet_port_packets_total{")
            && labels.iter().all(|label| line.contains(label))
    });
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    value.expect("the port is on the page")
}

/// The same frames come out of the kernel in the same order.
///
/// Its programs carry trains, and a queue or the receiver's device cuts them.
#[test]
fn frames_that_the_kernel_carried_together_are_the_same_byte_by_byte_and_counted_one_by_one() {
    if testbed::skip::without_root(testbed::test_name!())
        || testbed::skip::without_shaping(testbed::test_name!())
    {
        return;
    }
    let node = Node::start(setup());
    let pods = ["sender", "receiver"].map(|name| node.pod(name));
    let sender = pods[0].attach_conf(&conf(&node, "blue"), "net1");
    // A port with a rate is reached by the kernel only.
    let receiver = limit::attach_by_manifest(&node, &pods[1], "Memif", RATE);
    let (mut from, mut to) = (Raw::of(&sender), Raw::of(&receiver));
    // Its buffers are lent by now.
    let first = flow(&sender, &receiver, 1, 30);
    for payload in [2, 18, 30, 1001, 1472] {
        let mut frames = flow(&sender, &receiver, 1, payload);
        // Some that must not be put right on their way, or stay apart from those around them.
        frames[7][41] ^= 1;
        frames[20][40..42].fill(0);
        frames[33] = first[33].clone();
        frames[50] = datagram(&sender, &receiver, (7, 2), b"another flow");
        let before = [(&sender, "egress"), (&receiver, "ingress")]
            .map(|(port, direction)| packets(&node, port, direction));
        from.send(&frames);
        let received = to.receive(&sender, frames.len());
        assert!(received == frames, "{payload} bytes");
        let after = [(&sender, "egress"), (&receiver, "ingress")]
            .map(|(port, direction)| packets(&node, port, direction));
        let counted: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
        assert_eq!(counted, [u64::from(BURST); 2], "{payload} bytes");
    }
}

/// Each check of a frame holds for each of those that were sent with it.
#[test]
fn nothing_forged_passes_between_frames_that_may_be_sent() {
    let node = testbed::node!(setup());
    let pods = ["evil", "plain", "other"].map(|name| node.pod(name));
    let evil = pods[0].attach_conf(&conf(&node, "blue"), "net1");
    let plain = pods[1].attach("blue", "net1");
    let other = pods[2].attach("blue", "net1");
    let socket = plain
        .netns
        .run_in(|| UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 4242)));
    let socket = socket.expect("entered").expect("a socket");
    socket.set_nonblocking(true).expect("it does not wait");
    let sees = plain.tap();
    let mut client = Raw::of(&evil);
    let mut frames = flow(&evil, &plain, 1, 30);
    let marker = frame::marker();
    for (at, (mac, ip)) in [(10, (evil.mac, other.v4())), (30, (other.mac, evil.v4()))] {
        let packet = udp4(ip, plain.v4(), (1, 4242), &marker);
        frames[at] = ethernet(plain.mac, mac, 0x0800, &packet);
    }
    // Longer than the MTU, and with a checksum that is wrong.
    frames[60] = datagram(&evil, &plain, (60, 1), &[1; 1473]);
    frames[80][41] ^= 1;
    client.send(&frames);
    let mut numbers = Vec::new();
    wait::until_true("all that may be sent", || {
        let mut bytes = [0; 2048];
        while let Ok(length) = socket.recv(&mut bytes) {
            assert_eq!(length, 30);
            numbers.push(u16::from_be_bytes([bytes[0], bytes[1]]));
        }
        numbers.len() >= usize::from(BURST) - 4
    });
    let honest: Vec<u16> = (0..BURST)
        .filter(|it| ![10, 30, 60, 80].contains(it))
        .collect();
    assert_eq!(numbers, honest, "in their order");
    let reasons = [
        (DropReason::SpoofedIp, 1),
        (DropReason::SpoofedMac, 1),
        (DropReason::TooBig, 1),
    ];
    wait::until_true("the others to be counted", || {
        let drops = node.drops();
        let mut all = reasons.iter();
        all.all(|(reason, count)| drops.of("blue", *reason) == *count)
    });
    assert_eq!(sees.count(&marker), 0, "a forged frame arrived");
}
