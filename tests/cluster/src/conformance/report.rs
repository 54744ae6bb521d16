//! Read the report of the tests' runner: counts, names and reasons.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// One suite in ginkgo's JSON report.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Suite {
    start_time: String,
    run_time: u64,
    suite_succeeded: bool,
    spec_reports: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    #[serde(default, deserialize_with = "or_default")]
    container_hierarchy_texts: Vec<String>,
    leaf_node_type: String,
    #[serde(default)]
    leaf_node_text: String,
    state: String,
    #[serde(default)]
    run_time: u64,
    #[serde(default)]
    failure: Failure,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    message: String,
}

/// Go writes an empty list as null.
fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The outcome of a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// With the first line of why.
    Failed(String),
    Skipped(String),
}

/// A spec that was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) name: String,
    pub(super) outcome: Outcome,
    pub(super) seconds: u64,
}

/// All of them, in the order of the page.
#[derive(Debug)]
pub(super) struct Results {
    pub(super) specs: Vec<Spec>,
    /// `2026-11-22`, in the time zone of the machine.
    pub(super) date: String,
    pub(super) seconds: u64,
}

impl Results {
    /// Reads a report.
    ///
    /// `left_out` says why a spec was not chosen; without a reason it does not count.
    ///
    /// # Errors
    /// It is not one of ginkgo's.
    pub(super) fn read(path: &Path, left_out: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        Self::parse(&text, left_out).with_context(|| format!("reading {}", path.display()))
    }

    fn parse(text: &[u8], left_out: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let [suite]: [Suite; 1] = serde_json::from_slice(text)?;
        let entries = suite.spec_reports.into_iter();
        let mut specs: Vec<Spec> = entries.filter_map(|entry| spec(entry, &left_out)).collect();
        specs.sort_by(|one, other| one.name.cmp(&other.name));
        let has_failed = specs
            .iter()
            .any(|spec| matches!(spec.outcome, Outcome::Failed(_)));
        if !suite.suite_succeeded && !has_failed {
            // Stopped from outside, or out of time.
            specs.push(Spec {
                name: "the suite as a whole".to_owned(),
                outcome: Outcome::Failed("it was not run to its end".to_owned()),
                seconds: 0,
            });
        }
        let date = suite.start_time.split('T').next().unwrap_or_default();
        Ok(Self {
            specs,
            date: date.to_owned(),
            seconds: seconds(suite.run_time),
        })
    }

    pub(super) fn passed(&self) -> usize {
        self.count(|outcome| *outcome == Outcome::Passed)
    }

    pub(super) fn failed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        self.specs.iter().filter(|spec| is(&spec.outcome)).count()
    }

    /// The closing line.
    pub(super) fn sum(&self) -> String {
        let (passed, failed) = (self.passed(), self.failed());
        let skipped = self.specs.len() - passed - failed;
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }

    /// All specs, as a table in Markdown.
    pub(super) fn table(&self) -> String {
        let mut table = "| Spec | Result | s |\n|---|---|---|\n".to_owned();
        for spec in &self.specs {
            let word = match &spec.outcome {
                Outcome::Passed => "passed".to_owned(),
                Outcome::Failed(why) => format!("**failed**: {}", cell(why)),
                Outcome::Skipped(why) => format!("skipped: {}", cell(why)),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(
                table,
                "| {} | {word} | {} |",
                cell(&spec.name),
                spec.seconds
            );
        }
        table
    }
}

/// `None` for what was not chosen, and for steps around specs that went well.
fn spec(entry: Entry, left_out: impl Fn(&str) -> Option<String>) -> Option<Spec> {
    let reason = entry.failure.message.lines().next().unwrap_or_default();
    let is_spec = entry.leaf_node_type == "It";
    let mut texts = entry.container_hierarchy_texts;
    texts.push(if is_spec {
        entry.leaf_node_text
    } else {
        entry.leaf_node_type
    });
    let name = texts.join(" ");
    let outcome = match entry.state.as_str() {
        "passed" if is_spec => Outcome::Passed,
        "passed" | "pending" => return None,
        // Of a spec that was not chosen there is no word.
        "skipped" if reason.is_empty() => Outcome::Skipped(left_out(&name)?),
        "skipped" => Outcome::Skipped(reason.to_owned()),
        state => Outcome::Failed(if reason.is_empty() { state } else { reason }.to_owned()),
    };
    Some(Spec {
        name,
        outcome,
        seconds: seconds(entry.run_time),
    })
}

/// Rounded, from nanoseconds.
fn seconds(nanoseconds: u64) -> u64 {
    nanoseconds.saturating_add(500_000_000) / 1_000_000_000
}

/// For a table in Markdown.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn it(name: &str, state: &str, why: &str) -> Value {
        json!({
            "ContainerHierarchyTexts": ["[sig-network] Services"],
            "LeafNodeType": "It",
            "LeafNodeText": name,
            "State": state,
            "RunTime": 1_600_000_000_u64,
            "Failure": {"Message": why},
        })
    }

    fn results(succeeded: bool, specs: &[Value]) -> Results {
        let report = json!([{
            "StartTime": "2026-11-22T05:00:00.5Z",
            "RunTime": 106_000_000_000_u64,
            "SuiteSucceeded": succeeded,
            "SpecReports": specs,
        }]);
        let left_out = |name: &str| name.ends_with("[SCTP]").then(|| "no SCTP".to_owned());
        Results::parse(report.to_string().as_bytes(), left_out).unwrap()
    }

    #[test]
    fn specs_that_were_not_chosen_do_not_count() {
        let step = json!({
            "ContainerHierarchyTexts": null,
            "LeafNodeType": "SynchronizedBeforeSuite",
            "State": "passed",
        });
        let results = results(
            true,
            &[
                step,
                it("b", "passed", ""),
                it("a", "skipped", "needs SCTP\nat x.go"),
                it("c", "skipped", ""),
                it("d [SCTP]", "skipped", ""),
            ],
        );
        assert_eq!(results.sum(), "1 passed, 0 failed, 2 skipped");
        assert_eq!(results.date, "2026-11-22");
        assert_eq!(results.seconds, 106);
        assert_eq!(
            results.table(),
            "| Spec | Result | s |\n|---|---|---|\n\
             | [sig-network] Services a | skipped: needs SCTP | 2 |\n\
             | [sig-network] Services b | passed | 2 |\n\
             | [sig-network] Services d [SCTP] | skipped: no SCTP | 2 |\n"
        );
    }

    #[test]
    fn what_is_neither_passed_nor_skipped_has_failed() {
        for state in ["failed", "panicked", "timedout", "interrupted", "aborted"] {
            let results = results(false, &[it("a", state, "")]);
            assert_eq!(results.sum(), "0 passed, 1 failed, 0 skipped", "{state}");
        }
        let step = json!({
            "LeafNodeType": "SynchronizedBeforeSuite",
            "State": "failed",
            "Failure": {"Message": "no nodes"},
        });
        assert_eq!(
            results(false, &[step]).sum(),
            "0 passed, 1 failed, 0 skipped"
        );
    }

    #[test]
    fn a_suite_that_was_stopped_has_failed_though_no_spec_has() {
        let results = results(false, &[it("a", "passed", "")]);
        assert_eq!(results.sum(), "1 passed, 1 failed, 0 skipped");
    }
}
