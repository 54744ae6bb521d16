//! Counting what libtest prints.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, ExitStatus};

use anyhow::Result;

use crate::step::stream;

/// Passed, failed and skipped tests of one or more test binaries.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Test name to the reason it gave.
    pub skipped: BTreeMap<String, String>,
    /// Names of tests that passed, and did not say that they were skipped.
    pub ran: BTreeSet<String>,
    /// Names of tests that failed, and what each printed.
    pub failures: BTreeMap<String, Vec<String>>,
    /// Number of tests that were not run for want of time.
    pub left_out: u64,
}

impl Tally {
    /// Adds another tally to this one.
    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped.extend(other.skipped);
        self.ran.extend(other.ran);
        self.failures.extend(other.failures);
        self.left_out += other.left_out;
    }
}

/// Reads a test run line by line.
///
/// Run the tests with `--show-output`, or the skips of tests that print them are lost in libtest's
/// capture.
#[derive(Debug, Default)]
pub struct Reader {
    tally: Tally,
    /// Skips of the tests that libtest counts as passed.
    hidden: BTreeMap<String, String>,
    results: u64,
    section: Section,
    /// Test of the captured output that follows, from `---- <name> stdout ----`.
    current: String,
    /// How many tests were announced.
    announced: Option<u64>,
    /// The test that began last, where the output ends with it.
    ///
    /// Tests run one at a time there.
    begun: Option<String>,
}

/// Of a test program that was cut short.
#[derive(Debug, PartialEq, Eq)]
pub struct Rest {
    /// Tests that have not ended, where the program had said how many it has.
    pub tests: Option<u64>,
    /// The one that ran.
    pub running: Option<String>,
}

/// Of what libtest prints of one binary.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Section {
    /// A line for each test, and whatever is between binaries.
    #[default]
    Tests,
    /// Output of passed tests, and a list of them.
    Successes,
    /// The same of those that failed.
    Failures,
}

impl Reader {
    /// Takes one line; the answer is whether a person wants to see it.
    pub fn line(&mut self, line: &str) -> bool {
        let line = line.trim_end();
        if let Some((name, reason)) = skip_line(line) {
            let name = if name.is_empty() { &self.current } else { name };
            self.hidden.insert(name.to_owned(), reason.to_owned());
            return true;
        }
        if let Some(name) = output_of(line) {
            name.clone_into(&mut self.current);
        } else if let Some(name) = passed_line(line) {
            self.tally.ran.insert(name.to_owned());
        } else if let Some(name) = failed_line(line) {
            self.tally.failures.entry(name.to_owned()).or_default();
        } else if let Some(name) = begun_line(line) {
            self.begun = Some(name.to_owned());
        } else if let Some(count) = announced_line(line) {
            self.announced = Some(count);
        } else if let Some((name, reason)) = ignored_line(line) {
            self.tally
                .skipped
                .insert(name.to_owned(), reason.to_owned());
        } else if let Some((passed, failed)) = result_line(line) {
            self.tally.passed += passed;
            self.tally.failed += failed;
            self.results += 1;
            self.section = Section::Tests;
        } else if line == "successes:" {
            self.section = Section::Successes;
        } else if line == "failures:" {
            self.section = Section::Failures;
            // The second heading of this kind is that of the list.
            self.current.clear();
        } else if self.section == Section::Failures
            && let Some(output) = self.tally.failures.get_mut(&self.current)
        {
            output.push(line.to_owned());
        }
        self.section != Section::Successes
    }

    /// Runs tests to their end, showing what a person wants to see.
    ///
    /// # Errors
    /// As [`stream`].
    pub fn follow(&mut self, command: &mut Command) -> Result<ExitStatus> {
        stream(command, |line| {
            if self.line(line) {
                println!("{line}");
            }
        })
    }

    /// How many `test result:` lines were seen so far.
    pub fn results(&self) -> u64 {
        self.results
    }

    /// Returns the tally of a program that was ended early, and the rest of its tests.
    ///
    /// The tally is by its line for each test; the program has given no result.
    pub fn cut(mut self) -> (Tally, Rest) {
        let tests = if self.results == 0 {
            let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
            // The one that ran may have said so already.
            let ran = &self.tally.ran;
            self.hidden.retain(|name, _| ran.contains(name));
            self.tally.passed = count(self.tally.ran.len());
            self.tally.failed = count(self.tally.failures.len());
            // As yet those of libtest only.
            let ignored = count(self.tally.skipped.len());
            let ended = self.tally.passed + self.tally.failed + ignored;
            self.announced.map(|all| all.saturating_sub(ended))
        } else {
            Some(0)
        };
        let running = self.begun.take();
        (self.finish(), Rest { tests, running })
    }

    /// The tally: a skipped test is not a passed one.
    pub fn finish(mut self) -> Tally {
        let hidden = u64::try_from(self.hidden.len()).unwrap_or(u64::MAX);
        self.tally.passed = self.tally.passed.saturating_sub(hidden);
        self.tally
            .ran
            .retain(|name| !self.hidden.contains_key(name));
        self.tally.skipped.extend(self.hidden);
        self.tally
    }
}

/// Reads `SKIP <test name>: <reason>`, which a privileged test prints.
///
/// The name may be missing; libtest's heading has it.
fn skip_line(line: &str) -> Option<(&str, &str)> {
    let (name, reason) = line.strip_prefix("SKIP")?.split_once(": ")?;
    let name = if name.is_empty() {
        name
    } else {
        name.strip_prefix(' ')?
    };
    (!name.contains(' ')).then_some((name, reason.trim()))
}

/// `---- <name> stdout ----`.
fn output_of(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// `test <name> ... ok`.
fn passed_line(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... ok")
}

/// `test <name> ... FAILED`.
fn failed_line(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// `test <name> ...`, where libtest has not yet said more.
fn begun_line(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ...")
}

/// `running 2 tests`.
fn announced_line(line: &str) -> Option<u64> {
    let (count, tests) = line.strip_prefix("running ")?.split_once(' ')?;
    ["test", "tests"].contains(&tests).then_some(())?;
    count.parse().ok()
}

/// `test <name> ... ignored` or `test <name> ... ignored, <reason>`.
fn ignored_line(line: &str) -> Option<(&str, &str)> {
    let (name, state) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let reason = state.strip_prefix("ignored")?;
    Some((name, reason.strip_prefix(", ").unwrap_or("ignored")))
}

/// `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; …`.
fn result_line(line: &str) -> Option<(u64, u64)> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |word: &str| {
        counts
            .split("; ")
            .find_map(|part| part.strip_suffix(word)?.trim().parse().ok())
    };
    Some((count("passed")?, count("failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Tally, Vec<&str>) {
        let mut reader = Reader::default();
        let shown = text.lines().filter(|line| reader.line(line)).collect();
        (reader.finish(), shown)
    }

    fn sum(tally: &Tally) -> String {
        let Tally {
            passed,
            failed,
            skipped,
            ..
        } = tally;
        format!(
            "{passed} passed, {failed} failed, {} skipped",
            skipped.len()
        )
    }

    #[test]
    fn a_passed_test_ran_unless_it_said_otherwise() {
        let (tally, _) = read("test a ... ok\ntest b ... ok\nSKIP b: needs tcx\n");
        assert_eq!(tally.ran.iter().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn results_of_several_binaries_add_up() {
        let (tally, _) = read(
            "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\
             test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 1.20s\n",
        );
        assert_eq!(sum(&tally), "41 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn a_test_that_says_skip_does_not_count_as_passed() {
        let (tally, _) = read(
            "SKIP cni::s2_add::x: needs tcx\n\
             test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n",
        );
        assert_eq!(sum(&tally), "2 passed, 0 failed, 1 skipped");
        assert_eq!(tally.skipped["cni::s2_add::x"], "needs tcx");
    }

    #[test]
    fn the_same_skip_seen_in_output_and_log_counts_once() {
        let (tally, _) = read(
            "SKIP a::b: no go\n\
             test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
             SKIP a::b: no go\n",
        );
        assert_eq!(sum(&tally), "0 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn a_skip_without_a_name_belongs_to_the_test_whose_output_it_is() {
        let (tally, _) = read(
            "test a::b ... ok\nsuccesses:\n\n---- a::b stdout ----\nSKIP: needs root\n\n\
             test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n",
        );
        assert_eq!(sum(&tally), "0 passed, 0 failed, 1 skipped");
        assert_eq!(tally.skipped["a::b"], "needs root");
    }

    #[test]
    fn ignored_tests_are_skips_with_their_reason() {
        let (tally, _) = read(
            "test slow ... ignored, takes an hour\ntest src/lib.rs - x (line 3) ... ignored\n\
             test result: ok. 0 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out\n",
        );
        assert_eq!(sum(&tally), "0 passed, 0 failed, 2 skipped");
        assert_eq!(tally.skipped["slow"], "takes an hour");
        assert_eq!(tally.skipped["src/lib.rs - x (line 3)"], "ignored");
    }

    #[test]
    fn output_of_passed_tests_is_hidden_and_that_of_failed_ones_shown() {
        let (_, shown) = read(
            "test a ... ok\nsuccesses:\n\n---- a stdout ----\nchatter\n\nsuccesses:\n    a\n\
             failures:\n\n---- b stdout ----\nwhy\n",
        );
        assert_eq!(
            shown,
            [
                "test a ... ok",
                "failures:",
                "",
                "---- b stdout ----",
                "why"
            ]
        );
    }

    #[test]
    fn what_a_failed_test_printed_is_kept_under_its_name() {
        let (tally, _) = read(
            "test a ... ok\ntest b ... FAILED\ntest c ... FAILED\nsuccesses:\n\n---- a stdout ----\nchatter\n\n\
             failures:\n\n---- b stdout ----\nwhy\nand how\n\nfailures:\n    b\n    c\n\n\
             test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\nafter\n",
        );
        assert_eq!(tally.failures["b"], ["why", "and how", ""]);
        assert!(tally.failures["c"].is_empty());
        assert_eq!(tally.failures.len(), 2);
    }

    #[test]
    fn prose_that_looks_a_bit_like_a_result_is_not_counted() {
        let (tally, _) = read("SKIP this: and that word: x y\nSKIPPED\ntest result: pending\n");
        assert_eq!(tally.passed, 0);
        assert_eq!(tally.skipped.len(), 1);
        assert_eq!(skip_line("SKIP two words: reason"), None);
    }

    fn cut(text: &str) -> (Tally, Rest) {
        let mut reader = Reader::default();
        for line in text.lines() {
            reader.line(line);
        }
        reader.cut()
    }

    #[test]
    fn of_a_program_cut_short_each_test_that_ended_counts_and_the_rest_is_left() {
        let (tally, rest) = cut("running 8 tests\ntest a ... ok\ntest b ... FAILED\n\
             test c ... ignored, no tcx\ntest d ... ok\ntest e ... ok\ntest f ... \nSKIP d: needs tcx\n\
             SKIP f: needs tcx\n");
        assert_eq!(sum(&tally), "2 passed, 1 failed, 2 skipped");
        assert!(tally.skipped.keys().eq(["c", "d"]), "{tally:?}");
        assert!(tally.failures.contains_key("b"));
        let running = Some("f".to_owned());
        assert_eq!(
            rest,
            Rest {
                tests: Some(3),
                running
            }
        );
    }

    #[test]
    fn of_a_program_cut_short_before_its_first_line_the_number_of_tests_is_not_known() {
        let (tally, rest) = cut("");
        assert_eq!(tally, Tally::default());
        assert_eq!((rest.tests, rest.running), (None, None));
    }

    #[test]
    fn a_program_cut_short_after_its_result_has_nothing_left_and_counts_once() {
        let (tally, rest) = cut("running 1 test\ntest a ... ok\n\
             test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n");
        assert_eq!((tally.passed, rest.tests), (1, Some(0)));
    }
}
