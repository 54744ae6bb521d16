//! Shortens lists of problems in a message to a length that a person reads.
//!
//! Each problem is shortened too, and the number of the rest is given.

use std::fmt::{self, Write};

/// The most problems that one message, event, condition or log line names.
pub const PROBLEMS_MAX: usize = 10;
/// The longest problem in a message, bytes.
pub const PROBLEM_BYTES: usize = 512;

/// Formats problems as `first; second; and 3 more`.
///
/// The author of an annotation decides how many problems it has and how long each is. A message that
/// grows with it fills logs, and does not fit into events, conditions and frames.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a, T> {
    problems: &'a [T],
    beyond: usize,
    most: usize,
    separator: &'static str,
}

impl<'a, T> Listed<'a, T> {
    /// Formats these problems with semicolons between them.
    #[must_use]
    pub const fn new(problems: &'a [T]) -> Self {
        Self {
            problems,
            beyond: 0,
            most: PROBLEMS_MAX,
            separator: "; ",
        }
    }

    /// Counts further problems, which were not kept.
    #[must_use]
    pub const fn beyond(mut self, count: usize) -> Self {
        self.beyond = count;
        self
    }

    /// Names up to so many problems, where the author cannot write more.
    #[must_use]
    pub const fn at_most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Puts another text between two problems.
    #[must_use]
    pub const fn separated_by(mut self, separator: &'static str) -> Self {
        self.separator = separator;
        self
    }
}

impl<T: fmt::Display> fmt::Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().take(self.most).enumerate() {
            if index > 0 {
                f.write_str(self.separator)?;
            }
            write!(f, "{}", Shortened(problem, PROBLEM_BYTES))?;
        }
        let left = self.problems.len().saturating_sub(self.most);
        match left.saturating_add(self.beyond) {
            0 => Ok(()),
            more => write!(f, "{}and {more} more", self.separator),
        }
    }
}

/// Formats as much of a value as fits into so many bytes; `…` stands for the rest.
#[derive(Clone, Copy, Debug)]
pub struct Shortened<T>(pub T, pub usize);

impl<T: fmt::Display> fmt::Display for Shortened<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cut = Cut {
            to: f,
            left: self.1,
            is_cut: false,
        };
        write!(cut, "{}", self.0)
    }
}

/// Passes on the first bytes, and drops what follows them.
struct Cut<'a, 'b> {
    to: &'a mut fmt::Formatter<'b>,
    left: usize,
    is_cut: bool,
}

impl Write for Cut<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.is_cut {
            return Ok(());
        }
        if text.len() <= self.left {
            self.left -= text.len();
            return self.to.write_str(text);
        }
        self.is_cut = true;
        let end = text.floor_char_boundary(self.left);
        self.to.write_str(text.get(..end).unwrap_or_default())?;
        self.to.write_char('…')
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// ATT-04d
    #[test]
    fn ten_problems_are_named_and_the_rest_is_counted() {
        let problems: Vec<String> = (1..=12).map(|number| format!("p{number}")).collect();
        let text = |count: usize| Listed::new(&problems[..count]).to_string();
        assert_eq!(text(0), "");
        assert_eq!(text(2), "p1; p2");
        assert_eq!(text(10), "p1; p2; p3; p4; p5; p6; p7; p8; p9; p10");
        assert_eq!(
            text(11),
            "p1; p2; p3; p4; p5; p6; p7; p8; p9; p10; and 1 more"
        );
        let dropped = Listed::new(&problems).beyond(30_000).separated_by(", ");
        assert!(
            dropped.to_string().ends_with(", p10, and 30002 more"),
            "{dropped}"
        );
        proof::of!("ATT-04d");
    }

    /// ATT-04d
    #[test]
    fn a_long_problem_is_cut_at_a_character() {
        assert_eq!(Shortened("abc", 3).to_string(), "abc");
        assert_eq!(Shortened("abcd", 3).to_string(), "abc…");
        assert_eq!(Shortened("aä", 2).to_string(), "a…");
        // The text comes in pieces.
        assert_eq!(
            Shortened(format_args!("{}{}{}", "ab", "cd", "e"), 3).to_string(),
            "abc…"
        );
        proof::of!("ATT-04d");
    }

    proptest! {
        /// ATT-04d
        #[test]
        fn a_message_is_bounded_whatever_is_in_it(
            problems in prop::collection::vec(".{0,700}", 0..15), beyond in any::<usize>(),
        ) {
            let text = Listed::new(&problems).beyond(beyond).to_string();
            let one = PROBLEM_BYTES + "…; ".len();
            prop_assert!(text.len() <= PROBLEMS_MAX * one + "and  more".len() + 20, "{}", text.len());
            proof::of!("ATT-04d");
        }
    }
}
