//! `cargo xtask conformance`: writes `docs/conformance.md`.
//!
//! It has every requirement with the tests that name it, and for those without a test the reason.

mod list;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use self::list::{Remark, Requirement, Section};
use self::scan::Naming;
use crate::step::say;
use crate::{tidy, workspace};

/// The requirements.
const LIST: &str = "docs/requirements.txt";
/// The page.
const FILE: &str = "docs/conformance.md";

#[derive(clap::Args)]
pub(crate) struct Options {}

/// Tests by the requirements they name.
type Tests = BTreeMap<String, BTreeSet<(String, String)>>;

/// Writes the page again, and says what is missing in it.
///
/// # Errors
/// The list cannot be read.
pub(crate) fn run(_: &Options) -> Result<()> {
    let (sections, tests) = (sections()?, tests()?);
    for finding in findings(&sections, &tests) {
        say(finding);
    }
    let page = page(&sections, &tests);
    let path = workspace::root().join(FILE);
    if fs::read_to_string(&path).unwrap_or_default() != page {
        fs::write(&path, page).with_context(|| format!("writing {FILE}"))?;
        say(format!("wrote {FILE}"));
    }
    Ok(())
}

/// Lists requirements without a test or a reason, and a stale page.
///
/// Each is one line.
///
/// # Errors
/// The list or a source file cannot be read.
pub(crate) fn check() -> Result<Vec<String>> {
    let (sections, tests) = (sections()?, tests()?);
    let mut findings = findings(&sections, &tests);
    let written = fs::read_to_string(workspace::root().join(FILE)).unwrap_or_default();
    if findings.is_empty() && written != page(&sections, &tests) {
        findings.push(format!("{FILE}: stale, run `cargo xtask conformance`"));
    }
    Ok(findings)
}

fn sections() -> Result<Vec<Section>> {
    let path = workspace::root().join(LIST);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {LIST}"))?;
    list::parse(&text).with_context(|| format!("reading {LIST}"))
}

fn tests() -> Result<Tests> {
    let root = workspace::root();
    let mut files = Vec::new();
    tidy::rust_files(&root, &mut files)?;
    let mut tests = Tests::new();
    for file in &files {
        let name = file.strip_prefix(&root).unwrap_or(file).to_string_lossy();
        if name.starts_with("xtask/src/conformance") {
            // Its examples are no tests of anything.
            continue;
        }
        let text =
            fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        for Naming { id, file, test } in scan::file(&name, &text) {
            tests.entry(id).or_default().insert((file, test));
        }
    }
    Ok(tests)
}

fn findings(sections: &[Section], tests: &Tests) -> Vec<String> {
    let mut findings = Vec::new();
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
                    .map(|other| format!("{LIST}: {id} is proven by {other}, which no test names")),
            ),
            (false, None | Some(Remark::Partly(_))) => findings.push(format!(
                "{LIST}: no test names {id}: write one, or the reason there is none"
            )),
        }
    }
    // Sections of NPWG are named by tests as a whole, too, so a number alone is no mistake.
    let is_misspelt = |id: &&String| {
        let is_section = id
            .strip_prefix("NPWG-")
            .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'));
        !is_section && !known.contains_key(id.as_str())
    };
    findings.extend(tests.keys().filter(is_misspelt).map(|id| {
        let place = tests[id].first().map_or("", |(file, _)| file);
        format!("{place}: a test names {id}, which is not in {LIST}")
    }));
    findings
}

fn page(sections: &[Section], tests: &Tests) -> String {
    let all = || sections.iter().flat_map(|section| &section.requirements);
    let count =
        |wanted: fn(&Option<Remark>) -> bool| all().filter(|one| wanted(&one.remark)).count();
    let not_met = count(|remark| matches!(remark, Some(Remark::NotMet(_))));
    let partly = count(|remark| matches!(remark, Some(Remark::Partly(_))));
    let not_applicable = count(|remark| matches!(remark, Some(Remark::NotApplicable(_))));
    let total = all().count();
    let mut text = format!(
        "# Conformance\n\
         \n\
         Generated from `docs/requirements.txt` and the tests by `cargo xtask conformance`.\n\
         \n\
         What CNI 1.1, the multi-network standard of the Network Plumbing Working Group v1.3 and\n\
         KEP-3698 ask for, as single behaviours, and the tests that name each. The numbers are ours;\n\
         those of NPWG are its sections. A requirement without a test has a reason instead.\n\
         `cargo xtask tidy` fails when one has neither.\n\
         \n\
         Of {total} requirements {} are met, {partly} in part; {not_met} are not; {not_applicable}\n\
         ask nothing of podnet.\n",
        total - not_met - partly - not_applicable,
    );
    for section in sections {
        text.push_str("\n## ");
        text.push_str(&section.title);
        text.push_str("\n\n| | Requirement | Tests |\n|---|---|---|\n");
        for one in &section.requirements {
            let proof = proof(one, tests);
            // A string takes everything.
            let _ = writeln!(text, "| {} | {} | {proof} |", one.id, one.words);
        }
    }
    text
}

fn proof(one: &Requirement, tests: &Tests) -> String {
    let links = tests.get(&one.id).into_iter().flatten();
    let links: Vec<String> = links
        .map(|(file, test)| format!("[{test}](../{file})"))
        .collect();
    let links = links.join(", ");
    match &one.remark {
        None => links,
        Some(Remark::By(others)) => format!("those of {}", others.join(", ")),
        Some(Remark::Partly(rest)) => format!("{links}. **Partly**: {rest}"),
        Some(Remark::NotMet(why)) => format!("**Not met**: {why}"),
        Some(Remark::NotApplicable(why)) => format!("Not applicable: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(list: &str, named: &[&str]) -> Vec<String> {
        let place = || BTreeSet::from([("a.rs".to_owned(), "test".to_owned())]);
        let tests = named.iter().map(|id| ((*id).to_owned(), place())).collect();
        findings(&list::parse(&format!("== One\n{list}")).unwrap(), &tests)
    }

    #[test]
    fn a_requirement_has_a_test_or_a_reason_and_not_both() {
        let good = "CNI-A-1 | x\nCNI-A-2 | x | by: CNI-A-1\nCNI-A-3 | x | not met: later\n\
                    CNI-A-4 | x | partly: the rest later\n";
        assert_eq!(found(good, &["CNI-A-1", "CNI-A-4", "NPWG-4"]), [""; 0]);
        for (list, named, expected) in [
            ("CNI-A-1 | x\n", &[][..], "no test names CNI-A-1"),
            ("CNI-A-1 | x | partly: y\n", &[], "no test names CNI-A-1"),
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
                "a.rs: a test names CNI-A-1, which is not in",
            ),
        ] {
            let found = found(list, named).join("\n");
            assert!(found.contains(expected), "{list}{named:?}: {found}");
        }
    }

    #[test]
    fn the_page_names_tests_and_reasons() {
        let sections =
            list::parse("== One\nCNI-A-1 | first\nCNI-A-2 | x | not met: later\n").unwrap();
        let test = ("agent/src/x.rs".to_owned(), "it_works".to_owned());
        let tests = Tests::from([("CNI-A-1".to_owned(), BTreeSet::from([test]))]);
        let page = page(&sections, &tests);
        assert!(
            page.contains("| CNI-A-1 | first | [it_works](../agent/src/x.rs) |"),
            "{page}"
        );
        assert!(
            page.contains("| CNI-A-2 | x | **Not met**: later |"),
            "{page}"
        );
        assert!(
            page.contains("Of 2 requirements 1 are met, 0 in part; 1 are not; 0\n"),
            "{page}"
        );
    }
}
