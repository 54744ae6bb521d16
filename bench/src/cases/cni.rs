//! Measure the time of CNI calls from exec to exit, for podnet and other plugins.
//!
//! The calls are in alternating rounds, each pod in a fresh namespace.

mod old;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use netdev::VethSpec;
use tempfile::TempDir;
use testbed::host::{Host, connection};
use testbed::{Network, Node};

use super::latency::Curves;
use super::{Bench, Known, Run, millis, names, pause, wait_promoted};
use crate::interrupt;
use crate::peers::{Bed, Peer, podnet, podnet_plugin};
use crate::plugin::Plugin;
use crate::report::{Better, Case};
use crate::sandbox::Sandbox;
use crate::series::percentile;

/// ADD, DEL, STATUS.
pub(super) const CASE: Known = Known {
    name: "cni",
    title: "CNI calls one by one",
    about: "From exec to exit. DEL is of a pod among others, whose port has its TCX link; DEL of the \
            only pod of one that is alone (a bridge then loses its last port, which is cheaper); DEL \
            right after ADD of one whose port has only its filter yet. The kernel alone makes and \
            removes a veth pair by netlink. A pod older than a minute is one of twenty that were attached more than a \
            minute ago, with an agent that gives TCX links at that age, as it does by default. The reference plugins look every 50 ms whether their \
            IPv6 addresses are usable: bridge's dual-stack ADD has two humps, and those of ptp and \
            macvlan take so long that they are called in one of ten rounds only. The agent's part is the \
            time by its own log, without the plugin's process.",
    run: Run::Alone(run),
};

const V4: &str = "10.10.0.0/23";
const V6: &str = "fd10:10::/64";
const KERNEL: &str = "kernel alone";
const PODNET: &str = "podnet";

/// Pods of each plugin that are attached at once.
///
/// They are enough that waiting for TCX links takes no longer than all the rest.
const BATCH: usize = 10;

/// A way of attaching with one or both families.
struct Way {
    plugin: Plugin,
    /// `dual stack` or `IPv4`.
    stack: &'static str,
    /// Called in one of so many rounds.
    every: usize,
}

/// Rounds of ptp and macvlan, which wait one to two seconds for IPv6 addresses.
const SELDOM: usize = 10;

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    case.subjects = names(&[PODNET]);
    let node = podnet(&[Network::l2("dual", &[V4, V6]), Network::l2("single", &[V4])]);
    let (beds, ways) = ways(bench, &node, case);
    let count = bench.calls(60, 10);
    bench.progress.expect(2 * count + count / 4);
    among_others(bench, &node, &ways, count, case)?;
    let rivals = |way: &&Way| way.plugin.label == PODNET || way.plugin.label == "bridge";
    let pairs: Vec<&Way> = ways
        .iter()
        .filter(rivals)
        .filter(|way| way.stack == "dual stack")
        .collect();
    right_after(bench, &pairs, count, case)?;
    alone(bench, &node, &pairs, (count / 4).max(1), case)?;
    let rival = |way: &&Way| way.plugin.label == "bridge" && way.stack == "IPv4";
    old::run(bench, ways.iter().find(rival).map(|way| &way.plugin), case)?;
    served(&node, case)?;
    for _ in 0..count {
        let (time, _) = ways[0].plugin.call("STATUS", None)?;
        case.measure("", "STATUS", "ms", Better::Less)
            .push(PODNET, millis(time));
    }
    node.assert_empty();
    drop(beds);
    Ok(())
}

/// podnet first; who cannot be here is missing.
fn ways(bench: &Bench<'_>, node: &Node, case: &mut Case) -> (Vec<Bed>, Vec<Way>) {
    let mut ways = Vec::new();
    for (network, stack) in [("dual", "dual stack"), ("single", "IPv4")] {
        let plugin = podnet_plugin(PODNET, node, network);
        ways.push(Way {
            plugin,
            stack,
            every: 1,
        });
    }
    let mut beds = Vec::new();
    for peer in [Peer::Bridge, Peer::Ptp, Peer::Macvlan, Peer::Multus] {
        if !bench.has(peer) {
            continue;
        }
        for (stack, subnets) in [("dual stack", &[V4, V6][..]), ("IPv4", &[V4][..])] {
            let name = format!("{} {stack}", peer.label());
            match Bed::make(peer, &name, bench.dir, subnets) {
                Ok(bed) => {
                    let waits = matches!(peer, Peer::Ptp | Peer::Macvlan) && subnets.len() > 1;
                    ways.push(Way {
                        plugin: bed.plugin.clone(),
                        stack,
                        every: if waits { SELDOM } else { 1 },
                    });
                    beds.push(bed);
                }
                Err(error) => case.miss(peer.label(), &format!("{error:#}")),
            }
        }
    }
    (beds, ways)
}

fn among_others(
    bench: &Bench<'_>,
    node: &Node,
    ways: &[Way],
    count: usize,
    case: &mut Case,
) -> Result<()> {
    let bare = Host::create();
    // Namespaces stay to the end: their removal must not be at work while something is timed.
    let mut ended: Vec<Sandbox> = Vec::new();
    let mut out = vec![false; ways.len()];
    let mut round = 0;
    while round < count {
        let first = round;
        let mut pods: Vec<Vec<Sandbox>> = Vec::new();
        for _ in 0..BATCH.min(count - first) {
            bench.progress.say("ADD");
            let mut row = Vec::new();
            for number in 0..ways.len() {
                row.push(Sandbox::create(
                    bench.dir,
                    &format!("pod-{number}-{round}"),
                )?);
            }
            timed("ADD", ways, &row, round, &mut out, case)?;
            kernel_alone(&bare, bench.dir, round, case)?;
            pods.push(row);
            round += 1;
            bench.progress.step();
        }
        bench.progress.say("waiting for TCX links");
        wait_promoted(node)?;
        bench.progress.say("DEL");
        for (turn, row) in pods.iter().enumerate() {
            timed("DEL", ways, row, first + turn, &mut out, case)?;
        }
        ended.extend(pods.into_iter().flatten());
    }
    for stack in ["dual stack", "IPv4"] {
        for command in ["ADD", "DEL"] {
            draw(case, &format!("{command}, {stack}"));
        }
    }
    Ok(())
}

/// The percentiles of a measure as a plot.
pub(super) fn draw(case: &mut Case, name: &str) {
    let mut curves = Curves::default();
    let measure = case.measures.iter().find(|measure| measure.name == name);
    for row in measure.into_iter().flat_map(|measure| &measure.rows) {
        let mut values: Vec<f64> = row.values.present().collect();
        values.sort_by(f64::total_cmp);
        let points = [0, 10, 25, 50, 75, 80, 90, 95, 98];
        let points = points.map(|part| [f64::from(part), percentile(&values, part * 1000)]);
        curves.add(&row.who, &points);
    }
    curves.draw(case, name, "ms");
}

/// Calls each plugin once, in another order each round; leaves out those that fail.
fn timed(
    command: &str,
    ways: &[Way],
    row: &[Sandbox],
    round: usize,
    out: &mut [bool],
    case: &mut Case,
) -> Result<()> {
    for turn in 0..ways.len() {
        let number = (turn + round) % ways.len();
        let Way {
            plugin,
            stack,
            every,
        } = &ways[number];
        if out[number] || !round.is_multiple_of(*every) {
            continue;
        }
        pause();
        let done = plugin.call(command, Some(&row[number]));
        interrupt::check()?;
        match done {
            Ok((time, _)) => case
                .measure("", &format!("{command}, {stack}"), "ms", Better::Less)
                .put(&plugin.label, round, millis(time)),
            Err(error) => {
                case.miss(&plugin.label, &format!("{stack}: {error:#}"));
                out[number] = true;
            }
        }
    }
    Ok(())
}

fn right_after(bench: &Bench<'_>, pairs: &[&Way], count: usize, case: &mut Case) -> Result<()> {
    bench.progress.stage("DEL right after ADD");
    let mut ended = Vec::new();
    for round in 0..count {
        for turn in 0..pairs.len() {
            let plugin = &pairs[(turn + round) % pairs.len()].plugin;
            let pod = Sandbox::create(bench.dir, &format!("brief-{turn}-{round}"))?;
            pause();
            plugin.call("ADD", Some(&pod))?;
            let (time, _) = plugin.call("DEL", Some(&pod))?;
            case.measure("", "DEL right after ADD", "ms", Better::Less)
                .put(&plugin.label, round, millis(time));
            ended.push(pod);
        }
        bench.progress.step();
    }
    Ok(())
}

fn alone(
    bench: &Bench<'_>,
    node: &Node,
    pairs: &[&Way],
    count: usize,
    case: &mut Case,
) -> Result<()> {
    bench.progress.stage("DEL of the only pod");
    let mut ended = Vec::new();
    for round in 0..count {
        let mut pods = Vec::new();
        for (number, way) in pairs.iter().enumerate() {
            let pod = Sandbox::create(bench.dir, &format!("only-{number}-{round}"))?;
            way.plugin.call("ADD", Some(&pod))?;
            pods.push(pod);
        }
        wait_promoted(node)?;
        for turn in 0..pairs.len() {
            let number = (turn + round) % pairs.len();
            let plugin = &pairs[number].plugin;
            pause();
            let (time, _) = plugin.call("DEL", Some(&pods[number]))?;
            case.measure("", "DEL of the only pod", "ms", Better::Less)
                .put(&plugin.label, round, millis(time));
        }
        ended.extend(pods);
        bench.progress.step();
    }
    Ok(())
}

/// Measures the kernel's part of ADD and DEL: making and removing the same link.
fn kernel_alone(host: &Host, dir: &TempDir, round: usize, case: &mut Case) -> Result<()> {
    let pod = Sandbox::create(dir, &format!("bare-{round}"))?;
    let mut netlink = connection(host.netns());
    let mut spec = VethSpec::new("bench0", "net1");
    spec.peer_netns = Some(pod.netns().clone());
    spec.queues = Some(1);
    let started = Instant::now();
    let pair = netlink.create_veth(&spec)?;
    netlink.set_up(pair.host_ifindex)?;
    let made = started.elapsed();
    connection(pod.netns()).set_up(pair.peer_ifindex)?;
    pause();
    let started = Instant::now();
    netlink.delete(pair.host_ifindex)?;
    let removed = started.elapsed();
    for stack in ["dual stack", "IPv4"] {
        for (command, time) in [("ADD", made), ("DEL", removed)] {
            case.measure("", &format!("{command}, {stack}"), "ms", Better::Less)
                .put(KERNEL, round, millis(time));
        }
    }
    Ok(())
}

/// Takes the agent's own part of the calls from its log.
fn served(node: &Node, case: &mut Case) -> Result<()> {
    let log = std::fs::read_to_string(node.path("agent.log")).context("the agent's log")?;
    for (command, time) in log.lines().filter_map(served_line) {
        case.measure("podnet's agent's part", command, "ms", Better::Less)
            .push(PODNET, millis(time));
    }
    Ok(())
}

/// Command and time of a log line that says how long a request took.
fn served_line(line: &str) -> Option<(&'static str, Duration)> {
    let (_, elapsed) = line.split_once("served elapsed=")?;
    let command = ["ADD", "DEL"]
        .into_iter()
        .find(|command| line.contains(&format!("command=\"{command}\"")))?;
    let number = elapsed.trim_end_matches(|c: char| !c.is_ascii_digit());
    let time: f64 = number.parse().ok()?;
    let unit = elapsed.get(number.len()..)?.trim();
    let scale = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        _ => 1e-6,
    };
    Some((command, Duration::from_secs_f64(time * scale)))
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn the_time_of_a_request_is_read_from_the_log() {
        let line =
            r#"INFO cni{request=1 command="ADD" container="a"}: agent::cni: served elapsed=3.5ms"#;
        assert_eq!(
            served_line(line),
            Some(("ADD", Duration::from_micros(3500)))
        );
        assert_eq!(
            served_line(r#"command="DEL"}: served elapsed=1.25s"#),
            Some(("DEL", Duration::from_millis(1250)))
        );
        assert_eq!(served_line("elapsed=1ms"), None);
    }
}
