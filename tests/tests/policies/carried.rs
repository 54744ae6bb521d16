//! Connections of guarded memif ports that the switch carries over by itself.

use std::net::UdpSocket;

use agent_common::drop::DropReason;
use testbed::frame::marker;
use testbed::{Node, Port, wait};

use super::scene::{becomes, connect, denied, policy, socket};
use super::sockets::{memif_pair, with_sockets};

const ALLOWED: &str = "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], \
                       ports: [{protocol: UDP, port: 80}, {protocol: TCP, port: 80}]}]";

/// Both ends of a UDP connection to port 80, which both have used.
fn opened(web: &Port, db: &Port) -> (UdpSocket, UdpSocket) {
    let there = socket(db, (db.v4(), 80).into());
    let here = socket(web, (web.v4(), 0).into());
    here.connect((db.v4(), 80)).expect("a connected socket");
    here.send(b"first").expect("a datagram");
    let (_, opener) = there.recv_from(&mut [0; 64]).expect("the datagram");
    there.connect(opener).expect("a connected socket");
    there.send(b"answer").expect("a datagram");
    here.recv(&mut [0; 64]).expect("the answer");
    (here, there)
}

/// Sends so many datagrams one way, each of which arrives before the next.
#[track_caller]
fn arrive(from: &UdpSocket, to: &UdpSocket, count: u64) {
    for number in 0..count {
        let mut buffer = [0; 8];
        from.send(&number.to_be_bytes()).expect("a datagram");
        to.recv(&mut buffer).expect("the datagram");
        assert_eq!(buffer, number.to_be_bytes());
    }
}

#[test]
fn packets_of_a_guarded_connection_go_past_the_kernel_in_both_directions() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in ["routed", "switched"] {
        let node =
            Node::start(with_sockets().file("a.yaml", &policy("db", network, "db", ALLOWED)));
        let ([(_db, db), (_web, web)], _apps) = memif_pair(&node, network);
        let (here, there) = opened(&web, &db);
        let before = [&web, &db].map(|port| node.switch_counters(port).fast_from.packets);
        arrive(&here, &there, 200);
        arrive(&there, &here, 200);
        let after = [&web, &db].map(|port| node.switch_counters(port).fast_from.packets);
        for (before, after) in before.into_iter().zip(after) {
            // The kernel judges one every few seconds.
            assert!(
                after - before >= 100,
                "{} of 200 went past the kernel",
                after - before
            );
        }
        denied(&node, &web, &db, 81, DropReason::PolicyIngress);
    }
}

#[test]
fn a_tcp_connection_of_guarded_memif_ports_goes_past_the_kernel() {
    use std::io::{Read as _, Write as _};

    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(with_sockets().file("a.yaml", &policy("db", "routed", "db", ALLOWED)));
    let ([(_db, db), (_web, web)], _apps) = memif_pair(&node, "routed");
    let (mut here, mut there) = connect(&web, &db, 80);
    let before = node.switch_counters(&web).fast_from.bytes;
    let sent = vec![7; 1 << 20];
    let bytes = sent.len() as u64;
    let writer = std::thread::spawn(move || {
        here.write_all(&sent).expect("the connection takes it");
        here
    });
    let mut buffer = vec![0; 1 << 20];
    there.read_exact(&mut buffer).expect("all of it arrives");
    let fast = node.switch_counters(&web).fast_from.bytes - before;
    assert!(
        fast > bytes / 2,
        "{fast} of {bytes} bytes went past the kernel"
    );
    drop(writer.join());
}

#[test]
fn a_change_of_policy_cuts_a_connection_that_goes_past_the_kernel() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(with_sockets().file("a.yaml", &policy("db", "routed", "db", ALLOWED)));
    let ([(_db, db), (_web, web)], _apps) = memif_pair(&node, "routed");
    for end in 0..2 {
        let (here, there) = opened(&web, &db);
        arrive(&here, &there, 50);
        let drops = || {
            let ingress = node.drops().of("routed", DropReason::PolicyIngress);
            ingress + node.drops().of("routed", DropReason::PolicyEgress)
        };
        let before = drops();
        let (file, closed) = match end {
            0 => ("a.yaml", policy("db", "routed", "db", "ingress: []")),
            _ => (
                "b.yaml",
                policy("web", "routed", "web", "policyTypes: [Egress]"),
            ),
        };
        node.write_manifest(file, &closed);
        let mark = marker();
        wait::until_true("the kernel to drop it", || {
            here.send(&mark).expect("a datagram");
            drops() > before
        });
        // Nothing of what is sent from now on may arrive, in either direction.
        there.set_nonblocking(true).expect("a socket");
        while there.recv(&mut [0; 64]).is_ok() {}
        let before = drops();
        for _ in 0..100 {
            here.send(&mark).expect("a datagram");
            there.send(&mark).expect("a datagram");
        }
        wait::until_true("the kernel to drop all", || drops() >= before + 200);
        assert!(there.recv(&mut [0; 64]).is_err(), "a datagram has arrived");
        here.set_nonblocking(true).expect("a socket");
        assert!(here.recv(&mut [0; 64]).is_err(), "an answer has arrived");
        node.write_manifest("a.yaml", &policy("db", "routed", "db", ALLOWED));
        if end == 1 {
            node.remove_manifest("b.yaml");
        }
        drop((here, there));
        becomes(&web, &db, 80, true);
    }
}

#[test]
fn a_guarded_connection_goes_past_the_kernel_while_the_agent_is_away_and_when_it_is_back() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(with_sockets().file("a.yaml", &policy("db", "routed", "db", ALLOWED)));
    let ([(_db, db), (_web, web)], _apps) = memif_pair(&node, "routed");
    let (here, there) = opened(&web, &db);
    let fast = || node.switch_counters(&web).fast_from.packets;
    for round in 0..3 {
        match round {
            0 => {}
            1 => node.kill_9(),
            _ => node.start_agent(),
        }
        let before = fast();
        arrive(&here, &there, 200);
        assert!(fast() - before >= 100, "round {round}");
    }
    denied(&node, &web, &db, 81, DropReason::PolicyIngress);
}

/// The agent has no time to tell the switch that the port is judged.
#[test]
fn a_first_policy_is_in_force_at_the_switch_when_the_agent_dies_before_it_says_so() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(with_sockets());
    let ([(_db, db), (_web, web)], _apps) = memif_pair(&node, "routed");
    let (here, there) = opened(&web, &db);
    let before = node.switch_counters(&web).fast_from.packets;
    arrive(&here, &there, 100);
    assert!(node.switch_counters(&web).fast_from.packets - before >= 100);
    node.terminate();
    node.write_manifest("a.yaml", &policy("db", "routed", "db", "ingress: []"));
    node.launch_agent_to_crash_at("guards.marked");
    node.wait_dead();
    // Those on the way from before.
    there.set_nonblocking(true).expect("a socket");
    while there.recv(&mut [0; 64]).is_ok() {}
    let before = node.switch_counters(&web).device_from.packets;
    let mark = marker();
    for _ in 0..100 {
        here.send(&mark).expect("a datagram");
    }
    wait::until_true("the kernel to have all", || {
        node.switch_counters(&web).device_from.packets >= before + 100
    });
    assert!(there.recv(&mut [0; 64]).is_err(), "a datagram has arrived");
    drop((here, there));
    node.start_agent();
    denied(&node, &web, &db, 80, DropReason::PolicyIngress);
    node.remove_manifest("a.yaml");
    becomes(&web, &db, 80, true);
}
