//! Write more policies than the tables hold: pods are closed, and the log says so.
//!
//! The pods open again when the policies are corrected.

use std::fmt::Write as _;

use agent_common::drop::DropReason;
use testbed::{Node, Port, pins, wait};

use super::scene::{answers, app, becomes, denied, policy, setup};

/// Accepts all from `web`, and TCP to `count` ranges of ports.
///
/// No other rule tells these ports apart.
fn ranges(count: usize) -> String {
    let mut ports = String::new();
    for number in 0..count {
        let first = 1000 + 4 * number;
        let _ = write!(
            ports,
            "{{protocol: TCP, port: {first}, endPort: {}}}, ",
            first + 1
        );
    }
    let web = "{from: [{podSelector: {matchLabels: {app: web}}}]}";
    policy(
        "db",
        "routed",
        "db",
        &format!("ingress: [{web}, {{ports: [{ports}]}}]"),
    )
}

/// Some blocks of one address each, none adjacent to another.
fn blocks(name: &str, first: usize, count: usize) -> String {
    let mut from = String::from("{podSelector: {matchLabels: {app: web}}}");
    for number in first..first + count {
        let [_, a, b, c] = u32::try_from(2 * number).expect("an address").to_be_bytes();
        let _ = write!(from, ",{{ipBlock: {{cidr: 11.{a}.{b}.{c}/32}}}}");
    }
    policy(
        name,
        "routed",
        "db",
        &format!("ingress: [{{from: [{from}]}}]"),
    )
}

#[track_caller]
fn says(node: &Node, what: &str) {
    wait::until_true(&format!("the log to say {what:?}"), || {
        node.log().contains(what)
    });
}

fn closed(node: &Node, web: &Port, db: &Port) {
    becomes(web, db, 80, false);
    denied(node, web, db, 80, DropReason::PolicyIngress);
}

#[test]
fn more_ranges_of_ports_than_fit_close_the_pods_that_they_are_for() {
    let node = Node::start(setup());
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let (_other, other) = app(&node, "other", "routed");
    for _ in 0..2 {
        node.write_manifest("p.yaml", &ranges(200));
        closed(&node, &web, &db);
        says(&node, "use fewer different ports");
        answers(&web, &other, 80);
        // One that comes now is closed from its first moment, and the rest goes on.
        let (late, late_port) = super::scene::attach(
            &node,
            "late",
            "routed",
            ("default", serde_json::json!({"app": "db"})),
        );
        denied(&node, &web, &late_port, 80, DropReason::PolicyIngress);
        late.detach("routed", "net1");
        node.write_manifest("p.yaml", &ranges(50));
        becomes(&web, &db, 80, true);
        denied(&node, &other, &db, 80, DropReason::PolicyIngress);
    }
}

/// The largest spec that is read, and one that is larger: closed and told.
#[test]
fn a_spec_that_is_too_large_closes_its_pods() {
    let node = Node::start(setup().file("a.yaml", &blocks("db", 0, 100)));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let (_other, other) = app(&node, "other", "routed");
    answers(&web, &db, 80);
    node.write_manifest("a.yaml", &blocks("db", 0, 8_000));
    says(&node, "what it selects gets and sends nothing");
    denied(&node, &web, &db, 80, DropReason::PolicyIngress);
    denied(&node, &other, &db, 80, DropReason::PolicyIngress);
    node.write_manifest("a.yaml", &blocks("db", 0, 100));
    becomes(&web, &db, 80, true);
    denied(&node, &other, &db, 80, DropReason::PolicyIngress);
}

/// Policies of one network leave room for those of others.
#[test]
fn a_network_whose_policies_need_more_than_their_share_is_closed_and_no_other_is() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let web = "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]";
    let node = Node::start(setup().file("other.yaml", &policy("other", "switched", "db", web)));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let (_other_web, other_web) = app(&node, "web-2", "switched");
    let (_other_db, other_db) = super::scene::attach(
        &node,
        "db-2",
        "switched",
        ("default", serde_json::json!({"app": "db"})),
    );
    let specs = |parts: usize| -> String {
        let spec = |part| blocks(&format!("db-{part}"), 5_700 * part, 5_700);
        (0..parts)
            .map(|part| format!("---\n{}", spec(part)))
            .collect()
    };
    node.write_manifest("p.yaml", &specs(3));
    // So many blocks take an agent a while.
    becomes(&web, &db, 80, false);
    says(
        &node,
        "blocks of addresses, and those of one network may have 16384",
    );
    closed(&node, &web, &db);
    denied(&node, &other_web, &other_db, 80, DropReason::PolicyIngress);
    node.write_manifest("p.yaml", &specs(1));
    becomes(&web, &db, 80, true);
}

/// Pods whose policies do not fit are closed until these do.
///
/// A network's first policies are no exception.
/// The tables are those of all networks; nothing else takes one entry for each.
#[test]
fn policies_that_find_a_table_full_close_their_pods_until_they_fit() {
    let node = Node::start(setup());
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let (_other, other) = app(&node, "other", "routed");
    answers(&other, &db, 80);
    let keys = (0..u32::MAX).map(|key| (1_000_000 + key).to_ne_bytes());
    pins::fill::<4, 2056>(&node, "CLASSES", keys);
    node.write_manifest("p.yaml", &blocks("db", 0, 10));
    says(
        &node,
        "the table CLASSES of the policies of all networks is full",
    );
    denied(&node, &web, &db, 80, DropReason::PolicyIngress);
    answers(&web, &other, 80);
    // What nothing uses goes by itself, and they fit then.
    becomes(&web, &db, 80, true);
    denied(&node, &other, &db, 80, DropReason::PolicyIngress);
}
