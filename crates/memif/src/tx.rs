//! Packets that we send a peer: a ring whose consumer is the peer.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::bell::Bell;
use crate::error::Violation;
use crate::handshake::RingPlace;
use crate::index::ahead;
use crate::layout::Buffers;
use crate::packet::Packet;
use crate::shm::{Desc, Regions, RingMemory, Segment};

/// Counters of sent packets, since the connection was made; they wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxCounters {
    /// Packets that were put into buffers.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that found no free buffer.
    pub no_buffer: u64,
    /// Packets longer than the buffer that was free. None is ever sent in parts.
    pub too_long: u64,
    /// Doorbells that the peer wanted.
    pub doorbells: u64,
}

/// The outcome of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// It is in a buffer; the peer sees it after [`Tx::flush`].
    Yes,
    /// The ring has no free buffer: the packet was dropped and counted.
    NoBuffer,
    /// The free buffer is smaller: the packet was dropped and counted.
    TooLong,
}

/// The owner of the memory.
#[derive(Debug)]
enum Side {
    /// The peer is a client: the buffers it posts are checked.
    Server,
    /// We own the memory: each slot has its buffer.
    Client(Buffers),
}

/// The sending end of a ring.
#[derive(Debug)]
pub struct Tx {
    ring: RingMemory,
    side: Side,
    bell: Bell,
    /// The next slot. It is never read back from the ring.
    next: u16,
    /// The value of `next` that the peer has seen.
    flushed: u16,
    /// Free slots from `next` on, as far as we know.
    free: u16,
    counters: TxCounters,
}

impl Tx {
    /// A server's end of a ring to a client; empties it.
    ///
    /// # Errors
    /// It is not inside its region, or is no ring.
    pub fn server(regions: &Arc<Regions>, place: RingPlace, bell: Bell) -> Result<Self, Violation> {
        Self::new(regions, place, bell, Side::Server)
    }

    /// A client's end of a ring to the server.
    ///
    /// # Errors
    /// It is not inside its region, or is no ring.
    pub fn client(
        regions: &Arc<Regions>,
        place: RingPlace,
        bell: Bell,
        buffers: Buffers,
    ) -> Result<Self, Violation> {
        Self::new(regions, place, bell, Side::Client(buffers))
    }

    /// A server's end that goes on where another one stopped: nothing is emptied.
    ///
    /// # Errors
    /// The ring is not inside its region.
    pub(crate) fn resume(
        regions: &Arc<Regions>,
        place: RingPlace,
        bell: Bell,
        next: u16,
    ) -> Result<Self, Violation> {
        let ring = RingMemory::new(regions, place)?;
        if !ring.is_masked() {
            // The one before may have been gone before the peer heard its last ring.
            bell.ring();
        }
        Ok(Self {
            ring,
            side: Side::Server,
            bell,
            next,
            flushed: next,
            free: 0,
            counters: TxCounters::default(),
        })
    }

    /// Where another end would have to go on, once all is flushed.
    pub(crate) fn position(&self) -> u16 {
        self.flushed
    }

    fn new(
        regions: &Arc<Regions>,
        place: RingPlace,
        bell: Bell,
        side: Side,
    ) -> Result<Self, Violation> {
        let ring = RingMemory::new(regions, place)?;
        ring.check_cookie()?;
        ring.reset();
        Ok(Self {
            ring,
            side,
            bell,
            next: 0,
            flushed: 0,
            free: 0,
            counters: TxCounters::default(),
        })
    }

    /// Puts a packet of ours into the next free buffer.
    ///
    /// # Errors
    /// The peer lied about an index or a place. The connection must be ended.
    #[inline]
    pub fn push(&mut self, frame: &[u8]) -> Result<Sent, Violation> {
        self.send(frame.len(), |buffer| {
            buffer.write(frame);
        })
    }

    /// Forwards a received packet, with its first bytes replaced by `header`.
    ///
    /// The copy that was decided about is the one that is sent. The rest goes from one shared memory to
    /// the other.
    ///
    /// # Errors
    /// As [`Self::push`].
    #[inline]
    pub fn forward(&mut self, header: &[u8], packet: &Packet<'_>) -> Result<Sent, Violation> {
        let skip = u32::try_from(header.len()).unwrap_or(u32::MAX);
        let rest = packet.len().saturating_sub(skip);
        let rest = usize::try_from(rest).unwrap_or(usize::MAX);
        let len = header.len().saturating_add(rest);
        self.send(len, |buffer| {
            buffer.write(header);
            if rest == 0 {
                return;
            }
            let mut at = skip;
            for part in packet.behind(skip) {
                part.copy_to(&buffer.skip(at));
                at = at.saturating_add(part.len());
            }
        })
    }

    /// The next free buffer gets `len` bytes by `fill`.
    #[inline]
    fn send(&mut self, len: usize, fill: impl FnOnce(Segment<'_>)) -> Result<Sent, Violation> {
        if self.free == 0 {
            self.free = self.look()?;
            if self.free == 0 {
                self.counters.no_buffer = self.counters.no_buffer.wrapping_add(1);
                return Ok(Sent::NoBuffer);
            }
        }
        let buffer = match &self.side {
            Side::Server => self.ring.desc(self.next),
            Side::Client(buffers) => buffers.lent(self.next),
        };
        let segment = self
            .ring
            .regions()
            .segment(buffer.region, buffer.offset, buffer.length)
            .ok_or(Violation::Descriptor {
                region: buffer.region,
                offset: buffer.offset,
                length: buffer.length,
            })?;
        let Some(length) = u32::try_from(len).ok().filter(|len| *len <= segment.len()) else {
            self.counters.too_long = self.counters.too_long.wrapping_add(1);
            return Ok(Sent::TooLong);
        };
        fill(segment);
        // Flags are written completely: what the client left in them is not ours to repeat.
        let used = Desc {
            flags: 0,
            length,
            ..buffer
        };
        match self.side {
            Side::Server => self.ring.set_desc_start(self.next, used),
            Side::Client(_) => self.ring.set_desc(self.next, used),
        }
        self.next = self.next.wrapping_add(1);
        self.free = self.free.saturating_sub(1);
        self.counters.packets = self.counters.packets.wrapping_add(1);
        self.counters.bytes = self.counters.bytes.wrapping_add(u64::from(length));
        Ok(Sent::Yes)
    }

    /// Free slots, by the peer's index.
    fn look(&self) -> Result<u16, Violation> {
        let size = self.ring.size();
        match self.side {
            // The client's head is where its posted buffers end.
            Side::Server => ahead(self.next, self.ring.head(), size),
            // The server's tail is what it has taken of ours.
            Side::Client(_) => {
                let used = ahead(self.ring.tail(), self.next, size)?;
                Ok(size.saturating_sub(used))
            }
        }
    }

    /// Buffers that are free now, looking at the ring.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn free(&mut self) -> Result<u16, Violation> {
        self.free = self.look()?;
        Ok(self.free)
    }

    /// Shows the peer all pushed packets at once, and rings its bell if it wants that.
    ///
    /// Nothing happens if there is nothing new.
    #[inline]
    pub fn flush(&mut self) {
        if self.next == self.flushed {
            return;
        }
        self.flushed = self.next;
        match self.side {
            Side::Server => self.ring.set_tail(self.next),
            Side::Client(_) => self.ring.set_head(self.next),
        }
        // The peer states its wish and then looks at our index; we do the same the other way round.
        fence(Ordering::SeqCst);
        if !self.ring.is_masked() {
            self.counters.doorbells = self.counters.doorbells.wrapping_add(1);
            self.bell.ring();
        }
    }

    /// Returns the counters of sent packets.
    pub fn counters(&self) -> TxCounters {
        self.counters
    }

    /// Number of slots.
    pub fn size(&self) -> u16 {
        self.ring.size()
    }
}
