//! Compare a compilation after changes with one from nothing.

mod generate;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use policy::{
    Compiler, Direction, Guard, Labels, Member, Network, Node, PeerEnd, Policy, Row, SetId,
    UNKNOWN, World, compile, judge,
};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use self::generate::{OUTSIDE, label, member, policy, traffics, world};

/// A change of what a network's tables are made of.
#[derive(Debug, Clone)]
enum Change {
    /// A member has such labels.
    Labels(Index, Labels),
    /// A member gets another one's namespace, labels and named ports.
    Become(Index, Member),
    Comes(Member),
    Goes(Index),
    /// A member has the first address of another one, too.
    Shares(Index, Index),
    /// A namespace has such labels, or is not known any more.
    Namespace(&'static str, Option<Labels>),
    Node(Index, Labels),
    NodeComes(Labels, &'static str),
    NodeGoes(Index),
    Policy(Policy),
    PolicyBecomes(Index, Policy),
    PolicyGoes(Index),
    /// Policies come in another order.
    Turn,
    /// Members of such a place in the list are judged here.
    Judged(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let space = select(vec!["a", "b", "c"]);
    prop_oneof![
        4 => (at(), label()).prop_map(|(at, labels)| Change::Labels(at, labels)),
        2 => (at(), member()).prop_map(|(at, member)| Change::Become(at, member)),
        2 => member().prop_map(Change::Comes),
        2 => at().prop_map(Change::Goes),
        1 => (at(), at()).prop_map(|(one, other)| Change::Shares(one, other)),
        2 => (space, proptest::option::of(label())).prop_map(|(name, labels)| Change::Namespace(name, labels)),
        1 => (at(), label()).prop_map(|(at, labels)| Change::Node(at, labels)),
        1 => (label(), select(OUTSIDE.to_vec())).prop_map(|(labels, at)| Change::NodeComes(labels, at)),
        1 => at().prop_map(Change::NodeGoes),
        2 => policy().prop_map(Change::Policy),
        2 => (at(), policy()).prop_map(|(at, policy)| Change::PolicyBecomes(at, policy)),
        2 => at().prop_map(Change::PolicyGoes),
        1 => Just(Change::Turn),
        1 => (0..3_usize).prop_map(Change::Judged),
    ]
}

/// All that is compiled.
#[derive(Debug, Clone)]
struct Case {
    world: World,
    policies: Vec<Policy>,
    /// Every such member is judged, and all if 0.
    judged: usize,
    /// The last number that a member's addresses ended with.
    last: u16,
}

impl Case {
    fn judged(&self) -> impl Iterator<Item = usize> {
        (0..self.world.members.len()).step_by(self.judged + 1)
    }

    fn apply(&mut self, change: Change) {
        let Self {
            world, policies, ..
        } = self;
        let members = world.members.len();
        match change {
            Change::Labels(at, labels) if members > 0 => {
                let member = &mut world.members[at.index(members)];
                Arc::make_mut(&mut member.workload).labels = labels;
            }
            Change::Become(at, other) if members > 0 => {
                world.members[at.index(members)].workload = other.workload;
            }
            Change::Comes(mut member) => {
                self.last += 1;
                member.addresses = addresses(self.last);
                world.members.push(member);
            }
            Change::Goes(at) if members > 0 => {
                world.members.remove(at.index(members));
            }
            Change::Shares(one, other) if members > 0 => {
                let address = world.members[other.index(members)].addresses[0];
                let one = &mut world.members[one.index(members)];
                one.addresses.push(address);
            }
            Change::Namespace(name, Some(labels)) => {
                world.namespaces.insert(name.to_owned(), labels);
            }
            Change::Namespace(name, None) => {
                world.namespaces.remove(name);
            }
            Change::Node(at, labels) if !world.nodes.is_empty() => {
                let count = world.nodes.len();
                world.nodes[at.index(count)].labels = labels;
            }
            Change::NodeComes(labels, address) => world.nodes.push(Node {
                labels,
                addresses: vec![address.parse().expect("it is valid")],
            }),
            Change::NodeGoes(at) if !world.nodes.is_empty() => {
                world.nodes.remove(at.index(world.nodes.len()));
            }
            Change::Policy(policy) => policies.push(policy),
            Change::PolicyBecomes(at, policy) if !policies.is_empty() => {
                let count = policies.len();
                policies[at.index(count)] = policy;
            }
            Change::PolicyGoes(at) if !policies.is_empty() => {
                policies.remove(at.index(policies.len()));
            }
            Change::Turn => policies.reverse(),
            Change::Judged(every) => self.judged = every,
            _ => {}
        }
    }
}

fn addresses(last: u16) -> Vec<IpAddr> {
    let of = |text: String| text.parse::<IpAddr>().expect("it is valid");
    vec![of(format!("10.0.0.{last}")), of(format!("fd00::{last}"))]
}

fn sets(guard: Guard) -> [(Direction, Option<SetId>); 2] {
    [
        (Direction::Ingress, guard.ingress),
        (Direction::Egress, guard.egress),
    ]
}

fn row(network: &Network, set: SetId, atom: u32) -> Row {
    network.rows[network.sets[set as usize].row(atom) as usize]
}

fn asked(network: &Network) -> Vec<IpAddr> {
    let outside = OUTSIDE.iter().map(|it| it.parse().expect("it is valid"));
    network.identities.keys().copied().chain(outside).collect()
}

/// Both answer the same for each end and any traffic, with as many atoms.
fn same(found: &Network, fresh: &Network) -> Result<(), TestCaseError> {
    prop_assert_eq!(&found.classes, &fresh.classes);
    prop_assert!(found.guards.keys().eq(fresh.guards.keys()));
    prop_assert!(found.identities.keys().eq(fresh.identities.keys()));
    let nets = |network: &Network| network.blocks.iter().map(|it| it.0).collect::<Vec<_>>();
    prop_assert_eq!(nets(found), nets(fresh));
    // An atom of one is an atom of the other.
    let mut atoms = BTreeMap::from([(UNKNOWN, UNKNOWN)]);
    let pairs = found.identities.values().zip(fresh.identities.values());
    let blocks = found.blocks.iter().map(|it| &it.1);
    let pairs = pairs.chain(blocks.zip(fresh.blocks.iter().map(|it| &it.1)));
    for (one, other) in pairs {
        prop_assert_eq!(*atoms.entry(*one).or_insert(*other), *other);
    }
    let distinct: BTreeSet<_> = atoms.values().collect();
    prop_assert_eq!(distinct.len(), atoms.len());
    for (index, guard) in &found.guards {
        for ((_, one), (_, other)) in sets(*guard).into_iter().zip(sets(fresh.guards[index])) {
            prop_assert_eq!(one.is_some(), other.is_some());
            let Some((one, other)) = one.zip(other) else {
                continue;
            };
            for (atom, its) in &atoms {
                prop_assert_eq!(row(found, one, *atom), row(fresh, other, *its));
            }
        }
    }
    Ok(())
}

/// The rules say so, too.
fn meant(case: &Case, found: &Network) -> Result<(), TestCaseError> {
    let Case {
        world, policies, ..
    } = case;
    let mut owners: BTreeMap<IpAddr, &Member> = BTreeMap::new();
    for member in &world.members {
        owners.extend(member.addresses.iter().map(|it| (*it, member)));
    }
    for (index, guard) in &found.guards {
        let subject = &world.members[*index];
        for address in asked(found) {
            let end = match owners.get(&address) {
                Some(member) => PeerEnd::Member(member, address),
                None => PeerEnd::Address(address),
            };
            for (direction, set) in sets(*guard) {
                for traffic in traffics() {
                    let meant = judge(world, policies, direction, subject, end, traffic);
                    let found = found.allows(set, found.atom(address), traffic);
                    prop_assert_eq!(found, meant.allows(), "{:?} {:?}", end, traffic);
                }
            }
        }
    }
    Ok(())
}

/// Numbers that both have mean the same.
fn comparable(before: &Network, after: &Network) -> Result<(), TestCaseError> {
    prop_assert_eq!(before.numbering, after.numbering);
    let used = |network: &Network| -> BTreeSet<SetId> {
        let guards = network.guards.values();
        guards
            .flat_map(|guard| sets(*guard))
            .filter_map(|it| it.1)
            .collect()
    };
    let atoms = |network: &Network| -> BTreeSet<u32> {
        let blocks = network.blocks.iter().map(|it| it.1);
        network.identities.values().copied().chain(blocks).collect()
    };
    let (sets_before, sets_after) = (used(before), used(after));
    let (atoms_before, atoms_after) = (atoms(before), atoms(after));
    for set in sets_before.intersection(&sets_after) {
        for atom in atoms_before.intersection(&atoms_after).chain([&UNKNOWN]) {
            let numbers = [before, after].map(|it| it.sets[*set as usize].row(*atom));
            prop_assert_eq!(numbers[0], numbers[1], "{} {}", set, atom);
        }
    }
    let rows = |network: &Network, sets: &BTreeSet<SetId>| -> BTreeSet<u32> {
        let sets = sets.iter().map(|set| &network.sets[*set as usize]);
        let rows = sets.flat_map(|set| {
            let listed = set.rows.iter().map(|it| it.1);
            listed.chain([set.unknown, set.others])
        });
        rows.collect()
    };
    let (rows_before, rows_after) = (rows(before, &sets_before), rows(after, &sets_after));
    for number in rows_before.intersection(&rows_after) {
        let [one, other] = [before, after].map(|it| it.rows[*number as usize]);
        prop_assert_eq!(one, other);
        let is_any = one == Row::NOTHING || one == Row::ALL;
        prop_assert!(is_any || before.classes == after.classes);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// A compilation after any changes is one from nothing, and the rules agree.
    #[test]
    fn a_compiler_that_keeps_what_it_knows_answers_as_a_new_one(
        world in world(),
        policies in proptest::collection::vec(policy(), 0..=5),
        changes in proptest::collection::vec(change(), 1..=10),
    ) {
        let mut case = Case { world, policies, judged: 0, last: 100 };
        let mut compiler = Compiler::default();
        let mut before: Option<Network> = None;
        for change in [Change::Judged(0)].into_iter().chain(changes) {
            case.apply(change);
            let fresh = compile(&case.world, &case.policies, case.judged()).expect("it is valid");
            let found = compiler.compile(&case.world, &case.policies, case.judged()).expect("it is valid");
            same(&found, &fresh)?;
            meant(&case, &found)?;
            if let Some(before) = &before {
                comparable(before, &found)?;
            }
            before = Some(found);
        }
    }
}
