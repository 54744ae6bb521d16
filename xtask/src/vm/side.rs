//! Test several kernels side by side, and while other tests run.
//!
//! Privileged tests on this machine wait half of their time. Machines use that half: they give way to
//! everything else.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::parts::Shares;
use super::{TestBinary, is_time, test_kernel};
use crate::build::Built;
use crate::matrix::Recorder;
use crate::step::say;
use crate::test::{Place, Report, Tally};

/// The tests and the limits of machines of several kernels.
pub(crate) struct Plan<'a> {
    pub(crate) versions: &'a [String],
    pub(crate) built: &'a Built,
    pub(crate) binaries: &'a [TestBinary],
    /// Arguments of every test program.
    pub(crate) filter: &'a [String],
    /// When they end, whatever runs.
    pub(crate) end: End,
    pub(crate) recorder: Option<&'a Recorder>,
}

/// When machines end, whatever runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Never,
    /// All of them.
    At(Instant),
    /// Each this long after its beginning.
    After(Duration),
}

impl End {
    /// When a machine ends that begins now.
    fn from(self, now: Instant) -> Option<Instant> {
        match self {
            Self::Never => None,
            Self::At(end) => Some(end),
            Self::After(time) => Some(now + time),
        }
    }
}

/// The run on one kernel, at its end.
pub(crate) struct Ended {
    version: String,
    tally: Tally,
    result: Result<()>,
    took: Duration,
}

impl Ended {
    /// Adds the run to a report, as a stage.
    pub(crate) fn report(self, report: &mut Report) {
        let name = format!("kernel {}", self.version);
        let place = Place::Kernel(self.version);
        report.ended(&name, &place, (self.tally, self.result), self.took);
    }
}

impl Plan<'_> {
    /// Runs the machine of each kernel, as many at a time as there are processors.
    ///
    /// Returns the runs in the order of `versions`.
    pub(crate) fn run(&self) -> Vec<Ended> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        side_by_side(self.versions, processors, |version| self.test(version))
    }

    fn test(&self, version: &str) -> Ended {
        say(format!(
            "tier vm: privileged tests on Debian's kernel {version}"
        ));
        let started = Instant::now();
        let mut tally = Tally::default();
        let limits = (self.filter, self.end.from(started));
        // What is recorded shows something of each feature first.
        let shares = match self.recorder {
            Some(_) => Shares::OfEach,
            None => Shares::OfSome,
        };
        let result = test_kernel(
            version,
            self.built,
            self.binaries,
            limits,
            shares,
            &mut tally,
        );
        // A machine that stopped by itself has not run all.
        let whole = result.is_ok() || tally.failed > 0;
        let recorded = match self.recorder.filter(|_| whole) {
            Some(recorder) => super::release(version)
                .and_then(|release| recorder.record(version, &release, &tally)),
            None => Ok(()),
        };
        Ended {
            version: version.to_owned(),
            tally,
            result: result.and(recorded),
            took: started.elapsed(),
        }
    }
}

/// Whether a plan with this end is worth making; if not, that is said.
pub(crate) fn is_worth_it(end: End) -> bool {
    let worth = is_time(end.from(Instant::now()));
    if !worth {
        say("tier vm is left out: its time is over (--vm-end)");
    }
    worth
}

/// Does `work` for each item, at most `at_once` at a time.
///
/// Results are in the order of the items.
fn side_by_side<T: Send>(
    items: &[String],
    at_once: usize,
    work: impl Fn(&str) -> T + Sync,
) -> Vec<T> {
    let waiting: Mutex<VecDeque<(usize, &String)>> = Mutex::new(items.iter().enumerate().collect());
    let next = || {
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.pop_front()
    };
    let worker = || {
        let mut done = Vec::new();
        while let Some((place, item)) = next() {
            done.push((place, work(item)));
        }
        done
    };
    let mut done: Vec<(usize, T)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once.clamp(1, items.len().max(1)))
            .map(|_| scope.spawn(worker))
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    fn versions(names: &[&str]) -> Vec<String> {
        names.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn results_are_in_the_order_of_the_kernels() {
        let items = versions(&["5.10", "6.1", "6.12", "sid"]);
        for at_once in [0, 1, 2, 9] {
            assert_eq!(side_by_side(&items, at_once, str::to_owned), items);
        }
        assert!(side_by_side(&[], 2, str::to_owned).is_empty());
    }

    #[test]
    fn two_machines_run_side_by_side() {
        // Neither gets past it alone.
        let both = Barrier::new(2);
        let items = versions(&["5.10", "6.1"]);
        let leaders = side_by_side(&items, 2, |_| both.wait().is_leader());
        assert_eq!(leaders.into_iter().filter(|it| *it).count(), 1);
    }
}
