//! Knows the ports under capture, and gives each capture its drops.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_common::event::DropEvent;
use datapath::DatapathError;
use datapath::capture::{Marked, Marks};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// Captures at a time on a node.
pub const MOST: usize = 8;

/// Drops that wait for their capture to take them.
const DROPS: usize = 8192;
/// The same of a port in the flow log: as many as its ring has samples.
const SAMPLED_DROPS: usize = 128;

/// A capture cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum Busy {
    /// The port has one.
    #[error("a capture of this port is running: end it, or wait for its end")]
    Port,
    /// The node has as many as it may.
    #[error("{MOST} captures are running on this node: end one of them")]
    Node,
    /// The programs were not told.
    #[error(transparent)]
    Datapath(#[from] DatapathError),
}

/// The ports under capture.
pub struct Captures {
    inner: Mutex<Inner>,
    running: AtomicUsize,
    /// Time until which captures have all their drops, nanoseconds.
    ///
    /// It is of `CLOCK_MONOTONIC`.
    heard_until: AtomicU64,
    /// Readable when there is a capture to hear for.
    wake: OwnedFd,
}

struct Inner {
    marks: Marks,
    captured: Listeners,
    /// Ports in the flow log.
    sampled: Listeners,
}

#[derive(Default)]
struct Listeners {
    /// By the interface at which packets of the port are judged.
    by_interface: HashMap<u32, Listener>,
    ports: HashSet<u16>,
}

/// Drops that a watch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// All drops of a port.
    Captured,
    /// Drops of frames that the flow log has sampled.
    Sampled,
}

impl Inner {
    fn of(&mut self, kind: Kind) -> &mut Listeners {
        match kind {
            Kind::Captured => &mut self.captured,
            Kind::Sampled => &mut self.sampled,
        }
    }

    /// Has the programs publish what is listened for.
    fn mark(&mut self, port_id: u16) -> Result<(), DatapathError> {
        let marked = Marked {
            captured: self.captured.ports.contains(&port_id),
            sampled: self.sampled.ports.contains(&port_id),
        };
        self.marks.set(port_id, marked)
    }

    /// Marks the port of a new listener; returns the drops that were lost before.
    fn begin(&mut self, port_id: u16) -> Result<u64, DatapathError> {
        self.mark(port_id)?;
        self.marks.lost(port_id)
    }
}

#[derive(Clone)]
struct Listener {
    to: SyncSender<DropEvent>,
    lost: Arc<AtomicU64>,
}

impl fmt::Debug for Captures {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Captures({})", self.running.load(Ordering::Relaxed))
    }
}

/// The drops of one port, until it is dropped itself.
#[derive(Debug)]
pub struct Watch {
    captures: Arc<Captures>,
    kind: Kind,
    port_id: u16,
    interfaces: Vec<u32>,
    drops: Receiver<DropEvent>,
    lost: Arc<AtomicU64>,
    /// Drops of the port that were lost before this watch began.
    before: u64,
}

impl Captures {
    /// Begins without any; the marks are those of the running programs.
    ///
    /// # Errors
    /// When the kernel has no descriptor to give.
    pub fn new(marks: Marks) -> Result<Arc<Self>, Errno> {
        Ok(Arc::new(Self {
            inner: Mutex::new(Inner {
                marks,
                captured: Listeners::default(),
                sampled: Listeners::default(),
            }),
            running: AtomicUsize::new(0),
            heard_until: AtomicU64::new(0),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has every drop of a port published, and given to the value that is returned.
    ///
    /// The port's packets are judged at these interfaces.
    ///
    /// # Errors
    /// When the port has a capture, the node has too many, or the kernel refuses.
    pub fn watch(self: &Arc<Self>, port_id: u16, interfaces: Vec<u32>) -> Result<Watch, Busy> {
        self.listen(Kind::Captured, port_id, interfaces)
    }

    /// Has drops of sampled frames published, and given to the returned value.
    ///
    /// The port's packets are judged at this interface.
    ///
    /// # Errors
    /// When the port is in the flow log, or the kernel refuses.
    pub fn sample(self: &Arc<Self>, port_id: u16, interface: u32) -> Result<Watch, Busy> {
        self.listen(Kind::Sampled, port_id, vec![interface])
    }

    /// True while a port is in the flow log.
    pub fn is_sampled(&self, port_id: u16) -> bool {
        self.lock().sampled.ports.contains(&port_id)
    }

    fn listen(
        self: &Arc<Self>,
        kind: Kind,
        port_id: u16,
        interfaces: Vec<u32>,
    ) -> Result<Watch, Busy> {
        let mut inner = self.lock();
        let listeners = inner.of(kind);
        if listeners.ports.contains(&port_id) {
            return Err(Busy::Port);
        }
        if kind == Kind::Captured && listeners.ports.len() >= MOST {
            return Err(Busy::Node);
        }
        listeners.ports.insert(port_id);
        let before = match inner.begin(port_id) {
            Ok(before) => before,
            Err(error) => {
                inner.of(kind).ports.remove(&port_id);
                // The first error is the one to tell.
                let _ = inner.mark(port_id);
                return Err(error.into());
            }
        };
        let (to, drops) = sync_channel(match kind {
            Kind::Captured => DROPS,
            Kind::Sampled => SAMPLED_DROPS,
        });
        let lost = Arc::new(AtomicU64::new(0));
        for interface in &interfaces {
            let listener = Listener {
                to: to.clone(),
                lost: Arc::clone(&lost),
            };
            inner.of(kind).by_interface.insert(*interface, listener);
        }
        drop(inner);
        self.running.fetch_add(1, Ordering::AcqRel);
        // The thread that hears for captures may be waiting for a drop.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        Ok(Watch {
            captures: Arc::clone(self),
            kind,
            port_id,
            interfaces,
            drops,
            lost,
            before,
        })
    }

    /// True while [`Self::heard`] is waited for: by a capture or the flow log.
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0
    }

    /// Gives a drop to the capture of its port, and to the flow log if sampled.
    pub fn hear(&self, event: &DropEvent) {
        let inner = self.lock();
        let capture = inner.captured.by_interface.get(&event.ifindex).cloned();
        let log = inner.sampled.by_interface.get(&event.ifindex);
        let log = log.filter(|_| event.is_sampled()).cloned();
        drop(inner);
        for Listener { to, lost } in capture.into_iter().chain(log) {
            if to.try_send(*event).is_err() {
                lost.fetch_add(1, Ordering::AcqRel);
            }
        }
    }

    /// Says that all drops until this time were given to their captures.
    ///
    /// It is of `CLOCK_MONOTONIC`, nanoseconds.
    pub fn heard(&self, until_ns: u64) {
        self.heard_until.store(until_ns, Ordering::Release);
    }

    /// Makes the descriptor unreadable until the next capture begins.
    pub fn woken(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
    }
}

impl AsFd for Captures {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Watch {
    /// Takes the drops that have come.
    pub fn drops(&self) -> impl Iterator<Item = DropEvent> {
        self.drops.try_iter()
    }

    /// Returns the time until which all drops have come, nanoseconds.
    ///
    /// It is of `CLOCK_MONOTONIC`.
    pub fn heard_until(&self) -> u64 {
        self.captures.heard_until.load(Ordering::Acquire)
    }

    /// Returns the number of drops so far that have not come.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn lost(&self) -> Result<u64, DatapathError> {
        let unpublished = self.captures.lock().marks.lost(self.port_id)?;
        let unpublished = unpublished.saturating_sub(self.before);
        Ok(unpublished + self.lost.load(Ordering::Acquire))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut inner = self.captures.lock();
        let listeners = inner.of(self.kind);
        for interface in &self.interfaces {
            listeners.by_interface.remove(interface);
        }
        listeners.ports.remove(&self.port_id);
        if let Err(error) = inner.mark(self.port_id) {
            tracing::warn!(port = self.port_id, %error, "the mark of a port's capture was not removed, its drops are published until the agent starts again");
        }
        drop(inner);
        self.captures.running.fetch_sub(1, Ordering::AcqRel);
    }
}
