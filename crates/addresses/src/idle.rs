//! Blocks that are not needed, and since when.
//!
//! A block that is not needed at one moment may be needed at the next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use api::Prefix;

/// A network and a block of it.
pub(super) type NetworkBlock = (String, Prefix);

/// Blocks that this node could do without.
#[derive(Debug, Default)]
pub(super) struct Idle(BTreeMap<NetworkBlock, Instant>);

impl Idle {
    /// Notes all blocks that are not needed now.
    ///
    /// The time of a block that was needed meanwhile starts again.
    pub(super) fn note(&mut self, spare: &BTreeSet<NetworkBlock>, now: Instant) {
        self.0.retain(|block, _| spare.contains(block));
        for block in spare {
            self.0.entry(block.clone()).or_insert(now);
        }
    }

    /// Lists the blocks that were not needed for this long.
    pub(super) fn longer_than(&self, age: Duration, now: Instant) -> Vec<NetworkBlock> {
        let due = self
            .0
            .iter()
            .filter(|(_, since)| now.saturating_duration_since(**since) >= age);
        due.map(|(block, _)| block.clone()).collect()
    }

    /// When the next one will not have been needed for this long.
    pub(super) fn next(&self, age: Duration) -> Option<Instant> {
        self.0.values().min().map(|since| *since + age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: Duration = Duration::from_secs(300);

    fn blocks(last: &[u8]) -> BTreeSet<NetworkBlock> {
        let block = |last: &u8| {
            let cidr = format!("10.0.0.{last}/28").parse().unwrap();
            ("blue".to_owned(), cidr)
        };
        last.iter().map(block).collect()
    }

    #[test]
    fn a_block_is_due_when_it_was_not_needed_all_the_time() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut idle = Idle::default();
        idle.note(&blocks(&[0, 16]), begin);
        assert_eq!(idle.next(KEEP), Some(at(300)));
        // A pod comes and goes.
        idle.note(&blocks(&[16]), at(100));
        idle.note(&blocks(&[0, 16]), at(101));
        assert!(idle.longer_than(KEEP, at(299)).is_empty());
        let due = idle.longer_than(KEEP, at(300));
        assert_eq!(due, blocks(&[16]).into_iter().collect::<Vec<_>>());
        idle.note(&blocks(&[0]), at(300));
        assert_eq!(idle.next(KEEP), Some(at(401)));
        assert_eq!(idle.longer_than(KEEP, at(401)).len(), 1);
    }

    #[test]
    fn nothing_is_due_of_what_is_needed() {
        let begin = Instant::now();
        let mut idle = Idle::default();
        idle.note(&blocks(&[0]), begin);
        idle.note(&blocks(&[]), begin + KEEP);
        assert!(idle.longer_than(Duration::ZERO, begin + KEEP).is_empty());
        assert_eq!(idle.next(KEEP), None);
    }
}
