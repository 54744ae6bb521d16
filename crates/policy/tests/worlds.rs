//! Compare the compiled form with the meaning of policies, in generated worlds.

mod generate;

use std::collections::BTreeSet;

use policy::{
    Action, Direction, Guard, Kind, Namespaces, PeerEnd, Pods, Policy, PolicyId, Ports, Protocol,
    Rule, Selector, Tier, World, compile, judge,
};
use proptest::prelude::*;

use self::generate::{OUTSIDE, policy, rule, traffics, world};

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
