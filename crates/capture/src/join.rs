//! Joins the frames of a tap to the drops that programs have published.
//!
//! A tap shows a frame just before the program judges it, in the same run of the same CPU. So a drop is of
//! the last frame that its CPU has shown before it. No drop until well after a frame means that it was
//! accepted, if no drop can have been lost. Pure: clock and sources are the caller's.

use std::mem;

use agent_common::drop::DropReason;
use agent_common::event::DropEvent;

/// Time between a frame at the tap and its drop, nanoseconds at most.
///
/// They are microseconds apart; a virtual processor may be taken away between them.
pub const GRACE_NS: u64 = 250_000_000;

/// Bytes of frames that wait for their verdict, at most.
const WAITING: usize = 64 << 20;

/// Direction of a frame, seen from the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// The pod has sent it.
    FromPod,
    /// The pod gets it.
    ToPod,
}

/// A frame at a tap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// The CPU that has seen it.
    pub cpu: u32,
    /// Its direction.
    pub direction: Direction,
    /// Its length in bytes, also of what was not copied.
    pub length: u32,
    /// Packets that it is on a wire.
    pub segments: u32,
    /// Its first bytes.
    pub bytes: Vec<u8>,
}

/// End of a frame's way through the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The pod has it.
    Delivered,
    /// Not dropped: delivered, copied, answered, or left to the node.
    Accepted,
    /// Dropped, by the number of the reason.
    Dropped(u32),
    /// Dropped, and not seen at the tap: the drop has the first bytes only.
    DroppedUnseen(u32),
    /// Records of drops were lost.
    Unknown,
}

impl Verdict {
    /// The reason of a drop.
    #[must_use]
    pub fn reason(self) -> Option<DropReason> {
        match self {
            Self::Dropped(number) | Self::DroppedUnseen(number) => DropReason::from_number(number),
            Self::Delivered | Self::Accepted | Self::Unknown => None,
        }
    }
}

/// A frame with its verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The frame.
    pub frame: Frame,
    /// Its verdict.
    pub verdict: Verdict,
}

/// Frames that wait for their verdict.
#[derive(Debug)]
pub struct Join {
    /// The interface at which the port's frames are judged first.
    ifindex: u32,
    frames: Vec<Judged>,
    drops: Vec<DropEvent>,
    /// Bytes of `frames`.
    held: usize,
    refused: u64,
}

impl Join {
    /// Begins without frames, at the interface of the tap.
    ///
    /// Drops at this interface are of frames that the tap has seen. Others are of frames that have waited in the queue of a rate, and were judged once more.
    #[must_use]
    pub const fn new(ifindex: u32) -> Self {
        Self {
            ifindex,
            frames: Vec::new(),
            drops: Vec::new(),
            held: 0,
            refused: 0,
        }
    }

    /// Takes a frame; one for which there is no room is counted.
    pub fn see(&mut self, frame: Frame) {
        if self.held + frame.bytes.len() > WAITING {
            self.refused += 1;
            return;
        }
        self.held += frame.bytes.len();
        let verdict = match frame.direction {
            Direction::FromPod => Verdict::Accepted,
            Direction::ToPod => Verdict::Delivered,
        };
        self.frames.push(Judged { frame, verdict });
    }

    /// Takes a drop of the port.
    pub fn hear(&mut self, drop: DropEvent) {
        self.drops.push(drop);
    }

    /// True when no frame waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the number of frames for which there was no room, since the last call.
    pub fn take_refused(&mut self) -> u64 {
        mem::take(&mut self.refused)
    }

    /// Returns the frames whose verdict is certain, by time.
    ///
    /// All frames and drops until `until`, nanoseconds, were taken before. Drops are `complete` if none was
    /// lost since the last call.
    pub fn release(&mut self, until: u64, complete: bool) -> Vec<Judged> {
        self.frames.sort_by_key(|judged| judged.frame.time_ns);
        if !complete {
            let waiting = self.frames.iter_mut();
            for judged in waiting.filter(|it| it.verdict == Verdict::Accepted) {
                judged.verdict = Verdict::Unknown;
            }
        }
        let (now, later) = mem::take(&mut self.drops)
            .into_iter()
            .partition(|drop| drop.time_ns <= until);
        self.drops = later;
        for drop in now {
            self.judge(&drop);
        }
        // Those that were added are at the end.
        self.frames.sort_by_key(|judged| judged.frame.time_ns);
        let certain = self
            .frames
            .partition_point(|judged| judged.frame.time_ns.saturating_add(GRACE_NS) <= until);
        // After the last call nothing comes any more.
        let certain = if until == u64::MAX {
            self.frames.len()
        } else {
            certain
        };
        let released: Vec<Judged> = self.frames.drain(..certain).collect();
        let bytes: usize = released.iter().map(|judged| judged.frame.bytes.len()).sum();
        self.held = self.held.saturating_sub(bytes);
        released
    }

    /// Gives a drop to the frame that it is of.
    fn judge(&mut self, drop: &DropEvent) {
        let Some(cpu) = drop.captured_on() else {
            return;
        };
        let at_tap = drop.ifindex == self.ifindex;
        let mut shown = self.frames.iter_mut().rev().filter(|judged| {
            let frame = &judged.frame;
            frame.direction == Direction::FromPod
                && frame.cpu == cpu
                && frame.time_ns <= drop.time_ns
        });
        let last = shown.next().filter(|_| at_tap);
        match last {
            Some(judged) if is_of(drop, judged) => {
                judged.verdict = Verdict::Dropped(drop.reason);
            }
            // The tap had no room for it, or it came out of a queue.
            Some(_) | None => self.add(drop, cpu),
        }
    }

    fn add(&mut self, drop: &DropEvent, cpu: u32) {
        let bytes = head(drop).to_vec();
        self.held += bytes.len();
        self.frames.push(Judged {
            frame: Frame {
                time_ns: drop.time_ns,
                cpu,
                direction: Direction::FromPod,
                length: drop.length.max(length_of(&bytes)),
                segments: 1,
                bytes,
            },
            verdict: Verdict::DroppedUnseen(drop.reason),
        });
    }
}

fn length_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

/// The first bytes of the frame that a drop has.
fn head(drop: &DropEvent) -> &[u8] {
    let length = usize::try_from(drop.head_length).unwrap_or(0);
    drop.head.get(..length).unwrap_or(&drop.head)
}

/// True if a drop can be of this frame.
///
/// The frame has none yet, and both begin with the same MAC addresses.
/// Only what the kernel refuses to deliver is dropped after a program has written new addresses.
fn is_of(drop: &DropEvent, judged: &Judged) -> bool {
    const ADDRESSES: usize = 12;
    let mut both = judged.frame.bytes.iter().zip(head(drop)).take(ADDRESSES);
    let is_same = both.all(|(shown, dropped)| shown == dropped);
    let is_changed = drop.reason == DropReason::Undeliverable as u32;
    !matches!(judged.verdict, Verdict::Dropped(_)) && (is_same || is_changed)
}

#[cfg(test)]
mod tests {
    use agent_common::event::EVENT_HEAD;

    use super::*;

    const HOST: u32 = 7;
    const FAR: u32 = 8;

    fn frame(time_ns: u64, cpu: u32, mark: u8) -> Frame {
        Frame {
            time_ns,
            cpu,
            direction: Direction::FromPod,
            length: 100,
            segments: 1,
            bytes: vec![mark; 100],
        }
    }

    fn dropped(time_ns: u64, cpu: u32, mark: u8, reason: DropReason) -> DropEvent {
        DropEvent {
            time_ns,
            ifindex: HOST,
            network: 1,
            reason: reason as u32,
            length: 100,
            head_length: 64,
            reserved: cpu + 1,
            head: [mark; EVENT_HEAD],
        }
    }

    fn verdicts(judged: &[Judged]) -> Vec<(u64, Verdict)> {
        judged
            .iter()
            .map(|it| (it.frame.time_ns, it.verdict))
            .collect()
    }

    #[test]
    fn a_drop_is_of_the_last_frame_that_its_cpu_has_shown() {
        let mut join = Join::new(HOST);
        for (time, cpu) in [(30, 0), (10, 0), (20, 1), (25, 1)] {
            join.see(frame(time, cpu, 1));
        }
        join.hear(dropped(21, 1, 1, DropReason::SpoofedMac));
        join.hear(dropped(12, 0, 1, DropReason::Dhcp));
        let mac = Verdict::Dropped(DropReason::SpoofedMac as u32);
        let dhcp = Verdict::Dropped(DropReason::Dhcp as u32);
        let accepted = Verdict::Accepted;
        assert_eq!(
            verdicts(&join.release(u64::MAX, true)),
            [(10, dhcp), (20, mac), (25, accepted), (30, accepted)]
        );
    }

    #[test]
    fn a_frame_waits_until_its_drop_must_have_been_heard() {
        let mut join = Join::new(HOST);
        join.see(frame(1_000, 0, 1));
        assert_eq!(join.release(1_000 + GRACE_NS - 1, true), []);
        // As late as it can be.
        join.hear(dropped(1_000 + GRACE_NS, 0, 1, DropReason::StormNode));
        let released = join.release(1_000 + GRACE_NS, true);
        let expected = Verdict::Dropped(DropReason::StormNode as u32);
        assert_eq!(verdicts(&released), [(1_000, expected)]);
        assert_eq!(join.release(u64::MAX, true), []);
    }

    /// Frames until there have not been read yet, and it may be of one of them.
    #[test]
    fn a_drop_of_later_is_kept_for_the_frame_that_is_still_to_come() {
        let mut join = Join::new(HOST);
        join.see(frame(1_000, 0, 1));
        let late = 2_000 + GRACE_NS;
        join.hear(dropped(late + 5, 0, 2, DropReason::Ttl));
        let released = join.release(late, true);
        assert_eq!(verdicts(&released), [(1_000, Verdict::Accepted)]);
        join.see(frame(late + 1, 0, 2));
        let expected = Verdict::Dropped(DropReason::Ttl as u32);
        assert_eq!(
            verdicts(&join.release(u64::MAX, true)),
            [(late + 1, expected)]
        );
    }

    #[test]
    fn without_all_drops_no_frame_is_called_accepted() {
        let mut join = Join::new(HOST);
        join.see(frame(10, 0, 1));
        join.see(frame(20, 0, 2));
        join.see(Frame {
            direction: Direction::ToPod,
            ..frame(30, 0, 3)
        });
        join.hear(dropped(11, 0, 1, DropReason::VlanTag));
        let vlan = Verdict::Dropped(DropReason::VlanTag as u32);
        assert_eq!(
            verdicts(&join.release(u64::MAX, false)),
            [(10, vlan), (20, Verdict::Unknown), (30, Verdict::Delivered)]
        );
    }

    #[test]
    fn a_drop_that_no_tap_has_seen_is_a_packet_by_itself() {
        let mut join = Join::new(HOST);
        join.see(frame(10, 0, 1));
        // At the far end of its shaper; and one that the tap had no room for.
        let far = DropEvent {
            ifindex: FAR,
            ..dropped(20, 0, 1, DropReason::NoEndpoint)
        };
        join.hear(far);
        join.hear(dropped(30, 0, 9, DropReason::TooBig));
        let released = join.release(u64::MAX, true);
        assert_eq!(
            verdicts(&released),
            [
                (10, Verdict::Accepted),
                (20, Verdict::DroppedUnseen(DropReason::NoEndpoint as u32)),
                (30, Verdict::DroppedUnseen(DropReason::TooBig as u32)),
            ]
        );
        assert_eq!(released[2].frame.bytes, [9; 64]);
        assert_eq!(released[2].frame.length, 100);
    }

    #[test]
    fn a_packet_that_was_rewritten_before_the_kernel_refused_it_is_still_the_same() {
        let mut join = Join::new(HOST);
        join.see(frame(10, 0, 1));
        join.hear(dropped(11, 0, 9, DropReason::Undeliverable));
        join.hear(dropped(12, 0, 9, DropReason::Undeliverable));
        let number = DropReason::Undeliverable as u32;
        assert_eq!(
            verdicts(&join.release(u64::MAX, true)),
            [
                (10, Verdict::Dropped(number)),
                (12, Verdict::DroppedUnseen(number))
            ],
            "a frame is dropped once"
        );
    }

    #[test]
    fn frames_that_wait_have_a_limit() {
        let mut join = Join::new(HOST);
        let large = Frame {
            bytes: vec![0; WAITING],
            ..frame(1, 0, 0)
        };
        join.see(large);
        join.see(frame(2, 0, 0));
        assert_eq!(join.take_refused(), 1);
        assert_eq!(join.take_refused(), 0);
        assert_eq!(join.release(u64::MAX, true).len(), 1);
        join.see(frame(3, 0, 0));
        assert_eq!(join.take_refused(), 0, "there is room again");
    }
}
