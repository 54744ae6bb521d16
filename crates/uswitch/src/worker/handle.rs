//! A worker, as the control thread has it.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use memif::Violation;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};

use super::Worker;
use crate::device::Device;
use crate::error::Error;
use crate::port::{PortConfig, PortCounters};
use ways::Published;
use ways::Slot;

/// Command of the control thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// A port is in this slot, which is empty.
    Add {
        slot: Slot,
        config: Box<PortConfig>,
        device: Arc<Device>,
        counters: PortCounters,
    },
    /// A port is another one, or has another device.
    Update {
        slot: Slot,
        config: Box<PortConfig>,
        device: Option<Arc<Device>>,
    },
    /// A port's client has its rings.
    Connect {
        slot: Slot,
        serial: u64,
        port: Box<memif::Port>,
    },
    /// A port's client is no more.
    Disconnect { slot: Slot },
    /// A port is no more.
    Remove { slot: Slot },
    /// Connections that the kernel has judged are shown here.
    Judge(Arc<Published>),
    /// Reports the counters.
    Count(Sender<Counted>),
    /// Everything is given back. The worker is empty after this.
    Yield(Sender<Vec<Yielded>>),
    /// One after the other, before any packet is moved.
    Many(Vec<Command>),
    /// The end.
    Stop,
}

/// Counters of a worker and of its ports.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) ports: Vec<(Slot, PortCounters)>,
    pub(crate) rounds: u64,
    pub(crate) sleeps: u64,
}

/// A port that a worker gives back.
#[derive(Debug)]
pub(crate) struct Yielded {
    pub(crate) slot: Slot,
    pub(crate) counters: PortCounters,
    pub(crate) rings: Option<memif::Port>,
}

/// Rings that a worker gives back.
#[derive(Debug)]
pub(crate) struct Report {
    /// The client's number.
    pub(crate) serial: u64,
    pub(crate) rings: Box<memif::Port>,
    /// The client broke the protocol; else it was to be disconnected.
    pub(crate) violation: Option<Violation>,
}

/// Where workers report to.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    pub(crate) sender: Sender<Report>,
    pub(crate) bell: Arc<OwnedFd>,
}

/// How workers work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner {
    /// Never sleep.
    pub(crate) busy_poll: bool,
    /// Stay on this processor.
    pub(crate) cpu: Option<usize>,
}

/// A worker, as the control thread has it. The thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Handle {
    commands: Sender<Command>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    /// Starts a worker.
    ///
    /// # Errors
    /// The kernel has no descriptor or thread to give.
    pub(crate) fn start(number: usize, manner: Manner, reports: Reports) -> Result<Self, Error> {
        let bell = Arc::new(new_bell()?);
        let (commands, receiver) = channel();
        let worker = Worker::new(number, manner, receiver, Arc::clone(&bell), reports)?;
        let thread = thread::Builder::new()
            .name(format!("switch-{number}"))
            .spawn(move || worker.run())
            .map_err(Error::Thread)?;
        Ok(Self {
            commands,
            bell,
            thread: Some(thread),
        })
    }

    /// Has it do something soon. A worker that has ended does nothing any more.
    pub(crate) fn tell(&self, command: Command) {
        // It ends only when it is told to, or with the process.
        let _ = self.commands.send(command);
        ring(self.bell.as_fd());
    }

    /// Has it answer.
    pub(crate) fn ask<T>(
        &self,
        number: usize,
        command: impl FnOnce(Sender<T>) -> Command,
    ) -> Result<T, Error> {
        /// A worker answers between two rounds.
        const PATIENCE: Duration = Duration::from_secs(10);
        let (sender, answer) = channel();
        self.tell(command(sender));
        answer
            .recv_timeout(PATIENCE)
            .map_err(|_| Error::Worker(number))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // With panics that end the process there is none to hear of.
            let _ = thread.join();
        }
    }
}

/// An eventfd of ours.
pub(crate) fn new_bell() -> Result<OwnedFd, Error> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(Error::system("eventfd"))
}

/// Wakes the thread that waits for an eventfd of ours.
pub(crate) fn ring(bell: BorrowedFd<'_>) {
    // Full: it was rung and not heard yet.
    let _ = write(bell, &1_u64.to_ne_bytes());
}

/// Was heard.
pub(crate) fn hush(bell: BorrowedFd<'_>) {
    let mut count = [0; 8];
    // Nothing there: somebody else was quicker.
    let _ = read(bell, &mut count);
}
