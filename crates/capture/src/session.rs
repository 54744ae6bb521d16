//! Runs one capture: reads taps and drops, and hands over a file in pieces.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use agent_common::capture::{TAP_TAGGED, TAP_TO_POD, TapRecord};
use datapath::DatapathError;
use datapath::capture::{Tap, TapEvent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

use crate::file::{File, Named};
use crate::join::{Direction, Frame, Join};
use crate::registry::Watch;

/// Between two looks at the clock and at the drops.
const TURN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
/// Time that the end of a capture waits for the last drops.
const LAST: Duration = Duration::from_secs(2);
/// Length of the two MAC addresses, behind which a tag is.
const ADDRESSES: usize = 12;

/// Limits of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a packet that are written.
    pub snaplen: u32,
    /// Packets after which it ends; none for no limit.
    pub packets: Option<u64>,
    /// Time after which it ends.
    pub time: Duration,
}

/// Taps and drops of one capture.
#[derive(Debug)]
pub struct Source {
    /// Its taps, attached.
    pub tap: Tap,
    /// Its drops.
    pub watch: Watch,
    /// The interface at which frames are judged first.
    pub ifindex: u32,
}

/// A receiver of the file.
pub trait Sink {
    /// Takes a piece, perhaps after a wait; returns whether it takes more.
    fn take(&mut self, piece: Vec<u8>) -> bool;
}

/// A capture failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The kernel does not tell what was lost.
    #[error(transparent)]
    Datapath(#[from] DatapathError),
    /// The kernel does not say when there is something to read.
    #[error("cannot wait for packets of a capture")]
    Wait {
        /// Why not.
        source: rustix::io::Errno,
    },
}

/// Captures until a limit, `stop` or the end of the sink. Blocks.
///
/// Returns the number of packets that were written.
///
/// # Errors
/// When the kernel refuses to tell; the file ends with whole blocks.
pub fn run(
    mut source: Source,
    named: &Named,
    limits: Limits,
    stop: &Arc<AtomicBool>,
    sink: &mut impl Sink,
) -> Result<u64, SessionError> {
    let epoch = now(ClockId::Realtime).saturating_sub(now(ClockId::Monotonic));
    let mut file = File::begin(named, limits.snaplen, epoch);
    let mut join = Join::new(source.ifindex);
    let (mut lost, mut lost_drops) = (0, 0);
    let begun = Instant::now();
    let mut ending: Option<Instant> = None;
    let mut end_ns = None;
    if !sink.take(file.take()) {
        return Ok(0);
    }
    loop {
        if ending.is_none() {
            wait(&source.tap)?;
        } else {
            // No more frames are read: the last ones wait for their drops.
            std::thread::sleep(Duration::from_millis(10));
        }
        // All frames until here are in the buffers, which are read now.
        let read_until = now(ClockId::Monotonic);
        let heard_until = source.watch.heard_until();
        // Before frames: one whose drop is lost after this is read by the turn that sees the new number.
        let lost_now = source.watch.lost()?;
        if ending.is_none() {
            source.tap.read(|event| match event {
                TapEvent::Frame { cpu, record, bytes } => {
                    join.see(frame(cpu, &record, bytes, limits.snaplen));
                }
                TapEvent::Lost(count) => lost += count,
            });
        }
        // Of frames that were read: none is after the end.
        let drops = source.watch.drops();
        drops
            .filter(|drop| end_ns.is_none_or(|end| drop.time_ns <= end))
            .for_each(|drop| join.hear(drop));
        let complete = lost_now == lost_drops;
        lost_drops = lost_now;
        if ending.is_none() && (stop.load(Ordering::Acquire) || begun.elapsed() >= limits.time) {
            ending = Some(Instant::now());
            end_ns = Some(read_until);
        }
        let is_last = join.is_empty() || ending.is_some_and(|since| since.elapsed() >= LAST);
        let until = match ending {
            // The last drops have not come in time: verdicts that wait for them are not known.
            Some(_) if is_last => u64::MAX,
            Some(_) | None => read_until.min(heard_until),
        };
        let complete = complete && (until != u64::MAX || join.is_empty());
        for judged in join.release(until, complete) {
            if limits.packets.is_none_or(|most| file.packets() < most) {
                file.add(&judged);
            }
        }
        lost += join.take_refused();
        let is_full = limits.packets.is_some_and(|most| file.packets() >= most);
        let is_over = is_full || ending.is_some() && is_last;
        if is_over {
            file.end(now(ClockId::Monotonic), lost);
        }
        let piece = file.take();
        let is_wanted = piece.is_empty() || sink.take(piece);
        if is_over || !is_wanted {
            return Ok(file.packets());
        }
    }
}

fn wait(tap: &Tap) -> Result<(), SessionError> {
    let mut waiting: Vec<_> = tap
        .descriptors()
        .map(|buffer| PollFd::from_borrowed_fd(buffer, PollFlags::IN))
        .collect();
    match poll(&mut waiting, Some(&TURN)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(source) => Err(SessionError::Wait { source }),
    }
}

/// Nanoseconds of a clock.
pub(crate) fn now(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// The frame of a record, with the tag where it is on a wire.
pub(crate) fn frame(cpu: u32, record: &TapRecord, bytes: &[u8], snaplen: u32) -> Frame {
    let direction = if record.direction == TAP_TO_POD {
        Direction::ToPod
    } else {
        Direction::FromPod
    };
    let (mut length, mut bytes) = (record.length, bytes.to_vec());
    if record.tag & TAP_TAGGED != 0 && bytes.len() >= ADDRESSES {
        let [a, b] = low_half(record.tag_type);
        let [c, d] = low_half(record.tag);
        bytes.splice(ADDRESSES..ADDRESSES, [a, b, c, d]);
        bytes.truncate(usize::try_from(snaplen).unwrap_or(usize::MAX));
        length = length.saturating_add(4);
    }
    Frame {
        time_ns: record.time_ns,
        cpu,
        direction,
        length,
        segments: 1,
        bytes,
    }
}

/// The lower 16 bits, in network byte order.
const fn low_half(word: u32) -> [u8; 2] {
    let [_, _, high, low] = word.to_be_bytes();
    [high, low]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tag: u32) -> TapRecord {
        TapRecord {
            time_ns: 5,
            length: 60,
            captured: 60,
            tag,
            tag_type: 0x8100,
            direction: TAP_TO_POD,
            reserved: 0,
        }
    }

    #[test]
    fn a_tag_beside_a_frame_is_written_into_it() {
        let bytes: Vec<u8> = (0..60).collect();
        let plain = frame(1, &record(0), &bytes, 100);
        assert_eq!((plain.length, &plain.bytes), (60, &bytes));
        assert_eq!(plain.direction, Direction::ToPod);
        let tagged = frame(1, &record(TAP_TAGGED | 0x2064), &bytes, 100);
        assert_eq!((tagged.length, tagged.bytes.len()), (64, 64));
        assert_eq!(tagged.bytes[..12], bytes[..12]);
        assert_eq!(tagged.bytes[12..16], [0x81, 0x00, 0x20, 0x64]);
        assert_eq!(tagged.bytes[16..], bytes[12..]);
        // VLAN 0 with priority 0 is a tag too, and no packet is longer than was asked for.
        let short = frame(1, &record(TAP_TAGGED), &bytes, 60);
        assert_eq!(short.bytes.len(), 60);
        assert_eq!(short.bytes[12..16], [0x81, 0x00, 0, 0]);
    }
}
