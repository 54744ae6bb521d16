//! Measure a packet between pods under policies, and under nftables in the pods.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use testbed::{Network, Node, Setup};

use super::packets::{self, Way};
use super::{Bench, Known, ROUNDS, Run, names, wait_promoted};
use crate::peers::podnet_plugin;
use crate::report::{Better, Case};
use crate::sandbox::{Sandbox, Side};
use crate::traffic::order;
use crate::traffic::{Bulk, Mode, cpus};

/// Cost of policies.
pub(super) const CASE: Known = Known {
    name: "policies",
    title: "Policies at both ports",
    about: "Two pods of an L3 network on a node: without any policy, with 1, 100 and 1,000 policies that \
            select both of them in both directions, and without a policy of podnet but with rules of nftables in \
            both pods, of the shape that multi-networkpolicy-nftables documents: established connections first, \
            then a chain for each policy, then a drop. UDP one way is never established there. Connections are \
            opened, a byte goes each way, and they are closed, by one thread.",
    run: Run::Alone(run),
};

const NETWORK: &str = "green";

/// Rules at both pods.
#[derive(Debug, Clone, Copy)]
enum Rules {
    None,
    /// So many policies of podnet.
    Podnet(usize),
    /// So many policies as nftables in the pods.
    Nftables(usize),
}

const GROUNDS: [(&str, Rules); 7] = [
    ("no policy", Rules::None),
    ("1 policy", Rules::Podnet(1)),
    ("100 policies", Rules::Podnet(100)),
    ("1,000 policies", Rules::Podnet(1000)),
    ("nftables, 1", Rules::Nftables(1)),
    ("nftables, 10", Rules::Nftables(10)),
    ("nftables, 100", Rules::Nftables(100)),
];

/// A node, with its pods.
struct Ground {
    who: &'static str,
    sides: [Side; 2],
    _pods: [Sandbox; 2],
    _node: Node,
}

/// Policies that each allow a port of their own, in both directions.
///
/// The last one allows all of UDP and TCP.
fn policies(count: usize) -> String {
    let mut text = String::new();
    for number in 0..count {
        let ports = match number + 1 == count {
            true => "{protocol: UDP}, {protocol: TCP}".to_owned(),
            false => format!("{{protocol: TCP, port: {}}}", 10_000 + number % 200),
        };
        let rule =
            |peers: &str| format!("[{{{peers}: [{{podSelector: {{}}}}], ports: [{ports}]}}]");
        let (ingress, egress) = (rule("from"), rule("to"));
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
             metadata: {{name: p{number}, namespace: default, annotations: {{podnet.dev/networks: {NETWORK}}}}}\n\
             spec: {{podSelector: {{}}, policyTypes: [Ingress, Egress], ingress: {ingress}, egress: {egress}}}\n"
        );
    }
    text
}

/// The same as rules in a pod's namespace, for both directions.
fn ruleset(count: usize) -> String {
    let mut text = String::from("table inet policies {\n");
    for (hook, side) in [("input", "saddr"), ("output", "daddr")] {
        for number in 0..count {
            let ports = match number + 1 == count {
                true => "meta l4proto { tcp, udp }".to_owned(),
                false => format!("tcp dport {}", 10_000 + number % 200),
            };
            let _ = writeln!(
                text,
                "set {hook}{number} {{ type ipv4_addr; flags interval; elements = {{ 10.20.0.0/16 }} }}\n\
                 chain {hook}{number} {{ ip {side} @{hook}{number} {ports} accept; }}"
            );
        }
        let _ = writeln!(
            text,
            "chain {hook} {{ type filter hook {hook} priority 0; policy accept;\nct state established,related accept"
        );
        for number in 0..count {
            let _ = writeln!(text, "jump {hook}{number}");
        }
        let _ = writeln!(text, "drop\n}}");
    }
    text + "}\n"
}

fn load(pod: &Sandbox, rules: &str) -> Result<()> {
    let loaded = pod.netns().run_in(|| -> Result<bool> {
        let mut nft = Command::new("nft");
        let mut child = nft
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .context("nft cannot be started: install the package nftables")?;
        let stdin = child.stdin.as_mut().context("a pipe")?;
        stdin.write_all(rules.as_bytes())?;
        Ok(child.wait()?.success())
    });
    if !loaded?? {
        bail!("nft takes the rules of a policy in no pod");
    }
    Ok(())
}

impl Ground {
    fn start(bench: &Bench<'_>, place: usize, who: &'static str, rules: Rules) -> Result<Self> {
        let mut setup = Setup::empty().network(&Network::l3(NETWORK, &["10.20.0.0/24"]));
        if let Rules::Podnet(count) = rules {
            setup = setup.file("policies.yaml", &policies(count));
        }
        let node = Node::start(setup);
        let plugin = podnet_plugin(who, &node, NETWORK);
        let side = |end: &str| -> Result<(Side, Sandbox)> {
            let pod = Sandbox::create(bench.dir, &format!("policies-{place}-{end}"))?;
            let (_, result) = plugin.call("ADD", Some(&pod))?;
            if let Rules::Nftables(count) = rules {
                load(&pod, &ruleset(count))?;
            }
            Ok((Side::of_result(&pod, &result)?, pod))
        };
        let ((a, first), (b, second)) = (side("a")?, side("b")?);
        wait_promoted(&node)?;
        Ok(Self {
            who,
            sides: [a, b],
            _pods: [first, second],
            _node: node,
        })
    }
}

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    case.subjects = names(&GROUNDS.map(|(who, _)| who));
    bench.progress.stage("setting up");
    let mut grounds = Vec::new();
    for (place, (who, rules)) in GROUNDS.into_iter().enumerate() {
        grounds.push(Ground::start(bench, place, who, rules)?);
    }
    let ways: Vec<Way<'_>> = grounds
        .iter()
        .map(|ground| Way {
            who: ground.who,
            a: &ground.sides[0],
            b: &ground.sides[1],
        })
        .collect();
    packets::measure(bench, case, "", &ways)?;
    connections(bench, case, &ways)
}

/// TCP: a stream, and connections.
fn connections(bench: &Bench<'_>, case: &mut Case, ways: &[Way<'_>]) -> Result<()> {
    bench.progress.stage("TCP");
    let rounds = bench.rounds(ROUNDS);
    bench.progress.expect(rounds);
    for round in 0..rounds {
        for turn in 0..ways.len() {
            let Way { who, a, b } = ways[(turn + round) % ways.len()];
            let mut bulk = Bulk::new(a, b, Duration::from_secs(1));
            bulk.cpus = [cpus()[0]; 2];
            case.measure("", "TCP, 1 stream, 1 CPU", "Gbit/s", Better::More)
                .put(who, round, bulk.run()?.rate / 1e9);
            let time = Duration::from_millis(bench.size(400, 100));
            let answer = order::run(Mode::Connect, a, b, time)?;
            case.measure("", "TCP connections, 1 CPU", "per second", Better::More)
                .put(who, round, answer.value);
        }
        bench.progress.step();
    }
    Ok(())
}
