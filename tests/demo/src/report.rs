//! Print the demo's headings, and lines that hold or do not.

use std::fmt::Display;
use std::io::IsTerminal;
use std::time::Instant;

/// Prints as things happen, and counts what is not as it must be.
#[derive(Debug)]
pub(crate) struct Report {
    colours: bool,
    held: usize,
    failed: usize,
    started: Instant,
}

impl Report {
    /// Colours only for people: on a terminal, and not when `NO_COLOR` is set.
    pub(crate) fn new() -> Self {
        Self {
            colours: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
            held: 0,
            failed: 0,
            started: Instant::now(),
        }
    }

    /// Says what comes next.
    pub(crate) fn heading(&self, text: &str) {
        println!("\n{}", self.paint("1", text));
    }

    /// A line that must hold.
    pub(crate) fn check(&mut self, holds: bool, text: impl Display) {
        if holds {
            self.held += 1;
        } else {
            self.failed += 1;
        }
        println!("  {} {text}", self.mark(holds));
    }

    /// A line that is only said.
    pub(crate) fn note(&self, text: impl Display) {
        println!("    {}", self.paint("2", &text.to_string()));
    }

    /// ✓ or ✗.
    fn mark(&self, holds: bool) -> String {
        if holds {
            self.paint("32", "✓")
        } else {
            self.paint("31", "✗")
        }
    }

    /// The last line; true if everything held.
    pub(crate) fn end(&self) -> bool {
        let seconds = self.started.elapsed().as_secs_f32();
        let verdict = match self.failed {
            0 => format!("all {} lines are as they must be", self.held),
            failed => format!(
                "{failed} of {} lines are NOT as they must be",
                failed + self.held
            ),
        };
        println!(
            "\n{} {verdict}, {seconds:.0} s",
            self.mark(self.failed == 0)
        );
        self.failed == 0
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colours {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
