//! Measure ADD and DEL on nodes with fewer and more ports on one network.

use anyhow::Result;
use testbed::{Network, Node};

use super::fill::fill;
use super::{Bench, Known, ROUNDS, Run, agent_of, millis, pause, wait_promoted};
use crate::case::put_times;
use crate::cpu;
use crate::peers::{podnet, podnet_plugin};
use crate::plugin::Plugin;
use crate::report::text::thousands;
use crate::report::{Axis, Better, Case};
use crate::sandbox::Sandbox;

/// ADD among 100 to 4,000 ports.
pub(super) const CASE: Known = Known {
    name: "add-by-ports",
    title: "ADD and DEL among few and many ports",
    about: "A node for each number of ports, all on one L2 network with IPv4, filled by real ADDs of the plugin, \
            eight at a time, a hundred interfaces in a namespace, and with their TCX links before \
            anything is timed. A round attaches one more pod and detaches it twenty times on each node, one call \
            after the other, from exec to exit; p50 and p90 are those of a round. Ratios are over the node \
            with the fewest ports: 1.00 is flat. All nodes are there at once, so that an audit of the largest hits \
            all of them alike.",
    run: Run::Alone(run),
};

/// Ports of each node; the first is what the others are compared with.
const SIZES: [usize; 5] = [100, 500, 1000, 2000, 4000];
const QUICK: [usize; 2] = [10, 40];
const NETWORK: &str = "many";
const SUBNET: &str = "10.10.0.0/19";
/// Calls of a round on each node.
const CALLS: usize = 20;

/// A node with so many ports, and a pod that comes and goes.
struct Ground {
    who: String,
    ports: usize,
    plugin: Plugin,
    pod: Sandbox,
    // Before the node: namespaces take their links along, all at once.
    _others: Vec<Sandbox>,
    node: Node,
}

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    let sizes = bench.size(&SIZES[..], &QUICK[..]);
    case.subjects = sizes[1..].iter().map(|ports| named(*ports)).collect();
    let mut grounds = Vec::new();
    for ports in sizes {
        bench.progress.stage(&format!("attaching {ports} ports"));
        grounds.push(Ground::start(bench, *ports)?);
    }
    for ground in &grounds {
        wait_promoted(&ground.node)?;
        let memory = cpu::memory_of(agent_of(&ground.node)?)?;
        case.measure("", "Agent's memory (RSS), by ports", "MiB", Better::Less)
            .put(&ground.who, 0, memory);
    }
    bench.progress.stage("ADD and DEL");
    let (rounds, calls) = (bench.rounds(ROUNDS), bench.size(CALLS, 3));
    bench.progress.expect(rounds * grounds.len());
    for round in 0..rounds {
        for turn in 0..grounds.len() {
            let ground = &grounds[(turn + round) % grounds.len()];
            bench.progress.say(&ground.who);
            let times = ground.calls(calls)?;
            keep(case, &ground.who, round, times);
            bench.progress.step();
        }
    }
    curve(case, &grounds);
    bench.progress.say("taking it down");
    Ok(())
}

/// Name of a row.
fn named(ports: usize) -> String {
    format!("{} ports", thousands(&ports.to_string()))
}

impl Ground {
    fn start(bench: &Bench<'_>, ports: usize) -> Result<Self> {
        let node = podnet(&[Network::l2(NETWORK, &[SUBNET])]);
        let plugin = podnet_plugin("podnet", &node, NETWORK);
        let others = fill(&plugin, bench.dir, &format!("ports-{ports}"), ports)?;
        let pod = Sandbox::create(bench.dir, &format!("ports-{ports}"))?;
        Ok(Self {
            who: named(ports),
            ports,
            plugin,
            pod,
            _others: others,
            node,
        })
    }

    /// Times of ADDs and DELs in milliseconds.
    fn calls(&self, count: usize) -> Result<[Vec<f64>; 2]> {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..count {
            for (command, times) in ["ADD", "DEL"].into_iter().zip(&mut times) {
                pause();
                let (time, _) = self.plugin.call(command, Some(&self.pod))?;
                times.push(millis(time));
            }
        }
        Ok(times)
    }
}

/// Keeps the percentiles of a round.
fn keep(case: &mut Case, who: &str, round: usize, times: [Vec<f64>; 2]) {
    for (command, mut times) in ["ADD", "DEL"].into_iter().zip(times) {
        put_times(case, command, who, round, &mut times);
    }
}

fn curve(case: &mut Case, grounds: &[Ground]) {
    for name in ["ADD, p50", "ADD, p90", "DEL, p50"] {
        let measure = case.measure("", name, "ms", Better::Less);
        let points: Vec<[f64; 2]> = grounds
            .iter()
            .filter_map(|ground| {
                let row = measure.rows.iter().find(|row| row.who == ground.who)?;
                Some([ground.ports as f64, row.values.median()])
            })
            .collect();
        case.plot("By the ports on a network", Axis::Count, "ports", "ms")
            .line(name, points);
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn percentiles_are_of_a_round_and_compared_with_the_fewest_ports() {
        let mut case = Case::new("add-by-ports", "", "");
        case.subjects = vec![named(4000)];
        for round in 0..2 {
            let of = |scale: f64| {
                let times = (0..=10).rev().map(|place| f64::from(place) * scale);
                [times.clone().collect(), times.collect()]
            };
            keep(&mut case, "100 ports", round, of(1.0));
            keep(&mut case, &named(4000), round, of(3.0));
        }
        case.seal();
        let measure = case.measures.iter().find(|one| one.name == "ADD, p90");
        let measure = measure.unwrap();
        let base = measure.summary("100 ports").unwrap();
        assert!((base.median - 9.0).abs() < 1e-9 && base.n == 2, "{base:?}");
        let ratio = measure.ratio("4,000 ports", "100 ports").unwrap();
        assert!((ratio.median - 3.0).abs() < 1e-9, "{ratio:?}");
    }
}
