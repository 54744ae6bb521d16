//! Compare what `explain` tells of network policies with the fate of real packets.

use std::net::{IpAddr, SocketAddr};

use agent_common::drop::DropReason;
use testbed::{Network, Node, pins, wait};

use super::across::{ROUTED, SEGMENT, in_tunnels, start};
use super::scene::{answers, app, becomes, connect, denied, policy, setup, socket};

const INGRESS: DropReason = DropReason::PolicyIngress;
const EGRESS: DropReason = DropReason::PolicyEgress;

/// The rule of most tests: only pods of `web`, and only to UDP port 80.
const WEB: &str = "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], \
                   ports: [{protocol: UDP, port: 80}]}]";

/// A network on VLANs of the uplink.
fn tagged(name: &str, number: u8) -> Network {
    let network = Network {
        transport: None,
        ..in_tunnels(name, number)
    };
    network.vlan(if name == "routed" { 61 } else { 62 })
}

#[test]
fn the_policy_and_the_rule_of_each_end_are_told() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in ["routed", "switched"] {
        let only =
            "policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: db}}}]}]";
        let text = format!(
            "{}---\n{}",
            policy("db", network, "db", WEB),
            policy("web", network, "web", only)
        );
        let node = Node::start(setup().file("a.yaml", &text));
        let (_web, web) = app(&node, "web", network);
        let (_db, db) = app(&node, "db", network);
        let (_other, other) = app(&node, "other", network);
        let to_db = db.v4().to_string();
        let told = node.explain("web", &to_db, &["--proto", "udp:80"]);
        told.assert_is("delivered", "");
        told.assert_tells(&[
            "egress of web/net1",
            "pass: NetworkPolicy default/web accepts it by egress rule 1 (spec.egress[0]).",
            "ingress of db/net1",
            "pass: NetworkPolicy default/db accepts it by ingress rule 1 (spec.ingress[0]).",
            "the reply",
        ]);
        assert_eq!(told.disagreements(), "[]");
        answers(&web, &db, 80);

        let told = node.explain("web", &to_db, &["--proto", "udp:81"]);
        told.assert_is("dropped", "policy_ingress");
        told.assert_tells(&[
            "drop policy_ingress: NetworkPolicy default/db lets the pod receive only what a rule accepts",
        ]);
        assert!(!told.steps().contains("the reply"), "{}", told.steps());
        denied(&node, &web, &db, 81, INGRESS);

        let told = node.explain("other", &to_db, &["--proto", "udp:80"]);
        told.assert_is("dropped", "policy_ingress");
        told.assert_tells(&["No policy decides on egress, so it passes."]);
        denied(&node, &other, &db, 80, INGRESS);

        let to_other = other.v6().to_string();
        let told = node.explain("web", &to_other, &["--proto", "tcp:80"]);
        told.assert_is("dropped", "policy_egress");
        told.assert_tells(&["drop policy_egress: NetworkPolicy default/web"]);
        denied(&node, &web, &other, 80, EGRESS);

        // Questions about neighbours always pass, and what follows them is told to the end.
        let question = ["--proto", "arp"];
        let asked = node.explain("other", &to_db, &question);
        assert_ne!(asked.verdict(), "dropped", "{:#}", asked.0);
    }
}

#[test]
fn a_question_changes_nothing_that_packets_meet() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup().file("a.yaml", &policy("db", "routed", "db", WEB)));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let to = db.v4().to_string();
    let drops = node.drops().of("routed", INGRESS);
    for _ in 0..3 {
        let told = node.explain("web", &to, &["--proto", "udp:40000:80"]);
        told.assert_is("delivered", "");
        node.explain("web", &to, &["--proto", "udp:81"])
            .assert_is("dropped", "policy_ingress");
    }
    assert_eq!(
        node.drops().of("routed", INGRESS),
        drops,
        "nothing is counted"
    );
    // No connection was kept: its reply is one of none, and is judged at the other end.
    let reply = ["--proto", "udp:80:40000"];
    let told = node.explain("db", &web.v4().to_string(), &reply);
    assert!(!told.steps().contains("FLOWS"), "{}", told.steps());
}

#[test]
fn a_reply_is_told_to_pass_with_its_connection() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let both = "policyTypes: [Ingress, Egress], ingress: [{ports: [{protocol: UDP, port: 80}]}]";
    let node = Node::start(setup().file("a.yaml", &policy("db", "routed", "db", both)));
    let (_web, web) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let back = web.v4().to_string();
    let reply = ["--proto", "udp:80:40000"];
    let told = node.explain("db", &back, &reply);
    told.assert_is("dropped", "policy_egress");
    let to = SocketAddr::from((db.v4(), 80));
    let there = socket(&db, to);
    let here = socket(&web, (IpAddr::from(web.v4()), 40000).into());
    here.send_to(b"question", to).expect("a datagram");
    there.recv_from(&mut [0; 64]).expect("the question");
    let told = node.explain("db", &back, &reply);
    told.assert_is("delivered", "");
    told.assert_tells(&[
        &format!("{}:40000 opened it", web.v4()),
        "pass: it is of this connection",
    ]);
    assert_eq!(told.disagreements(), "[]");
    drop((here, there));
}

#[test]
fn what_comes_from_another_node_is_told_as_it_is_judged_a_np_03() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let rule = "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], \
                ports: [{protocol: UDP, port: 80}, {protocol: TCP, port: 5000}]}]";
    for segments in [false, true] {
        let (underlay, network): (_, fn(&str, u8) -> Network) = if segments {
            (SEGMENT, tagged)
        } else {
            (ROUTED, in_tunnels)
        };
        let rule = if segments {
            "ingress: [{from: [{ipBlock: {cidr: 10.62.0.128/25}}], ports: [{protocol: UDP, port: 80}]}]"
        } else {
            rule
        };
        let two = start(underlay, &policy("db", "switched", "db", rule), network);
        let [one, other] = &two.nodes;
        let (_db, db) = app(one, "db", "switched");
        let (_web, web) = app(other, "web", "switched");
        becomes(&web, &db, 80, true);
        wait::until_true("the members of the other node", || {
            let rows = one.get("endpoints");
            rows.iter().any(|row| row["place"] == "remote")
        });
        let from = format!("switched/{}", web.v4());
        let told = one.explain(&from, "db", &["--proto", "udp:80"]);
        told.assert_is("delivered", "");
        told.assert_tells(&[
            "ingress of db/net1",
            "default/db accepts it by ingress rule 1",
        ]);
        assert_eq!(told.disagreements(), "[]");
        let told = one.explain(&from, "db", &["--proto", "udp:81"]);
        told.assert_is("dropped", "policy_ingress");
        // At its own node nothing is known of what the other one lets in.
        let told = other.explain("web", &db.v4().to_string(), &["--proto", "udp:81"]);
        assert_ne!(told.verdict(), "dropped", "{:#}", told.0);
        if !segments {
            drop(connect(&web, &db, 5000));
        }
    }
}

#[test]
fn tables_that_are_not_as_the_policies_say_are_told() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    let node = Node::start(setup().file("a.yaml", &policy("db", "routed", "db", WEB)));
    let (_web, _) = app(&node, "web", "routed");
    let (_db, db) = app(&node, "db", "routed");
    let to = db.v4().to_string();
    let udp = ["--proto", "udp:80"];
    node.explain("web", &to, &udp).assert_is("delivered", "");
    // Somebody removes the rows that the sets name: the kernel drops then, and so says the answer.
    pins::clear::<12, 4>(&node, "SETS");
    let told = node.explain("web", &to, &udp);
    told.assert_is("dropped", "policy_ingress");
    let said = told.disagreements();
    assert!(
        said.contains("the kernel's tables drop the packet") && said.contains("default/db accepts"),
        "{said}"
    );
    pins::clear::<4, 32>(&node, "GUARDS");
    let told = node.explain("web", &to, &["--proto", "udp:81"]);
    told.assert_is("delivered", "");
    let said = told.disagreements();
    assert!(said.contains("let the packet pass"), "{said}");
}
