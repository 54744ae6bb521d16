//! Writes a capture as pcapng (draft-ietf-opsawg-pcapng).
//!
//! Each packet has its direction, seen from the pod, and its verdict: in words as a comment, and a drop
//! also as the option `epb_verdict` of a TC program.

use std::mem;

use agent_common::drop::DropReason;

use crate::join::{Direction, Judged, Verdict};

/// Types of blocks.
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// Word by which a reader finds the byte order.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Length of a section that is not known.
const UNKNOWN_LENGTH: u64 = u64::MAX;
/// `LINKTYPE_ETHERNET`.
const ETHERNET: u16 = 1;

/// Number of the option `opt_comment`.
const COMMENT: u16 = 1;
/// Number of the option `shb_userappl`.
const APPLICATION: u16 = 4;
/// Number of the option `if_name`.
const NAME: u16 = 2;
/// Number of the option `if_description`.
const DESCRIPTION: u16 = 3;
/// Number of the option `if_tsresol`.
const RESOLUTION: u16 = 9;
/// Number of the option `epb_flags`.
const FLAGS: u16 = 2;
/// Number of the option `epb_verdict`.
const VERDICT: u16 = 7;
/// Number of the option `isb_ifrecv`.
const RECEIVED: u16 = 4;
/// Number of the option `isb_ifdrop`.
const LOST: u16 = 5;

/// Powers of ten of a second in which times are.
const NANOSECONDS: u8 = 9;
/// Directions of `epb_flags`: inbound is to the pod.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
/// Type of `epb_verdict` for TC programs, `Linux_eBPF_TC`.
const VERDICT_TC: u8 = 1;
/// `TC_ACT_SHOT` (linux/pkt_cls.h).
const SHOT: u64 = 2;

/// Names of the captured port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The interface in the pod.
    pub interface: String,
    /// The pod, network and kind, in words.
    pub description: String,
    /// Program that writes the file, with its version.
    pub application: String,
}

/// A capture that is being written to memory, for somebody to take.
#[derive(Debug)]
pub struct File {
    bytes: Vec<u8>,
    /// `CLOCK_REALTIME` at the zero of `CLOCK_MONOTONIC`, nanoseconds.
    epoch_ns: u64,
    packets: u64,
}

impl File {
    /// Begins a file: its header, and the port as its only interface.
    ///
    /// Packets have at most `snaplen` bytes; `epoch_ns` is `CLOCK_REALTIME` less `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn begin(named: &Named, snaplen: u32, epoch_ns: u64) -> Self {
        let mut file = Self {
            bytes: Vec::new(),
            epoch_ns,
            packets: 0,
        };
        let mut header = Body::default();
        header.word(BYTE_ORDER);
        // Version 1.0.
        header.half(1);
        header.half(0);
        header.long(UNKNOWN_LENGTH);
        header.option(APPLICATION, named.application.as_bytes());
        file.block(SECTION_HEADER, header);
        let mut interface = Body::default();
        interface.half(ETHERNET);
        interface.half(0);
        interface.word(snaplen);
        interface.option(NAME, named.interface.as_bytes());
        interface.option(DESCRIPTION, named.description.as_bytes());
        interface.option(RESOLUTION, &[NANOSECONDS]);
        file.block(INTERFACE, interface);
        file
    }

    /// Adds a packet.
    pub fn add(&mut self, judged: &Judged) {
        let frame = &judged.frame;
        let direction = match frame.direction {
            Direction::FromPod => OUTBOUND,
            Direction::ToPod => INBOUND,
        };
        let mut packet = Body::default();
        // Of the only interface.
        packet.word(0);
        packet.time(self.epoch_ns.saturating_add(frame.time_ns));
        packet.word(u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX));
        packet.word(frame.length);
        packet.padded(&frame.bytes);
        packet.option(COMMENT, words(judged).as_bytes());
        packet.option(FLAGS, &direction.to_ne_bytes());
        if matches!(
            judged.verdict,
            Verdict::Dropped(_) | Verdict::DroppedUnseen(_)
        ) {
            let [a, b, c, d, e, f, g, h] = SHOT.to_ne_bytes();
            packet.option(VERDICT, &[VERDICT_TC, a, b, c, d, e, f, g, h]);
        }
        self.block(PACKET, packet);
        self.packets += 1;
    }

    /// Ends the file with the number of packets, and of those that found no room.
    ///
    /// `now_ns` is of `CLOCK_MONOTONIC`.
    pub fn end(&mut self, now_ns: u64, lost: u64) {
        let mut statistics = Body::default();
        statistics.word(0);
        statistics.time(self.epoch_ns.saturating_add(now_ns));
        let received = self.packets.saturating_add(lost);
        statistics.option(RECEIVED, &received.to_ne_bytes());
        statistics.option(LOST, &lost.to_ne_bytes());
        self.block(STATISTICS, statistics);
    }

    /// Writes a block: its type, its length before and behind the body.
    fn block(&mut self, kind: u32, mut body: Body) {
        body.option(0, &[]);
        // Type and two lengths are 12 bytes.
        let length = u32::try_from(body.0.len() + 12).unwrap_or(u32::MAX);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(body.0);
        self.bytes.extend(length.to_ne_bytes());
    }

    /// Returns the number of packets so far.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Takes the bytes that were written since the last call: whole blocks.
    pub fn take(&mut self) -> Vec<u8> {
        mem::take(&mut self.bytes)
    }
}

/// The body of a block, in the byte order of this machine.
#[derive(Debug, Default)]
struct Body(Vec<u8>);

impl Body {
    fn half(&mut self, value: u16) {
        self.0.extend(value.to_ne_bytes());
    }

    fn word(&mut self, value: u32) {
        self.0.extend(value.to_ne_bytes());
    }

    fn long(&mut self, value: u64) {
        self.0.extend(value.to_ne_bytes());
    }

    /// A time is two words, the upper one first, whatever their byte order.
    fn time(&mut self, nanoseconds: u64) {
        let [a, b, c, d, e, f, g, h] = nanoseconds.to_be_bytes();
        self.word(u32::from_be_bytes([a, b, c, d]));
        self.word(u32::from_be_bytes([e, f, g, h]));
    }

    /// Bytes are filled up to whole words.
    fn padded(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
        let whole = self.0.len().next_multiple_of(4);
        self.0.resize(whole, 0);
    }

    fn option(&mut self, number: u16, value: &[u8]) {
        self.half(number);
        self.half(u16::try_from(value.len()).unwrap_or(u16::MAX));
        self.padded(value);
    }
}

/// Direction and verdict as a comment.
fn words(judged: &Judged) -> String {
    let way = match judged.frame.direction {
        Direction::FromPod => "from the pod",
        Direction::ToPod => "to the pod",
    };
    let verdict = match judged.verdict {
        Verdict::Delivered => "delivered".to_owned(),
        Verdict::Accepted => "accepted".to_owned(),
        Verdict::Dropped(number) => dropped(number),
        Verdict::DroppedUnseen(number) => format!(
            "{} (the first bytes only: seen where it was dropped)",
            dropped(number)
        ),
        Verdict::Unknown => "verdict unknown: records of drops were lost".to_owned(),
    };
    format!("{way}: {verdict}")
}

fn dropped(number: u32) -> String {
    match DropReason::from_number(number) {
        Some(reason) => format!("dropped: {}: {}", reason.label(), reason.meaning().trim()),
        None => format!("dropped: reason {number}, of another version of podnet"),
    }
}

#[cfg(test)]
mod tests;
