//! TCP streams, and the processor time they take.

use std::time::Duration;

use anyhow::{Result, bail};

use super::{Bench, Known, ROUNDS, Run, names, rounds};
use crate::cpu;
use crate::peers::{L2, L3, Stage, TrafficPath};
use crate::report::{Better, Case};
use crate::traffic::{Bulk, cpus};

/// TCP throughput.
pub(super) const CASE: Known = Known {
    name: "tcp",
    title: "TCP from pod to pod on one node",
    about: "iperf3, sender and receiver on a CPU each unless it says otherwise; payload as \
            received. CPU is the time of the whole machine for each KiB received: programs, kernel, \
            interrupts and what they put off. The kernel samples it 250 times a second on most \
            systems, so it is good to a few percent. On 1 CPU the throughput itself is the \
            inverse of the cost, and exact, except for Open vSwitch, whose own threads run on the \
            other one.",
    run: Run::Traffic(run),
};

/// Name, streams, and whether both ends share a processor.
const WAYS: [(&str, u32, bool); 3] = [
    ("1 stream", 1, false),
    ("8 streams", 8, false),
    ("1 stream, 1 CPU", 1, true),
];

fn run(bench: &Bench<'_>, stage: &mut Stage, case: &mut Case) -> Result<()> {
    case.subjects = names(&[L2, L3]);
    streams(bench, stage, case)
}

/// Streams through all paths.
pub(super) fn streams(bench: &Bench<'_>, stage: &mut Stage, case: &mut Case) -> Result<()> {
    for (name, streams, together) in WAYS {
        bench.progress.stage(name);
        let time = Duration::from_secs(bench.size(2, 1));
        let count = bench.rounds(ROUNDS);
        rounds(bench, stage, case, count, |path, round, case| {
            let mut bulk = Bulk::new(&path.a, &path.b, time);
            bulk.streams = streams;
            if together {
                bulk.cpus = [cpus()[0]; 2];
            }
            one(&bulk, name, path, round, case)
        })?;
    }
    Ok(())
}

fn one(
    bulk: &Bulk<'_>,
    name: &str,
    path: &TrafficPath,
    round: usize,
    case: &mut Case,
) -> Result<()> {
    let before = cpu::Machine::now()?;
    let carried = bulk.run()?;
    let spent = before.spent()?;
    if carried.bytes < 1.0 {
        bail!("nothing arrived");
    }
    let who = path.who.as_str();
    case.measure("", &format!("TCP, {name}"), "Gbit/s", Better::More)
        .put(who, round, carried.rate / 1e9);
    let each = |seconds: f64| seconds * 1e9 / (carried.bytes / 1024.0);
    case.measure("", &format!("CPU of TCP, {name}"), "ns/KiB", Better::Less)
        .put(who, round, each(spent.all()));
    for (part, seconds) in [
        ("programs", spent.program),
        ("kernel", spent.kernel),
        ("interrupts", spent.interrupts),
    ] {
        let line = format!("{name}: {part}");
        case.measure(
            "Where the CPU time of TCP goes",
            &line,
            "ns/KiB",
            Better::Less,
        )
        .put(who, round, each(seconds));
    }
    Ok(())
}
