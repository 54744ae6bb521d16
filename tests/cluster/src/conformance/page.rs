//! The page of a suite's results: how it was made, of what, and each test.

use std::process::Command;

use anyhow::{Context, Result};

use super::super::golang::{CONTAINERD, KUBERNETES};
use super::report::Results;
use xtask::step::capture;
use xtask::workspace;

/// The longest line of text.
const WIDTH: usize = 116;

/// The parts of a page that differ.
pub(super) struct Page<'a> {
    /// Heading and introduction; the commands follow in the same paragraph.
    pub(super) introduction: &'a str,
    /// The word of `cluster up --default`.
    pub(super) network: &'a str,
    pub(super) nodes: usize,
    /// Arguments of `cluster conformance`, with `--page`.
    pub(super) arguments: &'a str,
    /// Other programs that took part, as `cyclonus v0.5.6`.
    pub(super) with: &'a str,
    /// Sentences about what was run and how.
    pub(super) what: &'a str,
}

impl Page<'_> {
    /// Writes the page for docs.
    ///
    /// # Errors
    /// There is no name of the kernel or of the commit.
    pub(super) fn text(&self, results: &Results) -> Result<String> {
        let kernel = rustix::system::uname();
        let kernel = kernel.release().to_str().context("the kernel's release")?;
        Ok(self.of(results, &commit()?, kernel))
    }

    fn of(&self, results: &Results, commit: &str, kernel: &str) -> String {
        format!(
            "{} These commands write this page:

```sh
cargo xtask cluster up --nodes {nodes} --default {}
cargo xtask cluster conformance {}
cargo xtask cluster down
```

{}

{}",
            self.introduction,
            self.network,
            self.arguments,
            wrapped(&self.facts(results, commit, kernel)),
            results.table(),
            nodes = self.nodes,
        )
    }

    fn facts(&self, results: &Results, commit: &str, kernel: &str) -> String {
        format!(
            "**{}**, on {}, in {} s. podnet {} at commit {commit}, {}, Kubernetes {KUBERNETES} with kube-proxy in \
             nftables mode, containerd {CONTAINERD}, Linux {kernel}; {} nodes in network namespaces of one machine. {}",
            results.sum(),
            results.date,
            results.seconds,
            env!("CARGO_PKG_VERSION"),
            self.with,
            self.nodes,
            self.what,
        )
    }
}

/// Breaks long lines of a text at spaces, but not those of a list.
fn wrapped(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.starts_with("- ") {
            lines.push(line.to_owned());
            continue;
        }
        lines.push(String::new());
        for word in line.split_whitespace() {
            match lines.last_mut() {
                Some(last) if last.is_empty() => last.push_str(word),
                Some(last) if last.len() + 1 + word.len() <= WIDTH => {
                    last.push(' ');
                    last.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
    }
    lines.join("\n")
}

/// A word of a command as a shell takes it.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./,:=".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns the day, in the time zone of the machine, as ginkgo says it.
///
/// # Errors
/// There is no `date`.
pub(super) fn today() -> Result<String> {
    Ok(capture(Command::new("date").arg("+%F"))?.trim().to_owned())
}

/// The commit of the checkout, and whether there are changes that it does not have.
fn commit() -> Result<String> {
    let git = |arguments: &[&str]| {
        capture(
            Command::new("git")
                .current_dir(workspace::root())
                .args(arguments),
        )
    };
    let commit = git(&["rev-parse", "--short=10", "HEAD"]).context("the commit for the page")?;
    // The page itself is one.
    let changes = git(&["status", "--porcelain", "--", ".", ":!docs"])?;
    let with = if changes.trim().is_empty() {
        ""
    } else {
        " with changes"
    };
    Ok(format!("{}{with}", commit.trim()))
}

#[cfg(test)]
mod tests {
    use super::super::report::{Outcome, Spec};
    use super::*;

    #[test]
    fn a_page_says_how_it_was_made_of_what_and_each_test() {
        let page = Page {
            introduction: "# Heading\n\nWhat it is.",
            network: "native",
            nodes: 2,
            arguments: "cyclonus --page docs/cyclonus.md",
            with: "cyclonus v0.5.6",
            what: "More.",
        };
        let spec = Spec {
            name: "one".to_owned(),
            outcome: Outcome::Passed,
            seconds: 3,
        };
        let results = Results {
            specs: vec![spec],
            date: "2026-11-27".to_owned(),
            seconds: 4,
        };
        let text = page.of(&results, "0123456789", "6.1.0");
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        for part in [
            "# Heading\n\nWhat it is. These commands write this page:\n",
            "\ncargo xtask cluster up --nodes 2 --default native\n",
            "\ncargo xtask cluster conformance cyclonus --page docs/cyclonus.md\n",
            "**1 passed, 0 failed, 0 skipped**, on 2026-11-27, in 4 s. podnet ",
            " at commit 0123456789, cyclonus v0.5.6,\nKubernetes ",
            "of one machine. More.\n\n| Spec | Result | s |\n",
            "| one | passed | 3 |\n",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn lines_are_broken_at_spaces_and_lists_are_kept() {
        let long = "word ".repeat(30);
        let item = format!("- {long}");
        let text = wrapped(&format!("{long}\n\n{item}"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].len(), 114);
        assert_eq!(
            lines[1..],
            ["word word word word word word word", "", item.as_str()]
        );
    }

    #[test]
    fn a_word_that_a_shell_would_read_otherwise_is_quoted() {
        assert_eq!(quoted("direction,rule"), "direction,rule");
        assert_eq!(quoted(r"\[sig]"), r"'\[sig]'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
