//! A bound socket: frames out of it and into it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{self, xdp_mmap_offsets};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpRingOffset, XdpStatistics,
    XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{SendFlags, bind, send};

use crate::config::Config;
use crate::error::Error;
use crate::ring::{Consumer, Producer};
use crate::shm::{Memory, Parts, RingMemory, Width};
use crate::umem::Umem;

/// How long a queue that another socket has is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(2);

/// Decision about a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its memory is used again.
    Done,
    /// Sends it out of the same queue, as it is now and as long as it was.
    ///
    /// Without a free slot it is dropped.
    Send,
}

/// Frames counted since the socket was bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Received.
    pub received: u64,
    /// Given to the kernel to be sent.
    pub sent: u64,
    /// To be sent, and there was no room.
    pub full: u64,
}

/// A socket with its memory and its four rings.
#[derive(Debug)]
pub struct Port {
    socket: OwnedFd,
    rx: Consumer,
    tx: Producer,
    fill: Producer,
    completion: Consumer,
    umem: Umem,
    /// Frames that the kernel may receive into, and how many it may have.
    receiving: u32,
    receiving_max: u32,
    counters: Counters,
}

impl Port {
    /// Gives a socket memory and rings, and binds it to a queue of an interface.
    ///
    /// The interface is one of the socket's namespace. Binding takes no capability; opening the socket
    /// does.
    ///
    /// Nothing comes in before the socket is in the map of the interface's XDP program. A queue that another
    /// socket has just given up is waited for, a second at most.
    ///
    /// # Errors
    /// The configuration cannot be, or the kernel refuses.
    pub fn bind(socket: OwnedFd, ifindex: u32, queue: u32, config: &Config) -> Result<Self, Error> {
        config.check()?;
        require_xdp(socket.as_fd())?;
        let kernel = Error::kernel;
        let umem = Umem::new(config.frames, config.frame_size).map_err(kernel("get memory"))?;
        let registration = XdpUmemReg {
            addr: umem.memory().address(),
            len: umem.memory().len() as u64,
            chunk_size: config.frame_size,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&socket, registration).map_err(kernel("register memory"))?;
        let sized = kernel("make rings");
        sockopt::set_xdp_umem_fill_ring_size(&socket, config.ring)
            .and_then(|()| sockopt::set_xdp_umem_completion_ring_size(&socket, config.ring))
            .and_then(|()| sockopt::set_xdp_rx_ring_size(&socket, config.ring))
            .and_then(|()| sockopt::set_xdp_tx_ring_size(&socket, config.ring))
            .map_err(sized)?;
        let places = xdp_mmap_offsets(&socket).map_err(kernel("look at rings"))?;
        let ring =
            |what, place, at, width| map(socket.as_fd(), what, place, at, config.ring, width);
        let mut port = Self {
            rx: Consumer::new(ring(
                "receive",
                places.rx,
                XDP_PGOFF_RX_RING,
                Width::Descriptor,
            )?),
            tx: Producer::new(ring(
                "transmit",
                places.tx,
                XDP_PGOFF_TX_RING,
                Width::Descriptor,
            )?),
            fill: Producer::new(ring(
                "fill",
                places.fr,
                XDP_UMEM_PGOFF_FILL_RING,
                Width::Address,
            )?),
            completion: Consumer::new(ring(
                "completion",
                places.cr,
                XDP_UMEM_PGOFF_COMPLETION_RING,
                Width::Address,
            )?),
            umem,
            receiving: 0,
            // Half of it: what waits to be received must not keep us from sending.
            receiving_max: config.ring.min(config.frames / 2),
            counters: Counters::default(),
            socket,
        };
        port.refill();
        let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        if config.copy {
            flags |= SocketAddrXdpFlags::XDP_COPY;
        }
        let address = SocketAddrXdp::new(flags, ifindex, queue);
        port.bind_patiently(&address)
            .map_err(kernel("bind to the queue"))?;
        Ok(port)
    }

    /// Binds, and waits while the queue's last socket is still being closed.
    ///
    /// The kernel is done with that socket a moment after it was closed.
    fn bind_patiently(&self, address: &SocketAddrXdp) -> Result<(), Errno> {
        let until = Instant::now() + PATIENCE;
        loop {
            match bind(&self.socket, address) {
                Err(Errno::BUSY) if Instant::now() < until => thread::sleep(PAUSE),
                other => return other,
            }
        }
    }

    /// Visits up to `budget` received frames and returns how many there were.
    ///
    /// Frames that the visits send go out with the next [`Self::flush`].
    pub fn receive(&mut self, budget: u32, mut visit: impl FnMut(&mut [u8]) -> Verdict) -> u32 {
        let mut count = 0;
        while count < budget
            && let Some((address, len)) = self.rx.pop()
        {
            let Some((mut frame, offset)) = self.umem.reclaim(address) else {
                continue;
            };
            count += 1;
            self.receiving = self.receiving.saturating_sub(1);
            let verdict = match self.umem.bytes(&mut frame, offset, len) {
                Some(bytes) => visit(bytes),
                None => Verdict::Done,
            };
            if verdict == Verdict::Done {
                self.umem.put(frame);
            } else if self.tx.free(1) > 0 {
                let address = self.umem.lend(frame).saturating_add(offset.into());
                self.tx.push(address, len);
                self.counters.sent = self.counters.sent.wrapping_add(1);
            } else {
                self.umem.put(frame);
                self.counters.full = self.counters.full.wrapping_add(1);
            }
        }
        self.rx.release();
        self.collect();
        self.refill();
        self.counters.received = self.counters.received.wrapping_add(count.into());
        count
    }

    /// Copies a frame into the send ring; the next [`Self::flush`] sends it.
    ///
    /// False when there is no room now, or ever: it is longer than a frame.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        if self.umem.free() == 0 || self.tx.free(1) == 0 {
            self.collect();
        }
        let is_sent = self.push(bytes);
        let count = if is_sent {
            &mut self.counters.sent
        } else {
            &mut self.counters.full
        };
        *count = count.wrapping_add(1);
        is_sent
    }

    fn push(&mut self, bytes: &[u8]) -> bool {
        let Some(len) = u32::try_from(bytes.len())
            .ok()
            .filter(|_| self.tx.free(1) > 0)
        else {
            return false;
        };
        let Some(mut frame) = self.umem.take() else {
            return false;
        };
        let Some(to) = self.umem.bytes(&mut frame, 0, len) else {
            self.umem.put(frame);
            return false;
        };
        to.copy_from_slice(bytes);
        let address = self.umem.lend(frame);
        self.tx.push(address, len)
    }

    /// Wakes the kernel to send the queued frames.
    ///
    /// Frames that it has no room for now wait for the next call.
    ///
    /// # Errors
    /// The interface is down or gone.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.tx.publish();
        let mut pending = self.tx.pending();
        // A call sends a few dozen.
        while pending > 0 && self.tx.needs_wakeup() {
            match send(&self.socket, &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {}
                Err(source) => return Err(Error::kernel("send")(source)),
            }
            self.collect();
            let left = self.tx.pending();
            if left >= pending {
                break;
            }
            pending = left;
        }
        Ok(())
    }

    /// Sleeps until something has come, or the time is over. False when nothing has.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        let timeout = Timespec::try_from(timeout).ok();
        let mut waiting = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut waiting, timeout.as_ref()) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(source) => Err(Error::kernel("wait")(source)),
        }
    }

    /// Returns the frames counted so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Reads the kernel's statistics of the socket: drops, by their reason.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn statistics(&self) -> Result<XdpStatistics, Error> {
        sockopt::xdp_statistics(&self.socket).map_err(Error::kernel("read statistics"))
    }

    /// Longest frame that can be sent.
    pub fn frame_size(&self) -> u32 {
        self.umem.frame_size()
    }

    /// Takes back what was sent.
    fn collect(&mut self) {
        while let Some((address, _)) = self.completion.pop() {
            if let Some((frame, _)) = self.umem.reclaim(address) {
                self.umem.put(frame);
            }
        }
        self.completion.release();
    }

    /// Gives the kernel room for what comes.
    fn refill(&mut self) {
        while self.receiving < self.receiving_max
            && self.fill.free(1) > 0
            && let Some(frame) = self.umem.take()
        {
            let address = self.umem.lend(frame);
            self.fill.push(address, 0);
            self.receiving += 1;
        }
        self.fill.publish();
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Refuses what is no `AF_XDP` socket.
///
/// # Errors
/// It is something else.
pub fn require_xdp(socket: BorrowedFd<'_>) -> Result<(), Error> {
    match sockopt::socket_domain(socket) {
        Ok(rustix::net::AddressFamily::XDP) => Ok(()),
        _ => Err(Error::NotXdp),
    }
}

fn map(
    socket: BorrowedFd<'_>,
    name: &'static str,
    place: XdpRingOffset,
    at: u64,
    slots: u32,
    width: Width,
) -> Result<RingMemory, Error> {
    let odd = Error::Ring { ring: name };
    let at_most = |offset: u64| usize::try_from(offset).ok();
    let parts = (|| {
        Some(Parts {
            producer: at_most(place.producer)?,
            consumer: at_most(place.consumer)?,
            flags: at_most(place.flags?)?,
            entries: at_most(place.desc)?,
        })
    })();
    let Some(parts) = parts else {
        return Err(odd);
    };
    let entries = (slots as usize).saturating_mul(width.bytes());
    let len = parts.entries.saturating_add(entries);
    let memory = Memory::ring(socket, len, at).map_err(Error::kernel("map a ring"))?;
    RingMemory::new(memory, parts, slots, width).ok_or(odd)
}
