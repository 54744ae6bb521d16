//! Commits that the cases of a run have measured.

use std::collections::BTreeMap;
use std::fmt;

use super::{Case, Report};

/// A commit, and whether the tree had changes that are in none.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision {
    /// Its abbreviated hash, or a word where there is no commit.
    pub commit: String,
    /// Whether files that git knows were changed.
    pub dirty: bool,
}

/// Suffix of the hash of a tree with changes, in older runs.
const SUFFIX: &str = "-dirty";

impl Revision {
    /// Reads a hash, with `-dirty` behind it where the tree had changes.
    pub fn parse(text: &str) -> Self {
        let clean = text.strip_suffix(SUFFIX);
        Self {
            commit: clean.unwrap_or(text).to_owned(),
            dirty: clean.is_some(),
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commit = if self.commit.is_empty() {
            "an unknown commit"
        } else {
            &self.commit
        };
        let changes = if self.dirty {
            " with uncommitted changes"
        } else {
            ""
        };
        write!(out, "{commit}{changes}")
    }
}

/// Returns the commit of a case.
pub fn of_case(case: &Case) -> Revision {
    let mut revision = Revision::parse(&case.commit);
    revision.dirty |= case.dirty;
    revision
}

/// Names the commit of a run, and cases that were measured on another one.
pub fn line(report: &Report) -> String {
    let mut all: BTreeMap<Revision, Vec<&str>> = BTreeMap::new();
    for case in &report.cases {
        all.entry(of_case(case)).or_default().push(&case.name);
    }
    let most = all.iter().max_by_key(|(_, cases)| cases.len());
    let Some((most, _)) = most.map(|(most, cases)| (most.clone(), cases)) else {
        return String::new();
    };
    all.remove(&most);
    let others: Vec<String> = all
        .iter()
        .map(|(revision, cases)| format!("{revision}: {}", cases.join(", ")))
        .collect();
    if others.is_empty() {
        format!("podnet {most}")
    } else {
        format!("podnet {most} ({})", others.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::sample;

    #[test]
    fn a_run_of_one_commit_names_it_and_its_changes() {
        let mut report = sample();
        report.cases[0].commit = "0123abc".to_owned();
        assert_eq!(line(&report), "podnet 0123abc");
        report.cases[0].dirty = true;
        assert_eq!(line(&report), "podnet 0123abc with uncommitted changes");
        report.cases.clear();
        assert_eq!(line(&report), "");
    }

    #[test]
    fn cases_of_other_commits_are_named_with_them() {
        let mut report = sample();
        for (name, commit) in [
            ("udp", "aaa"),
            ("cni", "aaa"),
            ("memif", "bbb-dirty"),
            ("flows", "bbb-dirty"),
            ("scale", "aaa"),
        ] {
            let mut case = Case::new(name, name, "");
            case.commit = commit.to_owned();
            report.cases.push(case);
        }
        let expected = "podnet aaa (an unknown commit: tcp; \
                        bbb with uncommitted changes: memif, flows)";
        assert_eq!(line(&report), expected);
    }
}
