//! Ingress and egress, rules and their absence, on L3 and on L2.

use agent_common::drop::DropReason;
use serde_json::json;
use testbed::{Node, traffic};

use super::scene::{answers, app, attach, denied, policy, setup};

const INGRESS: DropReason = DropReason::PolicyIngress;
const EGRESS: DropReason = DropReason::PolicyEgress;

#[test]
fn a_port_gets_what_a_rule_allows_and_nothing_else_a_np_02() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in ["routed", "switched"] {
        let rule = "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], \
                    ports: [{protocol: UDP, port: 80}, {protocol: UDP, port: 1000, endPort: 2000}]}]";
        let node = Node::start(setup().file("a.yaml", &policy("db", network, "db", rule)));
        let (_web, web) = app(&node, "web", network);
        let (_db, db) = app(&node, "db", network);
        let (_other, other) = app(&node, "other", network);
        answers(&web, &db, 80);
        for port in [1000, 1500, 2000] {
            answers(&web, &db, port);
        }
        for port in [79, 81, 999, 2001] {
            denied(&node, &web, &db, port, INGRESS);
        }
        denied(&node, &other, &db, 80, INGRESS);
        // What it opens itself is answered, and all others are free (A-NP-04, -05).
        answers(&db, &other, 7);
        traffic::assert_reaches(&web, &other);
    }
    proof::of!("KEP-P3-4", "PAIN-POL-1");
}

#[test]
fn a_port_sends_what_a_rule_allows_and_nothing_else_a_np_03() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in ["routed", "switched"] {
        let rule = "policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: db}}}], \
                    ports: [{protocol: UDP, port: 80}]}]";
        let node = Node::start(setup().file("a.yaml", &policy("web", network, "web", rule)));
        let (_web, web) = app(&node, "web", network);
        let (_db, db) = app(&node, "db", network);
        let (_other, other) = app(&node, "other", network);
        answers(&web, &db, 80);
        denied(&node, &web, &db, 81, EGRESS);
        denied(&node, &web, &other, 80, EGRESS);
        answers(&other, &web, 9);
    }
}

#[test]
fn a_policy_without_rules_isolates_a_np_11() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let both = "policyTypes: [Ingress, Egress]";
    let node = Node::start(setup().file("a.yaml", &policy("none", "routed", "db", both)));
    let (_db, db) = app(&node, "db", "routed");
    let (_web, web) = app(&node, "web", "routed");
    denied(&node, &web, &db, 80, INGRESS);
    denied(&node, &db, &web, 80, EGRESS);
    // The same pod on another network is not concerned, with the same addresses.
    let (_there, there) = attach(&node, "db2", "switched", ("default", json!({"app": "db"})));
    let (_beside, beside) = attach(
        &node,
        "web2",
        "switched",
        ("default", json!({"app": "web"})),
    );
    answers(&beside, &there, 80);
}

#[test]
fn namespaces_are_selected_by_their_labels_a_np_14() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let rule = "ingress: [{from: [{namespaceSelector: {matchLabels: {team: red}}}]}]";
    let text = format!(
        "{}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: one, labels: {{team: red}}}}\n---\n\
         apiVersion: v1\nkind: Namespace\nmetadata: {{name: two, labels: {{team: blue}}}}\n",
        policy("db", "routed", "db", rule)
    );
    let node = Node::start(setup().file("a.yaml", &text));
    let (_db, db) = app(&node, "db", "routed");
    let (_one, one) = attach(&node, "one", "routed", ("one", json!({})));
    let (_two, two) = attach(&node, "two", "routed", ("two", json!({})));
    answers(&one, &db, 80);
    denied(&node, &two, &db, 80, INGRESS);
}

#[test]
fn blocks_match_pods_too_and_except_is_no_deny_a_np_30() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let rule = "ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.61.0.0/28]}}, \
                {ipBlock: {cidr: '::/0', except: ['fd61::/124']}}]}, \
                {from: [{podSelector: {matchLabels: {app: friend}}}]}]";
    let node = Node::start(setup().file("a.yaml", &policy("db", "routed", "db", rule)));
    let (_db, db) = app(&node, "db", "routed");
    let (_near, near) = app(&node, "near", "routed");
    let (_friend, friend) = app(&node, "friend", "routed");
    let fillers: Vec<_> = (0..16)
        .map(|number| {
            attach(
                &node,
                &format!("fill{number}"),
                "routed",
                ("default", json!({})),
            )
        })
        .collect();
    let far = &fillers.last().expect("ports").1;
    assert!(far.v4().octets()[3] > 15, "{:?}", far.v4());
    answers(far, &db, 80);
    denied(&node, &near, &db, 80, INGRESS);
    answers(&friend, &db, 80);
}

#[test]
fn a_policy_of_the_cluster_denies_before_others_accept_a_cnp_01() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let accept = policy("db", "routed", "db", "ingress: [{}]");
    let deny = "---\napiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\n\
                metadata: {name: first, annotations: {podnet.dev/networks: routed}}\n\
                spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, \
                ingress: [{name: no, action: Deny, from: [{pods: {namespaceSelector: {}, \
                podSelector: {matchLabels: {app: evil}}}}]}]}\n";
    let node = Node::start(setup().file("a.yaml", &format!("{accept}{deny}")));
    let (_db, db) = app(&node, "db", "routed");
    let (_web, web) = app(&node, "web", "routed");
    let (_evil, evil) = app(&node, "evil", "routed");
    answers(&web, &db, 80);
    denied(&node, &evil, &db, 80, INGRESS);
    denied(&node, &evil, &web, 80, INGRESS);
}

#[test]
fn a_multi_network_policy_is_for_the_networks_of_its_definitions_a_mnp_02() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let text = "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n\
                metadata: {name: routed, namespace: default}\nspec: {}\n---\n\
                apiVersion: k8s.cni.cncf.io/v1beta1\nkind: MultiNetworkPolicy\n\
                metadata: {name: db, namespace: default, annotations: {k8s.v1.cni.cncf.io/policy-for: routed}}\n\
                spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress], \
                ingress: [{ports: [{protocol: UDP, port: 80}]}]}\n";
    let node = Node::start(setup().file("a.yaml", text));
    let (_db, db) = app(&node, "db", "routed");
    let (_web, web) = app(&node, "web", "routed");
    answers(&web, &db, 80);
    denied(&node, &web, &db, 81, INGRESS);
    proof::of!("KEP-P3-4", "PAIN-POL-1");
}
