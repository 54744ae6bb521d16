//! Compare with the engine of cyclonus: `cargo xtask policy-oracle`.

mod agree;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use policy::{
    Direction, Kind, Labels, Member, NamedPort, PeerEnd, Policy, Protocol, Traffic, Workload,
    World, compile, network,
};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

/// The program of xtask/src/policy/oracle.go.
const ORACLE: &str = "PODNET_POLICY_ORACLE";
/// How many worlds are compared.
const CASES: u32 = 3000;
const PORTS: [u16; 5] = [22, 79, 80, 81, 8080];
const PROTOCOLS: [(Protocol, &str); 3] = [
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
fn policy() -> impl Strategy<Value = (&'static str, Value)> {
    let types = subsequence(vec!["Ingress", "Egress"], 1..=2);
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

fn labels(json: &Value) -> Labels {
    serde_json::from_value(json.clone()).expect("it is valid")
}

fn member() -> impl Strategy<Value = Member> {
    // Each has the key of all selectors: `NotIn` matches an object without it, as Kubernetes has it
    // (apimachinery, labels/selector.go), and not as this engine has it.
    let label = select(vec![
        json!({"app": "1"}),
        json!({"app": "2"}),
        json!({"app": "2", "db": ""}),
    ]);
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

fn world() -> impl Strategy<Value = World> {
    proptest::collection::vec(member(), 2..=4).prop_map(|mut members| {
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
            nodes: Vec::new(),
        }
    })
}

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
    json!({
        "ip": member.addresses[0],
        "namespace": member.workload.namespace,
        "namespaceLabels": world.namespaces[&member.workload.namespace],
        "labels": member.workload.labels,
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
                    for outside in ["192.0.2.1", "192.0.2.200"] {
                        // Twice only where the address outside is one of the ends.
                        if (from.is_none() || to.is_none()) || outside == "192.0.2.1" {
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

#[test]
fn cyclonus_answers_as_podnet_does() {
    let Some(program) = env::var(ORACLE).ok().filter(|it| !it.is_empty()) else {
        println!("SKIP: needs the engine of cyclonus (cargo xtask policy-oracle)");
        return;
    };
    let mut oracle = Oracle::start(&program);
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(CASES)
    };
    let mut runner = TestRunner::new(config);
    let cases = (world(), proptest::collection::vec(policy(), 0..=4));
    let (mut asked, mut allowed) = (0_u64, 0_u64);
    let oracle = std::cell::RefCell::new(&mut oracle);
    let counts = std::cell::RefCell::new((&mut asked, &mut allowed));
    runner
        .run(&cases, |(world, specs)| {
            let policies: Vec<Policy> = specs
                .iter()
                .enumerate()
                .map(|(index, (namespace, spec))| {
                    let name = format!("p{index}");
                    let read =
                        network(Kind::NetworkPolicy, namespace, &name, spec).expect("it is valid");
                    assert_eq!(read.problems, []);
                    read.policy
                })
                .collect();
            let objects: Vec<Value> = specs
                .iter()
                .enumerate()
                .map(|(index, (namespace, spec))| {
                    let name = format!("p{index}");
                    json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec})
                })
                .collect();
            let questions = questions(world.members.len());
            let asked: Vec<Value> = questions.iter().map(|it| it.json(&world)).collect();
            let theirs = oracle
                .borrow_mut()
                .ask(&json!({"policies": objects, "questions": asked}));
            prop_assert_eq!(theirs.len(), questions.len());
            let tables = compile(&world, &policies, 0..world.members.len()).expect("it is valid");
            for (question, theirs) in questions.iter().zip(theirs) {
                let ours = question.answer(&world, &policies, &tables);
                prop_assert_eq!(ours, theirs, "{}", question.json(&world));
                let mut counts = counts.borrow_mut();
                *counts.0 += 1;
                *counts.1 += u64::from(ours == (true, true));
            }
            Ok(())
        })
        .expect("it is valid");
    println!("{CASES} worlds, {asked} questions, {allowed} of them allowed both ways");
}
