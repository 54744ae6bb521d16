//! Report the result of each stage, and the sum.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::skips::{Expected, Place};
use super::summary::Tally;
use crate::conformance::Run;
use crate::step::say;

/// The stages run so far and what they counted.
pub(crate) struct Report {
    expected: Expected,
    stages: Vec<Stage>,
    passed: u64,
    failed: u64,
    /// Place and test name to reason.
    skipped: BTreeMap<(String, String), String>,
    /// Tests on this machine by their results.
    run: Run,
    /// Problems, repeated at the end: the rest of a log may be lost or too long.
    problems: Vec<String>,
}

/// Most lines of a failed test's output that are repeated, from its panic on.
const LAST_LINES: usize = 12;

struct Stage {
    name: String,
    passed: bool,
    seconds: u64,
}

impl Report {
    /// An empty report with this repository's list of expected skips.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self::with(Expected::load()?))
    }

    fn with(expected: Expected) -> Self {
        Self {
            expected,
            stages: Vec::new(),
            passed: 0,
            failed: 0,
            skipped: BTreeMap::new(),
            run: Run::default(),
            problems: Vec::new(),
        }
    }

    /// Returns the tests of all stages on this machine so far, by their results.
    pub(crate) fn here(&mut self) -> &mut Run {
        &mut self.run
    }

    /// Runs one stage; prints and remembers a failure, and the next stage still runs.
    pub(crate) fn stage<T>(
        &mut self,
        name: &str,
        place: &Place,
        body: impl FnOnce(&mut Tally) -> Result<T>,
    ) -> Option<T> {
        say(format!("--- {name}"));
        let started = Instant::now();
        let mut tally = Tally::default();
        let (result, value) = match body(&mut tally) {
            Ok(value) => (Ok(()), Some(value)),
            Err(error) => (Err(error), None),
        };
        self.ended(name, place, (tally, result), started.elapsed());
        value
    }

    /// Adds a stage that has run elsewhere, with its counts, its result and its time.
    pub(crate) fn ended(
        &mut self,
        name: &str,
        place: &Place,
        (mut tally, result): (Tally, Result<()>),
        took: Duration,
    ) {
        if let Err(error) = &result {
            self.problem(format!("{name}: FAILED: {error:#}"));
            // A check, or a test binary that died before it could count.
            tally.failed = tally.failed.max(1);
        }
        for (test, output) in &tally.failures {
            self.problems.push(format!("{name}: {test}"));
            self.problems
                .extend(last_words(output).map(|line| format!("    {line}")));
        }
        if matches!(place, Place::Unit | Place::Host) {
            self.run.add(&tally);
        }
        self.judge_skips(name, place, &mut tally);
        self.passed += tally.passed;
        self.failed += tally.failed;
        self.stages.push(Stage {
            name: name.to_owned(),
            passed: tally.failed == 0,
            seconds: took.as_secs(),
        });
    }

    fn problem(&mut self, words: String) {
        say(&words);
        self.problems.push(words);
    }

    /// Counts an unexpected skip as a failure.
    ///
    /// An expected one of the unit tier is forgotten as soon as the same test has run with everything it
    /// needs.
    fn judge_skips(&mut self, name: &str, place: &Place, tally: &mut Tally) {
        for (test, reason) in &tally.skipped {
            if self.expected.allows(place, test, reason) {
                self.skipped
                    .insert((place.to_string(), test.clone()), reason.clone());
            } else {
                self.problem(format!("{name}: unexpected skip of {test}: {reason}"));
                tally.failed += 1;
            }
        }
        if *place == Place::Host {
            let unit = Place::Unit.to_string();
            for test in &tally.ran {
                self.skipped.remove(&(unit.clone(), test.clone()));
            }
        }
    }

    /// Prints what was skipped, the table, what failed and, as the last line, the sum.
    pub(crate) fn close(self) -> ExitCode {
        say("--- summary");
        for line in self.skips() {
            say(line);
        }
        for stage in &self.stages {
            let word = if stage.passed { "ok" } else { "FAILED" };
            say(format!("{word:<7} {:>5} s  {}", stage.seconds, stage.name));
        }
        for line in &self.problems {
            say(line);
        }
        println!("{}", self.sum());
        if self.failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    /// A line for each reason in each place.
    fn skips(&self) -> impl Iterator<Item = String> {
        let mut groups: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for ((place, test), reason) in &self.skipped {
            groups.entry((place, reason)).or_default().push(test);
        }
        groups.into_iter().map(|((place, reason), tests)| {
            let more = match tests.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("skipped ({place}) {}{more}: {reason}", tests[0])
        })
    }

    fn sum(&self) -> String {
        format!(
            "{} passed, {} failed, {} skipped",
            self.passed,
            self.failed,
            self.skipped.len()
        )
    }
}

/// The part of a failed test's output that says why.
fn last_words(output: &[String]) -> impl Iterator<Item = &String> {
    let panicked = output.iter().position(|line| line.contains("panicked at"));
    let start = panicked.unwrap_or(output.len().saturating_sub(LAST_LINES));
    output[start..]
        .iter()
        .filter(|line| !line.is_empty())
        .take(LAST_LINES)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    fn report() -> Report {
        Report::with(Expected::parse("unit * needs root\n5.10 * needs tcx\n").unwrap())
    }

    fn skip(report: &mut Report, place: &Place, reason: &str) {
        report.stage("tests", place, |tally| {
            tally.skipped.insert("a::b".into(), reason.into());
            Ok(())
        });
    }

    #[test]
    fn a_stage_that_dies_without_a_count_is_one_failure() {
        let mut report = report();
        let none: Option<()> = report.stage("clippy", &Place::Unit, |_| bail!("warnings"));
        assert!(none.is_none());
        assert!(!report.stages[0].passed);
        assert_eq!(report.sum(), "0 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn a_stage_that_counted_its_failures_is_not_counted_again() {
        let mut report = report();
        report.stage("unit", &Place::Unit, |tally| -> Result<()> {
            tally.failed = 3;
            bail!("cargo test failed")
        });
        assert_eq!(report.sum(), "0 passed, 3 failed, 0 skipped");
    }

    #[test]
    fn an_unexpected_skip_is_a_failure() {
        let mut report = report();
        skip(&mut report, &Place::Host, "needs root");
        assert_eq!(report.sum(), "0 passed, 1 failed, 0 skipped");
        assert!(!report.stages[0].passed);
    }

    #[test]
    fn a_unit_skip_is_forgotten_when_the_test_ran_on_the_host() {
        let mut report = report();
        skip(&mut report, &Place::Unit, "needs root");
        assert_eq!(report.sum(), "0 passed, 0 failed, 1 skipped");
        report.stage("privileged", &Place::Host, |tally| {
            tally.passed = 1;
            tally.ran.insert("a::b".into());
            Ok(())
        });
        assert_eq!(report.sum(), "1 passed, 0 failed, 0 skipped");
    }

    #[test]
    fn a_skip_on_one_kernel_stays_even_when_the_host_ran_the_test() {
        let mut report = report();
        skip(&mut report, &Place::Kernel("5.10".into()), "needs tcx");
        report.stage("privileged", &Place::Host, |tally| {
            tally.ran.insert("a::b".into());
            Ok(())
        });
        assert_eq!(report.sum(), "0 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn tests_in_virtual_machines_do_not_count_as_run_here() {
        let mut report = report();
        for (place, name) in [
            (Place::Host, "here"),
            (Place::Kernel("5.10".into()), "there"),
        ] {
            report.stage("tests", &place, |tally| {
                tally.ran.insert(name.into());
                Ok(())
            });
        }
        assert!(report.here().passed().eq(["here"]));
    }

    #[test]
    fn what_failed_is_said_again_from_where_it_panicked() {
        let mut report = report();
        report.stage("unit", &Place::Unit, |tally| -> Result<()> {
            tally.failed = 1;
            let output = ["much", "thread 'b' panicked at b.rs:1:1:", "left: 1", ""];
            tally
                .failures
                .insert("b".into(), output.map(str::to_owned).into());
            bail!("1 failed")
        });
        let wanted = [
            "unit: FAILED: 1 failed",
            "unit: b",
            "    thread 'b' panicked at b.rs:1:1:",
            "    left: 1",
        ];
        assert_eq!(report.problems, wanted);
    }

    #[test]
    fn skips_of_one_reason_are_one_line_of_a_place() {
        let mut report = report();
        report.stage("tests", &Place::Unit, |tally| {
            for test in ["a", "b", "c"] {
                tally.skipped.insert(test.into(), "needs root".into());
            }
            Ok(())
        });
        skip(&mut report, &Place::Kernel("5.10".into()), "needs tcx");
        let wanted = [
            "skipped (5.10) a::b: needs tcx",
            "skipped (unit) a and 2 more: needs root",
        ];
        assert_eq!(report.skips().collect::<Vec<_>>(), wanted);
    }
}
