//! Processor time: of the whole machine, interrupts included, and of one process.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// Time of the machine's processors since it started, in ticks (proc_stat(5)).
///
/// The kernel samples it at each timer interrupt unless it was built to account precisely: good for
/// seconds of work, not for milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    program: u64,
    kernel: u64,
    interrupts: u64,
}

/// Processor seconds of the whole machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spent {
    /// In programs.
    pub program: f64,
    /// In the kernel on behalf of programs, kernel threads (ksoftirqd) included.
    pub kernel: f64,
    /// In interrupts and what they put off (softirq), wherever it ran.
    pub interrupts: f64,
}

impl Spent {
    /// All of it.
    pub fn all(&self) -> f64 {
        self.program + self.kernel + self.interrupts
    }
}

impl Machine {
    /// Up to now.
    ///
    /// # Errors
    /// `/proc/stat` is not what proc_stat(5) says.
    pub fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
        Self::parse(&text).context("/proc/stat has no line `cpu`")
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let numbers: Vec<u64> = line
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        let [user, nice, system, _idle, _iowait, irq, softirq, ..] = numbers[..] else {
            return None;
        };
        Some(Self {
            program: user + nice,
            kernel: system,
            interrupts: irq + softirq,
        })
    }

    /// From then to now.
    ///
    /// # Errors
    /// As [`Self::now`].
    pub fn spent(&self) -> Result<Spent> {
        let now = Self::now()?;
        Ok(Spent {
            program: seconds(now.program.saturating_sub(self.program)),
            kernel: seconds(now.kernel.saturating_sub(self.kernel)),
            interrupts: seconds(now.interrupts.saturating_sub(self.interrupts)),
        })
    }
}

/// `USER_HZ` is the same in all of `/proc`.
fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Returns the processor time of a process (proc_pid_stat(5)).
///
/// Its sum is exact to a tick, whatever the kernel samples.
///
/// # Errors
/// It is gone.
pub fn of_process(pid: u32) -> Result<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("process {pid}"))?;
    let ticks = process_ticks(&text).with_context(|| format!("the times of process {pid}"))?;
    Ok(Duration::from_secs_f64(seconds(ticks)))
}

fn process_ticks(text: &str) -> Option<u64> {
    // The name, in brackets, may have spaces and brackets.
    let (_, rest) = text.rsplit_once(')')?;
    let mut words = rest.split_whitespace().skip(11);
    let user: u64 = words.next()?.parse().ok()?;
    let system: u64 = words.next()?.parse().ok()?;
    Some(user + system)
}

/// Returns the processor time of a process's threads, by the scheduler's clock.
///
/// It is exact where [`of_process`] counts ticks. Threads that have ended do not count.
///
/// # Errors
/// It is gone, or the kernel does not keep these statistics.
pub fn run_time_of(pid: u32) -> Result<Duration> {
    let threads = schedule_of(pid)?;
    Ok(threads.iter().map(|(ran, _)| *ran).sum())
}

/// Returns the share of a processor that a process's busiest thread has had.
///
/// The whole is the time since it started in which it ran, or waited for a processor.
///
/// # Errors
/// As of [`run_time_of`].
pub fn share_of(pid: u32) -> Result<f64> {
    let threads = schedule_of(pid)?;
    let busiest = threads.iter().max_by_key(|(ran, _)| *ran);
    let (ran, waited) = busiest.context("a process without threads")?;
    Ok(ran.as_secs_f64() / (*ran + *waited).as_secs_f64())
}

/// Reads the run time and waiting time of each thread of a process.
///
/// They are in `/proc/PID/task/TID/schedstat`.
fn schedule_of(pid: u32) -> Result<Vec<(Duration, Duration)>> {
    let tasks = format!("/proc/{pid}/task");
    let mut threads = Vec::new();
    for entry in fs::read_dir(&tasks).with_context(|| format!("process {pid}"))? {
        let path = entry?.path().join("schedstat");
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("reading {}", path.display()))?;
        threads.push(schedule(&text).with_context(|| format!("{}: `{text}`", path.display()))?);
    }
    Ok(threads)
}

fn schedule(text: &str) -> Option<(Duration, Duration)> {
    let mut words = text.split_whitespace().map(|word| word.parse().ok());
    let mut next = || Some(Duration::from_nanos(words.next()??));
    Some((next()?, next()?))
}

/// Resident memory of a process in MiB.
///
/// # Errors
/// It is gone.
pub fn memory_of(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: f64 = line
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .context("no VmRSS")?
        .trim()
        .parse()?;
    Ok(kib / 1024.0)
}

/// Returns the memory of the BPF maps that a process has open, in MiB.
///
/// `None` where the kernel does not tell.
///
/// # Errors
/// It is gone.
pub fn maps_of(pid: u32) -> Result<Option<f64>> {
    let mut maps = BTreeMap::new();
    let directory = format!("/proc/{pid}/fdinfo");
    for entry in fs::read_dir(&directory).with_context(|| format!("process {pid}"))? {
        // One that is closed meanwhile is no map.
        let text = fs::read_to_string(entry?.path()).unwrap_or_default();
        maps.extend(map_memory(&text));
    }
    let bytes: u64 = maps.values().sum();
    Ok((!maps.is_empty()).then(|| bytes as f64 / f64::from(1 << 20)))
}

/// The number of a map, and its bytes (`bpf_map_show_fdinfo` of the kernel).
fn map_memory(text: &str) -> Option<(u64, u64)> {
    let of = |key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key));
        value?.trim().parse::<u64>().ok()
    };
    Some((of("map_id:")?, of("memlock:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machines_time_is_read_without_its_idle_time() {
        let text = "cpu  10 1 20 1000 5 3 4 0 0 0\ncpu0 1 2 3 4 5 6 7 0 0 0\n";
        let expected = Machine {
            program: 11,
            kernel: 20,
            interrupts: 7,
        };
        assert_eq!(Machine::parse(text), Some(expected));
        assert_eq!(Machine::parse("intr 1 2"), None);
    }

    #[test]
    fn what_a_map_takes_is_read_and_other_files_are_no_maps() {
        let text = "pos:\t0\nmap_type:\t1\nmax_entries:\t9\nmemlock:\t4096\nmap_id:\t17\n";
        assert_eq!(map_memory(text), Some((17, 4096)));
        assert_eq!(map_memory("pos:\t0\nprog_id:\t3\nmemlock:\t4096\n"), None);
    }

    #[test]
    fn a_thread_has_run_and_waited() {
        let (ran, waited) = schedule("1500 500 7\n").unwrap();
        assert_eq!((ran.as_nanos(), waited.as_nanos()), (1500, 500));
        assert_eq!(schedule("1500"), None);
    }

    #[test]
    fn a_process_may_have_any_name() {
        let text = "42 (a (b) c) S 1 42 42 0 -1 4194304 100 0 0 0 7 5 0 0 20 0 3 0 9 0 0";
        assert_eq!(process_ticks(text), Some(12));
    }
}
