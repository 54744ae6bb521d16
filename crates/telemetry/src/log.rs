//! Write the log: one line an event on stderr, with a filter.
//!
//! Events that others can have repeated again and again go through [`Sparing`].

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing_subscriber::EnvFilter;

/// The longest text of others in a line, bytes.
pub const LOG_BYTES: usize = 1024;
/// Causes that have a line each in one period.
const CAUSES_MAX: usize = 100;

/// Admits one line a period for each cause, and of all causes so many.
///
/// A pod that cannot start is tried again for ever, and there may be thousands of them: the log must
/// not fill the node's disk, on which the records are.
#[derive(Debug)]
pub struct Sparing {
    period: Duration,
    said: Mutex<Said>,
}

#[derive(Debug)]
struct Said {
    since: Option<Instant>,
    causes: BTreeSet<u64>,
    unsaid: u64,
}

impl Sparing {
    /// Admits a line of the same cause once in a period.
    pub const fn new(period: Duration) -> Self {
        Self {
            period,
            said: Mutex::new(Said {
                since: None,
                causes: BTreeSet::new(),
                unsaid: 0,
            }),
        }
    }

    /// Admits a line; returns the number of lines that were dropped since the last one.
    ///
    /// `None` when the cause, or as many others, had theirs in this period.
    pub fn admit(&self, cause: &impl Hash) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        cause.hash(&mut hasher);
        self.admit_at(hasher.finish(), Instant::now())
    }

    fn admit_at(&self, cause: u64, now: Instant) -> Option<u64> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |since| now.saturating_duration_since(since) >= self.period;
        if said.since.is_none_or(is_over) {
            said.since = Some(now);
            said.causes.clear();
        }
        if said.causes.len() >= CAUSES_MAX || !said.causes.insert(cause) {
            said.unsaid = said.unsaid.saturating_add(1);
            return None;
        }
        Some(std::mem::take(&mut said.unsaid))
    }
}

/// The log filter does not parse.
#[derive(Debug, thiserror::Error)]
#[error("--log {filter} is not a filter; write for example info,agent=debug")]
pub struct FilterError {
    filter: String,
    source: tracing_subscriber::filter::ParseError,
}

/// Starts logging.
///
/// # Errors
/// When the filter does not parse.
pub fn init(filter: &str) -> Result<(), FilterError> {
    let parsed = EnvFilter::try_new(filter).map_err(|source| FilterError {
        filter: filter.to_owned(),
        source,
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .init();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(10);

    /// ATT-13
    #[test]
    fn a_cause_has_one_line_a_period_and_the_rest_is_counted() {
        let log = Sparing::new(PERIOD);
        let begin = Instant::now();
        assert_eq!(log.admit_at(1, begin), Some(0));
        for _ in 0..1000 {
            assert_eq!(log.admit_at(1, begin), None);
        }
        assert_eq!(log.admit_at(2, begin), Some(1000), "another cause is news");
        assert_eq!(log.admit_at(1, begin), None);
        assert_eq!(log.admit_at(1, begin + PERIOD), Some(1));
        proof::of!("ATT-13");
    }

    /// ATT-13
    #[test]
    fn any_number_of_causes_has_a_hundred_lines_a_period() {
        let log = Sparing::new(PERIOD);
        let begin = Instant::now();
        let mut lines = 0;
        for cause in 0..100_000 {
            lines += usize::from(log.admit_at(cause, begin).is_some());
        }
        assert_eq!(lines, CAUSES_MAX);
        assert_eq!(log.admit_at(7, begin + PERIOD), Some(99_900));
        assert!(log.said.lock().unwrap().causes.len() <= CAUSES_MAX);
        proof::of!("ATT-13");
    }
}
