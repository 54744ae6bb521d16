//! Round trips.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::{Bench, Known, ROUNDS, Run, names, rounds};
use crate::peers::{L2, L3, Stage};
use crate::report::{Axis, Better, Case};
use crate::series::{MEDIAN, percentile};
use crate::traffic::Mode;
use crate::traffic::order;

/// TCP_RR and UDP_RR.
pub(super) const CASE: Known = Known {
    name: "latency",
    title: "Round trips from pod to pod on one node",
    about: "One small message there, one back, as in netperf's UDP_RR and TCP_RR. On 1 CPU both sides \
            are played by one thread: the way through the network and nothing else. On 2 CPUs each \
            side sleeps on its own CPU until its message comes: what programs see, most of it the \
            cost of waking another CPU.",
    run: Run::Traffic(run),
};

const MODES: [(&str, Mode); 4] = [
    ("UDP round trip, 1 CPU", Mode::UdpTrip),
    ("TCP round trip, 1 CPU", Mode::TcpTrip),
    ("UDP round trip, 2 CPUs", Mode::UdpTripTwoCpus),
    ("TCP round trip, 2 CPUs", Mode::TcpTripTwoCpus),
];

fn run(bench: &Bench<'_>, stage: &mut Stage, case: &mut Case) -> Result<()> {
    case.subjects = names(&[L2, L3]);
    trips(bench, stage, case)
}

/// Round trips through all paths.
pub(super) fn trips(bench: &Bench<'_>, stage: &mut Stage, case: &mut Case) -> Result<()> {
    let time = Duration::from_millis(bench.size(400, 150));
    for (name, mode) in MODES {
        bench.progress.stage(name);
        let mut curves = Curves::default();
        rounds(
            bench,
            stage,
            case,
            bench.rounds(ROUNDS),
            |path, round, case| {
                let answer = order::run(mode, &path.a, &path.b, time)?;
                for (percent, suffix) in [(50.0, "p50"), (99.0, "p99")] {
                    case.measure("", &format!("{name}, {suffix}"), "us", Better::Less)
                        .put(&path.who, round, answer.at(percent));
                }
                let tail = case.measure("p99.9 of round trips", name, "us", Better::Less);
                tail.put(&path.who, round, answer.at(99.9));
                curves.add(&path.who, &answer.percentiles);
                Ok(())
            },
        )?;
        curves.draw(case, name, "us");
    }
    Ok(())
}

/// Percentiles of each round; a curve goes through the middle of the rounds.
#[derive(Debug, Default)]
pub(crate) struct Curves {
    all: BTreeMap<String, Vec<Vec<[f64; 2]>>>,
}

impl Curves {
    pub(crate) fn add(&mut self, who: &str, curve: &[[f64; 2]]) {
        self.all
            .entry(who.to_owned())
            .or_default()
            .push(curve.to_vec());
    }

    /// One plot with everybody's curve, in this unit.
    pub(crate) fn draw(&self, case: &mut Case, title: &str, unit: &str) {
        for (who, rounds) in &self.all {
            let points = rounds.first().into_iter().flatten().enumerate();
            let middle = points.map(|(place, [percent, _])| {
                let mut values: Vec<f64> = rounds
                    .iter()
                    .filter_map(|round| round.get(place))
                    .map(|[_, value]| *value)
                    .collect();
                values.sort_by(f64::total_cmp);
                [*percent, percentile(&values, MEDIAN)]
            });
            case.plot(title, Axis::Percentile, "percentile", unit)
                .line(who, middle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_goes_through_the_middle_of_its_rounds() {
        let mut curves = Curves::default();
        for value in [1.0, 9.0, 2.0] {
            curves.add("a", &[[50.0, value], [99.0, value * 2.0]]);
        }
        let mut case = Case::new("x", "x", "x");
        curves.draw(&mut case, "t", "us");
        assert_eq!(case.plots[0].lines[0].points, [[50.0, 2.0], [99.0, 4.0]]);
    }
}
