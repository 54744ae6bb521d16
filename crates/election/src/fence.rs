//! Tell until when this process leads for certain.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Until when this process leads for certain.
#[derive(Debug, Default)]
pub struct Fence(Mutex<Option<Instant>>);

impl Fence {
    /// A process that leads whatever happens.
    pub fn open() -> Self {
        let far = Instant::now().checked_add(Duration::from_secs(u64::from(u32::MAX)));
        Self(Mutex::new(far))
    }

    /// True while no other can lead. To be asked before each write.
    pub fn holds(&self) -> bool {
        let until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    pub(crate) fn set(&self, until: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_holds_until_its_time_and_not_without_one() {
        let fence = Fence::default();
        assert!(!fence.holds());
        fence.set(Some(Instant::now()));
        assert!(!fence.holds());
        fence.set(Instant::now().checked_add(Duration::from_secs(3600)));
        assert!(fence.holds());
        assert!(Fence::open().holds());
    }
}
