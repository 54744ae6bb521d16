//! Measure the cost of a packet between pods, on nodes with more and less on them.

use std::time::Duration;

use anyhow::{Result, bail};

use super::Bench;
use crate::report::{Better, Case};
use crate::sandbox::Side;
use crate::traffic::Mode;
use crate::traffic::order;

/// From where to where, and on which node that is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way<'a> {
    /// For tables.
    pub(super) who: &'a str,
    /// One end.
    pub(super) a: &'a Side,
    /// The other.
    pub(super) b: &'a Side,
}

/// A figure: its name, its unit, the traffic, and how long that is sent, ms.
type Figure = (&'static str, &'static str, Better, Mode, u64);

/// The figures of a packet.
const FIGURES: [Figure; 3] = [
    (
        "UDP 64 B, 1 CPU",
        "ns/packet",
        Better::Less,
        Mode::UdpOneCpu,
        400,
    ),
    (
        "UDP round trip, 1 CPU",
        "us",
        Better::Less,
        Mode::UdpTrip,
        300,
    ),
    (
        "UDP 64 B, 2 CPUs",
        "kpps",
        Better::More,
        Mode::UdpTwoCpus,
        500,
    ),
];

/// Measures all ways in alternating rounds; `suffix` is appended to the names.
///
/// # Errors
/// Nothing arrives, or the run is interrupted.
pub(super) fn measure(
    bench: &Bench<'_>,
    case: &mut Case,
    suffix: &str,
    ways: &[Way<'_>],
) -> Result<()> {
    bench.progress.stage("traffic");
    let rounds = bench.rounds(11);
    bench.progress.expect(rounds);
    for round in 0..rounds {
        for figure in FIGURES {
            for turn in 0..ways.len() {
                let way = ways[(turn + round) % ways.len()];
                put(bench, case, (round, suffix), way, figure)?;
            }
        }
        bench.progress.step();
    }
    Ok(())
}

fn put(
    bench: &Bench<'_>,
    case: &mut Case,
    (round, suffix): (usize, &str),
    Way { who, a, b }: Way<'_>,
    (what, unit, better, mode, time): Figure,
) -> Result<()> {
    let time = Duration::from_millis(bench.size(time, time / 4));
    let answer = order::run(mode, a, b, time)?;
    if answer.received == 0 {
        bail!("{who}: nothing arrived");
    }
    case.measure("", &format!("{what}{suffix}"), unit, better)
        .put(who, round, answer.value);
    Ok(())
}
