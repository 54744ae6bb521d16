//! Measure a packet between pods under policies, and under nftables in the pods.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use testbed::{Network, Node, Setup};

use super::packets::{self, Way};
use super::{Bench, Known, Run, names, wait_promoted};
use crate::interrupt;
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
            then a chain for each policy, then a drop. The rules are exchanged on the same two pods, in another order \
            each round, and rest before they are measured. Datagrams that were never answered are new to nftables each time. Connections are \
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

/// UDP port that the policies of the first ground let pass, and no others.
///
/// Those of the next ones come after it.
const MARKERS: u16 = 100;
/// A UDP port that no policy lets pass.
const CLOSED: u16 = 99;
/// The first port of those that all policies let pass.
const OPEN: u16 = 1024;
/// How long an exchange may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a datagram may take.
const ARRIVAL: Duration = Duration::from_millis(10);
/// Answers in a row that tell of rules in force.
const ROW: usize = 3;
/// Time in which agent and kernel remove what was there before an exchange.
const REST: Duration = Duration::from_millis(1500);

/// A node with two pods, at which rules are exchanged.
struct Ground {
    sides: [Side; 2],
    pods: [Sandbox; 2],
    node: Node,
    /// The number of the rules that are there.
    now: usize,
}

/// Policies that each allow a port of their own, in both directions.
///
/// The last one allows all that is measured, and the marker.
fn policies(count: usize, marker: u16) -> String {
    let mut text = String::new();
    for number in 0..count {
        let ports = match number + 1 == count {
            true => format!(
                "{{protocol: UDP, port: {OPEN}, endPort: 65535}}, {{protocol: UDP, port: {marker}}}, {{protocol: TCP}}"
            ),
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
    fn start(bench: &Bench<'_>) -> Result<Self> {
        let node = Node::start(Setup::empty().network(&Network::l3(NETWORK, &["10.20.0.0/24"])));
        let plugin = podnet_plugin("podnet", &node, NETWORK);
        let side = |end: &str| -> Result<(Side, Sandbox)> {
            let pod = Sandbox::create(bench.dir, &format!("policies-{end}"))?;
            let (_, result) = plugin.call("ADD", Some(&pod))?;
            Ok((Side::of_result(&pod, &result)?, pod))
        };
        let ((a, first), (b, second)) = (side("a")?, side("b")?);
        wait_promoted(&node)?;
        Ok(Self {
            sides: [a, b],
            pods: [first, second],
            node,
            now: 0,
        })
    }

    /// Exchanges the rules, and waits until those of this number are in force.
    fn exchange(&mut self, bench: &Bench<'_>, number: usize) -> Result<()> {
        if self.now == number {
            return Ok(());
        }
        let (_, rules) = GROUNDS[number];
        if matches!(GROUNDS[self.now].1, Rules::Nftables(_)) {
            self.pods
                .iter()
                .try_for_each(|pod| load(pod, "flush ruleset\n"))?;
        }
        let marker = MARKERS + u16::try_from(number)?;
        let text = match rules {
            Rules::Podnet(count) => policies(count, marker),
            Rules::None | Rules::Nftables(_) => String::new(),
        };
        self.node.write_manifest("policies.yaml", &text);
        let closed = matches!(rules, Rules::Podnet(_));
        let begun = Instant::now();
        let mut row = 0;
        while row < ROW {
            interrupt::check()?;
            // The marker comes last: one that arrives has not let the other be late.
            let is_closed = !self.arrives(CLOSED)?;
            let obeys = self.arrives(marker)? && is_closed == closed;
            row = if obeys { row + 1 } else { 0 };
            if begun.elapsed() > PATIENCE {
                bail!(
                    "the rules of {} are not in force after {PATIENCE:?}",
                    GROUNDS[number].0
                );
            }
        }
        if let Rules::Nftables(count) = rules {
            self.pods
                .iter()
                .try_for_each(|pod| load(pod, &ruleset(count)))?;
        }
        self.now = number;
        std::thread::sleep(bench.size(REST, REST / 10));
        Ok(())
    }

    /// True when a datagram to this port arrives.
    fn arrives(&self, port: u16) -> Result<bool> {
        let [a, b] = &self.sides;
        let socket = |side: &Side, port: u16| -> Result<UdpSocket> {
            let at = SocketAddr::new(side.ip, port);
            Ok(side.netns.run_in(|| UdpSocket::bind(at))??)
        };
        let (here, there) = (socket(a, OPEN)?, socket(b, port)?);
        there.set_read_timeout(Some(ARRIVAL))?;
        here.send_to(b"probe", (b.ip, port))?;
        Ok(there.recv(&mut [0; 8]).is_ok())
    }
}

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    case.subjects = names(&GROUNDS.map(|(who, _)| who));
    bench.progress.stage("setting up");
    let mut ground = Ground::start(bench)?;
    let [a, b] = ground.sides.clone();
    let ways = GROUNDS.map(|(who, _)| Way { who, a: &a, b: &b });
    bench.progress.stage("traffic");
    let rounds = bench.rounds(11);
    bench.progress.expect(rounds);
    for round in 0..rounds {
        for number in shuffled(GROUNDS.len(), round) {
            ground.exchange(bench, number)?;
            let way = ways[number];
            packets::measure_one(bench, case, round, way)?;
            kinds(bench, case, round, way)?;
            connections(bench, case, round, way)?;
        }
        bench.progress.step();
    }
    Ok(())
}

/// Returns the numbers below a prime count, each once.
///
/// Each has another neighbour in each of `count - 1` rounds in a row.
fn shuffled(count: usize, round: usize) -> impl Iterator<Item = usize> {
    let step = 1 + round % (count - 1);
    (0..count).map(move |turn| (round + turn * step) % count)
}

/// UDP by ways that policies and nftables look at in different ways.
const KINDS: [(&str, Mode); 2] = [
    ("UDP 64 B, never answered, 1 CPU", Mode::UdpUnanswered),
    ("UDP 64 B, 32 connections in turn, 1 CPU", Mode::UdpInTurn),
];

fn kinds(
    bench: &Bench<'_>,
    case: &mut Case,
    round: usize,
    Way { who, a, b }: Way<'_>,
) -> Result<()> {
    let time = Duration::from_millis(bench.size(400, 100));
    for (what, mode) in KINDS {
        let answer = order::run(mode, a, b, time)?;
        case.measure("", what, "ns/packet", Better::Less)
            .put(who, round, answer.value);
    }
    Ok(())
}

/// TCP: a stream, and connections.
fn connections(
    bench: &Bench<'_>,
    case: &mut Case,
    round: usize,
    Way { who, a, b }: Way<'_>,
) -> Result<()> {
    let mut bulk = Bulk::new(a, b, Duration::from_secs(1));
    bulk.cpus = [cpus()[0]; 2];
    case.measure("", "TCP, 1 stream, 1 CPU", "Gbit/s", Better::More)
        .put(who, round, bulk.run()?.rate / 1e9);
    let time = Duration::from_millis(bench.size(400, 100));
    let answer = order::run(Mode::Connect, a, b, time)?;
    case.measure("", "TCP connections, 1 CPU", "per second", Better::More)
        .put(who, round, answer.value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_all_grounds_in_another_order() {
        let orders: Vec<Vec<usize>> = (0..6)
            .map(|round| shuffled(GROUNDS.len(), round).collect())
            .collect();
        for (round, order) in orders.iter().enumerate() {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, Vec::from_iter(0..GROUNDS.len()));
            assert!(!orders[..round].contains(order));
        }
    }
}
