//! The control thread: sockets, handshakes and clocks; what the agent wants; and hand-overs.

mod clients;
mod files;
mod ports;
mod replace;
mod requests;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use memif::Address;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::files::{File, Files};
use self::ports::{HandshakeId, Port};
use self::requests::Asker;
use crate::control::Client;
use crate::error::Error;
use crate::worker::{self, Command, Handle, Manner, Report, Reports};

/// Between two looks at clients that may block their doorbells.
const TICK: Duration = Duration::from_secs(1);

/// What the process is told when it starts.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it is spoken to.
    pub socket: PathBuf,
    /// Threads that move packets, at least one. The ports of a network are one's.
    pub workers: usize,
    /// Never sleep: for nodes with a core to spare for each worker.
    pub busy_poll: bool,
    /// Processors that workers stay on, one for each, again from the first if there are fewer.
    pub cpus: Vec<usize>,
}

impl Options {
    /// One worker that sleeps, wherever the kernel wants.
    pub fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            workers: 1,
            busy_poll: false,
            cpus: Vec::new(),
        }
    }
}

/// Why a switch has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Somebody asked it to. Clients were told.
    Stopped,
    /// Another process is the switch now. Clients know nothing.
    Replaced,
}

/// A switch.
#[derive(Debug)]
pub struct Switch {
    listener: OwnedFd,
    files: Files,
    askers: HashMap<u64, Asker>,
    ports: BTreeMap<String, Port>,
    workers: Vec<Handle>,
    /// What workers are to do, but not yet.
    held: Option<Vec<(usize, Command)>>,
    reports: Receiver<Report>,
    report_bell: Arc<OwnedFd>,
    /// The next number of a connection.
    serial: u64,
    /// When clients are looked at, whatever happens.
    next_tick: Instant,
    /// Listeners could not be served for want of descriptors: again at the next tick.
    stalled: bool,
    /// Somebody wants to be the switch: when handshakes that go on have ended, or at this time.
    replacing: Option<(u64, Instant)>,
    ended: Option<Ended>,
}

impl Switch {
    /// Becomes the switch: takes all over from the one at the socket, or begins with nothing if
    /// there is none.
    ///
    /// # Errors
    /// The one before refuses, or goes on because this one failed; the socket cannot be bound; or the
    /// kernel has no descriptors, threads or memory to give.
    pub fn open(options: &Options) -> Result<Self, Error> {
        raise_descriptors();
        match Client::connect(&options.socket) {
            Ok(old) => Self::take_over(old, options),
            Err(error) if error.is_nobody_there() => {
                let address = Address::Path(options.socket.clone());
                let listener = address.listen().map_err(Error::Address)?;
                let mode = fs::Permissions::from_mode(0o600);
                fs::set_permissions(&options.socket, mode).map_err(|source| Error::Mode {
                    path: options.socket.clone(),
                    source,
                })?;
                Self::new(listener, options)
            }
            Err(error) => Err(error),
        }
    }

    fn new(listener: OwnedFd, options: &Options) -> Result<Self, Error> {
        let mut files = Files::new()?;
        let (sender, reports) = channel();
        let report_bell = Arc::new(worker::new_bell()?);
        files.add(report_bell.as_fd(), File::Reports)?;
        files.add(listener.as_fd(), File::Listener)?;
        let mut workers = Vec::new();
        for number in 0..options.workers.max(1) {
            let cpu = number.checked_rem(options.cpus.len());
            let manner = Manner {
                busy_poll: options.busy_poll,
                cpu: cpu.and_then(|nth| options.cpus.get(nth).copied()),
            };
            let reports = Reports {
                sender: sender.clone(),
                bell: Arc::clone(&report_bell),
            };
            workers.push(Handle::start(number, manner, reports)?);
        }
        Ok(Self {
            listener,
            files,
            askers: HashMap::new(),
            ports: BTreeMap::new(),
            workers,
            held: None,
            reports,
            report_bell,
            serial: 0,
            next_tick: Instant::now(),
            stalled: false,
            replacing: None,
            ended: None,
        })
    }

    /// Is the switch, until it is asked to end or is replaced.
    ///
    /// # Errors
    /// The kernel does not say any more which files are ready.
    pub fn run(mut self) -> Result<Ended, Error> {
        loop {
            let now = Instant::now();
            for (token, file) in self.files.wait(self.limit(now))? {
                self.serve(token, &file, Instant::now());
                if let Some(ended) = self.ended {
                    return Ok(ended);
                }
            }
            let now = Instant::now();
            self.tick(now);
            self.replace_when_due(now);
            if let Some(ended) = self.ended {
                return Ok(ended);
            }
        }
    }

    /// For how long nothing has to be done.
    fn limit(&self, now: Instant) -> Option<Duration> {
        let handshakes = self
            .ports
            .values()
            .flat_map(|port| port.handshakes.values());
        let deadlines = handshakes.filter_map(memif::ServerConnection::deadline);
        let due = self.replacing.map(|(_, due)| due);
        let first = deadlines.chain(due).min();
        let first = first.map(|first| first.saturating_duration_since(now));
        let has_clients = self.ports.values().any(Port::is_connected);
        let tick = (has_clients || self.stalled).then_some(TICK);
        [first, tick].into_iter().flatten().min()
    }

    fn serve(&mut self, token: u64, file: &File, now: Instant) {
        match file {
            File::Reports => {
                worker::hush(self.report_bell.as_fd());
                while let Ok(report) = self.reports.try_recv() {
                    self.found_out(&report);
                }
            }
            File::Listener => self.accept_asker(),
            File::Asker => self.hear(token),
            File::Door { key, nth } => self.accept_client(key, *nth, now),
            File::Handshake { key, id } => self.handshake(key, *id, now),
            File::Client { key } => self.client_says(key, now),
        }
    }

    /// What time does: handshakes that take too long, and clients that block their doorbells.
    fn tick(&mut self, now: Instant) {
        let is_late = |port: &Port| !port.late_handshakes(now).is_empty();
        if now < self.next_tick && !self.ports.values().any(is_late) {
            return;
        }
        self.next_tick = now.checked_add(TICK).unwrap_or(now);
        let keys: Vec<String> = self.ports.keys().cloned().collect();
        for key in keys {
            let Some(port) = self.ports.get_mut(&key) else {
                continue;
            };
            let late: Vec<HandshakeId> = port.late_handshakes(now);
            for id in late {
                self.handshake_tick(&key, id, now);
            }
            self.client_tick(&key, now);
        }
        if std::mem::take(&mut self.stalled) {
            self.resume_doors();
        }
    }
}

/// A connection has ten descriptors, of which most systems give a process 1024 unless it asks.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
    if let Err(errno) = raised {
        let error = io::Error::from(errno);
        tracing::warn!(%error, "the limit of descriptors stays as it is");
    }
}
