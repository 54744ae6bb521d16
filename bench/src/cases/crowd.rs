//! Many pods at once.

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use testbed::{Network, Node};

use super::{Bench, Known, ROUNDS, Run, millis, names, pause, wait_promoted};
use crate::interrupt;
use crate::peers::{Bed, Peer, podnet, podnet_plugin};
use crate::plugin::Plugin;
use crate::report::{Better, Case};
use crate::sandbox::Sandbox;
use crate::traffic::process::Process;

/// 10 and 50 pods at a time.
pub(super) const PARALLEL: Known = Known {
    name: "parallel",
    title: "CNI calls of many pods at the same moment",
    about: "All calls are started at once; the time of each from exec to exit, and the time until the \
            last one is done. IPv4 only. DEL is of pods that were just attached, and of older ones, whose \
            ports have their TCX links as they have after a minute. 250 at once are podnet's and bridge's.",
    run: Run::Alone(parallel),
};

/// 50 pods at a time while programs compute.
pub(super) const BUSY: Known = Known {
    name: "busy-node",
    title: "CNI calls of many pods on a busy node",
    about: "As 50 calls at once of `parallel`, while 30 processes compute all the time. Everybody has normal \
            priority: plugins, the agent, and what computes. IPv4 only.",
    run: Run::Alone(busy),
};

/// A node that fills up.
pub(super) const BURST: Known = Known {
    name: "burst",
    title: "A burst of pods",
    about: "As many pods as a large node has, 16 calls at a time, as a container runtime would do it: \
            the time until all are attached, and until all are detached. IPv4 only.",
    run: Run::Alone(burst),
};

const SUBNET: &str = "10.10.0.0/22";
const PODNET: &str = "podnet";
/// Calls at a time in a burst.
const AT_ONCE: usize = 16;
/// Removal of pods whose ports have their TCX links.
const OLDER: &str = "DEL of older pods";
/// Everybody whose older pods are detached: a link's age matters to podnet alone.
const OLD: [&str; 2] = [PODNET, "bridge"];
/// The usual way, where more would take too long.
const RIVAL: [Peer; 1] = [Peer::Bridge];
const PEERS: [Peer; 4] = [Peer::Bridge, Peer::Ptp, Peer::Macvlan, Peer::Multus];

/// Processes that compute on a busy node.
const COMPUTING: usize = 30;

fn parallel(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    let rounds = bench.rounds(ROUNDS);
    let size = |count, peers| Size {
        count,
        rounds,
        at_once: count,
        peers,
        old: true,
    };
    let full = [size(10, &PEERS[..]), size(50, &PEERS), size(250, &RIVAL)];
    let quick = [size(10, &PEERS[..])];
    let sizes = bench.size(&full[..], &quick[..]);
    at_once(bench, case, sizes, "at once", |_| Ok(Vec::new()))?;
    for size in sizes {
        super::cni::draw(case, &format!("ADD of {} at once, each", size.count));
    }
    Ok(())
}

fn busy(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    let count = bench.size(50, 10);
    let sizes = [Size {
        count,
        rounds: bench.rounds(ROUNDS),
        at_once: count,
        peers: &RIVAL,
        old: false,
    }];
    at_once(bench, case, &sizes, "at once on a busy node", |bench| {
        let start = |_| {
            let mut command = Command::new("/proc/self/exe");
            command.arg("spin");
            Process::start_here(command)
        };
        (0..bench.size(COMPUTING, 4)).map(start).collect()
    })
}

/// Measures calls that begin at the same moment, each and all together.
fn at_once(
    bench: &Bench<'_>,
    case: &mut Case,
    sizes: &[Size],
    words: &str,
    beside: impl FnOnce(&Bench<'_>) -> Result<Vec<Process>>,
) -> Result<()> {
    everybody(
        bench,
        case,
        sizes,
        beside,
        |count, calls, command, who, round, case| {
            let (command, pods) = if command == OLDER {
                ("DEL", " older pods")
            } else {
                (command, "")
            };
            let name = format!("{command} of {count}{pods} {words}, each");
            let each = case.measure("", &name, "ms", Better::Less);
            for time in &calls.times {
                each.push(who, millis(*time));
            }
            let name = format!("{command} of {count}{pods} {words}, all");
            case.measure("", &name, "ms", Better::Less)
                .put(who, round, millis(calls.all));
        },
    )
}

fn burst(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    let sizes = [Size {
        count: bench.size(250, 40),
        rounds: bench.rounds(ROUNDS),
        at_once: AT_ONCE,
        peers: &PEERS,
        old: false,
    }];
    everybody(
        bench,
        case,
        &sizes,
        |_| Ok(Vec::new()),
        |count, calls, command, who, round, case| {
            let name = format!("{command} of {count} pods");
            case.measure("", &name, "s", Better::Less)
                .put(who, round, calls.all.as_secs_f64());
            let mut times: Vec<f64> = calls.times.iter().map(|time| millis(*time)).collect();
            times.sort_by(f64::total_cmp);
            let p99 = crate::series::percentile(&times, crate::series::P99);
            case.measure("p99 of a call in a burst", command, "ms", Better::Less)
                .put(who, round, p99);
        },
    )
}

/// Pods that are attached and detached together.
struct Size {
    count: usize,
    rounds: usize,
    at_once: usize,
    /// Peers that podnet is compared with.
    peers: &'static [Peer],
    /// Whether pods are detached once more when they are older.
    old: bool,
}

/// How long calls took, each and all together.
struct Calls {
    times: Vec<Duration>,
    all: Duration,
}

/// Attaches and detaches so many pods so many times, everybody in turn.
fn everybody(
    bench: &Bench<'_>,
    case: &mut Case,
    sizes: &[Size],
    beside: impl FnOnce(&Bench<'_>) -> Result<Vec<Process>>,
    mut keep: impl FnMut(usize, &Calls, &str, &str, usize, &mut Case),
) -> Result<()> {
    case.subjects = names(&[PODNET]);
    let node = podnet(&[Network::l2("crowd", &[SUBNET])]);
    let mut plugins = vec![(None, podnet_plugin(PODNET, &node, "crowd"))];
    let mut beds = Vec::new();
    let wanted = |peer: &Peer| sizes.iter().any(|size| size.peers.contains(peer));
    for peer in PEERS
        .into_iter()
        .filter(wanted)
        .filter(|one| bench.has(*one))
    {
        let name = format!("{} {}", case.name, peer.label());
        match Bed::make(peer, &name, bench.dir, &[SUBNET]) {
            Ok(bed) => {
                plugins.push((Some(peer), bed.plugin.clone()));
                beds.push(bed);
            }
            Err(error) => case.miss(peer.label(), &format!("{error:#}")),
        }
    }
    // The same namespaces for everybody: removing one is work for the kernel long afterwards.
    let most = sizes.iter().map(|size| size.count).max().unwrap_or(0);
    let pods: Vec<Sandbox> = (0..most)
        .map(|number| Sandbox::create(bench.dir, &format!("crowd-{number}")))
        .collect::<Result<_>>()?;
    let processes = beside(bench)?;
    let mut out = vec![false; plugins.len()];
    for size in sizes {
        let Size { count, rounds, .. } = size;
        bench.progress.expect(rounds * plugins.len());
        bench.progress.stage(&format!("{count} pods"));
        for round in 0..*rounds {
            for turn in 0..plugins.len() {
                let number = (turn + round) % plugins.len();
                let (peer, plugin) = &plugins[number];
                bench
                    .progress
                    .say(&format!("{count} pods: {}", plugin.label));
                let takes_part = peer.is_none_or(|peer| size.peers.contains(&peer));
                if takes_part && !out[number] {
                    let own = peer.is_none().then_some(&node);
                    let done = there_and_back(plugin, own, &pods, size, |command, calls| {
                        keep(*count, calls, command, &plugin.label, round, case);
                    });
                    interrupt::check()?;
                    if let Err(error) = done {
                        case.miss(&plugin.label, &format!("{count} pods: {error:#}"));
                        out[number] = true;
                    }
                }
                bench.progress.step();
            }
        }
    }
    drop(processes);
    node.assert_empty();
    Ok(())
}

fn there_and_back(
    plugin: &Plugin,
    own: Option<&Node>,
    pods: &[Sandbox],
    size: &Size,
    mut keep: impl FnMut(&str, &Calls),
) -> Result<()> {
    let pods = &pods[..size.count];
    pause();
    keep("ADD", &all(plugin, "ADD", pods, size.at_once)?);
    pause();
    keep("DEL", &all(plugin, "DEL", pods, size.at_once)?);
    if !size.old || !OLD.contains(&plugin.label.as_str()) {
        return Ok(());
    }
    pause();
    all(plugin, "ADD", pods, size.at_once)?;
    if let Some(node) = own {
        wait_promoted(node)?;
    }
    pause();
    keep(OLDER, &all(plugin, "DEL", pods, size.at_once)?);
    Ok(())
}

fn all(plugin: &Plugin, command: &str, pods: &[Sandbox], at_once: usize) -> Result<Calls> {
    let next = AtomicUsize::new(0);
    let times = Mutex::new(Vec::new());
    let started = Instant::now();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    while let Some(pod) = pods.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let (time, _) = plugin.call(command, Some(pod))?;
                        let mut times = times.lock().ok().context("another call panicked")?;
                        times.push(time);
                    }
                    Ok(())
                })
            })
            .collect();
        join(workers)
    })?;
    Ok(Calls {
        all: started.elapsed(),
        times: times.into_inner().unwrap_or_default(),
    })
}

/// Waits for all workers; returns the first failure.
///
/// # Panics
/// As a worker did.
pub(super) fn join(workers: Vec<thread::ScopedJoinHandle<'_, Result<()>>>) -> Result<()> {
    for worker in workers {
        match worker.join() {
            Ok(done) => done?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    Ok(())
}
