//! Generate policies as they are written, and worlds for them.

use std::sync::Arc;

use policy::{Labels, Member, NamedPort, Node, Protocol, Workload, World};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

pub(crate) const PORTS: [u16; 5] = [22, 79, 80, 81, 8080];
pub(crate) const PROTOCOLS: [(Protocol, &str); 3] = [
    (Protocol::Tcp, "TCP"),
    (Protocol::Udp, "UDP"),
    (Protocol::Sctp, "SCTP"),
];

fn selector() -> impl Strategy<Value = Value> {
    let values = || subsequence(vec!["1", "2"], 1..=2);
    prop_oneof![
        Just(json!({})),
        select(vec!["1", "2"]).prop_map(|value| json!({"matchLabels": {"app": value}})),
        values().prop_map(|values| json!({"matchExpressions": [
            {"key": "app", "operator": "In", "values": values}]})),
        values().prop_map(|values| json!({"matchExpressions": [
            {"key": "app", "operator": "NotIn", "values": values}]})),
        Just(json!({"matchExpressions": [{"key": "db", "operator": "Exists"}]})),
        Just(json!({"matchExpressions": [{"key": "db", "operator": "DoesNotExist"}]})),
    ]
}

fn peer() -> impl Strategy<Value = Value> {
    let block = (
        select(vec![
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.0.0.0/30",
            "192.0.2.0/24",
        ]),
        any::<bool>(),
    );
    prop_oneof![
        selector().prop_map(|pods| json!({"podSelector": pods})),
        selector().prop_map(|namespaces| json!({"namespaceSelector": namespaces})),
        (selector(), selector()).prop_map(
            |(pods, namespaces)| json!({"podSelector": pods, "namespaceSelector": namespaces})
        ),
        block.prop_map(|(cidr, cut)| {
            let except = match (cut, cidr) {
                (false, _) => vec![],
                (true, "192.0.2.0/24") => vec!["192.0.2.128/25"],
                (true, _) => vec!["10.0.0.2/32"],
            };
            json!({"ipBlock": {"cidr": cidr, "except": except}})
        }),
    ]
}

fn port() -> impl Strategy<Value = Value> {
    let protocol = select(vec!["TCP", "UDP", "SCTP"]);
    (protocol, select(PORTS.to_vec()), 0..4_u8).prop_map(|(protocol, port, kind)| match kind {
        0 => json!({"protocol": protocol}),
        1 => json!({"protocol": protocol, "port": port}),
        2 => json!({"protocol": protocol, "port": port, "endPort": port + 2}),
        _ => json!({"protocol": protocol, "port": "serve"}),
    })
}

fn rule(list: &'static str) -> impl Strategy<Value = Value> {
    let peers = proptest::collection::vec(peer(), 0..=2);
    let ports = proptest::collection::vec(port(), 0..=2);
    (peers, ports).prop_map(move |(peers, ports)| json!({list: peers, "ports": ports}))
}

/// Namespace and spec, as the API server would have completed it.
///
/// It is for `fewest` directions or more.
pub(crate) fn policy(fewest: usize) -> impl Strategy<Value = (&'static str, Value)> {
    let types = subsequence(vec!["Ingress", "Egress"], fewest..=2);
    let rules = |list| proptest::collection::vec(rule(list), 0..=2);
    (
        select(vec!["x", "y"]),
        selector(),
        types,
        rules("from"),
        rules("to"),
    )
        .prop_map(|(namespace, pods, types, ingress, egress)| {
            let spec = json!({
                "podSelector": pods, "policyTypes": types, "ingress": ingress, "egress": egress,
            });
            (namespace, spec)
        })
}

/// A peer of a ClusterNetworkPolicy; nodes and networks are for egress.
fn cluster_peer(list: &str) -> BoxedStrategy<Value> {
    let pods = (selector(), selector()).prop_map(
        |(namespaces, pods)| json!({"pods": {"namespaceSelector": namespaces, "podSelector": pods}}),
    );
    let members = prop_oneof![
        selector().prop_map(|namespaces| json!({"namespaces": namespaces})),
        pods,
    ];
    if list == "from" {
        return members.boxed();
    }
    let nets = vec!["0.0.0.0/0", "10.0.0.0/30", "192.0.2.0/24", "192.0.2.128/25"];
    prop_oneof![
        2 => members,
        1 => selector().prop_map(|nodes| json!({"nodes": nodes})),
        1 => subsequence(nets, 1..=2).prop_map(|nets| json!({"networks": nets})),
    ]
    .boxed()
}

fn cluster_port() -> impl Strategy<Value = Value> {
    let protocol = select(vec!["tcp", "udp", "sctp"]);
    (protocol, select(PORTS.to_vec()), 0..4_u8).prop_map(|(protocol, port, kind)| match kind {
        0 => json!({protocol: {}}),
        1 => json!({protocol: {"destinationPort": {"number": port}}}),
        2 => json!({protocol: {"destinationPort": {"range": {"start": port, "end": port + 2}}}}),
        _ => json!({"destinationNamedPort": "serve"}),
    })
}

fn cluster_rule(list: &'static str) -> impl Strategy<Value = Value> {
    let peers = proptest::collection::vec(cluster_peer(list), 1..=2);
    let ports = proptest::option::of(proptest::collection::vec(cluster_port(), 1..=2));
    let action = select(vec!["Accept", "Deny", "Pass"]);
    (action, peers, ports).prop_map(move |(action, peers, ports)| match ports {
        Some(ports) => json!({"action": action, list: peers, "protocols": ports}),
        None => json!({"action": action, list: peers}),
    })
}

/// The spec of a ClusterNetworkPolicy of one of these tiers.
pub(crate) fn cluster_policy(tiers: Vec<&'static str>) -> impl Strategy<Value = Value> {
    let subject = cluster_peer("from");
    let rules = |list| proptest::collection::vec(cluster_rule(list), 0..=2);
    let tier = select(tiers);
    (tier, 0..3_u16, subject, rules("from"), rules("to")).prop_map(
        |(tier, priority, subject, ingress, egress)| {
            json!({
                "tier": tier, "priority": priority, "subject": subject,
                "ingress": ingress, "egress": egress,
            })
        },
    )
}

pub(crate) fn labels(json: &Value) -> Labels {
    serde_json::from_value(json.clone()).expect("it is valid")
}

/// Labels of members that have the key of all selectors.
pub(crate) fn with_keys() -> Vec<Value> {
    vec![
        json!({"app": "1"}),
        json!({"app": "2"}),
        json!({"app": "2", "db": ""}),
    ]
}

fn member(label: Vec<Value>) -> impl Strategy<Value = Member> {
    let label = select(label);
    let named = proptest::option::of((select(PORTS.to_vec()), select(PROTOCOLS.to_vec())));
    (select(vec!["x", "y"]), label, named).prop_map(|(namespace, label, named)| Member {
        workload: Arc::new(Workload {
            namespace: namespace.to_owned(),
            labels: labels(&label),
            ports: named
                .into_iter()
                .map(|(number, (protocol, _))| NamedPort {
                    name: "serve".to_owned(),
                    protocol,
                    number,
                })
                .collect(),
        }),
        addresses: Vec::new(),
    })
}

/// A world of members with such labels, and of nodes.
pub(crate) fn world(label: Vec<Value>, nodes: Vec<Node>) -> impl Strategy<Value = World> {
    proptest::collection::vec(member(label), 2..=4).prop_map(move |mut members| {
        for (index, member) in members.iter_mut().enumerate() {
            member.addresses = vec![
                format!("10.0.0.{}", index + 1)
                    .parse()
                    .expect("it is valid"),
            ];
        }
        World {
            namespaces: [
                ("x".to_owned(), labels(&json!({"app": "1"}))),
                ("y".to_owned(), labels(&json!({"app": "2", "db": ""}))),
            ]
            .into(),
            members,
            nodes: nodes.clone(),
        }
    })
}
