//! Locks with a rank: threads take them in one order, so none waits for ever.
//!
//! The order is: policies, their maps, the tables, then the book, then a feature's own state. A build with debug assertions
//! panics where a thread takes a lock while it holds one of the same or of a later rank. So a feature
//! that is asked for something under a lock may take its own, and calls nobody back.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use telemetry::failpoint;

/// Where a lock is in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Results of compiling policies.
    Policies,
    /// The maps of policies, which are in force before the tables lead there.
    Guards,
    /// The datapath's tables; what is written there is read under this lock.
    Tables,
    /// The ledger.
    Book,
    /// State of a feature; taken last, and by itself.
    Feature,
}

/// A value behind a lock that has a rank.
#[derive(Debug)]
pub struct Ranked<T> {
    rank: Rank,
    value: Mutex<T>,
}

/// Holds the lock of a [`Ranked`].
#[derive(Debug)]
pub struct Guard<'a, T> {
    value: MutexGuard<'a, T>,
    _held: Held,
}

impl<T> Ranked<T> {
    /// Puts a value behind a lock of this rank.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self {
            rank,
            value: Mutex::new(value),
        }
    }

    /// Takes the lock; not to be held across an await.
    ///
    /// # Panics
    /// With debug assertions, when this thread holds a lock of this or of a later rank.
    pub fn lock(&self) -> Guard<'_, T> {
        let held = Held::take(self.rank);
        let value = match self.value.try_lock() {
            Ok(value) => value,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                if self.rank == Rank::Tables {
                    failpoint::passed("tables.busy");
                }
                self.value.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        Guard { value, _held: held }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// A lock that this thread holds; a guard of a `Mutex` stays on its thread.
#[derive(Debug)]
struct Held {
    #[cfg(debug_assertions)]
    rank: Rank,
}

#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;

    use super::{Held, Rank};

    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    impl Held {
        pub(super) fn take(rank: Rank) -> Self {
            HELD.with_borrow_mut(|held| {
                assert!(
                    held.iter().all(|other| *other < rank),
                    "locks out of order: {rank:?} is taken while {held:?} are held"
                );
                held.push(rank);
            });
            Self { rank }
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            // A thread that ends has no list any more, and holds nothing.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(place) = held.iter().rposition(|other| *other == self.rank) {
                    held.remove(place);
                }
            });
        }
    }
}

#[cfg(not(debug_assertions))]
impl Held {
    const fn take(_rank: Rank) -> Self {
        Self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_taken_in_the_order_of_their_ranks() {
        let tables = Ranked::new(Rank::Tables, 1);
        let book = Ranked::new(Rank::Book, 2);
        let (one, other) = (Ranked::new(Rank::Feature, 3), Ranked::new(Rank::Feature, 4));
        for _ in 0..2 {
            let tables = tables.lock();
            let book = book.lock();
            let feature = one.lock();
            assert_eq!((*tables, *book, *feature), (1, 2, 3));
            drop(feature);
            assert_eq!(*other.lock(), 4);
        }
    }

    /// ATT-16: locks that two threads could take in opposite orders are refused.
    ///
    /// Recovery took tables before the book, a change of an attachment the book before tables.
    #[cfg(debug_assertions)]
    #[test]
    fn a_lock_that_is_taken_out_of_order_panics_before_two_threads_can_meet() {
        for (first, second) in [
            (Rank::Book, Rank::Tables),
            (Rank::Feature, Rank::Book),
            (Rank::Feature, Rank::Tables),
            (Rank::Feature, Rank::Feature),
        ] {
            let taken = std::thread::spawn(move || {
                let (first, second) = (Ranked::new(first, ()), Ranked::new(second, ()));
                let _first = first.lock();
                drop(second.lock());
            });
            let panic = taken.join().expect_err("out of order");
            let words = panic.downcast_ref::<String>().expect("a message");
            assert!(words.contains("locks out of order"), "{words}");
        }
        proof::of!("ATT-16");
    }
}
