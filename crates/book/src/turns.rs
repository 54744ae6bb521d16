//! One lock a container: the runtime may send requests of one at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cni_spec::ContainerId;

/// Locks of containers; one container does not wait for another.
#[derive(Debug, Default)]
pub(super) struct Turns {
    locks: Mutex<HashMap<ContainerId, Arc<tokio::sync::Mutex<()>>>>,
}

/// The lock of a container, held until this is dropped.
#[derive(Debug)]
pub struct Turn {
    _guard: tokio::sync::OwnedMutexGuard<()>,
}

impl Turns {
    /// Waits for the container's lock.
    pub(super) async fn take(&self, container: &ContainerId) -> Turn {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            // A lock that only this map refers to is neither held nor waited for.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(locks.entry(container.clone()).or_default())
        };
        Turn {
            _guard: lock.lock_owned().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_of_one_container_wait_for_each_other_and_others_do_not() {
        let turns = Turns::default();
        let [one, other] = ["c1", "c2"].map(|id| ContainerId::new(id).unwrap());
        let first = turns.take(&one).await;
        let mut second = Box::pin(turns.take(&one));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(turns.take(&other).await);
        drop(first);
        drop(second.await);
        // What is not in use is forgotten.
        drop(turns.take(&other).await);
        assert_eq!(turns.locks.lock().unwrap().len(), 1);
        proof::of!("CNI-ADD-08");
    }
}
