//! Packets that a peer sends us: a ring whose producer is the peer.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::descriptor::PeerFd;
use crate::error::Violation;
use crate::handshake::RingPlace;
use crate::index::ahead;
use crate::layout::Buffers;
use crate::packet::Packet;
use crate::shm::{Desc, NEXT, Regions, RingMemory, Segment};

/// Most segments of a packet.
///
/// A longer chain is dropped, so that no chain is without end.
pub const MAX_SEGMENTS: usize = 8;
/// Packets of a group at most.
pub const GROUP: usize = 32;
/// Segments behind the first.
const MORE: usize = MAX_SEGMENTS - 1;
/// Bytes of an Ethernet header: shorter packets are dropped.
pub const MIN_FRAME: u32 = 14;

/// Counters of received packets, since the connection was made; they wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCounters {
    /// Packets that were visited.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets dropped for their length.
    ///
    /// They were shorter than an Ethernet header, or longer than allowed.
    pub bad_length: u64,
    /// Packets that were dropped: too many segments, or a chain that does not end.
    pub bad_chain: u64,
}

impl RxCounters {
    /// Whether a packet of this length is visited; if not, it is counted.
    #[inline]
    fn accept(&mut self, len: u32, most: u32) -> bool {
        let accepted = (MIN_FRAME..=most).contains(&len);
        self.bad_length = self.bad_length.wrapping_add(u64::from(!accepted));
        accepted
    }

    #[inline]
    fn add(&mut self, bytes: u64) {
        self.packets = self.packets.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(bytes);
    }
}

/// Where a ring was read up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxPosition {
    /// The index of the next slot.
    pub next: u16,
    /// Whether that slot is in the middle of a packet that is dropped.
    pub in_chain: bool,
}

/// The side of a ring: how its packets are found and its descriptors given back.
#[derive(Debug)]
enum Side {
    /// The peer is a client and owns the memory: what a descriptor names is checked.
    Server,
    /// The client's: a slot's buffer is where we put it, whatever its descriptor says.
    ///
    /// We own the memory.
    Client(Buffers),
}

/// The receiving end of a ring.
#[derive(Debug)]
pub struct Rx {
    ring: RingMemory,
    side: Side,
    event: Option<Arc<PeerFd>>,
    /// The next packet's index. It is never read back from the ring.
    next: u16,
    /// Dropping the rest of a chain.
    in_chain: bool,
    polling: bool,
    max_frame: u32,
    counters: RxCounters,
}

impl Rx {
    /// A server's end of a ring from a client; empties it.
    ///
    /// # Errors
    /// It is not inside its region, or is no ring.
    pub fn server(
        regions: &Arc<Regions>,
        place: RingPlace,
        event: Option<Arc<PeerFd>>,
        max_frame: u32,
    ) -> Result<Self, Violation> {
        let ring = RingMemory::new(regions, place)?;
        ring.check_cookie()?;
        ring.reset();
        ring.set_masked(true);
        Ok(Self::new(ring, Side::Server, event, max_frame))
    }

    /// A client's end of a ring from the server: lends it a buffer for each slot.
    ///
    /// # Errors
    /// It is not inside its region, or is no ring.
    pub fn client(
        regions: &Arc<Regions>,
        place: RingPlace,
        event: Option<Arc<PeerFd>>,
        buffers: Buffers,
    ) -> Result<Self, Violation> {
        let ring = RingMemory::new(regions, place)?;
        ring.check_cookie()?;
        ring.reset();
        ring.set_masked(true);
        let size = ring.size();
        for index in 0..size {
            ring.set_desc(index, buffers.lent(index));
        }
        ring.set_head(size);
        let max_frame = buffers.size();
        Ok(Self::new(ring, Side::Client(buffers), event, max_frame))
    }

    /// A server's end that goes on where another one stopped: nothing is emptied.
    ///
    /// # Errors
    /// The ring is not inside its region.
    pub(crate) fn resume(
        regions: &Arc<Regions>,
        place: RingPlace,
        event: Option<Arc<PeerFd>>,
        max_frame: u32,
        at: RxPosition,
    ) -> Result<Self, Violation> {
        let ring = RingMemory::new(regions, place)?;
        ring.set_masked(true);
        let mut rx = Self::new(ring, Side::Server, event, max_frame);
        rx.next = at.next;
        rx.in_chain = at.in_chain;
        Ok(rx)
    }

    /// Where another end would have to go on.
    pub(crate) fn position(&self) -> RxPosition {
        RxPosition {
            next: self.next,
            in_chain: self.in_chain,
        }
    }

    fn new(ring: RingMemory, side: Side, event: Option<Arc<PeerFd>>, max_frame: u32) -> Self {
        Self {
            ring,
            side,
            event,
            next: 0,
            in_chain: false,
            polling: true,
            max_frame,
            counters: RxCounters::default(),
        }
    }

    /// Visits up to `budget` packets and gives their slots back; returns their number.
    ///
    /// The number is that of slots taken; 0 means that the ring is empty for now.
    ///
    /// Nothing is allocated, no lock is taken, no system call made.
    ///
    /// # Errors
    /// The peer lied about an index or a place. The connection must be ended: the ring is not
    /// touched again.
    #[inline]
    pub fn burst(
        &mut self,
        budget: u16,
        mut visit: impl FnMut(Packet<'_>),
    ) -> Result<u16, Violation> {
        self.burst_groups(budget, |packets| {
            for packet in packets {
                visit(*packet);
            }
        })
    }

    /// As [`Self::burst`], with up to [`GROUP`] packets at a time, and at least one.
    ///
    /// Bytes that a peer on another processor has just written take as long to come as it takes to
    /// decide about a packet. Who copies all headers of a group before it looks at the first waits
    /// for all of them at once.
    ///
    /// # Errors
    /// As [`Self::burst`].
    #[inline]
    pub fn burst_groups(
        &mut self,
        budget: u16,
        mut visit: impl FnMut(&[Packet<'_>]),
    ) -> Result<u16, Violation> {
        let available = self.available()?;
        if available == 0 {
            return Ok(0);
        }
        if self.polling && !self.ring.is_masked() {
            // DPDK clears the header when it is connected, and our wish with it.
            self.ring.set_masked(true);
        }
        let Self {
            ring,
            side,
            next,
            in_chain,
            max_frame,
            counters,
            ..
        } = self;
        let mut slots = Slots {
            ring,
            side,
            next: *next,
            left: available,
        };
        let mut group = Group::new();
        let mut more = [Segment::EMPTY; MORE];
        let mut lie = None;
        for _ in 0..budget {
            let (first, goes_on) = match slots.take() {
                Ok(Some(taken)) => taken,
                Ok(None) => break,
                Err(violation) => {
                    lie = Some(violation);
                    break;
                }
            };
            if *in_chain {
                *in_chain = goes_on;
                continue;
            }
            if goes_on {
                // The others were before it.
                group.visit(counters, &mut visit);
                match slots.chain(&mut more) {
                    Ok(Chain::Whole(segments)) => {
                        let packet = Packet::of(first, more.get(..segments).unwrap_or_default());
                        if counters.accept(packet.len(), *max_frame) {
                            counters.add(packet.len().into());
                            visit(&[packet]);
                        }
                    }
                    Ok(Chain::Bad { goes_on }) => {
                        *in_chain = goes_on;
                        counters.bad_chain = counters.bad_chain.wrapping_add(1);
                    }
                    Err(violation) => {
                        lie = Some(violation);
                        break;
                    }
                }
                continue;
            }
            let packet = Packet::of(first, &[]);
            if counters.accept(packet.len(), *max_frame) && group.is_full_with(packet) {
                group.visit(counters, &mut visit);
            }
        }
        group.visit(counters, &mut visit);
        if let Some(violation) = lie {
            return Err(violation);
        }
        let taken = slots.next.wrapping_sub(*next);
        *next = slots.next;
        if taken > 0 {
            self.release();
        }
        Ok(taken)
    }

    /// Slots with packets.
    #[inline]
    fn available(&self) -> Result<u16, Violation> {
        let theirs = match self.side {
            Side::Server => self.ring.head(),
            Side::Client(_) => self.ring.tail(),
        };
        ahead(self.next, theirs, self.ring.size())
    }

    /// Gives all slots before `next` back to the peer, at once.
    #[inline]
    fn release(&self) {
        match self.side {
            Side::Server => self.ring.set_tail(self.next),
            // All slots but those with packets are lent, so the head is one round ahead.
            Side::Client(_) => self.ring.set_head(self.next.wrapping_add(self.ring.size())),
        }
    }

    /// Asks for a doorbell for the next packet; returns whether the ring is empty.
    ///
    /// Only then it makes sense to sleep.
    ///
    /// No peer known to us makes sure that it sees this in time, so wait with a time limit of some
    /// milliseconds. Wait by epoll with `EPOLLIN | EPOLLET`, and never read the eventfd: each ring
    /// of the bell is an edge, and a read could block.
    ///
    /// # Errors
    /// As [`Self::burst`].
    pub fn arm(&mut self) -> Result<bool, Violation> {
        self.polling = false;
        self.ring.set_masked(false);
        // The peer stores its index and then reads our wish; we do the same the other way round.
        fence(Ordering::SeqCst);
        Ok(self.available()? == 0)
    }

    /// Asks for no doorbells, as a side that polls; this is the initial state.
    ///
    /// Costs nothing when it is so already.
    #[inline]
    pub fn disarm(&mut self) {
        if !self.polling {
            self.polling = true;
            // The peer's index is beside it: each write here takes that from the peer's cache.
            self.ring.set_masked(true);
        }
    }

    /// Rings when the peer has sent something, if [`Self::arm`] asked for it.
    pub fn event(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(|event| event.as_fd())
    }

    /// Returns the counters of received packets.
    pub fn counters(&self) -> RxCounters {
        self.counters
    }

    /// Number of slots.
    pub fn size(&self) -> u16 {
        self.ring.size()
    }
}

/// Packets that are visited together.
struct Group<'r> {
    packets: [Packet<'r>; GROUP],
    held: usize,
}

impl<'r> Group<'r> {
    #[inline]
    fn new() -> Self {
        Self {
            packets: [Packet::of(Segment::EMPTY, &[]); GROUP],
            held: 0,
        }
    }

    /// Adds a packet, for which there is room; returns whether the batch is full.
    #[inline]
    fn is_full_with(&mut self, packet: Packet<'r>) -> bool {
        if let Some(place) = self.packets.get_mut(self.held) {
            *place = packet;
            self.held = self.held.saturating_add(1);
        }
        self.held >= GROUP
    }

    /// Has them visited, and has none then.
    #[inline]
    fn visit(&mut self, counters: &mut RxCounters, visit: &mut impl FnMut(&[Packet<'_>])) {
        let packets = self.packets.get(..self.held).unwrap_or_default();
        self.held = 0;
        if packets.is_empty() {
            return;
        }
        for packet in packets {
            counters.add(packet.len().into());
        }
        visit(packets);
    }
}

/// The rest of a packet behind its first segment.
enum Chain {
    /// This many segments, and then the packet ends.
    Whole(usize),
    /// More segments than are allowed, or than were sent.
    Bad { goes_on: bool },
}

/// Slots of a burst, taken one by one.
struct Slots<'r> {
    ring: &'r RingMemory,
    side: &'r Side,
    next: u16,
    left: u16,
}

impl<'r> Slots<'r> {
    /// Takes the next slot: its bytes, and whether the packet goes on behind them.
    ///
    /// The descriptor is read once, and left as the peer is to find it.
    #[inline]
    fn take(&mut self) -> Result<Option<(Segment<'r>, bool)>, Violation> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        let index = self.next;
        self.next = index.wrapping_add(1);
        let desc = self.ring.desc(index);
        let (place, lies) = match self.side {
            Side::Server => {
                if desc.flags != 0 {
                    // DPDK before 26.03 leaves this flag in descriptors that it uses again.
                    self.ring.set_desc_start(index, Desc { flags: 0, ..desc });
                }
                (desc, false)
            }
            Side::Client(buffers) => {
                let lent = buffers.lent(index);
                self.ring.set_desc(index, lent);
                let used = Desc {
                    length: desc.length,
                    ..lent
                };
                (used, desc.length > lent.length)
            }
        };
        let regions = self.ring.regions();
        let segment = regions.segment(place.region, place.offset, place.length);
        match segment {
            Some(segment) if !lies => Ok(Some((segment, desc.flags & NEXT != 0))),
            _ => Err(Violation::Descriptor {
                region: desc.region,
                offset: desc.offset,
                length: desc.length,
            }),
        }
    }

    #[cold]
    fn chain(&mut self, more: &mut [Segment<'r>; MORE]) -> Result<Chain, Violation> {
        let mut segments: usize = 0;
        for place in more.iter_mut() {
            let Some((segment, goes_on)) = self.take()? else {
                return Ok(Chain::Bad { goes_on: true });
            };
            *place = segment;
            segments = segments.saturating_add(1);
            if !goes_on {
                return Ok(Chain::Whole(segments));
            }
        }
        Ok(Chain::Bad { goes_on: true })
    }
}
