//! Test what people are told of policies.

use std::sync::Arc;

use policy::{
    Direction, Kind, Member, PeerEnd, Policy, Protocol, Traffic, Warning, Workload, World, cluster,
    judge, network, reason, selected, warnings,
};
use serde_json::{Value, json};

const HTTP: Traffic = Traffic::Port(Protocol::Tcp, 80);

/// `web` and `db` in `x`, and `web` in `lost`, whose labels are not known.
fn world() -> World {
    let member = |namespace: &str, app: &str, address: &str| Member {
        workload: Arc::new(Workload {
            namespace: namespace.to_owned(),
            labels: [("app".to_owned(), app.to_owned())].into(),
            ports: Vec::new(),
        }),
        addresses: vec![address.parse().expect("it is valid")],
    };
    World {
        namespaces: [("x".to_owned(), [("team".to_owned(), "x".to_owned())].into())].into(),
        members: vec![
            member("x", "web", "10.0.0.1"),
            member("x", "db", "10.0.0.2"),
            member("lost", "web", "10.0.0.3"),
        ],
        nodes: Vec::new(),
    }
}

const WEB: usize = 0;
const DB: usize = 1;
const LOST: usize = 2;

fn of(name: &str, spec: &Value) -> Policy {
    let read = network(Kind::NetworkPolicy, "x", name, spec).expect("it is valid");
    assert_eq!(read.problems, []);
    read.policy
}

fn of_cluster(name: &str, spec: &Value) -> Policy {
    let read = cluster(name, spec).expect("it is valid");
    assert_eq!(read.problems, []);
    read.policy
}

/// The reason for what a member does with another one.
fn told(policies: &[Policy], direction: Direction, subject: usize, peer: usize) -> String {
    let world = world();
    let (subject, peer) = (&world.members[subject], &world.members[peer]);
    let end = PeerEnd::Member(peer, peer.addresses[0]);
    let decision = judge(&world, policies, direction, subject, end, HTTP);
    reason(&world, policies, direction, subject, decision)
}

#[test]
fn a_rule_is_told_by_its_policy_and_number() {
    let policies = [
        of(
            "other",
            &json!({"podSelector": {"matchLabels": {"app": "none"}}}),
        ),
        of(
            "open",
            &json!({"podSelector": {}, "ingress": [
                {"from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]},
                {"from": [{"podSelector": {"matchLabels": {"app": "db"}}}]},
            ]}),
        ),
    ];
    assert_eq!(
        told(&policies, Direction::Ingress, WEB, DB),
        "NetworkPolicy x/open accepts it by ingress rule 2 (spec.ingress[1])."
    );
    assert_eq!(
        told(&policies, Direction::Egress, WEB, DB),
        "No policy decides on egress, so it passes."
    );
}

#[test]
fn a_denying_rule_and_one_that_is_not_sure_are_told_apart() {
    let policy = |action: &str| {
        of_cluster(
            "guard",
            &json!({"tier": "Admin", "priority": 1, "subject": {"namespaces": {}}, "egress": [
                {"action": action, "to": [{"namespaces": {}}]},
            ]}),
        )
    };
    assert_eq!(
        told(&[policy("Deny")], Direction::Egress, WEB, DB),
        "ClusterNetworkPolicy guard denies it by egress rule 1 (spec.egress[0])."
    );
    assert_eq!(
        told(&[policy("Pass")], Direction::Egress, WEB, LOST),
        "ClusterNetworkPolicy guard denies it by egress rule 1 (spec.egress[0]), which passes it on only for labels \
         that are known, and those of the other end are not yet."
    );
}

#[test]
fn policies_that_isolate_are_named_and_the_rest_counted() {
    let deny = |name: &str| of(name, &json!({"podSelector": {}}));
    let egress = of("e", &json!({"podSelector": {}, "policyTypes": ["Egress"]}));
    let told = |policies: &[Policy]| told(policies, Direction::Ingress, WEB, DB);
    assert_eq!(
        told(&[egress, deny("a")]),
        "NetworkPolicy x/a lets the pod receive only what a rule accepts, and none accepts it."
    );
    assert_eq!(
        told(&[deny("a"), deny("b")]),
        "Each of NetworkPolicy x/a and NetworkPolicy x/b lets the pod receive only what a rule accepts, and none \
         accepts it."
    );
    let many: Vec<Policy> = ["a", "b", "c", "d", "e"].map(deny).into();
    assert_eq!(
        told(&many),
        "Each of NetworkPolicy x/a, NetworkPolicy x/b, NetworkPolicy x/c and 2 more lets the pod receive only what \
         a rule accepts, and none accepts it."
    );
}

#[test]
fn a_namespace_without_labels_is_the_reason() {
    assert_eq!(
        told(&[], Direction::Ingress, LOST, WEB),
        "Nothing passes, because the labels of namespace lost are not known."
    );
}

#[test]
fn members_of_a_policy_are_those_that_it_selects() {
    let all = of_cluster(
        "all",
        &json!({"tier": "Admin", "priority": 1, "subject": {"namespaces": {}}}),
    );
    assert_eq!(selected(&world(), &all), [WEB, DB]);
    let db = of(
        "db",
        &json!({"podSelector": {"matchLabels": {"app": "db"}}}),
    );
    assert_eq!(selected(&world(), &db), [DB]);
}

/// F-40: a template that writes an empty list opens everything.
#[test]
fn an_empty_list_of_peers_is_warned_of() {
    let policy = of(
        "open",
        &json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [
            {"from": [{"podSelector": {}}]},
            {"from": []},
        ], "egress": [{"ports": [{"port": 53}]}]}),
    );
    let found = warnings(&world(), &policy, true);
    let any = |direction, rule, any_port| Warning::AnyPeer {
        direction,
        rule,
        any_port,
    };
    assert_eq!(
        found,
        [
            any(Direction::Ingress, 1, true),
            any(Direction::Egress, 0, false)
        ]
    );
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "ingress rule 2 (spec.ingress[1]) has no `from`, or an empty one, and so allows everything from any \
             address: remove the rule if it is to allow nothing",
            "egress rule 1 (spec.egress[0]) has no `to`, or an empty one, and so allows its ports to any address: \
             remove the rule if it is to allow nothing",
        ]
    );
}

#[test]
fn a_policy_for_nobody_is_warned_of() {
    let policy = of(
        "none",
        &json!({"podSelector": {"matchLabels": {"app": "none"}}}),
    );
    let found = warnings(&world(), &policy, true);
    assert_eq!(found, [Warning::SelectsNobody]);
    assert_eq!(
        found[0].to_string(),
        "the policy selects no pod of the network: compare its selectors with the pods' labels"
    );
}

/// A-MNP-11: selectors cannot be resolved without addresses.
#[test]
fn selectors_on_a_network_without_addresses_are_warned_of() {
    let policy = of(
        "pods",
        &json!({"podSelector": {}, "ingress": [
            {"from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]},
            {"from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}, {"namespaceSelector": {}}]},
        ]}),
    );
    assert_eq!(warnings(&world(), &policy, true), []);
    let found = warnings(&world(), &policy, false);
    let direction = Direction::Ingress;
    assert_eq!(found, [Warning::NoAddresses { direction, rule: 1 }]);
    assert_eq!(
        found[0].to_string(),
        "ingress rule 2 (spec.ingress[1]) selects pods, and the network gives pods no addresses to know them by, so \
         that it matches none: name addresses in an ipBlock"
    );
}

#[test]
fn a_policy_of_many_rules_has_a_limited_number_of_warnings() {
    let rules: Vec<Value> = (0..100).map(|_| json!({"from": []})).collect();
    let policy = of("many", &json!({"podSelector": {}, "ingress": rules}));
    assert_eq!(warnings(&world(), &policy, true).len(), 32);
}
