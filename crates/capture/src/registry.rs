//! Knows the ports under capture, and gives each capture its drops.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_common::event::DropEvent;
use datapath::DatapathError;
use datapath::capture::Marks;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// Captures at a time on a node.
pub const MOST: usize = 8;

/// Drops that wait for their capture to take them.
const DROPS: usize = 8192;

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
    /// By the interface at which packets of the port are judged.
    by_interface: HashMap<u32, Listener>,
    ports: Vec<u16>,
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
    port_id: u16,
    interfaces: Vec<u32>,
    drops: Receiver<DropEvent>,
    lost: Arc<AtomicU64>,
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
                by_interface: HashMap::new(),
                ports: Vec::new(),
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
        let mut inner = self.lock();
        if inner.ports.contains(&port_id) {
            return Err(Busy::Port);
        }
        if inner.ports.len() >= MOST {
            return Err(Busy::Node);
        }
        inner.marks.set(port_id, true)?;
        let (to, drops) = sync_channel(DROPS);
        let lost = Arc::new(AtomicU64::new(0));
        for interface in &interfaces {
            let listener = Listener {
                to: to.clone(),
                lost: Arc::clone(&lost),
            };
            inner.by_interface.insert(*interface, listener);
        }
        inner.ports.push(port_id);
        drop(inner);
        self.running.fetch_add(1, Ordering::AcqRel);
        // The thread that hears for captures may be waiting for a drop.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        Ok(Watch {
            captures: Arc::clone(self),
            port_id,
            interfaces,
            drops,
            lost,
        })
    }

    /// True while a port is under capture: [`Self::heard`] is waited for.
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0
    }

    /// Gives a drop to the capture of its port.
    pub fn hear(&self, event: &DropEvent) {
        let listener = self.lock().by_interface.get(&event.ifindex).cloned();
        if let Some(Listener { to, lost }) = listener
            && to.try_send(*event).is_err()
        {
            lost.fetch_add(1, Ordering::AcqRel);
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
        Ok(u64::from(unpublished) + self.lost.load(Ordering::Acquire))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut inner = self.captures.lock();
        if let Err(error) = inner.marks.set(self.port_id, false) {
            tracing::warn!(port = self.port_id, %error, "the mark of a port's capture was not removed, every drop of the port is published until the agent starts again");
        }
        for interface in &self.interfaces {
            inner.by_interface.remove(interface);
        }
        inner.ports.retain(|port| *port != self.port_id);
        drop(inner);
        self.captures.running.fetch_sub(1, Ordering::AcqRel);
    }
}
