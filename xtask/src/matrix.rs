//! Record which tests a kernel has passed, and write the table of kernels.
//!
//! `docs/kernels.json` has a run for each kernel; the table of `docs/compatibility.md` is made of it, and `tidy`
//! compares the two. So the page says what ran, on which commit and when, and for how much there was no time.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::step::{capture, say};
use crate::test::Tally;
use crate::workspace;

mod table;

/// The runs, from the root of the repository.
const RUNS: &str = "docs/kernels.json";
/// The page with the table, from the root of the repository.
const PAGE: &str = "docs/compatibility.md";
/// Marks around the table.
const MARKS: [&str; 2] = ["<!-- kernels:begin -->", "<!-- kernels:end -->"];

/// Numbers of tests: passed, failed, skipped.
type Counts = [u64; 3];

/// The last recorded run on one kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    /// `uname -r`.
    release: String,
    /// The commit that was tested.
    commit: String,
    /// Day of the run, `2026-11-25`.
    date: String,
    /// Number of tests for which there was no time.
    left_out: u64,
    /// By the first two parts of the tests' names.
    modules: BTreeMap<String, Counts>,
}

/// The commit that a run tests, if it can be recorded.
#[derive(Debug)]
pub(crate) struct Recorder {
    commit: String,
    date: String,
    /// Held while the files are changed: kernels are tested side by side.
    files: Mutex<()>,
}

impl Recorder {
    /// Names the commit and the day.
    ///
    /// # Errors
    /// There are changes that no commit has: the record would say what nobody can run again.
    pub(crate) fn new() -> Result<Self> {
        let changes = capture(&mut git(["status", "--porcelain"]))?;
        if let Some(first) = changes.lines().next() {
            bail!(
                "a run is recorded with its commit, and the checkout has changes (`{first}`): commit or \
                 stash them first"
            );
        }
        let commit = capture(&mut git(["rev-parse", "--short=10", "HEAD"]))?;
        let date = capture(Command::new("date").args(["-u", "+%F"]))?;
        Ok(Self {
            commit: commit.trim().to_owned(),
            date: date.trim().to_owned(),
            files: Mutex::default(),
        })
    }

    /// Records what ran on a kernel: `version` is its place in the table.
    ///
    /// # Errors
    /// The files cannot be read or written.
    pub(crate) fn record(&self, version: &str, release: &str, tally: &Tally) -> Result<()> {
        let _held = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let mut runs = runs()?;
        let run = Run {
            release: release.to_owned(),
            commit: self.commit.clone(),
            date: self.date.clone(),
            left_out: tally.left_out,
            modules: modules(tally),
        };
        runs.insert(version.to_owned(), run);
        let text = serde_json::to_string_pretty(&to_json(&runs)).context(RUNS)? + "\n";
        let root = workspace::root();
        fs::write(root.join(RUNS), text).context(RUNS)?;
        let page = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
        fs::write(root.join(PAGE), with_table(&page, &runs)?).context(PAGE)?;
        say(format!(
            "recorded the run on {release} in {RUNS} and {PAGE}"
        ));
        Ok(())
    }
}

fn git<const N: usize>(arguments: [&str; N]) -> Command {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(workspace::root());
    command
}

/// Lists a finding when the page is not what the runs say.
pub(crate) fn check() -> Result<Vec<String>> {
    let page = fs::read_to_string(workspace::root().join(PAGE)).context(PAGE)?;
    let expected = with_table(&page, &runs()?)?;
    Ok((page != expected)
        .then(|| {
            format!("{PAGE}: its table is not what {RUNS} says: run `cargo xtask tidy --bless`")
        })
        .into_iter()
        .collect())
}

/// Writes the table of the page again.
pub(crate) fn write() -> Result<()> {
    let path = workspace::root().join(PAGE);
    let page = fs::read_to_string(&path).context(PAGE)?;
    fs::write(&path, with_table(&page, &runs()?)?).context(PAGE)
}

fn runs() -> Result<BTreeMap<String, Run>> {
    let text = fs::read_to_string(workspace::root().join(RUNS)).context(RUNS)?;
    from_json(&serde_json::from_str(&text).context(RUNS)?)
}

fn with_table(page: &str, runs: &BTreeMap<String, Run>) -> Result<String> {
    let [begin, end] = MARKS;
    let (before, rest) = page
        .split_once(begin)
        .with_context(|| format!("{PAGE} has no `{begin}`"))?;
    let (_, after) = rest
        .split_once(end)
        .with_context(|| format!("{PAGE} has no `{end}`"))?;
    let table = table::of(runs);
    Ok(format!("{before}{begin}\n\n{table}\n{end}{after}"))
}

/// Counts tests by the first two parts of their names.
fn modules(tally: &Tally) -> BTreeMap<String, Counts> {
    let mut modules: BTreeMap<String, Counts> = BTreeMap::new();
    let lists: [&mut dyn Iterator<Item = &String>; 3] = [
        &mut tally.ran.iter(),
        &mut tally.failures.keys(),
        &mut tally.skipped.keys(),
    ];
    for (which, names) in lists.into_iter().enumerate() {
        for name in names {
            let mut parts = name.split("::");
            let module = match (parts.next(), parts.next(), parts.next()) {
                (Some(first), Some(second), Some(_)) => format!("{first}::{second}"),
                (Some(first), ..) => first.to_owned(),
                (None, ..) => continue,
            };
            modules.entry(module).or_default()[which] += 1;
        }
    }
    modules
}

fn to_json(runs: &BTreeMap<String, Run>) -> Value {
    let run = |run: &Run| {
        json!({
            "release": run.release,
            "commit": run.commit,
            "date": run.date,
            "leftOut": run.left_out,
            "tests": run.modules.iter().map(|(module, [passed, failed, skipped])| {
                (module.clone(), json!(format!("{passed} {failed} {skipped}")))
            }).collect::<serde_json::Map<_, _>>(),
        })
    };
    runs.iter()
        .map(|(version, it)| (version.clone(), run(it)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn from_json(value: &Value) -> Result<BTreeMap<String, Run>> {
    let text = |value: &Value, name: &str| -> Result<String> {
        let text = value[name].as_str();
        Ok(text
            .with_context(|| format!("{RUNS}: no `{name}`"))?
            .to_owned())
    };
    let runs = value
        .as_object()
        .with_context(|| format!("{RUNS}: no object"))?;
    runs.iter()
        .map(|(version, run)| {
            let tests = run["tests"].as_object();
            let tests = tests.with_context(|| format!("{RUNS}: {version} has no `tests`"))?;
            let modules = tests.iter().map(|(module, counts)| {
                let counts = counts.as_str().and_then(counts_of);
                let counts = counts.with_context(|| {
                    format!("{RUNS}: {version}: {module} is not `PASSED FAILED SKIPPED`")
                })?;
                Ok((module.clone(), counts))
            });
            let run = Run {
                release: text(run, "release")?,
                commit: text(run, "commit")?,
                date: text(run, "date")?,
                left_out: run["leftOut"].as_u64().unwrap_or(0),
                modules: modules.collect::<Result<_>>()?,
            };
            Ok((version.clone(), run))
        })
        .collect()
}

fn counts_of(text: &str) -> Option<Counts> {
    let numbers: Option<Vec<u64>> = text.split(' ').map(|number| number.parse().ok()).collect();
    numbers?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally() -> Tally {
        let names = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect();
        Tally {
            passed: 3,
            failed: 1,
            ran: names(&["across::vlan::a", "across::vlan::b", "cases::one"]),
            failures: BTreeMap::from([("across::vlan::c".to_owned(), Vec::new())]),
            skipped: BTreeMap::from([("memif::testpmd::d".to_owned(), "needs it".to_owned())]),
            left_out: 5,
        }
    }

    #[test]
    fn tests_are_counted_by_the_first_two_parts_of_their_names() {
        let expected = [
            ("across::vlan", [2, 1, 0]),
            ("cases", [1, 0, 0]),
            ("memif::testpmd", [0, 0, 1]),
        ];
        let expected = expected.map(|(name, counts)| (name.to_owned(), counts));
        assert_eq!(modules(&tally()), BTreeMap::from(expected));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let run = Run {
            release: "5.10.0-36-cloud-amd64".to_owned(),
            commit: "0123456789".to_owned(),
            date: "2026-11-25".to_owned(),
            left_out: 5,
            modules: modules(&tally()),
        };
        let runs = BTreeMap::from([("5.10".to_owned(), run)]);
        assert_eq!(from_json(&to_json(&runs)).unwrap(), runs);
    }

    #[test]
    fn a_broken_record_is_named() {
        let error = from_json(&json!({"5.10": {
            "release": "5.10.0", "commit": "0123456789", "date": "2026-11-25", "tests": {"cni": "1 2"}
        }})).unwrap_err();
        assert!(error.to_string().contains("5.10: cni"), "{error}");
    }

    #[test]
    fn the_table_is_written_between_its_marks_only() {
        let page = "a\n<!-- kernels:begin -->\nold\n<!-- kernels:end -->\nb\n";
        let page = with_table(page, &BTreeMap::new()).unwrap();
        assert!(page.starts_with("a\n<!-- kernels:begin -->\n") && page.ends_with("-->\nb\n"));
        assert!(!page.contains("old"), "{page}");
        assert!(with_table("no marks", &BTreeMap::new()).is_err());
    }

    #[test]
    fn the_page_of_this_repository_is_what_its_runs_say() {
        assert_eq!(check().unwrap(), [""; 0]);
    }
}
