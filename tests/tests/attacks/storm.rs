//! Attack with broadcast that costs the node much, and packets of many segments.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Instant;

use agent_common::drop::DropReason;
use agent_common::segments::SMALL_SEGMENTS_MAX;
use agent_common::storm::{NETWORK_COPIES, PORT_COPIES, STORM_BURST, STORM_RATE};
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::json;
use testbed::frame::marker;
use testbed::{Node, Port, Setup, limit, traffic, wait};

const ALL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 10, 0, 255)), 9);
/// Segments of the packets that are made of many.
const SEGMENTS: u64 = 40;
const SEGMENT: usize = 1000;

fn shouting(port: &Port) -> UdpSocket {
    let socket = traffic::udp(port, port.v4().into());
    socket.set_broadcast(true).expect("broadcast");
    socket
}

/// Packets of `size` bytes for all, as fast as they go; how many were sent.
fn shout(socket: &UdpSocket, size: usize, count: u64) -> u64 {
    let payload = vec![0x5a; size];
    (0..count)
        .filter(|_| socket.send_to(&payload, ALL).is_ok())
        .count() as u64
}

/// Count segments of these ports that the datapath says it replicated.
///
/// Linux 5.10 cuts a packet before any program sees it, later kernels after.
/// What was sent and not dropped is more: a busy node loses frames in the queue of a veth link, before any
/// program sees them.
fn replicated(node: &Node, from: &[Port]) -> u64 {
    let rows = node.get("attachments").into_iter();
    let of_senders = rows.filter(|row| from.iter().any(|port| row["container"] == port.container));
    let count = |row: serde_json::Value| row["flooded"]["packets"].as_u64().expect("a number");
    of_senders.map(count).sum()
}

/// Storm control counts segments: forty datagrams in one packet count as forty.
///
/// ATT-11a.
#[test]
fn a_packet_of_many_segments_is_replicated_as_seldom_as_they_are() {
    let node = testbed::node!();
    let (alice, mallory) = (node.pod("alice"), node.pod("mallory"));
    let (_alice, m) = (alice.attach("blue", "net1"), mallory.attach("blue", "net1"));
    let senders = [m];
    let socket = shouting(&senders[0]);
    let segment = i32::try_from(SEGMENT).expect("a number");
    setsockopt(&socket, sockopt::UdpGsoSegment, &segment).expect("UDP_SEGMENT");
    let start = Instant::now();
    let sent = shout(&socket, SEGMENT * 40, 6000) * SEGMENTS;
    assert!(
        sent > STORM_BURST * SEGMENTS,
        "the kernel took {sent} segments"
    );
    let passed = replicated(&node, &senders);
    let seconds = start.elapsed().as_secs() + 1;
    let most = STORM_BURST + STORM_RATE * seconds;
    assert!(
        passed > 0 && passed <= most,
        "{passed} of {sent} segments were replicated, {most} may be"
    );
    proof::of!("ATT-11a");
}

/// A network has a limit of copies, for all of its pods together.
///
/// The limits of eight pods add up to twice that of their network, which has sixty.
///
/// ATT-11a.
#[test]
fn pods_together_have_no_more_copies_made_than_their_network_may() {
    const SENDERS: usize = 2 * (NETWORK_COPIES / PORT_COPIES) as usize;
    let node = testbed::node!();
    let names: Vec<_> = (0..60)
        .map(|index| node.pod(&format!("p{index}")))
        .collect();
    let ports: Vec<_> = names.iter().map(|pod| pod.attach("blue", "net1")).collect();
    let receivers = ports.len() as u64 - 1;
    let start = Instant::now();
    let sent: u64 = thread::scope(|scope| {
        let senders = ports.iter().take(SENDERS);
        let threads: Vec<_> = senders
            .map(|port| {
                let socket = shouting(port);
                scope.spawn(move || shout(&socket, 18, 10_000))
            })
            .collect();
        threads
            .into_iter()
            .map(|it| it.join().expect("a sender"))
            .sum()
    });
    let copies = replicated(&node, &ports[..SENDERS]) * receivers;
    let seconds = start.elapsed().as_secs() + 1;
    let most = u64::from(NETWORK_COPIES) * (2 + seconds);
    // What shares of the ports add.
    assert!(
        copies > 0 && copies <= most + most / 50,
        "{copies} copies of {sent} frames in {seconds} s, {most} may be"
    );
    proof::of!("ATT-11a");
}

/// A flooded network still carries the rare broadcasts of another pod.
///
/// Other pods have spent the network's limit.
///
/// ATT-11a.
#[test]
fn a_network_that_others_flood_still_carries_a_pods_question() {
    let setup = Setup::default().args(&["--storm-network", "1000"]);
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup);
    let names = ["a", "b", "c", "d", "e"].map(|name| node.pod(name));
    let ports = names.each_ref().map(|pod| pod.attach("blue", "net1"));
    let [honest, seen, loud @ ..] = &ports;
    let mut rounds = 0;
    while node.drops().of("blue", DropReason::StormNetwork) == 0 {
        for port in loud {
            shout(&shouting(port), 18, 1000);
        }
        rounds += 1;
        assert!(rounds < 1000, "the network's limit was never met");
    }
    for port in loud {
        shout(&shouting(port), 18, 1000);
    }
    // Its buffer has no room left for the question where it hears the flood.
    let tap = seen.tap();
    let word = marker();
    traffic::shout(honest, honest.v4().into(), ALL, &word).expect("sent");
    tap.wait_marker("a pod's question", &word);
    proof::of!("ATT-11a");
}

/// Sends a stream of so many bytes, in segments of this size, and reads it.
fn stream(a: &Port, b: &Port, segment: u32, bytes: usize) {
    let to = b.v4();
    let listener = b.netns.run_in(|| TcpListener::bind((to, 0)));
    let listener = listener.expect("entered").expect("a listener");
    // Who connects hears of it.
    setsockopt(&listener, sockopt::TcpMaxSeg, &segment).expect("TCP_MAXSEG");
    let at = listener.local_addr().expect("an address");
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody connects");
            stream
                .set_read_timeout(Some(wait::PATIENCE))
                .expect("a timeout");
            let mut buffer = vec![0; 65_536];
            while stream.read(&mut buffer).is_ok_and(|read| read > 0) {}
        });
        let stream = a.netns.run_in(|| TcpStream::connect(at));
        let mut stream = stream.expect("entered").expect("a connection");
        stream
            .set_write_timeout(Some(wait::PATIENCE))
            .expect("a timeout");
        let payload = vec![0x5a; 65_536];
        for _ in 0..bytes.div_ceil(payload.len()) {
            // It goes on in smaller pieces, and slower.
            if stream.write_all(&payload).is_err() {
                break;
            }
        }
    });
}

/// Software cuts packets to a pod whose link has a queue, and to no other.
///
/// ATT-11b.
#[test]
fn many_small_segments_do_not_reach_a_queue_that_cuts_them() {
    let node = testbed::node!();
    if testbed::skip::without_shaping(testbed::test_name!()) {
        return;
    }
    let names = ["a", "free", "slow"].map(|name| node.pod(name));
    let (a, free) = (
        names[0].attach("blue", "net1"),
        names[1].attach("blue", "net1"),
    );
    let rate = json!({"ingressRate": 4_000_000_000_u64});
    let slow = names[2].attach_conf(&limit::conf(&node, "blue", &rate), "net1");
    let dropped = || node.drops().of("blue", DropReason::SmallSegments);
    stream(&a, &free, 88, 4 << 20);
    stream(&a, &slow, 1400, 4 << 20);
    assert_eq!(dropped(), 0, "large segments, or nobody who cuts them");
    // What UDP_SEGMENT can do in one call is no program's fault.
    let socket = traffic::udp(&a, a.v4().into());
    setsockopt(&socket, sockopt::UdpGsoSegment, &20).expect("UDP_SEGMENT");
    let most = usize::try_from(SMALL_SEGMENTS_MAX).expect("a number");
    let sink = traffic::udp(&slow, slow.v4().into());
    let target = sink.local_addr().expect("an address");
    // Older kernels take 64 in a call.
    let sent = [most, 64]
        .into_iter()
        .find(|count| socket.send_to(&vec![0; count * 20], target).is_ok());
    let mut buffer = [0; 64];
    let sent = sent.expect("the kernel takes them");
    for nth in 0..sent {
        let received = sink.recv(&mut buffer);
        assert!(received.is_ok(), "{nth} of {sent}, {} dropped", dropped());
    }
    assert_eq!(dropped(), 0, "datagrams of one call");
    stream(&a, &slow, 88, 1 << 20);
    assert!(
        dropped() > 0,
        "packets of hundreds of small segments were cut"
    );
    proof::of!("ATT-11b");
}
