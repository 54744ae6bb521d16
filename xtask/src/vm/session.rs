//! Reading a virtual machine's serial console: the markers `init.sh` prints, and libtest's lines
//! between them.

use std::mem;

use anyhow::{Result, bail};

use crate::step::say;
use crate::test::{Reader, Tally};

/// Starts every line `init.sh` itself prints for us.
const MARKER: &str = "PODNET-VM ";

/// One run of the test programs: one boot, or more where a machine stops half-way.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// Of the programs that have ended.
    tally: Tally,
    /// Of the program that runs.
    reader: Reader,
    ended: usize,
    done: bool,
    /// Programs that were not begun, for their time was over.
    late: Vec<String>,
    problems: Vec<String>,
}

impl Session {
    /// Takes one line of the console; the answer is whether a person wants to see it.
    pub(crate) fn line(&mut self, line: &str) -> bool {
        // The firmware moves the cursor before our first line.
        let Some(at) = line.find(MARKER) else {
            return self.reader.line(line);
        };
        let words: Vec<&str> = line[at + MARKER.len()..].split_whitespace().collect();
        match words.as_slice() {
            // What was read of one that did not end is of no account: it begins again.
            ["start", _] => self.reader = Reader::default(),
            ["exit", binary, code] => {
                self.ended += 1;
                if *code != "0" {
                    self.problems.push(format!("{binary} exited with {code}"));
                } else if self.reader.results() == 0 {
                    self.problems
                        .push(format!("{binary} ended without a test result"));
                }
                self.tally.add(mem::take(&mut self.reader).finish());
            }
            ["late", binary] => {
                self.ended += 1;
                self.late.push((*binary).to_owned());
            }
            ["problem", words @ ..] => self.problems.push(words.join(" ")),
            ["done"] => self.done = true,
            _ => self.problems.push(format!("unknown marker `{line}`")),
        }
        true
    }

    /// Whether the end marker was seen.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// How many programs have ended, or were too late to begin: these need no other machine.
    pub(crate) fn ended(&self) -> usize {
        self.ended
    }

    /// Adds what was counted to `tally`.
    ///
    /// # Errors
    /// The machine stopped before the end marker, or a program failed or did not report.
    pub(crate) fn finish(mut self, programs: usize, tally: &mut Tally) -> Result<()> {
        if !self.done {
            self.problems
                .push("the machine stopped before the end (see the kernel's log)".to_owned());
        }
        if self.ended != programs {
            self.problems
                .push(format!("{} of {programs} test programs ended", self.ended));
        }
        tally.add(self.tally);
        tally.add(self.reader.finish());
        if !self.late.is_empty() {
            say(format!(
                "left out for want of time: {}",
                self.late.join(", ")
            ));
        }
        if !self.problems.is_empty() {
            bail!("{}", self.problems.join("; "));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";

    fn play(lines: &[&str], binaries: usize) -> (Tally, Result<()>) {
        let mut session = Session::default();
        for line in lines {
            session.line(line);
        }
        let mut tally = Tally::default();
        let verdict = session.finish(binaries, &mut tally);
        (tally, verdict)
    }

    #[test]
    fn a_whole_session_passes_and_is_counted() {
        let lines = [
            "noise",
            "PODNET-VM start a",
            OK,
            "PODNET-VM exit a 0",
            "PODNET-VM done",
        ];
        let (tally, verdict) = play(&lines, 1);
        verdict.unwrap();
        assert_eq!(tally.passed, 2);
    }

    #[test]
    fn a_panic_before_the_end_marker_fails_and_keeps_the_count() {
        let (tally, verdict) = play(&["PODNET-VM start a", OK, "Kernel panic"], 1);
        let error = verdict.unwrap_err().to_string();
        assert!(
            error.contains("before the end") && error.contains("0 of 1"),
            "{error}"
        );
        assert_eq!(tally.passed, 2);
    }

    #[test]
    fn a_binary_that_fails_or_says_nothing_is_named() {
        let lines = [
            "PODNET-VM start a",
            "PODNET-VM exit a 101",
            "PODNET-VM start b",
            "PODNET-VM exit b 0",
            "PODNET-VM done",
        ];
        let error = play(&lines, 2).1.unwrap_err().to_string();
        assert_eq!(error, "a exited with 101; b ended without a test result");
    }

    #[test]
    fn a_marker_after_control_characters_is_still_read() {
        let lines = [
            "\u{1b}[2JPODNET-VM start a",
            OK,
            "PODNET-VM exit a 0",
            "PODNET-VM done",
        ];
        play(&lines, 1).1.unwrap();
    }

    #[test]
    fn a_binary_whose_time_is_over_is_no_failure() {
        let lines = [
            "PODNET-VM start a",
            OK,
            "PODNET-VM exit a 0",
            "PODNET-VM late b",
            "PODNET-VM done",
        ];
        let (tally, verdict) = play(&lines, 2);
        verdict.unwrap();
        assert_eq!((tally.passed, tally.failed), (2, 0));
    }

    #[test]
    fn a_second_machine_begins_the_program_that_did_not_end_and_no_other() {
        let lines = [
            "PODNET-VM start a",
            "test x ... FAILED",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out",
            "PODNET-VM exit a 101",
            "PODNET-VM start b",
            "test y ... FAILED",
            "SKIP z: needs tcx",
            "Kernel panic",
            "PODNET-VM start b",
            "test y ... ok",
            OK,
            "PODNET-VM exit b 0",
            "PODNET-VM done",
        ];
        let (tally, verdict) = play(&lines, 2);
        assert_eq!(verdict.unwrap_err().to_string(), "a exited with 101");
        assert_eq!((tally.passed, tally.failed), (3, 1));
        assert!(tally.failures.keys().eq(["x"]) && tally.skipped.is_empty());
    }

    #[test]
    fn a_module_that_did_not_load_fails_the_run() {
        let error = play(&["PODNET-VM problem insmod veth", "PODNET-VM done"], 0)
            .1
            .unwrap_err();
        assert_eq!(error.to_string(), "insmod veth");
    }
}
