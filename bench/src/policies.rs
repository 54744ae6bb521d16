//! Measure a packet between pods under policies, and under nftables in the pods.

use std::fmt::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use testbed::{Network, Node, Setup};

use crate::case::{Bench, Known, Run, names, wait_promoted};
use crate::interrupt;
use crate::peers::podnet_plugin;
use crate::report::{Better, Case};
use crate::sandbox::{Sandbox, Side, load};
use crate::traffic::order::Exchange;
use crate::turns::{self, Traffic, Way, attach};

/// Cost of policies.
pub(crate) const CASE: Known = Known {
    name: "policies",
    title: "Policies at both ports",
    about: "Pairs of pods on L3 networks of one node: two without any policy, of which the second one shows what the pods alone \
            differ by; with 1, 100 and 1,000 policies that select both pods in both directions; and without a policy of \
            podnet, but with rules of nftables in both pods, of the shape that multi-networkpolicy-nftables documents: \
            established connections first, then a chain for each policy, then a drop. One thread sends and receives on \
            one processor, 5 ms by each pair in turn, so that all have the same share of what the machine does meanwhile. \
            Datagrams that were never answered are new to nftables each time. A stream is written and read 64 KiB at a time. \
            Connections are opened, a byte goes each way, and they are reset. Added costs are what a pair takes more than \
            those without a policy, and the same of nftables with as many. The rule that lets the traffic pass is in the last policy.",
    run: Run::Alone(run),
};

/// Rules at both pods of a pair.
#[derive(Debug, Clone, Copy)]
enum Rules {
    None,
    /// So many policies of podnet.
    Podnet(usize),
    /// So many policies as nftables in the pods.
    Nftables(usize),
}

const NO_POLICY: &str = "no policy";
const ONCE_MORE: &str = "no policy, once more";

const PAIRS: [(&str, Rules); 8] = [
    (NO_POLICY, Rules::None),
    (ONCE_MORE, Rules::None),
    ("1 policy", Rules::Podnet(1)),
    ("100 policies", Rules::Podnet(100)),
    ("1,000 policies", Rules::Podnet(1000)),
    ("nftables, 1", Rules::Nftables(1)),
    ("nftables, 10", Rules::Nftables(10)),
    ("nftables, 100", Rules::Nftables(100)),
];

/// Pairs whose added costs are compared.
const ADDED: [(&str, &str); 2] = [
    ("1 policy", "nftables, 1"),
    ("100 policies", "nftables, 100"),
];

/// Measured traffic.
const TRAFFIC: [Traffic; 6] = [
    (UDP, "ns/packet", None, Exchange::Datagrams),
    (UNANSWERED, "ns/packet", None, Exchange::Unanswered),
    (
        "UDP 64 B, 32 connections in turn, 1 CPU",
        "ns/packet",
        None,
        Exchange::Alternating,
    ),
    ("UDP round trip, 1 CPU", "ns", None, Exchange::Trip),
    // A bit a nanosecond is a Gbit/s.
    ("TCP stream, 1 CPU", "Gbit/s", Some(8.0), Exchange::Stream),
    (
        "TCP connections, 1 CPU",
        "per second",
        Some(1e9),
        Exchange::Connection,
    ),
];
/// Heading of what is compared of [`ADDED`].
const ADDED_COSTS: &str = "Added cost, over what as many policies of nftables add";
const UDP: &str = "UDP 64 B, 1 CPU";
const UNANSWERED: &str = "UDP 64 B, never answered, 1 CPU";

/// A UDP port that no policy lets pass.
const CLOSED: u16 = 99;
/// The first port of those that all policies let pass.
const OPEN: u16 = 1024;
/// How long policies may take to be in force.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a datagram may take.
const ARRIVAL: Duration = Duration::from_millis(10);
/// Time in which agent and kernel do what rules that are new leave to do.
const REST: Duration = Duration::from_secs(5);

/// Policies of a network that each allow a port of their own, in both directions.
///
/// The last one allows all that is measured.
fn policies(network: &str, count: usize) -> String {
    let mut text = String::new();
    for number in 0..count {
        let ports = match number + 1 == count {
            true => format!("{{protocol: UDP, port: {OPEN}, endPort: 65535}}, {{protocol: TCP}}"),
            false => format!("{{protocol: TCP, port: {}}}", 10_000 + number % 200),
        };
        let rule =
            |peers: &str| format!("[{{{peers}: [{{podSelector: {{}}}}], ports: [{ports}]}}]");
        let (ingress, egress) = (rule("from"), rule("to"));
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
             metadata: {{name: {network}-{number}, namespace: default, annotations: {{podnet.dev/networks: {network}}}}}\n\
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

/// Two pods of a network, and their rules.
struct Pair {
    sides: [Side; 2],
    // They are gone with these.
    _pods: [Sandbox; 2],
}

impl Pair {
    fn start(bench: &Bench<'_>, node: &Node, number: usize, rules: Rules) -> Result<Self> {
        let plugin = podnet_plugin("podnet", node, &network(number));
        let (sides, pods) = attach(bench.dir, &format!("policies-{number}"), &plugin)?;
        if let Rules::Nftables(count) = rules {
            let rules = ruleset(count);
            pods.iter()
                .try_for_each(|pod| load(pod.netns(), ("nft", &["-f", "-"]), &rules))?;
        }
        Ok(Self { sides, _pods: pods })
    }

    /// Waits until the rules of podnet are in force, if there are any.
    fn wait(&self, (who, rules): (&str, Rules)) -> Result<()> {
        let is_guarded = matches!(rules, Rules::Podnet(_));
        let begun = Instant::now();
        // The open port comes last: a datagram that arrives there has not let the other be late.
        while is_guarded && self.arrives(CLOSED)? || !self.arrives(OPEN)? {
            interrupt::check()?;
            if begun.elapsed() > PATIENCE {
                bail!("the rules of {who} are not in force after {PATIENCE:?}");
            }
        }
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

fn network(number: usize) -> String {
    format!("n{number}")
}

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    case.subjects = names(&PAIRS.map(|(who, _)| who));
    bench.progress.stage("setting up");
    let mut setup = Setup::empty();
    for number in 0..PAIRS.len() {
        setup = setup.network(&Network::l3(&network(number), &["10.20.0.0/24"]));
    }
    let node = Node::start(setup);
    let mut pairs = Vec::new();
    let mut text = String::new();
    for (number, (_, rules)) in PAIRS.into_iter().enumerate() {
        pairs.push(Pair::start(bench, &node, number, rules)?);
        if let Rules::Podnet(count) = rules {
            text += &policies(&network(number), count);
        }
    }
    node.write_manifest("policies.yaml", &text);
    wait_promoted(&node)?;
    for (pair, rules) in pairs.iter().zip(PAIRS) {
        pair.wait(rules)?;
    }
    std::thread::sleep(bench.size(REST, REST / 10));
    let ways: Vec<Way<'_>> = pairs
        .iter()
        .zip(PAIRS)
        .map(|(pair, (who, _))| (who, pair.sides.each_ref(), None))
        .collect();
    turns::measure(bench, case, &ways, &TRAFFIC, added)
}

/// Puts what policies add over what as many of nftables do.
fn added(case: &mut Case, what: &str, round: usize, found: &[f64]) {
    let of = |who: &str| {
        let at = PAIRS.iter().position(|(name, _)| *name == who);
        at.map_or(f64::NAN, |at| found[at])
    };
    if what == UDP || what == UNANSWERED {
        let none = f64::midpoint(of(NO_POLICY), of(ONCE_MORE));
        for (own, other) in ADDED {
            let more = format!("{what}, added");
            // Where nftables adds nothing, that is no measure.
            if of(other) > none {
                case.measure(ADDED_COSTS, &more, "of nftables'", Better::Less)
                    .put(own, round, (of(own) - none) / (of(other) - none));
            }
        }
    }
}
