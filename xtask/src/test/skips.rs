//! Read which tests may be skipped, and where.
//!
//! An unexpected skip is a failure: otherwise a machine that lost a feature would test less and less, and
//! stay green.

use std::fmt;

use anyhow::{Result, bail};

/// Where a test ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// The unit tier: with or without root, and without the eBPF object.
    Unit,
    /// The netns tier: root on this machine, everything built.
    Host,
    /// In a virtual machine with the Debian kernel of this version (`5.10`).
    Kernel(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Unit => f.write_str("unit"),
            Place::Host => f.write_str("host"),
            Place::Kernel(version) => f.write_str(version),
        }
    }
}

/// The list in `xtask/expected-skips.txt`: one rule a line, `#` for comments.
///
/// `<place> <test pattern> <reason pattern>`, where place is `any`, `unit`, `host` or a
/// kernel version, and `*` in a pattern stands for any text.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    place: String,
    test: String,
    reason: String,
}

impl Expected {
    /// The list of this repository.
    pub(crate) fn load() -> Result<Self> {
        Self::parse(include_str!("../../expected-skips.txt"))
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut rules = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut rest = line;
            let (place, test) = (next_word(&mut rest), next_word(&mut rest));
            if rest.is_empty() {
                bail!(
                    "xtask/expected-skips.txt:{}: want `<place> <test> <reason>`, have `{line}`",
                    index + 1
                );
            }
            rules.push(Rule {
                place: place.to_owned(),
                test: test.to_owned(),
                reason: rest.to_owned(),
            });
        }
        Ok(Self { rules })
    }

    /// Whether this test may be skipped for this reason in this place.
    pub(crate) fn allows(&self, place: &Place, test: &str, reason: &str) -> bool {
        self.rules.iter().any(|rule| {
            rule.covers(place) && matches(&rule.test, test) && matches(&rule.reason, reason)
        })
    }
}

/// Cuts the first word off `rest`, with the space after it.
fn next_word<'a>(rest: &mut &'a str) -> &'a str {
    let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((*rest, ""));
    *rest = after.trim_start();
    word
}

impl Rule {
    fn covers(&self, place: &Place) -> bool {
        self.place == "any" || self.place == place.to_string()
    }
}

/// Whether `text` is `pattern`, with `*` standing for any run of characters.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(rest) = text.strip_prefix(head) else {
        return false;
    };
    rest.char_indices()
        .map(|(at, _)| at)
        .chain([rest.len()])
        .any(|at| matches(tail, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# comment\n\n5.10   datapath::tcx::*  needs tcx*\n\
                        unit * needs root\nhost interop::* *no Go*\n";

    fn kernel(version: &str) -> Place {
        Place::Kernel(version.to_owned())
    }

    #[test]
    fn a_skip_is_expected_only_on_its_kernel() {
        let list = Expected::parse(LIST).unwrap();
        assert!(list.allows(
            &kernel("5.10"),
            "datapath::tcx::replaces",
            "needs tcx (6.6)"
        ));
        assert!(!list.allows(
            &kernel("6.12"),
            "datapath::tcx::replaces",
            "needs tcx (6.6)"
        ));
        let host = Place::Host;
        assert!(!list.allows(&host, "datapath::tcx::replaces", "needs tcx (6.6)"));
    }

    #[test]
    fn a_skip_for_another_reason_is_not_expected() {
        let list = Expected::parse(LIST).unwrap();
        assert!(!list.allows(&kernel("5.10"), "datapath::tcx::replaces", "no bpffs"));
    }

    #[test]
    fn the_privileged_tier_is_not_excused_for_missing_root() {
        let list = Expected::parse(LIST).unwrap();
        assert!(list.allows(&Place::Unit, "a", "needs root"));
        assert!(!list.allows(&Place::Host, "a", "needs root"));
    }

    #[test]
    fn a_rule_without_a_reason_is_refused_with_its_line() {
        let error = Expected::parse("# x\n5.10 test\n").unwrap_err();
        assert!(
            error.to_string().contains("expected-skips.txt:2"),
            "{error}"
        );
    }

    #[test]
    fn stars_match_any_text_and_nothing_else_does() {
        for (pattern, text, yes) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abbcd", false),
            ("*b*", "abc", true),
            ("abc", "abcd", false),
            ("a*b*c", "a__b__c", true),
        ] {
            assert_eq!(matches(pattern, text), yes, "{pattern} {text}");
        }
    }

    #[test]
    fn the_list_of_this_repository_parses() {
        Expected::load().unwrap();
    }
}
