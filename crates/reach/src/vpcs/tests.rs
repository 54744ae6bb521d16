use book::record::HostEnd;
use book::samples::wanted as wish;

use super::*;

/// A VPC with networks `a` and `b`, and one with `c` of the same subnet as `b`.
const OBJECTS: &str = "
apiVersion: podnet.dev/v1alpha1
kind: Vpc
metadata: {name: one}
spec: {cidrs: [10.0.0.0/8]}
---
apiVersion: podnet.dev/v1alpha1
kind: Vpc
metadata: {name: two}
spec: {cidrs: [10.0.0.0/8]}
";

fn world(networks: &[(&str, &str, &str, &str)]) -> World {
    let network = |(name, vpc, subnet, more): &(&str, &str, &str, &str)| {
        format!(
            "---\napiVersion: podnet.dev/v1alpha1\nkind: PodNetwork\nmetadata: {{name: {name}}}\n\
             spec: {{provider: podnet.dev/ebpf, parametersRefs: [{{group: podnet.dev, \
             kind: PodNetworkParameters, name: {name}}}]}}\n---\n\
             apiVersion: podnet.dev/v1alpha1\nkind: PodNetworkParameters\nmetadata: {{name: {name}}}\n\
             spec: {{mode: L3, vpc: {vpc}, subnets: [{subnet}]{more}}}\n"
        )
    };
    let text: String = networks.iter().map(network).collect();
    let objects = api::parse_manifests("a.yaml", &format!("{OBJECTS}{text}"));
    World {
        resolved: api::resolve(objects.into_iter().map(Result::unwrap)),
        ..World::default()
    }
}

fn all() -> World {
    world(&[
        ("a", "one", "10.1.0.0/16", ""),
        ("b", "one", "10.2.0.0/16", ", mtu: 1400"),
        ("c", "two", "10.2.0.0/16", ""),
    ])
}

/// A node with an attachment to each of these networks.
fn with(world: &World, networks: &[&str]) -> Ledger {
    let mut ledger = Ledger::new(u16::MAX);
    for (name, ifindex) in networks.iter().zip(10..) {
        let host = HostEnd {
            name: format!("pn{ifindex}"),
            ifindex,
        };
        let network = world.network(name).unwrap();
        ledger.reserve(wish(name), network, host).unwrap();
    }
    ledger
}

fn all_of(ledger: &Ledger, world: &World) -> AllRoutes {
    wanted(&Networks::of(ledger), &world.resolved)
}

fn to(all: &[(&str, Route)]) -> Arc<Routes> {
    let all = all.iter();
    Arc::new(
        all.map(|(prefix, route)| (prefix.parse().unwrap(), *route))
            .collect(),
    )
}

#[test]
fn networks_of_a_vpc_are_routed_to_each_other_by_their_numbers() {
    let world = all();
    let ledger = with(&world, &["a", "b", "c"]);
    let id = |name| ledger.id_of(name).unwrap();
    let routes = all_of(&ledger, &world);
    let everything = ("10.0.0.0/8", Route::NOWHERE);
    let route = |name, mtu| Route {
        network: id(name),
        mtu,
    };
    let expected = [
        (
            id("a"),
            to(&[everything, ("10.2.0.0/16", route("b", 1400))]),
        ),
        (
            id("b"),
            to(&[everything, ("10.1.0.0/16", route("a", 1500))]),
        ),
        (id("c"), to(&[everything])),
    ];
    assert_eq!(routes, expected.into());
}

/// Where no node has a port of a network, nobody is there to be reached.
#[test]
fn a_network_without_a_number_is_led_to_by_nobody() {
    let world = all();
    let ledger = with(&world, &["a"]);
    let id = ledger.id_of("a").unwrap();
    let routes = all_of(&ledger, &world);
    let nowhere = [
        ("10.0.0.0/8", Route::NOWHERE),
        ("10.2.0.0/16", Route::NOWHERE),
    ];
    assert_eq!(routes, [(id, to(&nowhere))].into());
}

#[test]
fn networks_that_span_nodes_are_served_when_a_network_here_leads_to_them() {
    let vxlan = ", transport: {type: VXLAN}, networkID: ";
    let spec = |id| format!("{vxlan}{id}");
    let (a, b, c) = (spec(5), spec(6), spec(7));
    let world = world(&[
        ("a", "one", "10.1.0.0/16", &a),
        ("b", "one", "10.2.0.0/16", &b),
        ("c", "two", "10.2.0.0/16", &c),
        ("d", "one", "10.4.0.0/16", ", transport: {type: Local}"),
    ]);
    let ledger = with(&world, &["a"]);
    let reached = reached(&ledger, &world);
    let names: Vec<(&str, u32)> = reached
        .iter()
        .map(|(name, it)| (name.as_str(), it.id))
        .collect();
    assert_eq!(names, [("a", 5), ("b", 6)]);
    let served = crate::members::served(&ledger, &world);
    assert_eq!(served.keys().collect::<Vec<_>>(), ["a", "b"]);
    let spanning = crate::members::spanning(&ledger, &world);
    assert_eq!(spanning, ["a", "b"].map(str::to_owned).into());
    assert!(reached_from_nowhere(&world).is_empty());
}

fn reached_from_nowhere(world: &World) -> BTreeMap<String, Served> {
    reached(&Ledger::new(u16::MAX), world)
}

/// A number that went to another network leads nowhere, before that has a port.
#[test]
fn a_number_is_led_to_as_long_as_its_network_is_the_same() {
    let before = all();
    let ledger = with(&before, &["a", "b"]);
    let state = Settled {
        world: Some(Arc::new(before)),
        networks: Networks::of(&ledger),
        unwritten: BTreeSet::new(),
    };
    let world = Arc::clone(state.world.as_ref().unwrap());
    let facts = |name: &str, id| NetworkFacts::of(world.network(name).unwrap(), id);
    let id = ledger.id_of("b").unwrap();
    assert!(state.is_as(&world, &facts("b", id)));
    assert!(!state.is_as(&world, &facts("c", id)), "of another name");
    assert!(!state.is_as(&world, &facts("c", id + 1)), "new here");
    let other = Arc::new(all());
    assert!(!state.is_as(&other, &facts("b", id)), "of other objects");
    let unwritten = Settled {
        unwritten: [id].into(),
        ..state
    };
    assert!(!unwritten.is_as(&world, &facts("b", id)));
}

/// One that stays when its network is gone, as of a pod that was deleted by force.
#[test]
fn a_number_that_another_network_has_here_is_not_led_to() {
    let given = |name, vpc| {
        world(&[
            ("a", "one", "10.1.0.0/16", ""),
            (name, vpc, "10.2.0.0/16", ", networkID: 777"),
        ])
    };
    let before = given("stranger", "two");
    let mut ledger = with(&before, &["a", "stranger"]);
    let after = given("b", "one");
    let id = ledger.id_of("a").unwrap();
    let nowhere = [
        ("10.0.0.0/8", Route::NOWHERE),
        ("10.2.0.0/16", Route::NOWHERE),
    ];
    assert_eq!(all_of(&ledger, &after)[&id], to(&nowhere));
    // Nor when it has no attachment any more: it may come back.
    let key = ledger
        .entries()
        .find(|it| it.record.network.name == "stranger");
    let key = key.unwrap().record.key.clone();
    ledger.release(&key);
    assert_eq!(all_of(&ledger, &after)[&id], to(&nowhere));
}

/// ADR 0080: attached pods stay when their network or its VPC goes.
#[test]
fn what_pods_have_routes_to_is_fenced_whatever_becomes_of_the_vpc() {
    let world = all();
    let ledger = with(&world, &["a"]);
    let id = ledger.id_of("a").unwrap();
    let fenced: AllRoutes = [(id, to(&[("10.0.0.0/8", Route::NOWHERE)]))].into();
    assert_eq!(all_of(&ledger, &World::default()), fenced);
    assert_eq!(fences(&Networks::of(&ledger)), fenced);
}

#[test]
fn routes_that_do_not_fit_leave_a_network_by_itself() {
    let count = 230;
    let names: Vec<String> = (0..count).map(|it| format!("n{it}")).collect();
    let subnets: Vec<String> = (0..count).map(|it| format!("10.{it}.0.0/16")).collect();
    let networks: Vec<(&str, &str, &str, &str)> = names
        .iter()
        .zip(&subnets)
        .map(|(name, subnet)| (name.as_str(), "one", subnet.as_str(), ""))
        .collect();
    let world = world(&networks);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let ledger = with(&world, &names);
    let all = all_of(&ledger, &world);
    assert_eq!(all.len(), count);
    let sum: usize = all.values().map(|it| it.len()).sum();
    assert!(sum <= ROUTES && sum > ROUTES / 10 * 9, "{sum}");
    let alone = all.values().filter(|it| it.len() == 1);
    // Each has its fence, and the others of the VPC besides.
    assert_eq!(alone.count(), count - (ROUTES - count) / count);
}
