//! Load of a machine by others while the bench rests, and its bound.

use serde::{Deserialize, Serialize};

/// Share of all processors' time that others may have had.
pub const MOST_BUSY: f64 = 0.10;
/// Share that a hypervisor may have taken away.
pub const MOST_STOLEN: f64 = 0.02;

/// Times of a machine's processors (proc_stat(5)), in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// In which something ran, interrupts included.
    pub busy: u64,
    /// In which nothing did.
    pub idle: u64,
    /// In which the hypervisor ran something else.
    pub stolen: u64,
    /// Tasks that run or wait for a processor at this moment, this one included.
    pub runnable: u64,
}

/// Load by others in a span of time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Share of all processors' time in which others ran, 0 to 1.
    pub busy: f64,
    /// Share that a hypervisor took away, 0 to 1.
    pub stolen: f64,
    /// Further tasks that ran or waited for a processor at its end.
    pub runnable: u64,
}

impl Times {
    /// Reads `/proc/stat`; nothing where it has no such lines.
    pub fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let numbers: Vec<u64> = line
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        let [user, nice, system, idle, iowait, irq, softirq, stolen, ..] = numbers[..] else {
            return None;
        };
        let running = text
            .lines()
            .find_map(|line| line.strip_prefix("procs_running "))?;
        Some(Self {
            busy: user + nice + system + irq + softirq,
            idle: idle + iowait,
            stolen,
            runnable: running.trim().parse().ok()?,
        })
    }
}

impl Load {
    /// From a moment to a later one; a span without a tick counts as quiet.
    pub fn between(before: &Times, after: &Times) -> Self {
        let part = |of: fn(&Times) -> u64| of(after).saturating_sub(of(before)) as f64;
        let (busy, stolen) = (part(|times| times.busy), part(|times| times.stolen));
        let all = (busy + stolen + part(|times| times.idle)).max(1.0);
        Self {
            busy: crate::series::round_off(busy / all),
            stolen: crate::series::round_off(stolen / all),
            runnable: after.runnable.saturating_sub(1),
        }
    }

    /// Returns why nothing should be measured now; nothing on a quiet machine.
    pub fn too_much(&self) -> Option<String> {
        (self.busy > MOST_BUSY || self.stolen > MOST_STOLEN).then(|| {
            format!(
                "{}; figures hold up to {:.0} % and {:.0} %",
                self.line(),
                MOST_BUSY * 100.0,
                MOST_STOLEN * 100.0
            )
        })
    }

    /// One line.
    pub fn line(&self) -> String {
        format!(
            "others had {:.1} % of the processors, a hypervisor {:.1} %",
            self.busy * 100.0,
            self.stolen * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str =
        "cpu  100 0 50 1000 10 5 5 20 0 0\ncpu0 1 2 3\nctxt 5\nprocs_running 1\nprocs_blocked 0\n";

    #[test]
    fn a_machines_times_are_read() {
        let expected = Times {
            busy: 160,
            idle: 1010,
            stolen: 20,
            runnable: 1,
        };
        assert_eq!(Times::parse(BEFORE), Some(expected));
        assert_eq!(Times::parse("cpu  1 2 3\nprocs_running 1\n"), None);
        assert_eq!(Times::parse("cpu  1 2 3 4 5 6 7 8\n"), None);
    }

    fn after(busy: u64, idle: u64, stolen: u64) -> Load {
        let before = Times::parse(BEFORE).unwrap();
        let after = Times {
            busy: before.busy + busy,
            idle: before.idle + idle,
            stolen: before.stolen + stolen,
            runnable: 4,
        };
        Load::between(&before, &after)
    }

    #[test]
    fn shares_are_of_all_time_and_the_bench_itself_is_not_counted() {
        let load = after(30, 60, 10);
        assert!((load.busy - 0.3).abs() < 1e-9 && (load.stolen - 0.1).abs() < 1e-9);
        assert_eq!(load.runnable, 3);
        assert_eq!(after(0, 0, 0).too_much(), None);
    }

    #[test]
    fn a_machine_is_busy_above_the_bound_and_not_at_it() {
        assert_eq!(after(10, 88, 2).too_much(), None);
        let reason = after(11, 89, 0).too_much().unwrap();
        assert!(reason.contains("others had 11.0 %"), "{reason}");
        assert!(reason.contains("up to 10 % and 2 %"), "{reason}");
        assert!(after(0, 97, 3).too_much().is_some());
    }
}
