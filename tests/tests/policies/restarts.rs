//! Policies in force while the agent is away, and after it has come again.

use std::io::{Read as _, Write as _};

use agent_common::drop::DropReason;
use serde_json::json;
use testbed::Node;

use super::scene::{answers, app, becomes, connect, denied, policy, setup};

#[test]
fn policies_stay_in_force_while_the_agent_is_away_and_when_it_is_back() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let rule = "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]";
    let node = Node::start(setup().file("a.yaml", &policy("db", "routed", "db", rule)));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let (_other, other) = app(&node, "other", "routed");
    let (mut here, mut there) = connect(&web, &db, 5000);
    node.kill_9();
    answers(&web, &db, 80);
    becomes(&other, &db, 80, false);
    node.start_agent();
    denied(&node, &other, &db, 80, DropReason::PolicyIngress);
    answers(&web, &db, 80);
    let mut buffer = [0; 4];
    there.write_all(b"data").expect("a connection");
    here.read_exact(&mut buffer)
        .expect("the connection goes on");
    node.remove_manifest("a.yaml");
    becomes(&other, &db, 80, true);
}

#[test]
fn a_port_id_that_is_used_again_has_no_policy_of_before() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup().file(
        "a.yaml",
        &policy("db", "routed", "db", "policyTypes: [Ingress, Egress]"),
    ));
    let (pod, _db) = app(&node, "db", "routed");
    pod.detach("routed", "net1");
    let (_web, web) = app(&node, "web", "routed");
    let (_other, other) = app(&node, "other", "routed");
    answers(&web, &other, 80);
    answers(&other, &web, 80);
}

#[test]
fn a_pod_that_comes_again_as_it_was_is_judged_again() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup().file("a.yaml", &policy("db", "routed", "db", "ingress: []")));
    let (_web, web) = app(&node, "web", "routed");
    let pod = node.pod("db");
    let mut conf = node.conf("routed");
    conf["labels"] = json!({"app": "db"});
    conf["runtimeConfig"] = json!({"ips": ["10.61.0.9/24", "fd61::9/64"]});
    for _ in 0..10 {
        let port = pod.attach_conf(&conf, "net1");
        denied(&node, &web, &port, 80, DropReason::PolicyIngress);
        pod.detach("routed", "net1");
    }
}
