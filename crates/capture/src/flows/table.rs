//! Counts sampled packets by flow, within limits. Pure.
//!
//! All ports together have a number of flows, and each an equal share of it: a pod that makes flows at random
//! fills its own share, and what finds no room there is counted in a sum.

use std::collections::{HashMap, HashSet};
use std::mem;

use crate::flows::key::FlowKey;
use crate::join::{Direction, Judged, Verdict};

/// Ports among which flows are shared at least: a few ports do not get all.
const SHARERS: usize = 16;

/// End of packets, as the log has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Not dropped by podnet.
    Forwarded,
    /// Dropped, by the number of the reason.
    Dropped(u32),
    /// Records of drops were lost.
    Unknown,
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Delivered | Verdict::Accepted => Self::Forwarded,
            Verdict::Dropped(reason) | Verdict::DroppedUnseen(reason) => Self::Dropped(reason),
            Verdict::Unknown => Self::Unknown,
        }
    }
}

/// Sampled packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that were sampled.
    pub samples: u64,
    /// Packets that these are on a wire.
    pub packets: u64,
    /// Their bytes, as the kernel has them.
    pub bytes: u64,
    /// Time of the first, of `CLOCK_MONOTONIC`, nanoseconds.
    pub first_ns: u64,
    /// Time of the last.
    pub last_ns: u64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        if self.samples == 0 {
            *self = other;
            return;
        }
        self.samples += other.samples;
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
    }
}

/// Packets of one flow with one outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Their direction.
    pub direction: Direction,
    /// The flow.
    pub key: FlowKey,
    /// Their outcome.
    pub outcome: Outcome,
    /// How many.
    pub counts: Counts,
}

/// One interval of one port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interval {
    /// Its flows, the largest first.
    pub rows: Vec<Row>,
    /// Packets of flows for which there was no room.
    pub overflow: Counts,
    /// Samples that did not get to the table.
    pub lost: u64,
}

type Place = (Direction, FlowKey, Outcome);

#[derive(Debug, Default)]
struct Flows {
    rows: HashMap<Place, Counts>,
    overflow: Counts,
    lost: u64,
}

/// Flows of all ports in this interval.
#[derive(Debug)]
pub struct FlowTable {
    most: usize,
    ports: HashMap<u64, Flows>,
}

impl FlowTable {
    /// Begins without ports, with room for `most` flows.
    ///
    /// Each port has room for one at least.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            most,
            ports: HashMap::new(),
        }
    }

    /// Returns the number of flows that a port can have.
    #[must_use]
    pub fn share(&self) -> usize {
        (self.most / self.ports.len().max(SHARERS)).max(1)
    }

    /// Returns the number of flows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ports.values().map(|flows| flows.rows.len()).sum()
    }

    /// True without a flow.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a port; others may have to give up their smallest flows for it.
    pub fn open(&mut self, port: u64) {
        self.ports.entry(port).or_default();
        let share = self.share();
        for flows in self.ports.values_mut() {
            flows.trim(share);
        }
    }

    /// Removes a port, and returns the rest of it.
    pub fn close(&mut self, port: u64) -> Option<Interval> {
        self.ports.remove(&port).map(Flows::finish)
    }

    /// Counts a packet of a port; false when it found no room as a flow.
    ///
    /// One of a port that is not there is not counted.
    pub fn count(&mut self, port: u64, judged: &Judged) -> bool {
        let share = self.share();
        let Some(flows) = self.ports.get_mut(&port) else {
            return false;
        };
        let frame = &judged.frame;
        let one = Counts {
            samples: 1,
            packets: u64::from(frame.segments.max(1)),
            bytes: u64::from(frame.length),
            first_ns: frame.time_ns,
            last_ns: frame.time_ns,
        };
        let place = (
            frame.direction,
            FlowKey::of(&frame.bytes),
            judged.verdict.into(),
        );
        let has_room = flows.rows.len() < share;
        if let Some(counts) = flows.rows.get_mut(&place) {
            counts.add(one);
            return true;
        }
        if has_room {
            flows.rows.insert(place, one);
        } else {
            flows.overflow.add(one);
        }
        has_room
    }

    /// Notes samples of a port that did not get here.
    pub fn lose(&mut self, port: u64, samples: u64) {
        if let Some(flows) = self.ports.get_mut(&port) {
            flows.lost = flows.lost.saturating_add(samples);
        }
    }

    /// Ends the interval, and returns the flows of each port that has any.
    pub fn take(&mut self) -> Vec<(u64, Interval)> {
        let mut all: Vec<(u64, Interval)> = self
            .ports
            .iter_mut()
            .map(|(port, flows)| (*port, mem::take(flows).finish()))
            .filter(|(_, interval)| *interval != Interval::default())
            .collect();
        all.sort_by_key(|(port, _)| *port);
        all
    }
}

impl Flows {
    /// Keeps the largest.
    fn trim(&mut self, share: usize) {
        if self.rows.len() <= share {
            return;
        }
        let mut places: Vec<(u64, Place)> = self
            .rows
            .iter()
            .map(|(place, counts)| (counts.samples, *place))
            .collect();
        places.sort_unstable_by(|a, b| b.cmp(a));
        let gone: HashSet<Place> = places.split_off(share).into_iter().map(|it| it.1).collect();
        for place in gone {
            if let Some(counts) = self.rows.remove(&place) {
                self.overflow.add(counts);
            }
        }
    }

    fn finish(self) -> Interval {
        let mut rows: Vec<Row> = self
            .rows
            .into_iter()
            .map(|((direction, key, outcome), counts)| Row {
                direction,
                key,
                outcome,
                counts,
            })
            .collect();
        rows.sort_by(|a, b| {
            let by_size = b.counts.packets.cmp(&a.counts.packets);
            by_size
                .then_with(|| (a.direction, a.key, a.outcome).cmp(&(b.direction, b.key, b.outcome)))
        });
        Interval {
            rows,
            overflow: self.overflow,
            lost: self.lost,
        }
    }
}

#[cfg(test)]
mod tests;
