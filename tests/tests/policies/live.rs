//! Policies and labels that change while ports are live.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use serde_json::json;
use testbed::Node;

use super::scene::{answers, app, attach, becomes, connect, policy, setup};

#[test]
fn a_policy_that_comes_goes_and_changes_is_obeyed() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup());
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    answers(&web, &db, 80);
    node.write_manifest("p.yaml", &policy("db", "routed", "db", "ingress: []"));
    becomes(&web, &db, 80, false);
    let web_only = "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]";
    node.write_manifest("p.yaml", &policy("db", "routed", "db", web_only));
    becomes(&web, &db, 80, true);
    answers(&web, &db, 80);
    let other_only = "ingress: [{from: [{podSelector: {matchLabels: {app: other}}}]}]";
    node.write_manifest("p.yaml", &policy("db", "routed", "db", other_only));
    becomes(&web, &db, 80, false);
    node.remove_manifest("p.yaml");
    becomes(&web, &db, 80, true);
}

#[test]
fn a_policy_that_changes_cuts_connections_that_it_does_not_allow() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup());
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let (mut here, mut there) = connect(&web, &db, 5000);
    let mut buffer = [0; 4];
    here.write_all(b"ping").expect("a connection");
    there.read_exact(&mut buffer).expect("a connection");
    // The first policy of the port: the connection goes on in both directions.
    let allowed = "ingress: [{ports: [{protocol: TCP, port: 5000}, {protocol: UDP, port: 81}]}]";
    node.write_manifest("p.yaml", &policy("db", "routed", "db", allowed));
    becomes(&web, &db, 80, false);
    there.write_all(b"pong").expect("a connection");
    here.read_exact(&mut buffer)
        .expect("the connection goes on");
    here.write_all(b"ping").expect("a connection");
    there
        .read_exact(&mut buffer)
        .expect("the connection goes on");
    let denied = "ingress: [{ports: [{protocol: UDP, port: 80}]}]";
    node.write_manifest("p.yaml", &policy("db", "routed", "db", denied));
    becomes(&web, &db, 80, true);
    // Neither end hears the other.
    let short = Some(Duration::from_millis(300));
    here.set_read_timeout(short).expect("a timeout");
    there.set_read_timeout(short).expect("a timeout");
    here.write_all(b"ping").expect("a buffer");
    there.write_all(b"pong").expect("a buffer");
    there.read_exact(&mut buffer).expect_err("it is cut");
    here.read_exact(&mut buffer).expect_err("it is cut");
    // Both are heard again when it is allowed again.
    let patience = Some(testbed::wait::PATIENCE);
    here.set_read_timeout(patience).expect("a timeout");
    there.set_read_timeout(patience).expect("a timeout");
    node.write_manifest("p.yaml", &policy("db", "routed", "db", allowed));
    there
        .read_exact(&mut buffer)
        .expect("the connection goes on");
    here.read_exact(&mut buffer)
        .expect("the connection goes on");
}

#[test]
fn a_download_goes_on_when_the_first_policy_of_its_port_comes_f_22() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup());
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    // The client only receives, and a policy isolates what it receives.
    let (mut here, mut there) = connect(&web, &db, 5000);
    node.write_manifest("p.yaml", &policy("web", "routed", "web", "ingress: []"));
    becomes(&db, &web, 80, false);
    there.write_all(b"data").expect("a connection");
    let mut buffer = [0; 4];
    here.read_exact(&mut buffer)
        .expect("the connection goes on");
}

#[test]
fn a_pod_that_comes_later_is_known_to_policies_of_others() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let rule = "ingress: [{from: [{podSelector: {matchLabels: {app: late}}}]}]";
    let node = Node::start(setup().file("a.yaml", &policy("db", "routed", "db", rule)));
    let (_db, db) = app(&node, "db", "routed");
    let (_late, late) = app(&node, "late", "routed");
    answers(&late, &db, 80);
    let (_other, other) = attach(
        &node,
        "other",
        "routed",
        ("default", json!({"app": "other"})),
    );
    becomes(&other, &db, 80, false);
}
