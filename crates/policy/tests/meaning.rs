//! Test the meaning of policies, by the rules of their APIs.

mod agree;

use std::sync::Arc;

use policy::{
    Decision, Direction, Kind, Labels, Member, NamedPort, PeerEnd, Policy, Protocol, Traffic,
    Workload, World, cluster, compile, judge, network,
};
use serde_json::{Value, json};

const HTTP: Traffic = Traffic::Port(Protocol::Tcp, 80);
const DNS: Traffic = Traffic::Port(Protocol::Udp, 53);

fn labels(pairs: &[(&str, &str)]) -> Labels {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// `web` and `db` in namespace `x`, `web` in namespace `y`.
fn world() -> World {
    let member = |namespace: &str, app: &str, address: &str, port: u16| Member {
        workload: Arc::new(Workload {
            namespace: namespace.to_owned(),
            labels: labels(&[("app", app)]),
            ports: vec![NamedPort {
                name: "serve".to_owned(),
                protocol: Protocol::Tcp,
                number: port,
            }],
        }),
        addresses: vec![address.parse().expect("it is valid")],
    };
    let namespace = |name: &str| {
        let label = labels(&[("kubernetes.io/metadata.name", name)]);
        (name.to_owned(), label)
    };
    World {
        namespaces: [namespace("x"), namespace("y")].into(),
        members: vec![
            member("x", "web", "10.0.0.1", 80),
            member("x", "db", "10.0.0.2", 5432),
            member("y", "web", "10.0.0.3", 8080),
        ],
        nodes: Vec::new(),
    }
}

const WEB: usize = 0;
const DB: usize = 1;
const OTHER: usize = 2;

fn of(spec: &Value) -> Policy {
    let read = network(Kind::NetworkPolicy, "x", "p", spec).expect("it is valid");
    assert_eq!(read.problems, [], "{spec}");
    read.policy
}

fn of_cluster(name: &str, spec: &Value) -> Policy {
    let read = cluster(name, spec).expect("it is valid");
    assert_eq!(read.problems, [], "{spec}");
    read.policy
}

enum From {
    Member(usize),
    Outside(&'static str),
}

use self::From::{Member as M, Outside as O};

/// Whether an end may receive from or send to another one.
///
/// Rules and tables must agree.
fn may(
    policies: &[Policy],
    direction: Direction,
    subject: usize,
    peer: &From,
    traffic: Traffic,
) -> bool {
    let world = world();
    let end = match peer {
        M(index) => {
            let member = &world.members[*index];
            PeerEnd::Member(member, member.addresses[0])
        }
        O(text) => PeerEnd::Address(text.parse().expect("an address")),
    };
    let tables = compile(&world, policies, [subject]).expect("it is valid");
    let facts = (&world, policies, &tables);
    agree::passes(facts, (direction, subject), end, traffic)
}

fn receives(policies: &[Policy], subject: usize, peer: &From, traffic: Traffic) -> bool {
    may(policies, Direction::Ingress, subject, peer, traffic)
}

fn sends(policies: &[Policy], subject: usize, peer: &From, traffic: Traffic) -> bool {
    may(policies, Direction::Egress, subject, peer, traffic)
}

/// A-NP-01, -04, -06, -11: without rules nothing passes.
#[test]
fn an_isolated_pod_gets_nothing_and_sends_all() {
    let deny = of(&json!({"podSelector": {}}));
    assert!(!receives(std::slice::from_ref(&deny), WEB, &M(DB), HTTP));
    assert!(!receives(
        std::slice::from_ref(&deny),
        WEB,
        &O("192.0.2.1"),
        Traffic::Other
    ));
    assert!(sends(std::slice::from_ref(&deny), WEB, &M(DB), HTTP));
    // Of another namespace.
    assert!(receives(&[deny], OTHER, &M(DB), HTTP));
    let egress = of(&json!({"podSelector": {}, "policyTypes": ["Egress"]}));
    assert!(!sends(std::slice::from_ref(&egress), WEB, &M(DB), HTTP));
    assert!(receives(&[egress], WEB, &M(DB), HTTP));
    let both = of(&json!({"podSelector": {}, "egress": [{"to": [{"podSelector": {}}]}]}));
    assert!(both.isolates_ingress && both.isolates_egress);
}

/// A-NP-07: rules of a direction that is not in policyTypes do nothing.
#[test]
fn rules_of_another_direction_do_nothing() {
    let policy = of(&json!({"podSelector": {}, "policyTypes": ["Egress"], "ingress": [{}]}));
    assert_eq!(policy.ingress, []);
    assert!(!policy.isolates_ingress);
}

/// A-NP-02: policies add to each other.
#[test]
fn policies_of_a_pod_are_a_union() {
    let deny = of(&json!({"podSelector": {}}));
    let allow = of(&json!({
        "podSelector": {"matchLabels": {"app": "web"}},
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "db"}}}], "ports": [{"port": 80}]}],
    }));
    let both = [deny, allow];
    assert!(receives(&both, WEB, &M(DB), HTTP));
    assert!(!receives(&both, WEB, &M(DB), DNS));
    assert!(!receives(&both, WEB, &M(OTHER), HTTP));
    assert!(!receives(&both, DB, &M(WEB), HTTP));
}

/// A-NP-12: an empty rule is any peer and any traffic.
#[test]
fn an_empty_rule_lets_all_pass() {
    let policy = |rule: Value| of(&json!({"podSelector": {}, "ingress": [rule]}));
    for rule in [json!({}), json!({"from": []}), json!({"ports": []})] {
        let policies = [policy(rule)];
        assert!(receives(&policies, WEB, &O("192.0.2.1"), Traffic::Other));
    }
    // A-NP-28: with ports, ICMP is not among it.
    let ports = [policy(json!({"ports": [{"port": 80}]}))];
    assert!(receives(&ports, WEB, &O("192.0.2.1"), HTTP));
    assert!(!receives(&ports, WEB, &O("192.0.2.1"), Traffic::Other));
}

/// A-NP-14, -15: selectors in one item are joined, and select no address outside.
#[test]
fn selectors_in_one_item_are_joined_and_in_two_are_added() {
    let of_y = json!({"matchLabels": {"kubernetes.io/metadata.name": "y"}});
    let web = json!({"matchLabels": {"app": "web"}});
    let joined = [of(&json!({"podSelector": {}, "ingress": [{"from": [
        {"namespaceSelector": of_y, "podSelector": web}]}]}))];
    assert!(receives(&joined, DB, &M(OTHER), HTTP));
    assert!(!receives(&joined, DB, &M(WEB), HTTP));
    let added = [of(&json!({"podSelector": {}, "ingress": [{"from": [
        {"namespaceSelector": of_y}, {"podSelector": web}]}]}))];
    assert!(receives(&added, DB, &M(OTHER), HTTP));
    assert!(receives(&added, DB, &M(WEB), HTTP));
    let all = [of(
        &json!({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {}}]}]}),
    )];
    assert!(receives(&all, DB, &M(OTHER), HTTP));
    assert!(!receives(&all, DB, &O("192.0.2.1"), HTTP));
}

/// A-NP-23: a range has both of its ends.
#[test]
fn a_range_of_ports_has_both_ends() {
    let policies = [of(&json!({"podSelector": {}, "ingress": [
        {"ports": [{"protocol": "UDP", "port": 50, "endPort": 53}]}]}))];
    for (port, passes) in [(49, false), (50, true), (53, true), (54, false)] {
        let traffic = Traffic::Port(Protocol::Udp, port);
        assert_eq!(receives(&policies, WEB, &M(DB), traffic), passes, "{port}");
    }
    assert!(!receives(
        &policies,
        WEB,
        &M(DB),
        Traffic::Port(Protocol::Tcp, 53)
    ));
}

/// A-NP-24, -25: a name is that of the destination's port.
#[test]
fn a_named_port_is_the_destinations() {
    let named = json!([{"ports": [{"port": "serve"}]}]);
    let ingress = [of(&json!({"podSelector": {}, "ingress": named}))];
    assert!(receives(&ingress, WEB, &O("192.0.2.1"), HTTP));
    assert!(!receives(&ingress, DB, &O("192.0.2.1"), HTTP));
    assert!(receives(
        &ingress,
        DB,
        &M(WEB),
        Traffic::Port(Protocol::Tcp, 5432)
    ));
    let egress = [of(
        &json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": named}),
    )];
    assert!(sends(&egress, DB, &M(WEB), HTTP));
    assert!(sends(
        &egress,
        DB,
        &M(OTHER),
        Traffic::Port(Protocol::Tcp, 8080)
    ));
    assert!(!sends(&egress, DB, &M(OTHER), HTTP));
    assert!(!sends(&egress, DB, &O("192.0.2.1"), HTTP));
    let unknown = [of(
        &json!({"podSelector": {}, "ingress": [{"ports": [{"port": "none"}]}]}),
    )];
    assert!(
        !receives(&unknown, WEB, &M(DB), HTTP),
        "no name is not any port"
    );
}

/// A-NP-30 to -34: blocks match pods, exceptions deny nothing, families are apart.
#[test]
fn a_block_is_one_more_selector() {
    let block = |cidr: &str, except: &[&str]| {
        of(
            &json!({"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": cidr, "except": except}}]}]}),
        )
    };
    let all = [block("0.0.0.0/0", &["10.0.0.2/32"])];
    assert!(receives(&all, WEB, &M(OTHER), HTTP));
    assert!(!receives(&all, WEB, &M(DB), HTTP));
    assert!(receives(&all, WEB, &O("192.0.2.1"), HTTP));
    assert!(!receives(&all, WEB, &O("2001:db8::1"), HTTP));
    let beside = [
        block("0.0.0.0/0", &["10.0.0.2/32"]),
        block("10.0.0.2/32", &[]),
    ];
    assert!(
        receives(&beside, WEB, &M(DB), HTTP),
        "an exception is no denial"
    );
}

/// A-CNP-01 to -05: tiers, priorities, Pass, and no isolation.
#[test]
fn tiers_decide_one_after_the_other() {
    let rule = |action: &str| json!([{"action": action, "from": [{"namespaces": {}}]}]);
    let subject = json!({"namespaces": {}});
    let policy = |name: &str, tier: &str, priority: u32, action: &str| {
        of_cluster(
            name,
            &json!({"tier": tier, "priority": priority, "subject": subject, "ingress": rule(action)}),
        )
    };
    let deny_all = || of(&json!({"podSelector": {}}));
    let passes = |policies: &[Policy]| receives(policies, WEB, &M(OTHER), HTTP);
    let (admin, baseline) = ("Admin", "Baseline");
    assert!(passes(&[policy("a", admin, 1, "Accept"), deny_all()]));
    assert!(!passes(&[policy("a", admin, 1, "Pass"), deny_all()]));
    assert!(!passes(&[
        policy("a", admin, 2, "Accept"),
        policy("b", admin, 1, "Deny")
    ]));
    assert!(passes(&[
        policy("a", admin, 1, "Accept"),
        policy("b", admin, 2, "Deny")
    ]));
    assert!(passes(&[
        policy("a", admin, 1, "Pass"),
        policy("b", admin, 2, "Deny")
    ]));
    assert!(!passes(&[policy("a", baseline, 1, "Deny")]));
    assert!(passes(&[
        policy("a", baseline, 1, "Pass"),
        policy("b", baseline, 2, "Deny")
    ]));
    assert!(!passes(&[
        policy("a", admin, 1, "Pass"),
        policy("b", baseline, 2, "Deny")
    ]));
    let allows = of(&json!({"podSelector": {}, "ingress": [{}]}));
    assert!(
        passes(&[policy("a", baseline, 1, "Deny"), allows]),
        "never asked"
    );
    assert!(receives(
        &[policy("a", admin, 1, "Deny")],
        WEB,
        &O("192.0.2.1"),
        HTTP
    ));
}

/// A-CNP-10: protocols and ranges of a cluster's policy.
#[test]
fn protocols_of_a_cluster_policy_are_read() {
    let protocols = json!([
        {"tcp": {"destinationPort": {"number": 80}}},
        {"udp": {"destinationPort": {"range": {"start": 50, "end": 60}}}},
        {"destinationNamedPort": "serve"},
    ]);
    let policies = [of_cluster(
        "a",
        &json!({
            "tier": "Admin", "priority": 0,
            "subject": {"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "db"}}}},
            "egress": [{"action": "Deny", "to": [{"networks": ["10.0.0.0/8"]}], "protocols": protocols}],
        }),
    )];
    assert!(!sends(&policies, DB, &M(WEB), HTTP));
    assert!(!sends(&policies, DB, &M(WEB), DNS));
    assert!(!sends(
        &policies,
        DB,
        &M(OTHER),
        Traffic::Port(Protocol::Tcp, 8080)
    ));
    assert!(sends(
        &policies,
        DB,
        &M(WEB),
        Traffic::Port(Protocol::Tcp, 8080)
    ));
    assert!(sends(&policies, DB, &O("192.0.2.1"), HTTP));
    assert!(sends(&policies, WEB, &M(DB), HTTP), "not its subject");
}

/// A-CNP-11: what is not known accepts nothing, and denies all.
#[test]
fn an_unknown_peer_of_a_cluster_policy_fails_closed() {
    for (action, passes) in [("Accept", true), ("Deny", false), ("Pass", false)] {
        let read = cluster(
            "a",
            &json!({"tier": "Admin", "priority": 0, "subject": {"namespaces": {}},
                "ingress": [{"action": action, "from": [{"planets": {}}]}]}),
        )
        .expect("it is valid");
        assert_eq!(read.problems.len(), 1);
        assert!(read.problems[0].field.starts_with("spec.ingress[0]"));
        assert_eq!(
            receives(&[read.policy], WEB, &M(DB), HTTP),
            passes,
            "{action}"
        );
    }
}

/// A-MNP-07: a wrong part isolates and allows nothing.
#[test]
fn a_wrong_part_is_named_and_allows_nothing() {
    let rule = |from: Value, ports: Value| json!({"podSelector": {}, "ingress": [{"from": from, "ports": ports}]});
    let any = json!([{"podSelector": {}}]);
    for (spec, field) in [
        (rule(json!([{}]), json!([])), "spec.ingress[0].from[0]"),
        (
            rule(json!([{"ipBlock": {"cidr": "10.0.0.0/40"}}]), json!([])),
            "spec.ingress[0].from[0].ipBlock",
        ),
        (
            rule(
                json!([{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["192.0.2.0/24"]}}]),
                json!([]),
            ),
            "spec.ingress[0].from[0].ipBlock",
        ),
        (
            rule(
                json!([{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]),
                json!([]),
            ),
            "spec.ingress[0].from[0]",
        ),
        (
            rule(any.clone(), json!([{"protocol": "ICMP"}])),
            "spec.ingress[0].ports[0]",
        ),
        (
            rule(any.clone(), json!([{"port": 80, "endPort": 79}])),
            "spec.ingress[0].ports[0]",
        ),
        (
            rule(any.clone(), json!([{"port": "serve", "endPort": 79}])),
            "spec.ingress[0].ports[0]",
        ),
        (
            rule(any.clone(), json!([{"endPort": 79}])),
            "spec.ingress[0].ports[0]",
        ),
        (
            rule(any.clone(), json!([{"port": 0}])),
            "spec.ingress[0].ports[0]",
        ),
        (
            json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}, "ingress": [{}]}),
            "spec.podSelector",
        ),
    ] {
        let read = network(Kind::MultiNetworkPolicy, "x", "p", &spec).expect("it is valid");
        let fields: Vec<&str> = read.problems.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, [field], "{spec}");
        assert!(!receives(&[read.policy], WEB, &M(DB), HTTP), "{spec}");
    }
    let both = network(
        Kind::MultiNetworkPolicy,
        "x",
        "p",
        &json!({"policyTypes": ["Sideways"]}),
    )
    .expect("it is valid");
    assert!(both.policy.isolates_ingress && both.policy.isolates_egress);
    assert_eq!(both.problems[0].field, "spec.policyTypes[0]");
}

#[test]
fn a_policy_of_other_types_is_refused_with_the_reason() {
    let error = network(Kind::NetworkPolicy, "x", "p", &json!({"ingress": 5})).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("spec: the policy cannot be read"),
        "{error}"
    );
    for spec in [
        json!({"tier": "Middle", "priority": 0, "subject": {"namespaces": {}}}),
        json!({"tier": "Admin", "priority": 1001, "subject": {"namespaces": {}}}),
        json!({"tier": "Admin", "priority": 0, "subject": {}}),
        json!({"tier": "Admin", "priority": 0}),
    ] {
        assert!(cluster("a", &spec).is_err(), "{spec}");
    }
}

/// A member of a namespace that is not known gets nothing.
#[test]
fn members_of_unknown_namespaces_are_isolated() {
    let mut world = world();
    world.namespaces.remove("y");
    let allow = of(
        &json!({"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]}),
    );
    let member = &world.members[OTHER];
    let peer = PeerEnd::Member(member, member.addresses[0]);
    let judged = |subject: usize, peer: PeerEnd<'_>| {
        judge(
            &world,
            std::slice::from_ref(&allow),
            Direction::Ingress,
            &world.members[subject],
            peer,
            HTTP,
        )
    };
    assert_eq!(judged(WEB, peer), Decision::Isolated);
    let web = &world.members[WEB];
    assert_eq!(
        judged(OTHER, PeerEnd::Member(web, web.addresses[0])),
        Decision::Unknown
    );
}
