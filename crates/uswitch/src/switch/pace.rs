//! Limit the work and log lines that a port's clients cause by coming and going.

use std::time::{Duration, Instant};

/// Between two lines of a log with the same cause.
const LINE: Duration = Duration::from_secs(1);
/// Clients that a port may have accepted at once.
const BURST: u32 = 32;
/// Time after which it may have one more.
const REFILL: Duration = Duration::from_millis(125);

/// Cause of a log line about a port's client; each has a pace of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Connected,
    Gone,
    /// It was not connected, by its own fault.
    Refused,
    /// It was not connected, for want of something here.
    Unserved,
    /// It has to wait for descriptors.
    Waits,
    /// Too many came.
    Churns,
}

/// Lines of a port's clients: one a second for each cause.
#[derive(Debug, Default)]
pub(super) struct Lines([Option<(Instant, u64)>; 6]);

impl Lines {
    /// Returns the number of unwritten lines since the last one, if one may be written.
    pub(super) fn admit(&mut self, cause: Cause, now: Instant) -> Option<u64> {
        let nth = match cause {
            Cause::Connected => 0,
            Cause::Gone => 1,
            Cause::Refused => 2,
            Cause::Unserved => 3,
            Cause::Waits => 4,
            Cause::Churns => 5,
        };
        let line = self.0.get_mut(nth)?;
        match line {
            Some((last, suppressed)) if now.saturating_duration_since(*last) < LINE => {
                *suppressed = suppressed.saturating_add(1);
                None
            }
            _ => {
                let suppressed = line.map_or(0, |(_, suppressed)| suppressed);
                *line = Some((now, 0));
                Some(suppressed)
            }
        }
    }
}

/// Clients that a port may accept: some at once, then a few a second.
#[derive(Debug)]
pub(super) struct Accepts {
    left: u32,
    refilled: Instant,
}

impl Accepts {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            left: BURST,
            refilled: now,
        }
    }

    /// Accepts one.
    ///
    /// # Errors
    /// None may be accepted until this time.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        while self.left < BURST {
            match self.refilled.checked_add(REFILL) {
                Some(next) if next <= now => {
                    self.left = self.left.saturating_add(1);
                    self.refilled = next;
                }
                _ => break,
            }
        }
        if self.left == BURST {
            self.refilled = now;
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(self.refilled.checked_add(REFILL).unwrap_or(now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ATT-13: each cause has one line a second, and the lines left out are counted.
    #[test]
    fn lines_of_one_cause_are_a_second_apart_and_the_others_are_counted() {
        let start = Instant::now();
        let mut lines = Lines::default();
        let (mut written, mut counted) = (0, 0);
        for nth in 0..2_000_u32 {
            let now = start + Duration::from_millis(2) * nth;
            if let Some(suppressed) = lines.admit(Cause::Gone, now) {
                written += 1;
                counted += suppressed;
            }
        }
        assert_eq!((written, counted), (4, 3 * 499));
        assert_eq!(lines.admit(Cause::Connected, start), Some(0));
        let later = start + Duration::from_secs(9);
        assert_eq!(lines.admit(Cause::Gone, later), Some(499));
        assert_eq!(
            lines.admit(Cause::Gone, start),
            None,
            "a clock may not go backwards"
        );
        proof::of!("ATT-13");
    }

    /// ATT-13: a port that churns is accepted from a few times a second.
    #[test]
    fn clients_of_a_port_are_accepted_in_a_burst_and_then_slowly() {
        let start = Instant::now();
        let mut accepts = Accepts::new(start);
        let mut now = start;
        let mut accepted = 0;
        while now < start + Duration::from_secs(10) {
            match accepts.take(now) {
                Ok(()) => accepted += 1,
                Err(next) => {
                    assert!(next > now);
                    now = next;
                }
            }
        }
        assert_eq!(accepted, BURST + 79, "32, and 8 a second");
        // After a rest there is another burst, and not more.
        now += Duration::from_secs(3600);
        let burst = (0..100).filter(|_| accepts.take(now).is_ok()).count();
        assert_eq!(burst, BURST as usize);
        proof::of!("ATT-13");
    }
}
