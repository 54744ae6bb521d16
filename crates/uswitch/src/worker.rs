//! Move the packets of some ports on a thread of their own.
//!
//! All ports of a network have the same worker, so workers share nothing.
//!
//! While packets come it polls. A while after the last it asks clients for doorbells and sleeps.

mod clock;
mod handle;
mod ports;
mod share;
mod slot;
#[cfg(test)]
mod tests;
mod visit;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use memif::{GROUP, Violation};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use self::clock::Clock;
use self::handle::Yielded;
pub(crate) use self::handle::{
    Command, Counted, Handle, Manner, Report, Reports, hush, new_bell, ring,
};
use self::share::{Shares, Side};
use self::slot::{Input, Output};
use crate::error::Error;
use frames::header::Header;
use frames::train::{HEADER, Train};
use ways::Published;
use ways::{Network, Slot};

/// Time without a packet after which the worker sleeps.
const SPIN: Duration = Duration::from_micros(100);
/// Limit of the first sleep.
///
/// A client that read the wish for doorbells too early is served then.
const FIRST_SLEEP: Duration = Duration::from_millis(1);
/// Limit of all later sleeps, in case a doorbell is missed in an unforeseen way.
///
/// By then no client can have missed the wish for doorbells.
const LONGEST_SLEEP: Duration = Duration::from_millis(128);
/// Rounds with packets between two looks at devices and commands.
const ROUNDS: u32 = 16;
/// Bytes of the longest frame that is read from a device, or comes from a client.
pub(crate) const FRAME_MAX: usize = 65536;
/// Files that an epoll tells of at once.
const EVENTS: usize = 64;
/// Token of the worker's own doorbell, which belongs to no port.
const DOORBELL: u64 = u64::MAX;
/// Of a port's files the device; rings follow.
const DEVICE: u64 = 0;

/// The thread's own.
struct Worker {
    number: usize,
    manner: Manner,
    commands: Receiver<Command>,
    bell: Arc<OwnedFd>,
    reports: Reports,
    epoll: OwnedFd,
    networks: HashMap<u32, usize>,
    tables: Vec<Network>,
    published: Option<Arc<Published>>,
    /// Now, in ticks of the kernel program.
    tick: u32,
    /// Places of networks that have no port any more.
    free: Vec<usize>,
    inputs: Vec<Option<Input>>,
    outputs: Vec<Option<Output>>,
    /// The time that each pod has earned.
    shares: Shares,
    clock: Clock,
    /// Outputs that have something to flush.
    touched: Vec<usize>,
    /// Of the packets of a group.
    headers: Vec<Header>,
    /// A frame of a device.
    frame: Vec<u8>,
    /// Frames on their way to a device.
    train: Train,
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
            published: None,
            tick: 0,
            free: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            shares: Shares::default(),
            clock: Clock::default(),
            touched: Vec::new(),
            headers: std::iter::repeat_with(Header::default)
                .take(GROUP)
                .collect(),
            frame: vec![0; HEADER.saturating_add(FRAME_MAX)],
            train: Train::new(FRAME_MAX),
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
                tracing::warn!(worker = self.number, cpu, %error, "the worker cannot be bound to its processor");
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
            // A bell is no packet: a client that only rings is not polled for.
            let new = self.look(&mut events, limit);
            sleep = if new {
                FIRST_SLEEP
            } else {
                LONGEST_SLEEP.min(sleep.saturating_mul(2))
            };
        }
    }

    /// Serves each port as many turns as its share of the time allows.
    ///
    /// Returns whether there was anything to do, or will be.
    fn round(&mut self) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        if self.published.is_some() {
            self.tick = ways::tick();
        }
        let mut moved = false;
        for slot in 0..self.inputs.len() {
            moved |= self.turns(slot, Side::Client);
            moved |= self.turns(slot, Side::Device);
        }
        let waits = self.shares.end();
        moved | waits
    }

    /// A port's turns in a round. Returns whether there were any.
    #[inline]
    fn turns(&mut self, at: usize, side: Side) -> bool {
        let Some(Some(input)) = self.inputs.get_mut(at) else {
            return false;
        };
        let may_have = match side {
            Side::Client => !input.rx.is_empty(),
            Side::Device => input.device_ready,
        };
        let pod = input.pod;
        if !may_have || !self.shares.begin(pod, &mut input.credit, side) {
            return false;
        }
        let mut moved = false;
        loop {
            let turn = match side {
                Side::Client => self.visit(at),
                Side::Device => self.visit_device(at),
            };
            let Some(turn) = turn else {
                self.clock.lose();
                break;
            };
            moved = true;
            let Some(Some(input)) = self.inputs.get_mut(at) else {
                break;
            };
            let may_go_on = self.shares.charge(&mut input.credit, side, turn.cost);
            if !may_go_on || !turn.has_more {
                break;
            }
        }
        if moved {
            self.shares.wanted(pod, side);
        }
        moved
    }

    /// Polls the files of the ports, for at most the limit.
    ///
    /// Returns whether there were commands: a client may be new, and not have seen the wish for
    /// doorbells.
    fn look(&mut self, events: &mut Vec<epoll::Event>, limit: Option<Duration>) -> bool {
        let limit = limit.map(|limit| Timespec {
            tv_sec: 0,
            tv_nsec: limit.subsec_nanos().into(),
        });
        events.clear();
        self.clock.lose();
        match epoll::wait(&self.epoll, spare_capacity(events), limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                let error = io::Error::from(errno);
                tracing::error!(worker = self.number, %error, "the worker cannot wait for its files");
            }
        }
        let mut commands = false;
        for event in &*events {
            let data = event.data.u64();
            if data == DOORBELL {
                commands = true;
                continue;
            }
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
        commands
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
            Command::Disconnect { slot } => self.give_back(index(slot), None),
            Command::Remove { slot } => {
                self.give_back(index(slot), None);
                self.remove(slot);
            }
            Command::Judge(published) => self.published = Some(published),
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

    fn has_clients(&self) -> bool {
        let inputs = self.inputs.iter().flatten();
        inputs.into_iter().any(|input| !input.rx.is_empty())
    }

    /// Ends a port's connection, and says why.
    #[cold]
    fn cut(&mut self, at: usize, violation: Violation) {
        self.give_back(at, Some(violation));
    }

    /// Returns a client's rings to the control thread, which unmaps them.
    ///
    /// Unmapping takes time that the packets of other ports do not have.
    fn give_back(&mut self, at: usize, violation: Option<Violation>) {
        let Some(Some(input)) = self.inputs.get(at) else {
            return;
        };
        let serial = input.serial;
        if let Some(rings) = self.take_rings(at) {
            self.report(Report {
                serial,
                rings: Box::new(rings),
                violation,
            });
        }
    }

    fn report(&self, report: Report) {
        // The control thread is there for as long as the worker.
        let _ = self.reports.sender.send(report);
        ring(self.reports.bell.as_fd());
    }
}

fn index(slot: Slot) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}
