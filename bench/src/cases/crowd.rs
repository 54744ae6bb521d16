//! Many pods at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use testbed::Network;

use super::{Bench, Known, ROUNDS, Run, millis, names, pause};
use crate::interrupt;
use crate::peers::{Bed, Peer, podnet, podnet_plugin};
use crate::plugin::Plugin;
use crate::report::{Better, Case};
use crate::sandbox::Sandbox;

/// 10 and 50 pods at a time.
pub(super) const PARALLEL: Known = Known {
    name: "parallel",
    title: "CNI calls of many pods at the same moment",
    about: "All calls are started at once; the time of each from exec to exit, and the time until the \
            last one is done. IPv4 only.",
    run: Run::Alone(parallel),
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
const PEERS: [Peer; 4] = [Peer::Bridge, Peer::Ptp, Peer::Macvlan, Peer::Multus];

fn parallel(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    let rounds = bench.rounds(ROUNDS);
    let full = [(10, rounds, 10), (50, rounds, 50)];
    let sizes: &[Size] = bench.size(&full[..], &full[..1]);
    everybody(
        bench,
        case,
        sizes,
        |count, calls, command, who, round, case| {
            let name = format!("{command} of {count} at once, each");
            let each = case.measure("", &name, "ms", Better::Less);
            for time in &calls.times {
                each.push(who, millis(*time));
            }
            let name = format!("{command} of {count} at once, all");
            case.measure("", &name, "ms", Better::Less)
                .put(who, round, millis(calls.all));
        },
    )?;
    for (count, _, _) in sizes {
        super::cni::draw(case, &format!("ADD of {count} at once, each"));
    }
    Ok(())
}

fn burst(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    let sizes = &[(bench.size(250, 40), bench.rounds(ROUNDS), AT_ONCE)];
    everybody(
        bench,
        case,
        sizes,
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

/// Pods, rounds, and calls at a time.
type Size = (usize, usize, usize);

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
    mut keep: impl FnMut(usize, &Calls, &str, &str, usize, &mut Case),
) -> Result<()> {
    case.subjects = names(&[PODNET]);
    let node = podnet(&[Network::l2("crowd", &[SUBNET])]);
    let mut plugins = vec![podnet_plugin(PODNET, &node, "crowd")];
    let mut beds = Vec::new();
    for peer in PEERS.into_iter().filter(|peer| bench.has(*peer)) {
        let name = format!("{} {}", case.name, peer.label());
        match Bed::make(peer, &name, bench.dir, &[SUBNET]) {
            Ok(bed) => {
                plugins.push(bed.plugin.clone());
                beds.push(bed);
            }
            Err(error) => case.miss(peer.label(), &format!("{error:#}")),
        }
    }
    // The same namespaces for everybody: removing one is work for the kernel long afterwards.
    let most = sizes.iter().map(|(count, _, _)| *count).max().unwrap_or(0);
    let pods: Vec<Sandbox> = (0..most)
        .map(|number| Sandbox::create(bench.dir, &format!("crowd-{number}")))
        .collect::<Result<_>>()?;
    let mut out = vec![false; plugins.len()];
    for (count, rounds, at_once) in sizes {
        bench.progress.expect(rounds * plugins.len());
        bench.progress.stage(&format!("{count} pods"));
        for round in 0..*rounds {
            for turn in 0..plugins.len() {
                let number = (turn + round) % plugins.len();
                let plugin = &plugins[number];
                bench
                    .progress
                    .say(&format!("{count} pods: {}", plugin.label));
                if !out[number] {
                    let done =
                        there_and_back(plugin, &pods[..*count], *at_once, |command, calls| {
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
    node.assert_empty();
    Ok(())
}

fn there_and_back(
    plugin: &Plugin,
    pods: &[Sandbox],
    at_once: usize,
    mut keep: impl FnMut(&str, &Calls),
) -> Result<()> {
    pause();
    keep("ADD", &all(plugin, "ADD", pods, at_once)?);
    pause();
    keep("DEL", &all(plugin, "DEL", pods, at_once)?);
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
        for worker in workers {
            match worker.join() {
                Ok(done) => done?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(Calls {
        all: started.elapsed(),
        times: times.into_inner().unwrap_or_default(),
    })
}
