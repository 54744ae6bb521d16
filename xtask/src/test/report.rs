//! What happened in each stage, and the sum of it.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;

use super::skips::{Expected, Place};
use super::summary::Tally;
use crate::step::say;

/// The stages run so far and what they counted.
pub(crate) struct Report {
    expected: Expected,
    stages: Vec<Stage>,
    passed: u64,
    failed: u64,
    /// Place and test name to reason.
    skipped: BTreeMap<(String, String), String>,
}

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
        }
    }

    /// Runs one stage; a failure is printed and remembered, and the next stage still runs.
    pub(crate) fn stage<T>(
        &mut self,
        name: &str,
        place: &Place,
        body: impl FnOnce(&mut Tally) -> Result<T>,
    ) -> Option<T> {
        say(format!("--- {name}"));
        let started = Instant::now();
        let mut tally = Tally::default();
        let result = body(&mut tally);
        if let Err(error) = &result {
            say(format!("{name}: FAILED: {error:#}"));
            // A check, or a test binary that died before it could count.
            tally.failed = tally.failed.max(1);
        }
        self.judge_skips(name, place, &mut tally);
        self.passed += tally.passed;
        self.failed += tally.failed;
        self.stages.push(Stage {
            name: name.to_owned(),
            passed: tally.failed == 0,
            seconds: started.elapsed().as_secs(),
        });
        result.ok()
    }

    /// An unexpected skip is a failure; an expected one of the unit tier is forgotten as soon as
    /// the same test has run with everything it needs.
    fn judge_skips(&mut self, name: &str, place: &Place, tally: &mut Tally) {
        for (test, reason) in &tally.skipped {
            if self.expected.allows(place, test, reason) {
                self.skipped
                    .insert((place.to_string(), test.clone()), reason.clone());
            } else {
                say(format!("{name}: unexpected skip of {test}: {reason}"));
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

    /// Prints the table and, as the last line, the sum.
    pub(crate) fn close(self) -> ExitCode {
        say("--- summary");
        for stage in &self.stages {
            let word = if stage.passed { "ok" } else { "FAILED" };
            say(format!("{word:<7} {:>5} s  {}", stage.seconds, stage.name));
        }
        for ((place, test), reason) in &self.skipped {
            say(format!("skipped ({place}) {test}: {reason}"));
        }
        println!("{}", self.sum());
        if self.failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
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
}
