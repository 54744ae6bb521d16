//! Read what `cyclonus generate` prints: the cases, and how each step ended.

use super::super::report::{Outcome, Spec};

/// A case of the list at the beginning.
#[derive(Debug, Default)]
struct Case {
    name: String,
    tags: String,
    /// Pairs of pods with a wrong answer and all pairs, of each step in its last round.
    steps: Vec<(u64, u64)>,
    began: u64,
    ended: Option<u64>,
}

/// The cases that were printed until now.
#[derive(Debug, Default)]
pub(super) struct Output {
    cases: Vec<Case>,
    /// The case whose steps follow.
    current: Option<usize>,
}

impl Output {
    /// Reads a line, and returns a word for people when a case has ended.
    ///
    /// `now` is in seconds since the begin.
    pub(super) fn line(&mut self, line: &str, now: u64) -> Option<String> {
        if let Some((_, name)) = line
            .strip_prefix("test #")
            .and_then(|it| it.split_once(": "))
        {
            self.cases.push(Case {
                name: name.to_owned(),
                ..Case::default()
            });
        } else if let Some(tags) = line.strip_prefix(" - tags: ") {
            if let Some(case) = self.cases.last_mut() {
                tags.clone_into(&mut case.tags);
            }
        } else if let Some(at) = line.strip_prefix("starting test case #").and_then(index) {
            self.current = Some(at);
            self.cases.get_mut(at)?.began = now;
        } else if let Some(step) = step(line) {
            let at = self.current?;
            self.cases.get_mut(at)?.steps.push(step);
        } else if let Some(at) = line.strip_prefix("finished policy #").and_then(index) {
            let all = self.cases.len();
            let case = self.cases.get_mut(at)?;
            case.ended = Some(now);
            let word = if case.wrong() == 0 {
                "passed"
            } else {
                "failed"
            };
            return Some(format!(
                "{word} {} of {all} after {now} s: {}",
                at + 1,
                case.full_name()
            ));
        }
        None
    }

    /// The cases in their order.
    pub(super) fn specs(&self) -> Vec<Spec> {
        let cases = self.cases.iter().enumerate();
        cases
            .map(|(at, case)| Spec {
                name: format!("{} {}", at + 1, case.full_name()),
                outcome: case.outcome(),
                seconds: case.ended.map_or(0, |end| end.saturating_sub(case.began)),
            })
            .collect()
    }
}

impl Case {
    fn full_name(&self) -> String {
        format!("{} ({})", self.name, self.tags)
    }

    fn wrong(&self) -> u64 {
        self.steps.iter().map(|(wrong, _)| wrong).sum()
    }

    fn outcome(&self) -> Outcome {
        if self.ended.is_none() {
            return Outcome::Failed("it was not run to its end".to_owned());
        }
        if self.steps.is_empty() {
            return Outcome::Failed("it has no step".to_owned());
        }
        let steps = self.steps.iter().enumerate();
        let wrong: Vec<String> = steps
            .filter(|(_, (wrong, _))| *wrong > 0)
            .map(|(at, (wrong, all))| format!("{wrong} of {all} pairs in step {}", at + 1))
            .collect();
        if wrong.is_empty() {
            Outcome::Passed
        } else {
            Outcome::Failed(format!("wrong: {}", wrong.join(", ")))
        }
    }
}

/// The place in the list of a number that begins at 1.
fn index(number: &str) -> Option<usize> {
    number.trim().parse::<usize>().ok()?.checked_sub(1)
}

/// Reads the pairs of pods with a wrong answer in a step, and all that count.
///
/// The line is as `1 wrong, 9 ignored, 71 correct`.
fn step(line: &str) -> Option<(u64, u64)> {
    let line = line.strip_prefix("Discrepancy found:").unwrap_or(line);
    let [wrong, ignored, correct] = line.split(", ").collect::<Vec<_>>().try_into().ok()?;
    ignored.strip_suffix(" ignored")?;
    let wrong: u64 = wrong.strip_suffix(" wrong")?.parse().ok()?;
    let correct: u64 = correct.strip_suffix(" correct")?.parse().ok()?;
    Some((wrong, wrong + correct))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a run on a network without policies; tables and policies are cut.
    const PRINTED: &str = include_str!("output.txt");

    fn read(text: &str) -> Vec<Spec> {
        let mut output = Output::default();
        for (at, line) in text.lines().enumerate() {
            output.line(line, at as u64);
        }
        output.specs()
    }

    #[test]
    fn cases_are_named_in_their_order_with_what_was_wrong_in_each_step() {
        let specs = read(PRINTED);
        assert_eq!(specs.len(), 17);
        assert_eq!(
            specs[0].name,
            "1 egress: deny all (deny-all, direction, egress, rule)"
        );
        assert_eq!(
            specs[0].outcome,
            Outcome::Failed("wrong: 16 of 72 pairs in step 1".to_owned())
        );
        // From its first line to its last.
        assert_eq!(specs[0].seconds, 4);
        assert_eq!(
            specs[4].outcome,
            Outcome::Failed(
                "wrong: 16 of 72 pairs in step 1, 16 of 72 pairs in step 2, 16 of 72 pairs in step 3"
                    .to_owned()
            )
        );
        let passed: Vec<usize> = (1..)
            .zip(&specs)
            .filter(|(_, spec)| spec.outcome == Outcome::Passed)
            .map(|(number, _)| number)
            .collect();
        assert_eq!(passed, [8, 9, 10, 11, 12, 13, 16]);
    }

    #[test]
    fn a_word_is_said_as_each_case_ends() {
        let mut output = Output::default();
        let said: Vec<String> = PRINTED
            .lines()
            .filter_map(|line| output.line(line, 50))
            .collect();
        assert_eq!(said.len(), 17);
        assert_eq!(
            said[1],
            "failed 2 of 17 after 50 s: egress: allow all (allow-all, direction, egress, rule)"
        );
    }

    #[test]
    fn cases_after_a_stop_have_failed() {
        let begin = PRINTED.split("finished policy #9").next().unwrap();
        let specs = read(begin);
        assert_eq!(specs.len(), 17);
        assert_eq!(specs[7].outcome, Outcome::Passed);
        for spec in &specs[8..] {
            let why = "it was not run to its end".to_owned();
            assert_eq!(spec.outcome, Outcome::Failed(why), "{}", spec.name);
        }
    }
}
