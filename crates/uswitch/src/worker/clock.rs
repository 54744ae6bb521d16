//! Measure the cost of turns.

use std::time::Instant;

/// Clock of turns.
///
/// A turn that follows another one begins when that ended, so the clock is read once for each while
/// packets come.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// The last reading; none if time was spent on something else since.
    last: Option<Instant>,
    /// Turns cost what their frames are said to, instead of the time they take.
    #[cfg(test)]
    pub(super) weights: Option<Weights>,
}

/// Nanoseconds of a frame.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    pub(super) frame: i64,
    pub(super) to_device: i64,
}

impl Clock {
    /// A turn begins.
    #[inline]
    pub(super) fn begin(&mut self) -> Instant {
        self.last.take().unwrap_or_else(Instant::now)
    }

    /// Ends a turn with its numbers of frames, in all and to the device.
    ///
    /// Returns its cost in nanoseconds.
    #[inline]
    pub(super) fn end(&mut self, begun: Instant, _frames: u16, _to_device: u16) -> i64 {
        #[cfg(test)]
        if let Some(weights) = self.weights {
            let fast = _frames.saturating_sub(_to_device);
            return i64::from(fast) * weights.frame + i64::from(_to_device) * weights.to_device;
        }
        let now = Instant::now();
        self.last = Some(now);
        let took = now.saturating_duration_since(begun).as_nanos();
        i64::try_from(took).unwrap_or(i64::MAX)
    }

    /// Something else was done.
    #[inline]
    pub(super) fn lose(&mut self) {
        self.last = None;
    }
}
