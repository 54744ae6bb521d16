//! Nothing of a policy is half in force, while policies, labels and pods change.

use serde_json::json;
use testbed::{Node, Port};

use super::scene::{app, arrives, attach, policy, setup};
use super::streams::{Refused, streams};
use testbed::wait;

/// Changes of a policy under traffic.
const CHANGES: usize = 500;

/// A policy by which `web` may always send, and `evil` never.
///
/// The rest differs each time: ports, groups, blocks.
fn variant(number: usize, probe: usize) -> String {
    let groups: Vec<String> = (0..number % 7)
        .map(|group| {
            format!(
                "{{podSelector: {{matchLabels: {{group: g{}}}}}}}",
                group + number % 5
            )
        })
        .collect();
    let blocks: Vec<String> = (0..number % 4)
        .map(|block| {
            format!(
                "{{ipBlock: {{cidr: 198.51.100.{}/32}}}}",
                (block * 16 + number) % 256
            )
        })
        .collect();
    let peers = [groups, blocks].concat().join(", ");
    let more = if peers.is_empty() {
        String::new()
    } else {
        format!(
            ", {{from: [{peers}], ports: [{{protocol: UDP, port: {}}}]}}",
            100 + number
        )
    };
    let web = "{from: [{podSelector: {matchLabels: {app: web}}}]}";
    let probes = format!(
        "{{from: [{{podSelector: {{matchLabels: {{app: probe}}}}}}], ports: [{{protocol: UDP, port: {probe}}}]}}"
    );
    // The order of rules is no matter either.
    let rules = if number.is_multiple_of(2) {
        format!("ingress: [{web}, {probes}{more}]")
    } else {
        format!("ingress: [{probes}, {web}{more}]")
    };
    policy("db", "routed", "db", &rules)
}

fn probe(number: usize) -> u16 {
    u16::try_from(2000 + number).expect("a port")
}

#[track_caller]
fn in_force(from: &Port, db: &Port, number: usize) {
    wait::until_true("the change to be in force", || {
        arrives(from, db, probe(number))
    });
}

#[test]
fn nothing_is_half_in_force_while_policies_change() {
    let node = Node::start(setup().file("a.yaml", &variant(0, probe(0).into())));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let (_evil, evil) = app(&node, "evil", "routed");
    let (_probe, prober) = app(&node, "probe", "routed");
    let grouped: Vec<_> = (0..6)
        .map(|group| {
            let labels = json!({"group": format!("g{group}")});
            attach(&node, &format!("g{group}"), "routed", ("default", labels))
        })
        .collect();
    assert_eq!(grouped.len(), 6);
    let allowed = streams(&web, &db);
    let denied = Refused::start(&evil, &db);
    for number in 1..=CHANGES {
        node.write_manifest("a.yaml", &variant(number, probe(number).into()));
        if number % 5 == 0 {
            in_force(&prober, &db, number);
        }
    }
    in_force(&prober, &db, CHANGES);
    denied.assert_none_seen();
    for stream in allowed {
        stream.assert_nothing_lost();
    }
}

#[test]
fn pods_that_come_and_go_change_nothing_for_others() {
    for network in ["routed", "switched"] {
        let rule = "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]";
        let node = Node::start(setup().file("a.yaml", &policy("db", network, "db", rule)));
        let (_web, web) = app(&node, "web", network);
        let (_db, db) = app(&node, "db", network);
        let (_evil, evil) = app(&node, "evil", network);
        let allowed = streams(&web, &db);
        let denied = Refused::start(&evil, &db);
        for number in 0..20 {
            // Selected ones, allowed ones, and others.
            let label = ["db", "web", "other"][number % 3];
            let labels = json!({"app": label, "number": number.to_string()});
            let name = format!("pod{number}");
            let (pod, _port) = attach(&node, &name, network, ("default", labels));
            pod.detach(network, "net1");
        }
        denied.assert_none_seen();
        for stream in allowed {
            stream.assert_nothing_lost();
        }
    }
}

/// The network's first policy comes and its last goes: allowed traffic goes on.
#[test]
fn the_first_and_the_last_policy_of_a_network_lose_nothing_that_they_allow() {
    for network in ["routed", "switched"] {
        let node = Node::start(setup());
        let (_web, web) = app(&node, "web", network);
        let (_db, db) = app(&node, "db", network);
        let (_evil, evil) = app(&node, "evil", network);
        let allowed = streams(&web, &db);
        let rule = "policyTypes: [Ingress, Egress], \
                    ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}], \
                    egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]";
        for _ in 0..10 {
            node.write_manifest("p.yaml", &policy("db", network, "db", rule));
            wait::until_true("the policy to be in force", || !arrives(&evil, &db, 80));
            let denied = Refused::start(&evil, &db);
            denied.assert_none_seen();
            node.remove_manifest("p.yaml");
            wait::until_true("the policy to be gone", || arrives(&evil, &db, 80));
        }
        for stream in allowed {
            stream.assert_nothing_lost();
        }
    }
}

/// Policies of many pods at once, in one network, while those of another go on.
#[test]
fn a_network_whose_policies_change_leaves_others_alone() {
    let rule = "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]";
    let node = Node::start(setup().file("a.yaml", &policy("db", "routed", "db", rule)));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let (_evil, evil) = app(&node, "evil", "routed");
    let labels = |app: &str| ("default", json!({"app": app}));
    let (_db2, db2) = attach(&node, "db2", "switched", labels("db"));
    let (_web2, web2) = attach(&node, "web2", "switched", labels("web"));
    let allowed = streams(&web, &db);
    let denied = Refused::start(&evil, &db);
    for _ in 0..10 {
        node.write_manifest("b.yaml", &policy("two", "switched", "db", "ingress: []"));
        wait::until_true("the policy to be in force", || !arrives(&web2, &db2, 80));
        node.remove_manifest("b.yaml");
        wait::until_true("the policy to be gone", || arrives(&web2, &db2, 80));
    }
    denied.assert_none_seen();
    for stream in allowed {
        stream.assert_nothing_lost();
    }
}
