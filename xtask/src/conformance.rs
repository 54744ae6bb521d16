//! `cargo xtask conformance`: writes `docs/conformance.md`.
//!
//! It has every requirement with the tests that check it in, and for those without a test the reason.

mod list;
mod page;
mod run;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use self::list::{Remark, Requirement, Section};
use self::page::page;
pub(crate) use self::run::{Run, Tier};
use self::scan::Proof;
use crate::step::say;
use crate::{tidy, workspace};

/// The requirements.
const LIST: &str = "docs/requirements.txt";
/// The page.
const FILE: &str = "docs/conformance.md";

#[derive(clap::Args)]
pub(crate) struct Options {}

/// Variable by which test processes learn of the directory for their check-ins.
pub(crate) const VARIABLE: &str = "PODNET_CHECK_INS";

/// Tests, as file and name, by the requirements they check in.
type Tests = BTreeMap<String, BTreeSet<(String, String)>>;

/// Check-ins in the sources, by requirement, and what is wrong with some.
#[derive(Default)]
struct Sources {
    tests: Tests,
    faults: Vec<String>,
    /// Words of the documentation of tests that may be requirements.
    named: Vec<Proof>,
}

/// Writes the page again, and says what is missing in it.
///
/// # Errors
/// The list cannot be read.
pub(crate) fn run(_: &Options) -> Result<()> {
    let (sections, sources) = (sections()?, sources()?);
    for finding in findings(&sections, &sources) {
        say(finding);
    }
    for Proof { id, file, test } in only_named(&sections, &sources) {
        say(format!(
            "{file}: {test} names {id} and does not check it in"
        ));
    }
    let page = page(&sections, &sources.tests);
    let path = workspace::root().join(FILE);
    if fs::read_to_string(&path).unwrap_or_default() != page {
        fs::write(&path, page).with_context(|| format!("writing {FILE}"))?;
        say(format!("wrote {FILE}"));
    }
    Ok(())
}

/// Lists requirements without a test or a reason, and misplaced check-ins.
///
/// Each is one line, and a stale page is one more.
///
/// # Errors
/// The list or a source file cannot be read.
pub(crate) fn check() -> Result<Vec<String>> {
    let (sections, sources) = (sections()?, sources()?);
    let mut findings = findings(&sections, &sources);
    let written = fs::read_to_string(workspace::root().join(FILE)).unwrap_or_default();
    if findings.is_empty() && written != page(&sections, &sources.tests) {
        findings.push(format!("{FILE}: stale, run `cargo xtask conformance`"));
    }
    Ok(findings)
}

/// The directory in which test processes of this run leave their check-ins.
pub(crate) fn directory() -> PathBuf {
    workspace::target().join(format!("check-ins-{}", std::process::id()))
}

/// Compares the page with the check-ins of a run, and removes those.
///
/// Requirements of which no test has run are named, with the reason.
///
/// # Errors
/// A test of the page has passed without its check-in, or is in no tier.
pub(crate) fn compare(run: &Run) -> Result<()> {
    let directory = directory();
    let check_ins = run::read(&directory)?;
    let tests = sources()?.tests;
    let proofs = tests.into_iter().flat_map(|(id, tests)| {
        tests.into_iter().map(move |(file, test)| {
            let id = id.clone();
            Proof { id, file, test }
        })
    });
    let outcome = run::compare(&proofs.collect(), &check_ins, run);
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (id, reason) in &outcome.not_run {
        reasons.entry(reason).or_default().push(id);
    }
    for (reason, ids) in reasons {
        say(format!(
            "not proved in this run ({reason}): {}",
            ids.join(", ")
        ));
    }
    say(format!(
        "{} requirements were proved in this run, {} were not run",
        outcome.proved.len(),
        outcome.not_run.len()
    ));
    // Absent when no test had anything to check in.
    let _ = fs::remove_dir_all(directory);
    for problem in &outcome.problems {
        say(problem);
    }
    match outcome.problems.as_slice() {
        [] => Ok(()),
        [first, ..] => bail!(
            "{} proofs of {FILE} are none, of which the first: {first}",
            outcome.problems.len()
        ),
    }
}

fn sections() -> Result<Vec<Section>> {
    let path = workspace::root().join(LIST);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {LIST}"))?;
    list::parse(&text).with_context(|| format!("reading {LIST}"))
}

fn sources() -> Result<Sources> {
    let root = workspace::root();
    let mut files = Vec::new();
    tidy::rust_files(&root, &mut files)?;
    let mut sources = Sources::default();
    for file in &files {
        let name = file.strip_prefix(&root).unwrap_or(file).to_string_lossy();
        if name.starts_with("xtask/src/conformance") {
            // Its examples are no tests of anything.
            continue;
        }
        let text =
            fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let (proofs, faults) = scan::file(&name, &text);
        sources.faults.extend(faults);
        sources.named.extend(scan::named(&name, &text));
        for Proof { id, file, test } in proofs {
            sources.tests.entry(id).or_default().insert((file, test));
        }
    }
    Ok(sources)
}

/// Returns requirements that only the documentation of a test names.
///
/// The test does not check them in. Some are named in passing, so they are no findings.
fn only_named<'a>(
    sections: &[Section],
    Sources { tests, named, .. }: &'a Sources,
) -> impl Iterator<Item = &'a Proof> {
    let all = sections.iter().flat_map(|section| &section.requirements);
    let known: BTreeSet<String> = all.map(|one| one.id.clone()).collect();
    named.iter().filter(move |proof| {
        let place = (proof.file.clone(), proof.test.clone());
        let is_checked_in = tests
            .get(&proof.id)
            .is_some_and(|tests| tests.contains(&place));
        known.contains(&proof.id) && !is_checked_in
    })
}

fn findings(sections: &[Section], Sources { tests, faults, .. }: &Sources) -> Vec<String> {
    let mut findings = faults.clone();
    let mut known: BTreeMap<&str, &Requirement> = BTreeMap::new();
    for one in sections.iter().flat_map(|section| &section.requirements) {
        if known.insert(&one.id, one).is_some() {
            findings.push(format!("{LIST}: {} is there twice", one.id));
        }
    }
    for one in known.values() {
        let id = &one.id;
        match (tests.contains_key(id), &one.remark) {
            (true, None | Some(Remark::Partly(_)))
            | (false, Some(Remark::NotMet(_) | Remark::NotApplicable(_))) => {}
            (true, Some(Remark::By(_))) => {
                findings.push(format!("{LIST}: {id} has tests of its own by now"));
            }
            (true, Some(_)) => {
                findings.push(format!(
                    "{LIST}: {id} has tests, so it is met: correct one of both"
                ));
            }
            (false, Some(Remark::By(others))) => findings.extend(
                others
                    .iter()
                    .filter(|other| !tests.contains_key(*other))
                    .map(|other| {
                        format!("{LIST}: {id} is proven by {other}, which no test checks in")
                    }),
            ),
            (false, None | Some(Remark::Partly(_))) => findings.push(format!(
                "{LIST}: no test checks in {id}: write one, or the reason there is none"
            )),
        }
    }
    let unknown = tests.keys().filter(|id| !known.contains_key(id.as_str()));
    findings.extend(unknown.map(|id| {
        let place = tests[id].first().map_or("", |(file, _)| file);
        format!("{place}: a test checks in {id}, which is not in {LIST}")
    }));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(list: &str, named: &[&str]) -> Vec<String> {
        let place = || BTreeSet::from([("a.rs".to_owned(), "test".to_owned())]);
        let sources = Sources {
            tests: named.iter().map(|id| ((*id).to_owned(), place())).collect(),
            ..Sources::default()
        };
        findings(&list::parse(&format!("== One\n{list}")).unwrap(), &sources)
    }

    #[test]
    fn a_requirement_has_a_test_or_a_reason_and_not_both() {
        let good = "CNI-A-1 | x\nCNI-A-2 | x | by: CNI-A-1\nCNI-A-3 | x | not met: later\n\
                    CNI-A-4 | x | partly: the rest later\n";
        assert_eq!(found(good, &["CNI-A-1", "CNI-A-4"]), [""; 0]);
        for (list, named, expected) in [
            ("CNI-A-1 | x\n", &[][..], "no test checks in CNI-A-1"),
            (
                "CNI-A-1 | x | partly: y\n",
                &[],
                "no test checks in CNI-A-1",
            ),
            ("CNI-A-1 | x | not met: y\n", &["CNI-A-1"], "so it is met"),
            (
                "CNI-A-1 | x | by: CNI-A-2\n",
                &[],
                "proven by CNI-A-2, which no test",
            ),
            (
                "CNI-A-1 | x | by: CNI-A-1\n",
                &["CNI-A-1"],
                "tests of its own",
            ),
            ("CNI-A-1 | x\nCNI-A-1 | y\n", &["CNI-A-1"], "twice"),
            (
                "",
                &["CNI-A-1"],
                "a.rs: a test checks in CNI-A-1, which is not in",
            ),
        ] {
            let found = found(list, named).join("\n");
            assert!(found.contains(expected), "{list}{named:?}: {found}");
        }
    }
}
