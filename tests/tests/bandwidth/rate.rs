//! Test that no traffic exceeds its limit, and no other is slowed down.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use netdev::{LinkChange, Shape};
use serde_json::{Value, json};
use testbed::frame::{ethernet, udp4};
use testbed::limit::{self, Interfaces};
use testbed::{Node, Pod, Port, traffic};

use crate::limiting_node;

/// bit/s.
const RATE: u64 = 10_000_000;
/// Takes 160 ms at the rate.
const BYTES: u64 = 200_000;

fn both() -> Value {
    json!({"ingressRate": RATE, "egressRate": RATE})
}

/// The first packets to a limited pod arrive.
///
/// The kernel starts the queue of a link some moments after the link is up, and drops earlier packets;
/// `ADD` ends after that.
#[test]
fn the_first_packets_to_a_limited_pod_arrive() {
    let node = limiting_node!();
    let free = node.pod("free");
    let peer = free.attach("blue", "net1");
    for round in 0..20 {
        let pod = node.pod(&format!("p{round}"));
        let port = pod.attach_conf(&limit::conf(&node, "blue", &both()), "net1");
        // IPv6 has a work queue of its own before a new address is reachable, with and without limit.
        let (from, to) = (peer.v4().into(), port.v4().into());
        let trip = traffic::udp_round_trip(&peer, from, &port, to);
        assert!(trip.is_ok(), "round {round}: {trip:?}");
        pod.detach("blue", "net1");
    }
    free.detach("blue", "net1");
    node.assert_empty();
}

/// A limited pod and one that is not, on a network.
fn pair<'a>(node: &'a Node, network: &str, bandwidth: &Value) -> ([Pod<'a>; 2], [Port; 2]) {
    let pods = ["slow", "free"].map(|name| node.pod(name));
    let slow = pods[0].attach_conf(&limit::conf(node, network, bandwidth), "net1");
    let free = pods[1].attach(network, "net1");
    (pods, [slow, free])
}

fn part(node: &Node, network: &str, pods: &[Pod<'_>]) {
    for pod in pods {
        pod.detach(network, "net1");
    }
    node.assert_empty();
}

/// Floods and streams of both families, in the direction whose queue is `through`.
fn assert_limited(node: &Node, through: &str, from: &Port, to: &Port) {
    for (here, there) in traffic::pairs(from, to) {
        let before = limit::limit(node, through);
        limit::flood(from, here, to, there, BYTES).assert_limited(RATE);
        let after = limit::limit(node, through);
        let sent = after.sent_bytes - before.sent_bytes;
        assert!(sent >= BYTES, "{here}: {sent} bytes went through {through}");
        assert!(after.overlimits > before.overlimits, "{here}: {after:?}");

        let bytes = usize::try_from(BYTES).expect("small");
        limit::tcp(from, to, there, bytes).assert_limited(RATE);
        let last = limit::limit(node, through);
        let sent = last.sent_bytes - after.sent_bytes;
        assert!(sent >= BYTES, "{here}: {sent} bytes went through {through}");
    }
}

/// Packets to a pod are limited in both modes and families, for UDP and TCP.
///
/// TCP packets come as large as GSO makes them.
#[test]
fn what_a_pod_receives_is_limited() {
    let node = limiting_node!();
    for network in ["blue", "green"] {
        let (pods, [slow, free]) = pair(&node, network, &json!({"ingressRate": RATE}));
        let names = Interfaces::of(&node, &slow);
        assert_limited(&node, &names.host, &free, &slow);
        assert_eq!(
            limit::ifindex(&node, &names.near),
            None,
            "no shaper without need"
        );
        part(&node, network, &pods);
    }
}

/// As above.
#[test]
fn what_a_pod_sends_is_limited() {
    let node = limiting_node!();
    for network in ["blue", "green"] {
        let (pods, [slow, free]) = pair(&node, network, &json!({"egressRate": RATE}));
        let names = Interfaces::of(&node, &slow);
        assert_limited(&node, &names.near, &slow, &free);
        assert_eq!(
            limit::root(&node, &names.host),
            netdev::RootQueue::Default,
            "no queue without need"
        );
        part(&node, network, &pods);
    }
}

/// Each direction has its rate when two limited pods use both at once.
#[test]
fn both_directions_are_limited_at_once() {
    let node = limiting_node!();
    let pods = ["a", "b"].map(|name| node.pod(name));
    let ports = ["a", "b"].map(|name| {
        let pod = pods.iter().find(|pod| pod.container() == name);
        pod.expect("made above")
            .attach_conf(&limit::conf(&node, "blue", &both()), "net1")
    });
    let bytes = usize::try_from(2 * BYTES).expect("small");
    thread::scope(|scope| {
        let [a, b] = &ports;
        for (from, to) in [(a, b), (b, a)] {
            scope.spawn(move || limit::tcp(from, to, to.v4().into(), bytes).assert_limited(RATE));
        }
    });
    traffic::assert_reaches(&ports[0], &ports[1]);
    part(&node, "blue", &pods);
}

/// Many flows share the rate of their pod; each is served.
#[test]
fn the_rate_is_the_pods_whatever_the_number_of_flows() {
    let node = limiting_node!();
    let (pods, [slow, free]) = pair(&node, "green", &both());
    let bytes = usize::try_from(BYTES / 4).expect("small");
    let started = std::time::Instant::now();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| limit::tcp(&slow, &free, free.v6().into(), bytes));
        }
    });
    let all = limit::Delivered {
        bytes: 2 * BYTES,
        within: started.elapsed(),
    };
    all.assert_limited(RATE);
    part(&node, "green", &pods);
}

/// Neighbours without a limit move twice as much before the limited pod is done.
#[test]
fn a_neighbour_without_a_limit_is_not_slowed_down() {
    let node = limiting_node!();
    let (pods, [slow, free]) = pair(&node, "blue", &both());
    let third = node.pod("third");
    let other = third.attach("blue", "net1");
    let ended = AtomicBool::new(false);
    let bytes = usize::try_from(20 * BYTES).expect("small");
    thread::scope(|scope| {
        scope.spawn(|| {
            limit::tcp(&slow, &free, free.v4().into(), bytes).assert_limited(RATE);
            ended.store(true, Ordering::SeqCst);
        });
        limit::tcp(&free, &other, other.v4().into(), bytes);
        limit::tcp(&other, &free, free.v6().into(), bytes);
        assert!(
            !ended.load(Ordering::SeqCst),
            "the neighbour was slower than the limit"
        );
    });
    third.detach("blue", "net1");
    part(&node, "blue", &pods);
}

/// Broadcast goes through the limits, and does not come back to its sender.
///
/// It is copied to each port, without the fast path; a copy for a limited pod waits in its queue, and a
/// limited sender's frame is copied when it has left the shaper.
#[test]
fn broadcast_goes_through_the_limits_and_comes_back_to_nobody() {
    let node = limiting_node!();
    let (pods, [slow, free]) = pair(&node, "blue", &both());
    let names = Interfaces::of(&node, &slow);
    for (from, to, through) in [(&slow, &free, &names.near), (&free, &slow, &names.host)] {
        let (own, tap) = (from.tap(), to.tap());
        let before = limit::limit(&node, through).sent_packets;
        let marker = testbed::frame::marker();
        let to_all = (IpAddr::from([10, 10, 0, 255]), 9).into();
        traffic::shout(from, from.v4().into(), to_all, &marker).expect("it is sent");
        tap.wait_marker("the broadcast", &marker);
        assert!(
            limit::limit(&node, through).sent_packets > before,
            "{through}"
        );
        assert_eq!(own.count(&marker), 0, "it came back");
    }
    part(&node, "blue", &pods);
}

/// A pod that is root cannot lift its limit, as that is not on its own interface.
///
/// Its link has no queue, so packet sockets with and without `PACKET_QDISC_BYPASS` are the same.
#[test]
fn a_pod_that_is_root_cannot_lift_its_limit() {
    let node = limiting_node!();
    let (pods, [slow, free]) = pair(&node, "blue", &both());
    let names = Interfaces::of(&node, &slow);
    let ifindex = slow.link().expect("the interface is there").ifindex;
    let mut inside = pods[0].netlink();
    // A queue of its own with a rate of its own, and then none.
    let fast = Shape::new(100_000_000_000, None, 1500);
    let shaped = inside.shape(ifindex, &fast, netdev::Discipline::Fifo);
    shaped.expect("a pod may do that");
    limit::flood(&slow, slow.v4().into(), &free, free.v4().into(), BYTES).assert_limited(RATE);
    limit::remove_queue(&slow.netns, ifindex);
    let change = LinkChange {
        mtu: Some(9000),
        ..LinkChange::default()
    };
    inside
        .reconfigure(ifindex, &change)
        .expect("a pod may do that");
    limit::flood(&slow, slow.v4().into(), &free, free.v4().into(), BYTES).assert_limited(RATE);
    limit::flood(&free, free.v4().into(), &slow, slow.v4().into(), BYTES).assert_limited(RATE);

    // Whole frames from a packet socket.
    let (tap, sink) = (slow.tap(), traffic::udp(&free, free.v4().into()));
    let port = sink.local_addr().expect("an address").port();
    let packet = udp4(slow.v4(), free.v4(), (7, port), &[0; 1200]);
    let frame = ethernet(free.mac, slow.mac, 0x0800, &packet);
    let started = std::time::Instant::now();
    let done = AtomicBool::new(false);
    let mut arrived = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // With its buffer full the socket takes no more.
                let _ = tap.try_send(&frame);
            }
        });
        let mut buffer = [0; 2000];
        while arrived < BYTES {
            let length = sink.recv(&mut buffer).expect("the flood goes on");
            arrived += u64::try_from(length).expect("a length") + 42;
        }
        done.store(true, Ordering::Relaxed);
    });
    let delivered = limit::Delivered {
        bytes: arrived,
        within: started.elapsed(),
    };
    delivered.assert_limited(RATE);
    assert!(limit::limit(&node, &names.near).overlimits > 0);
    part(&node, "blue", &pods);
}
