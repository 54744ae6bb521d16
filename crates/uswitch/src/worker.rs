//! A thread that moves packets of its ports. All ports of a network have the same worker, so workers
//! share nothing.
//!
//! While packets come it polls. A while after the last it asks clients for doorbells and sleeps.

mod slot;
mod visit;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use memif::Violation;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::{Errno, read, write};

use self::slot::{Input, Output};
use crate::device::Device;
use crate::error::Error;
use crate::header::Header;
use crate::network::{Identity, Network, Slot};
use crate::port::{PortConfig, PortCounters};

/// Time without a packet after which the worker sleeps.
const SPIN: Duration = Duration::from_micros(100);
/// The first sleep's limit: a client that looked at our wish for doorbells too early is heard then.
const FIRST_SLEEP: Duration = Duration::from_millis(1);
/// The longest sleep. By then no client can have missed the wish; this is for what nobody thought of.
const LONGEST_SLEEP: Duration = Duration::from_millis(128);
/// Rounds with packets between two looks at devices and commands.
const ROUNDS: u32 = 16;
/// Bytes of the longest frame that is read from a device, or comes from a client.
pub(crate) const FRAME_MAX: usize = 65536;
/// Files that an epoll tells of at once.
const EVENTS: usize = 64;
/// What belongs to no port: the worker's own doorbell.
const DOORBELL: u64 = u64::MAX;
/// Of a port's files the device; rings follow.
const DEVICE: u64 = 0;

/// What the control thread wants.
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
    /// What went through.
    Count(Sender<Counted>),
    /// Everything is given back. The worker is empty after this.
    Yield(Sender<Vec<Yielded>>),
    /// One after the other, before any packet is moved.
    Many(Vec<Command>),
    /// The end.
    Stop,
}

/// What went through a worker.
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

/// A client that broke the protocol; its rings are gone from the worker.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) worker: usize,
    pub(crate) slot: Slot,
    pub(crate) serial: u64,
    pub(crate) violation: Violation,
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

/// Wakes whoever waits for an eventfd of ours.
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

struct Worker {
    number: usize,
    manner: Manner,
    commands: Receiver<Command>,
    bell: Arc<OwnedFd>,
    reports: Reports,
    epoll: OwnedFd,
    networks: HashMap<u32, usize>,
    tables: Vec<Network>,
    inputs: Vec<Option<Input>>,
    outputs: Vec<Option<Output>>,
    /// Outputs that have something to flush.
    touched: Vec<usize>,
    header: Header,
    frame: Vec<u8>,
    rounds: u64,
    sleeps: u64,
    stopped: bool,
}

impl Worker {
    fn new(
        number: usize,
        manner: Manner,
        commands: Receiver<Command>,
        bell: Arc<OwnedFd>,
        reports: Reports,
    ) -> Result<Self, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::system("epoll"))?;
        epoll::add(&epoll, &bell, EventData::new_u64(DOORBELL), EventFlags::IN)
            .map_err(Error::system("waiting for commands"))?;
        Ok(Self {
            number,
            manner,
            commands,
            bell,
            reports,
            epoll,
            networks: HashMap::new(),
            tables: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            touched: Vec::new(),
            header: Header::new(),
            frame: vec![0; FRAME_MAX],
            rounds: 0,
            sleeps: 0,
            stopped: false,
        })
    }

    fn run(mut self) {
        if let Some(cpu) = self.manner.cpu {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu);
            if let Err(errno) = rustix::thread::sched_setaffinity(None, &set) {
                let error = io::Error::from(errno);
                tracing::warn!(worker = self.number, cpu, %error, "cannot stay on the processor");
            }
        }
        let mut events = Vec::with_capacity(EVENTS);
        let mut quiet_since = None;
        let mut sleep = FIRST_SLEEP;
        while !self.stopped {
            let moved = self.round();
            if moved {
                quiet_since = None;
                sleep = FIRST_SLEEP;
                if self.rounds.is_multiple_of(ROUNDS.into()) {
                    self.look(&mut events, Some(Duration::ZERO));
                }
                continue;
            }
            let now = Instant::now();
            let since = *quiet_since.get_or_insert(now);
            if self.manner.busy_poll || now.duration_since(since) < SPIN {
                self.look(&mut events, Some(Duration::ZERO));
                continue;
            }
            if !self.arm() {
                continue;
            }
            self.sleeps = self.sleeps.wrapping_add(1);
            // Without a client there is nobody who could forget to ring.
            let limit = self.has_clients().then_some(sleep);
            if self.look(&mut events, limit) {
                quiet_since = None;
                sleep = FIRST_SLEEP;
            } else {
                sleep = LONGEST_SLEEP.min(sleep.saturating_mul(2));
            }
        }
    }

    /// Each port has a turn. Returns whether there was anything to do.
    fn round(&mut self) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        let mut moved = false;
        for slot in 0..self.inputs.len() {
            moved |= self.visit(slot);
            moved |= self.visit_device(slot);
        }
        moved
    }

    /// Waits for files, for as long as it may take. Returns whether a client or device had to say
    /// something.
    fn look(&mut self, events: &mut Vec<epoll::Event>, limit: Option<Duration>) -> bool {
        let limit = limit.map(|limit| Timespec {
            tv_sec: 0,
            tv_nsec: limit.subsec_nanos().into(),
        });
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(events), limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                let error = io::Error::from(errno);
                tracing::error!(worker = self.number, %error, "waiting for files");
            }
        }
        let (mut commands, mut any) = (false, false);
        for event in &*events {
            let data = event.data.u64();
            if data == DOORBELL {
                commands = true;
                continue;
            }
            any = true;
            if let (Ok(slot), DEVICE) = (usize::try_from(data >> 16), data & 0xffff)
                && let Some(Some(input)) = self.inputs.get_mut(slot)
            {
                input.device_ready = true;
            }
        }
        if commands {
            hush(self.bell.as_fd());
            while let Ok(command) = self.commands.try_recv() {
                self.obey(command);
            }
        }
        any
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Add {
                slot,
                config,
                device,
                counters,
            } => self.add(slot, &config, device, counters),
            Command::Update {
                slot,
                config,
                device,
            } => self.update(slot, &config, device),
            Command::Connect { slot, serial, port } => self.connect(slot, serial, *port),
            Command::Disconnect { slot } => {
                self.take_rings(index(slot));
            }
            Command::Remove { slot } => {
                self.remove(slot);
            }
            Command::Count(answer) => {
                // Whoever asked may have lost patience.
                let _ = answer.send(self.count());
            }
            Command::Yield(answer) => {
                let slots = 0..self.inputs.len();
                let slots = slots.filter_map(|slot| Slot::try_from(slot).ok());
                let yielded = slots.filter_map(|slot| self.remove(slot)).collect();
                let _ = answer.send(yielded);
            }
            Command::Many(commands) => {
                for command in commands {
                    self.obey(command);
                }
            }
            Command::Stop => self.stopped = true,
        }
    }

    fn add(
        &mut self,
        slot: Slot,
        config: &PortConfig,
        device: Arc<Device>,
        counters: PortCounters,
    ) {
        let at = index(slot);
        while self.inputs.len() <= at {
            self.inputs.push(None);
            self.outputs.push(None);
        }
        // So that no packet ever makes it grow.
        self.touched.reserve(self.outputs.len());
        self.watch(&device, at);
        let network = self.network(config.network);
        let input = Input::new(
            Identity::new(config),
            config.fast,
            network,
            device,
            counters,
        );
        if let Some(table) = self.tables.get_mut(network)
            && config.fast
        {
            table.insert(slot, &input.identity);
        }
        if let (Some(place), Some(output)) = (self.inputs.get_mut(at), self.outputs.get_mut(at)) {
            *place = Some(input);
            *output = Some(Output::default());
        }
    }

    fn update(&mut self, slot: Slot, config: &PortConfig, device: Option<Arc<Device>>) {
        let at = index(slot);
        if let Some(device) = &device {
            self.watch(device, at);
        }
        let Some(Some(input)) = self.inputs.get_mut(at) else {
            return;
        };
        if let Some(device) = device {
            let old = std::mem::replace(&mut input.device, device);
            input.device_ready = true;
            forget(&self.epoll, old.fd());
        }
        input.identity = Identity::new(config);
        input.fast = config.fast;
        if let Some(table) = self.tables.get_mut(input.network) {
            table.remove(slot);
            if config.fast {
                table.insert(slot, &input.identity);
            }
        }
    }

    fn connect(&mut self, slot: Slot, serial: u64, port: memif::Port) {
        let at = index(slot);
        let (Some(Some(input)), Some(Some(output))) =
            (self.inputs.get_mut(at), self.outputs.get_mut(at))
        else {
            return;
        };
        for (ring, nth) in port.rx.iter().zip(1..) {
            if let Some(event) = ring.event() {
                let edges = EventFlags::IN | EventFlags::ET;
                // Without it the ring is polled at the end of each sleep.
                let _ = epoll::add(
                    &self.epoll,
                    event,
                    EventData::new_u64(token(at, nth)),
                    edges,
                );
            }
        }
        input.connect(serial, port.rx, (port.app, port.peer));
        output.tx = port.tx;
    }

    /// A port's rings, if it has a client: out of every table and epoll.
    fn take_rings(&mut self, at: usize) -> Option<memif::Port> {
        let (Some(Some(input)), Some(Some(output))) =
            (self.inputs.get_mut(at), self.outputs.get_mut(at))
        else {
            return None;
        };
        let tx = std::mem::take(&mut output.tx);
        output.touched = false;
        let (rx, (app, peer)) = input.disconnect()?;
        for event in rx.iter().filter_map(memif::Rx::event) {
            forget(&self.epoll, event);
        }
        Some(memif::Port { rx, tx, app, peer })
    }

    fn remove(&mut self, slot: Slot) -> Option<Yielded> {
        let at = index(slot);
        let rings = self.take_rings(at);
        let input = self.inputs.get_mut(at)?.take()?;
        let output = self.outputs.get_mut(at)?.take()?;
        forget(&self.epoll, input.device.fd());
        if let Some(table) = self.tables.get_mut(input.network) {
            table.remove(slot);
        }
        Some(Yielded {
            slot,
            counters: output.counters(input.counters()),
            rings,
        })
    }

    fn count(&self) -> Counted {
        let both = self.inputs.iter().zip(&self.outputs).zip(0..);
        let ports = both.filter_map(|((input, output), slot)| {
            let (input, output) = (input.as_ref()?, output.as_ref()?);
            Some((slot, output.counters(input.counters())))
        });
        Counted {
            ports: ports.collect(),
            rounds: self.rounds,
            sleeps: self.sleeps,
        }
    }

    /// The place of a network's tables.
    fn network(&mut self, number: u32) -> usize {
        let next = self.tables.len();
        let place = *self.networks.entry(number).or_insert(next);
        if place == next {
            self.tables.push(Network::default());
        }
        place
    }

    fn has_clients(&self) -> bool {
        let inputs = self.inputs.iter().flatten();
        inputs.into_iter().any(|input| !input.rx.is_empty())
    }

    fn watch(&self, device: &Device, at: usize) {
        let data = EventData::new_u64(token(at, DEVICE));
        let watched = epoll::add(
            &self.epoll,
            device.fd(),
            data,
            EventFlags::IN | EventFlags::ET,
        );
        if let Err(errno) = watched {
            let error = io::Error::from(errno);
            tracing::error!(worker = self.number, slot = at, %error, "a device cannot be waited for");
        }
    }

    /// Ends a port's connection, and says why.
    #[cold]
    fn cut(&mut self, at: usize, violation: Violation) {
        let Some(Some(input)) = self.inputs.get(at) else {
            return;
        };
        let report = Report {
            worker: self.number,
            slot: Slot::try_from(at).unwrap_or(Slot::MAX),
            serial: input.serial,
            violation,
        };
        if self.take_rings(at).is_some() {
            // The control thread is there for as long as the worker.
            let _ = self.reports.sender.send(report);
            ring(self.reports.bell.as_fd());
        }
    }
}

/// A file that others have too is not forgotten by being closed here.
fn forget(epoll: &OwnedFd, file: BorrowedFd<'_>) {
    // It is not there, if there was no room for it.
    let _ = epoll::delete(epoll, file);
}

fn index(slot: Slot) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}

fn token(at: usize, file: u64) -> u64 {
    (u64::try_from(at).unwrap_or(u64::MAX) << 16) | file
}
