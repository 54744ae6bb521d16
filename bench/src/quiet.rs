//! Wait until a machine is quiet, and see what others do on it.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::interrupt;
use crate::report::load::{Load, Times};

/// Span of a look at what others do.
const LOOK: Duration = Duration::from_secs(2);
/// The same before a case of a quick run.
const SHORT_LOOK: Duration = Duration::from_millis(200);
/// Longest wait of a case for work that the one before has left, and for others.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at Ctrl-C.
const STEP: Duration = Duration::from_millis(100);

/// Rule by which a machine is quiet enough to measure on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Nothing is measured on a busy machine.
    Refuse,
    /// The load is written down, and that is all.
    Anyway,
    /// The same with a short look: a quick run has no figures to be spoilt.
    Quick,
}

/// Times of the machine's processors up to now.
///
/// # Errors
/// `/proc/stat` is not what proc_stat(5) says.
pub fn times() -> Result<Times> {
    let text = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    Times::parse(&text).context("/proc/stat has no lines `cpu` and `procs_running`")
}

/// Looks what others do before a case or a run.
///
/// # Errors
/// The rule refuses a busy machine, or the run is interrupted.
pub fn look(rule: Rule, patience: Duration) -> Result<Load> {
    let span = if rule == Rule::Quick {
        SHORT_LOOK
    } else {
        LOOK
    };
    await_quiet(rule, patience, || {
        let before = times()?;
        let end = Instant::now() + span;
        while Instant::now() < end {
            interrupt::check()?;
            thread::sleep(STEP);
        }
        Ok(Load::between(&before, &times()?))
    })
}

/// Looks before a case: work that the case before has left ends in some seconds.
///
/// # Errors
/// As [`look`].
pub fn before_case(rule: Rule) -> Result<Load> {
    look(rule, PATIENCE)
}

fn await_quiet(
    rule: Rule,
    patience: Duration,
    mut look: impl FnMut() -> Result<Load>,
) -> Result<Load> {
    let end = Instant::now() + patience;
    loop {
        let load = look()?;
        let reason = load.too_much().filter(|_| rule == Rule::Refuse);
        match reason {
            None => return Ok(load),
            Some(reason) if Instant::now() >= end => bail!(
                "the machine is busy: {reason}. End what runs beside the bench, or give --load-anyway \
                 for figures that say so"
            ),
            Some(_) => {}
        }
    }
}

/// The program that gives real-time priority (chrt(1)), and its arguments.
///
/// The lowest of them: a probe shall go before the agent and other programs, not before the kernel's threads
/// that have it too.
pub const REALTIME: [&str; 3] = ["chrt", "--fifo", "1"];

static HAS_REALTIME: OnceLock<bool> = OnceLock::new();

/// Whether programs can be started with real-time priority here.
pub fn has_realtime() -> bool {
    *HAS_REALTIME.get_or_init(starts_with_realtime)
}

fn starts_with_realtime() -> bool {
    let [program, arguments @ ..] = REALTIME;
    Command::new(program)
        .args(arguments)
        .arg("true")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The command that starts a program with real-time priority, where it can be had.
pub fn realtime(program: &str) -> Command {
    if !has_realtime() {
        return Command::new(program);
    }
    let [chrt, arguments @ ..] = REALTIME;
    let mut command = Command::new(chrt);
    command.args(arguments).arg(program);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(busy: f64) -> Load {
        Load {
            busy,
            stolen: 0.0,
            runnable: 0,
        }
    }

    #[test]
    fn a_busy_machine_is_refused_with_a_way_out() {
        let error = await_quiet(Rule::Refuse, Duration::ZERO, || Ok(load(0.5)));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("others had 50.0 %"), "{error}");
        assert!(error.contains("--load-anyway"), "{error}");
    }

    #[test]
    fn a_machine_that_gets_quiet_is_waited_for() {
        let mut looks = [0.5, 0.3, 0.01].into_iter();
        let found = await_quiet(Rule::Refuse, PATIENCE, || {
            Ok(load(looks.next().context("a fourth look")?))
        });
        assert_eq!(found.unwrap(), load(0.01));
    }

    #[test]
    fn a_load_that_is_taken_is_written_down_at_the_first_look() {
        for rule in [Rule::Anyway, Rule::Quick] {
            let mut looks = 0;
            let found = await_quiet(rule, PATIENCE, || {
                looks += 1;
                Ok(load(0.5))
            });
            assert_eq!((found.unwrap(), looks), (load(0.5), 1));
        }
    }
}
