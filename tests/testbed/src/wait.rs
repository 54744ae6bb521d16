//! Waiting for events, never for time to pass.

use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for an event.
///
/// Generous, because an emulated kernel is slow. It ends waits that would never end, and measures
/// nothing.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Longest wait for what comes up from nothing.
///
/// A kernel verifies all programs first, some 100,000 instructions, which takes an emulated one half a
/// minute for each of two agents at a time.
pub const START: Duration = Duration::from_secs(120);

/// Between two looks at something that cannot be waited for by descriptor.
const STEP: Duration = Duration::from_millis(5);

/// Looks again and again until `probe` returns something.
///
/// # Panics
/// After [`PATIENCE`], naming `what`.
pub fn until<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    until_within(PATIENCE, what, probe)
}

/// Looks again and again for so long until `probe` returns something.
///
/// # Panics
/// After that time, naming `what`.
pub fn until_within<T>(limit: Duration, what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(
            Instant::now() < end,
            "waited {} s in vain for {what}",
            limit.as_secs()
        );
        thread::sleep(STEP);
    }
}

/// Looks again and again until `probe` holds.
///
/// # Panics
/// As [`until`].
pub fn until_true(what: &str, mut probe: impl FnMut() -> bool) {
    until(what, || probe().then_some(()));
}
