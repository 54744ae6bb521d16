//! Generate worlds and policies that touch in many ways.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use policy::{
    Action, Block, Kind, Labels, Member, NamedPort, Namespaces, Node, Peer, Pods, Policy, PolicyId,
    Ports, Protocol, Requirement, Rule, Selector, Tier, Traffic, Workload, World,
};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// Ports at and around those that rules name.
pub(crate) const PORTS: [u16; 9] = [1, 22, 53, 79, 80, 81, 8080, 8081, 65_535];
/// Addresses that no member has; the first two are nodes'.
pub(crate) const OUTSIDE: [&str; 7] = [
    "10.0.1.1",
    "10.0.1.2",
    "10.0.0.200",
    "192.0.2.1",
    "192.0.2.130",
    "2001:db8::1",
    "fd00::99",
];
pub(crate) const BLOCKS: [&str; 8] = [
    "0.0.0.0/0",
    "::/0",
    "10.0.0.0/8",
    "10.0.0.0/30",
    "10.0.1.1/32",
    "192.0.2.0/24",
    "192.0.2.128/25",
    "fd00::/64",
];

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

pub(crate) fn selector() -> impl Strategy<Value = Selector> {
    let values = || subsequence(vec!["1".to_owned(), "2".to_owned()], 1..=2);
    let one = prop_oneof![
        values().prop_map(|it| Requirement::In("app".to_owned(), it.into_iter().collect())),
        values().prop_map(|it| Requirement::NotIn("app".to_owned(), it.into_iter().collect())),
        Just(Requirement::Exists("db".to_owned())),
        Just(Requirement::DoesNotExist("db".to_owned())),
    ];
    proptest::collection::vec(one, 0..=2).prop_map(Selector::new)
}

pub(crate) fn pods() -> impl Strategy<Value = Pods> {
    let namespaces = prop_oneof![
        select(vec!["a", "b", "c"]).prop_map(|name| Namespaces::Named(name.to_owned())),
        selector().prop_map(Namespaces::Matching),
    ];
    (namespaces, selector()).prop_map(|(namespaces, pods)| Pods { namespaces, pods })
}

pub(crate) fn block() -> impl Strategy<Value = Block> {
    let nets: Vec<IpNet> = BLOCKS
        .iter()
        .map(|text| text.parse().expect("it is valid"))
        .collect();
    (select(nets.clone()), subsequence(nets, 0..=2)).prop_map(|(cidr, except)| Block {
        cidr,
        except: except
            .into_iter()
            .filter(|it| cidr.contains(it) && *it != cidr)
            .collect(),
    })
}

pub(crate) fn peer() -> impl Strategy<Value = Peer> {
    prop_oneof![
        3 => pods().prop_map(Peer::Pods),
        2 => block().prop_map(Peer::Block),
        1 => selector().prop_map(Peer::Nodes),
    ]
}

pub(crate) fn protocol() -> impl Strategy<Value = Protocol> {
    select(Protocol::ALL.to_vec())
}

pub(crate) fn ports() -> impl Strategy<Value = Ports> {
    let name = select(vec!["web", "dns", "none"]).prop_map(str::to_owned);
    prop_oneof![
        (protocol(), select(PORTS.to_vec()), select(PORTS.to_vec()))
            .prop_map(|(protocol, a, b)| Ports::Range(protocol, a.min(b), a.max(b))),
        (proptest::option::of(protocol()), name)
            .prop_map(|(protocol, name)| Ports::Named(protocol, name)),
    ]
}

pub(crate) fn rule(actions: Vec<Action>) -> impl Strategy<Value = Rule> {
    let list = proptest::option::of(proptest::collection::vec(peer(), 0..=2));
    let ports = proptest::option::of(proptest::collection::vec(ports(), 0..=2));
    (select(actions), list, ports).prop_map(|(action, peers, ports)| Rule {
        action,
        peers,
        ports,
    })
}

pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    let tier = select(vec![Tier::Admin, Tier::Network, Tier::Baseline]);
    tier.prop_flat_map(|tier| {
        let actions = match tier {
            Tier::Network => vec![Action::Accept],
            Tier::Admin | Tier::Baseline => vec![Action::Accept, Action::Deny, Action::Pass],
        };
        let rules = move || proptest::collection::vec(rule(actions.clone()), 0..=3);
        (pods(), 0..3_u16, any::<[bool; 2]>(), rules(), rules()).prop_map(
            move |(subject, priority, isolates, ingress, egress)| Policy {
                id: PolicyId {
                    kind: Kind::ClusterNetworkPolicy,
                    namespace: String::new(),
                    name: String::new(),
                },
                tier,
                priority,
                subject,
                isolates_ingress: tier == Tier::Network && isolates[0],
                isolates_egress: tier == Tier::Network && isolates[1],
                ingress,
                egress,
            },
        )
    })
}

pub(crate) fn label() -> impl Strategy<Value = Labels> {
    select(vec![
        labels(&[]),
        labels(&[("app", "1")]),
        labels(&[("app", "2"), ("db", "")]),
    ])
}

pub(crate) fn member() -> impl Strategy<Value = Member> {
    let named = || {
        let all = [
            ("web", Protocol::Tcp, 80),
            ("web", Protocol::Tcp, 8080),
            ("web", Protocol::Udp, 80),
            ("dns", Protocol::Udp, 53),
        ];
        let all = all.map(|(name, protocol, number)| NamedPort {
            name: name.to_owned(),
            protocol,
            number,
        });
        subsequence(all.to_vec(), 0..=3)
    };
    // The labels of `c` are not known.
    (select(vec!["a", "b", "c"]), label(), named()).prop_map(|(namespace, labels, ports)| Member {
        workload: Arc::new(Workload {
            namespace: namespace.to_owned(),
            labels,
            ports,
        }),
        addresses: Vec::new(),
    })
}

pub(crate) fn world() -> impl Strategy<Value = World> {
    proptest::collection::vec(member(), 1..=5).prop_map(|mut members| {
        for (index, member) in members.iter_mut().enumerate() {
            let last = index + 1;
            let of = |text: String| text.parse::<IpAddr>().expect("it is valid");
            member.addresses = vec![of(format!("10.0.0.{last}")), of(format!("fd00::{last}"))];
        }
        World {
            namespaces: [
                ("a".to_owned(), labels(&[("app", "1")])),
                ("b".to_owned(), labels(&[("app", "2"), ("db", "")])),
            ]
            .into(),
            members,
            nodes: vec![
                Node {
                    labels: labels(&[("app", "1")]),
                    addresses: vec![OUTSIDE[0].parse().expect("it is valid")],
                },
                Node {
                    labels: labels(&[("app", "2"), ("db", "")]),
                    addresses: vec![OUTSIDE[1].parse().expect("it is valid")],
                },
            ],
        }
    })
}

pub(crate) fn traffics() -> Vec<Traffic> {
    let ports = Protocol::ALL
        .into_iter()
        .flat_map(|protocol| PORTS.map(|port| Traffic::Port(protocol, port)));
    ports.chain([Traffic::Other]).collect()
}
