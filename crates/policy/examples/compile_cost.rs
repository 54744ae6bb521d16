//! Measure the CPU time of a compilation after a change, in milliseconds.
//!
//! `cargo run --release -p policy --example compile_cost`

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use policy::{
    Action, Block, Compiler, Kind, Labels, Member, NamedPort, Namespaces, Network, Node, Peer,
    Pods, Policy, PolicyId, Ports, Protocol, Requirement, Rule, Selector, Tier, Workload,
    Workloads, World,
};

const NAMESPACES: usize = 50;
const WORKLOADS: usize = 300;
const MEMBERS: usize = 10_000;
const POLICIES: usize = 1000;
const JUDGED: usize = 100;

fn labels<const N: usize>(pairs: [(&str, String); N]) -> Labels {
    let pairs = pairs.into_iter();
    pairs.map(|(key, value)| (key.to_owned(), value)).collect()
}

fn namespace(index: usize) -> Labels {
    labels([
        ("kubernetes.io/metadata.name", format!("space-{index}")),
        ("team", format!("team-{}", index % 10)),
        ("environment", format!("environment-{}", index % 3)),
    ])
}

fn workload(index: usize) -> Labels {
    labels([
        ("app", format!("app-{index}")),
        ("tier", format!("tier-{}", index % 7)),
        ("track", format!("track-{}", index % 2)),
        ("pod-template-hash", format!("{index:08x}")),
    ])
}

fn member(shared: &mut Workloads, index: usize, space: usize, labels: Labels) -> Member {
    let number = u32::try_from(index).expect("it is small");
    let workload = Workload {
        namespace: format!("space-{space}"),
        labels,
        ports: vec![NamedPort {
            name: "web".to_owned(),
            protocol: Protocol::Tcp,
            number: 8000 + u16::try_from(index % WORKLOADS % 5).expect("it is small"),
        }],
    };
    Member {
        workload: shared.share(workload),
        addresses: vec![
            IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number)),
            IpAddr::V6(Ipv6Addr::from_bits((0xfd00 << 112) + u128::from(number))),
        ],
    }
}

fn world(shared: &mut Workloads) -> World {
    World {
        namespaces: (0..NAMESPACES)
            .map(|index| (format!("space-{index}"), namespace(index)))
            .collect(),
        members: (0..MEMBERS)
            .map(|index| {
                let of = index % WORKLOADS;
                member(shared, index, of % NAMESPACES, workload(of))
            })
            .collect(),
        nodes: (0..100_u32)
            .map(|index| Node {
                labels: labels([("zone", format!("zone-{}", index % 3))]),
                addresses: vec![IpAddr::V4(Ipv4Addr::from_bits(0xac10_0000 + index))],
            })
            .collect(),
    }
}

fn has(key: &str, value: String) -> Selector {
    Selector::new([Requirement::In(key.to_owned(), BTreeSet::from([value]))])
}

/// A policy for a workload or a tier of a namespace, two rules each way.
///
/// `inside`: some of its blocks are of members.
fn policy(index: usize, inside: bool) -> Policy {
    let space = index % NAMESPACES;
    let named = Namespaces::Named(format!("space-{space}"));
    let app = space + NAMESPACES * (index / NAMESPACES % (WORKLOADS / NAMESPACES));
    let subject = match index % 4 {
        0 => has("tier", format!("tier-{}", index % 7)),
        _ => has("app", format!("app-{app}")),
    };
    let pods = |namespaces, pods| Peer::Pods(Pods { namespaces, pods });
    let teams = Namespaces::Matching(has("team", format!("team-{}", index % 10)));
    let third = match index % 5 {
        0 => {
            let low = u32::try_from(index % 200).expect("it is small");
            let base = if inside && index.is_multiple_of(2) {
                0x0a00_0000
            } else {
                0xc000_0000
            };
            let cidr = format!("{}/24", Ipv4Addr::from_bits(base + low / 5 * 256));
            let except = format!("{}/28", Ipv4Addr::from_bits(base + low / 5 * 256 + 64));
            Peer::Block(Block {
                cidr: cidr.parse().expect("it is a block"),
                except: vec![except.parse().expect("it is a block")],
            })
        }
        _ => pods(teams.clone(), has("track", format!("track-{}", index % 2))),
    };
    let first = 1000 + u16::try_from(index % 60).expect("it is small") * 20;
    let range = Ports::Range(Protocol::Tcp, first, first + 10);
    let web = Ports::Named(Some(Protocol::Tcp), "web".to_owned());
    let rule = |peers: Vec<Peer>, ports: Vec<Ports>| Rule {
        action: Action::Accept,
        peers: Some(peers),
        ports: Some(ports),
    };
    let own = pods(
        named.clone(),
        has("app", format!("app-{}", (app + NAMESPACES) % WORKLOADS)),
    );
    let far = pods(teams, has("tier", format!("tier-{}", index / 3 % 7)));
    let rules = vec![
        rule(vec![own, third], vec![range]),
        rule(vec![far], vec![web]),
    ];
    Policy {
        id: PolicyId {
            kind: Kind::NetworkPolicy,
            namespace: format!("space-{space}"),
            name: format!("policy-{index}"),
        },
        tier: Tier::Network,
        priority: 0,
        subject: Pods {
            namespaces: named,
            pods: subject,
        },
        isolates_ingress: true,
        isolates_egress: index.is_multiple_of(2),
        ingress: rules.clone(),
        egress: if index.is_multiple_of(2) {
            rules
        } else {
            Vec::new()
        },
    }
}

/// CPU time of this thread so far.
fn cpu() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("it can be read");
    let first = text
        .split_whitespace()
        .next()
        .and_then(|it| it.parse::<f64>().ok());
    first.expect("it begins with a number") / 1e6
}

/// Resident memory of this process in MiB.
fn resident() -> f64 {
    let text = fs::read_to_string("/proc/self/statm").expect("it can be read");
    let pages = text
        .split_whitespace()
        .nth(1)
        .and_then(|it| it.parse::<f64>().ok());
    pages.expect("it is a number") * 4096.0 / 1024.0 / 1024.0
}

/// Entries of a result, which is what its memory is.
fn told(network: &Network) -> String {
    let entries: usize = network.sets.iter().map(|set| set.rows.len()).sum();
    let atoms: BTreeSet<_> = network.identities.values().collect();
    format!(
        "{} addresses of {} atoms, {} blocks, {} rows, {} sets with {entries} entries",
        network.identities.len(),
        atoms.len(),
        network.blocks.len(),
        network.rows.len(),
        network.sets.len(),
    )
}

/// Compiles after each of some changes, and tells the mean time.
fn measured(
    compiler: &mut Compiler,
    what: &str,
    (world, policies): (&mut World, &mut Vec<Policy>),
    changes: usize,
    change: impl Fn(usize, &mut World, &mut Vec<Policy>),
) {
    let (mut time, mut last) = (0.0, None);
    for index in 0..changes {
        change(index, world, policies);
        let before = cpu();
        let network = compiler.compile(world, policies, 0..JUDGED);
        time += cpu() - before;
        last = network.ok();
    }
    let last = last.map_or_else(|| "refused".to_owned(), |network| told(&network));
    let time = time / f64::from(u32::try_from(changes).expect("it is small"));
    let resident = resident();
    println!("{what}: {time:.1} ms, {resident:.1} MiB resident; {last}");
}

fn main() {
    for inside in [false, true] {
        println!("blocks of members: {inside}");
        let mut shared = Workloads::default();
        let mut world = world(&mut shared);
        let mut policies: Vec<Policy> = (0..POLICIES).map(|it| policy(it, inside)).collect();
        println!("before: {:.1} MiB resident", resident());
        let mut compiler = Compiler::default();
        let mut run = |what, changes, change: &dyn Fn(usize, &mut World, &mut Vec<Policy>)| {
            let all = (&mut world, &mut policies);
            measured(&mut compiler, what, all, changes, change);
        };
        run("first", 1, &|_, _, _| {});
        run("nothing changed", 20, &|_, _, _| {});
        run("a label, new workload", 20, &|index, world, _| {
            let mut labels = workload(17);
            labels.insert("track".to_owned(), format!("track-{}", index % 2));
            labels.insert("version".to_owned(), index.to_string());
            let one = member(&mut Workloads::default(), 5017 + index, 17, labels);
            world.members[5017 + index] = one;
        });
        run("a label, known workload", 20, &|index, world, _| {
            let known = Arc::clone(&world.members[68 + index].workload);
            world.members[6018 + index].workload = known;
        });
        run("a new policy", 20, &|index, _, policies| {
            policies.push(policy(POLICIES + index * 7, inside));
        });
        run("labels of a namespace", 20, &|index, world, _| {
            let other = namespace(index + 5);
            world.namespaces.insert(format!("space-{index}"), other);
        });
    }
}
