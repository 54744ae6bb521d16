//! Counts the bytes of memory that clients lend, against limits within limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Violation;

/// Unit of counted regions, bytes: the largest page of any kernel.
///
/// Regions are rounded up to it.
const PAGE_MAX: u64 = 64 << 10;

/// Limits the memory of several interfaces together, in bytes.
///
/// A page of a client's memory is charged to the process that touches it first, and a client can see to
/// it that this is the server. So a region counts by its size from the moment it is registered, whatever
/// is in it.
#[derive(Debug)]
pub struct Budget {
    of: &'static str,
    max: u64,
    used: AtomicU64,
    outer: Option<Arc<Self>>,
}

impl Budget {
    /// Makes a limit of `max` bytes.
    ///
    /// `of` names its subject in the refusal that a client is sent.
    pub fn new(of: &'static str, max: u64) -> Arc<Self> {
        Arc::new(Self {
            of,
            max,
            used: AtomicU64::new(0),
            outer: None,
        })
    }

    /// Makes a limit of `max` bytes, which count against the outer limit too.
    pub fn within(of: &'static str, max: u64, outer: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self {
            of,
            max,
            used: AtomicU64::new(0),
            outer: Some(Arc::clone(outer)),
        })
    }

    /// Bytes that are in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// Bytes that are allowed.
    pub fn max(&self) -> u64 {
        self.max
    }

    fn add(&self, more: u64) -> Result<(), Violation> {
        let added = self
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                used.checked_add(more).filter(|sum| *sum <= self.max)
            });
        added.map_err(|used| Violation::Memory {
            of: self.of,
            bytes: used.saturating_add(more),
            max: self.max,
        })?;
        match self.outer.as_ref().map_or(Ok(()), |outer| outer.add(more)) {
            Ok(()) => Ok(()),
            Err(violation) => {
                self.used.fetch_sub(more, Ordering::AcqRel);
                Err(violation)
            }
        }
    }

    fn add_anyway(&self, more: u64) {
        self.used.fetch_add(more, Ordering::AcqRel);
        if let Some(outer) = &self.outer {
            outer.add_anyway(more);
        }
    }

    fn sub(&self, less: u64) {
        self.used.fetch_sub(less, Ordering::AcqRel);
        if let Some(outer) = &self.outer {
            outer.sub(less);
        }
    }
}

/// Bytes of a budget that are one client's, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Lease {
    /// Takes no bytes yet.
    pub(crate) fn new(budget: &Arc<Budget>) -> Self {
        Self {
            budget: Arc::clone(budget),
            bytes: 0,
        }
    }

    /// Takes what is missing to this many bytes.
    ///
    /// # Errors
    /// A limit is reached; nothing was taken.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> Result<(), Violation> {
        self.budget.add(bytes.saturating_sub(self.bytes))?;
        self.bytes = self.bytes.max(bytes);
        Ok(())
    }

    /// The same, beyond any limit: for a client that is connected already.
    pub(crate) fn grow_anyway(&mut self, bytes: u64) {
        self.budget.add_anyway(bytes.saturating_sub(self.bytes));
        self.bytes = self.bytes.max(bytes);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.sub(self.bytes);
    }
}

/// Bytes that regions of these sizes count for, whatever a page is.
pub(crate) fn counted(sizes: impl IntoIterator<Item = u64>) -> u64 {
    let pages = sizes
        .into_iter()
        .map(|size| size.checked_next_multiple_of(PAGE_MAX).unwrap_or(u64::MAX));
    pages.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// ATT-03a: limits add up, and a refusal takes nothing.
    #[test]
    fn bytes_count_against_every_limit_and_come_back() {
        let switch = Budget::new("switch", 100);
        let pods = [
            Budget::within("pod", 60, &switch),
            Budget::within("pod", 60, &switch),
        ];
        let mut one = Lease::new(&pods[0]);
        let mut other = Lease::new(&pods[1]);
        one.grow_to(40).unwrap();
        one.grow_to(60).unwrap();
        let refused = one.grow_to(61).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "memory of this pod would be 61 bytes, 60 are allowed"
        );
        let refused = other.grow_to(41).unwrap_err();
        assert!(
            matches!(
                refused,
                Violation::Memory {
                    of: "switch",
                    bytes: 101,
                    max: 100
                }
            ),
            "{refused}"
        );
        assert_eq!((pods[1].used(), switch.used()), (0, 60));
        other.grow_to(40).unwrap();
        drop(one);
        assert_eq!((pods[0].used(), switch.used()), (0, 40));
        let mut handed = Lease::new(&pods[0]);
        handed.grow_anyway(500);
        assert_eq!(switch.used(), 540);
        drop((handed, other));
        assert_eq!(switch.used(), 0);
        proof::of!("ATT-03a");
    }

    proptest! {
        #[test]
        fn no_order_of_leases_passes_a_limit_or_loses_a_byte(
            steps in prop::collection::vec((0_usize..6, 0_u64..120), 0..60),
        ) {
            let switch = Budget::new("switch", 200);
            let pods: Vec<_> = (0..2).map(|_| Budget::within("pod", 150, &switch)).collect();
            let mut leases: Vec<Option<Lease>> = (0..6).map(|_| None).collect();
            for (nth, bytes) in steps {
                let lease = &mut leases[nth];
                if bytes < 20 {
                    *lease = None;
                } else {
                    let lease = lease.get_or_insert_with(|| Lease::new(&pods[nth % 2]));
                    let _ = lease.grow_to(bytes);
                }
                let sum = |pod: usize| {
                    let of_pod = leases.iter().skip(pod).step_by(2).flatten();
                    of_pod.map(|lease| lease.bytes).sum::<u64>()
                };
                prop_assert_eq!((pods[0].used(), pods[1].used()), (sum(0), sum(1)));
                prop_assert_eq!(switch.used(), sum(0) + sum(1));
                prop_assert!(switch.used() <= 200 && pods.iter().all(|pod| pod.used() <= 150));
            }
        }
    }
}
