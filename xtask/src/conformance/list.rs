//! Read `docs/requirements.txt`: every requirement, and remarks beyond its tests.

use anyhow::{Context, Result, bail};

/// One requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Requirement {
    /// Its identifier, as tests name it.
    pub(super) id: String,
    /// The demand, in a few words.
    pub(super) words: String,
    /// A remark, if there is one.
    pub(super) remark: Option<Remark>,
}

/// A remark on a requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Remark {
    /// The tests of these requirements prove it, too.
    By(Vec<String>),
    /// Tests prove some of it; this is the rest.
    Partly(String),
    /// Podnet does not do it, and why.
    NotMet(String),
    /// It asks nothing of podnet, and why.
    NotApplicable(String),
}

/// Requirements of one heading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    /// The heading.
    pub(super) title: String,
    /// Its requirements, in order.
    pub(super) requirements: Vec<Requirement>,
}

/// Reads the list: `== heading`, `ID | words`, `ID | words | remark`.
///
/// `#` begins a comment.
///
/// # Errors
/// A line that is none of these.
pub(super) fn parse(text: &str) -> Result<Vec<Section>> {
    let mut sections: Vec<Section> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(title) = line.strip_prefix("== ") {
            sections.push(Section {
                title: title.to_owned(),
                requirements: Vec::new(),
            });
            continue;
        }
        let requirement = requirement(line).with_context(|| format!("line {number}: {line}"))?;
        let section = sections
            .last_mut()
            .context("a requirement without a heading")?;
        section.requirements.push(requirement);
    }
    Ok(sections)
}

fn requirement(line: &str) -> Result<Requirement> {
    let mut parts = line.split(" | ").map(str::trim);
    let (Some(id), Some(words)) = (parts.next(), parts.next()) else {
        bail!("write `ID | what it asks for`");
    };
    let remark = parts.next().map(remark).transpose()?;
    if parts.next().is_some() || words.is_empty() {
        bail!("write `ID | what it asks for | remark`");
    }
    Ok(Requirement {
        id: id.to_owned(),
        words: words.to_owned(),
        remark,
    })
}

fn remark(text: &str) -> Result<Remark> {
    let (kind, rest) = text.split_once(": ").unwrap_or((text, ""));
    if rest.trim().is_empty() {
        bail!("the remark says nothing");
    }
    let rest = rest.trim().to_owned();
    Ok(match kind {
        "by" => Remark::By(rest.split(", ").map(str::to_owned).collect()),
        "partly" => Remark::Partly(rest),
        "not met" => Remark::NotMet(rest),
        "not applicable" => Remark::NotApplicable(rest),
        _ => bail!("a remark begins with `by: `, `partly: `, `not met: ` or `not applicable: `"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_words_and_remarks_are_read() {
        let text = "# comment\n== One\nA-1 | first\nA-2 | second | by: A-1, B-1\n\n== Two\n\
                    B-1 | third | not met: no time\n";
        let sections = parse(text).unwrap();
        assert_eq!(sections.len(), 2);
        let remarks: Vec<&Option<Remark>> = sections
            .iter()
            .flat_map(|section| section.requirements.iter().map(|one| &one.remark))
            .collect();
        let by = Remark::By(vec!["A-1".to_owned(), "B-1".to_owned()]);
        let not_met = Remark::NotMet("no time".to_owned());
        assert_eq!(remarks, [&None, &Some(by), &Some(not_met)]);
    }

    #[test]
    fn lines_that_say_nothing_are_refused() {
        for line in [
            "A-1",
            "A-1 |  | by: B-1",
            "A-1 | words | because",
            "A-1 | words | not met: ",
            "A-1 | words | by: B | more",
        ] {
            let text = format!("== One\n{line}\n");
            assert!(parse(&text).is_err(), "{line}");
        }
        assert!(parse("A-1 | words\n").is_err(), "no heading");
    }
}
