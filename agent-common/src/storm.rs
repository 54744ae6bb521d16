//! `STORM`: a token bucket per port for frames that are replicated.
//!
//! One such frame costs the node as many copies as the network has ports, so one pod must not be
//! able to send them at line rate.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Replicated frames a port may send per second in the long run.
pub const STORM_RATE: u64 = 1000;
/// Replicated frames a port may send at once.
pub const STORM_BURST: u64 = 2000;

/// Nanoseconds one token takes to grow.
const TOKEN_NS: u64 = 1_000_000_000 / STORM_RATE;

/// The bucket, as the virtual time at which it was last full.
///
/// *Written by* `from_pod`, without a lock: two CPUs that race let a few more frames pass, no more.
/// *Key*: port id.
#[repr(C)]
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct StormBucket {
    /// `CLOCK_MONOTONIC` at which the frames sent so far would have been paid for, nanoseconds.
    pub paid_until_ns: u64,
}

impl StormBucket {
    /// Takes a token at `now_ns`: the new bucket, or `None` when there is none left.
    #[inline(always)]
    pub const fn take(self, now_ns: u64) -> Option<Self> {
        let oldest = now_ns.saturating_sub(STORM_BURST * TOKEN_NS);
        let from = if self.paid_until_ns < oldest {
            oldest
        } else {
            self.paid_until_ns
        };
        let paid_until_ns = from + TOKEN_NS;
        if paid_until_ns > now_ns {
            None
        } else {
            Some(Self { paid_until_ns })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let mut bucket = StormBucket::default();
        let start = 1_000_000_000_000;
        let mut passed = 0;
        for _ in 0..10_000 {
            if let Some(next) = bucket.take(start) {
                bucket = next;
                passed += 1;
            }
        }
        assert_eq!(passed, STORM_BURST);
        let mut later = 0;
        for millisecond in 1..=3000_u64 {
            while let Some(next) = bucket.take(start + millisecond * 1_000_000) {
                bucket = next;
                later += 1;
            }
        }
        assert_eq!(later, 3 * STORM_RATE);
    }
}
