//! Compare the compiled form with the meaning of policies, in generated worlds.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use policy::{
    Action, Block, Direction, Guard, Kind, Labels, Member, NamedPort, Namespaces, Node, Peer,
    PeerEnd, Pods, Policy, PolicyId, Ports, Protocol, Requirement, Rule, Selector, Tier, Traffic,
    World, compile, judge,
};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// Ports at and around those that rules name.
const PORTS: [u16; 9] = [1, 22, 53, 79, 80, 81, 8080, 8081, 65_535];
/// Addresses that no member has; the first two are nodes'.
const OUTSIDE: [&str; 7] = [
    "10.0.1.1",
    "10.0.1.2",
    "10.0.0.200",
    "192.0.2.1",
    "192.0.2.130",
    "2001:db8::1",
    "fd00::99",
];
const BLOCKS: [&str; 8] = [
    "0.0.0.0/0",
    "::/0",
    "10.0.0.0/8",
    "10.0.0.0/30",
    "10.0.1.1/32",
    "192.0.2.0/24",
    "192.0.2.128/25",
    "fd00::/64",
];

fn labels(pairs: &[(&str, &str)]) -> Labels {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn selector() -> impl Strategy<Value = Selector> {
    let values = || subsequence(vec!["1".to_owned(), "2".to_owned()], 1..=2);
    let one = prop_oneof![
        values().prop_map(|it| Requirement::In("app".to_owned(), it.into_iter().collect())),
        values().prop_map(|it| Requirement::NotIn("app".to_owned(), it.into_iter().collect())),
        Just(Requirement::Exists("db".to_owned())),
        Just(Requirement::DoesNotExist("db".to_owned())),
    ];
    proptest::collection::vec(one, 0..=2).prop_map(Selector::new)
}

fn pods() -> impl Strategy<Value = Pods> {
    let namespaces = prop_oneof![
        select(vec!["a", "b", "c"]).prop_map(|name| Namespaces::Named(name.to_owned())),
        selector().prop_map(Namespaces::Matching),
    ];
    (namespaces, selector()).prop_map(|(namespaces, pods)| Pods { namespaces, pods })
}

fn block() -> impl Strategy<Value = Block> {
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

fn peer() -> impl Strategy<Value = Peer> {
    prop_oneof![
        3 => pods().prop_map(Peer::Pods),
        2 => block().prop_map(Peer::Block),
        1 => selector().prop_map(Peer::Nodes),
    ]
}

fn protocol() -> impl Strategy<Value = Protocol> {
    select(Protocol::ALL.to_vec())
}

fn ports() -> impl Strategy<Value = Ports> {
    let name = select(vec!["web", "dns", "none"]).prop_map(str::to_owned);
    prop_oneof![
        (protocol(), select(PORTS.to_vec()), select(PORTS.to_vec()))
            .prop_map(|(protocol, a, b)| Ports::Range(protocol, a.min(b), a.max(b))),
        (proptest::option::of(protocol()), name)
            .prop_map(|(protocol, name)| Ports::Named(protocol, name)),
    ]
}

fn rule(actions: Vec<Action>) -> impl Strategy<Value = Rule> {
    let list = proptest::option::of(proptest::collection::vec(peer(), 0..=2));
    let ports = proptest::option::of(proptest::collection::vec(ports(), 0..=2));
    (select(actions), list, ports).prop_map(|(action, peers, ports)| Rule {
        action,
        peers,
        ports,
    })
}

fn policy() -> impl Strategy<Value = Policy> {
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

fn member() -> impl Strategy<Value = Member> {
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
    let label = select(vec![
        labels(&[]),
        labels(&[("app", "1")]),
        labels(&[("app", "2"), ("db", "")]),
    ]);
    // The labels of `c` are not known.
    (select(vec!["a", "b", "c"]), label, named()).prop_map(|(namespace, labels, ports)| Member {
        namespace: namespace.to_owned(),
        labels,
        addresses: Vec::new(),
        ports,
    })
}

fn world() -> impl Strategy<Value = World> {
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

fn traffics() -> Vec<Traffic> {
    let ports = Protocol::ALL
        .into_iter()
        .flat_map(|protocol| PORTS.map(|port| Traffic::Port(protocol, port)));
    ports.chain([Traffic::Other]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The tables answer as the rules do, for each end and all traffic.
    #[test]
    fn tables_answer_as_rules_do(
        world in world(), policies in proptest::collection::vec(policy(), 0..=5),
    ) {
        let network = compile(&world, &policies, 0..world.members.len()).expect("it is valid");
        for (subject, guard) in world.members.iter().zip(network.guards.values()) {
            let Guard { ingress, egress } = *guard;
            for (direction, set) in [(Direction::Ingress, ingress), (Direction::Egress, egress)] {
                let members = world.members.iter().flat_map(|member| {
                    let addresses = member.addresses.iter();
                    addresses.map(move |address| (*address, PeerEnd::Member(member, *address)))
                });
                let outside = OUTSIDE.iter().map(|text| {
                    let address = text.parse().expect("it is valid");
                    (address, PeerEnd::Address(address))
                });
                for (address, peer) in members.chain(outside) {
                    let atom = network.atom(address);
                    for traffic in traffics() {
                        let meant = judge(&world, &policies, direction, subject, peer, traffic);
                        prop_assert_eq!(
                            network.allows(set, atom, traffic),
                            meant.allows(),
                            "{:?} {:?} {:?}: {:?}", direction, peer, traffic, meant
                        );
                    }
                }
            }
        }
    }

    /// An end of which nothing is known gets less than any that is known could get.
    #[test]
    fn an_unknown_end_gets_no_more_than_each_known_one(
        world in world(), policies in proptest::collection::vec(policy(), 0..=4),
    ) {
        let network = compile(&world, &policies, 0..world.members.len()).expect("it is valid");
        let known: BTreeSet<_> = network.identities.values().copied().filter(|it| *it != policy::UNKNOWN).collect();
        for guard in network.guards.values() {
            for set in [guard.ingress, guard.egress] {
                for traffic in traffics() {
                    let unknown = network.allows(set, policy::UNKNOWN, traffic);
                    let all = known.iter().all(|atom| network.allows(set, *atom, traffic));
                    prop_assert!(!unknown || all, "{:?} {:?}", set, traffic);
                }
            }
        }
    }

    /// A rule of NetworkPolicy that accepts more takes nothing away.
    #[test]
    fn a_further_accepting_rule_takes_nothing_away(
        world in world(), policies in proptest::collection::vec(policy(), 1..=4), rule in rule(vec![Action::Accept]),
    ) {
        let before = compile(&world, &policies, 0..world.members.len()).expect("it is valid");
        let mut more = policies.clone();
        for policy in more.iter_mut().filter(|it| it.tier == Tier::Network) {
            policy.ingress.push(rule.clone());
            policy.egress.push(rule.clone());
        }
        let after = compile(&world, &more, 0..world.members.len()).expect("it is valid");
        for (index, _) in world.members.iter().enumerate() {
            for address in before.identities.keys() {
                for traffic in traffics() {
                    let of = |network: &policy::Network| {
                        let guard = network.guards[&index];
                        let atom = network.atom(*address);
                        [guard.ingress, guard.egress].map(|set| network.allows(set, atom, traffic))
                    };
                    let (before, after) = (of(&before), of(&after));
                    prop_assert!(!before[0] || after[0]);
                    prop_assert!(!before[1] || after[1]);
                }
            }
        }
    }
}

#[test]
fn more_ports_than_classes_are_refused_with_their_number() {
    let world = World::default();
    let ports = (1..=200).map(|port| Ports::Range(Protocol::Tcp, port * 3, port * 3));
    let rule = Rule {
        action: Action::Accept,
        peers: None,
        ports: Some(ports.collect()),
    };
    let policy = Policy {
        id: PolicyId {
            kind: Kind::NetworkPolicy,
            namespace: "a".to_owned(),
            name: "many".to_owned(),
        },
        tier: Tier::Network,
        priority: 0,
        subject: Pods {
            namespaces: Namespaces::Named("a".to_owned()),
            pods: Selector::default(),
        },
        isolates_ingress: true,
        isolates_egress: false,
        ingress: vec![rule],
        egress: Vec::new(),
    };
    let error = compile(&world, &[policy], []).unwrap_err().to_string();
    assert!(error.contains("401 ranges of Tcp ports"), "{error}");
}
