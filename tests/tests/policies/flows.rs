//! A pod that opens as many connections as it can: others have what they had.

use std::io::{Read as _, Write as _};

use agent_common::drop::DropReason;
use agent_common::map::MAX_FLOWS;
use testbed::frame::{tcp4, udp4};
use testbed::{Node, Port, pins, wait};

use super::attacker::frame;
use super::scene::{answers, app, connect, policy, setup};

/// All may send to `sink`, and nobody to `web`, which opens its connections itself.
fn guarded() -> String {
    format!(
        "{}---\n{}",
        policy("sink", "routed", "sink", "ingress: [{}]"),
        policy("web", "routed", "web", "ingress: []")
    )
}

fn flows(node: &Node) -> usize {
    pins::connections(node)
}

/// Sends frames, each of another connection, until `enough`; returns their number.
fn flood(from: &Port, to: &Port, mut enough: impl FnMut(u32) -> bool) -> u32 {
    let tap = from.tap();
    let mut sent = 0_u32;
    while !enough(sent) {
        for _ in 0..1000 {
            let [_, a, b, c] = sent.to_be_bytes();
            let ports = (
                u16::from_be_bytes([b, c]),
                1024 + u16::from(a) + u16::from(sent.to_be_bytes()[0]),
            );
            let packet = if sent.is_multiple_of(2) {
                udp4(from.v4(), to.v4(), ports, &[])
            } else {
                tcp4(from.v4(), to.v4(), ports, 0x10, &[])
            };
            tap.send(&frame(from, to, &packet));
            sent += 1;
        }
    }
    sent
}

/// C-CT-11: what one port opens at once is limited, and refused loudly.
#[test]
fn a_pod_that_opens_connections_takes_none_from_others() {
    let node = Node::start(setup().file("a.yaml", &guarded()));
    let (_sink, sink) = app(&node, "sink", "routed");
    let (_web, web) = app(&node, "web", "routed");
    let (_peer, peer) = app(&node, "peer", "routed");
    let (_mallory, mallory) = app(&node, "mallory", "routed");
    let (mut here, mut there) = connect(&web, &peer, 5000);
    flood(&mallory, &sink, |sent| {
        if sent.is_multiple_of(20_000) {
            answers(&peer, &sink, 80);
            answers(&web, &peer, 81);
            drop(connect(&web, &sink, 5001));
        }
        sent >= 100_000
    });
    let refused = node.drops().of("routed", DropReason::FlowLimit);
    assert!(refused > 10_000, "{refused} refused");
    let mut buffer = [0; 4];
    there.write_all(b"news").expect("a connection");
    here.read_exact(&mut buffer)
        .expect("the connection goes on");
    answers(&web, &peer, 80);
}

/// The table holds no more than it can, and what is in use stays in it.
///
/// It takes a while: 4,000 connections a second are opened.
#[test]
#[ignore = "opens as many connections as the table holds, for a minute"]
fn a_full_table_has_room_for_who_is_there_and_who_comes() {
    let node = Node::start(setup().file("a.yaml", &guarded()));
    let (_sink, sink) = app(&node, "sink", "routed");
    let (_web, web) = app(&node, "web", "routed");
    let (_peer, peer) = app(&node, "peer", "routed");
    let (_mallory, mallory) = app(&node, "mallory", "routed");
    let (mut here, mut there) = connect(&web, &peer, 5000);
    let (mut idle, mut server) = connect(&web, &peer, 5001);
    let mut buffer = [0; 4];
    let limit = usize::try_from(MAX_FLOWS).expect("a number");
    let mut full = 0;
    let sent = flood(&mallory, &sink, |sent| {
        if sent.is_multiple_of(50_000) {
            answers(&peer, &sink, 80);
            answers(&web, &peer, 81);
            there.write_all(b"news").expect("a connection");
            here.read_exact(&mut buffer)
                .expect("a connection in use goes on");
            let now = flows(&node);
            assert!(now <= limit, "{now} flows");
            full += usize::from(now > limit * 8 / 10);
        }
        full > 20 || sent >= 5_000_000
    });
    eprintln!("{sent} frames, {} flows", flows(&node));
    wait::until_true("an answer", || {
        answers(&web, &peer, 82);
        true
    });
    // What one end opens does not take the place of what two ends keep: the one that did not open it goes on, too.
    server.write_all(b"well").expect("a connection");
    idle.read_exact(&mut buffer)
        .expect("an idle connection goes on");
    idle.write_all(b"late").expect("a connection");
    server
        .read_exact(&mut buffer)
        .expect("an idle connection goes on");
}
