//! Compare with the engines of others: `cargo xtask policy-oracle`.

mod agree;
mod specs;

use std::cell::RefCell;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use policy::{
    Direction, Kind, Member, Node, PeerEnd, Policy, Protocol, Traffic, World, cluster, compile,
    network,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use self::specs::{PORTS, PROTOCOLS, cluster_policy, labels, policy, with_keys, world};

/// The program of xtask/src/kubernetes/policy_oracle.go.
const CYCLONUS: &str = "PODNET_POLICY_ORACLE";
/// The program of xtask/src/kubernetes/kube_network_policies.go.
const KUBE_NETWORK_POLICIES: &str = "PODNET_POLICY_ORACLE_KUBE";
const OUTSIDE: [&str; 2] = ["192.0.2.1", "192.0.2.200"];

struct Oracle {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Oracle {
    fn start(program: &str) -> Self {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the oracle starts");
        let (input, output) = (
            child.stdin.take().expect("it is valid"),
            child.stdout.take().expect("it is valid"),
        );
        Self {
            child,
            input,
            output: BufReader::new(output),
        }
    }

    /// Asks for a case; for each question, what may be sent and received.
    fn ask(&mut self, case: &Value) -> Vec<(bool, bool)> {
        writeln!(self.input, "{case}").expect("the oracle reads");
        let mut line = String::new();
        self.output
            .read_line(&mut line)
            .expect("the oracle answers");
        let answer = |word: &str| (word.starts_with('y'), word.ends_with('y'));
        line.split_whitespace().map(answer).collect()
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // It ends with its input, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn end(world: &World, member: &Member) -> Value {
    let name = |protocol: Protocol| PROTOCOLS[protocol.index()].1;
    let ports = member.workload.ports.iter();
    let ports: Vec<Value> = ports
        .map(|it| json!({"name": it.name, "protocol": name(it.protocol), "number": it.number}))
        .collect();
    json!({
        "ip": member.addresses[0],
        "namespace": member.workload.namespace,
        "namespaceLabels": world.namespaces[&member.workload.namespace],
        "labels": member.workload.labels,
        "ports": ports,
    })
}

/// One question: both ends, where they are members, and the traffic.
struct Question<'a> {
    from: Option<usize>,
    to: Option<usize>,
    outside: &'a str,
    protocol: (Protocol, &'a str),
    port: u16,
}

impl Question<'_> {
    fn json(&self, world: &World) -> Value {
        let of = |index: Option<usize>| match index {
            Some(index) => end(world, &world.members[index]),
            None => json!({"ip": self.outside}),
        };
        let named = self.to.and_then(|index| {
            let mut ports = world.members[index].workload.ports.iter();
            ports.find(|it| it.number == self.port && it.protocol == self.protocol.0)
        });
        json!({
            "from": of(self.from), "to": of(self.to), "port": self.port, "protocol": self.protocol.1,
            "portName": named.map_or("", |it| it.name.as_str()),
        })
    }

    /// Our answer, by the rules and by the tables: what may be sent and received.
    fn answer(&self, world: &World, policies: &[Policy], tables: &policy::Network) -> (bool, bool) {
        let side = |direction: Direction, subject: Option<usize>, peer: Option<usize>| {
            // An end outside is judged by no policy.
            let Some(subject) = subject else {
                return true;
            };
            let traffic = Traffic::Port(self.protocol.0, self.port);
            let address = match peer {
                Some(peer) => world.members[peer].addresses[0],
                None => self.outside.parse().expect("it is valid"),
            };
            let peer = match peer {
                Some(peer) => PeerEnd::Member(&world.members[peer], address),
                None => PeerEnd::Address(address),
            };
            let facts = (world, policies, tables);
            agree::passes(facts, (direction, subject), peer, traffic)
        };
        (
            side(Direction::Egress, self.from, self.to),
            side(Direction::Ingress, self.to, self.from),
        )
    }
}

fn questions(members: usize) -> Vec<Question<'static>> {
    let ends: Vec<Option<usize>> = (0..members).map(Some).chain([None]).collect();
    let mut all = Vec::new();
    for from in &ends {
        for to in &ends {
            if from == to {
                continue;
            }
            for protocol in PROTOCOLS {
                for port in PORTS {
                    for outside in OUTSIDE {
                        // Twice only where the address outside is one of the ends.
                        if (from.is_none() || to.is_none()) || outside == OUTSIDE[0] {
                            all.push(Question {
                                from: *from,
                                to: *to,
                                outside,
                                protocol,
                                port,
                            });
                        }
                    }
                }
            }
        }
    }
    all
}

/// Policies of one case as they are written: of namespaces, and of the cluster.
type Specs = (Vec<(&'static str, Value)>, Vec<Value>);

/// Asks the engine and podnet the same questions in generated worlds.
fn compare(
    (variable, name): (&str, &str),
    worlds: u32,
    cases: &impl Strategy<Value = (World, Specs)>,
) {
    let Some(program) = env::var(variable).ok().filter(|it| !it.is_empty()) else {
        println!("SKIP: needs the engine of {name} (cargo xtask policy-oracle)");
        return;
    };
    let oracle = RefCell::new(Oracle::start(&program));
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(worlds)
    };
    let counts = RefCell::new([0_u64; 2]);
    let case = |(world, (specs, of_cluster)): (World, Specs)| {
        let (mut policies, mut objects) = (Vec::new(), Vec::new());
        for (index, (namespace, spec)) in specs.iter().enumerate() {
            let name = format!("p{index}");
            let read = network(Kind::NetworkPolicy, namespace, &name, spec).expect("it is valid");
            assert_eq!(read.problems, []);
            policies.push(read.policy);
            objects.push(json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec}));
        }
        let mut cluster_objects = Vec::new();
        for (index, spec) in of_cluster.iter().enumerate() {
            let name = format!("c{index}");
            let read = cluster(&name, spec).expect("it is valid");
            assert_eq!(read.problems, [], "{spec}");
            policies.push(read.policy);
            cluster_objects.push(json!({"metadata": {"name": name}, "spec": spec}));
        }
        let nodes = world.nodes.iter();
        let nodes: Vec<Value> = nodes
            .map(|node| json!({"labels": node.labels, "addresses": node.addresses}))
            .collect();
        let questions = questions(world.members.len());
        let asked: Vec<Value> = questions.iter().map(|it| it.json(&world)).collect();
        let theirs = oracle.borrow_mut().ask(&json!({
            "policies": objects, "cluster": cluster_objects, "nodes": nodes, "questions": asked,
        }));
        prop_assert_eq!(theirs.len(), questions.len());
        let tables = compile(&world, &policies, 0..world.members.len()).expect("it is valid");
        for (question, theirs) in questions.iter().zip(theirs) {
            let ours = question.answer(&world, &policies, &tables);
            prop_assert_eq!(ours, theirs, "{}", question.json(&world));
            let [asked, allowed] = &mut *counts.borrow_mut();
            *asked += 1;
            *allowed += u64::from(ours == (true, true));
        }
        Ok(())
    };
    TestRunner::new(config)
        .run(cases, case)
        .expect("both answer the same");
    let [asked, allowed] = *counts.borrow();
    println!("{name}: {worlds} worlds, {asked} questions, {allowed} of them allowed both ways");
}

/// It knows NetworkPolicy only.
///
/// `NotIn` matches an object without the key, as Kubernetes has it (apimachinery, labels/selector.go), and not as
/// this engine has it: all members have the keys.
#[test]
fn cyclonus_answers_as_podnet_does() {
    let policies = proptest::collection::vec(policy(1), 0..=4).prop_map(|it| (it, Vec::new()));
    let cases = (world(with_keys(), Vec::new()), policies);
    compare((CYCLONUS, "cyclonus"), 3000, &cases);
}

fn node(label: &Value, address: &str) -> Node {
    Node {
        labels: labels(label),
        addresses: vec![address.parse().expect("it is valid")],
    }
}

/// A NetworkPolicy that selects a pod keeps all traffic of it from Baseline there.
///
/// Here it does so for its own directions only, and lets Baseline decide the other one, so worlds with Baseline have
/// policies for both directions.
#[test]
fn kube_network_policies_answers_as_podnet_does() {
    let mut label = with_keys();
    label.push(json!({}));
    let nodes = vec![
        node(&json!({"app": "1"}), "192.0.2.250"),
        node(&json!({"app": "2", "db": ""}), OUTSIDE[1]),
    ];
    let policies = |fewest, tiers| {
        (
            proptest::collection::vec(policy(fewest), 0..=3),
            proptest::collection::vec(cluster_policy(tiers), 0..=4),
        )
    };
    let policies = prop_oneof![
        policies(1, vec!["Admin"]),
        policies(2, vec!["Admin", "Baseline"]),
    ];
    compare(
        (KUBE_NETWORK_POLICIES, "kube-network-policies"),
        1000,
        &(world(label, nodes), policies),
    );
}
