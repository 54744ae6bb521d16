//! Doorbells: eventfds that tell a peer to look at a ring.
//!
//! A peer has the same open file as we do. It can make it blocking and fill it, and then a write
//! blocks for as long as the peer likes; no flag of ours changes that, and a look before the write
//! comes too early. So writes are done on a thread of the connection's own: what it waits for,
//! nobody else does.

use std::io::IoSliceMut;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{ReadWriteFlags, preadv2, write};

use crate::descriptor::PeerFd;
use crate::error::{Error, Violation};

/// How long a write may take. A free eventfd is written to in a microsecond.
const PATIENCE: Duration = Duration::from_secs(1);

/// Threads that were told to end and have not yet.
static GRAVES: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());

/// One ring's doorbell.
#[derive(Clone, Debug)]
pub struct Bell(How);

#[derive(Clone, Debug)]
enum How {
    Silent,
    Direct(Arc<PeerFd>),
    Thread {
        shared: Arc<Shared>,
        thread: Thread,
        nth: usize,
    },
}

impl Bell {
    /// For a peer that polls.
    pub fn silent() -> Self {
        Self(How::Silent)
    }

    /// Makes a bell that the ringing thread writes; for a peer trusted not to block it.
    pub fn direct(event: Arc<PeerFd>) -> Self {
        Self(How::Direct(event))
    }

    /// Rings, without waiting for anything.
    #[cold]
    pub fn ring(&self) {
        match &self.0 {
            How::Silent => {}
            How::Direct(event) => strike(event),
            How::Thread {
                shared,
                thread,
                nth,
            } => {
                let bell = shared.bells.get(*nth);
                if bell.is_some_and(|bell| !bell.pending.swap(true, Ordering::AcqRel)) {
                    thread.unpark();
                }
            }
        }
    }
}

/// Adds one to an eventfd.
fn strike(event: &PeerFd) {
    // Full and not blocking: there is a ring that the peer has not heard yet. Interrupted or not
    // writable at all: the peer's loss.
    let _ = write(event.as_fd(), &1_u64.to_ne_bytes());
}

/// The doorbells of a connection and their thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Bells {
    shared: Arc<Shared>,
    thread: Thread,
    /// A write that was seen going on, and since when.
    seen: Option<(u32, Instant)>,
}

#[derive(Debug)]
struct Shared {
    bells: Vec<Waiting>,
    stop: AtomicBool,
    /// Begun and ended writes: odd during a write.
    writes: AtomicU32,
}

#[derive(Debug)]
struct Waiting {
    event: Arc<PeerFd>,
    pending: AtomicBool,
}

impl Bells {
    /// Starts the thread.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(events: impl IntoIterator<Item = Arc<PeerFd>>) -> Result<Self, Error> {
        sweep();
        let bells = events.into_iter().map(|event| Waiting {
            event,
            pending: AtomicBool::new(false),
        });
        let shared = Arc::new(Shared {
            bells: bells.collect(),
            stop: AtomicBool::new(false),
            writes: AtomicU32::new(0),
        });
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("memif-bells".to_owned())
            .stack_size(64 << 10)
            .spawn(move || for_thread.serve())
            .map_err(Error::Thread)?;
        Ok(Self {
            shared,
            thread: thread.thread().clone(),
            seen: None,
        })
    }

    /// The doorbell of the `nth` eventfd.
    pub(crate) fn bell(&self, nth: usize) -> Bell {
        Bell(How::Thread {
            shared: Arc::clone(&self.shared),
            thread: self.thread.clone(),
            nth,
        })
    }

    /// Finds a peer that lets us wait. To be called now and then.
    ///
    /// # Errors
    /// A write has not returned for a second, and an eventfd is full.
    pub(crate) fn check(&mut self, now: Instant) -> Result<(), Violation> {
        let writes = self.shared.writes.load(Ordering::Acquire);
        if writes.is_multiple_of(2) {
            self.seen = None;
            return Ok(());
        }
        match self.seen {
            Some((same, since)) if same == writes => {
                let is_long = now.saturating_duration_since(since) >= PATIENCE;
                if is_long && self.shared.bells.iter().any(Waiting::is_full) {
                    return Err(Violation::Doorbell);
                }
            }
            _ => self.seen = Some((writes, now)),
        }
        Ok(())
    }
}

impl Drop for Bells {
    fn drop(&mut self) {
        // First, so that the thread finds itself there when it ends.
        graves().push(Arc::clone(&self.shared));
        self.shared.stop.store(true, Ordering::Release);
        self.thread.unpark();
        sweep();
    }
}

impl Shared {
    fn serve(&self) {
        loop {
            // What was asked for before the end is done.
            let stop = self.stop.load(Ordering::Acquire);
            let mut rang = false;
            for bell in &self.bells {
                if bell.pending.swap(false, Ordering::AcqRel) {
                    rang = true;
                    self.writes.fetch_add(1, Ordering::AcqRel);
                    strike(&bell.event);
                    self.writes.fetch_add(1, Ordering::AcqRel);
                }
            }
            if stop {
                break;
            }
            if !rang {
                thread::park();
            }
        }
        graves().retain(|shared| !std::ptr::eq(&raw const **shared, self));
    }
}

impl Waiting {
    fn is_full(&self) -> bool {
        let mut fds = [PollFd::new(&*self.event, PollFlags::OUT)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let polled = poll(&mut fds, Some(&now));
        polled.is_ok() && fds.iter().all(|fd| !fd.revents().contains(PollFlags::OUT))
    }

    /// Makes room for the write that waits.
    ///
    /// It does not block: this flag works for reads.
    fn empty(&self) {
        let mut count = [0; 8];
        let mut buffers = [IoSliceMut::new(&mut count)];
        // Nothing to read is what it should be.
        let _ = preadv2(&*self.event, &mut buffers, u64::MAX, ReadWriteFlags::NOWAIT);
    }
}

/// Helps threads that were told to end out of their last write.
fn sweep() {
    for shared in graves().iter() {
        if !shared.writes.load(Ordering::Acquire).is_multiple_of(2) {
            shared.bells.iter().for_each(Waiting::empty);
        }
    }
}

fn graves() -> std::sync::MutexGuard<'static, Vec<Arc<Shared>>> {
    // The list is whole whatever happened to who held it.
    GRAVES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    use super::*;

    fn event() -> Arc<PeerFd> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Arc::new(PeerFd::new(eventfd(0, flags).unwrap()))
    }

    fn wait_for(what: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !what() {
            assert!(Instant::now() < end, "waited in vain");
            thread::yield_now();
        }
    }

    /// Fills the shared file, as a hostile peer does.
    fn fill(event: &PeerFd) {
        let flags = fcntl_getfl(event).unwrap();
        write(event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        fcntl_setfl(event, flags - OFlags::NONBLOCK).unwrap();
    }

    fn is_readable(event: &PeerFd) -> bool {
        let mut fds = [PollFd::new(event, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&now)).unwrap() == 1
    }

    #[test]
    #[cfg_attr(miri, ignore = "system calls that Miri does not have")]
    fn a_ring_is_heard() {
        for direct in [false, true] {
            let (first, second) = (event(), event());
            let bells = Bells::start([Arc::clone(&first), Arc::clone(&second)]).unwrap();
            let bell = if direct {
                Bell::direct(Arc::clone(&second))
            } else {
                bells.bell(1)
            };
            for _ in 0..3 {
                bell.ring();
                wait_for(|| is_readable(&second));
                let mut count = [0; 8];
                rustix::io::read(&*second, &mut count).unwrap();
            }
            assert!(!is_readable(&first));
        }
    }

    /// Facts 1.6: "full blocking eventfd".
    #[test]
    #[cfg_attr(miri, ignore = "system calls that Miri does not have")]
    fn a_full_blocking_eventfd_stalls_nobody_and_is_found_out() {
        let event = event();
        fill(&event);
        let mut bells = Bells::start([Arc::clone(&event)]).unwrap();
        let bell = bells.bell(0);
        // More than once: a second ring does not wait for the first.
        bell.ring();
        bell.ring();
        let shared = Arc::clone(&bells.shared);
        wait_for(|| shared.writes.load(Ordering::Acquire) == 1);
        let now = Instant::now();
        assert_eq!(bells.check(now), Ok(()));
        assert_eq!(bells.check(now + PATIENCE / 2), Ok(()));
        assert_eq!(bells.check(now + PATIENCE), Err(Violation::Doorbell));
        // And its thread ends, although the peer never reads.
        drop(bells);
        wait_for(|| {
            sweep();
            !graves().iter().any(|grave| Arc::ptr_eq(grave, &shared))
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "system calls that Miri does not have")]
    fn a_slow_write_that_ends_is_no_fault() {
        let event = event();
        let mut bells = Bells::start([event]).unwrap();
        let now = Instant::now();
        bells.shared.writes.store(1, Ordering::Release);
        assert_eq!(bells.check(now), Ok(()));
        // Long, but the eventfd has room: the machine is slow, not the peer hostile.
        assert_eq!(bells.check(now + PATIENCE), Ok(()));
        bells.shared.writes.store(3, Ordering::Release);
        assert_eq!(bells.check(now + PATIENCE), Ok(()));
    }
}
