//! Measure packets between the networks of a VPC against those within one.

use anyhow::Result;
use testbed::manifest::vpc;
use testbed::{Network, Node, Setup};

use crate::case::{Bench, Known, Run, names, wait_promoted};
use crate::peers::podnet_plugin;
use crate::report::Case;
use crate::sandbox::{Sandbox, Side};
use crate::traffic::order::Exchange;
use crate::turns::{self, Traffic, Way};

/// Cost of a route between networks.
pub(crate) const CASE: Known = Known {
    name: "vpc",
    title: "Between the networks of a VPC",
    about: "Pairs of pods of one node: two pairs on an L3 network of no VPC, of which the second one shows what the pods alone differ \
            by; one on a network of a VPC; one with an end on each of two networks of the VPC; and one with an end on a network of a \
            peer. The VPC has 50 networks. Traffic and turns are those of `policies`.",
    run: Run::Alone(run),
};

const WITHIN: &str = "within a network";
const ONCE_MORE: &str = "within a network, once more";
const OF_VPC: &str = "within a network of a VPC";
const BETWEEN: &str = "between networks of a VPC";
const PEERS: &str = "between networks of peers";

/// Networks of the VPC: routes of each one's virtual gateway.
const NETWORKS: u8 = 50;

const TRAFFIC: [Traffic; 4] = [
    ("UDP 64 B, 1 CPU", "ns/packet", None, Exchange::Datagrams),
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

/// A pair: its name, and the networks of its ends.
const PAIRS: [(&str, [&str; 2]); 5] = [
    (WITHIN, ["plain", "plain"]),
    (ONCE_MORE, ["plain", "plain"]),
    (OF_VPC, ["shop-1", "shop-1"]),
    (BETWEEN, ["shop-1", "shop-2"]),
    (PEERS, ["shop-1", "bank"]),
];

fn setup() -> Setup {
    let network = |name: &str, subnet: &str| Network::l3(name, &[subnet]);
    let mut setup = Setup::empty()
        .file("vpc-shop.yaml", &vpc("shop", &["10.64.0.0/12"], &["bank"]))
        .file("vpc-bank.yaml", &vpc("bank", &["10.80.0.0/12"], &["shop"]))
        .network(&network("plain", "10.20.0.0/24"))
        .network(&network("bank", "10.81.0.0/24").vpc("bank"));
    for number in 1..=NETWORKS {
        let (name, subnet) = (format!("shop-{number}"), format!("10.65.{number}.0/24"));
        setup = setup.network(&network(&name, &subnet).vpc("shop"));
    }
    setup
}

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    case.subjects = names(&PAIRS.map(|(who, _)| who));
    bench.progress.stage("setting up");
    let node = Node::start(setup());
    let attach = |name: &str, network: &str| -> Result<(Side, Sandbox)> {
        let plugin = podnet_plugin("podnet", &node, network);
        let pod = Sandbox::create(bench.dir, name)?;
        let (_, result) = plugin.call("ADD", Some(&pod))?;
        Ok((Side::of_result(&pod, &result)?, pod))
    };
    // Each network of the VPC has a port, so that there is a route to each.
    let others = 3..=NETWORKS;
    let others = others.map(|number| attach(&format!("other-{number}"), &format!("shop-{number}")));
    let _others = others.collect::<Result<Vec<_>>>()?;
    let mut pairs = Vec::new();
    for (number, (_, [a, b])) in PAIRS.into_iter().enumerate() {
        let end = |end: &str, network: &str| attach(&format!("vpc-{number}{end}"), network);
        pairs.push([end("a", a)?, end("b", b)?]);
    }
    wait_promoted(&node)?;
    let ways: Vec<Way<'_>> = pairs
        .iter()
        .zip(PAIRS)
        .map(|([(a, _), (b, _)], (who, _))| (who, [a, b], None))
        .collect();
    turns::measure(bench, case, &ways, &TRAFFIC, |_, _, _, _| {})
}
