//! Compute with ring indices: two free-running 32-bit counters, one for each side.
//!
//! Indices wrap: after 2^32 packets, an hour at a million a second. Only their difference counts.

use std::sync::atomic::Ordering;

use crate::shm::RingMemory;

/// A ring that we fill: fill and transmit.
#[derive(Debug)]
pub(crate) struct Producer {
    ring: RingMemory,
    /// How far we have written; published by [`Self::publish`].
    next: u32,
    /// How far the kernel was when we looked last.
    seen: u32,
}

impl Producer {
    /// Goes on where the ring is.
    pub(crate) fn new(ring: RingMemory) -> Self {
        let next = ring.producer().load(Ordering::Relaxed);
        let seen = ring.consumer().load(Ordering::Acquire);
        Self { ring, next, seen }
    }

    /// Slots that can be written now, at least `wanted` if there are.
    pub(crate) fn free(&mut self, wanted: u32) -> u32 {
        let free = self.cached_free();
        if free >= wanted {
            return free;
        }
        self.seen = self.ring.consumer().load(Ordering::Acquire);
        self.cached_free()
    }

    fn cached_free(&self) -> u32 {
        // A difference of more than the ring is none that the kernel makes: nothing is free then.
        self.ring
            .slots()
            .saturating_sub(self.next.wrapping_sub(self.seen))
    }

    /// Writes the next slot; false when there is none.
    pub(crate) fn push(&mut self, address: u64, length: u32) -> bool {
        if self.free(1) == 0 {
            return false;
        }
        self.ring.set(self.next, address, length);
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Shows the kernel what was written.
    pub(crate) fn publish(&self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Slots that the kernel has not taken yet.
    pub(crate) fn pending(&mut self) -> u32 {
        self.seen = self.ring.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(self.seen).min(self.ring.slots())
    }

    pub(crate) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A ring that we empty: receive and completion.
#[derive(Debug)]
pub(crate) struct Consumer {
    ring: RingMemory,
    /// How far we have read; given back by [`Self::release`].
    next: u32,
    /// How far the kernel was when we looked last.
    seen: u32,
}

impl Consumer {
    /// Goes on where the ring is.
    pub(crate) fn new(ring: RingMemory) -> Self {
        let next = ring.consumer().load(Ordering::Relaxed);
        let seen = ring.producer().load(Ordering::Acquire);
        Self { ring, next, seen }
    }

    /// The next slot's address and length, if there is one.
    pub(crate) fn pop(&mut self) -> Option<(u64, u32)> {
        if self.seen == self.next {
            self.seen = self.ring.producer().load(Ordering::Acquire);
        }
        // As in `Producer::cached_free`.
        let there = self.seen.wrapping_sub(self.next);
        if there == 0 || there > self.ring.slots() {
            return None;
        }
        let slot = (self.ring.address(self.next), self.ring.length(self.next));
        self.next = self.next.wrapping_add(1);
        Some(slot)
    }

    /// Gives the slots that were read back to the kernel.
    pub(crate) fn release(&self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::{Memory, Parts, Width};

    const PARTS: Parts = Parts {
        producer: 0,
        consumer: 64,
        flags: 128,
        entries: 192,
    };

    fn ring(slots: u32, start: u32, width: Width) -> RingMemory {
        let memory = Memory::heap(4096);
        let ring = RingMemory::new(memory, PARTS, slots, width).expect("it fits");
        ring.producer().store(start, Ordering::Relaxed);
        ring.consumer().store(start, Ordering::Relaxed);
        ring
    }

    /// The kernel's side: takes all that is there.
    fn drain(ring: &RingMemory) -> Vec<(u64, u32)> {
        let from = ring.consumer().load(Ordering::Relaxed);
        let to = ring.producer().load(Ordering::Acquire);
        let count = to.wrapping_sub(from);
        let taken = (0..count).map(|step| {
            let index = from.wrapping_add(step);
            (ring.address(index), ring.length(index))
        });
        let taken = taken.collect();
        ring.consumer().store(to, Ordering::Release);
        taken
    }

    #[test]
    fn a_full_ring_takes_no_more_and_an_emptied_one_does_whatever_the_index() {
        for start in [0, 7, u32::MAX - 2, u32::MAX, 1 << 31] {
            let mut producer = Producer::new(ring(4, start, Width::Descriptor));
            for round in 0..5_u64 {
                for slot in 0..4_u32 {
                    assert!(producer.push(round * 100 + u64::from(slot), slot + 60));
                }
                assert!(!producer.push(9, 9), "start {start}, round {round}");
                producer.publish();
                assert_eq!(producer.pending(), 4);
                let expected: Vec<_> = (0..4)
                    .map(|s| (round * 100 + u64::from(s), s + 60))
                    .collect();
                assert_eq!(drain(&producer.ring), expected);
                assert_eq!(producer.pending(), 0);
            }
        }
    }

    #[test]
    fn what_is_not_published_the_kernel_does_not_see() {
        let mut producer = Producer::new(ring(8, u32::MAX, Width::Address));
        assert!(producer.push(1, 0));
        assert!(drain(&producer.ring).is_empty());
        producer.publish();
        assert_eq!(drain(&producer.ring).len(), 1);
    }

    #[test]
    fn slots_come_out_in_order_and_go_back_when_released() {
        for start in [0, u32::MAX - 1] {
            let mut consumer = Consumer::new(ring(4, start, Width::Descriptor));
            assert_eq!(consumer.pop(), None);
            for step in 0..4 {
                consumer
                    .ring
                    .set(start.wrapping_add(step), u64::from(step) * 2048, 64 + step);
            }
            let end = start.wrapping_add(4);
            consumer.ring.producer().store(end, Ordering::Release);
            for step in 0..4 {
                assert_eq!(consumer.pop(), Some((u64::from(step) * 2048, 64 + step)));
            }
            assert_eq!(consumer.pop(), None);
            assert_eq!(consumer.ring.consumer().load(Ordering::Relaxed), start);
            consumer.release();
            assert_eq!(consumer.ring.consumer().load(Ordering::Relaxed), end);
        }
    }

    #[test]
    fn an_index_that_no_kernel_writes_gives_nothing() {
        let mut consumer = Consumer::new(ring(4, 0, Width::Address));
        consumer.ring.producer().store(5, Ordering::Release);
        assert_eq!(consumer.pop(), None);
        let memory = ring(4, 0, Width::Address);
        memory.consumer().store(1, Ordering::Release);
        assert!(!Producer::new(memory).push(1, 1));
    }

    #[test]
    fn a_ring_that_is_not_all_there_is_none() {
        let new =
            |parts, slots| RingMemory::new(Memory::heap(4096), parts, slots, Width::Descriptor);
        assert!(new(PARTS, 64).is_some());
        assert!(new(PARTS, 256).is_none(), "beyond the end");
        assert!(new(PARTS, 3).is_none(), "no power of two");
        assert!(new(PARTS, 0).is_none());
        let askew = Parts {
            entries: 196,
            ..PARTS
        };
        assert!(new(askew, 4).is_none());
        let beyond = Parts {
            flags: 4096,
            ..PARTS
        };
        assert!(new(beyond, 4).is_none());
    }

    #[test]
    fn the_kernel_says_when_it_wants_a_call() {
        let producer = Producer::new(ring(4, 0, Width::Address));
        assert!(!producer.needs_wakeup());
        // Where the flags are, as the kernel writes them.
        let flags = Parts {
            producer: PARTS.flags,
            ..PARTS
        };
        let ring = RingMemory::new(Memory::heap(4096), flags, 4, Width::Address).expect("it fits");
        ring.producer().store(1, Ordering::Release);
        assert!(Producer::new(ring).needs_wakeup());
    }
}
