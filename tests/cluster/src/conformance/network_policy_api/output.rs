//! Read what a test program of Go prints with `-test.v`.

use super::super::report::{Outcome, Spec};

/// The test that has all others.
pub(super) const ROOT: &str = "TestConformance";

/// A test that has begun.
#[derive(Debug)]
struct Seen {
    /// As Go writes it, with its parents.
    name: String,
    ended: Option<(Verdict, u64)>,
    /// The line that says most about a failure, or why it was skipped.
    why: Option<String>,
    /// How much that line says.
    rank: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    Skipped,
}

/// The tests that were printed until now.
#[derive(Debug, Default)]
pub(super) struct Output {
    tests: Vec<Seen>,
    /// The test whose lines follow.
    current: Option<usize>,
}

impl Output {
    /// Reads a line, and returns the name of a test that begins, for people.
    ///
    /// How tests ended is printed after the last of them.
    pub(super) fn line(&mut self, line: &str) -> Option<String> {
        let text = line.trim();
        let marks = ["=== RUN", "=== NAME", "=== CONT"];
        let marked = marks
            .iter()
            .find_map(|mark| Some((*mark, text.strip_prefix(mark)?.trim())));
        if let Some((mark, name)) = marked {
            self.current = Some(self.find(name));
            return (mark == marks[0]).then(|| readable(name));
        }
        let verdicts = [
            ("--- PASS: ", Verdict::Passed),
            ("--- FAIL: ", Verdict::Failed),
            ("--- SKIP: ", Verdict::Skipped),
        ];
        for (mark, verdict) in verdicts {
            let Some((name, rest)) = text
                .strip_prefix(mark)
                .and_then(|rest| rest.split_once(" ("))
            else {
                continue;
            };
            let at = self.find(name);
            self.tests[at].ended = Some((verdict, rounded(rest.trim_end_matches("s)"))));
            return None;
        }
        if let Some(test) = self.current.and_then(|at| self.tests.get_mut(at)) {
            let (rank, text) = rank(text);
            if rank > test.rank || (rank == test.rank && rank == CONNECTED) {
                test.rank = rank;
                test.why = Some(text.to_owned());
            }
        }
        None
    }

    /// The program has ended: tests without an end have none because of that.
    pub(super) fn end(&mut self, succeeded: bool) {
        let has_failed = |test: &Seen| test.ended.is_none_or(|(it, _)| it == Verdict::Failed);
        if !succeeded && !self.tests.iter().any(has_failed) {
            let at = self.find(ROOT);
            self.tests[at].ended = Some((Verdict::Failed, 0));
            self.tests[at].why = Some("the program failed, and no test says why".to_owned());
        }
    }

    fn find(&mut self, name: &str) -> usize {
        let found = self.tests.iter().position(|test| test.name == name);
        found.unwrap_or_else(|| {
            self.tests.push(Seen {
                name: name.to_owned(),
                ended: None,
                why: None,
                rank: 0,
            });
            self.tests.len() - 1
        })
    }

    /// The tests without parts, and those that failed by themselves.
    pub(super) fn specs(&self) -> Vec<Spec> {
        let parts = |name: &str| {
            let prefix = format!("{name}/");
            let tests = self.tests.iter();
            tests.filter(move |test| test.name.starts_with(&prefix))
        };
        let failed = |test: &Seen| test.ended.is_none_or(|(it, _)| it == Verdict::Failed);
        let counts = |test: &&Seen| {
            let mut below = parts(&test.name).peekable();
            below.peek().is_none() || (failed(test) && !below.any(failed))
        };
        self.tests.iter().filter(counts).map(spec).collect()
    }
}

fn spec(test: &Seen) -> Spec {
    let why = |otherwise: &str| test.why.clone().unwrap_or_else(|| otherwise.to_owned());
    let (outcome, seconds) = match test.ended {
        None => (Outcome::Failed("it was not run to its end".to_owned()), 0),
        Some((Verdict::Passed, seconds)) => (Outcome::Passed, seconds),
        Some((Verdict::Failed, seconds)) => (Outcome::Failed(why("it says nothing")), seconds),
        Some((Verdict::Skipped, seconds)) => (Outcome::Skipped(why("it says nothing")), seconds),
    };
    Spec {
        name: readable(&test.name),
        outcome,
        seconds,
    }
}

/// Of lines that say how a connection went the last one counts.
const CONNECTED: u8 = 3;

/// Weighs what a line says about a failure.
///
/// With its text, without the place in the source.
fn rank(text: &str) -> (u8, &str) {
    let said = text
        .split_once(".go:")
        .and_then(|(_, rest)| rest.split_once(": "))
        .map(|(_, said)| said);
    match said {
        Some(said) if said.starts_with("Expected connection") => (CONNECTED, said),
        Some(said) if said.starts_with("Skipping ") => (CONNECTED, said),
        _ => match text.strip_prefix("Error:") {
            Some(error) => (2, error.trim()),
            None if text.starts_with("panic: ") => (2, text),
            None => (said.is_some().into(), said.unwrap_or(text)),
        },
    }
}

/// Rounds seconds as Go writes them.
fn rounded(text: &str) -> u64 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let more = u64::from(part.starts_with(|digit| digit >= '5'));
    whole.parse::<u64>().unwrap_or_default() + more
}

/// The name as it is in the source, without the test that has all others.
fn readable(name: &str) -> String {
    let name = name.strip_prefix(ROOT).unwrap_or(name);
    let name = name.strip_prefix('/').unwrap_or(name);
    if name.is_empty() {
        return "the pods of the tests".to_owned();
    }
    name.replace(['/', '_'], " ")
}

/// A name as `-test.run` and `-test.skip` take it, between slashes.
pub(super) fn pattern(name: &str) -> String {
    let mut pattern = String::new();
    for letter in name.chars() {
        match letter {
            ' ' => pattern.push('_'),
            letter if letter.is_alphanumeric() || "-_';,".contains(letter) => pattern.push(letter),
            letter => pattern.extend(['\\', letter]),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a run on a network without policies; lines that repeat others are cut.
    const PRINTED: &str = include_str!("output.txt");

    fn read(text: &str, succeeded: bool) -> Vec<Spec> {
        let mut output = Output::default();
        for line in text.lines() {
            output.line(line);
        }
        output.end(succeeded);
        output.specs()
    }

    #[test]
    fn the_parts_of_tests_are_named_with_their_outcome_and_what_went_wrong() {
        let specs = read(PRINTED, false);
        assert_eq!(specs.len(), 10);
        assert_eq!(
            specs[0],
            Spec {
                name: "CNPAdminTierIngressTCP Should support an 'allow-ingress' policy for TCP protocol; ensure rule \
                       ordering is respected"
                    .to_owned(),
                outcome: Outcome::Passed,
                seconds: 1,
            }
        );
        assert_eq!(
            specs[1],
            Spec {
                name: "CNPAdminTierIngressTCP Should support an 'allow-ingress' policy for TCP protocol at the \
                       specified port"
                    .to_owned(),
                outcome: Outcome::Failed(
                    "Expected connection to fail from network-policy-conformance-hufflepuff/cedric-diggory-1 to \
                     10.244.1.6, but instead it successfully connected."
                        .to_owned()
                ),
                seconds: 10,
            }
        );
        // Its line is one of those that were cut.
        assert_eq!(
            specs[7].outcome,
            Outcome::Failed("Condition never satisfied".to_owned())
        );
        let failed = |spec: &&Spec| matches!(spec.outcome, Outcome::Failed(_));
        assert_eq!(specs.iter().filter(failed).count(), 6);
    }

    #[test]
    fn names_are_said_as_tests_begin() {
        let mut output = Output::default();
        let begun: Vec<String> = PRINTED
            .lines()
            .filter_map(|line| output.line(line))
            .collect();
        assert_eq!(begun.len(), 13);
        assert_eq!(begun[0], "the pods of the tests");
        assert_eq!(begun[1], "CNPAdminTierIngressTCP");
    }

    #[test]
    fn a_run_that_was_stopped_has_failed_where_it_was() {
        let begin = PRINTED.split("=== NAME").next().unwrap();
        let specs = read(begin, false);
        assert_eq!(specs.len(), 6);
        for spec in specs {
            let why = "it was not run to its end".to_owned();
            assert_eq!(spec.outcome, Outcome::Failed(why), "{}", spec.name);
        }
    }

    #[test]
    fn pods_that_do_not_get_ready_are_the_failure() {
        let text = "=== RUN   TestConformance\n    helper.go:144: \n        \tError:      \tReceived unexpected \
                    error:\n        \t            \tcontext deadline exceeded\n--- FAIL: TestConformance \
                    (300.12s)\nFAIL\n";
        let specs = read(text, false);
        let [spec] = specs.as_slice() else {
            panic!("{specs:?}");
        };
        assert_eq!(spec.name, "the pods of the tests");
        assert_eq!(
            spec.outcome,
            Outcome::Failed("Received unexpected error:".to_owned())
        );
        assert_eq!(spec.seconds, 300);
    }

    #[test]
    fn a_test_of_a_feature_that_is_not_wanted_is_skipped_with_the_reason() {
        let text = "=== RUN   TestConformance\n=== RUN   TestConformance/CNPNodes\n    suite.go:209: Skipping \
                    CNPNodes: suite does not support X\n--- PASS: TestConformance (1.00s)\n    --- SKIP: \
                    TestConformance/CNPNodes (0.00s)\nPASS\n";
        let specs = read(text, true);
        assert_eq!(specs.len(), 1);
        assert_eq!(
            specs[0].outcome,
            Outcome::Skipped("Skipping CNPNodes: suite does not support X".to_owned())
        );
    }

    #[test]
    fn a_program_that_fails_without_a_failed_test_has_failed() {
        let specs = read(
            "=== RUN   TestConformance\n--- PASS: TestConformance (1.00s)\n",
            false,
        );
        assert!(matches!(specs[0].outcome, Outcome::Failed(_)), "{specs:?}");
    }
}
