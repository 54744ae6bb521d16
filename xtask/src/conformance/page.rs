//! Write `docs/conformance.md`.

use std::fmt::Write as _;

use super::list::{Remark, Requirement, Section};
use super::{LIST, Tests};

/// How many requirements are met, met in part, not met, and not podnet's.
#[derive(Default, Clone, Copy)]
struct Count {
    met: usize,
    partly: usize,
    not_met: usize,
    not_applicable: usize,
}

impl Count {
    fn of<'a>(requirements: impl IntoIterator<Item = &'a Requirement>) -> Self {
        let mut count = Self::default();
        for one in requirements {
            *match one.remark {
                None | Some(Remark::By(_)) => &mut count.met,
                Some(Remark::Partly(_)) => &mut count.partly,
                Some(Remark::NotMet(_)) => &mut count.not_met,
                Some(Remark::NotApplicable(_)) => &mut count.not_applicable,
            } += 1;
        }
        count
    }

    /// Cells of a table, of which the first is `title`.
    fn row(self, title: &str) -> String {
        let Self {
            met,
            partly,
            not_met,
            not_applicable,
        } = self;
        format!("| {title} | {met} | {partly} | {not_met} | {not_applicable} |\n")
    }
}

/// The whole page.
pub(super) fn page(sections: &[Section], tests: &Tests) -> String {
    let all = || sections.iter().flat_map(|section| &section.requirements);
    let mut text = format!(
        "# Conformance\n\
         \n\
         Generated from `{LIST}` and the tests by `cargo xtask conformance`.\n\
         \n\
         What CNI 1.1, the multi-network standard of the Network Plumbing Working Group v1.3 and\n\
         KEP-3698 ask for, what runtimes really do, what Kuryr and Arktos had, what users of such\n\
         plugins complain of, and what attackers can try: as single behaviours. The numbers are ours;\n\
         those of NPWG are its sections.\n\
         \n\
         A test is here for a requirement that it checks in as its last statement\n\
         (`proof::of!(\"CNI-ADD-01\")`), so one that is skipped or returns early proves nothing.\n\
         `cargo xtask test` fails when a test of this page passes without its check-in, and names those\n\
         that did not run. `cargo xtask tidy` fails when a requirement has neither test nor reason.\n\
         **Partly** and **not met** say what is missing.\n\
         \n\
         | | Met | Partly | Not met | Not applicable |\n\
         |---|---|---|---|---|\n",
    );
    for section in sections {
        let title = format!("[{}](#{})", section.title, anchor(&section.title));
        text.push_str(&Count::of(&section.requirements).row(&title));
    }
    text.push_str(&Count::of(all()).row("**All**"));
    missing(&mut text, sections);
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

/// All that is missing, in one table.
fn missing(text: &mut String, sections: &[Section]) {
    let all = sections.iter().flat_map(|section| &section.requirements);
    let rows: String = all
        .filter_map(|one| match &one.remark {
            Some(Remark::Partly(rest)) => Some(format!("| {} | partly | {rest} |\n", one.id)),
            Some(Remark::NotMet(why)) => Some(format!("| {} | not met | {why} |\n", one.id)),
            _ => None,
        })
        .collect();
    if !rows.is_empty() {
        text.push_str("\n## What is missing\n\n| | | |\n|---|---|---|\n");
        text.push_str(&rows);
    }
}

/// The part of a link that leads to a heading, as GitHub makes it.
fn anchor(title: &str) -> String {
    title
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' => Some(c.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
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
        Some(Remark::Partly(rest)) => format!("{links}. **Partly**, missing: {rest}"),
        Some(Remark::NotMet(why)) => format!("**Not met**: {why}"),
        Some(Remark::NotApplicable(why)) => format!("Not applicable: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::list;
    use super::*;

    #[test]
    fn the_page_has_counts_and_names_tests_and_all_that_is_missing() {
        let sections = list::parse(
            "== One: 1.1\nCNI-A-1 | first\nCNI-A-2 | x | not met: later\n\
             == Two\nCNI-B-1 | y | partly: the rest\nCNI-B-2 | z | by: CNI-A-1\n",
        )
        .unwrap();
        let test = ("agent/src/x.rs".to_owned(), "it_works".to_owned());
        let of = |id: &str| (id.to_owned(), BTreeSet::from([test.clone()]));
        let page = page(&sections, &Tests::from([of("CNI-A-1"), of("CNI-B-1")]));
        for expected in [
            "| CNI-A-1 | first | [it_works](../agent/src/x.rs) |\n",
            "| CNI-A-2 | x | **Not met**: later |\n",
            "| CNI-B-1 | y | [it_works](../agent/src/x.rs). **Partly**, missing: the rest |\n",
            "| [One: 1.1](#one-11) | 1 | 0 | 1 | 0 |\n",
            "| [Two](#two) | 1 | 1 | 0 | 0 |\n",
            "| **All** | 2 | 1 | 1 | 0 |\n",
            "| CNI-A-2 | not met | later |\n| CNI-B-1 | partly | the rest |\n",
        ] {
            assert!(page.contains(expected), "{expected}{page}");
        }
    }
}
