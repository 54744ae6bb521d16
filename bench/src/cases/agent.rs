//! Measure the memory and processor time of the agent, at rest and under churn.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use testbed::{Network, Node};

use super::fill::fill;
use super::{Bench, Known, ROUNDS, Run, agent_of, names, wait_promoted};
use crate::cpu;
use crate::interrupt;
use crate::peers::{Bed, Peer, podnet, podnet_plugin};
use crate::plugin::Plugin;
use crate::report::{Better, Case};
use crate::sandbox::Sandbox;

/// CPU and memory of the agent.
pub(super) const CASE: Known = Known {
    name: "agent",
    title: "What the agent takes",
    about: "With many attachments on the node: at rest, as is a second node with more, in spans of 31 s that have \
            an audit each; then with one pod after the other attached \
            and detached as fast as it goes. The reference plugins have no daemon; the CPU time of \
            an ADD and its DEL is the whole machine's, so that theirs can be compared: plugins, \
            agent, kernel. The kernel samples it, so it is good to a few percent.",
    run: Run::Alone(run),
};

const PODNET: &str = "podnet";
const SUBNET: &str = "10.10.0.0/22";
/// Interfaces in one namespace.
const PER_POD: usize = 100;

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    case.subjects = names(&[PODNET]);
    let count = bench.size(250, 50);
    let node = podnet(&[Network::l2("many", &[SUBNET])]);
    let agent = agent_of(&node)?;
    let plugin = podnet_plugin(PODNET, &node, "many");
    memory(case, agent, "no attachment")?;
    bench.progress.stage(&format!("attaching {count}"));
    let pods = attach(bench, &plugin, PODNET, count)?;
    wait_promoted(&node)?;
    memory(case, agent, &format!("{count} attachments"))?;

    let more = bench.size(1000, 80);
    let crowded = Crowded::start(bench, more)?;
    memory(case, crowded.agent, &format!("{more} attachments"))?;
    rest(bench, &[(agent, count), (crowded.agent, more)], case)?;
    // Its audits would be in the way of what follows.
    drop(crowded);

    let beds = rivals(bench, case);
    let mut held = Vec::new();
    for bed in &beds {
        held.push(attach(bench, &bed.plugin, &bed.plugin.label, count)?);
    }
    churn(bench, &node, agent, &plugin, &beds, case)?;
    memory(case, agent, "after pods came and went")?;
    bench.progress.say("taking it down");
    drop(held);
    drop(beds);
    drop(pods);
    Ok(())
}

/// A node with more ports.
struct Crowded {
    agent: u32,
    // Before the node: namespaces take their links along, all at once.
    _pods: Vec<Sandbox>,
    _node: Node,
}

impl Crowded {
    fn start(bench: &Bench<'_>, ports: usize) -> Result<Self> {
        bench.progress.stage(&format!("attaching {ports}"));
        let node = podnet(&[Network::l2("more", &[SUBNET])]);
        let plugin = podnet_plugin(PODNET, &node, "more");
        let pods = fill(&plugin, bench.dir, "agent-more", ports)?;
        wait_promoted(&node)?;
        Ok(Self {
            agent: agent_of(&node)?,
            _pods: pods,
            _node: node,
        })
    }
}

/// Agents with so many attachments have nothing to do, but for their audits.
fn rest(bench: &Bench<'_>, agents: &[(u32, usize)], case: &mut Case) -> Result<()> {
    bench.progress.stage("at rest");
    // Each has one audit in it, every 30 s.
    let time = Duration::from_secs(bench.size(31, 3));
    let rounds = bench.rounds(ROUNDS);
    bench.progress.expect(rounds);
    for round in 0..rounds {
        let before = agents.iter().map(|(agent, _)| cpu::of_process(*agent));
        let before = before.collect::<Result<Vec<_>>>()?;
        let started = Instant::now();
        while started.elapsed() < time {
            interrupt::check()?;
            thread::sleep(Duration::from_millis(200));
        }
        let elapsed = started.elapsed().as_secs_f64();
        for ((agent, count), before) in agents.iter().zip(before) {
            let spent = cpu::of_process(*agent)?.saturating_sub(before);
            let line = format!("at rest, {count} attachments");
            case.measure("Agent's CPU", &line, "ms per second", Better::Less)
                .put(PODNET, round, spent.as_secs_f64() * 1000.0 / elapsed);
        }
        bench.progress.step();
    }
    Ok(())
}

fn rivals(bench: &Bench<'_>, case: &mut Case) -> Vec<Bed> {
    let peer = Peer::Bridge;
    if !bench.has(peer) {
        return Vec::new();
    }
    match Bed::make(peer, "agent bridge", bench.dir, &[SUBNET]) {
        Ok(bed) => vec![bed],
        Err(error) => {
            case.miss(peer.label(), &format!("{error:#}"));
            Vec::new()
        }
    }
}

fn memory(case: &mut Case, agent: u32, line: &str) -> Result<()> {
    case.measure("Agent's memory (RSS)", line, "MiB", Better::Less)
        .put(PODNET, 0, cpu::memory_of(agent)?);
    Ok(())
}

fn attach(bench: &Bench<'_>, plugin: &Plugin, label: &str, count: usize) -> Result<Vec<Sandbox>> {
    let mut pods: Vec<Sandbox> = Vec::new();
    for number in 0..count {
        if number % PER_POD == 0 {
            let name = format!("agent-{label}-{number}");
            pods.push(Sandbox::create(bench.dir, &name)?);
        }
        let pod = pods.last().context("a pod was just made")?;
        plugin.call_as("ADD", pod, &format!("net{number}"))?;
    }
    Ok(pods)
}

/// ADD and DEL again and again, everybody in turn.
fn churn(
    bench: &Bench<'_>,
    node: &Node,
    agent: u32,
    plugin: &Plugin,
    beds: &[Bed],
    case: &mut Case,
) -> Result<()> {
    bench.progress.stage("pods come and go");
    let pod = Sandbox::create(bench.dir, "agent-churn")?;
    let rounds = bench.rounds(ROUNDS);
    let time = Duration::from_secs(bench.size(3, 1));
    let plugins: Vec<&Plugin> = std::iter::once(plugin)
        .chain(beds.iter().map(|bed| &bed.plugin))
        .collect();
    bench.progress.expect(rounds * plugins.len());
    for round in 0..rounds {
        for turn in 0..plugins.len() {
            let plugin = plugins[(turn + round) % plugins.len()];
            let (machine, own) = (cpu::Machine::now()?, cpu::of_process(agent)?);
            let started = Instant::now();
            let mut cycles = 0_u32;
            while started.elapsed() < time {
                plugin.call("ADD", Some(&pod))?;
                plugin.call("DEL", Some(&pod))?;
                cycles += 1;
            }
            let elapsed = started.elapsed().as_secs_f64();
            let cycles = f64::from(cycles);
            let all = machine.spent()?.all();
            let own = cpu::of_process(agent)?.saturating_sub(own).as_secs_f64();
            let who = plugin.label.as_str();
            case.measure("", "CPU of an ADD and its DEL", "ms", Better::Less)
                .put(who, round, all * 1000.0 / cycles);
            case.measure(
                "",
                "ADD and DEL, one after the other",
                "per second",
                Better::More,
            )
            .put(who, round, cycles / elapsed);
            if who == PODNET {
                case.measure("Agent's CPU", "for an ADD and its DEL", "ms", Better::Less)
                    .put(who, round, own * 1000.0 / cycles);
            }
            bench.progress.step();
        }
    }
    let left = node.attachments().len();
    let line = "held when pods have come and gone";
    case.measure("Attachments", line, "attachments", Better::More)
        .put(PODNET, 0, left as f64);
    Ok(())
}
