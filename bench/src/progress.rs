//! Show the progress of a case: a bar on a terminal, lines elsewhere.
//!
//! All of it is on stderr: stdout has the figures.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The progress of one case.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    plain: bool,
    title: String,
}

impl Progress {
    /// Nothing done yet; `place` is which of how many cases it is.
    pub fn start(title: &str, (number, count): (usize, usize)) -> Self {
        let plain = !std::io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = "{prefix} {bar:30} {pos}/{len} {elapsed_precise} {wide_msg}";
        // A style that cannot be parsed leaves indicatif's own.
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        let title = format!("[{number}/{count}] {title}");
        bar.set_prefix(title.clone());
        if plain {
            bar.set_draw_target(ProgressDrawTarget::hidden());
            eprintln!("bench: {title}");
        } else {
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        Self { bar, plain, title }
    }

    /// So many steps more are to come.
    pub fn expect(&self, steps: usize) {
        self.bar
            .set_length(self.bar.length().unwrap_or(0) + steps as u64);
    }

    /// Shows the current step on the bar.
    pub fn say(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Shows the current step on the bar, or as a line where there is none.
    pub fn stage(&self, what: &str) {
        self.say(what);
        if self.plain {
            eprintln!("bench: {}: {what}", self.title);
        }
    }

    /// A step is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Takes the bar away and says how it ended.
    pub fn end(&self, outcome: &str) {
        self.bar.finish_and_clear();
        eprintln!("bench: {} {outcome}", self.title);
    }
}
