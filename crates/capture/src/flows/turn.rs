//! Reads what there is of a port in a turn, in the order that misses no lost drop.

use agent_common::event::DropEvent;
use datapath::DatapathError;

use crate::join::{Frame, Join, Judged};

/// A port in the flow log that can be read.
pub(super) trait Readable {
    /// Returns the time until which drops have come or are lost, nanoseconds.
    fn heard_until(&self) -> u64;

    /// Returns the number of drops so far that have not come.
    fn lost_drops(&self) -> Result<u64, DatapathError>;

    /// Gives the samples that are there.
    fn samples(&mut self, take: impl FnMut(Frame));

    /// Gives the drops that have come.
    fn drops(&self, take: impl FnMut(DropEvent));
}

/// Reads frames and drops of a port, and returns those with a certain verdict.
///
/// All samples until `read_until`, nanoseconds, are in the ring. Of the `last` turn all frames are returned.
///
/// A lost drop makes the frames that wait uncertain. Its frame was in the ring before it was lost, and is read after
/// the number of lost ones is: so it is among these frames in the turn in which the number is new. Were it read after,
/// a frame could come between both, and be taken for one that was forwarded.
pub(super) fn turn(
    port: &mut impl Readable,
    join: &mut Join,
    lost_drops: &mut u64,
    read_until: u64,
    last: bool,
) -> Vec<Judged> {
    let heard_until = port.heard_until();
    let is_complete = match port.lost_drops() {
        Ok(now) => std::mem::replace(lost_drops, now) == now,
        Err(error) => {
            tracing::debug!(%error, "the lost drops of a port in the flow log were not read");
            false
        }
    };
    port.samples(|frame| join.see(frame));
    port.drops(|drop| join.hear(drop));
    let until = if last {
        u64::MAX
    } else {
        read_until.min(heard_until)
    };
    join.release(until, is_complete)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::join::{Direction, GRACE_NS, Verdict};

    /// A port with one frame, whose drop is lost just before a step.
    struct Port {
        /// Steps until the frame comes.
        left: Cell<usize>,
        ring: RefCell<Vec<Frame>>,
        lost: Cell<u64>,
        clock: u64,
    }

    impl Port {
        fn step(&self) {
            if self.left.get() == 0 {
                self.lost.set(self.lost.get() + 1);
                self.ring.borrow_mut().push(Frame {
                    time_ns: self.clock,
                    cpu: 0,
                    direction: Direction::FromPod,
                    length: 60,
                    segments: 1,
                    bytes: vec![0; 60],
                });
            }
            self.left.set(self.left.get().wrapping_sub(1));
        }
    }

    impl Readable for Port {
        fn heard_until(&self) -> u64 {
            self.step();
            self.clock
        }

        fn lost_drops(&self) -> Result<u64, DatapathError> {
            self.step();
            Ok(self.lost.get())
        }

        fn samples(&mut self, take: impl FnMut(Frame)) {
            self.step();
            self.ring.take().into_iter().for_each(take);
        }

        fn drops(&self, _: impl FnMut(DropEvent)) {
            self.step();
        }
    }

    #[test]
    fn a_frame_whose_drop_is_lost_looks_forwarded_in_no_turn() {
        for left in 0..5 {
            let mut port = Port {
                left: Cell::new(left),
                ring: RefCell::default(),
                lost: Cell::new(0),
                clock: 1_000,
            };
            let (mut join, mut lost) = (Join::new(1), 0);
            let mut verdicts = Vec::new();
            for _ in 0..4 {
                let clock = port.clock;
                let judged = turn(&mut port, &mut join, &mut lost, clock, false);
                verdicts.extend(judged.into_iter().map(|it| it.verdict));
                port.clock += GRACE_NS;
            }
            assert_eq!(verdicts, [Verdict::Unknown], "before step {left}");
        }
    }
}
