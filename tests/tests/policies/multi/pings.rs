//! Echo requests of two pods to each other, with one identifier.

use serde_json::json;
use testbed::frame::{icmp_echo, marker};
use testbed::{Node, Port, frame::Ipv4};

use super::super::attacker::{Attacker, frame};
use super::super::scene::{app, attach, becomes, policy, setup};

/// ICMP in IPv4.
const ICMP: u8 = 1;

/// The frame of an echo request with a payload; all have the same identifier.
fn echo(from: &Port, to: &Port, payload: &[u8]) -> Vec<u8> {
    let packet = Ipv4::new(from.v4(), to.v4(), ICMP).packet(&icmp_echo(payload));
    frame(from, to, &packet)
}

/// Asserts that one end gets the reply to its echo request.
#[track_caller]
fn assert_pings(from: &Port, to: &Port) {
    let (tap, mark) = (from.tap(), marker());
    tap.send(&echo(from, to, &mark));
    tap.wait_marker("the reply to a ping", &mark);
}

/// A request is no reply, as the reply has another type (RFC 792).
#[test]
fn an_echo_request_is_no_part_of_the_other_end_s_ping() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in ["routed", "switched"] {
        let closed = policy("db", network, "db", "ingress: []");
        let node = Node::start(setup().file("a.yaml", &closed));
        let (_db, db) = app(&node, "db", network);
        let (_web, web) = app(&node, "web", network);
        let labels = ("default", json!({"app": "other"}));
        let (_other, other) = attach(&node, "other", network, labels);
        assert_pings(&db, &web);
        let (attacker, mark) = (Attacker::new(&web, &db, &other), marker());
        attacker.unseen("an echo request", &mark, &[echo(&web, &db, &mark)]);
    }
}

/// A ping that was open once closes nothing for the other end's.
#[test]
fn an_echo_request_that_is_denied_now_denies_none_of_the_other_end() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in ["routed", "switched"] {
        let open = policy("db", network, "db", "ingress: [{}]");
        let node = Node::start(setup().file("a.yaml", &open));
        let (_db, db) = app(&node, "db", network);
        let (_web, web) = app(&node, "web", network);
        assert_pings(&web, &db);
        node.write_manifest("a.yaml", &policy("db", network, "db", "ingress: []"));
        becomes(&web, &db, 80, false);
        assert_pings(&db, &web);
    }
}
