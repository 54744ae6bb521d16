//! Measure pairs of pods by turns of milliseconds, and how long a change takes.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use crate::case::Bench;
use crate::plugin::Plugin;
use crate::report::{Better, Case};
use crate::sandbox::{Sandbox, Side};
use crate::traffic::order::{self, Exchange};

/// Measured traffic: its name, its unit, and whether that is a rate of so many.
pub(crate) type Traffic = (&'static str, &'static str, Option<f64>, Exchange);

/// A pair: its name, its ends, and a Service's address if it sends to one.
pub(crate) type Way<'a> = (&'static str, [&'a Side; 2], Option<IpAddr>);

/// Makes two pods by a plugin.
///
/// # Errors
/// The plugin fails.
pub(crate) fn attach(
    dir: &TempDir,
    name: &str,
    plugin: &Plugin,
) -> Result<([Side; 2], [Sandbox; 2])> {
    let side = |end: &str| -> Result<(Side, Sandbox)> {
        let pod = Sandbox::create(dir, &format!("{name}{end}"))?;
        let (_, result) = plugin.call("ADD", Some(&pod))?;
        Ok((Side::of_result(&pod, &result)?, pod))
    };
    let ((a, first), (b, second)) = (side("a")?, side("b")?);
    Ok(([a, b], [first, second]))
}

/// Measures all pairs by all traffic.
///
/// `also` gets the traffic's name, the round, and nanoseconds of each pair in the order of `ways`.
///
/// # Errors
/// The probe fails.
pub(crate) fn measure(
    bench: &Bench<'_>,
    case: &mut Case,
    ways: &[Way<'_>],
    traffic: &[Traffic],
    mut also: impl FnMut(&mut Case, &str, usize, &[f64]),
) -> Result<()> {
    bench.progress.stage("traffic");
    let rounds = bench.rounds(11);
    bench.progress.expect(rounds * traffic.len());
    let time = Duration::from_millis(bench.size(400, 20));
    for round in 0..rounds {
        for (what, unit, many, exchange) in traffic {
            let order: Vec<usize> = shuffled(ways.len(), round).collect();
            let shown: Vec<_> = order.iter().map(|&at| (ways[at].1, ways[at].2)).collect();
            let mut found = vec![0.0; ways.len()];
            for (at, nanos) in
                order
                    .iter()
                    .zip(order::by_turns(*exchange, &shown, (time, bench.quick))?)
            {
                found[*at] = nanos;
                let (value, better) = match many {
                    None => (nanos, Better::Less),
                    Some(many) => (many / nanos, Better::More),
                };
                case.measure("", what, unit, better)
                    .put(ways[*at].0, round, value);
            }
            also(case, what, round, &found);
            bench.progress.step();
        }
    }
    Ok(())
}

/// Returns the numbers below `count`, each once, in another order each round.
///
/// The step from one to the next has no divisor in common with `count`, and is another one in the next round: so each has
/// other neighbours.
fn shuffled(count: usize, round: usize) -> impl Iterator<Item = usize> {
    let steps: Vec<usize> = (1..=count)
        .filter(|step| divisor(*step, count) == 1)
        .collect();
    let step = steps[round % steps.len()];
    (0..count).map(move |turn| (round + turn * step) % count)
}

/// The greatest common divisor.
fn divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// Returns the time from `begun` to the first of a row of tries that obey.
///
/// # Errors
/// Those of `obeys`, or there is no such row within `patience`.
pub(crate) fn first_of_row(
    begun: Instant,
    row: usize,
    (what, patience): (&str, Duration),
    mut obeys: impl FnMut() -> Result<bool>,
) -> Result<Duration> {
    let mut first: Option<Instant> = None;
    let mut count = 0;
    while count < row {
        let sent = Instant::now();
        if obeys()? {
            first.get_or_insert(sent);
            count += 1;
        } else {
            (first, count) = (None, 0);
        }
        if begun.elapsed() > patience {
            bail!("datagrams did not obey {what} within {patience:?}");
        }
    }
    let first = first.context("a row of datagrams")?;
    Ok(first.saturating_duration_since(begun))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_all_pairs_in_another_order() {
        for count in [8, 12] {
            let orders: Vec<Vec<usize>> = (0..count)
                .map(|round| shuffled(count, round).collect())
                .collect();
            for (round, order) in orders.iter().enumerate() {
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, Vec::from_iter(0..count));
                assert!(!orders[..round].contains(order));
            }
        }
    }
}
