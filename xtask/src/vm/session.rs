//! Read a virtual machine's serial console: markers of `init.sh`, libtest's lines.

use std::mem;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::parts::Part;
use crate::step::say;
use crate::test::{Reader, Rest, Tally};

/// Starts every line `init.sh` itself prints for us.
const MARKER: &str = "PODNET-VM ";

/// Longest silence of a machine; it hangs then, as no test takes as long.
///
/// The silence is before its time is over.
const SILENT: Duration = Duration::from_secs(600);

/// One run of the test programs: one boot, or more where a machine stops half-way.
#[derive(Debug)]
pub(super) struct Session {
    /// Of the parts that have ended.
    tally: Tally,
    /// Of the part that runs.
    reader: Reader,
    /// Label of the part that runs.
    running: Option<String>,
    ended: usize,
    done: bool,
    /// Parts that were cut short or not begun for want of time, with their rests.
    left: Vec<(String, Option<Rest>)>,
    problems: Vec<String>,
    /// When the machine last said something of its own accord.
    heard: Instant,
}

impl Session {
    /// A session of which no machine runs yet.
    pub(super) fn new() -> Self {
        Self {
            tally: Tally::default(),
            reader: Reader::default(),
            running: None,
            ended: 0,
            done: false,
            left: Vec::new(),
            problems: Vec::new(),
            heard: Instant::now(),
        }
    }

    /// Takes one line of the console, of time `now`; returns whether to show it.
    pub(super) fn line(&mut self, line: &str, now: Instant) -> bool {
        // The firmware moves the cursor before our first line.
        let Some(at) = line.find(MARKER) else {
            // What comes with the end, after a test was killed, is not of its own accord.
            let accord = !(line.is_empty() || line.ends_with(" ... ") || line.starts_with("SKIP"));
            if accord {
                self.heard = now;
            }
            return self.reader.line(line);
        };
        let words: Vec<&str> = line[at + MARKER.len()..].split_whitespace().collect();
        match words.as_slice() {
            // What was read of one that did not end is of no account: it begins again.
            ["start", label] => {
                self.reader = Reader::default();
                self.running = Some((*label).to_owned());
            }
            ["exit", label, code] => {
                self.ended += 1;
                self.running = None;
                if *code != "0" {
                    self.problems.push(format!("{label} exited with {code}"));
                } else if self.reader.results() == 0 {
                    self.problems
                        .push(format!("{label} ended without a test result"));
                }
                self.tally.add(mem::take(&mut self.reader).finish());
            }
            ["cut", _] => self.cut_running(now),
            ["late", label] => {
                self.ended += 1;
                self.left.push(((*label).to_owned(), None));
            }
            ["problem", words @ ..] => self.problems.push(words.join(" ")),
            ["done"] => self.done = true,
            _ => self.problems.push(format!("unknown marker `{line}`")),
        }
        self.heard = now;
        true
    }

    /// Whether the end marker was seen.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Counts the parts that have ended or were too late: they need no other machine.
    pub(super) fn ended(&self) -> usize {
        self.ended
    }

    /// Closes the session of a machine that was ended at `now` for want of time.
    ///
    /// What it had not yet run of `parts` is left out.
    pub(super) fn cut(&mut self, parts: &[Part], now: Instant) {
        if self.done {
            return;
        }
        self.cut_running(now);
        self.leave(parts);
    }

    /// Leaves out what no machine has begun of `parts`.
    pub(super) fn leave(&mut self, parts: &[Part]) {
        for part in parts.iter().skip(self.ended) {
            self.left.push((part.label.clone(), None));
        }
        self.ended = parts.len();
        self.done = true;
    }

    /// Counts the results of the running part; a failed test is a failure.
    ///
    /// It is so in one that has ended, too.
    fn cut_running(&mut self, now: Instant) {
        let label = self.running.take();
        let silent = now.saturating_duration_since(self.heard);
        if silent >= SILENT {
            self.problems.push(format!(
                "{} had said nothing for {} minutes when its time was over",
                label.as_deref().unwrap_or("the machine"),
                silent.as_secs() / 60
            ));
        }
        let Some(label) = label else { return };
        self.ended += 1;
        let (tally, rest) = mem::take(&mut self.reader).cut();
        if tally.failed > 0 {
            self.problems.push(format!(
                "{label} had {} failed when it was cut short",
                tests(tally.failed)
            ));
        }
        self.tally.add(tally);
        self.left.push((label, Some(rest)));
    }

    /// Lists the parts that were left out for want of time.
    fn left_out(&self, parts: &[Part]) -> Vec<String> {
        let words = |(label, rest): &(String, Option<Rest>)| {
            let whole = parts.iter().find(|part| part.label == *label);
            let whole = whole.and_then(|part| part.count);
            let Some(rest) = rest else {
                return match whole {
                    Some(count) => format!("{label} ({})", tests(count)),
                    None => label.clone(),
                };
            };
            let some = || "what was left".to_owned();
            let count = rest.tests.or(whole).map_or_else(some, tests);
            match &rest.running {
                Some(test) => format!("{count} of {label}, cut short in {test}"),
                None => format!("{count} of {label}, cut short"),
            }
        };
        self.left.iter().map(words).collect()
    }

    /// Counts the tests that were left out, where they were listed.
    fn tests_left_out(&self, parts: &[Part]) -> u64 {
        let count = |(label, rest): &(String, Option<Rest>)| {
            let whole = parts.iter().find(|part| part.label == *label);
            let rest = rest.as_ref().and_then(|rest| rest.tests);
            rest.or(whole.and_then(|part| part.count)).unwrap_or(0)
        };
        self.left.iter().map(count).sum()
    }

    /// Adds what was counted to `tally`.
    ///
    /// # Errors
    /// The machine stopped before the end marker, or a program failed or did not report.
    pub(super) fn finish(mut self, parts: &[Part], tally: &mut Tally) -> Result<()> {
        if !self.done {
            self.problems
                .push("the machine stopped before the end (see the kernel's log)".to_owned());
        }
        if self.ended != parts.len() {
            self.problems.push(format!(
                "{} of {} test programs ended",
                self.ended,
                parts.len()
            ));
        }
        let left = self.left_out(parts);
        if !left.is_empty() {
            say(format!("left out for want of time: {}", left.join("; ")));
        }
        tally.left_out += self.tests_left_out(parts);
        tally.add(self.tally);
        tally.add(self.reader.finish());
        if !self.problems.is_empty() {
            bail!("{}", self.problems.join("; "));
        }
        Ok(())
    }
}

fn tests(count: u64) -> String {
    match count {
        1 => "1 test".to_owned(),
        _ => format!("{count} tests"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";

    fn parts(labels: &[&str]) -> Vec<Part> {
        labels.iter().map(|label| Part::whole(label, &[])).collect()
    }

    fn read(lines: &[&str]) -> Session {
        let mut session = Session::new();
        for line in lines {
            session.line(line, Instant::now());
        }
        session
    }

    fn play(lines: &[&str], binaries: usize) -> (Tally, Result<()>) {
        close(read(lines), &parts(&["a", "b"][..binaries]))
    }

    fn close(session: Session, parts: &[Part]) -> (Tally, Result<()>) {
        let mut tally = Tally::default();
        let verdict = session.finish(parts, &mut tally);
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

    /// Of a part with three tests, of which one has passed and one runs.
    const BEGUN: [&str; 4] = [
        "PODNET-VM start a",
        "running 3 tests",
        "test x ... ok",
        "test y ... ",
    ];

    #[test]
    fn a_part_that_the_machine_cuts_short_counts_as_far_as_it_came() {
        let mut lines = vec!["PODNET-VM start a", "running 4 tests", "test x ... ok"];
        lines.extend(["test w ... ok", "test y ... ", "SKIP w: needs tcx"]);
        lines.extend(["PODNET-VM cut a", "PODNET-VM late b", "PODNET-VM done"]);
        let session = read(&lines);
        let mut parts = parts(&["a", "b"]);
        parts[1].count = Some(9);
        let wanted = ["2 tests of a, cut short in y", "b (9 tests)"];
        assert_eq!(session.left_out(&parts), wanted);
        let (tally, verdict) = close(session, &parts);
        verdict.unwrap();
        assert_eq!((tally.passed, tally.failed, tally.left_out), (1, 0, 11));
        assert!(tally.skipped.keys().eq(["w"]) && tally.ran.iter().eq(["x"]));
    }

    #[test]
    fn a_machine_that_is_ended_leaves_out_what_it_had_not_run() {
        let mut session = read(&BEGUN);
        let parts = parts(&["a", "b"]);
        session.cut(&parts, Instant::now());
        let wanted = ["2 tests of a, cut short in y", "b"];
        assert_eq!(session.left_out(&parts), wanted);
        assert!(session.is_done() && session.ended() == 2);
        close(session, &parts).1.unwrap();
    }

    #[test]
    fn a_test_that_had_failed_fails_the_part_that_is_cut_short() {
        let mut lines = BEGUN;
        lines[2] = "test x ... FAILED";
        let mut session = read(&lines);
        let parts = parts(&["a"]);
        session.cut(&parts, Instant::now());
        let (tally, verdict) = close(session, &parts);
        let wanted = "a had 1 test failed when it was cut short";
        assert_eq!(verdict.unwrap_err().to_string(), wanted);
        assert_eq!((tally.passed, tally.failed), (0, 1));
        assert!(tally.failures.contains_key("x"));
    }

    #[test]
    fn a_part_that_hangs_when_its_time_is_over_fails() {
        for (seconds, fails) in [(599, false), (600, true)] {
            let mut session = read(&BEGUN);
            let parts = parts(&["a"]);
            session.cut(&parts, session.heard + Duration::from_secs(seconds));
            let verdict = close(session, &parts).1;
            assert_eq!(verdict.is_err(), fails, "{seconds}");
        }
        // The machine ends the line of the test, and says that it has cut it short.
        let mut session = read(&BEGUN[..3]);
        let late = session.heard + Duration::from_secs(660);
        let end = ["SKIP x: needs tcx", "PODNET-VM cut a", "PODNET-VM done"];
        for line in ["test y ... "].into_iter().chain(end) {
            session.line(line, late);
        }
        let error = close(session, &parts(&["a"])).1.unwrap_err();
        let wanted = "a had said nothing for 11 minutes when its time was over";
        assert_eq!(error.to_string(), wanted);
    }

    #[test]
    fn a_machine_that_was_done_when_it_was_ended_is_as_it_said() {
        let mut lines = vec!["PODNET-VM start a", OK, "PODNET-VM exit a 0"];
        lines.push("PODNET-VM done");
        let mut session = read(&lines);
        let parts = parts(&["a"]);
        session.cut(&parts, session.heard + SILENT);
        assert!(session.left_out(&parts).is_empty());
        let (tally, verdict) = close(session, &parts);
        verdict.unwrap();
        assert_eq!(tally.passed, 2);
    }
}
