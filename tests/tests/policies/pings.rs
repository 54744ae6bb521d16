//! Echo requests of two pods to each other, with one identifier.

use serde_json::json;
use testbed::frame::{Ipv4, echo6, icmp_echo, marker};
use testbed::{Node, Port};

use super::attacker::{Attacker, frame};
use super::scene::{app, attach, becomes, policy, setup};

/// ICMP in IPv4.
const ICMP: u8 = 1;

/// Frames of echo requests of both families, with one identifier.
fn echoes(from: &Port, to: &Port, payload: &[u8]) -> [Vec<u8>; 2] {
    let four = Ipv4::new(from.v4(), to.v4(), ICMP).packet(&icmp_echo(payload));
    let six = echo6(from.v6(), to.v6(), payload);
    [four, six].map(|packet| frame(from, to, &packet))
}

/// Asserts that one end gets the replies to its echo requests.
#[track_caller]
fn assert_pings(from: &Port, to: &Port) {
    let tap = from.tap();
    let marks = [marker(), marker()];
    for (at, mark) in marks.iter().enumerate() {
        tap.send(&echoes(from, to, mark)[at]);
        tap.wait_marker("the reply to a ping", mark);
    }
}

/// A request is no reply, as the reply has another type (RFC 792, RFC 4443).
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
        let attacker = Attacker::new(&web, &db, &other);
        let mark = marker();
        let what = "an echo request before the other end's ping";
        attacker.unseen(what, &mark, &echoes(&web, &db, &mark));
        assert_pings(&db, &web);
        let mark = marker();
        let what = "an echo request after the other end's ping";
        attacker.unseen(what, &mark, &echoes(&web, &db, &mark));
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
