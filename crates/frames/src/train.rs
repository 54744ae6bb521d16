//! Join frames of one flow into one packet, which the kernel cuts again (GSO).
//!
//! A frame joins only if the piece that the kernel makes of it is the same, byte by byte: so a check that holds
//! for the first frame of a train holds for all, and what is in a train is what was sent. Everything is judged
//! and checked on the copy that is written to the device.
//!
//! Frames with wrong checksums, fragments, options of IP, padding, a group's address, or more than the MTU stay
//! alone: the kernel program and the receiver see them as they are.

mod shape;
mod sum;

use memif::Packet;

use self::shape::{HEAD, Shape};
pub use self::shape::{Kind, Kinds};

/// Bytes of `struct virtio_net_hdr` (linux/virtio_net.h), in front of a frame.
pub const HEADER: usize = 10;
/// Most frames of a train.
///
/// `UDP_MAX_SEGMENTS` of Linux before 6.9.
pub const FRAMES_MAX: usize = 64;
/// Bytes of the longest train; what tunnels add fits behind them into 16 bits.
const LENGTH_MAX: usize = 64_000;
/// A checksum is to be finished: `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CSUM: u8 = 1;

/// Frames that are written to a device as one.
#[derive(Debug)]
pub struct Train {
    /// A header, and behind it the first frame and the payloads of the others.
    bytes: Vec<u8>,
    /// Bytes behind the header.
    len: usize,
    /// Of all frames.
    sum: u64,
    frames: usize,
    /// Headers that others must have to join; none if none may.
    shape: Option<Shape>,
    /// The first one's checksum was found to be right.
    checked: bool,
    /// The headers of the frames, as they came.
    heads: Vec<[u8; HEAD]>,
}

impl Train {
    /// Makes room for one, for frames of up to this many bytes.
    #[inline]
    pub fn new(frame_max: usize) -> Self {
        Self {
            bytes: vec![0; HEADER.saturating_add(frame_max)],
            len: 0,
            sum: 0,
            frames: 0,
            shape: None,
            checked: false,
            heads: Vec::with_capacity(FRAMES_MAX),
        }
    }

    /// Begins with a packet.
    ///
    /// Others may join it if they are of these kinds, on a port with this MTU.
    #[inline]
    pub fn begin(&mut self, packet: &Packet<'_>, kinds: Kinds, mtu: u16) {
        let room = self.bytes.get_mut(HEADER..).unwrap_or_default();
        self.len = packet.read(0, room);
        self.sum = u64::try_from(self.len).unwrap_or(u64::MAX);
        self.frames = 1;
        self.checked = false;
        self.heads.clear();
        let frame = room.get(..self.len).unwrap_or_default();
        self.shape = Shape::of(frame, self.len, mtu).filter(|shape| kinds.has(shape.kind));
        if let Some(shape) = &self.shape {
            let mut head = [0; HEAD];
            for (to, from) in head.iter_mut().zip(frame).take(shape.payload) {
                *to = *from;
            }
            self.heads.push(head);
        }
    }

    /// Adds a packet that may join; returns whether it did. If not, nothing is changed.
    #[inline]
    pub fn join(&mut self, packet: &Packet<'_>) -> bool {
        let Some(shape) = &mut self.shape else {
            return false;
        };
        let len = usize::try_from(packet.len()).unwrap_or(usize::MAX);
        let Some(more) = len.checked_sub(shape.payload) else {
            return false;
        };
        let end = self.len.saturating_add(more);
        if more == 0 || more > shape.size || end > LENGTH_MAX || self.frames >= FRAMES_MAX {
            return false;
        }
        let mut head = [0; HEAD];
        let (Some(into), Some((_, room))) = (
            head.get_mut(..shape.payload),
            self.bytes.split_at_mut_checked(HEADER),
        ) else {
            return false;
        };
        packet.read(0, into);
        let (train, room) = room.split_at_mut_checked(self.len).unwrap_or_default();
        let sent = self.len.saturating_sub(shape.payload);
        let Some(is_last) = shape.next(train, into, len, self.frames, sent) else {
            return false;
        };
        let room = room.get_mut(..more).unwrap_or_default();
        let skip = u32::try_from(shape.payload).unwrap_or(u32::MAX);
        if packet.read(skip, room) != more || !shape.is_whole(into, room) {
            return false;
        }
        if !self.checked {
            let (first, payload) = train.split_at_checked(shape.payload).unwrap_or_default();
            if !shape.is_whole(first, payload) {
                self.shape = None;
                return false;
            }
            self.checked = true;
        }
        self.heads.push(head);
        self.len = end;
        self.sum = self.sum.saturating_add(u64::from(packet.len()));
        self.frames = self.frames.saturating_add(1);
        if is_last {
            shape.close();
        }
        true
    }

    /// Has no frame any more.
    #[inline]
    pub fn clear(&mut self) {
        self.frames = 0;
        self.shape = None;
    }

    /// Number of its frames.
    #[inline]
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Bytes of all frames together.
    #[inline]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Kind of a train of more than one frame.
    #[inline]
    pub fn kind(&self) -> Option<Kind> {
        let shape = self.shape.as_ref().filter(|_| self.frames > 1)?;
        Some(shape.kind)
    }

    /// Returns the header and the packet, with all that the kernel needs to cut it.
    #[inline]
    pub fn packet(&mut self) -> &[u8] {
        let end = HEADER.saturating_add(self.len);
        let all = self.bytes.get_mut(..end).unwrap_or_default();
        let Some((header, packet)) = all.split_first_chunk_mut::<HEADER>() else {
            return &[];
        };
        *header = match &self.shape {
            Some(shape) if self.frames > 1 => {
                let last = self.heads.last().map(<[u8; HEAD]>::as_slice);
                shape.lead(packet, last.unwrap_or_default());
                shape.header()
            }
            Some(_) | None => [0; HEADER],
        };
        all
    }

    /// Shows each frame of a train as it came, in parts.
    ///
    /// They are a header, its own headers, and its payload.
    #[inline]
    pub fn each(&self, mut show: impl FnMut([&[u8]; 3])) {
        const EMPTY: &[u8] = &[0; HEADER];
        let Some(shape) = &self.shape else {
            return;
        };
        let begin = HEADER.saturating_add(shape.payload);
        let end = HEADER.saturating_add(self.len);
        let payloads = self.bytes.get(begin..end).unwrap_or_default();
        for (head, payload) in self.heads.iter().zip(payloads.chunks(shape.size)) {
            let head = head.get(..shape.payload).unwrap_or_default();
            show([EMPTY, head, payload]);
        }
    }
}

impl Shape {
    /// Returns the header of a train, `struct virtio_net_hdr`.
    ///
    /// From linux/virtio_net.h, in the machine's byte order.
    fn header(&self) -> [u8; HEADER] {
        let field = |value: usize| u16::try_from(value).unwrap_or(u16::MAX).to_ne_bytes();
        let [h0, h1] = field(self.payload);
        let [s0, s1] = field(self.size);
        let [c0, c1] = field(self.transport);
        let [o0, o1] = field(self.kind.checksum());
        [NEEDS_CSUM, self.gso_type(), h0, h1, s0, s1, c0, c1, o0, o1]
    }
}
